"""Another's run folder is data: what imports, serves or lists it runs nothing of it, reads no configuration of it, waits for no file of it, and
prints nothing that stands in its files."""

import json
import os
import shutil
import subprocess
import sys
import time

import harness

CONFIG = """
env: {name: cartpole, args: {num_agents: 2}}
num_workers: 0
num_envs_per_worker: 4
multi_agent: {policies: [main, other], policy_mapping: {agent_0: main, "*": other}}
algorithm: {name: ippo, train_batch_size: 64, minibatch_size: 64, num_epochs: 1}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
stop: {env_steps: 1000000000}
experiment: {write_interval: 64, checkpoint_interval: 0}
evaluation: {at_end: false}
"""
OBS = "[0, 0, 0, 0]"
CANARY = "root:x:0:0:canary"
MOST_BYTES = 64 << 20  # that a reader may grow by

PLUGIN = """
#include <stdio.h>
__attribute__((constructor)) static void mark(void) { fclose(fopen("%s", "w")); }
"""


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


def sign(text):
    """A manifest's text with its own checksum, as Troupe writes it."""
    key = '"manifest_crc32c": "'
    at = text.index(key) + len(key)
    text = text[:at] + "0" * 8 + text[at + 8:]
    return text[:at] + f"{crc32c(text.encode()):08x}" + text[at + 8:]


