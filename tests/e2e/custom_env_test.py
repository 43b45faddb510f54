"""A plug-in as a newcomer makes one: the commands of examples/custom_env/README.md, in a copy, with nothing of Troupe but its headers and program;
and one in C."""

import json
import os
import re
import shlex
import shutil
import subprocess

import harness

C_PLUGIN = """
#include "lib/env/plugin_abi.h"
#include <stdlib.h>
#include <string.h>

struct TroupeEnv { int step; };

static int32_t make(const char* name, const char* args, TroupeEnv** env, TroupeEnvError* error) {
  if (strcmp(args, "{}") != 0) {
    strcpy(error->text, "it takes no arguments");
    return TROUPE_ENV_INVALID_ARGUMENT;
  }
  (void)name;
  *env = calloc(1, sizeof(struct TroupeEnv));
  if (*env != 0) return TROUPE_ENV_OK;
  strcpy(error->text, "no memory");
  return TROUPE_ENV_INTERNAL;
}
static const char* spec(TroupeEnv* env) {
  (void)env;
  return "{\\"agents\\": [{\\"id\\": \\"solo\\", \\"observation_space\\": \\"Box(0, 3, [1])\\", \\"action_space\\": \\"Discrete(2)\\"}],"
         " \\"max_episode_steps\\": 3}";
}
static void observe(const TroupeStepWriter* out, int step) { *(float*)out->observe(out->context, 0) = (float)step; }
static int32_t reset(TroupeEnv* env, const TroupeEpisodeSeed* seed, const TroupeStepWriter* out, TroupeEnvError* error) {
  (void)seed;
  (void)error;
  env->step = 0;
  observe(out, 0);
  return TROUPE_ENV_OK;
}
static int32_t step(TroupeEnv* env, const TroupeActionWord* const* actions, const TroupeStepWriter* out, TroupeEnvError* error) {
  (void)error;
  (void)actions;
  out->add_reward(out->context, 0, 0.25f * (float)++env->step);
  observe(out, env->step);
  if (env->step == 3) out->terminate_all(out->context);
  return TROUPE_ENV_OK;
}
static void destroy(TroupeEnv* env) { free(env); }

static const TroupeEnvEntry entries[] = {{"c/solo", "an agent in C"}};
static const TroupeEnvPlugin plugin = {TROUPE_ENV_ABI_VERSION, 1, entries, make, spec, reset, step, destroy};
const TroupeEnvPlugin* troupe_env_plugin(uint32_t abi_version) { return abi_version == TROUPE_ENV_ABI_VERSION ? &plugin : 0; }
"""


