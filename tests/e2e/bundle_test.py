"""What './troupe bundle' made, looked at from outside and run as on a bare machine.

  tests/e2e/bundle_test.py ARCHIVE

Needs objdump, and LibTorch: TROUPE_LIBTORCH, else the one that ./troupe has fetched. Tests of the Python half are skipped where no
interpreter (TROUPE_TEST_PYTHON, else /usr/bin/python3) has numpy.
"""

import functools
import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT_BYTES = 40 * 1024 * 1024
# What every Linux with glibc has.
SYSTEM = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libstdc++.so.6", "libgcc_s.so.1"}
LIBTORCH = {"libtorch_cpu.so", "libc10.so"}
# The newest symbols asked for: RHEL 9 has glibc 2.34 and libstdc++ 11, Ubuntu 22.04 more of both.
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)}
TRAIN = ["train", "examples/simple_spread_mappo.yaml", "--set", "stop.env_steps=20000"]

SPY = """
import os
import numpy as np


def above():
    pid = os.getpid()
    while pid > 1:
        with open(f"/proc/{pid}/stat") as file:
            name, fields = file.read().rsplit(")", 1)
        yield name.split("(", 1)[1]
        pid = int(fields.split()[1])


with open(os.path.join(os.path.dirname(__file__), f"seen-{os.getpid()}"), "w") as file:
    print(os.environ.get("LD_LIBRARY_PATH", "none"), "former" if "TROUPE_FORMER_LD_LIBRARY_PATH" in os.environ else "", *above(), file=file)


def paper(observations, rows):
    return np.ones(len(observations), np.int64)
"""

GAME = """
env: {name: rock_paper_scissors, python: {interpreter: PYTHON, path: PATH}}
algorithm: {name: ppo, train_batch_size: 500, minibatch_size: 250}
num_workers: 1
num_envs_per_worker: 10
evaluation: {episodes: 20}
multi_agent:
  policies: {main: {}, other: {class: "python:spy:paper"}}
  policy_mapping: {player_0: main, player_1: other}
stop: {env_steps: 1000}
"""
PYTHON_RUN = """
env: {{name: "python:host_test_envs:Counter", python: {{interpreter: "{python}", path: "{path}"}}}}
algorithm: {{name: ppo, train_batch_size: 200, minibatch_size: 100, num_epochs: 1}}
num_workers: 1
stop: {{env_steps: 1000}}
"""


def pinned_version():
    with open(os.path.join(SOURCE, "cmake", "libtorch.pin")) as file:
        return re.match(r"torch==(\S+)", file.read())[1]


def fetched_libtorch():
    """The folder that holds torch/."""
    told = os.environ.get("TROUPE_LIBTORCH")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return told or os.path.join(os.environ.get("TROUPE_CACHE") or os.path.join(home, "troupe"), "libtorch-" + pinned_version())


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def python_with(module):
    for python in (os.environ.get("TROUPE_TEST_PYTHON"), "/usr/bin/python3"):
        if python and subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0:
            return python
    raise unittest.SkipTest(f"no interpreter has {module}")