class DataTest(harness.RunningTestCase):
    def setUp(self):
        super().setUp()
        self.config = self.write("mine.yaml", CONFIG)
        self.troupe("train", self.config, "--name", "made", "--set", "stop.env_steps=64")
        self.marker = self.path("marker")

    def copy(self, name):
        """A run of somebody else; its folder and its only checkpoint."""
        run = self.path("foreign", name)
        shutil.copytree(self.path("runs", "made"), run, symlinks=True)
        return run, os.path.join(run, "checkpoints", "64")

    def replace(self, path, put):
        os.remove(path)
        put(path)

    def odd_files(self):
        """name -> what puts it at a path: all that is no regular file of a sensible size."""
        self.write("secret", CANARY + "\n")

        def oversized(path):
            with open(path, "wb") as file:
                file.truncate(40 << 30)
        return {
            "fifo": os.mkfifo,
            "zero": lambda path: os.symlink("/dev/zero", path),
            "tty": lambda path: os.symlink("/dev/tty", path),
            "directory": os.mkdir,
            "secret": lambda path: os.symlink(self.path("secret"), path),
            "text": lambda path: shutil.copy(self.path("secret"), path),
            "oversized": oversized,
        }

    def programs(self):
        """name -> a configuration whose environment leaves the marker when it is made."""
        script = self.write("python", f"#!/bin/sh\ntouch {self.marker}\nexit 1\n")
        os.chmod(script, 0o755)
        self.write("plugin.c", PLUGIN % self.marker)
        subprocess.run(["cc", "-shared", "-fPIC", "plugin.c", "-o", "plugin.so"], cwd=self.folder, check=True)
        with open(self.path("runs", "made", "config.yaml")) as file:
            text = file.read()
        self.assertEqual(text.count('\n  name: cartpole\n'), 1, text)
        return {
            "interpreter": text.replace("\n  name: cartpole\n", "\n  name: 'python:math:sqrt'\n").replace(
                "\n    interpreter: ", f"\n    interpreter: {script} #"),
            "plugin": text.replace("\n  name: cartpole\n", "\n  name: mine\n").replace(
                '\n  plugin: ""\n', f"\n  plugin: {self.path('plugin.so')}\n"),
        }

    def note_config(self, checkpoint, text):
        """The manifest says of config.yaml what is true."""
        path = os.path.join(checkpoint, "manifest.json")
        with open(path) as file:
            manifest = json.load(file)
        entry, = [entry for entry in manifest["files"] if entry["name"] == "config.yaml"]
        entry.update(bytes=len(text.encode()), crc32c=f"{crc32c(text.encode()):08x}")
        with open(path, "w") as file:
            file.write(sign(json.dumps(manifest, indent=1)))

    def bounded(self, *arguments, timeout=30):
        """`troupe ARGUMENTS` within its time and memory, not printing what no file shall be asked for."""
        begin = time.monotonic()
        process = subprocess.Popen([self.program, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.fail(f"troupe {' '.join(arguments)} was still there after {time.monotonic() - begin:.0f} s")
        self.assertNotIn("canary", output)
        return process.returncode, output

    def start_mine(self):
        process = self.start(self.config, "--name", "run")
        self.await_env_steps(64, process)
        return process

    def assert_trains_on(self, process):
        self.await_env_steps(self.env_steps() + 256, process)

    def resident_bytes(self, pid, what="VmRSS"):
        with open(f"/proc/{pid}/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(what + ":"))

    def serve(self, *arguments, obs=OBS):
        """`troupe serve ARGUMENTS`: its answer, or what it said instead."""
        address = f"unix:{self.path('serve.sock')}"
        with open(self.path("serve.log"), "w+") as log:
            server = subprocess.Popen([self.program, "serve", *arguments, "--listen", address], cwd=self.folder, stdin=subprocess.DEVNULL,
                                      stdout=log, stderr=log)
            try:
                deadline = time.monotonic() + 20
                while server.poll() is None:
                    done = self.troupe("query", address, "--policy", "main", "--obs", obs, ok=False)
                    if done.returncode == 0:
                        return done.stdout
                    self.assertLess(time.monotonic(), deadline, done.stderr)
                    time.sleep(0.05)
                log.seek(0)
                text = log.read()
                self.assertNotIn("canary", text)
                return text
            finally:
                server.kill()
                server.wait()

    def test_nothing_of_a_foreign_configuration_runs_or_is_read(self):
        odd = self.odd_files()
        programs = self.programs()
        puts = {name: (lambda path, text=text: self.write(path, text)) for name, text in programs.items()}
        puts.update(odd)
        process = self.start_mine()
        learner = self.learner(process)
        before = self.resident_bytes(learner)
        for name, put in puts.items():
            run, checkpoint = self.copy(name)
            for path in (run, checkpoint):
                self.replace(os.path.join(path, "config.yaml"), put)
            if name in programs:
                self.note_config(checkpoint, programs[name])
            with self.subTest(name):
                code, output = self.bounded("train", self.config, "--name", f"warm_{name}", "--warm-start", run, "--set", "stop.env_steps=64")
                self.assertEqual(code, 0, output)
                code, output = self.bounded("train", self.config, "--name", f"frozen_{name}", "--set", "stop.env_steps=64",
                                            "--set", f"multi_agent.policies.other.class=checkpoint:{run}#main")
                self.assertEqual(code, 0, output)
                code, output = self.bounded("policy", "import", "run", f"{run}#main", f"guest_{name}")
                self.assertEqual(code, 0, output)
                code, output = self.bounded("policy", "add", "run", f"old_{name}", "--class", f"checkpoint:{checkpoint}#main")
                self.assertEqual(code, 0, output)
                self.assertIn("policy main", self.serve(run))
                self.assertEqual(self.bounded("checkpoint", "ls", run)[0], 0)
                code, output = self.bounded("checkpoint", "verify", run)
                self.assertEqual(code, 0 if name in programs else 1, output)
                self.assertTrue(name in programs or "config.yaml" in output, output)
            self.assertFalse(os.path.exists(self.marker), f"{name}: a program of the foreign run was executed")
        self.assert_trains_on(process)
        self.assertLess(self.resident_bytes(learner, "VmHWM") - before, MOST_BYTES)

    def test_odd_files_in_a_checkpoint_are_refused_at_once(self):
        process = self.start_mine()
        learner = self.learner(process)
        before = self.resident_bytes(learner)
        for file in ("manifest.json", "policies.safetensors", "optimizer.safetensors"):
            for name, put in self.odd_files().items():
                if file == "optimizer.safetensors" and name not in ("fifo", "oversized"):
                    continue  # it is opened as the others
                run, checkpoint = self.copy(f"{file}_{name}")
                self.replace(os.path.join(checkpoint, file), put)
                with self.subTest(file=file, kind=name):
                    code, output = self.bounded("policy", "import", "run", f"{run}#main", "guest")
                    self.assertEqual(code, 1, output)
                    self.assertIn(file, output)
                    code, output = self.bounded("checkpoint", "verify", run)
                    self.assertEqual(code, 1, output)
                    self.assertIn(file, output)
                    if file != "optimizer.safetensors":  # which nobody needs to act
                        code, output = self.bounded("train", self.config, "--name", "warm", "--warm-start", run)
                        self.assertEqual(code, 1, output)
                        self.assertIn(file, output)
                        self.assertIn(file, self.serve(run))
        self.assert_trains_on(process)
        self.assertLess(self.resident_bytes(learner, "VmHWM") - before, MOST_BYTES)

    def test_a_forged_manifest_is_refused_in_words(self):
        process = self.start_mine()
        learner = self.learner(process)
        before = self.resident_bytes(learner)
        with open(self.path("runs", "made", "checkpoints", "64", "manifest.json")) as file:
            manifest = json.load(file)

        def forge(name, change, text=lambda text: text):
            run, checkpoint = self.copy(name)
            forged = json.loads(json.dumps(manifest))
            change(forged)
            with open(os.path.join(checkpoint, "manifest.json"), "w") as file:
                file.write(sign(text(json.dumps(forged, indent=1))))
            return run

        deep = "[" * 2000000 + "]" * 2000000
        many = "[" + "[]," * 4000000 + "[]]"
        policies = lambda forged: forged["policy_table"]["policies"]
        for name, change, text in (
                ("deep", lambda forged: forged.update(policy_table="HERE"), lambda text: text.replace('"HERE"', deep)),
                ("many", lambda forged: forged["policy_table"].update(mapping="HERE"), lambda text: text.replace('"HERE"', many)),
                ("word", lambda forged: policies(forged)[0].update({"class": CANARY}), lambda text: text),
                ("space", lambda forged: policies(forged)[0].update(observation_space=CANARY), lambda text: text),
                ("state", lambda forged: forged.update(state=CANARY), lambda text: text),
                ("wide", lambda forged: policies(forged)[0]["actor"].update(hidden_sizes=[16384] * 8), lambda text: text)):
            with self.subTest(name):
                run = forge(name, change, text)
                code, output = self.bounded("policy", "import", "run", f"{run}#main", "guest")
                self.assertEqual(code, 1, output)
                said = self.serve(run)
                self.assertNotIn("policy main", said)
                self.assertIn("error", said)
        self.assert_trains_on(process)
        self.assertLess(self.resident_bytes(learner, "VmHWM") - before, MOST_BYTES)

    def test_serving_needs_no_environment(self):
        """The package that a run was trained in is gone, and its plug-in; so are its interpreter's."""
        shutil.copy(os.path.join(self.source, "lib", "envhost", "testing", "host_test_envs.py"), self.path("hers.py"))
        name = f"python:{self.path('hers.py')}:Counter"
        config = self.write("python.yaml", CONFIG.replace("name: cartpole, args: {num_agents: 2}", f"name: '{name}'").replace("agent_0", "a"))
        interpreter = ("--set", f"env.python.interpreter={os.environ.get('TROUPE_TEST_PYTHON', sys.executable)}")
        done = self.troupe("train", config, "--name", "python", "--set", "stop.env_steps=64", *interpreter)
        shown = self.troupe("config", "show", config, *interpreter)
        self.assertNotIn("this run executes", done.stderr + shown.stderr, "it is the operator's own configuration")
        # A run folder is a program to whom it goes on for, or plays it, or looks at its environment: they say so first.
        for arguments in (("config", "show", self.path("runs", "python")), ("config", "show", self.path("runs", "python", "config.yaml")),
                          ("train", "--resume", "python", "--set", "stop.env_steps=128"), ("evaluate", "python", "--episodes", "1")):
            done = self.troupe(*arguments)
            said = [line for line in (done.stdout + done.stderr).splitlines() if "this run executes" in line]
            self.assertEqual([line.split(": ")[1] for line in said],
                             ["this run executes env.python.interpreter", "this run executes env.name"], done.stderr)
            self.assertTrue(said[1].endswith(f"this run executes env.name: {name}"), said)
        done = self.troupe("evaluate", "made", "--episodes", "1")
        self.assertNotIn("this run executes", done.stdout + done.stderr, "it is native")
        os.remove(self.path("hers.py"))
        self.assertIn("policy main", self.serve("python", obs="[0, 0, 0]"))

    def test_a_checkpoint_of_an_older_version_is_converted_once(self):
        run, checkpoint = self.copy("old")
        path = os.path.join(checkpoint, "manifest.json")
        with open(path) as file:
            manifest = json.load(file)
        table = manifest.pop("policy_table")
        with open(path, "w") as file:
            file.write(sign(json.dumps(manifest, indent=1)))
        self.assertEqual(self.bounded("checkpoint", "verify", run)[0], 0)
        said = self.serve(run)
        self.assertIn(f"troupe checkpoint convert {checkpoint}", said)
        # Whoever knows the spaces needs no table.
        code, output = self.bounded("train", self.config, "--name", "warm", "--warm-start", run, "--set", "stop.env_steps=64")
        self.assertEqual(code, 0, output)
        frozen = ("train", self.config, "--name", "frozen", "--set", f"multi_agent.policies.other.class=checkpoint:{run}#main",
                  "--set", "stop.env_steps=64")
        code, output = self.bounded(*frozen)
        self.assertEqual(code, 78, output)
        self.assertIn("troupe checkpoint convert", output)
        self.assertIn("converted", self.troupe("checkpoint", "convert", run).stdout)
        self.assertIn("as it should be", self.troupe("checkpoint", "convert", checkpoint).stdout)
        with open(path) as file:
            converted = json.load(file)
        self.assertEqual(converted["policy_table"], table)
        self.assertEqual(self.bounded("checkpoint", "verify", run)[0], 0)
        self.assertIn("policy main", self.serve(run))
        self.assertEqual(self.bounded(*frozen)[0], 0)

    def test_python_of_a_manifest_needs_the_readers_own_configuration(self):
        self.write("hers.py", f"open({self.marker!r}, 'w')\ndef act(*arguments, **more):\n    return 1\n")
        with open(self.path("runs", "made", "checkpoints", "64", "manifest.json")) as file:
            manifest = json.load(file)
        name = f"python:{self.path('hers.py')}:act"
        entry = manifest["policy_table"]["policies"][1]
        entry.update({"class": name, "trains": False})
        run, checkpoint = self.copy("python")
        with open(os.path.join(checkpoint, "manifest.json"), "w") as file:
            file.write(sign(json.dumps(manifest, indent=1)))
        said = self.serve(run)
        self.assertIn("permit", said)
        self.assertIn(name, said)
        process = self.start_mine()
        self.assertEqual(self.bounded("policy", "import", "run", f"{run}#other", "guest")[0], 1)
        # Only exactly what stands in the own configuration.
        other = self.write("other.yaml", f"multi_agent: {{policies: {{x: {{class: '{name}x'}}}}}}\n")
        self.assertIn("permit", self.serve(run, "--config", other))
        self.assertFalse(os.path.exists(self.marker))
        mine = self.write("permits.yaml", f"multi_agent: {{policies: {{x: {{class: '{name}'}}}}}}\n")
        self.assertIn("policy main", self.serve(run, "--config", mine))
        self.assert_trains_on(process)


if __name__ == "__main__":
    harness.main()
