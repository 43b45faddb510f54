"""troupe.train and its kin, as a program of a user's calls them: the same binaries behind the same configuration."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from unittest import mock

import harness
import networks

SMALL = """
CONFIG = {
    "env": {"name": "cartpole", "args": {"num_agents": 2}},
    "multi_agent": {"policies": ["left", "right"], "policy_mapping": {"agent_0": "left", "*": "right"}},
    "algorithm": {"train_batch_size": 400, "minibatch_size": 100, "num_epochs": 1},
    "model": {"actor_hidden_sizes": [8], "critic_hidden_sizes": [8]},
    "num_workers": 1,
    "stop": {"env_steps": 2000},
    "evaluation": {"episodes": 5},
}
"""
# The first checkpoint that is still there; how many are written follows the time that they take.
FIRST_CHECKPOINT = """
def first_checkpoint(run):
    return min(int(path.name) for path in (run.path / "checkpoints").iterdir() if path.name.isdigit())
"""
LONG = SMALL.replace('"env_steps": 2000', '"env_steps": 100000000')

WALK = harness.SPACES + """class Walk:
    def __init__(self, steps=5, fails=False):
        self.possible_agents = ["walker"]
        self.observation_spaces, self.action_spaces = {"walker": Box()}, {"walker": Discrete()}
        self.steps, self.fails = steps, fails

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return {"walker": np.zeros(2, np.float32)}, {"walker": {}}

    def step(self, actions):
        if self.fails:
            raise RuntimeError("the robot fell over")
        self.t += 1
        done = {"walker": self.t == self.steps, "__all__": self.t == self.steps}
        return {"walker": np.zeros(2, np.float32)}, {"walker": float(actions["walker"])}, done, {"walker": False, "__all__": False}, {"walker": {}}
"""
WALKS = """
def settings(env, **args):
    return (troupe.Config().environment(env, args=args, python={"processes": 1}).env_runners(num_workers=1, num_envs_per_worker=2)
            .training(name="ippo", train_batch_size=100, minibatch_size=50, num_epochs=1, model={"actor_hidden_sizes": [8], "critic_hidden_sizes": [8]})
            .stop(env_steps=200).evaluation(episodes=2))
