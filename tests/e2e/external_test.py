"""Worlds outside: clients that play episodes of their own and train a run with them, by stubs of the .proto alone and by troupe.ExternalEnv, which may act
by itself."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from concurrent import futures

import grpc
import harness
import numpy

sys.path.insert(0, os.path.join(sys.argv[2], "python"))

from troupe import external  # noqa: E402  of the source under test

# Two agents; "late" comes at the second step and leaves at the fourth, both without the other.
TWO = """
env:
  external:
    spaces:
      early: {obs_space: "Box(-1, 1, [2])", act_space: "Discrete(3)", action_mask: true}
      late: {obs_space: "Dict{at: Box(-1, 1, [2]), kind: Discrete(2)}", act_space: "Box(-1, 1, [1])"}
multi_agent: {policy_mapping: per_agent}
algorithm: {name: mappo, train_batch_size: 40, minibatch_size: 20, num_epochs: 1}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
num_workers: 0
num_envs_per_worker: 2
stop: {env_steps: 200}
experiment: {write_interval: 40}
"""


# One that remembers, and one with masks; no update comes.
REMEMBERS = """
env:
  external:
    spaces:
      early: {obs_space: "Box(-1, 1, [2])", act_space: "Discrete(3)", action_mask: true}
      late: {obs_space: "Dict{at: Box(-1, 1, [2]), kind: Discrete(2)}", act_space: "MultiDiscrete([2, 2])"}
