"""Runs of the Python API against a program that trains nothing (fake_troupe.py): what it is told, how its end is told, and that it ends with us."""

import contextlib
import fcntl
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
FAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_troupe.py")
sys.path.insert(0, PACKAGE)

import troupe  # noqa: E402
from troupe import launch, program  # noqa: E402
from troupe.run import _check_unwrapped  # noqa: E402


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class ProgramTestCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="troupe_run_")
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        self.variables = {"TROUPE_PROGRAM": FAKE, "FAKE_TROUPE_LOG": os.path.join(self.folder, "notes"), "PYTHONPATH": os.path.abspath(PACKAGE)}
        for name, value in self.variables.items():
            self.addCleanup(os.environ.__setitem__ if name in os.environ else os.environ.pop, name, *([os.environ[name]] if name in os.environ else [None]))
            os.environ[name] = value

    def notes(self, key):
        with open(self.variables["FAKE_TROUPE_LOG"]) as file:
            return [note[key] for note in map(json.loads, file) if key in note]

    def write(self, text):
        path = Path(self.folder, "written")
        path.write_text(text)
        return path

    def await_true(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def await_note(self, key):
        self.await_true(lambda: os.path.exists(self.variables["FAKE_TROUPE_LOG"]) and self.notes(key))
        return self.notes(key)[0]

    def await_pid(self):
        return self.await_note("pid")

    def interpreter(self, code, **how):
        """A program of a user, which starts a run."""
        return subprocess.Popen([sys.executable, "-B", "-c", textwrap.dedent(code)], cwd=self.folder, **how)


class RunTest(ProgramTestCase):
    def test_a_run_that_finishes(self):
        run = troupe.train({"seed": 3}, overrides={"algorithm.lr": 1e-3}, name="one", progress=False)
        self.assertEqual((str(run.path), run.state, run.summary["reason"][:5]), (os.path.join(self.folder, "runs", "one"), "finished", "stop."))
        self.assertEqual([line["env_steps"] for line in run], [100, 200, 300])
        show, train = self.notes("arguments")
        self.assertEqual((show[:2], show[3:]), (["config", "show"], ["--set", "algorithm.lr=0.001", "--json"]))
        self.assertEqual((train[0], train[2:6]), ("train", ["--set", "algorithm.lr=0.001", "--name", "one"]))
        self.assertEqual(self.notes("config"), [{"seed": 3}])
        self.assertEqual(repr(run), f"Run('{self.folder}/runs/one', finished)")
        self.assertEqual(run.config.set_arguments(), [])

    def test_without_a_name_each_has_its_own(self):
        names = {troupe.train({}, progress=False).path.name for _ in range(2)}
        self.assertEqual(len(names), 2)
        for name in names:
            self.assertRegex(name, r"^\d\d-\d\d-\d\d_\d\d-\d\d-\d\d-\d{6}_MAPPO$")

    def test_lines_come_while_it_runs_and_it_is_drained_at_the_end_of_with(self):
        with troupe.start({"fake": {"then": "run", "lines": 4}}, name="run", progress=False) as run:
            seen = []
            for line in run:
                seen.append(line["env_steps"])
                if len(seen) == 4:
                    break
            self.assertEqual((run.state, run.summary), ("running", None))
            pid = self.await_pid()
        self.assertEqual((seen, run.state, run.summary["reason"]), ([100, 200, 300, 400], "stopped", "SIGTERM"))
        self.assertFalse(is_alive(pid))
        self.assertEqual(len(list(run)), 4, "from the first on, each time")
        self.assertIs(run.wait(), run)

    def test_a_run_that_fails_says_why(self):
        with self.assertRaises(troupe.RunFailed) as caught:
            troupe.train({"fake": {"then": "fail"}}, name="bad", progress=False)
        self.assertEqual((str(caught.exception), caught.exception.code), ("an update failed: the loss is not finite\nsaved at 100", 1))
        run = troupe.start({"fake": {"then": "fail"}}, name="worse", progress=False)
        seen = []
        with self.assertRaisesRegex(troupe.RunFailed, "the loss is not finite"):
            for line in run:
                seen.append(line["env_steps"])
        self.assertEqual((seen, run.state), ([100, 200, 300], "failed"))
        with self.assertRaises(troupe.RunFailed):
            run.wait()
        with self.assertRaises(troupe.RunFailed), run:
            pass

    def test_the_run_of_before_in_the_folder_is_not_taken_for_it(self):
        troupe.train({}, name="there", progress=False)
        run = troupe.start({}, name="there", progress=False)
        seen = []
        with self.assertRaisesRegex(troupe.RunFailed, "is there"):
            for line in run:
                seen.append(line)
        self.assertEqual((seen, run.summary, run.progress()), ([], None, []))

    def test_a_configuration_that_is_none_starts_nothing(self):
        with self.assertRaises(troupe.ConfigError) as caught:
            troupe.train({"oops": 1}, name="none")
        self.assertEqual(str(caught.exception), 'unknown key "oops"; the nearest is "stop"')
        self.assertIsInstance(caught.exception, ValueError)
        self.assertEqual(len(self.notes("arguments")), 1)

    def test_a_run_that_is_deaf_is_killed(self):
        self.addCleanup(setattr, launch, "_KILL_S", launch._KILL_S)
        launch._KILL_S = 0.5
        run = troupe.start({"fake": {"then": "deaf"}}, name="deaf", progress=False)
        pid = self.await_pid()
        self.await_note("deaf")
        with self.assertRaisesRegex(TimeoutError, "still trains after 0.1 s"):
            run.wait(0.1)
        with self.assertRaisesRegex(troupe.RunFailed, "did not end in order in time, and was killed"):
            run.stop(timeout=0.2)
        self.assertFalse(is_alive(pid))
        self.assertEqual((run.state, self.notes("ignored")), ("failed", [signal.SIGTERM, signal.SIGQUIT]))

    def test_resume_goes_on_and_tells_each_env_step_once(self):
        run = troupe.train({"fake": {"lines": 2}}, name="again", progress=False)
        more = troupe.load("again").resume(overrides={"stop.env_steps": 5}, progress=False).wait()
        self.assertEqual(self.notes("arguments")[-1], ["train", "--resume", str(run.path), "--set", "stop.env_steps=5", "--log-level", "warn"])
        self.assertEqual([(line["env_steps"], line["life"]) for line in more], [(100, 1), (200, 1)])
        self.assertEqual(more.path, run.path)

    def test_a_run_with_nothing_left_to_do_is_finished(self):
        with troupe.start({"fake": {"then": "run"}}, name="idle", progress=False) as run:
            next(iter(run))
        self.assertEqual(run.state, "stopped")
        config = json.loads((run.path / "config.yaml").read_text())
        (run.path / "config.yaml").write_text(json.dumps({**config, "fake": {"then": "nothing"}}))
        self.assertEqual(run.resume(progress=False).wait().state, "finished")
        self.assertEqual(troupe.load("idle").state, "stopped", "as its summary says")

    def test_a_run_of_another_process_has_ended_when_its_learner_has(self):
        """Which takes its address away before it writes the summary."""
        run = troupe.load(troupe.train({}, name="theirs", progress=False).path)
        with open(run.path / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.assertEqual(run.state, "running")
            with self.assertRaises(TimeoutError):
                run.wait(0)
        self.assertEqual(run.wait().state, "finished")

    def test_the_interpreter_is_this_one(self):
        troupe.train({}, name="venv", progress=False)
        expected = sys.prefix if os.path.exists(os.path.join(sys.prefix, "bin", "python")) else None
        self.assertEqual(set(self.notes("venv")), {expected})

    def test_what_is_said_is_shown_where_that_is_wanted(self):
        code = "import troupe; troupe.train({'fake': {'warns': 1, 'then': '%s'}}, name='%s', progress=%s)"
        run = [sys.executable, "-B", "-c"]
        loud = subprocess.run([*run, code % ("finish", "loud", True)], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual((sorted(loud.stdout.splitlines()), loud.stderr), (["W a warning", "a line of progress"], ""))
        self.assertNotIn("--log-level", self.notes("arguments")[-1])
        # Neither a terminal nor a notebook: warnings alone, and the error once, as the exception that it is.
        quiet = subprocess.run([*run, code % ("fail", "quiet", None)], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual((quiet.stdout, quiet.stderr.splitlines()[0], quiet.stderr.count("is not finite")), ("", "W a warning", 1))
        self.assertEqual(self.notes("arguments")[-1][-2:], ["--log-level", "warn"])

    def test_an_error_is_shown_unless_it_is_the_last_word(self):
        line = "2026-11-27T04:28:50.608Z warn troupe-worker: %s\n"
        says = ["troupe-worker: error: one\nof two lines\n", line % "gone", line % "again", "troupe-worker: error: two\n"]
        code = f"import troupe; troupe.train({{'fake': {{'says': {says}, 'then': '%s'}}}}, name='%s', progress=False)"
        for then, shown in (("finish", "".join(says)), ("fail", "".join(says))):
            done = subprocess.run([sys.executable, "-B", "-c", code % (then, then)], capture_output=True, text=True, cwd=self.folder)
            self.assertEqual(done.stderr.partition("Traceback")[0], shown)
            self.assertEqual(done.stderr.count("is not finite"), then == "fail")

    def test_a_checkpoint_by_its_env_steps(self):
        run = troupe.train({}, name="kept", progress=False)
        self.assertEqual([run._checkpoint(at) for at in (200, "200", "best", "latest")], ["checkpoints/200", "checkpoints/200", "checkpoints/best", "checkpoints/latest"])
        with self.assertRaisesRegex(troupe.TroupeError, "no such checkpoint"):
            run._checkpoint("2000")

    def test_agents_of_a_wrapped_environment_are_refused(self):
        run = troupe.train({}, name="wrapped", progress=False)
        for line, words in (("frame_stack: 4", "frame_stack: got 4, expected 1"), ("grayscale: true", "grayscale: got true, expected false"),
                            ("resize: [8, 8]", r"resize: got \[8, 8\], expected none"), ("crop:", "crop: got , expected none"),
                            ("previous_action: true", "previous_action: got true"), ("previous_reward: true", "previous_reward: got true")):
            (run.path / "config.yaml").write_text(f"seed: 1\nenv:\n  name: mine\n  args:\n    a: 1\n  {line}\nmodel:\n  other: 1\n")
            with self.assertRaisesRegex(troupe.TroupeError, f"config.yaml: env.{words}"):
                run.agents()
        # Of others these names say nothing.
        _check_unwrapped(self.write("env:\n  frame_stack: 1\n  args:\n    crop: 4\nalgorithm:\n  grayscale: true\n"))

    def test_evaluation(self):
        run = troupe.train({}, name="played", progress=False)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            found = run.evaluate(3, at="best", deterministic=True, seed=7, overrides={"env.args.N": 2}, policies={"prey": "random"})
        self.assertEqual((found.mean, found.std, found.agents["agent_0"].mean, found.infos["won"].std, found.episodes, found.seed), (-2.5, 0.5, -2.5, 0.5, 3, 7))
        self.assertEqual(self.notes("arguments")[-1], ["evaluate", str(run.path), "--json", "--episodes", "3", "--checkpoint", "best", "--deterministic",
                                                       "--seed", "7", "--set", "env.args.N=2", "--policy", "prey=random"])
        self.assertEqual(said.getvalue(), "I it executes python:mine:Env\n")
        with contextlib.redirect_stderr(said):
            run.evaluate(at="live")
        self.assertIn("latest", self.notes("arguments")[-1], "nobody trains it")
        with contextlib.redirect_stderr(said):
            run.evaluate(3, video=pathlib.Path("a.gif"), video_episode=2, overwrite=True)
        self.assertEqual(self.notes("arguments")[-1][-5:], ["--video", "a.gif", "--video-episode", "2", "--overwrite"])

    def test_runs_are_what_the_command_lists(self):
        self.assertEqual(troupe.runs(pathlib.Path("elsewhere")), [{"name": "second", "state": "running"}, {"name": "first", "state": "finished"}])
        self.assertEqual(self.notes("arguments")[-1], ["runs", "ls", "--json", "--directory", "elsewhere"])

    def test_changes_are_the_commands(self):
        run = troupe.train({}, name="changed", progress=False)
        path = str(run.path)
        for change, command in ((lambda: run.add_policy("b", copy_of="a", trains=False), ["policy", "copy", path, "a", "b", "--frozen"]),
                                (lambda: run.add_policy("c", like="a", policy_class="random"),
                                 ["policy", "add", path, "c", "--like", "a", "--class", "random"]),
                                (lambda: run.remove_policy("b"), ["policy", "remove", path, "b"]),
                                (lambda: run.set_mapping({"*": {"a": 1, "b": 2}}), ["mapping", "set", path, '{"*": {"a": 1, "b": 2}}']),
                                (lambda: run.set_trainable([]), ["policy", "set-trainable", path]),
                                (lambda: run.set_policy("a", algorithm={"lr": 1e-4, "entropy_coeff": [[0, 0.1], [5, 0]]}),
                                 ["policy", "set", path, "a", "algorithm.lr=0.0001", "algorithm.entropy_coeff=[[0, 0.1], [5, 0]]"]),
                                (run.save, ["checkpoint", "save", path, "--json"])):
            change()
            self.assertEqual(self.notes("arguments")[-1], command)
        with self.assertRaisesRegex(ValueError, "got copy_of with like"):
            run.add_policy("d", copy_of="a", like="b")


class EndTest(ProgramTestCase):
    """No program outlives who started it, and each ends in order."""

    START = "import os, sys, time, troupe; run = troupe.start({'fake': {'then': 'run'}}, name='run', progress=False)\n"

    def reason(self):
        with open(os.path.join(self.folder, "runs", "run", "summary.json")) as file:
            return json.load(file)["reason"]

    def assert_drained(self, pid):
        self.await_true(lambda: not is_alive(pid))
        self.assertEqual(self.reason(), "SIGTERM")

    def test_the_end_of_the_interpreter_drains(self):
        process = self.interpreter(self.START + "next(iter(run))")
        pid = self.await_pid()
        self.assertEqual(process.wait(30), 0)
        self.assertFalse(is_alive(pid), "the interpreter waits for it")
        self.assertEqual(self.reason(), "SIGTERM")

    def test_killed_interpreters_leave_nothing(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(number):
                process = self.interpreter(self.START + "time.sleep(60)")
                pid = self.await_pid()
                process.send_signal(number)
                process.wait(30)
                self.assert_drained(pid)
                os.rename("runs", f"before-{number}")
                os.remove("notes")

    def test_a_fork_neither_keeps_a_run_alive_nor_ends_it(self):
        code = self.START + textwrap.dedent("""
            next(iter(run))
            if os.fork() == 0:
                sys.exit(0)  # its own end of the interpreter
            os.wait()
            fork = os.fork()
            if fork == 0:
                time.sleep(600)
                os._exit(0)
            print(run.state, fork, flush=True)
            os.kill(os.getpid(), 9)
        """)
        process = self.interpreter(code, stdout=subprocess.PIPE, text=True)
        pid = self.await_pid()
        state, fork = process.stdout.readline().split()
        self.addCleanup(os.kill, int(fork), signal.SIGKILL)
        process.stdout.close()
        process.wait(30)
        self.assertEqual(state, "running")
        self.assert_drained(pid)
        self.assertTrue(is_alive(int(fork)))

    def test_in_a_fork_a_run_is_another_process_and_its_files_stay(self):
        code = """
            import os, sys, troupe
            class Maze:
                pass
            with troupe.start({'fake': {'then': 'run'}}, env=Maze, name='run', progress=False) as run:
                next(iter(run))
                if os.fork() == 0:
                    sys.exit(0)  # through the end of `with`, and of the interpreter
                os.wait()
                print(run.state, os.path.exists(run._process._notebook.variables["TROUPE_NOTEBOOK"].split(":")[1]), flush=True)
            print(run.state)
        """
        process = self.interpreter(code, stdout=subprocess.PIPE, text=True)
        pid = self.await_pid()
        self.assertEqual(process.communicate(timeout=60)[0].splitlines(), ["running True", "stopped"])
        self.assert_drained(pid)

    def test_runs_are_ended_together(self):
        code = """
            import troupe
            from troupe import launch
            launch.DRAIN_S = launch._KILL_S = 0.5
            for name in "ab":
                troupe.start({'fake': {'then': 'deaf'}}, name=name, progress=False)
            input()
        """
        process = self.interpreter(code, stdin=subprocess.PIPE, text=True)
        self.await_true(lambda: os.path.exists("notes") and len(self.notes("deaf")) == 2)
        process.communicate("\n", timeout=60)
        self.assertEqual(self.notes("ignored"), [signal.SIGTERM] * 2 + [signal.SIGQUIT] * 2)
        self.assertFalse([pid for pid in self.notes("pid") if is_alive(pid)])

    def test_ctrl_c_drains_and_train_returns(self):
        code = """
            import troupe
            run = troupe.train({'fake': {'then': 'run'}}, name='run', progress=False)
            print(run.state, run.summary["reason"])
        """
        process = self.interpreter(code, stdout=subprocess.PIPE, text=True, start_new_session=True)
        pid = self.await_pid()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        self.assertEqual(process.communicate(timeout=30)[0], "stopped SIGTERM\n")
        self.assertFalse(is_alive(pid))

    def interrupt_twice(self, copy_s, drain_s):
        """What a program says whose run does not end when it is asked to, after two Ctrl-C."""
        code = f"""
            import troupe, troupe.launch
            troupe.launch._COPY_S = {copy_s}
            run = troupe.start({{'fake': {{'then': 'deaf'}}}}, name='run')
            try:
                run.wait()
            except KeyboardInterrupt:
                run.stop({drain_s})
        """
        process = self.interpreter(code, stderr=subprocess.PIPE, text=True, start_new_session=True)
        pid = self.await_pid()
        self.await_note("deaf")
        process.send_signal(signal.SIGINT)
        self.await_note("ignored")  # what the first one came to
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[1]
        self.assertFalse(is_alive(pid))
        return said

    def test_a_second_ctrl_c_ends_all_at_once(self):
        self.assertRegex(self.interrupt_twice(copy_s=0, drain_s=600), r"KeyboardInterrupt\n$")

    def test_a_copy_of_ctrl_c_changes_nothing(self):
        self.assertRegex(self.interrupt_twice(copy_s=600, drain_s=2), r"RunFailed: .* did not end in order in time, and was killed.*\n$")


class NotebookTest(ProgramTestCase):
    """With cloudpickle, which the tests' Python has."""

    CODE = """
        import troupe
        class Maze:
            pass
        run = troupe.start({'fake': {'then': 'run'}}, env=Maze, name='run', progress=False)
        next(iter(run))
        input()
        run.stop()
        input()
    """

    def test_a_class_of_main_travels_in_a_file_of_its_own_and_is_gone_with_the_run(self):
        process = self.interpreter(self.CODE, stdin=subprocess.PIPE, text=True)
        self.await_pid()
        told = self.notes("config")[0]["env"]
        self.assertEqual(told, {"name": "python:__main__:Maze (notebook)", "python": {"interpreter": sys.executable}})
        shown, trained = self.notes("notebook")
        digest, path = trained.split(":")
        self.assertFalse(os.path.exists(shown.split(":")[1]), "that of `config show`")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(os.path.dirname(path)).st_mode & 0o777, 0o700)
        # What an environment's process finds.
        code = "from troupe import notebook; print(getattr(notebook.load(), 'Maze (notebook)'))"
        host = [sys.executable, "-B", "-c", code]
        done = subprocess.run(host, env=dict(os.environ, TROUPE_NOTEBOOK=trained), capture_output=True, text=True)
        self.assertEqual(done.stdout, "<class '__main__.Maze'>\n", done.stderr)
        for variable, words in ((f"{'0' * 64}:{path}", "its SHA-256 is another one"), ("", "is only where that runs: give it again there")):
            done = subprocess.run(host, env=dict(os.environ, TROUPE_NOTEBOOK=variable), capture_output=True, text=True)
            self.assertIn(words, done.stderr)
        process.stdin.write("\n")
        process.stdin.flush()
        self.await_true(lambda: not os.path.exists(os.path.dirname(path)))
        process.communicate("\n", timeout=30)
        self.assertEqual(process.returncode, 0)
        with open("runs/run/config.yaml") as file:
            self.assertNotIn(digest, file.read())

    def test_what_cannot_be_written_leaves_nothing(self):
        code = """
            import os, tempfile, troupe
            tempfile.tempdir = os.getcwd()
            class Maze:
                pass
            opened = os.open
            def full(path, *how, **more):
                if path.endswith("classes"):
                    raise OSError(28, "No space left on device")
                return opened(path, *how, **more)
            os.open = full
            troupe.train({}, env=Maze)
        """
        process = self.interpreter(code, stderr=subprocess.PIPE, text=True)
        self.assertIn("No space left on device", process.communicate(timeout=30)[1])
        self.assertEqual([name for name in os.listdir(self.folder) if "notebook" in name], [])

    def test_without_cloudpickle_it_says_what_to_do(self):
        code = "import sys; sys.modules['cloudpickle'] = None\nimport troupe\nclass Maze: pass\ntroupe.train({}, env=Maze)"
        process = self.interpreter(code, stderr=subprocess.PIPE, text=True)
        said = process.communicate(timeout=30)[1]
        self.assertRegex(said.splitlines()[-1],
                         r"^ValueError: python:__main__:Maze \(notebook\) is of __main__.*-m pip install cloudpickle, or put it into a file")


class ProgramTest(ProgramTestCase):
    def test_where_there_is_none_one_sentence_says_so(self):
        os.environ["TROUPE_PROGRAM"] = "/no/such"
        with self.assertRaisesRegex(troupe.TroupeError, "^found no program troupe at /no/such: .*TROUPE_PROGRAM=CHECKOUT/troupe$"):
            troupe.train({})
        with self.assertRaisesRegex(troupe.TroupeError, "found no program"):
            troupe.load("none")

    def test_what_cannot_be_started_leaves_no_descriptor(self):
        before = sorted(os.listdir("/proc/self/fd"))
        for wrong in ("a\0b", "a\ud800b"):
            with self.assertRaisesRegex(ValueError, "^cannot start .* with 'stop' 'a.*b': "):
                program.spawn(["stop", wrong], None, None)
        self.assertEqual(sorted(os.listdir("/proc/self/fd")), before)

    def test_words_of_a_program_are_an_error(self):
        said = "W warning\ntroupe: error: /dev/fd/64:3:5: algorithm.lr: got -1, expected a number\n"
        self.assertEqual(program.own_words(said), "algorithm.lr: got -1, expected a number")
        log = "2026-11-27T04:28:50.608Z warn x\n"
        self.assertEqual(program.own_words(f"{log}troupe-learner: error: a\nb\n{log}"), "a\nb")
        self.assertEqual(program.own_words("Killed\n\n"), "Killed")
        self.assertEqual(program.own_words(""), "it said nothing")
        self.assertEqual(program.own_words("troupe: error: run.yaml:3:5: x"), "run.yaml:3:5: x")


if __name__ == "__main__":
    unittest.main()