class BundleTest(unittest.TestCase):
    archive = None

    @classmethod
    def setUpClass(cls):
        cls.unpacked = tempfile.mkdtemp(prefix="troupe_bundle_")
        cls.addClassCleanup(shutil.rmtree, cls.unpacked)
        with tarfile.open(cls.archive) as archive:
            cls.members = archive.getmembers()
            archive.extractall(cls.unpacked)
        cls.root = os.path.join(cls.unpacked, cls.members[0].name)

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="troupe_bundle_test_")
        self.addCleanup(shutil.rmtree, self.folder)

    def files(self):
        for directory, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(directory, name)
                if not os.path.islink(path):
                    yield os.path.relpath(path, self.root), path

    @functools.lru_cache(maxsize=None)
    def binaries(self):
        """Path in the bundle -> what objdump -p says of it."""
        found = {}
        for name, path in self.files():
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    found[name] = output_of("objdump", "-p", path)
        return found

    def run_in(self, program, *arguments, ok=True, **variables):
        """Runs a program of the bundle in its folder, with these environment variables and no others; runs go into the test's folder."""
        if program == "bin/troupe" and arguments[0] == "train":
            arguments += ("--set", "experiment.directory=" + self.folder)
        done = subprocess.run([os.path.join(self.root, program), *arguments], cwd=self.root, env=variables, capture_output=True, text=True,
                              timeout=300, stdin=subprocess.DEVNULL)
        if ok:
            self.assertEqual(done.returncode, 0, f"{program} {' '.join(arguments)}\n{done.stdout}\n{done.stderr}")
        return done

    def package(self, version):
        """A folder for PYTHONPATH whose package torch is the fetched LibTorch, as pip installs it with --no-deps: without CUDA's libraries."""
        torch = os.path.join(self.folder, "site", "torch")
        os.makedirs(os.path.join(torch, "lib"))
        # The files, not their folder: CUDA's libraries would be found beside that.
        for path in glob.glob(os.path.join(fetched_libtorch(), "torch", "lib", "*.so*")):
            os.symlink(path, os.path.join(torch, "lib", os.path.basename(path)))
        for name, text in (("__init__.py", "raise RuntimeError('imported')\n"), ("version.py", f"__version__ = '{version}'\n")):
            with open(os.path.join(torch, name), "w") as file:
                file.write(text)
        return os.path.dirname(torch)

    def sentence(self, program="bin/troupe-learner", **variables):
        """What the program says on stderr instead of starting: one line."""
        done = self.run_in(program, "--version", ok=False, **variables)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr.strip()

    # --- looked at from outside ----------------------------------------------------------------------------------------------

    def test_size(self):
        self.assertLessEqual(os.path.getsize(self.archive), LIMIT_BYTES)

    def test_what_is_in_it(self):
        top = os.path.basename(self.root)
        self.assertRegex(os.path.basename(self.archive), r"\.tar\.gz$")
        for member in self.members:
            self.assertEqual(member.name.split("/")[0], top)
            self.assertEqual((member.uid, member.gid), (0, 0), member.name)
            if member.issym():
                target = os.path.normpath(os.path.join(os.path.dirname(member.name), member.linkname))
                self.assertTrue(os.path.isfile(os.path.join(self.unpacked, target)), f"{member.name} -> {member.linkname}")
        for name in ("LICENSE", "README.md", "bin/troupe", "bin/troupe-learner", "tests/training_core_test", "tests/training_test",
                     "tests/update_parity_test", "tests/fused_parity_test", "tests/parity/ppo_reference.json", "tests/parity/a2c_reference.json", "bench/update_bench",
                     "bench/stacked_update_bench", "bench/learning.py", "bench/gpu/check",
                     "examples/simple_spread_mappo.yaml", "python/troupe/__init__.py", "include/troupe/lib/env/plugin_sdk.h",
                     "licenses/libgrpc-dev", "licenses/libspdlog-dev"):
            self.assertTrue(os.path.isfile(os.path.join(self.root, name)), name)
        self.assertFalse([member.name for member in self.members if "__pycache__" in member.name])

    def test_libraries_that_a_machine_must_have(self):
        self.assertGreater(len(self.binaries()), 10)
        for name, headers in self.binaries().items():
            needed = set(re.findall(r"NEEDED +(\S+)", headers)) - SYSTEM
            if name.startswith("libexec/troupe/"):
                needed -= LIBTORCH
            if name.startswith("python/troupe/") and needed:
                folder = os.path.join(self.root, os.path.dirname(name))
                needed -= set(os.listdir(folder if os.path.basename(folder) == "_lib" else os.path.join(folder, "_lib")))
            self.assertEqual(needed, set(), name)
            self.assertIn(re.findall(r"(?:RPATH|RUNPATH) +(\S+)", headers), ([], ["$ORIGIN/_lib"]), name)

    def test_symbols_that_older_systems_have(self):
        for name, headers in self.binaries().items():
            asked = headers.split("Version References:")[-1] if "Version References:" in headers else ""
            for library, version in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)\b", asked):
                self.assertLessEqual(tuple(map(int, version.split("."))), NEWEST[library], f"{name}: {library}_{version}")

    def test_no_path_of_the_machine_that_built_it(self):
        paths = [path.encode() for path in (SOURCE, os.path.realpath(SOURCE), fetched_libtorch(), os.path.expanduser("~/.cache"))]
        for name, path in self.files():
            with open(path, "rb") as file:
                text = file.read()
            for built in paths:
                at = text.find(built)
                self.assertEqual(at, -1, f"{name}: {text[max(at - 80, 0):at + 120]!r}")

    def test_stubs_have_what_libtorch_takes(self):
        """Neither less, with which LibTorch would not load, nor more."""
        library = os.path.join(fetched_libtorch(), "torch", "lib", "libtorch_cpu.so")
        taken = output_of("objdump", "-T", library)
        for stub, soname in (("cudart", "libcudart.so.13"), ("cupti", "libcupti.so.13")):
            wanted = set(re.findall(rf"\*UND\*.*\({re.escape(soname)}\) (\S+)", taken))
            given = output_of("objdump", "-T", os.path.join(self.root, "libexec/troupe/stubs", stub, soname))
            self.assertEqual(set(re.findall(rf"\.text\s.* {re.escape(soname)} +(\S+)", given)), wanted)
            self.assertGreater(len(wanted), 3)

    # --- without LibTorch ----------------------------------------------------------------------------------------------------

    def test_runs_with_an_empty_environment(self):
        self.assertRegex(self.run_in("bin/troupe", "version", PATH="/nonexistent").stdout, r"^troupe \d+\.\d+\.\d+ \((commit|no commit).*\)\n$")
        self.assertIn("mpe/simple_spread", self.run_in("bin/troupe", "envs", "ls").stdout)
        self.assertIn("update_bench", self.run_in("bin/troupe", "bench", "--list").stdout.split())

    def test_no_libtorch(self):
        version = pinned_version()
        remedy = f"; install it with pip install torch=={version}, or set TROUPE_LIBTORCH to the folder that holds torch/"
        self.assertEqual(self.sentence(PATH="/nonexistent"), f"troupe-learner: error: this build needs LibTorch {version}, but there is none: "
                         f"TROUPE_LIBTORCH is not set and there is no python3 on the PATH{remedy}")
        site = os.path.join(self.folder, "bin")
        os.mkdir(site)
        os.symlink("/usr/bin/python3", os.path.join(site, "python3"))
        if subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True).returncode != 0:
            self.assertEqual(self.sentence(PATH=site), f"troupe-learner: error: this build needs LibTorch {version}, but there is none: "
                             f"TROUPE_LIBTORCH is not set and python3 ({site}/python3) has no package torch{remedy}")
        said = self.sentence(TROUPE_LIBTORCH=site)
        self.assertTrue(said.startswith(f"troupe-learner: error: TROUPE_LIBTORCH is {site}, which holds no LibTorch; expected LibTorch {version}"), said)
        self.assertTrue(self.sentence("tests/training_test", PATH="/nonexistent").startswith("training_test: error: this build needs LibTorch"))

    def test_another_libtorch(self):
        site = self.package("2.10.0+cpu")
        for variables in ({"TROUPE_LIBTORCH": site}, {"PATH": "/usr/bin:/bin", "PYTHONPATH": site}):
            said = self.sentence(**variables)
            self.assertTrue(said.startswith(f"troupe-learner: error: this build needs LibTorch {pinned_version()}, got 2.10.0+cpu in {site}/torch; "), said)
        done = self.run_in("bin/troupe", *TRAIN, ok=False, TROUPE_LIBTORCH=site)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("got 2.10.0+cpu in", done.stderr)

    # --- with LibTorch ---------------------------------------------------------------------------------------------------------

    def test_trains_with_the_folder_that_the_variable_names(self):
        done = self.run_in("bin/troupe", *TRAIN, TROUPE_LIBTORCH=fetched_libtorch())
        self.assertRegex(done.stdout + done.stderr, r"evaluation, 500 episodes: return -\d+\.")

    def test_trains_with_the_package_of_python_and_without_cuda(self):
        variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": self.package(pinned_version() + "+cu130")}
        self.run_in("bin/troupe", *TRAIN, **variables)
        said = self.run_in("bin/troupe-learner", "--version", LD_DEBUG="libs", **variables).stderr
        loaded = re.findall(r"calling init: (\S+)", said[said.rindex("find library=libtorch_cpu.so"):])
        for stub, soname in (("cudart", "libcudart.so.13"), ("cupti", "libcupti.so.13")):
            # A machine that has CUDA's own in the loader's folders must use them.
            installed = subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL('{soname}')"], capture_output=True).returncode == 0
            ours = os.path.join(self.root, "libexec/troupe/stubs", stub, soname)
            self.assertEqual([os.path.normpath(os.path.join(os.path.dirname(path), soname)) == ours for path in loaded if path.endswith(soname)],
                             [not installed], loaded)

    def test_its_tests_pass(self):
        tests = [name for name in os.listdir(os.path.join(self.root, "tests")) if name.endswith("_test")]
        self.assertGreater(len(tests), 3)
        for name in tests:
            done = self.run_in("tests/" + name, "--gtest_brief=1", TROUPE_LIBTORCH=fetched_libtorch(), TMPDIR=self.folder)
            self.assertRegex(done.stdout, r"\[  PASSED  \] [1-9]\d* tests")

    def test_what_the_learner_starts_has_the_former_library_path(self):
        python = python_with("numpy")
        with open(os.path.join(self.folder, "spy.py"), "w") as file:
            file.write(SPY)
        config = os.path.join(self.folder, "game.yaml")
        with open(config, "w") as file:
            file.write(GAME.replace("PYTHON", python).replace("PATH", self.folder))
        for given, expected in (({}, "none"), ({"LD_LIBRARY_PATH": "/nonexistent/mine"}, "/nonexistent/mine")):
            self.run_in("bin/troupe", "train", config, PATH="/usr/bin:/bin", TROUPE_LIBTORCH=fetched_libtorch(), **given)
            seen = []
            for name in os.listdir(self.folder):
                if name.startswith("seen-"):
                    with open(os.path.join(self.folder, name)) as file:
                        seen.append(file.read().split())
                    os.remove(os.path.join(self.folder, name))
            self.assertEqual({words[0] for words in seen}, {expected})
            self.assertFalse([words for words in seen if "former" in words])
            self.assertTrue([words for words in seen if "troupe-learner" in words], f"none was started by the learner: {seen}")

    # --- the Python half -------------------------------------------------------------------------------------------------------

    def test_native_environments_in_python(self):
        script = ("import troupe; env = troupe.envs.NativeEnv('mpe/simple_spread', {'N': 4}); "
                  "from troupe import usual_step; print(len(env.agents), usual_step.load('') is not None)")
        python = python_with("numpy")
        done = subprocess.run([python, "-B", "-c", script], cwd=self.folder, env={"PYTHONPATH": os.path.join(self.root, "python")}, capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        loads = output_of(python, "-c", "import sys; print(sys.version_info >= (3, 11))").strip()
        self.assertEqual(done.stdout.split(), ["4", loads])

    def test_trains_from_python_and_acts_there(self):
        script = ("import troupe; run = troupe.Config().environment('cartpole').training(name='ippo', use_agent_id=False, train_batch_size=400, minibatch_size=400)"
                  ".env_runners(num_workers=1, num_envs_per_worker=2).stop(env_steps=800).train(name='python', progress=False); "
                  "print(run.state, all(p.act([0, 0, 0, 0]) in (0, 1) for p in run.policies().values()), len(run.policies()))")
        python = python_with("numpy")
        done = subprocess.run([python, "-B", "-c", script], cwd=self.folder, capture_output=True, text=True, timeout=120,
                              env={"PYTHONPATH": os.path.join(self.root, "python"), "PATH": "/usr/bin:/bin", "TROUPE_LIBTORCH": fetched_libtorch()})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.split(), ["finished", "True", "1"])

    def test_python_environments(self):
        with open(os.path.join(self.folder, "run.yaml"), "w") as file:
            file.write(PYTHON_RUN.format(python=python_with("numpy"), path=os.path.join(SOURCE, "lib", "envhost", "testing")))
        self.run_in("bin/troupe", "train", os.path.join(self.folder, "run.yaml"), PATH="/usr/bin:/bin", TROUPE_LIBTORCH=fetched_libtorch())


if __name__ == "__main__":
    BundleTest.archive = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
