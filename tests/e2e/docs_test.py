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


class DocsTest(harness.TroupeTestCase):
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


if __name__ == "__main__":
    harness.main()
