"""What documents print runs as printed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

import harness

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


class DocumentTest(harness.TroupeTestCase):
    def document(self, *parts):
        with open(os.path.join(self.source, *parts)) as file:
            return file.read()

    def blocks(self, language, *parts):
        """The code blocks of a document."""
        return re.findall(rf"```{language}\n(.*?)```", self.document(*parts), re.S)

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
        script, = self.blocks("python", "docs", "checkpoints.md")
        self.write("act.py", script)
        self.troupe("train", self.write("cartpole.yaml", CONFIG), "--name", "run")
        observations = json.dumps([[x / 10, -x / 5, (x % 5) / 50, 0.3 - x / 30] for x in range(-20, 20)])
        address = self.serve("run")
        for policy in ("left", "right"):
            answer = json.loads(self.troupe("query", address, "--policy", policy, "--deterministic", "--json", "--obs", observations).stdout)
            served = [action for action, in answer["actions"]]
            done = subprocess.run([sys.executable, "act.py", "runs/run", policy, observations], cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout), served)
            self.assertEqual(set(served), {0, 1}, "or all would be equal whatever the networks are")


PURSUIT = '''
import gymnasium
import numpy as np
from pettingzoo import ParallelEnv


class Pursuit(ParallelEnv):
    """Hunters want to be where the prey is, on a line."""

    metadata = {"name": "pursuit"}
    possible_agents = ["hunter_0", "hunter_1", "prey_0"]

    def __init__(self, max_cycles):
        self.max_cycles = max_cycles
        self.agents = []

    def observation_space(self, agent):
        return gymnasium.spaces.Box(-10, 10, (3,), np.float32)

    def action_space(self, agent):
        return gymnasium.spaces.Discrete(3)

    def observe(self):
        return {agent: np.array([self.at[agent], self.at["prey_0"], 0], np.float32) for agent in self.agents}

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.at = {agent: float(i) for i, agent in enumerate(self.agents)}
        self.cycle = 0
        return self.observe(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.cycle += 1
        for agent, action in actions.items():
            self.at[agent] = float(np.clip(self.at[agent] + action - 1, -10, 10))
        caught = min(abs(self.at[agent] - self.at["prey_0"]) for agent in ("hunter_0", "hunter_1"))
        rewards = {agent: (1.0 if agent == "prey_0" else -1.0) * caught for agent in self.agents}
        over = self.cycle >= self.max_cycles
        answer = (self.observe(), rewards, {a: False for a in self.agents}, {a: over for a in self.agents}, {a: {} for a in self.agents})
        if over:
            self.agents = []
        return answer


def parallel_env(max_cycles):
    return Pursuit(max_cycles)
'''


class ReadmeTest(DocumentTest):
    """A reader pastes README's commands from top to end, below a checkout of the project."""

    def setUp(self):
        super().setUp()
        wrapper = self.write("troupe", f'#!/bin/sh\nexec "{self.program}" "$@"\n')
        os.chmod(wrapper, 0o755)
        for name in ("examples", "bench"):
            os.symlink(os.path.join(self.source, name), self.path(name))
        self.write("pursuit.py", PURSUIT)
        os.symlink(sys.prefix, self.path(".venv"))
        self.environment = dict(os.environ, PATH=os.path.dirname(sys.executable) + ":" + os.environ["PATH"])
        self.background = []
        self.addCleanup(self.end_background)
        for text in self.blocks("yaml", "README.md"):
            name = re.match(r"# (\S+)\n", text)[1]
            # It is the command that is tried, not the training.
            self.write(name, text.replace("env_steps: 200000}", "env_steps: 4000}"))

    def end_background(self):
        for process in self.background:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)

    def paste(self, line):
        """One line of a block, with its comment; one that ends with & goes on until the test ends. -> its output"""
        command = re.sub(r"\s+#.*$", "", line)
        if command.endswith("&"):
            process = subprocess.Popen(["bash", "-c", "exec " + command.rstrip("& ")], cwd=self.folder, env=self.environment,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.background.append(process)
            name = re.search(r"--name (\S+)", command)[1]
            deadline = time.monotonic() + 60
            while not os.path.exists(self.path("runs", name, "address")):
                self.assertIsNone(process.poll(), line)
                self.assertLess(time.monotonic(), deadline, line)
                time.sleep(0.05)
            return ""
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=240)
        self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done.stdout

    def test_every_command_runs_on_the_example_above_it(self):
        tried = 0
        for block in self.blocks("bash", "README.md"):
            for line in block.splitlines():
                if line.startswith(("./troupe test", "docker-compose")):
                    continue  # .ci/run does
                with self.subTest(line):
                    self.paste(line)
                    tried += 1
        self.assertGreaterEqual(tried, 14)
        with open(self.path("curve.png"), "rb") as picture:
            self.assertEqual(picture.read(8), b"\x89PNG\r\n\x1a\n")
        self.assertEqual(json.loads(self.document(self.path("runs", "spread", "summary.json")))["env_steps"], 1200000)


if __name__ == "__main__":
    harness.main()
