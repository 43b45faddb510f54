"""What a newcomer meets: `troupe doctor` of a machine, `troupe init` of an environment, and that what it writes trains unchanged."""

import json
import os
import resource
import shutil
import subprocess
import sys

import harness

ENVIRONMENT = harness.SPACES + """
class Env:
    possible_agents = ["scout_0", "scout_1", "base"]

    def __init__(self, length=5):
        self.length = length

    def observation_space(self, agent):
        box = Box()
        if agent == "base":
            box.low, box.high, box.shape = np.zeros(3, np.float32), np.ones(3, np.float32), (3,)
        return box

    def action_space(self, agent):
        return Discrete()

    def _observe(self):
        return {agent: np.zeros(self.observation_space(agent).shape, np.float32) for agent in self.possible_agents}

    def reset(self, seed=None, options=None):
        self.agents, self.steps = list(self.possible_agents), 0
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.steps += 1
        over = {agent: self.steps == self.length for agent in self.possible_agents}
        if self.steps == self.length:
            self.agents = []
        return self._observe(), {agent: 1.0 for agent in over}, over, dict.fromkeys(over, False), {agent: {} for agent in over}


class Broken(Env):
    def step(self, actions):
        observations, rewards, over, cut, infos = super().step(actions)
        return observations, dict.fromkeys(rewards, float("nan")), over, cut, infos


class Meddler(Env):
    def reset(self, seed=None, options=None):
        with open(__file__[:-3] + ".yaml", "w") as file:
            file.write("mine")
        return super().reset(seed, options)
"""

UNSEEDED = """

class Unseeded(Env):
    def _observe(self):
        return {agent: np.random.default_rng().random(np.shape(observation), np.float32) for agent, observation in super()._observe().items()}
"""

SMALL = ["--set", "stop.env_steps=64", "--set", "algorithm.train_batch_size=64", "--set", "num_workers=1", "--set", "num_envs_per_worker=4",
         "--set", "evaluation.at_end=false"]


