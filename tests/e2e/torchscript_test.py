#!/usr/bin/env python3
"""A network of a user's own, as TorchScript: it trains, resumes without its original, is evaluated and served, and nobody runs a file
that he has not named himself.

usage: torchscript_test.py TROUPE SOURCE_DIRECTORY
"""

import json
import os
import shutil
import signal
import struct
import zipfile

import harness
import networks

REFUSED = 78
FAST = ["--set", "algorithm.train_batch_size=512", "--set", "num_envs_per_worker=8", "--set", "evaluation.at_end=false"]


class TorchScriptTest(harness.RunningTestCase):
    def setUp(self):
        super().setUp()
        for name in ("cartpole_torchscript.yaml", "cartpole_torchscript.pt"):
            shutil.copy(self.example(name), self.folder)
        self.hash = self.hash_of("cartpole_torchscript.pt")
        self.kept = self.path("runs", "run", "torchscript", f"{self.hash}.pt")

    def fails(self, *arguments, code=1):
        done = self.troupe(*arguments, ok=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr

    def test_trains_goes_on_without_the_original_and_is_evaluated(self):
        self.troupe("train", "cartpole_torchscript.yaml", "--name", "run", "--workers", "1", *FAST, "--set", "stop.env_steps=1024")
        with open(self.path("runs", "run", "config.yaml")) as file:
            config = file.read()
        self.assertIn(f'torchscript: "sha256:{self.hash}"', config)
        self.assertNotIn(".pt", config)
        self.assertEqual(self.hash_of(self.kept), self.hash)
        before = dict(self.tensors("runs", "run", "checkpoints", "latest"))
        self.assertIn("default_policy/actor.body.0.weight", before)

        os.remove(self.path("cartpole_torchscript.pt"))
        resumed = self.troupe("train", "--resume", "run", "--set", "stop.env_steps=2048")
        self.assertIn(f"this run executes model.torchscript: sha256:{self.hash}", resumed.stderr)
        self.assertEqual(self.summary("run")["env_steps"], 2048)
        self.assert_adds_up(self.summary("run"), batch=512)
        after = dict(self.tensors("runs", "run", "checkpoints", "latest"))
        # Parameters are trained, buffers are not.
        self.assertNotEqual(after["default_policy/actor.body.0.weight"], before["default_policy/actor.body.0.weight"])
        self.assertEqual(after["default_policy/actor.buffers.scale"], before["default_policy/actor.buffers.scale"])

        evaluated = self.troupe("evaluate", "run", "--episodes", "3", "--json")
        self.assertEqual(json.loads(evaluated.stdout)["episodes"], 3)
        self.assertIn(f"this run executes model.torchscript: sha256:{self.hash}", evaluated.stderr)
        error = self.fails("serve", "run", "--listen", "unix:" + self.path("s"), code=REFUSED)
        self.assertIn(f"the run names sha256:{self.hash}, which nothing of yours permits, expected --allow-torchscript FILE", error)
        self.serve()
        with open(self.kept, "ab") as file:
            file.write(b"more")
        self.assertRegex(self.fails("evaluate", "run"), rf"{self.hash}\.pt has the SHA-256 \w+, expected that of its name")

    def serve(self):
        address = "unix:" + self.path("s")
        process = self.start_program("serve", "run", "--listen", address, "--allow-torchscript", self.kept)
        self.await_true(lambda: "policy server ready" in self.log_text(), "the policy server")
        answer = self.troupe("query", address, "--policy", "default_policy", "--obs", "[0.1, 0, 0, 0]", "--json")
        own = self.troupe("query", "run", "--policy", "default_policy", "--obs", "[0.1, 0, 0, 0]", "--json", "--allow-torchscript", self.kept)
        self.assertEqual(json.loads(own.stdout)["policy_id"], json.loads(answer.stdout)["policy_id"])
        process.terminate()
        self.assertEqual(process.wait(20), 0, self.log_text())

    def test_one_that_remembers_goes_on_is_evaluated_and_asked_with_its_state(self):
        """Episodes of 22 steps over batches of 16: they are cut, and so is what is remembered."""
        for name in ("recall_torchscript.yaml", "recall_torchscript.pt", "recall_torchscript_critic.pt"):
            shutil.copy(self.example(name), self.folder)
        self.troupe("train", "recall_torchscript.yaml", "--name", "run", "--workers", "1", *FAST, "--set", "stop.env_steps=1024",
                    "--set", "num_envs_per_worker=32")
        before = dict(self.tensors("runs", "run", "checkpoints", "latest"))
        self.troupe("train", "--resume", "run", "--set", "stop.env_steps=2048")
        self.assert_adds_up(self.summary("run"), batch=512)
        after = dict(self.tensors("runs", "run", "checkpoints", "latest"))
        for role in ("actor", "critic"):
            self.assertNotEqual(after[f"default_policy/{role}.core.weight_hh"], before[f"default_policy/{role}.core.weight_hh"])
        evaluated = json.loads(self.troupe("evaluate", "run", "--episodes", "3", "--json").stdout)
        self.assertEqual([episode["length"] for episode in evaluated["per_episode"]], [22] * 3)

        address = "unix:" + self.path("s")
        permitted = [part for name in os.listdir(self.path("runs", "run", "torchscript"))
                     for part in ("--allow-torchscript", self.path("runs", "run", "torchscript", name))]
        process = self.start_program("serve", "run", "--listen", address, *permitted)
        self.await_true(lambda: "policy server ready" in self.log_text(), "the policy server")
        self.ask_over_an_episode(address)
        self.ask_over_an_episode("run", *permitted)
        process.terminate()
        self.assertEqual(process.wait(20), 0, self.log_text())

    def ask_over_an_episode(self, target, *permitted):
        """Two agents over three decisions, of which each is told what the one before gave; the third begins an episode for the second agent."""
        tensors = networks.read_policies(self.path("runs", "run", "checkpoints", "latest"))
        policy, = json.loads(self.troupe("query", target, "--json", *permitted).stdout)["policies"]
        self.assertEqual((policy["obs_size"], policy["state_size"]), (6, 64))
        memory, told = [[0.0] * 64] * 2, []
        for step in range(3):
            observations = [[0, 1, 0, 0, float(step == 0), 0], [0, 0, 0, step / 2, 0, 0]]
            if step == 2:
                memory = told = [told[0], [0.0] * 64]
            answer = json.loads(self.troupe("query", target, "--policy", "default_policy", "--obs", json.dumps(observations), "--deterministic", "--json",
                                            *permitted, *(["--state-in", json.dumps(told)] if told else [])).stdout)
            told = answer["state_out"]
            for row, obs in enumerate(observations):
                probabilities, memory[row] = networks.recall_module_log_probabilities(tensors, "default_policy", obs, memory[row])
                self.assertAlmostEqual(answer["action_logp"][row], max(probabilities), delta=1e-5)
                for got, wanted in zip(told[row], memory[row]):
                    self.assertAlmostEqual(got, wanted, delta=1e-5)

    def test_a_worker_that_is_started_again_runs_what_the_run_began_with(self):
        process = self.start("cartpole_torchscript.yaml", "--name", "run", "--workers", "1", *FAST)
        self.await_env_steps(512, process)
        self.write("cartpole_torchscript.pt", "another file")
        victims = self.workers(process)
        self.assertEqual(len(victims), 1)
        os.kill(victims[0], signal.SIGKILL)
        self.await_env_steps(self.env_steps() + 4096, process)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 0, self.log_text())

    def test_a_worker_runs_what_its_own_side_names(self):
        address = "unix:" + self.path("l")
        learner = self.start_program("learner", "cartpole_torchscript.yaml", "--name", "run", "--workers", "1", "--listen", address, *FAST,
                                     "--set", "stop.env_steps=1024")
        self.await_true(lambda: "learner ready" in self.log_text(), "the learner")
        error = self.fails("worker", "--learner", address, code=REFUSED)
        self.assertIn(f"the learner asks for the TorchScript module sha256:{self.hash}, which this worker does not permit; to permit it "
                      "start it with --allow-torchscript FILE", error)
        shutil.copy(self.example("cartpole_ippo.yaml"), self.path("other.pt"))
        self.assertIn("this worker does not permit", self.fails("worker", "--learner", address, "--allow-torchscript", "other.pt", code=REFUSED))
        self.troupe("worker", "--learner", address, "--allow-torchscript", "cartpole_torchscript.pt")
        self.assertEqual(learner.wait(60), 0, self.log_text())

    def make_module_wait(self):
        """Its forward counts in the file `gate` while that holds more than 0. The code of a module is text in its archive."""
        path, head = self.path("cartpole_torchscript.pt"), b"    _0 = (body)"
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename: archive.read(entry) for entry in archive.infolist()}
        code, = (name for name in entries if name.endswith("/code/__torch__.py"))
        self.assertEqual(entries[code].count(head), 1)
        entries[code] = entries[code].replace(head, b"    gate = torch.from_file(\"gate\", True, 1)\n    while bool(torch.gt(gate, 0.)):\n"
                                                    b"      gate = torch.add_(gate, 1.)\n" + head)
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in entries.items():
                archive.writestr(name, data)

    def set_gate(self, value):
        with open(self.path("gate"), "r+b" if os.path.exists(self.path("gate")) else "wb") as file:
            file.write(struct.pack("f", value))  # in its place: it is mapped

    def gate(self):
        with open(self.path("gate"), "rb") as file:
            return struct.unpack("f", file.read())[0]

    def test_a_signal_ends_a_start_that_waits_for_a_module(self):
        self.make_module_wait()
        self.set_gate(0)
        config = ["cartpole_torchscript.yaml", "--workers", "0", *FAST, "--set", "stop.env_steps=512"]
        self.troupe("train", *config, "--name", "run")
        for code, *command in ((143, "train", *config, "--name", "new"), (143, "train", "--resume", "run", "--set", "stop.env_steps=1024"),
                               (-signal.SIGTERM, "evaluate", "run"), (-signal.SIGTERM, "watch", "run")):
            with self.subTest(command=command):
                self.set_gate(1)
                process = self.start_program(*command)
                self.await_true(lambda: self.gate() > 1, "the module's forward")
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(20), code, self.log_text())
                self.assert_nothing_left()
        self.assertFalse(os.path.exists(self.path("runs", "new")))
        self.set_gate(0)
        self.troupe("train", "--resume", "run", "--set", "stop.env_steps=1024")

    def ends_at_a_signal(self, process, asks=()):
        """While a forward hangs, which what `asks` begins, or `process` itself."""
        self.set_gate(1)
        if asks:
            self.start_program(*asks)
        self.await_true(lambda: self.gate() > 1, "a forward")
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(30)
        finally:
            self.set_gate(0)

    def takes_signals(self, process):
        """Until it plays, a signal ends it by itself."""
        with open(f"/proc/{process.pid}/status") as file:
            caught, = (int(line.split()[1], 16) for line in file if line.startswith("SigCgt"))
        return bool(caught >> signal.SIGTERM - 1 & 1)

    def test_a_signal_ends_what_a_forward_holds_up(self):
        self.make_module_wait()
        self.set_gate(0)
        self.troupe("train", "cartpole_torchscript.yaml", "--workers", "0", *FAST, "--set", "stop.env_steps=512", "--name", "run")
        with self.subTest("evaluate"):
            process = self.start_program("evaluate", "run", "--episodes", "1000000")
            self.await_true(lambda: self.takes_signals(process), "the evaluation")
            self.assertEqual(self.ends_at_a_signal(process), 143, self.log_text())
        with self.subTest("watch"):
            process = self.start_program("watch", "run", "--episodes", "1000000")
            self.await_true(lambda: self.takes_signals(process), "the show")
            self.assertEqual(self.ends_at_a_signal(process), 143, self.log_text())
        with self.subTest("serve"):
            address = "unix:" + self.path("s")
            kept = self.path("runs", "run", "torchscript", f"{self.hash_of('cartpole_torchscript.pt')}.pt")
            process = self.start_program("serve", "run", "--listen", address, "--allow-torchscript", kept)
            self.await_true(lambda: "policy server ready" in self.log_text(), "the policy server")
            code = self.ends_at_a_signal(process, ("query", address, "--policy", "default_policy", "--obs", "[0.1, 0, 0, 0]"))
            self.assertEqual(code, 143, self.log_text())

    def test_what_is_no_module_is_said_before_there_is_a_run(self):
        self.write("cartpole_torchscript.pt", "no archive")
        error = self.fails("train", "cartpole_torchscript.yaml", "--name", "run", "--workers", "0", code=REFUSED)
        self.assertRegex(error, r"cartpole_torchscript\.yaml:24:\d+: model\.torchscript: TorchScript file \S+/cartpole_torchscript\.pt "
                                r"cannot be read, expected what torch\.jit\.save wrote")
        self.assertFalse(os.path.exists(self.path("runs", "run")))
        os.remove(self.path("cartpole_torchscript.pt"))
        self.assertRegex(self.fails("train", "cartpole_torchscript.yaml", code=REFUSED), r"model\.torchscript: got \S+\.pt, which cannot be read")


if __name__ == "__main__":
    harness.main()
