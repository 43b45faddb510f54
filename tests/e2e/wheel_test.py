"""The wheels that './troupe wheel' made, installed from local files into an empty virtual environment, outside the tree and by an ordinary user.

  tests/e2e/wheel_test.py FOLDER_OF_WHEELS

Runs with a Python that has numpy, grpcio and protobuf, whose files it packs into wheels again: nothing is fetched. As root it becomes nobody for all that it tries.
It prints the figures: bytes, and seconds from an empty environment to the first update.
"""

import csv
import glob
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCE, "python"))
import distribution  # noqa: E402

NOBODY = 65534
ACCOUNT = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}  # of all that is tried
MOST_PACKAGE_BYTES = 20_000_000
MOST_DOWNLOAD_BYTES = 170_000_000    # [cpu,python]
MOST_INSTALLED_BYTES = 600_000_000   # the same
MOST_SECONDS_TO_UPDATE = 30

GAME = """
import numpy as np


class Box:
    low, high, shape, dtype = np.zeros(2, np.float32), np.ones(2, np.float32), (2,), np.dtype(np.float32)


class Discrete:
    n, start = 2, 0


class Walk:
    possible_agents = ["walker"]

    def observation_space(self, agent):
        return Box()

    def action_space(self, agent):
        return Discrete()

    def reset(self, seed=None, options=None):
        self.t, self.agents = 0, ["walker"]
        return {"walker": np.zeros(2, np.float32)}, {"walker": {}}

    def step(self, actions):
        self.t += 1
        over = self.t == 5
        self.agents = [] if over else ["walker"]
        return {"walker": np.zeros(2, np.float32)}, {"walker": float(actions["walker"])}, {"walker": over}, {"walker": False}, {"walker": {}}
"""
GAME_RUN = """
env: {name: "python:walk.py:Walk"}
algorithm: {name: ppo, train_batch_size: 200, minibatch_size: 100, num_epochs: 1}
num_workers: 1
stop: {env_steps: 1000}
"""
SPREAD_RUN = """
env: {name: mpe/simple_spread}
multi_agent: {policies: [shared], policy_mapping: {"*": shared}}
algorithm: {name: mappo, train_batch_size: 1000, minibatch_size: 500, use_agent_id: false}
num_workers: 2
evaluation: {episodes: 20}
stop: {env_steps: 3000}
"""

def bytes_below(folder):
    return sum(os.lstat(os.path.join(directory, name)).st_size for directory, _, names in os.walk(folder) for name in names)


def packed_again(name, folder):
    """A wheel of an installed package, in `folder`."""
    package = importlib.metadata.distribution(name)
    info, = {str(file).split("/")[0] for file in package.files if ".dist-info/" in str(file)}
    tag = re.search(r"^Tag: (\S+)", package.read_text("WHEEL"), re.M)[1]
    path = os.path.join(folder, f"{info[:-len('.dist-info')]}-{tag}.whl")
    left_out = ("INSTALLER", "REQUESTED", "direct_url.json", "RECORD")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        rows = []
        for row in csv.reader(package.read_text("RECORD").splitlines()):
            if row[0].startswith("..") or row[0].endswith(".pyc") or (row[0].startswith(info) and row[0].split("/")[-1] in left_out):
                continue
            wheel.write(str(package.locate_file(row[0])), row[0])
            rows.append(",".join(row))
        wheel.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")


