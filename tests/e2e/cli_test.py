"""The commands that need no run: help, version, config, envs, bench, and what they say when they are used wrongly."""

import fcntl
import json
import os
import re
import shutil
import subprocess

import harness

COMMANDS = ["train", "worker", "evaluate", "watch", "serve", "query", "status", "stop", "runs", "runs ls", "runs show", "runs compare", "runs plot", "policy", "policy ls", "policy add", "policy copy", "policy import",
            "policy remove", "policy set", "policy freeze", "policy thaw", "policy set-trainable", "mapping", "mapping show", "mapping set", "checkpoint", "checkpoint ls", "checkpoint save", "checkpoint verify", "export", "envs", "envs ls", "envs check",
            "envs replay", "envs bench", "config", "config show", "config defaults", "demo", "init", "doctor", "bench", "completion", "version"]


class CliTest(harness.TroupeTestCase):
    def json_of(self, *arguments):
        return json.loads(self.troupe(*arguments, "--json").stdout.splitlines()[-1])

    def fails(self, *arguments, saying, code=1):
        done = self.troupe(*arguments, ok=False)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertTrue(done.stderr.startswith("troupe: error: "), done.stderr)
        self.assertEqual(done.stdout, "")
        for words in saying:
            self.assertIn(words, done.stderr)
        return done.stderr

    def test_help_has_an_example_everywhere(self):
        self.assertIn("Example: troupe train", self.troupe("--help").stdout)
        for command in COMMANDS:
            text = self.troupe(*command.split(), "--help").stdout
            self.assertIn(f"Example: troupe {command.split()[0]}", text, command)

    def test_help_shows_the_name_that_was_typed_not_a_path(self):
        for command in ["", "learner", *COMMANDS]:
            text = self.troupe(*command.split(), "--help").stdout
            self.assertRegex(text, rf"(?m)^Usage: troupe{' ' if command else ''}{command}( |$)", command)
            self.assertNotIn(os.path.dirname(self.program), text, command)

    def test_bash_completes_commands_options_and_files(self):
        self.write("run.yaml", "")
        script = self.troupe("completion", "bash").stdout
        for words, expected in ((["po"], ["policy"]), (["policy", "fr"], ["freeze"]), (["train", "run.yaml", "--resume-o"], ["--resume-or-start"]),
                                (["policy", "copy", "--fr"], ["--frozen"]), (["train", "ru"], ["run.yaml"]), (["--vers"], ["--version"])):
            typed = " ".join(f"'{word}'" for word in ["troupe", *words])
            done = subprocess.run(["bash", "-c", f'eval "$1"; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _troupe; printf "%s\\n" "${{COMPREPLY[@]}}"', "bash", script],
                                  capture_output=True, text=True, cwd=self.folder)
            self.assertEqual((done.stdout.split(), done.stderr), (expected, ""), words)
        self.fails("completion", "tcsh", saying=["tcsh"], code=2)

    def test_wrong_use_is_an_error_with_code_2(self):
        self.fails(saying=["troupe needs a command: one of train, learner"], code=2)
        self.fails("evaluate", saying=["run"], code=2)
        self.fails("train", "x.yaml", "--workers", "many", saying=["--workers"], code=2)
        self.fails("train", "x.yaml", "--workers", "-1", saying=["--workers"], code=2)
        self.fails("evaluate", "run", "--episodes", "0", saying=["--episodes"], code=2)
        self.fails("train", saying=["needs a configuration file"], code=2)

    def test_what_is_mistyped_names_the_nearest(self):
        self.fails("tain", "x.yaml", saying=['there is no command "tain"; the nearest is "train"'], code=2)
        self.fails("rnus", "ls", saying=['there is no command "rnus"; the nearest is "runs"'], code=2)
        self.fails("fly", saying=['there is no command "fly"; expected one of train, learner, worker, evaluate'], code=2)
        self.fails("policy", "lst", "run", saying=['there is no command "policy lst"; the nearest is "policy ls"'], code=2)
        self.fails("policy", saying=["policy needs a command: one of ls, add, copy"], code=2)
        self.fails("train", "x.yaml", "--worker", "2", saying=['train has no option "--worker"; the nearest is "--workers"'], code=2)
        self.fails("train", "--worker", "2", "x.yaml", saying=['train has no option "--worker"; the nearest is "--workers"'], code=2)
        self.fails("train", "x.yaml", "--num_workers=2", saying=['train has no option "--num_workers"; the nearest is "--workers"'], code=2)
        self.fails("train", "x.yaml", "--lr", "3e-4", saying=['train has no option "--lr"; keys of the configuration are set with --set KEY=VALUE'],
                   code=2)
        self.fails("query", "there", "--polcy", "main", saying=['query has no option "--polcy"; the nearest is "--policy"'], code=2)
        self.fails("--verson", saying=['troupe has no option "--verson"; the nearest is "--version"'], code=2)
        learner = self.troupe("learner", "x.yaml", "--listn", "there", ok=False)
        self.assertEqual(learner.returncode, 2)
        self.assertIn('learner has no option "--listn"; the nearest is "--listen"', learner.stderr)
        self.fails("evaluate", "run", "another", "third", saying=['evaluate takes no argument "another"'], code=2)

    def test_an_error_is_no_command_to_the_terminal(self):
        text = self.fails("status", "no\x1b[31mrun", saying=["no\\x1b[31mrun"])
        self.assertNotIn("\x1b", text)

    def test_version(self):
        facts = r"troupe \d+\.\d+\.\d+ \((commit [0-9a-f]{7,40}( with changes)?|no commit known), [A-Za-z]+ build, [A-Za-z]+ \d[\d.]*\)\n"
        self.assertRegex(self.troupe("version").stdout, f"^{facts}$")
        self.assertEqual(self.troupe("--version").stdout, self.troupe("version").stdout)
        self.assertIn(self.troupe("version").stdout, self.troupe("learner", "--version").stdout)
        said = self.json_of("version")
        self.assertEqual(said["learner"], True)
        self.assertEqual(sorted(said), ["build_type", "commit", "compiler", "learner", "version"])

    def test_config_defaults_can_be_edited_and_shown(self):
        text = self.troupe("config", "defaults").stdout
        path = self.write("run.yaml", text.replace('name: ""', "name: cartpole"))
        shown = self.troupe("config", "show", path).stdout
        self.assertEqual(self.troupe("config", "show", self.write("again.yaml", shown)).stdout, shown)
        self.assertIn("| `algorithm.gamma` | `0.99` |", self.troupe("config", "defaults", "--markdown").stdout)

    def test_config_show_takes_overrides(self):
        shown = self.json_of("config", "show", self.example("simple_spread_mappo.yaml"), "--set", "algorithm.lr={initial: 1.0e-3, final: 0, env_steps: 9}",
                             "--set", "model.actor_hidden_sizes=[128, 32]", "--set", "env.args.N=5", "--set", "experiment.experiment_name=a, b")
        self.assertEqual(shown["algorithm"]["lr"], {"initial": 0.001, "final": 0.0, "env_steps": 9})
        self.assertEqual(shown["model"]["actor_hidden_sizes"], [128, 32])
        self.assertEqual(shown["env"]["args"]["N"], 5)
        self.assertEqual(shown["experiment"]["experiment_name"], "a, b")
        self.assertEqual(shown["algorithm"]["minibatch_size"], 1000)
        self.assertEqual(shown["multi_agent"]["policy_mapping"], {"*": "shared"})

    def test_config_errors(self):
        typo = self.write("typo.yaml", "env: {name: cartpole}\nalgorithm:\n  gama: 0.9\n")
        self.assertEqual(self.fails("config", "show", typo, saying=[], code=78),
                         f'troupe: error: {typo}:3:3: unknown key "algorithm.gama"; the nearest is "algorithm.gamma"\n')
        foreign = self.write("foreign.yaml", "env: {name: cartpole}\nnum_env_runners: 4\n")
        self.fails("config", "show", foreign, saying=[":2:1:", "RLlib", '"num_workers"'], code=78)
        self.fails("config", "show", self.path("missing.yaml"), saying=["missing.yaml: cannot be read: No such file or directory"], code=78)
        self.fails("config", "show", self.write("none.yaml", "# nothing\n"), saying=["none.yaml: is empty"], code=78)
        self.fails("config", "show", self.example("cartpole_ippo.yaml"), "--set", "env.args.num_agents=0",
                   saying=["--set env.args.num_agents=0: env.args.num_agents: ", "expected an integer in [1, 1024]"], code=78)
        self.fails("config", "show", self.example("cartpole_ippo.yaml"), "--set", "env.name=cartpol",
                   saying=["there is no environment 'cartpol', expected one that `troupe envs ls` shows", "did you mean 'cartpole'?"], code=78)

    def test_envs_ls_and_check(self):
        names = [entry["name"] for entry in self.json_of("envs", "ls")]
        self.assertIn("mpe/simple_spread", names)
        self.assertIn("cartpole", names)
        self.assertEqual(self.troupe("envs", "ls").stdout.split()[0], names[0])
        for name in names:
            if name == "testing/faulty":
                continue
            report = self.json_of("envs", "check", name, "--episodes", "2")
            self.assertTrue(report["ok"], report)
            self.assertGreater(len(report["rules"]), 5)
        broken = self.troupe("envs", "check", "testing/faulty", "--arg", "fault=nan_obs", "--json", ok=False)
        self.assertNotEqual(broken.returncode, 0)
        self.fails("envs", "check", "mpe/simple_spraed", saying=["did you mean 'mpe/simple_spread'?"])
        self.fails("envs", "check", "mpe/simple_spread", "--arg", "n=3", saying=["did you mean 'N'?"])
        self.fails("envs", "check", "mpe/simple_spread", "--arg", "N=0", saying=["argument N is 0"])

    def test_envs_check_tells_as_it_goes_and_goes_on_where_asked(self):
        def check(*arguments):
            done = self.troupe("envs", "check", "testing/faulty", "--arg", "fault=nan_obs", *arguments, ok=False)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stdout.splitlines()[0], r"^broken: observation_value: environment testing/faulty .* is nan")
            self.assertRegex(done.stdout, r"\nuntried +episode_end ")
            self.assertRegex(done.stdout, r"\npartly +reward ")
            self.assertNotRegex(done.stdout, r"(?m)^ok ", "no rule was tried to the end")
            return int(re.search(r"(\d+) agent steps", done.stdout)[1])
        at_once = check()
        self.assertGreaterEqual(check("--keep-going"), 8 * at_once, "a broken rule ends its episode alone")

    def test_envs_replay(self):
        trace = os.path.join(self.source, "tests", "conformance", "traces", "simple_spread_options.jsonl")
        for report in self.json_of("envs", "replay", trace):
            self.assertTrue(report["ok"])
            self.assertLessEqual(max(report["max_obs_diff"], report["max_reward_diff"]), 1e-5)
        self.assertIn("largest difference", self.troupe("envs", "replay", trace).stdout)
        with open(trace) as file:
            episode = json.loads(file.readline())
        episode["steps"][3]["obs"]["agent_1"][0] += 1e-3
        altered = json.dumps(episode)
        done = self.troupe("envs", "replay", self.write("altered.jsonl", altered + "\n"), ok=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAIL", done.stdout)
        self.fails("envs", "replay", self.write("junk.jsonl", "{}\n"), saying=["junk.jsonl:1: "])
        self.fails("envs", "replay", self.write("none.jsonl", ""), saying=["is empty"])
        self.fails("envs", "replay", self.path("missing.jsonl"), saying=["cannot be read"])

    def test_envs_bench(self):
        result = self.json_of("envs", "bench", "mpe/simple_spread", "--env-steps", "20000", "--num-envs", "16")
        self.assertGreaterEqual(result["env_steps"], 20000)
        self.assertEqual(result["agent_steps"], 3 * result["env_steps"])
        self.assertEqual(result["episode_length"]["mean"], 25)
        self.assertLess(result["return_sum"]["mean"], -50)
        self.assertGreater(result["env_steps_per_s"], 0)

    def test_runs_lie_where_directory_says_and_are_found_there_by_name(self):
        config = self.example("cartpole_ippo.yaml")
        short = ["--workers", "0", "--set", "stop.env_steps=2000", "--set", "evaluation.at_end=false"]
        self.troupe("train", config, "--name", "run", "--directory", "my runs/deep", *short)
        self.assertTrue(os.path.exists(self.path("my runs", "deep", "run", "summary.json")))
        self.assertIn("checkpoints", self.troupe("checkpoint", "ls", "run", "--directory", "my runs/deep").stdout)
        self.assertIn("not running", self.troupe("status", "run", "--directory", "my runs/deep").stdout)
        for program, env_steps in (("train", 6000), ("learner", 10000)):
            self.troupe(program, "--resume", "run", "--directory", "my runs/deep", "--set", f"stop.env_steps={env_steps}", "--workers", "0")
        for command in (["evaluate", "run", "--episodes", "1"], ["query", "run"], ["policy", "ls", "run"], ["mapping", "show", "run"],
                        ["checkpoint", "verify", "run"]):
            self.assertNotEqual(self.troupe(*command, "--directory", "my runs/deep").stdout, "", command)
        self.assertIn("checkpoints", self.troupe("mapping", "set", "run", "{'*': default_policy}", "--directory", "my runs/deep").stdout)
        for command in (["policy", "freeze", "run", "default_policy"], ["checkpoint", "save", "run"]):
            self.fails(*command, "--directory", "my runs/deep", saying=["nobody trains the run"])
        self.assertFalse(os.path.exists(self.path("runs")))
        missing = self.fails("train", "--resume", "run", saying=['--resume: there is no run in "run" nor in "runs/run"'], code=78)
        self.assertNotIn("//", missing)

    def test_keys_without_effect_are_refused_and_those_of_an_older_run_are_warnings(self):
        config = self.write("run.yaml", "env: {name: cartpole}\nalgorithm: {name: ippo}\nnum_workers: 0\nstop: {env_steps: 4000}\n"
                                        "evaluation: {at_end: false}\n")
        for command in (["train"], ["config", "show"]):
            error = self.fails(*command, config, "--set", "model.core_size=32",
                               saying=["--set model.core_size=32: model.core_size: got 32, which has no effect"], code=78)
            self.assertEqual(error.count("has no effect"), 1)
        self.assertFalse(os.path.exists(self.path("runs")))
        self.troupe("train", config, "--name", "run: 1")  # a name is no YAML
        # An older version took it: the run goes on.
        stored = self.path("runs", "run: 1", "config.yaml")
        with open(stored) as file:
            text = file.read()
        self.assertIn("core_size: 64\n", text)
        with open(stored, "w") as file:
            file.write(text.replace("core_size: 64\n", "core_size: 32\n"))
        resumed = self.troupe("train", "--resume", "run: 1", "--set", "stop.env_steps=8000")
        self.assertIn("model.core_size: got 32, which has no effect", resumed.stderr + resumed.stdout)
        self.troupe("evaluate", "run: 1", "--episodes", "1")
        self.troupe("config", "show", "runs/run: 1")
        # What is written now counts.
        for program, *command in (("troupe-learner", "train", "--resume", "run: 1"), ("troupe", "evaluate", "run: 1")):
            refused = self.troupe(*command, "--set", "env.python.processes=2", ok=False)
            self.assertIn(f"{program}: error: --set env.python.processes=2: env.python.processes: got 2, which has no effect", refused.stderr)
            self.assertEqual(refused.returncode, 78)

    def test_a_broken_configuration_ends_every_command_alike(self):
        broken = self.write("broken.yaml", "env: {name: cartpole}\ngama: 0.9\n")
        unknown = ["broken.yaml:2:1: unknown key \"gama\""]
        for command in (["train"], ["config", "show"], ["worker", "--learner", "unix:nobody", "--config"]):
            self.fails(*command, broken, saying=unknown, code=78)
            self.fails(*command, "nosuch.yaml", saying=["nosuch.yaml: cannot be read"], code=78)
        self.troupe("train", self.example("cartpole_ippo.yaml"), "--name", "run", "--set", "stop.env_steps=4000", "--set", "evaluation.at_end=false")
        self.fails("evaluate", "run", "--set", "algorithm.lr=1", saying=["an evaluation may change env"], code=78)
        with open(self.path("runs", "run", "config.yaml"), "a") as file:
            file.write("gama: 0.9\n")
        for command in (["evaluate"], ["watch"], ["checkpoint", "prune"], ["train", "--resume"]):
            self.fails(*command, "run", saying=["unknown key \"gama\""], code=78)
        self.fails("config", "show", "runs/run", saying=["unknown key \"gama\""], code=78)

    def test_a_whole_path_is_no_name_inside_the_runs(self):
        nobody = self.path("nobody")
        for command in (["status"], ["evaluate"], ["checkpoint", "ls"], ["policy", "ls"]):
            self.fails(*command, nobody, saying=[f'there is no run in "{nobody}" (a run has a config.yaml)'])
        learner = self.troupe("learner", "--resume", nobody, "--workers", "0", ok=False)
        self.assertIn(f'--resume: there is no run in "{nobody}" (a run has a config.yaml)', learner.stderr)

    def test_a_url_is_no_folder(self):
        refusal = ", expected a folder of this machine"
        config = self.example("cartpole_ippo.yaml")
        self.fails("train", config, "--set", "experiment.directory=s3://bucket/runs", saying=['experiment.directory: got the URL "s3://bucket/runs"', refusal],
                   code=78)
        self.fails("train", config, "--directory", "gs://bucket", saying=["experiment.directory", refusal], code=78)
        self.fails("train", config, "--set", "multi_agent.policy_map_cache=s3://b", saying=["multi_agent.policy_map_cache", refusal], code=78)
        warm = self.troupe("train", config, "--workers", "0", "--warm-start", "s3://bucket/run", ok=False)
        self.assertEqual((warm.returncode, warm.stderr), (78, 'troupe-learner: error: --warm-start s3://bucket/run: got the URL "s3://bucket/run"' + refusal +
                                                          "; mount the storage, or copy what is there\n"))
        self.fails("train", "--resume", "s3://bucket/run", saying=["--resume: got the URL", refusal], code=78)
        for command in (["evaluate"], ["status"], ["checkpoint", "ls"], ["checkpoint", "verify"], ["policy", "ls"], ["serve", "--listen", "127.0.0.1:0"]):
            self.fails(*command, "s3://bucket/run", saying=['got the URL "s3://bucket/run"', refusal])
            self.fails(*command, "run", "--directory", "s3://bucket", saying=['got the URL "s3://bucket"', refusal])
        self.assertEqual(os.listdir(self.folder), [])

    def test_runs_and_learners_that_are_not_there(self):
        self.fails("evaluate", "nobody", saying=['there is no run in "nobody" nor in "runs/nobody"'])
        self.fails("checkpoint", "ls", "nobody", saying=["there is no run"])
        self.fails("status", "nobody", saying=["there is no run"])
        self.fails("status", saying=["needs an address"])
        self.fails("status", f"unix:{self.path('nobody.sock')}", "--timeout", "1", saying=["nobody.sock"])
        self.fails("status", "10.0.0.1:1", saying=["--insecure-plaintext-network"])
        self.fails("bench", "nothing_like_it", saying=[])


class ScriptTest(harness.TroupeTestCase):
    """`./troupe`, the script, beside no program, and beside one that only says how it was called."""

    def setUp(self):
        super().setUp()
        shutil.copy(os.path.join(self.source, "troupe"), self.folder)
        os.mkdir(self.path("cmake"))
        for name in ("libtorch.pin", "packaging.sh"):
            shutil.copy(os.path.join(self.source, "cmake", name), self.path("cmake"))

    def help_of(self, *words):
        """What the script says; somebody else builds all the while."""
        os.makedirs(self.path("build"), exist_ok=True)
        with open(self.path("build", ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = subprocess.run([self.path("troupe"), *words], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL,
                                  env=dict(os.environ, TROUPE_NO_INSTALL="1", TROUPE_CACHE=self.path("cache")))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def test_asking_for_help_neither_builds_nor_waits_for_who_does(self):
        for words in (["bench", "--help"], ["train", "-h"], ["policy", "ls", "--help"]):
            said = self.help_of(*words)
            self.assertIn(f"`./troupe {words[0]}` without --help builds it first", said)
            self.assertIn("./troupe setup", said)
        done = subprocess.run([self.path("troupe"), "train"], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL,
                              env=dict(os.environ, TROUPE_NO_INSTALL="1", TROUPE_CACHE="s3://bucket/cache"))
        self.assertEqual((done.returncode, done.stderr), (1, "troupe: error: TROUPE_CACHE='s3://bucket/cache' is a URL; expected a folder of this machine\n"))
        for command in ("setup", "build", "test", "bundle", "lint", "format"):
            self.assertIn(f"./troupe {command}", self.help_of(command, "--help"))
        os.makedirs(self.path("build", "release", "services", "cli"))
        program = self.write("build/release/services/cli/troupe", "#!/bin/sh\necho \"asked $*\"\n")
        os.chmod(program, 0o755)
        self.assertEqual(self.help_of("bench", "--help"), "asked bench --help\n")
        self.assertEqual(self.help_of("policy", "ls", "-h"), "asked policy ls -h\n")
        self.assertEqual(self.help_of("help", "train"), "asked train --help\n")

    def test_a_wait_for_who_builds_names_it_and_ends(self):
        os.mkdir(self.path("bin"))
        # As flock, which is told how long to wait and gives up.
        os.chmod(self.write("bin/flock", f"""#!/bin/sh\nprintf '%s\\n' "$*" >> {self.path('asked')}\nexit 1\n"""), 0o755)
        os.mkdir(self.path("build"))
        self.write("build/.lock", "4711 ./troupe build --preset asan\n")
        environment = dict(os.environ, TROUPE_NO_INSTALL="1", TROUPE_CACHE=self.path("cache"), PATH=f"{self.path('bin')}:{os.environ['PATH']}")
        done = subprocess.run([self.path("troupe"), "train"], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL, env=environment)
        self.assertEqual((done.returncode, done.stderr), (1,
            "troupe: waiting up to 30 minutes for another ./troupe that is building: process 4711 (./troupe build --preset asan)\n"
            "troupe: error: another ./troupe still builds after 30 minutes: process 4711 (./troupe build --preset asan); wait for it, or end it\n"))
        with open(self.path("asked")) as asked:
            self.assertEqual(asked.read(), "-n 9\n-w 1800 9\n")

    def test_who_builds_says_so_in_the_lock(self):
        done = subprocess.Popen([self.path("troupe"), "build", "--preset", "none_such"], stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                                env=dict(os.environ, TROUPE_NO_INSTALL="1", TROUPE_CACHE=self.path("cache")))
        self.assertEqual(done.wait(20), 1)
        with open(self.path("build", ".lock")) as lock:
            self.assertEqual(lock.read(), f"{done.pid} ./troupe build --preset none_such\n")

    def test_the_site_waits_for_nobody_who_builds(self):
        os.makedirs(self.path("build"))
        python = self.write("python", "#!/bin/sh\nexit 0\n")
        os.chmod(python, 0o755)
        with open(self.path("build", ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = subprocess.run([self.path("troupe"), "docs"], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL,
                                  env=dict(os.environ, TROUPE_TEST_PYTHON=python, TROUPE_CACHE=self.path("cache")))
        self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", self.path("build", "site", "index.html") + "\n"))


if __name__ == "__main__":
    harness.main()
