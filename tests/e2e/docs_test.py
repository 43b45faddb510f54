"""What documents print runs as printed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import types

import harness
import pages

CONFIG = """
env: {name: cartpole, args: {num_agents: 2}}
multi_agent:
  policies: [left, right]
  policy_mapping: {agent_0: left, "*": right}
algorithm: {train_batch_size: 400, minibatch_size: 100, num_epochs: 2, normalize_observations: true}
num_workers: 1
stop: {env_steps: 2000}
evaluation: {at_end: false}
"""

# Two agents that see a number, and are to say what it leaves when divided by three.
NUMBERS = """
import random


class Discrete:
    def __init__(self, n):
        self.n, self.start = n, 0


class Numbers:
    possible_agents = ["agent_0", "agent_1"]

    def __init__(self):
        self.agents = []

    def observation_space(self, agent):
        return Discrete(5)

    def action_space(self, agent):
        return Discrete(3)

    def draw(self):
        self.seen = {agent: self.random.randrange(5) for agent in self.possible_agents}
        return self.seen

    def reset(self, seed=None, options=None):
        self.agents, self.steps, self.random = list(self.possible_agents), 0, random.Random(seed)
        return self.draw(), {}

    def step(self, actions):
        self.steps += 1
        rewards = {agent: float(action == self.seen[agent] % 3) for agent, action in actions.items()}
        over = dict.fromkeys(self.possible_agents, self.steps == 20)
        if self.steps == 20:
            self.agents = []
        return self.draw(), rewards, over, dict.fromkeys(over, False), {}
"""

# The same with a camera, whose bar is in one of three columns, a goal, and an arm that says nothing; the number is column plus goal.
ROBOTS = NUMBERS + """

import numpy
from gymnasium import spaces


class Robots(Numbers):
    def observation_space(self, agent):
        arm = spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Box(0, 9, (3,), numpy.uint8)])
        return spaces.Dict({"camera": spaces.Box(0, 255, (12, 12, 1), numpy.uint8), "goal": spaces.Discrete(3), "arm": arm})

    def draw(self):
        looks, self.seen = {}, {}
        for agent in self.possible_agents:
            column, goal = self.random.randrange(3), self.random.randrange(3)
            camera = numpy.zeros((12, 12, 1), numpy.uint8)
            camera[:, 4 * column:4 * column + 4] = self.random.randrange(200, 256)
            arm = (numpy.float32([self.random.uniform(-1, 1), 0]), numpy.uint8([self.random.randrange(10), 0, 9]))
            looks[agent], self.seen[agent] = {"camera": camera, "goal": goal, "arm": arm}, column + goal
        return looks
