"""What a person gets wrong at the start: one clear error on stderr, a non-zero exit code, and nothing left behind."""

import os
import resource
import socket
import subprocess
import time

import harness

CONFIG = """
env: {name: mpe/simple_spread}
num_workers: 1
num_envs_per_worker: 8
algorithm: {train_batch_size: 200, minibatch_size: 100, num_epochs: 1}
stop: {env_steps: 400}
evaluation: {episodes: 4}
"""


class BadStartTest(harness.TroupeTestCase):
    def fails(self, *arguments, saying, code=78, timeout=60):
        """78: no other try ends differently before somebody changes something; 1: another one may."""
        done = self.troupe(*arguments, ok=False, timeout=timeout)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for words in saying:
            self.assertIn(words, done.stderr)
        self.assertNotIn("CHECK failed", done.stderr)
        self.assertNotIn("terminate called", done.stderr)
        return done

    def test_configuration_errors_name_the_place(self):
        self.fails("train", "missing.yaml", saying=["missing.yaml"])
        self.fails("train", self.write("empty.yaml", ""), saying=["empty.yaml"])
        typo = self.write("typo.yaml", CONFIG.replace("num_epochs", "num_epoch"))
        self.fails("train", typo, saying=["typo.yaml:5:", "num_epoch", "num_epochs"])
        good = self.write("good.yaml", CONFIG)
        self.fails("train", good, "--set", "algorithm.gamma=1.5", saying=["algorithm.gamma", "1.5"])
        self.fails("train", good, "--set", "algorithm.minibatch_size=100000", saying=["minibatch_size"])
        self.fails("train", good, "--set", "env.name=mpe/simple_spraed", saying=["mpe/simple_spraed", "mpe/simple_spread"])
        self.fails("train", good, "--set", "env.args.N=0", saying=["N"])
        self.assertFalse(os.path.exists(self.path("runs")) and os.listdir(self.path("runs")))

    def test_run_folders(self):
        good = self.write("good.yaml", CONFIG)
        self.troupe("train", good, "--name", "run")
        self.fails("train", good, "--name", "run", saying=["run", "--resume"])
        self.fails("train", good, "--resume", "nobody", saying=["nobody"])
        self.fails("train", good, "--resume", "run", "--set", "model.actor_hidden_sizes=[8]", "--set", "stop.env_steps=800",
                   saying=["actor_hidden_sizes"])
        manifest = self.path("runs", "run", "checkpoints", "400", "manifest.json")
        os.truncate(manifest, 100)
        done = self.troupe("train", "--resume", "run", "--set", "stop.env_steps=800", ok=False)
        self.assertIn("damaged", done.stderr)
        self.assertTrue(os.path.exists(self.path("runs", "run", "checkpoints", "400.corrupt")))
        with open(self.path("file"), "w") as file:
            file.write("x")
        self.fails("train", good, "--set", "experiment.directory=file", "--name", "r", saying=["run folder", "file/r"])

    def test_addresses(self):
        good = self.write("good.yaml", CONFIG)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.fails("learner", good, "--listen", f"127.0.0.1:{port}", "--name", "r", saying=[str(port)], code=1)
        self.fails("learner", good, "--listen", "0.0.0.0:0", "--name", "r", saying=["--insecure-plaintext-network"])
        self.fails("learner", good, "--listen", "nonsense", "--name", "r", saying=["nonsense"])
        self.assertFalse(os.path.exists(self.path("runs", "r")), "a start that failed leaves no run behind")
        self.fails("worker", "--learner", f"unix:{self.path('nobody.sock')}", "--connect-timeout", "1", saying=["nobody.sock"], code=1)
        self.fails("worker", "--learner", "nonsense", saying=["nonsense", "HOST:PORT"])
        for elsewhere in ("192.0.2.1:7777", "127.evil.example:7777", "localhost.:7777"):
            self.fails("worker", "--learner", elsewhere, saying=[elsewhere, "--insecure-plaintext-network"])
        self.fails("worker", "--learner", "127.1:7777", saying=["no valid IPv4 address"])

    def test_an_address_for_clients_of_other_machines(self):
        # `train` has no --insecure-plaintext-network: its workers advised it, one after another, and a run folder was left.
        world = self.write("world.yaml", """
env: {external: {spaces: {a: {obs_space: "Box(-1, 1, [2])", act_space: "Discrete(2)"}}, address: "0.0.0.0:0"}}
algorithm: {name: ippo, train_batch_size: 100, minibatch_size: 100}
num_workers: 1
stop: {env_steps: 100}
""")
        self.fails("train", world, "--name", "r", saying=["env.external.address", '"0.0.0.0:0", which other machines reach', "troupe learner"])
        self.fails("train", world, "--name", "r", "--set", "env.external.address=nonsense", saying=["env.external.address", "HOST:PORT"])
        self.assertFalse(os.path.exists(self.path("runs")))

    def test_addresses_of_a_policy_server(self):
        self.troupe("train", self.write("good.yaml", CONFIG), "--name", "run")
        self.fails("serve", "runs/run", "--listen", "nonsense", saying=["nonsense", "HOST:PORT"])
        self.fails("serve", "runs/run", "--listen", "0.0.0.0:0", saying=["--insecure-plaintext-network"])
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.fails("serve", "runs/run", "--listen", f"127.0.0.1:{port}", saying=[str(port)], code=1)

    def test_too_little_memory(self):
        """`ulimit -v`: whatever it is, either the run trains or one sentence says why not."""
        good = self.write("good.yaml", CONFIG)

        def limited(mebibytes, *arguments):
            return self.troupe(*arguments, ok=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20)))
        if limited(4096, "version").returncode != 0:
            self.skipTest("this build's sanitizer takes all addresses there are")
        for mebibytes in (100, 400, 600):
            for command in (("train", good, "--name", "run"), ("learner", good, "--name", "run", "--workers", "0")):
                done = limited(mebibytes, *command)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(f"too little memory, of which a process may have {mebibytes} MiB here (ulimit -v)", done.stderr)
        self.assertFalse(os.path.exists(self.path("runs", "run")))
        self.assertEqual(limited(60, "worker", "--learner", "unix:nobody").returncode, 1)
        for mebibytes in (700, 800, 1000, 1500):
            done = limited(mebibytes, "train", good, "--name", f"run{mebibytes}")
            self.assertIn(done.returncode, (0, 1), done.stderr)
            self.assertEqual(done.returncode == 1, "memory" in done.stderr, done.stderr)
            self.assertNotIn("terminate called", done.stderr)

    def test_what_is_let_through_has_room(self):
        """A library that finds no memory aborts or hangs: a learner that starts has 64 MiB more than a small run takes."""
        good = self.write("good.yaml", CONFIG)
        limit, taken = 0, 0
        for mebibytes in range(640, 1000, 8):
            taken = self.addresses_of_a_run(good, mebibytes)
            if taken is not None:
                limit = mebibytes
                break
        if limit == 0:
            self.skipTest("this build's sanitizer takes all addresses there are")
        self.assertGreater(taken, 300, "what was looked at was not the learner")
        self.assertGreaterEqual(limit - taken, 64, f"{taken} MiB taken of {limit}")

    def addresses_of_a_run(self, config, mebibytes):
        """MiB that the learner of `train` took at most under such a limit; None where it was refused."""
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))
        taken = 0
        with subprocess.Popen([self.program, "train", config, "--name", f"room{mebibytes}"], cwd=self.folder, preexec_fn=limit,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as train:
            while train.poll() is None:
                taken = max([taken, *map(mebibytes_of, learners_of(train.pid))])
                time.sleep(0.002)
            said = train.stdout.read()
        if train.returncode == 0:
            return taken
        self.assertEqual(train.returncode, 1, said)
        self.assertIn("too little memory", said)
        return None


def learners_of(pid):
    """Process ids of the learners that process `pid` started."""
    found = []
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            for child in file.read().split():
                with open(f"/proc/{child}/comm") as name:
                    found += [child] if name.read().startswith("troupe-learner") else []
    except OSError:  # it has ended
        pass
    return found


def mebibytes_of(pid):
    """Addresses that a process has now, MiB; 0 once it has ended. Not VmPeak: what the check itself tries to take is in it."""
    try:
        with open(f"/proc/{pid}/status") as file:
            return next((int(line.split()[1]) >> 10 for line in file if line.startswith("VmSize:")), 0)
    except OSError:
        return 0


if __name__ == "__main__":
    harness.main()
