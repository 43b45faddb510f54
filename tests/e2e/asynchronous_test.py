"""IMPALA and APPO: no worker waits for another, each batch is used as often as it is to be, and beside them other algorithms learn. All of it adds up."""

import os
import signal
import time

import check_run
import harness

IMPALA = """
env: {name: mpe/simple_spread}
num_workers: 2
num_envs_per_worker: 8
algorithm: {name: impala, train_batch_size: 400, minibatch_size: 400, max_policy_lag: 4}
model: {actor_hidden_sizes: [16], critic_hidden_sizes: [16]}
stop: {env_steps: 100000000}
experiment: {write_interval: 400, checkpoint_interval: 20000}
evaluation: {at_end: false}
"""
# Each agent's policy has an algorithm of its own, and a clock of its own where it takes batches otherwise.
SIDE_BY_SIDE = """
env: {name: cartpole, args: {num_agents: 3}}
num_workers: 2
num_envs_per_worker: 8
algorithm: {name: ippo, train_batch_size: 400, minibatch_size: 200, num_epochs: 1, max_policy_lag: 1}
model: {actor_hidden_sizes: [16], critic_hidden_sizes: [16]}
multi_agent:
  policy_map_capacity: 1
  policies: {ppo: {}, impala: {algorithm: {name: impala}}, appo: {algorithm: {name: appo, target_network_update_freq: 1}}}
  policy_mapping: {agent_0: ppo, agent_1: impala, agent_2: appo}
stop: {env_steps: 12000}
experiment: {write_interval: 400, checkpoint_interval: 4000}
evaluation: {at_end: false}
"""


class AsynchronousTest(harness.RunningTestCase):
    def finish(self, process):
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 0, self.log_text())
        self.assert_adds_up(self.summary("run"))
        self.assertEqual(check_run.check_lines(self.progress("run"), 0, 400, free_running=True), [])
        self.assert_nothing_left()

    def rows_of(self, pid):
        return sum(worker["accepted_rows"] for worker in self.status("run")["workers"] if worker["name"].endswith(f":{pid}"))

    def test_a_worker_that_stands_still_holds_nobody_up(self):
        process = self.start_run(IMPALA)
        self.assertIn("sampling free-running, at most 2 batches ahead (policy", self.log_text())
        slow = self.workers(process)[0]
        os.kill(slow, signal.SIGSTOP)
        self.addCleanup(lambda: slow in harness.processes() and os.kill(slow, signal.SIGCONT))
        # It has a part of the batches that are being sampled. In rounds the run would stand still behind them.
        at = self.env_steps()
        self.await_env_steps(at + 40 * 400, process)
        before = self.rows_of(slow)
        os.kill(slow, signal.SIGCONT)
        self.await_true(lambda: self.rows_of(slow) > before + 1000, "rows of the worker that went on")
        self.finish(process)

    def test_workers_and_learners_that_are_killed_lose_nothing(self):
        process = self.start_run(IMPALA)
        for _ in range(6):
            at = self.env_steps()
            os.kill(self.workers(process)[0], signal.SIGKILL)
            self.await_env_steps(at + 4000, process)
        self.await_true(lambda: os.path.lexists(self.path("runs", "run", "checkpoints", "latest")), "a checkpoint")
        os.kill(self.learner(process), signal.SIGKILL)
        self.assertEqual(process.wait(timeout=60), 137, self.log_text())
        resumed = self.start("--resume", "run")
        at = self.env_steps()
        self.await_env_steps(at + 8000, resumed)
        self.finish(resumed)

    def test_appo_uses_each_batch_as_often_as_it_is_to(self):
        config = IMPALA.replace("name: impala", "name: appo, circular_buffer_iterations_per_batch: 3").replace("100000000", "8000")
        process = self.start(self.write("run.yaml", config), "--name", "run")
        self.assertEqual(process.wait(timeout=120), 0, self.log_text())
        last = self.progress("run")[-1]
        self.assertEqual((last["rows_trained"], last["rows_aged"]), (last["rows_accepted"], 0), last)
        self.assertEqual(last["agent_steps"], last["rows_trained"], "each row counts once")
        self.assertEqual(last["updates"], 3 * last["env_steps"] // 400, "a fragment is a part of a batch")
        self.assert_adds_up(self.summary("run"))
        (checkpoint,) = {os.readlink(self.path("runs", "run", "checkpoints", "latest"))}
        names = [name for name, _ in self.tensors("runs", "run", "checkpoints", checkpoint)]
        self.assertTrue(any("/actor.target.0.weight" in name for name in names), names)

    def test_three_algorithms_side_by_side_with_room_for_one_policy(self):
        process = self.start(self.write("run.yaml", SIDE_BY_SIDE), "--name", "run")
        self.assertEqual(process.wait(timeout=120), 0, self.log_text())
        lines = self.progress("run")
        for group in ("ppo", "impala", "appo"):
            of = {key: lines[-1][f"group/{group}/{key}"] for key in ("rows_accepted", "rows_queued", "rows_trained", "rows_aged", "rows_evicted", "row_uses")}
            self.assertEqual(of["rows_accepted"], of["rows_queued"] + of["rows_trained"] + of["rows_aged"] + of["rows_evicted"], (group, of))
            self.assertEqual(of["row_uses"], of["rows_trained"] * (2 if group == "appo" else 1), (group, of))
            self.assertTrue(any(f"policy/{group}/Loss/Policy loss" in line for line in lines), group)
        self.assertTrue(any("Policy/Importance ratio" in line for line in lines))
        summary = self.summary("run")
        # It goes on, and its policies begin another run.
        self.troupe("train", "--resume", "run", "--set", "stop.env_steps=16000")
        self.assertGreaterEqual(self.summary("run")["env_steps"], summary["env_steps"] + 4000)
        self.troupe("train", "run.yaml", "--name", "warm", "--warm-start", "runs/run", "--set", "stop.env_steps=800")

    def test_policies_come_and_go_while_appo_trains(self):
        config = SIDE_BY_SIDE.replace("stop: {env_steps: 12000}", "stop: {env_steps: 100000000}")
        process = self.start_run(config)
        for number in range(4):
            self.troupe("policy", "add", "run", f"new_{number}", "--like", "appo")
            self.troupe("mapping", "set", "run", f"{{agent_0: ppo, agent_1: impala, agent_2: {{appo: 1, new_{number}: 1}}}}")
            at = self.env_steps()
            self.await_env_steps(at + 2000, process)
            self.troupe("policy", "set", "run", f"new_{number}", "algorithm.lr=1.0e-4")
            self.troupe("mapping", "set", "run", "{agent_0: ppo, agent_1: impala, agent_2: appo}")
            self.troupe("policy", "remove", "run", f"new_{number}")
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), 0, self.log_text())
        self.assert_adds_up(self.summary("run"))


if __name__ == "__main__":
    harness.main()