"""


class DocumentTest(pages.PageTestCase):
    def blocks_of(self, language, *parts):
        """The code blocks of a document in one language."""
        return [text for its, text in self.blocks(*parts) if its == language]

    def serve(self, *arguments):
        """-> the address at which a `troupe serve` answers"""
        socket = f"unix:{self.path('serve.sock')}"
        server = subprocess.Popen([self.program, "serve", *arguments, "--listen", socket], cwd=self.folder,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.send_signal, signal.SIGTERM)
        deadline = time.monotonic() + 30
        while not os.path.exists(self.path("serve.sock")):
            self.assertIsNone(server.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        return socket


class CheckpointsTest(DocumentTest):
    def test_the_networks_in_numpy_act_as_the_server_does(self):
        """docs/checkpoints.md"""
        self.compare_with_numpy(CONFIG)

    def test_cores_in_numpy_act_as_the_server_does(self):
        """The same of policies that remember: GRU with layers behind it, LSTM of two layers that reads the observation."""
        models = ("{left: {model: {actor_output_gain: 1, actor_core: gru, actor_hidden_sizes: [16], actor_head_hidden_sizes: [8], core_size: 12}}, "
                  "right: {model: {actor_output_gain: 1, actor_core: lstm, actor_hidden_sizes: [], core_size: 9, core_layers: 2}}}")
        self.compare_with_numpy(CONFIG.replace("[left, right]", models))

    def test_normalized_layers_in_numpy_act_as_the_server_does(self):
        """The same of layer normalization and of activations by network."""
        models = ("{left: {model: {actor_output_gain: 1, layer_norm: true, activation: gelu}}, "
                  "right: {model: {actor_output_gain: 1, layer_norm: true, actor_activation: silu, actor_core: gru, actor_hidden_sizes: [16], "
                  "actor_head_hidden_sizes: [8], core_size: 12}}}")
        self.compare_with_numpy(CONFIG.replace("[left, right]", models))

    def test_convolutions_in_numpy_act_as_the_server_does(self):
        """The same of policies that see images; the server is sent bytes."""
        env = CONFIG.replace("{name: cartpole, args: {num_agents: 2}}", "{name: catch, args: {size: 12, cells: 6}}")
        config = env.replace("normalize_observations: true", "name: ippo, lr: 1.0e-4").replace("[left, right]", (
            "{left: {model: {actor_output_gain: 1, conv_filters: [[6, 3, 2], [5, 2, 1]], activation: relu}}, "
            "right: {model: {actor_output_gain: 1, actor_core: gru, actor_hidden_sizes: [], core_size: 12}}}"))
        images = [[255 if (i % 12 + 5 * row) % 12 < 3 + row % 7 and (i // 12 + row // 3) % 12 < 7 else 0 for i in range(144)] for row in range(40)]
        self.compare_with_numpy(config, images, how=("--obs-dtype", "uint8"))

    def test_encoders_of_leaves_in_numpy_act_as_the_server_does(self):
        """The same of Dicts: arm/0 (2 numbers), arm/1 (3 bytes), camera (12 x 12 bytes), goal (one of 3)."""
        self.write("robots_env.py", ROBOTS)
        env = '{name: "python:robots_env.py:Robots", python: {interpreter: "%s", processes: 1}}' % sys.executable
        config = CONFIG.replace("{name: cartpole, args: {num_agents: 2}}", env).replace("[left, right]", (
            "{left: {model: {actor_output_gain: 1, layer_norm: true, leaf_encoders: {'arm/1': {hidden_sizes: [5]}, goal: {hidden_sizes: [4, 3]}}}}, "
            "right: {algorithm: {normalize_observations: true}, model: {actor_output_gain: 1, actor_core: lstm, actor_hidden_sizes: [], core_size: 12, "
            "leaf_encoders: {camera: {conv_filters: [[5, 3, 2]], hidden_sizes: [6]}, 'arm/*': {hidden_sizes: [4]}}}}}"))
        config = config.replace("normalize_observations: true}\n", "name: ippo, lr: 1.0e-4}\n")
        rows = [[k / 40, -k / 60, k % 10, 0, 9] + [200.0 + k if (i + 3 * k) % 12 < 4 else 0.0 for i in range(144)] + [float(i == k % 3) for i in range(3)]
                for k in range(40)]
        self.compare_with_numpy(config, rows)

    def test_observations_without_a_shape_in_numpy_act_as_the_server_does(self):
        """The same of policies that observe one of five things."""
        self.write("numbers_env.py", NUMBERS)
        env = '{name: "python:numbers_env.py:Numbers", python: {interpreter: "%s", processes: 1}}' % sys.executable
        config = CONFIG.replace("{name: cartpole, args: {num_agents: 2}}", env)
        config = config.replace("normalize_observations: true", "lr: 1.0e-2")
        self.compare_with_numpy(config, [[float(i == seen) for i in range(5)] for seen in range(5)])

    def compare_with_numpy(self, config, rows=None, how=()):
        script, = self.blocks_of("python", "docs", "checkpoints.md")
        self.write("act.py", script)
        self.troupe("train", self.write("cartpole.yaml", config), "--name", "run")
        observations = json.dumps(rows or [[x / 10, -x / 5, (x % 5) / 50, 0.3 - x / 30] for x in range(-20, 20)])
        address = self.serve("run")
        for policy in ("left", "right"):
            answer = json.loads(self.troupe("query", address, "--policy", policy, "--deterministic", "--json", "--obs", observations, *how).stdout)
            served = [action for action, in answer["actions"]]
            done = subprocess.run([sys.executable, "act.py", "runs/run", policy, observations], cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout), served)
            self.assertGreater(len(set(served)), 1, "or all would be equal whatever the networks are")


class PythonPageTest(DocumentTest):
    """A reader types docs/python.md into one program; a block that begins with a file's name is that file."""

    @harness.by_command(os.environ.get("TROUPE_ACTING_LIBRARY"))
    def test_its_program_runs(self):
        program = ""
        for text in self.blocks_of("python", "docs", "python.md"):
            name = re.match(r"# (\w+\.py)\n", text)
            if name is not None:
                self.write(name[1], text)
            elif "import torch" not in text:  # which python/tests/test_torch_policy.py runs
                program += text
        shutil.copy(self.example("cartpole_ippo.yaml"), self.path("cartpole.yaml"))
        environment = dict(os.environ, PYTHONPATH=os.path.join(self.source, "python"), TROUPE_PROGRAM=self.program)
        done = subprocess.run([sys.executable, "-B", self.write("page.py", program)], cwd=self.folder, env=environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        said = done.stdout.splitlines()
        self.assertRegex(said[0], r"^finished \d+")
        self.assertRegex(said[1], r"^Evaluation\(mean=\d+")
        self.assertEqual([said[2], *said[4:]][:2], ["seed: 7", "stopped"])
        self.assertRegex(said[5], r"^finished [1-9]")
        self.assertRegex(said[6], r"^[01] [01] [1-9][0-9]?$")
        self.assertEqual(said[7:], ["left.safetensors.golden.npz", "python:walk:Walk"])


class CallbacksPageTest(DocumentTest):
    """A reader types docs/hooks.md, whose first block is a file."""

    def test_its_program_runs(self):
        module, program, episodes, trains = self.blocks_of("python", "docs", "hooks.md")
        self.write("watch.py", module)
        shutil.copy(self.example("cartpole_ippo.yaml"), self.path("cartpole.yaml"))
        environment = dict(os.environ, PYTHONPATH=os.path.join(self.source, "python"), TROUPE_PROGRAM=self.program)
        done = subprocess.run([sys.executable, "-B", self.write("page.py", program)], cwd=self.folder, env=environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=240)
        self.assertEqual((done.returncode, done.stdout), (0, "stopped a callback: solved 0.0\n"), done.stderr)
        line = self.progress("watched")[-1]
        self.assertGreater(line["Custom/margin"], 0)
        # What is called elsewhere, for what it says there.
        tracked, names = {}, {"troupe": types.SimpleNamespace(Callback=object)}
        exec(episodes + trains, names)
        names["Fuel"]().on_episode_end(types.SimpleNamespace(env=types.SimpleNamespace(fuel=3), track=tracked.__setitem__))
        self.assertEqual(tracked, {"fuel": 3})
        self.assertEqual([names["trains"](policy, types.SimpleNamespace(infos={"won": won})) for policy, won in (("old", 0), ("main", 0.5), ("main", 0.95))],
                         [False, True, False])


class ReadmeTest(pages.PageTestCase):
    """A reader pastes README's commands from top to end, below a checkout of the project."""

    # .ci/run does the first two; the others need root or a network, or wheel_test.py does them.
    left_out = ("./troupe test", "./troupe wheel", "python3 -m venv ~/troupe", "~/troupe/bin/troupe", "docker-compose", *pages.PageTestCase.left_out)

    def write(self, name, text):
        # It is the command that is tried, not the training.
        return super().write(name, text.replace("env_steps: 200000}", "env_steps: 4000}"))

    def test_every_command_runs_on_the_example_above_it(self):
        outputs = self.follow("README.md")
        self.assertGreaterEqual(len(outputs), 18)
        self.assertRegex(outputs[".venv/bin/python train.py"], r"^finished -\d+\.\d+\n$")
        with open(self.path("curve.png"), "rb") as picture:
            self.assertEqual(picture.read(8), b"\x89PNG\r\n\x1a\n")
        self.assertEqual(json.loads(self.document(self.path("runs", "spread", "summary.json")))["env_steps"], 1200000)
        self.assertRegex(outputs[".venv/bin/python ask.py"], r"policy_id='shared'[\s\S]*\[\[[0-4]\]\n \[[0-4]\]\]\n$")

    def test_what_it_installs_the_tests_python_has(self):
        self.assert_pinned("README.md")


if __name__ == "__main__":
    harness.main()
