"""The policies of a run that trains are changed from the command line, hundreds of times, while workers are killed: what is asked for holds, the
counters add up, and memory does not grow."""

import json
import os
import signal

import check_run
import harness

CONFIG = """
env: {name: cartpole, args: {num_agents: 2}}
num_workers: 2
num_envs_per_worker: 4
multi_agent:
  policies: [main, other]
  policy_mapping: {agent_0: main, "*": {main: 1, other: 1}}
algorithm: {name: ippo, train_batch_size: 200, minibatch_size: 200, num_epochs: 1}
model: {actor_hidden_sizes: [16], critic_hidden_sizes: [16]}
stop: {env_steps: 1000000000}
experiment: {write_interval: 200, checkpoint_interval: 20000}
evaluation: {episodes: 2, at_end: false}
"""
ROUNDS = 50
CHANGES_A_ROUND = 10
KILL_EVERY = 10  # rounds


class LivePoliciesTest(harness.RunningTestCase):
    def change(self, *arguments):
        """One change; its revision."""
        revision = json.loads(self.troupe(*arguments, "--json").stdout.splitlines()[-1])["revision"]
        self.assertGreater(revision, self.revision)
        self.revision = revision

    def policies(self):
        """Active policies by id."""
        table = json.loads(self.troupe("policy", "ls", "run", "--json").stdout.splitlines()[-1])
        return {policy["id"]: policy for policy in table["policies"] if policy["removed"] == 0}

    def refused(self, *arguments, saying):
        done = self.troupe(*arguments, ok=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        for words in saying:
            self.assertIn(words, done.stderr)

    def resident_bytes(self, pid):
        with open(f"/proc/{pid}/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))

    def round(self, number):
        """Ten changes that leave the policies as they were, but for a fresher `other`."""
        new, copy = f"new_{number}", f"copy_{number}"
        self.change("policy", "add", "run", new, "--like", "main")
        self.change("policy", "copy", "run", "main", copy, "--frozen")
        self.change("mapping", "set", "run", f"{{agent_0: main, '*': {{other: 1, {new}: 1, {copy}: 1}}}}")
        self.change("policy", "freeze", "run", "main", new)
        self.change("policy", "copy", "run", "main", "other", "--replace")
        self.change("policy", "thaw", "run", "main")
        self.change("mapping", "set", "run", "{agent_0: main, '*': {main: 1, other: 1}}")
        self.change("policy", "remove", "run", new)
        self.change("policy", "remove", "run", copy)
        self.change("policy", "set-trainable", "run", "main", "other")

    def test_hundreds_of_changes_beside_kills(self):
        self.revision = 0
        process = self.start_run(CONFIG)
        learner = self.learner(process)
        settled = None
        for number in range(ROUNDS):
            self.round(number)
            if number % KILL_EVERY == KILL_EVERY - 1:
                victims = self.workers(process)
                os.kill(victims[0], signal.SIGKILL)
                self.await_true(lambda: victims[0] not in self.workers(process) and len(self.workers(process)) == 2, "a successor")
                self.await_env_steps(self.env_steps() + 2000, process)
                self.assert_adds_up(self.status("run"), 200)
                settled = settled or self.resident_bytes(learner)
        self.assertGreaterEqual(self.revision, ROUNDS * CHANGES_A_ROUND)
        self.assertLess(self.resident_bytes(learner) - settled, 16 << 20, "the learner's memory grows with the changes")
        self.assertEqual({name: policy["trains"] for name, policy in self.policies().items()}, {"main": True, "other": True})
        # Slots are used again: a removed policy is gone once no episode plays it.
        self.await_true(lambda: len(json.loads(self.troupe("policy", "ls", "run", "--json").stdout)["policies"]) == 2, "the end of what was removed")

        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=20), 0, self.log_text())
        self.assertEqual(check_run.check_lines(self.progress("run"), 0, 200), [])
        self.assert_adds_up(self.summary("run"), 200)

    def entropy_losses(self, policy, since):
        """Of the policy in lines of progress.jsonl after `since` env steps: 0 where entropy_coeff is."""
        key = f"policy/{policy}/Loss/Entropy loss"
        return [line[key] for line in self.progress("run") if line["env_steps"] > since and key in line]

    def test_a_policy_trains_with_other_settings_and_a_resumed_run_keeps_them(self):
        self.revision = 0
        process = self.start_run(CONFIG)
        self.change("policy", "set", "run", "main", "algorithm.entropy_coeff=0", "algorithm.lr=[[0, 0.001], [100000000, 0]]")
        at = self.env_steps()
        self.await_env_steps(at + 2000, process)
        self.assertEqual(set(self.entropy_losses("main", at + 400)), {0})
        self.assertLess(max(self.entropy_losses("other", at + 400)), 0)
        self.assertLess(min(self.entropy_losses("main", -1)), 0, "before")
        told = [line["settings"] for line in self.progress("run") if "settings" in line]
        self.assertEqual(told, ["main algorithm.entropy_coeff=0; main algorithm.lr=[[0, 0.001], [100000000, 0]]"])
        self.refused("policy", "set", "run", "main", "algorithm.train_batch_size=9", saying=["algorithm.train_batch_size: cannot change"])
        self.refused("policy", "set", "run", "main", "algorithm.lr=-1", saying=["algorithm.lr: got -1, expected"])
        self.refused("policy", "set", "run", "main", "algorithm.optimizer=sgd", saying=["only be those of a new policy"])
        self.refused("policy", "set", "run", "nobody", "algorithm.lr=1", saying=["nobody"])
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=20), 0, self.log_text())
        self.refused("policy", "set", "run", "main", "algorithm.lr=1", saying=["nobody trains", "--resume"])

        at = self.summary("run")["env_steps"]
        process = self.start("--resume", "run")
        self.await_true(lambda: len(self.entropy_losses("main", at)) > 2, "updates after the resume")
        self.assertEqual(set(self.entropy_losses("main", at)), {0})
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=20), 0, self.log_text())

    def test_evaluations_tell_of_the_policies_that_played(self):
        self.revision = 0
        process = self.start_run(CONFIG.replace("evaluation: {", "evaluation: {interval: 1000, "))
        self.change("mapping", "set", "run", "{'*': other}")
        self.change("policy", "remove", "run", "main")
        at = self.env_steps()
        evaluated = lambda: [line for line in self.progress("run") if line["env_steps"] > at + 1000 and "evaluation_return_sum" in line]
        self.await_true(lambda: len(evaluated()) > 1, "evaluations of what plays now")
        for line in evaluated():
            self.assertEqual(line["evaluation/policy/other/return_mean"] * 2, line["evaluation_return_sum"], "both agents play it")
            self.assertNotIn("evaluation/policy/main/return_mean", line)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=20), 0, self.log_text())

    def test_a_restarted_run_has_the_policies_it_had(self):
        self.revision = 0
        process = self.start_run(CONFIG)
        self.change("policy", "copy", "run", "main", "rival", "--frozen")
        self.change("mapping", "set", "run", "{agent_0: main, '*': rival}")
        self.change("policy", "remove", "run", "other")
        self.await_env_steps(self.env_steps() + 1000, process)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=20), 0, self.log_text())

        # What the folder holds can be played and read without the learner.
        evaluated = json.loads(self.troupe("evaluate", "run", "--episodes", "4", "--json").stdout.splitlines()[-1])
        self.assertEqual(evaluated["episodes"], 4)
        tensors = {name.split("/")[0] for name, _ in self.tensors("runs", "run", "checkpoints", "latest")}
        self.assertEqual(tensors, {"main", "rival"})
        frozen = [data for name, data in self.tensors("runs", "run", "checkpoints", "latest") if name.startswith("rival/")]

        process = self.start("--resume", "run")
        env_steps = self.summary("run")["env_steps"]
        self.await_env_steps(env_steps + 1000, process)
        self.assertEqual({name: policy["trains"] for name, policy in self.policies().items()}, {"main": True, "rival": False})
        self.assertEqual(json.loads(self.troupe("mapping", "show", "run", "--json").stdout), {"agent_0": {"main": 1.0}, "*": {"rival": 1.0}})
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=20), 0, self.log_text())
        self.assertEqual([data for name, data in self.tensors("runs", "run", "checkpoints", "latest") if name.startswith("rival/")], frozen,
                         "a frozen policy keeps its bits")

        # One policy comes into another run whole.
        process = self.start(self.write("run.yaml", CONFIG), "--name", "second")
        self.await_true(lambda: os.path.exists(self.path("runs", "second", "address")), "the second run")
        self.troupe("policy", "import", "second", "runs/run#rival", "guest", "--like", "main", "--frozen")
        self.refused("policy", "import", "second", "runs/run#nobody", "guest_2", "--like", "main", saying=["nobody"])
        self.refused("policy", "import", "second", "runs/none", "guest_2", "--like", "main", saying=["none"])
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=20), 0, self.log_text())
        guest = [data for name, data in self.tensors("runs", "second", "checkpoints", "latest") if name.startswith("guest/")]
        self.assertEqual(guest, frozen)

    def test_what_cannot_be_done_is_refused_and_training_goes_on(self):
        self.revision = 0
        process = self.start_run(CONFIG)
        self.refused("policy", "add", "run", "main", saying=["main", "already"])
        self.refused("policy", "remove", "run", "main", saying=["main", "plays"])
        self.refused("policy", "remove", "run", "othr", saying=["othr", "the nearest is \"other\""])
        self.refused("policy", "copy", "run", "nobody", "copy", saying=["nobody"])
        self.refused("policy", "copy", "run", "main", "nobody", "--replace", saying=["nobody"])
        for policy_id in ("../x", "", "p" * 200, "a\nb"):
            self.refused("policy", "add", "run", policy_id, saying=["policy id"])
        self.refused("policy", "add", "run", "new", "--class", "clever", saying=["clever"])
        self.refused("mapping", "set", "run", "{'*': nobody}", saying=["nobody"])
        self.refused("mapping", "set", "run", "{agent_0: main}", saying=["agent_1", "no rule"])
        self.refused("mapping", "set", "run", "{'*': {main: -1}}", saying=["weight"])
        self.refused("mapping", "set", "run", "", saying=["no rules"])
        self.refused("policy", "thaw", "run", "nobody", saying=["nobody"])
        self.assertEqual(set(self.policies()), {"main", "other"})
        self.await_env_steps(self.env_steps() + 1000, process)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=20), 0, self.log_text())
        self.refused("policy", "freeze", "run", "main", saying=["nobody trains", "--resume"])
        self.assert_adds_up(self.summary("run"), 200)


if __name__ == "__main__":
    harness.main()
