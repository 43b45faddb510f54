"""A run is changed through the control socket in its folder, by its learner's user, and looked at from everywhere: where the socket lies, what the
addresses tell, and what is said to those who come another way."""

import json
import os
import signal
import socket
import stat
import subprocess

import harness

CONFIG = """
env: {name: cartpole, args: {num_agents: 2}}
num_workers: 0
num_envs_per_worker: 4
multi_agent:
  policies: {main: {}, other: {class: "scripted:always_same"}}
  policy_mapping: {agent_0: main, "*": {main: 1, other: 1}}
algorithm: {name: ippo, train_batch_size: 200, minibatch_size: 200, num_epochs: 1}
model: {actor_hidden_sizes: [16], critic_hidden_sizes: [16]}
stop: {env_steps: 1000000000}
experiment: {write_interval: 200, checkpoint_interval: 1000}
evaluation: {at_end: false}
"""


class ControlTest(harness.RunningTestCase):
    def start_learner(self, *arguments, run="run", **environment):
        """A learner that samples by itself, once it has written down where it is found."""
        self.log = open(self.path("log"), "a+")
        self.addCleanup(self.log.close)
        learner = subprocess.Popen([self.program, "learner", *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self.log,
                                   stderr=subprocess.STDOUT, env={**os.environ, **environment})
        self.addCleanup(learner.wait)
        self.addCleanup(learner.kill)

        def there():
            self.assertIsNone(learner.poll(), self.log_text())
            return bool(self.address_lines(run))
        self.await_true(there, "the learner's address")
        return learner

    def start_new(self, *arguments):
        return self.start_learner(self.write("run.yaml", CONFIG), "--name", "run", *arguments)

    def address_lines(self, run="run"):
        path = self.path("runs", run, "address")
        if not os.path.exists(path):
            return []
        with open(path) as file:
            return file.read().splitlines()

    def stop(self, learner):
        learner.send_signal(signal.SIGTERM)
        self.assertEqual(learner.wait(timeout=30), 0, self.log_text())

    def mode(self, *parts):
        return stat.S_IMODE(os.stat(self.path(*parts)).st_mode)

    def listed(self, target):
        return json.loads(self.troupe("policy", "ls", target, "--json").stdout.splitlines()[-1])

    def refused(self, *arguments, saying):
        done = self.troupe(*arguments, ok=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        for words in saying:
            self.assertIn(words, done.stderr)
        return done.stderr

    def test_a_learner_without_an_address_has_its_control_socket(self):
        learner = self.start_new()
        self.assertEqual(self.address_lines(), ["control control/control.sock", f"host {socket.gethostname()}"])
        self.assertEqual(self.mode("runs", "run", "control"), 0o700)
        self.assertEqual(self.mode("runs", "run", "control", "control.sock"), 0o600)
        self.assertEqual(self.status("run")["run_name"], "run")
        self.assertEqual([each["state"] for each in json.loads(self.troupe("runs", "ls", "--json").stdout)], ["running"])
        self.troupe("policy", "freeze", "run", "main")
        self.assertFalse(self.listed("run")["policies"][0]["trains"])
        self.stop(learner)
        for left in ("address", "control"):
            self.assertFalse(os.path.exists(self.path("runs", "run", left)), left)
        self.refused("policy", "thaw", "run", "main", saying=["nobody trains", "--resume"])

    def test_a_stopped_run_tells_of_its_policies_from_its_checkpoint(self):
        learner = self.start_new()
        self.troupe("policy", "copy", "run", "main", "later", "--frozen")
        self.troupe("mapping", "set", "run", '{"*": {main: 3, later: 1}}')
        asked = [["policy", "ls"], ["mapping", "show"]]
        told = [json.loads(self.troupe(*command, "run", "--json").stdout) for command in asked]
        self.assertIn("later", [policy["id"] for policy in told[0]["policies"]])
        self.stop(learner)
        for command, before in zip(asked, told):
            for run in ("run", self.path("runs", "run")):
                self.assertEqual(json.loads(self.troupe(*command, run, "--json").stdout), before)
            said = self.troupe(*command, "run").stdout
            self.assertIn("nobody trains the run now; as of runs/run/checkpoints/", said)
            self.assertIn("later", said)

    def test_a_checkpoint_by_command(self):
        learner = self.start_new("--set", "experiment.checkpoint_interval=100000000")
        path = self.troupe("checkpoint", "save", "run").stdout.rstrip("\n")
        self.assertTrue(os.path.exists(self.path(path, "manifest.json")), path)
        self.troupe("checkpoint", "verify", path)
        saved = json.loads(self.troupe("checkpoint", "save", self.path("runs", "run"), "--json").stdout)
        self.assertEqual(os.path.basename(saved["path"]), str(saved["env_steps"]))
        os.mkdir(self.path("backup"))
        there = json.loads(self.troupe("checkpoint", "save", "run", "--to", "backup/a", "--json").stdout)
        self.assertEqual(there["path"], self.path("backup", "a"))
        self.troupe("checkpoint", "verify", "backup/a")
        self.assertFalse(os.path.exists(self.path("runs", "run", "checkpoints", str(there["env_steps"]))))
        self.troupe("checkpoint", "save", "run", "--to", "backup/a")  # a checkpoint may be replaced
        self.write("backup/mine", "mine")
        self.refused("checkpoint", "save", "run", "--to", "backup/mine", saying=["is there and is no checkpoint"])
        self.refused("checkpoint", "save", "run", "--to", "backup/no/folder", saying=["is not there"])
        self.refused("checkpoint", "save", "run", "--to", "runs/run/mine", saying=["lies in a run"])
        self.assertEqual(json.loads(self.troupe("checkpoint", "prune", "run", "--keep", "1", "--json").stdout)["removed"], 1)
        self.troupe("checkpoint", "save", "run")
        self.refused("checkpoint", "save", "127.0.0.1:7", saying=["troupe checkpoint save changes a run through the control socket"])
        self.stop(learner)
        self.refused("checkpoint", "save", "run", saying=["nobody trains", "--resume"])
        self.assertGreater(json.loads(self.troupe("checkpoint", "prune", "run", "--keep", "1", "--json").stdout)["removed"], 0)
        self.assertEqual(len(json.loads(self.troupe("checkpoint", "ls", "run", "--json").stdout)), 1)

    def test_a_run_is_stopped_by_command(self):
        learner = self.start_new("--set", "experiment.checkpoint_interval=100000000")
        self.refused("stop", "127.0.0.1:7", saying=["troupe stop changes a run through the control socket"])
        said = self.troupe("stop", "run").stdout
        env_steps = self.summary("run")["env_steps"]  # it has stopped by then
        self.assertEqual(said, f"the run has stopped; its newest checkpoint is of {env_steps:,} env steps, from which `troupe train --resume` goes on\n")
        self.assertEqual(learner.wait(60), 0)
        self.assertTrue(os.path.exists(self.path("runs", "run", "checkpoints", str(env_steps), "manifest.json")))
        self.refused("stop", "run", saying=["nobody trains", "--resume"])

    def test_an_address_shows_and_changes_nothing(self):
        learner = self.start_new("--listen", "127.0.0.1:0")
        address = self.address_lines()[0]
        self.assertRegex(address, r"^127\.0\.0\.1:[1-9][0-9]*$")
        self.assertEqual(self.status(address)["run_name"], "run")
        self.assertEqual(self.status(address)["workers"][0]["name"] if self.status(address)["workers"] else "", "")
        by_address, by_run = self.listed(address), self.listed("run")
        self.assertEqual([policy["class"] for policy in by_address["policies"]], ["trained", "scripted"])
        self.assertEqual([policy["class"] for policy in by_run["policies"]], ["trained", "scripted:always_same"])
        self.assertIn("observation_space", by_run["policies"][0])
        self.assertNotIn("model", by_address["policies"][0])
        for key in ("revision", "agents", "mapping"):
            self.assertEqual(by_address[key], by_run[key], key)
        self.assertEqual(self.troupe("mapping", "show", address, "--json").stdout, self.troupe("mapping", "show", "run", "--json").stdout)
        self.assertEqual(self.troupe("mapping", "show", address).stdout, self.troupe("mapping", "show", "run").stdout)
        self.assertIn("plays", self.troupe("policy", "ls", address).stdout)

        for command in (["policy", "freeze", address, "main"], ["policy", "add", address, "new", "--class", "python:pickle:loads"],
                        ["mapping", "set", address, "{'*': main}"]):
            name = " ".join(command[:2])
            self.refused(*command, saying=["control socket", "give the run's folder or name", f"docker-compose exec learner troupe {name} RUN",
                                           f"on its machine:        troupe {name} RUN"])
        self.refused("policy", "freeze", "10.0.0.7:50051", "main", saying=["ssh 10.0.0.7 troupe policy freeze RUN"])
        self.assertEqual(self.listed("run"), by_run)
        self.stop(learner)

    def test_the_proxy_of_the_environment_is_ignored_unless_asked_for(self):
        # Docker writes http_proxy into every container, and gRPC sent even loopback through it: a worker never reached its learner.
        nobody = {"http_proxy": "http://127.0.0.1:9", "grpc_proxy": "http://127.0.0.1:9", "no_proxy": "", "no_grpc_proxy": ""}
        environment = {**os.environ, **nobody}
        learner = self.start_learner(self.write("run.yaml", CONFIG), "--name", "run", "--set", "num_workers=1", "--listen", "127.0.0.1:0", **nobody)
        address = self.address_lines()[0]
        done = self.troupe("worker", "--learner", address, "--use-http-proxy", "--connect-timeout", "1", ok=False, env=environment)
        self.assertEqual(done.returncode, 1, "nobody is at the proxy's port")
        worker = subprocess.Popen([self.program, "worker", "--learner", address], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self.log,
                                  stderr=subprocess.STDOUT, env=environment)
        self.addCleanup(worker.wait)
        self.addCleanup(worker.kill)
        self.await_env_steps(200, learner)
        self.troupe("status", address, env=environment)
        self.troupe("policy", "ls", address, env=environment)
        ask = ("query", address, "--policy", "main", "--obs", "[0, 0, 0, 0]", "--agent-slot", "0")
        self.troupe(*ask, env=environment)
        for command in (ask, ("status", address), ("policy", "ls", address)):
            done = self.troupe(*command, "--use-http-proxy", ok=False, env=environment)
            self.assertIn("127.0.0.1:9", done.stderr)
        self.stop(learner)

    def test_a_killed_learners_socket_is_in_nobodys_way(self):
        learner = self.start_new()
        self.await_true(lambda: os.path.exists(self.path("runs", "run", "checkpoints", "latest")), "a checkpoint")
        learner.kill()
        learner.wait()
        self.assertTrue(os.path.exists(self.path("runs", "run", "control", "control.sock")))
        self.assertFalse(self.status("run")["running"])
        self.refused("policy", "freeze", "run", "main", saying=["nobody trains"])
        os.remove(self.path("runs", "run", "address"))
        learner = self.start_learner("--resume", "run")
        self.troupe("policy", "freeze", "run", "main")
        self.stop(learner)

    def test_a_run_whose_learner_is_elsewhere(self):
        learner = self.start_new()
        self.await_env_steps(200, learner)
        self.stop(learner)
        self.write("runs/run/address", "0.0.0.0:50051\ncontrol control/control.sock\nhost box.example\n")
        self.refused("policy", "freeze", "run", "main", saying=["box.example", "ssh box.example troupe policy freeze run …",
                                                               "docker-compose exec learner troupe policy freeze run … --directory /runs"])
        self.refused("mapping", "set", "run", "{'*': main}", saying=["ssh box.example troupe mapping set run"])
        self.refused("policy", "ls", "run", saying=["box.example"])
        self.assertIsNone(self.status("run")["running"])
        self.assertIn("started on box.example", self.troupe("status", "run").stdout)
        self.assertIn("elsewhere (on box.example)", self.troupe("runs", "show", "run").stdout)
        # A learner here may listen at the port that the other one has there: it is not asked instead.
        other = self.start_learner(self.path("run.yaml"), "--name", "other", "--listen", "127.0.0.1:0", run="other")
        self.write("runs/run/address", f"{self.address_lines('other')[0]}\ncontrol control/control.sock\nhost box.example\n")
        self.assertIsNone(self.status("run")["running"])
        self.stop(other)

    def test_a_long_path_and_a_folder_that_cannot_hold_a_socket(self):
        deep = os.path.join(*["d" * 100] * 3)
        learner = self.start_learner(self.write("run.yaml", CONFIG), "--name", "run", "--set", f"experiment.directory=runs/{deep}",
                                     run=f"{deep}/run")
        self.assertIn("control control/control.sock", self.address_lines(f"{deep}/run"))
        self.troupe("policy", "freeze", f"runs/{deep}/run", "main")
        self.stop(learner)

        # A file in its place stands for a file system without sockets.
        self.write(f"runs/{deep}/run/control", "in the way")
        os.mkdir(self.path("runtime"), 0o700)
        learner = self.start_learner("--resume", f"runs/{deep}/run", run=f"{deep}/run", XDG_RUNTIME_DIR=self.path("runtime"))
        place = next(line for line in self.address_lines(f"{deep}/run") if line.startswith("control ")).split(" ", 1)[1]
        self.assertTrue(place.startswith(self.path("runtime") + "/troupe-"), place)
        self.troupe("policy", "thaw", f"runs/{deep}/run", "main")
        self.stop(learner)
        self.assertEqual(os.listdir(self.path("runtime")), [])


if __name__ == "__main__":
    harness.main()
