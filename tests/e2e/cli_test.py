"""The commands that need no run: help, version, config, envs, bench, and what they say when they are used wrongly."""

import json
import os

import harness

COMMANDS = ["train", "worker", "evaluate", "serve", "query", "status", "policy", "policy ls", "policy add", "policy copy", "policy import",
            "policy remove", "policy freeze", "policy thaw", "policy set-trainable", "mapping", "mapping show", "mapping set", "checkpoint", "checkpoint ls", "checkpoint verify", "envs", "envs ls", "envs check",
            "envs replay", "envs bench", "config", "config show", "config defaults", "bench", "version"]


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
        self.assertIn("troupe-learner", self.troupe("learner", "--help").stdout)

    def test_wrong_use_is_an_error_with_code_2(self):
        self.fails(saying=["subcommand"], code=2)
        self.fails("trian", saying=[], code=2)
        self.fails("evaluate", saying=["run"], code=2)
        self.fails("train", "x.yaml", "--workers", "many", saying=["--workers"], code=2)
        self.fails("train", "x.yaml", "--workers", "-1", saying=["--workers"], code=2)
        self.fails("evaluate", "run", "--episodes", "0", saying=["--episodes"], code=2)
        self.fails("train", saying=["needs a configuration file"], code=2)

    def test_version(self):
        self.assertRegex(self.troupe("version").stdout, r"^troupe \d+\.\d+\.\d+\n$")
        self.assertEqual(self.json_of("version")["learner"], True)

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
        self.assertEqual(self.fails("config", "show", typo, saying=[]),
                         f'troupe: error: {typo}:3:3: unknown key "algorithm.gama"; the nearest is "algorithm.gamma"\n')
        foreign = self.write("foreign.yaml", "env: {name: cartpole}\nnum_env_runners: 4\n")
        self.fails("config", "show", foreign, saying=[":2:1:", "RLlib", '"num_workers"'])
        self.fails("config", "show", self.path("missing.yaml"), saying=["missing.yaml: cannot be read: No such file or directory"])
        self.fails("config", "show", self.write("none.yaml", "# nothing\n"), saying=["none.yaml: is empty"])
        self.fails("config", "show", self.example("cartpole_ippo.yaml"), "--set", "env.args.num_agents=0",
                   saying=["--set env.args.num_agents=0: env.args.num_agents: ", "expected an integer in [1, 1024]"])
        self.fails("config", "show", self.example("cartpole_ippo.yaml"), "--set", "env.name=cartpol",
                   saying=["there is no environment 'cartpol', expected one that `troupe envs ls` shows", "did you mean 'cartpole'?"])

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

    def test_runs_and_learners_that_are_not_there(self):
        self.fails("evaluate", "nobody", saying=['there is no run in "nobody" nor in "runs/nobody"'])
        self.fails("checkpoint", "ls", "nobody", saying=["there is no run"])
        self.fails("status", "nobody", saying=["there is no run"])
        self.fails("status", saying=["needs an address"])
        self.fails("status", f"unix:{self.path('nobody.sock')}", "--timeout", "1", saying=["nobody.sock"])
        self.fails("status", "10.0.0.1:1", saying=["--insecure-plaintext-network"])
        self.fails("bench", "nothing_like_it", saying=[])


if __name__ == "__main__":
    harness.main()
