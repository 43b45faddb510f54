"""The wheels of ./troupe wheel, from a made-up bundle and LibTorch. tests/e2e/wheel_test.py installs real ones."""

import base64
import csv
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

PYTHON = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHECKOUT = os.path.dirname(PYTHON)
sys.path.insert(0, PYTHON)
import distribution  # noqa: E402
import make_wheels  # noqa: E402

HEADERS = """
  NEEDED               libc.so.6
  NEEDED               {library}
Version definitions:
1 0x01 0x0a7b GLIBC_9.9

Version References:
  required from libc.so.6:
    0x09691974 0x00 03 GLIBC_2.3.4
    0x09691974 0x00 03 GLIBC_{glibc}
  required from libstdc++.so.6:
    0x0297f869 0x00 02 GLIBCXX_3.4.29
"""


class ComplaintsTest(unittest.TestCase):
    def complaints(self, library="libm.so.6", glibc="2.34"):
        return make_wheels.complaints("bin/x", HEADERS.format(library=library, glibc=glibc), make_wheels.LINUX_TAG, {"libtorch_cpu.so"})

    def test_what_the_tag_promises_is_all_right(self):
        self.assertEqual(self.complaints(), [])
        self.assertEqual(self.complaints("libtorch_cpu.so", "2.17"), [])

    def test_a_newer_symbol(self):
        self.assertEqual(self.complaints(glibc="2.36"),
                         ["bin/x asks for GLIBC_2.36, expected at most 2.34 (py3-none-manylinux_2_34_x86_64)"])

    def test_a_library_that_systems_lack(self):
        self.assertEqual(self.complaints("libgrpc.so.29"),
                         ["bin/x needs libgrpc.so.29, expected only libraries of py3-none-manylinux_2_34_x86_64 and of the wheel"])


class WheelsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="troupe_wheels_")
        self.addCleanup(shutil.rmtree, self.folder)
        self.write("some.c", "int some(void) { return 1; }")
        self.elf = self.link("elf")
        for name in ("bin/troupe", "libexec/troupe/troupe-torch", "libexec/troupe/troupe-learner"):
            self.program("bundle/" + name)
        for name in ("python/troupe/__init__.py", "python/troupe/py.typed", "python/troupe/envs/_lib/libx.so.1", "libexec/troupe/stubs/cudart/libcudart.so.13",
                     "libexec/troupe/training_test", "LICENSE", "licenses/libx-dev"):
            self.write("bundle/" + name, name)
        for name in make_wheels.LIBTORCH:
            self.program("site/torch/lib/" + name)
        self.write("site/torch-2.11.0.dist-info/licenses/LICENSE", "of torch")

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as file:
            file.write(text)

    def link(self, name, *options):
        subprocess.run(["gcc", "-shared", "-nostdlib", "-o", self.path(name), self.path("some.c"), *options], check=True)
        return self.path(name)

    def program(self, name):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        shutil.copy(self.elf, self.path(name))
        os.chmod(self.path(name), 0o755)

    def make(self, out="out", seconds=1_700_000_000):
        return make_wheels.write_all(self.path("bundle"), self.path("site"), self.path(out), seconds)

    def test_three_wheels_whose_records_hold(self):
        paths = self.make()
        version = distribution.VERSION
        self.assertEqual([os.path.basename(path) for path in paths],
                         [f"troupe_rl-{version}-py3-none-manylinux_2_34_x86_64.whl", f"troupe_rl-{version}-py3-none-any.whl",
                          f"troupe_libtorch_cpu-{distribution.LIBTORCH_VERSION}-py3-none-manylinux_2_28_x86_64.whl"])
        self.assertEqual(sorted(os.listdir(self.path("out"))), sorted(map(os.path.basename, paths)), "nothing else is left there")
        for path in paths:
            with zipfile.ZipFile(path) as wheel:
                info = "-".join(os.path.basename(path).split("-")[:2]) + ".dist-info"
                rows = list(csv.reader(wheel.read(f"{info}/RECORD").decode().splitlines()))
                self.assertEqual(sorted(row[0] for row in rows), sorted(wheel.namelist()))
                for name, digest, size in rows[:-1]:
                    data = wheel.read(name)
                    self.assertEqual(digest, "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("="), name)
                    self.assertEqual(int(size), len(data))
                self.assertIn(f"Tag: {path[:-4].split('-', 2)[2]}\n", wheel.read(f"{info}/WHEEL").decode())

    def test_what_is_in_them(self):
        linux, pure, libtorch = (zipfile.ZipFile(path) for path in self.make())
        with linux, pure, libtorch:
            names = {name for name in linux.namelist() if ".dist-info/" not in name}
            self.assertEqual(names, {"troupe/__init__.py", "troupe/py.typed", "troupe/envs/_lib/libx.so.1", "troupe/bin/troupe", "troupe/bin/troupe-learner",
                                     "troupe/libexec/troupe-learner", "troupe/libexec/stubs/cudart/libcudart.so.13"})
            modes = {name: linux.getinfo(name).external_attr >> 16 for name in names}
            self.assertEqual({modes["troupe/bin/troupe"], modes["troupe/bin/troupe-learner"]}, {0o100755})
            self.assertEqual(modes["troupe/__init__.py"], 0o100644)
            info = f"troupe_rl-{distribution.VERSION}.dist-info"
            self.assertEqual(linux.read(f"{info}/licenses/third_party/libx-dev"), b"licenses/libx-dev")
            self.assertIn(b"What is not clear", linux.read(f"{info}/licenses/NOTICE"))
            self.assertEqual(linux.read(f"{info}/entry_points.txt"), b"[console_scripts]\ntroupe = troupe.__main__:main\n")
            about = linux.read(f"{info}/METADATA").decode()
            self.assertEqual(about, pure.read(f"{info}/METADATA").decode())
            self.assertIn("\nName: troupe-rl\n", about)
            self.assertIn('\nRequires-Dist: torch==2.11.0; extra == "cuda"\n', about)
            self.assertFalse(re.search(r"^Requires-Dist: [^;]*$", about, re.M), "no dependency without an extra")
            self.assertEqual({name for name in pure.namelist() if ".dist-info/" not in name}, {"troupe/__init__.py", "troupe/py.typed"})
            self.assertEqual({name for name in libtorch.namelist() if ".dist-info/" not in name},
                             {"troupe_libtorch/__init__.py", "troupe_libtorch/version.py", *(f"troupe_libtorch/lib/{name}" for name in make_wheels.LIBTORCH)})

    def test_the_same_input_makes_the_same_bytes(self):
        for one, other in zip(self.make("one"), self.make("other")):
            with open(one, "rb") as first, open(other, "rb") as second:
                self.assertEqual(first.read(), second.read())

    def test_a_wheel_of_libtorch_that_is_newer_than_its_libraries_stays(self):
        path = self.make()[2]
        before = os.stat(path).st_mtime_ns
        self.make()
        self.assertEqual(os.stat(path).st_mtime_ns, before)
        os.utime(self.path("site/torch/lib/libc10.so"), (before / 1e9 + 5, before / 1e9 + 5))
        self.make()
        self.assertNotEqual(os.stat(path).st_mtime_ns, before)

    def fails(self, words):
        done = subprocess.run([sys.executable, "-B", os.path.join(PYTHON, "make_wheels.py"), self.path("bundle"), self.path("site"), self.path("out")],
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), done.stderr)
        self.assertRegex(done.stderr, "^make_wheels.py: error: .*" + words)
        self.assertEqual([name for name in os.listdir(self.path("out")) if name.endswith(".whl")] if os.path.isdir(self.path("out")) else [], [])

    def test_bad_input_is_one_sentence_and_no_wheel(self):
        os.remove(self.path("site/torch/lib/libc10.so"))
        self.fails("there is no .*libc10.so, expected the package torch 2.11.0")
        self.program("site/torch/lib/libc10.so")
        shutil.rmtree(self.path("site/torch-2.11.0.dist-info"))
        self.fails("has no torch-.*dist-info/licenses, expected")
        os.remove(self.path("bundle/libexec/troupe/troupe-torch"))
        self.fails("has nothing for troupe/bin/troupe-learner, expected the folder that ./troupe bundle packs")

    def test_a_program_that_needs_more_than_systems_have(self):
        self.link("libodd.so", "-Wl,-soname,libodd.so.7")
        self.link("bundle/bin/troupe", "-Wl,--no-as-needed", self.path("libodd.so"))
        self.fails("troupe/bin/troupe needs libodd.so.7, expected only libraries of")

    def test_too_large(self):
        limit, make_wheels.LIMIT_BYTES = make_wheels.LIMIT_BYTES, 100
        try:
            with self.assertRaisesRegex(make_wheels.WheelError, "bytes, expected at most 100$"):
                self.make()
        finally:
            make_wheels.LIMIT_BYTES = limit
        self.assertEqual(limit, 20_000_000)


class FactsTest(unittest.TestCase):
    def test_versions_are_those_of_the_build(self):
        with open(os.path.join(CHECKOUT, "cmake", "libtorch.pin")) as pin, open(os.path.join(CHECKOUT, "CMakeLists.txt")) as lists:
            self.assertTrue(pin.read().startswith(f"torch=={distribution.LIBTORCH_VERSION} "))
            self.assertIn(f"VERSION {distribution.VERSION}\n", lists.read())


if __name__ == "__main__":
    unittest.main()