class CustomEnvTest(harness.TroupeTestCase):
    def run_there(self, *command, ok=True):
        # As a newcomer's shell has it: nothing of this build but where the checkout lies.
        environment = dict(os.environ, TROUPE_ROOT=self.source)
        for variable in ("CXXFLAGS", "LDFLAGS", "CC", "CXX"):
            environment.pop(variable, None)
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL, env=environment)
        if ok:
            self.assertEqual(done.returncode, 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
        return done

    def test_the_readme_builds_checks_and_trains_it(self):
        shutil.copytree(self.example("custom_env"), self.path("examples", "custom_env"))
        with open(self.path("examples", "custom_env", "README.md")) as file:
            commands = re.search(r"```sh\n(.*?)```", file.read(), re.S)[1].strip().splitlines()
        self.assertEqual(len(commands), 4)
        outputs = [self.run_there(*[self.program if word == "./troupe" else word for word in shlex.split(command)]).stdout for command in commands]
        self.assertRegex(outputs[2], r"ok +determinism")
        self.assertNotIn("FAIL", outputs[2])

        plugin = "build/custom_env/librendezvous.so"
        bench = json.loads(self.troupe("envs", "bench", "rendezvous", "--plugin", plugin, "--env-steps", "100000", "--json").stdout)
        random_play = bench["return_sum"]["mean"]
        learned = self.summary("rendezvous")["evaluation"]["return_sum"]["mean"]
        curve = [round(line["return_sum"], 2) for line in self.progress("rendezvous") if line.get("return_sum") is not None]
        print(f"rendezvous: random play {random_play:.2f}, return while training {curve[0]} to {curve[-1]}, evaluation {learned:.2f}")
        self.assertLess(random_play, -1.0)
        self.assertGreater(learned, 1.0)
        self.assertGreater(curve[-1], curve[0])
        # Two agents that meet at once get 1 each, who never meet 50 times -0.1.
        self.assertLessEqual(max(curve), 2.0)
        self.assertGreaterEqual(min(curve), -10.0)
        # The copy of the configuration says where the library is, so that the run goes on from any folder.
        with open(self.path("runs", "rendezvous", "config.yaml")) as file:
            self.assertIn(os.path.realpath(self.path("build", "custom_env", "librendezvous.so")), file.read())

        self.assertRegex(self.troupe("evaluate", "rendezvous", "--episodes", "3", "--video", "met.gif").stdout, r"met\.gif: \d+ pictures")

        self.assertIn("two agents on a line shall meet", self.troupe("envs", "ls", "--plugin", plugin).stdout)
        bad = self.troupe("envs", "check", "rendezvous", "--set", f"env.plugin={plugin}", "--arg", "length=1", ok=False)
        self.assertNotEqual(bad.returncode, 0)
        self.assertIn("argument length: expected an integer in [2, 1000]", bad.stderr)

    def test_errors_name_the_key_and_where_it_was_looked_for(self):
        config = self.write("run.yaml", "env: {plugin: lib/none.so, name: mine}\n")
        done = self.troupe("train", config, ok=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("run.yaml:1:15: env.plugin: there is no file " + self.path("lib", "none.so"), done.stderr)
        self.assertIn("TROUPE_PLUGIN_PATH", done.stderr)
        self.write("text.so", "no library")
        done = self.troupe("train", config, "--set", "env.plugin=text.so", ok=False)
        self.assertIn("--set env.plugin=text.so: env.plugin: plug-in " + self.path("text.so") + ": is no shared library", done.stderr)
        done = self.troupe("envs", "check", "python:math", "--plugin", "text.so", ok=False)
        self.assertIn("the environment python:math is in Python; expected one of the two", done.stderr)

    def build_in_c(self):
        source = self.write("solo.c", C_PLUGIN)
        self.run_there("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fPIC", "-shared", "-I", self.source, source, "-o", "libsolo.so")

    def test_its_returns_are_exact(self):
        """Three steps of 0.25, 0.5 and 0.75, whoever plays: 1.5 in every line, in the end and in the evaluation."""
        self.build_in_c()
        config = self.write("run.yaml", """
env: {plugin: libsolo.so, name: c/solo}
algorithm: {name: ippo, train_batch_size: 70, minibatch_size: 70, num_epochs: 1}
num_workers: 1
num_envs_per_worker: 2
stop: {env_steps: 700}
experiment: {write_interval: 70}
evaluation: {episodes: 7}
""")
        self.troupe("train", config, "--name", "run")
        lines = self.progress("run")
        self.assertEqual([line["env_steps"] for line in lines], list(range(70, 701, 70)))
        self.assertEqual({(line["return_sum"], line["return_mean"], line["episode_length"]) for line in lines}, {(1.5, 1.5, 3.0)})
        summary = self.summary("run")
        self.assertEqual((summary["return_sum"], summary["episodes"]), (1.5, 2 * (350 // 3)))
        self.assertEqual(summary["evaluation"]["return_sum"], {"mean": 1.5, "std": 0.0})
        self.assert_adds_up(summary, 70)

    def test_an_environment_in_c(self):
        self.build_in_c()
        report = json.loads(self.troupe("envs", "check", "c/solo", "--plugin", "libsolo.so", "--json").stdout)
        self.assertTrue(report["ok"], report)
        self.assertEqual(report["env_steps"], 3 * report["episodes"])
        done = self.troupe("envs", "check", "c/solo", "--plugin", "libsolo.so", "--arg", "x=1", ok=False)
        self.assertIn("it takes no arguments", done.stderr)
        # A worker on another machine has the library elsewhere.
        os.mkdir(self.path("plugins"))
        os.rename(self.path("libsolo.so"), self.path("plugins", "libsolo.so"))
        os.environ["TROUPE_PLUGIN_PATH"] = self.path("plugins")
        self.addCleanup(os.environ.pop, "TROUPE_PLUGIN_PATH")
        self.troupe("envs", "check", "c/solo", "--plugin", "/elsewhere/libsolo.so")

    def test_a_broken_environment_is_reported_with_advice(self):
        report = json.loads(self.troupe("envs", "check", "testing/faulty", "--arg", "fault=nan_obs", "--json", ok=False).stdout)
        self.assertFalse(report["ok"])
        self.assertEqual(report["broken"]["rule"], "observation_value")
        self.assertRegex(report["broken"]["error"], r"environment testing/faulty \(env 0, episode 0\), agent \w+, step \d+: .* is nan")
        self.assertIn("Write every element", report["broken"]["advice"])
        done = self.troupe("envs", "check", "testing/faulty", "--arg", "fault=nan_obs", ok=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"FAIL +observation_value")
        self.assertIn("what to do: Write every element", done.stdout)


if __name__ == "__main__":
    harness.main()
