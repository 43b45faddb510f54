"""The C++ client as a project outside the tree uses it: installed with CMake, found with find_package, against real servers."""

import os
import subprocess
import sys
import time

import harness

BUILD = sys.argv.pop(3) if len(sys.argv) > 3 else ""

CONFIG = """
env: {name: mpe/simple_spread}
num_workers: 0
num_envs_per_worker: 4
algorithm: {train_batch_size: 400, minibatch_size: 200, num_epochs: 1}
stop: {env_steps: 400}
evaluation: {at_end: false}
"""


class ClientTest(harness.TroupeTestCase):
    def run_done(self, *command):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_a_project_outside_the_tree_asks_policies(self):
        prefix = self.path("prefix")
        self.run_done("cmake", "--install", BUILD, "--component", "client", "--prefix", prefix)
        installed = sorted(os.path.relpath(os.path.join(folder, name), prefix) for folder, _, names in os.walk(prefix) for name in names)
        self.assertIn("include/troupe/policy_client.h", installed)
        self.assertFalse([name for name in installed if os.sep + "bin" + os.sep in name], "the client alone")
        # Ninja: a machine on which ./troupe installed the tools has no make.
        self.run_done("cmake", "-G", "Ninja", "-S", os.path.join(self.source, "examples", "policy_client"), "-B", "out", f"-DCMAKE_PREFIX_PATH={prefix}")
        self.run_done("cmake", "--build", "out")
        program = self.path("out", "ask_policies")

        self.troupe("train", self.write("run.yaml", CONFIG), "--name", "run")
        servers, addresses = [], []
        for i in range(3):
            addresses.append(f"unix:{self.path(f'{i}.sock')}")
            with open(self.path(f"{i}.log"), "w") as log:
                servers.append(subprocess.Popen([self.program, "serve", "run", "--listen", addresses[i]], cwd=self.folder, stdout=log, stderr=log))
            self.addCleanup(servers[i].wait)
            self.addCleanup(servers[i].kill)
        deadline = time.monotonic() + 60
        while not all(os.path.exists(self.path(f"{i}.sock")) for i in range(3)):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        text = self.run_done(program, "100", *addresses)
        first, *answers, half, last = text.splitlines()
        self.assertEqual(half, "half of the calls are made")
        self.assertEqual(first, "default_policy: Box(-inf, inf, [18]) -> Discrete(5), mlp [64, 64] tanh")
        self.assertEqual(len(answers), 6, "three agents, by a call and by a stream")
        self.assertEqual(answers[:3], answers[3:], "the same seed")
        self.assertEqual(last, "0 of 100 calls failed")
        # One dies under load.
        load = subprocess.Popen([program, "2000", *addresses], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = []
        while "half of the calls are made\n" not in said:
            said.append(load.stdout.readline())
            self.assertTrue(said[-1], said)
        servers[1].kill()
        text, _ = load.communicate(timeout=60)
        self.assertIn("0 of 2000 calls failed", text)
        for address, words in (("10.0.0.1:1", "set credentials, or insecure_plaintext_network"),
                               ("127.evil.example:1", "set credentials, or insecure_plaintext_network"),
                               ("localhost", "expected unix:PATH, unix-abstract:NAME, HOST:PORT or [IPV6]:PORT")):
            done = subprocess.run([program, "1", address], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    harness.main()