class WheelTest(unittest.TestCase):
    wheels = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="troupe_wheel_")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        os.chmod(cls.folder, 0o755)
        cls.links, cls.home = (os.path.join(cls.folder, name) for name in ("links", "home"))
        os.mkdir(cls.links)
        os.mkdir(cls.home)
        for path in glob.glob(os.path.join(cls.wheels, "*.whl")):
            shutil.copy(path, cls.links)
        for name in ("numpy", "grpcio", "protobuf", "typing_extensions"):
            packed_again(name, cls.links)
        if ACCOUNT:
            os.chown(cls.home, NOBODY, NOBODY)
        cls.python = os.path.join(cls.home, "venv", "bin", "python")
        cls.troupe = os.path.join(cls.home, "venv", "bin", "troupe")
        cls.write("spread.yaml", SPREAD_RUN)
        cls.begun = time.monotonic()
        cls.user("python3", "-m", "venv", "venv")
        cls.pip("install", f"{distribution.NAME}[cpu,python]")
        cls.site = cls.user(cls.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()

    @classmethod
    def user(cls, *command, ok=True, **variables):
        """Runs a command in the user's home, with these variables and a bare PATH. -> what it did"""
        done = subprocess.run(command, cwd=cls.home, env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": cls.home, **variables}, capture_output=True,
                              text=True, timeout=120, stdin=subprocess.DEVNULL, **ACCOUNT)
        if ok and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done

    @classmethod
    def pip(cls, *arguments):
        return cls.user(cls.python, "-m", "pip", "--disable-pip-version-check", *arguments[:1], "--quiet", "--no-index", "--find-links", cls.links, *arguments[1:])

    @classmethod
    def write(cls, name, text):
        path = os.path.join(cls.home, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o644)

    def learner(self, site, **variables):
        """What a learner says that does not start: one sentence. `site`: the packages that it is installed among."""
        done = self.user(os.path.join(site, "troupe", "bin", "troupe-learner"), "--version", ok=False, **variables)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), done.stderr)
        return done.stderr

    def copied_site(self):
        """The programs as they are installed, without LibTorch."""
        site = tempfile.mkdtemp(prefix="site_", dir=self.folder)
        os.chmod(site, 0o755)
        shutil.copytree(os.path.join(self.site, "troupe"), os.path.join(site, "troupe"))
        return site

    def test_1_from_an_empty_environment_to_an_update(self):
        first = self.user(self.troupe, "train", "spread.yaml", "--name", "first", "--set", "stop.updates=1", "--set", "evaluation.at_end=false")
        seconds = time.monotonic() - self.begun
        self.assertIn("results in runs/first", first.stdout)
        self.assertLessEqual(seconds, MOST_SECONDS_TO_UPDATE)
        sizes = {path: os.path.getsize(path) for path in glob.glob(os.path.join(self.links, "*.whl"))}
        size_of = lambda name: next(size for path, size in sizes.items() if re.match(name, os.path.basename(path)))
        package, libtorch = size_of("troupe_rl-.*manylinux"), size_of("troupe_libtorch_cpu-")
        download = package + libtorch + size_of("numpy-")
        installed = bytes_below(self.site)
        print(f"figures: {package} bytes of {distribution.NAME}, {download} with [cpu,python], {installed} installed, {seconds:.1f} s to the first update")
        self.assertLessEqual(package, MOST_PACKAGE_BYTES)
        self.assertLessEqual(download, MOST_DOWNLOAD_BYTES)
        self.assertLessEqual(installed, MOST_INSTALLED_BYTES)
        self.assertTrue(os.path.isfile(os.path.join(self.site, "troupe", "py.typed")))
        self.user(self.python, "-m", "pip", "--disable-pip-version-check", "check")

    def test_2_trains_evaluates_films_and_asks(self):
        said = self.user(self.troupe, "train", "spread.yaml", "--name", "spread").stdout
        self.assertRegex(said, r"evaluation, 20 episodes: return .*\n.*-\d+\.")
        # What it prints is what a person types: here the script is not on the PATH.
        self.assertIn(f"  evaluate  {self.troupe} evaluate runs/spread\n", said)
        on_path = self.user("troupe", "evaluate", "spread", "--episodes", "5", "--video", "spread.gif", PATH=os.path.dirname(self.troupe) + ":/usr/bin:/bin").stdout
        self.assertIn("5 episodes", on_path)
        with open(os.path.join(self.home, "spread.gif"), "rb") as file:
            self.assertEqual(file.read(6), b"GIF89a")
        self.assertIn("shared", self.user(self.troupe, "query", "runs/spread").stdout)
        self.assertRegex(self.user(self.troupe, "query", "runs/spread", "--policy", "shared", "--deterministic", "--obs", str([0.1] * 18)).stdout, r"\[\d")
        self.assertEqual(self.user(self.python, "-m", "troupe", "version").stdout, self.user(self.troupe, "version").stdout)

    def test_3_an_environment_in_python_and_the_api(self):
        self.write("walk.py", GAME)
        self.write("walk.yaml", GAME_RUN)
        # An environment in a checkout: that one's package is not this program's.
        os.makedirs(os.path.join(self.home, "python", "troupe"))
        self.write("python/troupe/env_host.py", "raise SystemExit('of a checkout')\n")
        self.assertIn("results in runs/walk", self.user(self.troupe, "train", "walk.yaml", "--name", "walk").stdout)
        script = ("import troupe\nrun = troupe.train({'env': {'name': 'cartpole'}, 'algorithm': {'name': 'ippo', 'use_agent_id': False, 'train_batch_size': 400,"
                  " 'minibatch_size': 400}, 'num_workers': 1, 'stop': {'env_steps': 800}}, name='api', progress=False)\n"
                  "policy, = run.policies().values()\nenv = troupe.envs.NativeEnv('mpe/simple_spread', {'N': 4})\n"
                  "from troupe import usual_step\nprint(run.state, policy.act([0, 0, 0, 0]) in (0, 1), len(env.agents), usual_step.load('') is not None)\n")
        loads = self.user(self.python, "-c", "import sys; print(sys.version_info >= (3, 11))").stdout.strip()
        self.assertEqual(self.user(self.python, "-c", script).stdout.split(), ["finished", "True", "4", loads])

    def test_4_a_client_asks_a_server(self):
        self.pip("install", f"{distribution.NAME}[client]")
        self.write("ask.py", "import numpy, sys\nfrom troupe.query import PolicyClient\nwith PolicyClient('unix:ask.sock') as client:\n"
                             "    print(client.policies(), client.compute_actions('shared', numpy.zeros((2, 18), numpy.float32)).actions.shape)\n")
        self.user(self.troupe, "train", "spread.yaml", "--name", "asked", "--set", "stop.updates=1", "--set", "evaluation.at_end=false")
        server = subprocess.Popen([self.troupe, "serve", "asked", "--listen", "unix:ask.sock"], cwd=self.home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  stdin=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin", "HOME": self.home}, **ACCOUNT)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        deadline = time.monotonic() + 30
        while not os.path.exists(os.path.join(self.home, "ask.sock")):
            self.assertIsNone(server.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assertRegex(self.user(self.python, "ask.py").stdout, r"shared.* \(2, 1\)\n$")

    def test_5_without_libtorch_a_sentence_names_the_extra(self):
        said = self.learner(self.copied_site())
        self.assertRegex(said, r"^troupe-learner: error: this build needs LibTorch " + re.escape(distribution.LIBTORCH_VERSION) + ", but there is none: ")
        self.assertIn(f"install it with pip install '{distribution.NAME}[cpu]' (for an NVIDIA GPU '{distribution.NAME}[cuda]')", said)
        site = self.copied_site()
        done = self.user(os.path.join(site, "troupe", "bin", "troupe"), "doctor", ok=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"remedy:   install it with pip install '{distribution.NAME}[cpu]'", done.stdout)

    def test_6_a_torch_of_another_version(self):
        site = self.copied_site()
        os.makedirs(os.path.join(site, "torch", "lib"))
        for name, text in (("lib/libtorch_cpu.so", ""), ("version.py", "__version__ = '2.10.0+cpu'\n")):
            with open(os.path.join(site, "torch", name), "w") as file:
                file.write(text)
        self.assertIn(f"this build needs LibTorch {distribution.LIBTORCH_VERSION}, got 2.10.0+cpu in {site}/torch; install it with pip install "
                      f"'{distribution.NAME}[cpu]'", self.learner(site))
        # With the extra it is not in the way.
        os.symlink(os.path.join(self.site, "troupe_libtorch"), os.path.join(site, "troupe_libtorch"))
        said = self.user(os.path.join(site, "troupe", "bin", "troupe-learner"), "--version").stdout
        self.assertIn(f"LibTorch {distribution.LIBTORCH_VERSION} ({site}/troupe_libtorch)", said)

    def test_7_licences_of_what_is_bundled(self):
        info, = glob.glob(os.path.join(self.site, "troupe_rl-*.dist-info", "licenses"))
        third_party = os.listdir(os.path.join(info, "third_party"))
        for name in ("libabsl-dev", "libgrpc-dev", "libprotobuf-dev", "libssl-dev", "libspdlog-dev", "libyaml-cpp-dev", "zlib1g-dev", "libgif-dev", "libagg-dev"):
            self.assertIn(name, third_party)
            self.assertGreater(os.path.getsize(os.path.join(info, "third_party", name)), 100)
        torch, = glob.glob(os.path.join(self.site, "troupe_libtorch_cpu-*.dist-info", "licenses"))
        self.assertEqual(sorted(os.listdir(torch)), ["NOTICE", "torch"])

    def test_8_no_path_of_the_machine_that_built_it(self):
        paths = [path.encode() for path in (SOURCE, os.path.realpath(SOURCE), os.path.expanduser("~/.cache"))]
        for directory, _, names in os.walk(os.path.join(self.site, "troupe")):
            for name in names:
                with open(os.path.join(directory, name), "rb") as file:
                    text = file.read()
                self.assertFalse([path for path in paths if path in text], os.path.join(directory, name))


if __name__ == "__main__":
    WheelTest.wheels = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
