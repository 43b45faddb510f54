"""`pip install ./python` from a checkout: with the libraries that are built, the command `troupe`, and types."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHECKOUT = os.path.dirname(PACKAGE)


class PackageTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="troupe_package_")
        self.addCleanup(shutil.rmtree, self.folder)
        self.checkout = os.path.join(self.folder, "checkout")
        self.site = os.path.join(self.folder, "site")
        shutil.copytree(PACKAGE, os.path.join(self.checkout, "python"), ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "*.so"))
        self.write("CMakePresets.json", "{}")
        self.write("troupe", '#!/bin/sh\necho "asked $*, in ${VIRTUAL_ENV:-none}"\n')
        os.chmod(os.path.join(self.checkout, "troupe"), 0o755)

    def write(self, name, text):
        path = os.path.join(self.checkout, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def pip(self, command, *arguments):
        done = subprocess.run([sys.executable, "-m", "pip", command, "--quiet", "--no-index", "--no-deps", "--no-build-isolation", *arguments],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def install(self):
        self.pip("install", "--target", self.site, os.path.join(self.checkout, "python"))

    def python(self, *arguments, **environment):
        return subprocess.run([sys.executable, "-B", *arguments], capture_output=True, text=True, check=False, cwd=self.folder,
                              env=dict({key: value for key, value in os.environ.items() if key not in ("TROUPE_PROGRAM", "TROUPE_ENVS_LIBRARY")},
                                       PYTHONPATH=self.site, **environment))

    def test_from_a_checkout_that_is_built(self):
        self.write("build/release/lib/envs/c_api/libtroupe_envs.so", "native environments")
        self.write("build/release/python/_usual_step.abi3.so", "the usual step")
        self.write("build/release/lib/acting/libtroupe_acting.so", "policies")
        self.install()
        for name, text in (("envs/libtroupe_envs.so", "native environments"), ("libtroupe_acting.so", "policies"), ("_usual_step.abi3.so", "the usual step")):
            with open(os.path.join(self.site, "troupe", name)) as file:
                self.assertEqual(file.read(), text)
        for name in ("py.typed", "v1/query_pb2.py", "env_adapters/core.py", "envs/library.py"):
            self.assertTrue(os.path.isfile(os.path.join(self.site, "troupe", name)), name)
        found = self.python("-c", "from troupe.envs.library import find_library; print(find_library())")
        self.assertEqual(found.stdout.strip(), os.path.join(self.site, "troupe", "envs", "libtroupe_envs.so"), found.stderr)

    def test_a_wheel_does_not_know_where_it_was_made(self):
        self.write("build/release/lib/envs/c_api/libtroupe_envs.so", "native environments")
        wheels = os.path.join(self.folder, "wheels")
        self.pip("wheel", "--wheel-dir", wheels, os.path.join(self.checkout, "python"))
        wheel, = os.listdir(wheels)
        with zipfile.ZipFile(os.path.join(wheels, wheel)) as archive:
            self.assertIn("troupe/envs/libtroupe_envs.so", archive.namelist())
            for name in archive.namelist():
                self.assertNotIn(self.folder.encode(), archive.read(name), name)
        # So a package that is installed from it finds no program by itself, though the checkout is still there.
        self.pip("install", "--target", self.site, os.path.join(wheels, wheel))
        self.assertIn("found no program troupe:", self.python("-m", "troupe").stderr)

    def test_the_program_is_the_checkouts(self):
        self.install()
        venv = sys.prefix if sys.prefix != sys.base_prefix else "none"
        for command in (["-m", "troupe"], [os.path.join(self.site, "bin", "troupe")]):
            done = self.python(*command, "train", "--workers", "2", VIRTUAL_ENV="/venvs/mine")
            self.assertEqual(done.stdout, "asked train --workers 2, in /venvs/mine\n", done.stderr)
        os.environ.pop("VIRTUAL_ENV", None)
        self.assertEqual(self.python("-m", "troupe", "version").stdout, f"asked version, in {venv}\n")

    def elsewhere(self, system, machine, script):
        """Runs a script on another system: what that has not is not there."""
        fake = (f"import os, platform, sys\nplatform.system, platform.machine = (lambda: '{system}'), (lambda: '{machine}')\n"
                "sys.modules['fcntl'] = None\nfor name in ('register_at_fork', 'memfd_create', 'fork'):\n    delattr(os, name)\n")
        done = self.python("-c", fake + script)
        self.assertEqual(done.stderr.count("\n") if "Traceback" not in done.stderr else done.stderr, 1 if done.returncode else 0)
        return done.returncode, done.stdout + done.stderr

    def test_on_other_systems_a_sentence_says_how_to_train(self):
        self.install()
        shutil.rmtree(self.checkout)
        for system, machine in (("Darwin", "arm64"), ("Windows", "AMD64"), ("Linux", "aarch64")):
            code, said = self.elsewhere(system, machine, "from troupe.__main__ import main\nsys.argv = ['troupe', 'train', 'x.yaml']\nsys.exit(main())\n")
            self.assertEqual(code, 1)
            self.assertIn(f"this is {system} ({machine});", said)
            self.assertIn('`docker run --rm --platform linux/amd64 -v "$PWD:/runs" troupe/learner train /runs/CONFIG.yaml --directory /runs`', said)
            code, said = self.elsewhere(system, machine, "import troupe\nconfig = troupe.Config({'seed': 1}).environment('cartpole')\n"
                                        "try:\n    config.train()\nexcept troupe.TroupeError as error:\n    print(error)\n")
            self.assertEqual(code, 0, said)
            self.assertIn(f"this is {system} ({machine});", said)

    def test_commands_are_printed_as_a_person_types_them(self):
        self.install()
        script = os.path.join(self.site, "bin", "troupe")
        ask = "import sys; from troupe.__main__ import spelling; print(spelling('/program'))"
        spelled = lambda path, argv0: self.python("-c", f"import sys; sys.argv[0] = {argv0!r}\n" + ask, PATH=path).stdout.strip()
        self.assertEqual(spelled("/usr/bin:/bin", script), script)
        self.assertEqual(spelled(os.path.dirname(script) + ":/usr/bin:/bin", script), "troupe")
        self.assertEqual(spelled("/usr/bin:/bin", "/no/such/troupe"), "/program")

    def test_without_a_program_or_a_library_it_says_so(self):
        self.install()
        shutil.rmtree(self.checkout)
        done = self.python("-m", "troupe", "train")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"^troupe: error: found no program troupe: .*the wheel of troupe-rl.*from a checkout.*TROUPE_PROGRAM=CHECKOUT/troupe\n$")
        done = self.python("-m", "troupe", TROUPE_PROGRAM="/no/such")
        self.assertIn("found no program troupe at /no/such", done.stderr)
        done = self.python("-c", "import troupe; troupe.envs.NativeEnv('mpe/simple_spread')")
        self.assertIn("found no libtroupe_envs.so at ", done.stderr)


if __name__ == "__main__":
    unittest.main()