multi_agent: {policy_mapping: per_agent}
algorithm: {name: mappo, train_batch_size: 100000, minibatch_size: 20, num_epochs: 1}
model: {actor_hidden_sizes: [8], actor_core: gru, critic_hidden_sizes: [8]}
num_workers: 0
num_envs_per_worker: 2
"""
LIBRARY = os.environ.get("TROUPE_ACTING_LIBRARY")


class ExternalTest(harness.RunningTestCase):
    def socket(self, run):
        return self.path("runs", run, "external", "episodes.sock")

    def listens(self, run):
        """The file is there a moment before anybody listens."""
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(self.socket(run)) == 0

    def stubs(self):
        """What protoc makes of the one file, beside play.py."""
        plugin = subprocess.run(["which", "grpc_python_plugin"], capture_output=True, text=True, check=True).stdout.strip()
        proto = os.path.join(self.source, "proto", "troupe", "v1")
        subprocess.run(["protoc", "-I", proto, f"--python_out={self.folder}", f"--grpc_python_out={self.folder}",
                        f"--plugin=protoc-gen-grpc_python={plugin}", "episodes.proto"], check=True)

    def play(self, patience_s=60):
        """A client in plain Python, killed at the end of the test."""
        program = f"import play; play.PATIENCE_S = {patience_s}; play.main()"
        path = f"{self.folder}:{os.path.join(self.source, 'examples', 'external_cartpole')}"
        with open(self.path("clients"), "a") as log:
            client = subprocess.Popen([sys.executable, "-B", "-c", program, f"unix:{self.socket('outside')}"], cwd=self.folder, stdout=log,
                                      stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": path})
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        return client

    def clients_said(self):
        with open(self.path("clients")) as log:
            return log.read()

    def assert_code(self, code, call, *arguments, **named):
        with self.assertRaises(external.EpisodeError) as caught:
            call(*arguments, **named)
        self.assertEqual(caught.exception.code, code, caught.exception)

    def test_a_cartpole_trains_through_stubs_and_outlives_its_worker(self):
        self.stubs()
        train = self.start(self.example("external_cartpole/cartpole.yaml"), "--name", "outside", "--set", "experiment.write_interval=512")
        self.await_true(lambda: self.listens("outside"), "the door")
        self.assertIn(f"unix:{self.socket('outside')}", self.log_text(), "who trains is told where clients come")
        self.await_true(lambda: stat.S_IMODE(os.stat(self.socket("outside")).st_mode) == 0o600, "a private socket")
        self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(self.socket("outside"))).st_mode), 0o700)
        clients = [self.play(), self.play()]
        progress = self.path("runs", "outside", "progress.jsonl")
        self.await_true(lambda: os.path.exists(progress) and os.path.getsize(progress) > 0, "an update")
        worker, = self.workers(train)
        os.kill(worker, signal.SIGKILL)
        for client in clients:
            self.assertEqual(client.wait(timeout=30), 1)
        self.assertEqual(self.clients_said().count("no more answers: UNAVAILABLE"), 2, "its episodes are gone, which its clients hear")
        self.await_true(lambda: self.workers(train) not in ([], [worker]), "another worker")
        clients = [self.play(), self.play()]
        self.assertEqual(train.wait(timeout=150), 0, self.log_text())
        for client in clients:
            self.assertEqual(client.wait(timeout=30), 0)
        self.assertEqual(self.clients_said().count("the run has ended"), 2, "that is no error")
        summary = self.summary("outside")
        self.assertRegex(summary["reason"], "episode_return")
        self.assert_adds_up(summary, batch=512)
        self.assertEqual(summary["env_errors"], 0, "clients and workers that go are no failing environments")
        self.assert_nothing_left()

    def test_a_client_waits_for_a_run_and_says_so_but_not_for_ever(self):
        self.stubs()
        self.write("log", "")  # of no run
        address = f"unix:{self.socket('outside')}"
        client = self.play(patience_s=2)
        self.assertEqual(client.wait(timeout=30), 1)
        self.assertEqual(self.clients_said(), f"waiting for a run at {address}, 2 s at most\n"
                         f"no run answers at {address}: got nothing in 2 s, expected the address that `troupe train` says\n")
        self.write("clients", "")
        client = self.play()
        self.await_true(lambda: "waiting" in self.clients_said(), "a client that waits")
        os.makedirs(os.path.dirname(self.socket("outside")))
        late = grpc.server(futures.ThreadPoolExecutor(1))
        self.addCleanup(late.stop, None)
        late.add_insecure_port(address)
        late.start()
        self.assertEqual(client.wait(timeout=30), 1)
        self.assertIn("no more answers: UNIMPLEMENTED", self.clients_said(), "who came late was found")

    def episode(self, env, steps=6):
        """Of the two agents."""
        episode = env.start_episode()
        for step in range(steps):
            seen = {"early": [0.0, step / 10]}
            if 1 <= step <= 3:
                seen["late"] = {"at": [0.5, 0.5], "kind": step % 2}
            actions = env.get_actions(episode, seen, action_masks={"early": [1, 0, 1]}, rewards={"early": 1.0} if step else None,
                                      terminateds=["late"] if step == 3 else ())
            acting = {"early"} | ({"late"} if step in (1, 2) else set())
            self.assertEqual(set(actions), acting)
            self.assertIn(actions["early"], (0, 2))
            if "late" in acting:
                env.log_returns(episode, {"late": 0.5})
        env.end_episode(episode, {"early": [1.0, 1.0]}, rewards={"early": 1.0})
        return episode

    def test_agents_come_and_leave_and_what_does_not_fit_is_refused(self):
        train = self.start(self.write("two.yaml", TWO), "--name", "two")
        self.await_true(lambda: self.listens("two"), "the door")
        with external.ExternalEnv(self.path("runs", "two"), timeout=30) as env:
            over = self.episode(env)
            self.assert_code("FAILED_PRECONDITION", env.get_actions, over, {"early": [0, 0]})
            self.assert_code("ALREADY_EXISTS", env.start_episode, over)
            self.assert_code("NOT_FOUND", env.log_returns, "nobody", {})
            if LIBRARY:
                with external.ExternalEnv(self.path("runs", "two"), timeout=30, local_inference=True) as local:
                    self.assert_code("FAILED_PRECONDITION", local.start_episode)  # continuous actions
            episode = env.start_episode("mine")
            self.assert_code("FAILED_PRECONDITION", env.log_returns, episode, {"late": 1.0})
            self.assert_code("INVALID_ARGUMENT", env.get_actions, episode, {"early": [0, float("nan")]})
            self.assert_code("INVALID_ARGUMENT", env.get_actions, episode, {"early": [0, 0]}, action_masks={"early": [0, 0, 0]})
            self.assert_code("INVALID_ARGUMENT", env.get_actions, episode, {"early": [0, 0]}, state=[1])
            self.assert_code("INVALID_ARGUMENT", env.log_actions, episode, {"early": [0, 0]}, {"early": 3}, {"early": -1.0})
            self.assert_code("INVALID_ARGUMENT", env.log_actions, episode, {"early": [0, 0]}, {"early": 2}, {})
            env.log_actions(episode, {"early": [0, 0]}, {"early": 2}, {"early": -1.0})  # the next call is served
            env.end_episode(episode, truncated=True)
            # It trains to its end, for which nobody has to wait.
            errors = []
            while train.poll() is None:
                try:
                    self.episode(env)
                except external.EpisodeError as error:
                    errors.append(error)
            self.assertLessEqual({error.code for error in errors}, {"UNAVAILABLE", "FAILED_PRECONDITION"})
            told = next((error for error in errors if error.code == "UNAVAILABLE"), None)
            self.assertIsInstance(told, external.RunEnded, "the end of the run is no error")
        self.assertEqual(train.returncode, 0, self.log_text())
        summary = self.summary("two")
        self.assert_adds_up(summary)
        self.assertEqual(summary["env_errors"], 0)
        self.assertFalse(os.path.exists(self.socket("two")), "nobody listens any more")
        done = self.troupe("evaluate", "runs/two", ok=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("the world is outside", done.stdout + done.stderr)

    def test_a_run_without_clients_ends_when_it_is_told_to(self):
        train = self.start(self.write("two.yaml", TWO), "--name", "two", "--workers", "1")
        self.await_true(lambda: self.listens("two"), "the door")
        with external.ExternalEnv(self.path("runs", "two"), timeout=30) as env:
            heard = []

            def play():
                with self.assertRaises(external.RunEnded):
                    self.episode(env, 10**6)
                heard.append(None)
            waits = threading.Thread(target=play)
            waits.start()
            self.await_true(lambda: os.path.exists(self.path("runs", "two", "progress.jsonl")), "an update")
            train.send_signal(signal.SIGTERM)
            waits.join(timeout=30)
            self.assertEqual(heard, [None], "who waits hears that the run ends")
        self.assertEqual(train.wait(timeout=30), 0, self.log_text())
        again = self.start("--resume", "runs/two")
        self.await_true(lambda: self.listens("two"), "the door")
        again.send_signal(signal.SIGTERM)
        self.assertEqual(again.wait(timeout=30), 0, self.log_text())
        self.assert_nothing_left()

    def decisions(self, env, known):
        """Plays an episode of four steps, the same but for its actions, and notes under (step, agent, action) the log-probability."""
        episode = env.start_episode()
        for step in range(4):
            seen = {"early": [0.25, step / 4], "late": {"at": [0.5, -step / 4], "kind": step % 2}}
            actions = env.get_actions(episode, seen, action_masks={"early": [1, step % 2, 1]})
            for agent, log_prob in env.log_probs.items():
                key = step, agent, tuple(numpy.atleast_1d(actions[agent]).tolist())
                self.assertAlmostEqual(known.setdefault(key, log_prob), log_prob, delta=1e-5, msg=str(key))
        env.end_episode(episode, truncated=True)

    @harness.by_command(LIBRARY)
    def test_a_client_that_acts_by_itself_decides_as_the_worker_does(self):
        train = self.start(self.write("remembers.yaml", REMEMBERS), "--name", "two")
        self.await_true(lambda: self.listens("two"), "the door")
        asked, own = {}, {}
        # Each action of the four steps of both: 3 or 2 of early, 4 of late.
        for known, local in ((asked, False), (own, True)):
            with external.ExternalEnv(self.path("runs", "two"), timeout=30, local_inference=local) as env:
                for _ in range(1000):
                    self.decisions(env, known)
                    if len(known) == 2 * (3 + 2) + 4 * 4:
                        break
        self.assertEqual(set(asked), set(own), "each decides what the other does, and nothing else")
        for key, log_prob in asked.items():
            self.assertAlmostEqual(own[key], log_prob, delta=1e-5, msg=str(key))
        self.assertGreater(abs(own[0, "late", (0, 0)] - own[3, "late", (0, 0)]), 1e-6, "of other observations they differ")
        train.send_signal(signal.SIGTERM)
        self.assertEqual(train.wait(timeout=30), 0, self.log_text())
        self.assert_nothing_left()

    @harness.by_command(LIBRARY)
    def test_a_client_that_acts_by_itself_waits_for_a_run_but_not_for_ever(self):
        run = self.path("runs", "outside")
        os.makedirs(run)
        program = f"import sys; sys.argv[1:] = [{run!r}]; import play_local; play_local.PATIENCE_S = 1; play_local.main()"
        path = os.pathsep.join(os.path.join(self.source, folder) for folder in ("python", "examples/external_cartpole"))
        done = subprocess.run([sys.executable, "-B", "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual((done.returncode, done.stdout), (1, f"waiting for a run at {run}, 1 s at most\n"))
        self.assertEqual(done.stderr, f"no run answers at {run}: got nothing in 1 s, expected the folder that `troupe train` says\n")

    @harness.by_command(LIBRARY)
    def test_a_cartpole_trains_with_a_client_that_acts_by_itself(self):
        train = self.start(self.example("external_cartpole/cartpole.yaml"), "--name", "outside", "--set", "experiment.write_interval=512", "--set",
                           "stop={env_steps: 5120}")
        self.await_true(lambda: self.listens("outside"), "the door")
        with open(self.path("clients"), "w") as log:
            client = subprocess.Popen([sys.executable, "-B", os.path.join(self.source, "examples", "external_cartpole", "play_local.py"),
                                       self.path("runs", "outside")], cwd=self.folder, stdout=log, stderr=subprocess.STDOUT,
                                      env={**os.environ, "PYTHONPATH": os.path.join(self.source, "python")})
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        self.assertEqual(train.wait(timeout=300), 0, self.log_text())
        self.assertEqual(client.wait(timeout=30), 0)
        with open(self.path("clients")) as log:
            self.assertIn("the run has ended", log.read())
        summary = self.summary("outside")
        self.assert_adds_up(summary, batch=512)
        self.assertEqual((summary["updates"], summary["env_steps"], summary["env_errors"]), (10, 5120, 0))
        # With each update the decision that is under way is of the weights before: it is not trained on.
        rows = summary["rows"]
        self.assertGreater(rows["dropped"], 0, rows)
        self.assertLessEqual(rows["dropped"], 2 * 10, rows)
        # All others are of the newest.
        self.assertEqual((rows["trained"] + rows["dropped"], rows["invalid"]), (5120, 0), rows)


if __name__ == "__main__":
    harness.main()