class FirstMinutesTest(harness.TroupeTestCase):
    def doctor(self, *arguments, **how):
        done = self.troupe("doctor", "--json", *arguments, ok=False, **how)
        report = json.loads(done.stdout)
        self.assertEqual((done.returncode, done.stderr), (0 if report["ok"] else 1, ""))
        self.assertEqual(report["ok"], all(check["verdict"] != "failed" for check in report["checks"]))
        for check in report["checks"]:
            self.assertEqual(check["verdict"] == "ok", check["remedy"] is None, check)
            self.assertTrue(check["got"] and check["expected"], check)
        return {check["what"]: check for check in report["checks"]}

    def test_a_machine_on_which_this_runs_is_well(self):
        checks = self.doctor("--python", sys.executable)
        self.assertEqual(list(checks), ["glibc", "processor", "cores", "memory", "descriptors", "temporary", "LibTorch", "GPU", "Python"])
        for what in ("glibc", "temporary", "LibTorch"):
            self.assertEqual(checks[what]["verdict"], "ok", checks[what])
        with open(os.path.join(self.source, "cmake", "libtorch.pin")) as file:
            self.assertIn("torch==" + checks["LibTorch"]["got"].split()[0], file.read())
        self.assertIn("glibc " + checks["glibc"]["expected"], self.document("docs/deployment.md"))
        self.assertIn(f"({sys.executable})", checks["Python"]["got"])
        text = self.troupe("doctor", "--python", sys.executable).stdout
        self.assertTrue(text.endswith("a run trains on this machine\n"), text)
        self.assertEqual(os.listdir(self.folder), [], "it writes nothing")

    def test_doctor_runs_no_code_of_the_folder_that_it_is_started_in(self):
        for name in ("platform", "numpy", "torch"):
            self.write(f"{name}.py", "open('ran', 'w')\n__version__ = '0'\n")
        before = os.listdir(self.folder)
        self.doctor("--python", sys.executable)
        self.assertEqual(os.listdir(self.folder), before)

    def document(self, name):
        with open(os.path.join(self.source, name)) as file:
            return " ".join(file.read().split())

    def test_what_is_missing_is_said_with_a_remedy(self):
        alone = os.path.join(self.folder, "bin")
        os.mkdir(alone)
        program = shutil.copy(self.program, alone)
        done = subprocess.run([program, "doctor"], capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": "/nowhere", "VIRTUAL_ENV": ""})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("FAILED   LibTorch     there is no troupe-learner beside ", done.stdout)
        self.assertIn("warning  Python       got python3, which is not on the PATH", done.stdout)
        self.assertTrue(done.stdout.endswith("no run trains on this machine as it is\n"), done.stdout)
        # Of a learner that the loader cannot load, with its words.
        with open(os.path.join(alone, "troupe-learner"), "w") as file:
            file.write("#!/bin/sh\necho 'error while loading shared libraries: libtorch.so' >&2\nexit 127\n")
        os.chmod(os.path.join(alone, "troupe-learner"), 0o755)
        done = subprocess.run([program, "doctor"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn('troupe-learner ended with 127 and said "error while loading shared libraries: libtorch.so"', done.stdout)
        self.assertIn("remedy:   python3 -m pip install torch==", done.stdout)

    def test_tight_limits_are_said(self):
        self.assertEqual(self.doctor("--python", self.folder)["Python"]["verdict"], "warning")
        few = self.doctor(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (154, 154)))
        self.assertEqual((few["descriptors"]["verdict"], few["descriptors"]["got"]), ("warning", "154, for 7 workers"))
        long = os.path.join(self.folder, "x" * 100)
        os.mkdir(long)
        temporary = self.doctor(env={**os.environ, "TMPDIR": long})["temporary"]
        self.assertEqual(temporary["verdict"], "warning")
        self.assertIn(f"/tmp can be written; TMPDIR, {long}, is too long", temporary["got"])

    def test_what_init_writes_trains_unchanged(self):
        said = self.troupe("init", "mpe/simple_spread", "--arg", "N=4").stdout
        self.assertIn("every rule holds: 32 episodes", said)
        self.assertIn("4 agents: agent_0, agent_1, agent_2, agent_3\n  observations  Box(", said)
        self.assertRegex(said, r"\nepisodes of 25\.0 env steps, [\d,]+ env steps/s")
        self.assertTrue(said.endswith(f"wrote simple_spread.yaml\n  train     {self.program} train simple_spread.yaml\n"), said)
        with open(self.path("simple_spread.yaml")) as file:
            self.assertIn("\nenv: {name: mpe/simple_spread, args: {N: 4}}\n", file.read())
        self.troupe("train", "simple_spread.yaml", "--name", "run", *SMALL)
        self.assertEqual(os.listdir(self.path("runs")), ["run"])

    def test_games_have_a_policy_for_each_side(self):
        self.troupe("init", "rock_paper_scissors", "--output", "game.yaml")
        self.troupe("train", "game.yaml", "--name", "run", *SMALL)
        self.assertEqual(sorted(self.summary("run")["policies"]), ["player_0", "player_1"])

    def test_an_environment_of_ones_own_is_named_relative_to_the_file(self):
        os.makedirs(self.path("code"))
        os.makedirs(self.path("configs"))
        self.write("code/my_env.py", ENVIRONMENT)
        said = self.troupe("init", "code/my_env.py:Env", "--python", sys.executable, "--arg", "length=7", "--output", "configs/mine.yaml").stdout
        self.assertIn("2 agents: scout_0, scout_1\n", said)
        self.assertIn("1 agent: base\n", said)
        self.assertIn("\nepisodes of 7.0 env steps, ", said)
        with open(self.path("configs/mine.yaml")) as file:
            text = file.read()
        self.assertIn('name: "python:../code/my_env.py:Env"', text)
        self.assertIn('policies: ["scout", "base"]', text)
        self.assertIn('policy_mapping: {"scout*": "scout", "base": "base"}', text)
        self.troupe("train", "mine.yaml", "--name", "run", "--directory", self.path("runs"), *SMALL, cwd=self.path("configs"))
        self.assertEqual(sorted(self.summary("run")["policies"]), ["base", "scout"])

    def test_an_environment_whose_seed_repeats_nothing_is_a_warning(self):
        self.write("unseeded.py", ENVIRONMENT + UNSEEDED)
        said = self.troupe("init", "unseeded.py:Unseeded", "--python", sys.executable).stdout
        self.assertIn("broken: determinism: ", said)
        self.assertIn("\nwarning: a seed does not repeat an episode, training works all the same: ", said)
        self.assertTrue(said.endswith("train unseeded.yaml\n"), said)
        self.troupe("train", "unseeded.yaml", "--name", "run", *SMALL)

    def test_a_file_that_appears_meanwhile_stays(self):
        self.write("my_env.py", ENVIRONMENT)
        self.fails("my_env.py:Meddler", "--python", sys.executable, saying="my_env.yaml is there already", code=1)
        with open(self.path("my_env.yaml")) as file:
            self.assertEqual(file.read(), "mine")
        self.assertEqual([name for name in sorted(os.listdir(self.folder)) if name != "__pycache__"], ["my_env.py", "my_env.yaml"])

    def fails(self, *arguments, saying, code):
        done = self.troupe("init", *arguments, ok=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(saying, done.stdout + done.stderr)

    def test_init_replaces_nothing_and_writes_nothing_that_does_not_train(self):
        self.write("cartpole.yaml", "mine\n")
        self.fails("cartpole", saying="cartpole.yaml is there already; expected another --output, or --force to replace it", code=1)
        with open(self.path("cartpole.yaml")) as file:
            self.assertEqual(file.read(), "mine\n")
        self.troupe("init", "cartpole", "--force")
        with open(self.path("cartpole.yaml")) as file:
            self.assertIn("env: {name: cartpole}", file.read())
        self.write("my_env.py", ENVIRONMENT)
        before = sorted(os.listdir(self.folder))
        self.fails("cartpol", saying="did you mean 'cartpole'?", code=1)
        self.fails("cartpole", "--set", "seed=3", "--output", "x.yaml", saying="--set seed=3: expected a key of env", code=2)
        self.fails("cartpole", "--output", "nowhere/x.yaml", saying="nowhere/x.yaml: cannot be written", code=1)
        self.fails(saying="name", code=2)
        self.fails("python:my_env.py:Broken", "--python", sys.executable, code=1,
                   saying=f"my_env.yaml is not written\n  check     {self.program} envs check python:my_env.py:Broken --python {sys.executable}\n")
        self.assertEqual([name for name in sorted(os.listdir(self.folder)) if name != "__pycache__"], before)


if __name__ == "__main__":
    harness.main()