"""


class PythonApiTest(harness.RunningTestCase):
    def setUp(self):
        super().setUp()
        self.environment = dict(os.environ, TROUPE_PROGRAM=self.program, PYTHONPATH=os.path.join(self.source, "python"), **{harness.MARK: self.folder})
        self.addCleanup(self.await_true, lambda: not self.left_over(), "the end of every process")

    def program_of(self, *parts):
        return self.write("user.py", "import troupe\n" + "\n".join(map(textwrap.dedent, parts)))

    def user(self, *parts):
        """-> the lines that a program of a user's prints"""
        done = subprocess.run([sys.executable, "-B", self.program_of(*parts)], cwd=self.folder, env=self.environment, capture_output=True, text=True,
                              timeout=120, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.said_on_stderr = done.stderr
        return done.stdout.splitlines()

    def start_user(self, *parts):
        with open(self.path("log"), "w") as log:
            process = subprocess.Popen([sys.executable, "-B", self.program_of(*parts)], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, start_new_session=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_the_keywords_are_the_programs_keys(self):
        shown = self.troupe("config", "defaults", "--markdown").stdout
        generator = os.path.join(self.source, "python", "generate_config_keys.py")
        made = subprocess.run([sys.executable, "-B", generator], input=shown, capture_output=True, text=True, check=True).stdout
        with open(os.path.join(self.source, "python", "troupe", "config_keys.py")) as file:
            self.assertEqual(file.read(), made, "python/generate_config_keys.py writes it anew")

    def test_train_evaluate_resume(self):
        said = self.user(SMALL, FIRST_CHECKPOINT, """
            run = troupe.train(CONFIG, overrides={"algorithm.lr": 1e-3}, name="run")
            print(run.state, run.path.name, run.summary["env_steps"], run.config.to_dict()["algorithm"]["lr"])
            print([line["env_steps"] for line in run] == [line["env_steps"] for line in run.progress()], "svg" in run.progress()._repr_html_())
            found = run.evaluate(7, seed=3, deterministic=True)
            first = found.per_episode[0]["agents"]["agent_0"]
            print(found.episodes, found.seed, sorted(found.agents), len(found.per_episode), 0 < found.mean <= 1000, first["policy"])
            filmed = run.evaluate(7, seed=3, deterministic=True, video="a.gif", video_episode="worst") == found
            print(filmed, open("a.gif", "rb").read(6))
            print(run.evaluate(7, seed=3, deterministic=True) == found, run.evaluate(2, at=first_checkpoint(run), policies={"right": "random"}).episodes)
            more = troupe.load("run").resume(overrides={"stop.env_steps": 2800})
            lines = list(more)
            print(more.state, lines[-1]["env_steps"], len(lines) == len({line["env_steps"] for line in lines}), more.path == run.path, run.state)
            print(troupe.load("run").resume().wait().state, "nothing is left to do")
        """)
        self.assertEqual(said, ["finished run 2000 0.001", "True True", "7 3 ['agent_0', 'agent_1'] 7 True left", "True b'GIF89a'", "True 2",
                                "finished 2800 True True finished", "finished nothing is left to do"])
        # What the command writes of the same configuration.
        self.user(SMALL, "import json\nprint(troupe.Config(CONFIG).to_yaml(), file=open('same.yaml', 'w'))")
        self.troupe("train", "same.yaml", "--set", "algorithm.lr=1e-3", "--name", "command")
        self.troupe("train", "--resume", "command", "--set", "stop.env_steps=2800")
        names = [dict(self.tensors("runs", name, "checkpoints", "2800")) for name in ("run", "command")]
        self.assertEqual(names[0], names[1])

    def test_a_run_beside_the_program(self):
        said = self.user(LONG, """
            with troupe.start(troupe.Config(CONFIG), name="run") as run:
                seen = 0
                for line in run:
                    seen += 1
                    if seen == 3:
                        break
                print(run.state, run.summary)
                run.add_policy("right_v1", copy_of="right", trains=False)
                run.set_mapping({"agent_0": "left", "*": {"right": 1, "right_v1": 2}})
                run.set_trainable(["left"])
                saved = run.save()
                print(saved.exists(), run.evaluate(2, at="live").episodes)
                run.set_mapping({"agent_0": "left", "*": "right"})
                run.remove_policy("right_v1")
                try:
                    run.remove_policy("right")
                except troupe.TroupeError as error:
                    print(error)
            print(run.state, run.summary["reason"])
        """)
        self.assertEqual((said[:2], said[3][:7]), (["running None", "True 2"], "stopped"))
        self.assertIn("right", said[2])

    def test_a_run_that_another_process_trains(self):
        process = self.start_run(json.dumps(self.config_of(LONG)))
        said = self.user("""
            run = troupe.load("run")
            print(run.state, next(iter(run))["env_steps"] > 0)
            try:
                run.wait(0.1)
            except TimeoutError as error:
                print("timeout")
            run.stop()
            print(run.state, run.summary["reason"], (run.path / "checkpoints" / str(run.summary["env_steps"]) / "manifest.json").exists())
            try:
                run.save()
            except troupe.TroupeError as error:
                print(error)
        """)
        self.assertEqual(said[:3], ["running True", "timeout", "stopped troupe stop True"])
        self.assertEqual(len(said), 4, "nobody trains it: nothing is saved")
        self.assertEqual(process.wait(30), 0)

    def test_rllibs_example_of_cars_and_a_traffic_light(self):
        """One function over agents with different spaces, three policies as 4-tuples, as RLlib's documentation of multi-agent configurations has it."""
        self.write("crossing.py", textwrap.dedent("""
            import random
            import numpy as np
            from gymnasium.spaces import Box, Discrete

            car_obs_space, light_obs_space = Box(-10.0, 10.0, (4,)), Box(0, 1, (2, 2), np.uint8)
            car_act_space, light_act_space = Discrete(3), Discrete(2)

            class Crossing:
                def __init__(self):
                    self.possible_agents = ["car_0", "car_1", "traffic_light_1"]
                    self.observation_spaces = {"car_0": car_obs_space, "car_1": car_obs_space, "traffic_light_1": light_obs_space}
                    self.action_spaces = {"car_0": car_act_space, "car_1": car_act_space, "traffic_light_1": light_act_space}

                def observe(self):
                    return {agent: np.zeros(space.shape, space.dtype) for agent, space in self.observation_spaces.items()}

                def reset(self, *, seed=None, options=None):
                    self.t = 0
                    return self.observe(), {}

                def step(self, action_dict):
                    self.t += 1
                    return self.observe(), {agent: float(action) for agent, action in action_dict.items()}, {"__all__": self.t == 5}, {"__all__": False}, {}

            def policy_mapping_fn(agent_id, *args, **kwargs):
                return "traffic_light" if agent_id.startswith("traffic_light_") else random.choice(["car1", "car2"])
        """))
        said = self.user("""
            from crossing import Crossing, car_act_space, car_obs_space, light_act_space, light_obs_space, policy_mapping_fn

            config = (
                troupe.Config()
                .environment(Crossing, python={"processes": 1})
                .multi_agent(
                    policies={
                        "car1": (None, car_obs_space, car_act_space, {"gamma": 0.85}),
                        "car2": (None, car_obs_space, car_act_space, {"gamma": 0.99}),
                        "traffic_light": (None, light_obs_space, light_act_space, {}),
                    },
                    policy_mapping_fn=policy_mapping_fn,
                )
                .training(name="ippo", train_batch_size=100, minibatch_size=50, num_epochs=1)
                .env_runners(num_workers=1, num_envs_per_worker=2)
                .stop(env_steps=400)
                .evaluation(episodes=20)
            )
            run = config.train(name="run", progress=False)
            played = run.evaluate(20).per_episode
            of = {agent: sorted({episode["agents"][agent]["policy"] for episode in played}) for agent in Crossing().possible_agents}
            print(run.state, of)
        """)
        self.assertEqual(said, ["finished {'car_0': ['car1', 'car2'], 'car_1': ['car1', 'car2'], 'traffic_light_1': ['traffic_light']}"])

    def test_an_environment_knows_which_of_the_run_it_is(self):
        walk = WALK.replace("steps=5, fails=False):", "steps=5, fails=False, *, worker_index, env_index, port=0):\n        with open('made', 'a') as file:"
                            "\n            file.write(f'{worker_index} {env_index} {port}\\n')")
        said = self.user(walk, WALKS, """
            settings(Walk, port="${env_index}").env_runners(num_workers=2, num_envs_per_worker=2).train(name="run", progress=False)
            made = [tuple(map(int, line.split())) for line in open("made")]
            print(all(env == port for _, env, port in made), min(env for _, env, _ in made))
            played = [(env, worker) for worker, env, _ in made if env >= 0]
            print(sorted({env for env, _ in played if env < 4}), sorted({worker for _, worker in played if _ < 4}), len(played) == len(set(played)))
            print(sorted(env for env, _ in played if env >= 4))
        """)
        self.assertEqual(said, ["True -1", "[0, 1, 2, 3] [0, 1] True", "[4, 5]"])

    @staticmethod
    def config_of(text):
        names = {}
        exec(text, names)
        return names["CONFIG"]

    @harness.by_command(os.environ.get("TROUPE_ACTING_LIBRARY"))
    def test_policies_act_in_the_process(self):
        said = self.user(SMALL, """
            import json, subprocess, os, numpy
            CONFIG["multi_agent"]["policies"] = {"left": {}, "right": {"model": {"actor_core": "gru", "core_size": 6}}}
            run = troupe.train(CONFIG, name="run")
            policies = run.policies(seed=3)
            left, right = policies["left"], policies["right"]
            print(sorted(policies), left.version == 5, left.agents, left.state_size, right.state_size, left.observation_space.kind)
            rows = numpy.random.default_rng(1).normal(size=(9, 4)).astype(numpy.float32)

            def query(policy, *more):
                asked = [os.environ["TROUPE_PROGRAM"], "query", "run", "--policy", policy, "--deterministic", "--obs", json.dumps(rows.tolist())]
                return json.loads(subprocess.run([*asked, "--json", *more], capture_output=True, text=True, check=True).stdout)

            asked = query("left")
            actions, state = left.predict(rows, deterministic=True)
            print([[action] for action in actions] == asked["actions"], state)
            print([left.act(row, deterministic=True) for row in rows] == actions, left.predict(rows[0], deterministic=True)[0] == actions[0])
            asked = query("right")
            actions, state = right.predict(rows, deterministic=True)
            print([[action] for action in actions] == asked["actions"], numpy.array_equal(state, numpy.float32(asked["state_out"])))
            again, later = right.predict(rows, state, deterministic=True)
            asked = query("right", "--state-in", json.dumps(asked["state_out"]))
            print([[action] for action in again] == asked["actions"], numpy.array_equal(later, numpy.float32(asked["state_out"])))
            forgotten = right.predict(rows, state, [True] * 4 + [False] * 5, deterministic=True)[1]
            print(numpy.array_equal(forgotten[:4], state[:4]), numpy.array_equal(forgotten[4:], later[4:]))
            drawn = [policies["left"].act(rows[0]) for policies in (run.policies(seed=3), run.policies(seed=3), run.policies(seed=4)) for _ in range(64)]
            print(drawn[:64] == drawn[64:128], drawn[:64] == drawn[128:], set(drawn) == {0, 1})
        """)
        self.assertEqual(said, ["['left', 'right'] True ['agent_0'] 0 6 Box", "True None", "True True", "True True", "True True", "True True",
                                "True False True"])

    @harness.by_command(os.environ.get("TROUPE_ACTING_LIBRARY"))
    def test_a_policy_leaves_the_run_by_a_command(self):
        self.troupe("train", self.write("run.yaml", json.dumps(self.config_of(SMALL))), "--name", "run")
        # What lies where the command is given is no package of its Python.
        for name in ("numpy.py", "torch.py", "troupe.py", "argparse.py", "sitecustomize.py"):
            self.write(name, "raise SystemExit('a stranger was imported')\n")
        strangers = mock.patch.dict(os.environ, PYTHONPATH=":.:/nowhere")
        strangers.start()
        self.addCleanup(strangers.stop)
        export = ("export", "run", "--python", sys.executable)
        said = self.troupe(*export, "--policy", "left", "--output", "left.safetensors").stdout
        self.assertEqual(said, "wrote left.safetensors and left.safetensors.golden.npz: policy left, version 5\n")
        wanted = {name.removeprefix("left/"): values for name, values in networks.read_policies(self.path("runs", "run", "checkpoints", "2000")).items()
                  if name.startswith("left/actor.")}
        self.assertEqual(networks.read_safetensors(self.path("left.safetensors")), wanted)
        said = json.loads(self.troupe(*export, "--policy", "left", "--output", "left.safetensors", "--overwrite", "--checkpoint", "2000", "--json").stdout)
        self.assertEqual((said["path"], said["policy_id"], said["version"]), ("left.safetensors", "left", 5))
        os.makedirs(self.path("runs", "new"))
        self.write("runs/new/config.yaml", "{}")
        self.write("python", f"#!/bin/sh\nexec {sys.executable} -S \"$@\"\n")  # without NumPy
        os.chmod(self.path("python"), 0o755)
        left = ["run", "--policy", "left", "--output", "x.safetensors"]
        for code, words, arguments in ((78, "left.safetensors is there already, expected no file", [*left[:3], "--output", "left.safetensors"]),
                                       (1, "none/x.safetensors: cannot be written", [*left[:3], "--output", "none/x.safetensors"]),
                                       (2, "x.onnx: got the format safetensors for a file of onnx", [*left[:3], "--output", "x.onnx", "--format", "safetensors"]),
                                       (2, "x: got no ending, expected one of .safetensors", [*left[:3], "--output", "x"]),
                                       (2, "got no --policy of 2, expected one of left, right", ["run", "--output", "x.safetensors"]),
                                       (1, "got middle, expected one of left, right", ["run", "--policy", "middle", "--output", "x.safetensors"]),
                                       (1, 'no checkpoint "7" in', [*left, "--checkpoint", "7"]),
                                       (1, 'no checkpoint "latest" in "runs/new": it has none yet', ["new", "--output", "x.safetensors"]),
                                       (1, 'there is no run in "old"', ["old", "--output", "x.safetensors"]),
                                       (2, "--output is required", ["run"]),
                                       (2, "--at", [*left, "--at", "7"]),
                                       (2, "gguf", [*left, "--format", "gguf"]),
                                       (78, "expected numpy and this troupe's package", [*left, "--python", self.path("python")]),
                                       (78, "which is no program, expected a Python interpreter", [*left, "--python", "/no/python"])):
            done = self.troupe("export", *arguments, *([] if "--python" in arguments else export[2:]), ok=False)
            self.assertRegex(done.stderr, "^troupe: error: ")
            self.assertIn(words, done.stderr)
            self.assertEqual(done.returncode, code, done.stderr)
        self.assertFalse([name for name in os.listdir(self.folder) if name.startswith("x")])

    @harness.by_command(os.environ.get("TROUPE_ACTING_LIBRARY"))
    def test_an_installed_program_takes_its_own_packages_library(self):
        self.troupe("train", self.write("run.yaml", json.dumps(self.config_of(SMALL))), "--name", "run")
        package = self.path("opt", "troupe", "python", "troupe")
        shutil.copytree(os.path.join(self.source, "python", "troupe"), package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        os.mkdir(self.path("opt", "troupe", "bin"))
        program = shutil.copy(self.program, self.path("opt", "troupe", "bin", "troupe"))
        own = shutil.copy(os.environ["TROUPE_ACTING_LIBRARY"], os.path.join(package, "libtroupe_acting.so"))
        for build in ("", "opt", "opt/troupe"):
            for folder in ("lib/acting", "build/lib/acting", "build/release/lib/acting"):
                os.makedirs(self.path(build, folder))
                self.write(os.path.join(build, folder, "libtroupe_acting.so"), "a stranger's")
        environment = {name: value for name, value in os.environ.items() if name not in ("TROUPE_ACTING_LIBRARY", "TROUPE_PYTHON", "PYTHONPATH")}

        def export(output):
            return subprocess.run([program, "export", "run", "--policy", "left", "--output", output, "--python", sys.executable], cwd=self.folder,
                                  env=environment, capture_output=True, text=True, timeout=60, check=False)

        done = export("left.safetensors")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        os.remove(own)
        done = export("again.safetensors")
        self.assertRegex(done.stderr, "^troupe: error: found no libtroupe_acting.so at ")
        self.assertEqual(done.returncode, 78)

    @harness.by_command(os.environ.get("TROUPE_ACTING_LIBRARY"))
    def test_agents_play_a_loop_of_pettingzoos(self):
        said = self.user(SMALL, FIRST_CHECKPOINT, """
            import numpy
            CONFIG["multi_agent"]["policies"] = {"left": {}, "right": {"model": {"actor_core": "gru", "core_size": 6}}}
            run = troupe.train(CONFIG, name="run")

            class Env:
                agents = ["agent_0", "agent_1"]

                def __init__(self):
                    self.random = numpy.random.default_rng(5)

                def look(self):
                    return {agent: numpy.float32(self.random.normal(size=4)) for agent in self.agents}

            def play(agents, steps=6):
                env, said = Env(), []
                agents.reset()
                for _ in range(steps):
                    said.append(agents.act(env.look(), {}))
                return said

            agents = run.agents(deterministic=True)
            first = play(agents)
            print(first == play(agents), first == play(run.agents(deterministic=True)), sorted(first[0]), agents.policy_of("agent_1").id)
            # What the policy that remembers says by hand.
            env, policy, state, by_hand = Env(), run.policies()["right"], None, []
            for _ in range(6):
                action, state = policy.predict(env.look()["agent_1"], state, deterministic=True)
                by_hand.append(action)
            print(by_hand == [said["agent_1"] for said in first])
            print(play(run.agents(seed=1), 40) == play(run.agents(seed=1), 40), play(run.agents(seed=1), 40) == play(run.agents(seed=2), 40))

            def fails(act):
                try:
                    act()
                except (ValueError, troupe.TroupeError) as error:
                    print(type(error).__name__, error)
            fails(lambda: policy.act(numpy.zeros(4)))
            fails(lambda: run.policies()["left"].act(numpy.zeros(3)))
            fails(lambda: run.policies()["left"].act(numpy.zeros(4), action_mask=[1, 1]))
            fails(lambda: agents.act({"agent_7": numpy.zeros(4)}))
            fails(lambda: policy.predict(numpy.zeros((2, 4)), numpy.zeros((3, 6))))
            fails(lambda: run.policies(at=7))
            versions = {str(steps): run.policies(at=steps)["left"].version for steps in (first_checkpoint(run), run.summary["env_steps"])}
            print(versions == {str(steps): steps // 400 for steps in (first_checkpoint(run), 2000)}, run.policies(at="2000")["left"].version)
            # Another one in the place of its agent's.
            other = run.policies(at=first_checkpoint(run))["left"]
            print(run.evaluate(2, seed=1, policies={"left": other}) == run.evaluate(2, seed=1, policies={"left": other.source}))
        """)
        self.assertEqual(said[:3], ["True True ['agent_0', 'agent_1'] right", "True", "True False"])
        for words, line in zip(("ask predict(obs, state)", "got an array of shape (3,), expected (4,)", "has no action masks",
                                "there is no agent 'agent_7', expected one of agent_0, agent_1", "got a state of shape (3, 6), expected (2, 6)",
                                'no checkpoint "7"', "True 5", "True"), said[3:]):
            self.assertIn(words, line)
        self.assertEqual(len(said), 11, said)

    @harness.by_command(os.environ.get("TROUPE_ACTING_LIBRARY"))
    def test_agents_of_what_nobody_does_here_are_refused(self):
        said = self.user(SMALL, """
            stacked = troupe.train(CONFIG, overrides={"env.frame_stack": 2}, name="stacked")
            print(stacked.policies()["left"].act([[0] * 4] * 2) in (0, 1))
            try:
                stacked.agents()
            except troupe.TroupeError as error:
                print(error)
        """)
        self.assertEqual(said[0], "True")
        self.assertIn("runs/stacked/config.yaml: env.frame_stack: got 2, expected 1", said[1])

    @harness.by_command(os.environ.get("TROUPE_ACTING_LIBRARY"))
    def test_agents_keep_to_the_rules_of_a_game(self):
        """Turn by turn, with masks."""
        said = self.user("""
            config = troupe.Config().environment("tic_tac_toe").training(train_batch_size=400, model={"actor_hidden_sizes": [8], "critic_hidden_sizes": [8]})
            agents = config.env_runners(num_workers=1).stop(env_steps=400).evaluation(at_end=False).train(name="run").agents(seed=1)
            env, moves, forbidden = troupe.aec_env("tic_tac_toe"), 0, 0
            for game in range(20):
                env.reset(seed=game)
                agents.reset()
                for agent in env.agent_iter():
                    observation, _, terminated, truncated, info = env.last()
                    if terminated or truncated:
                        env.step(None)
                        continue
                    action = agents.act({agent: observation}, {agent: info})[agent]
                    moves, forbidden = moves + 1, forbidden + (not observation["action_mask"][action])
                    env.step(action)
            print(moves >= 20 * 5, forbidden)
        """)
        self.assertEqual(said, ["True 0"])

    def test_what_is_wrong_is_said_in_the_programs_words(self):
        said = self.user(SMALL, """
            def fails(kind, make, *args, **how):
                try:
                    make(*args, **how)
                except kind as error:
                    print(type(error).__name__, error)
                else:
                    print("no error")
            config = troupe.Config(CONFIG)
            fails(troupe.ConfigError, troupe.train, config.copy().training(gama=0.9))
            fails(troupe.ConfigError, troupe.train, config.copy().env_runners(num_env_runners=4))
            fails(troupe.ConfigError, troupe.train, config.copy().training(lambda_=0.9))
            fails(troupe.ConfigError, config.copy().stop(env_steps=-1).to_yaml)
            fails(troupe.ConfigError, troupe.train, config, overrides={"algorithm.gamma": 2})
            fails(troupe.ConfigError, troupe.train, "none.yaml")
            fails(troupe.ConfigError, troupe.train, config, env="cartpol")
            fails(troupe.ConfigError, troupe.train, {"env": "cartpole"})
            fails(troupe.TroupeError, troupe.load, "none")
            troupe.train(config, name="run")
            fails(troupe.RunFailed, troupe.train, config, name="run")
        """)
        for words, line in zip(('unknown key "algorithm.gama"; the nearest is "algorithm.gamma"',
                                'unknown key "num_env_runners" (RLlib): here it is "num_workers"',
                                'unknown key "algorithm.lambda_" (RLlib): here it is "algorithm.gae_lambda"', "stop.env_steps: got -1, expected",
                                "--set algorithm.gamma=2: algorithm.gamma: got 2, expected", "none.yaml: cannot be read", 'cartpole',
                                "env: got \"cartpole\", expected a section", "there is no run in",
                                "run"), said):
            self.assertIn(words, line)
            self.assertNotIn("/dev/fd", line)
        self.assertEqual([line.split()[0] for line in said], ["ConfigError"] * 8 + ["TroupeError", "RunFailed"])

    def test_a_class_goes_by_its_file(self):
        os.makedirs(self.path("pack"))
        self.write("pack/__init__.py", "")
        self.write("pack/walk.py", WALK)
        self.write("helper.py", "STEPS = 5")
        self.write("alone.py", "import helper\n" + WALK)
        said = self.user(WALKS, """
            from pack.walk import Walk
            import alone
            run = troupe.train(settings(Walk, steps=4), name="pack")
            print(run.summary["env_steps"], run.config.to_dict()["env"]["name"])
            print(troupe.train(settings("cartpole"), env=alone.Walk, name="alone", overrides={"env.args": {}}).state)
            print(troupe.load("pack").evaluate(3).episode_length)
        """)
        self.assertEqual(said, ["200 python:pack.walk:Walk", "finished", "4.0"])
        self.assertIn("troupe: this run executes env.name: python:pack.walk:Walk\n", self.said_on_stderr)
        # Whoever resumes a run is told what that executes, whether progress is shown or not.
        said = self.user("print(troupe.load('pack').resume(overrides={'stop.env_steps': 250}).wait().state)")
        self.assertEqual(said, ["finished"])
        self.assertIn("troupe: this run executes env.name: python:pack.walk:Walk\n", self.said_on_stderr)
        said = self.user("print(troupe.load('pack').config.to_dict()['env']['name'])")
        self.assertEqual(said, ["python:pack.walk:Walk"])
        self.assertIn("troupe: this run executes env.name: python:pack.walk:Walk\n", self.said_on_stderr)
        # From another folder, by the command: the run's configuration says where it is.
        os.makedirs(self.path("elsewhere"))
        self.troupe("train", "--resume", self.path("runs", "pack"), "--set", "stop.env_steps=300", cwd=self.path("elsewhere"))

    def test_a_class_of_the_program_itself_travels(self):
        said = self.user(WALK, WALKS, """
run = troupe.train(settings(Walk), name="run")
print(run.state)
print(run.resume(env=Walk, overrides={"stop.env_steps": 300}).wait().summary["env_steps"], run.evaluate(2, env=Walk).episode_length)
for again in (lambda: run.resume(overrides={"stop.env_steps": 400}).wait(), lambda: run.evaluate(2)):
    try:
        again()
    except troupe.TroupeError as error:
        print(error)
""")
        self.assertEqual(said[:2], ["finished", "300 5.0"])
        self.assertEqual(len(said), 4, said)
        for line in said[2:]:
            self.assertIn("is only where that runs: give it again there", line)
        with open(self.path("runs", "run", "config.yaml")) as file:
            self.assertIn('name: "python:__main__:Walk (notebook)"', file.read())

    def test_a_run_whose_environments_fail_says_so(self):
        self.write("walk.py", WALK)
        said = self.user(WALKS, """
            from walk import Walk
            try:
                troupe.train(settings(Walk, fails=True), name="run")
            except troupe.RunFailed as error:
                print(error.code, error)
            print(troupe.load("run").state)
        """)
        self.assertRegex(said[0], r"^1 .*fail")
        self.assertIn("the robot fell over", said[0])
        self.assertEqual(said[1:], ["stopped"])

    def test_ctrl_c_stops_in_order(self):
        process = self.start_user(LONG, "run = troupe.train(CONFIG, name='run')\nprint(run.state, run.summary['env_steps'] > 0)")
        self.await_env_steps(1, process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        self.assertEqual(process.wait(60), 0, self.log_text())
        self.assertEqual(self.log_text().splitlines()[-1], "stopped True")
        self.assertIn("stopping: the learner ends the run in order", self.log_text())
        self.assert_nothing_left()

    def test_nothing_outlives_an_interpreter_that_is_killed(self):
        process = self.start_user(LONG, "troupe.train(CONFIG, name='run')")
        self.await_env_steps(1, process)
        self.assertGreater(len(self.left_over()), 3)
        process.kill()
        process.wait()
        self.await_true(lambda: not self.left_over(), "the end of every process")
        # In order: with a checkpoint of what it had trained.
        env_steps = self.summary("run")["env_steps"]
        self.assertTrue(os.path.exists(self.path("runs", "run", "checkpoints", str(env_steps), "manifest.json")))
        said = self.user(f"run = troupe.load('run').resume(overrides={{'stop.env_steps': {env_steps + 400}}})\nprint(run.wait().state)")
        self.assertEqual(said, ["finished"])


if __name__ == "__main__":
    harness.main()
