"""Configurations that are put together in Python, and names of classes; the program's part is in tests/e2e/python_api_test.py."""

import importlib.util
import json
import os
import pathlib
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), HERE]

import fake_spaces  # noqa: E402
from troupe import Config, notebook  # noqa: E402
from troupe.config_blocks import set_arguments  # noqa: E402
from troupe.naming import python_name  # noqa: E402


class ModuleEnv:
    """Of this module, which unittest imports as tests.test_config_blocks."""

    class Inner:
        pass


def choose(agent_id):
    return agent_id


class NumberLike:
    def tolist(self):
        return [1, [2.5]]


def given(config):
    """What a configuration without a file tells the program."""
    with config.passed() as passed:
        with open(passed.arguments[0]) as file:
            return json.load(file), passed.arguments[1:]


class ConfigTest(unittest.TestCase):
    def test_blocks_are_the_sections_of_a_configuration(self):
        config = (Config().environment("mpe/simple_spread", args={"N": 3}, frame_stack=2).training(name="mappo", lr=1e-3, model={"activation": "relu"},
                  preset="mappo_mpe").env_runners(num_workers=1).learner(device="cpu", join_timeout_s=3.0).evaluation(episodes=5).stop(env_steps=100)
                  .experiment(directory=pathlib.Path("there")).multi_agent(policies={"b", "a"}, policy_mapping={"*": "a"}).seed(7))
        self.assertEqual(given(config), ({
            "env": {"frame_stack": 2, "name": "mpe/simple_spread", "args": {"N": 3}},
            "algorithm": {"name": "mappo", "lr": 1e-3}, "preset": "mappo_mpe", "model": {"activation": "relu"}, "num_workers": 1,
            "learner": {"join_timeout_s": 3.0}, "device": "cpu", "evaluation": {"episodes": 5}, "stop": {"env_steps": 100},
            "experiment": {"directory": "there"}, "multi_agent": {"policies": ["a", "b"], "policy_mapping": {"*": "a"}}, "seed": 7}, []))

    def test_what_is_given_again_is_merged_as_overrides_are(self):
        config = Config({"env": {"name": "cartpole", "args": {"a": {"x": 1}, "b": 2}}, "algorithm": {"lr": {"initial": 1, "final": 0, "env_steps": 5}},
                         "multi_agent": {"policies": {"p": {"model": {"a": [1]}}}, "policy_mapping": {"*": "p"}}})
        config.environment(args={"a": {"y": 3}}).training(lr={"points": [[0, 1]], "by": "updates"}, gamma=0.9)
        config.multi_agent(policies={"q": {}, "p": {"model": {"b": {"c": 1}}, "class": "random"}}, policy_mapping={"agent_0": "q"})
        config.multi_agent(policies={"p": {"model": {"b": {"d": 1}}}})
        self.assertEqual(given(config)[0], {
            "env": {"name": "cartpole", "args": {"a": {"x": 1, "y": 3}, "b": 2}}, "model": {},
            "algorithm": {"lr": {"points": [[0, 1]], "by": "updates"}, "gamma": 0.9},
            "multi_agent": {"policies": {"p": {"model": {"a": [1], "b": {"d": 1}}, "class": "random"}, "q": {}}, "policy_mapping": {"agent_0": "q"}}})

    def test_mappings_keep_their_order(self):
        config = Config().environment("a", args={"teams": {"red": 2, "blue": 1, "azure": 1}, "alpha": 1})
        config.environment(args={"teams": {"green": 1, "red": 3}}, external={"spaces": {"zed": {"obs_space": "x"}, "abe": {}}})
        config.environment(external={"spaces": {"new": {}, "zed": {"act_space": "y"}}})
        env = given(config)[0]["env"]
        self.assertEqual(json.dumps(env["args"]), '{"teams": {"red": 3, "blue": 1, "azure": 1, "green": 1}, "alpha": 1}')
        self.assertEqual(json.dumps(env["external"]), '{"spaces": {"zed": {"obs_space": "x", "act_space": "y"}, "abe": {}, "new": {}}}')
        self.assertEqual(set_arguments({"env.args.teams": {"red": 1, "blue": 2}}), ["--set", 'env.args.teams={"red": 1, "blue": 2}'])

    def test_what_stands_in_a_sections_place_is_the_programs_to_refuse(self):
        for wrong in ({"env": "cartpole"}, {"env": {"name": "cartpole", "python": 3}}):
            config = Config(wrong).multi_agent(policy_mapping=choose)
            self.assertEqual(given(config)[0]["env"], wrong["env"])
            self.assertEqual(config.notebook_file().variables, {})
        with self.assertRaisesRegex(ValueError, "env.name: .*ModuleEnv.* is found where its module is, which an override cannot say"):
            set_arguments({"env.name": ModuleEnv})

    def test_a_file_stays_one_and_its_changes_are_overrides(self):
        config = Config("runs/run.yaml").training(lr=float("inf"), clip_param=None).seed(2)
        with config.passed({"stop.env_steps": NumberLike()}) as passed:
            self.assertEqual(passed.arguments, [os.path.abspath("runs/run.yaml"), "--set", 'algorithm={"lr": .inf, "clip_param": null}', "--set", "model={}",
                                                "--set", "seed=2", "--set", "stop.env_steps=[1, [2.5]]"])
            self.assertEqual(passed.fds, [])

    def test_a_copy_shares_nothing(self):
        config = Config().environment("cartpole", args={"list": [1]})
        copy = config.copy().environment(args={"list": [2]}, python={"processes": 3})
        self.assertEqual(given(config)[0]["env"], {"name": "cartpole", "args": {"list": [1]}})
        self.assertEqual(given(copy)[0]["env"], {"name": "cartpole", "args": {"list": [2]}, "python": {"processes": 3}})
        self.assertIsInstance(copy, Config)

    def test_relative_paths_are_the_working_folders(self):
        config = Config({"env": {"name": "python:walk.py:Walk", "plugin": "lib.so"}, "model": {"torchscript": "net.pt"}, "algorithm": {"name": "custom", "loss": "loss.pt"},
                         "multi_agent": {"policies": {"p": {"model": {"critic_torchscript": "c.pt", "torchscript": "sha256:00"}}}}})
        told, _ = given(config)
        self.assertEqual(told["env"], {"name": "python:walk.py:Walk", "plugin": os.path.abspath("lib.so"), "python": {"folder": os.getcwd()}})
        self.assertEqual(told["model"]["torchscript"], os.path.abspath("net.pt"))
        self.assertEqual(told["algorithm"]["loss"], os.path.abspath("loss.pt"))
        self.assertEqual(told["multi_agent"]["policies"]["p"]["model"], {"critic_torchscript": os.path.abspath("c.pt"), "torchscript": "sha256:00"})
        # An argument of the user's that has the same name is none.
        mine = {"torchscript": "a word", "model": {"torchscript": "a word"}}
        self.assertEqual(given(Config({"env": {"args": mine}}))[0]["env"]["args"], mine)
        # The configuration itself stays as it was given.
        with self.assertRaisesRegex(ValueError, "wandb_kwargs"):
            set_arguments({"experiment": {"wandb_kwargs": {}}})

    def test_secrets_are_on_no_command_line(self):
        config = Config().experiment(wandb=True, wandb_kwargs={"key": "canary"})
        with config.passed() as passed:
            self.assertNotIn("canary", " ".join(passed.arguments))
            self.assertEqual(len(passed.fds), 1)
            self.assertNotIn(passed.fds[0], range(64), "what a shell script may use for its own")
            self.assertIn("canary", os.pread(passed.fds[0], 1 << 16, 0).decode())
        for wrong in (lambda: set_arguments({"experiment.wandb_kwargs.key": "canary"}), Config("run.yaml").experiment(wandb_kwargs={}).set_arguments):
            with self.assertRaisesRegex(ValueError, "wandb_kwargs may hold secrets"):
                wrong()

    def test_policies_in_rllibs_forms_with_gymnasiums_spaces(self):
        """Cars and a traffic light, as RLlib's documentation has them."""
        car, light, act = fake_spaces.Box(-1, 1, (3,)), fake_spaces.Dict({"phase": fake_spaces.Discrete(4), "a-b": fake_spaces.MultiBinary(2)}), fake_spaces.Discrete(2)
        spec = type("PolicySpec", (), {"policy_class": None, "observation_space": light, "action_space": act, "config": None})()
        config = Config().multi_agent(policies={"car1": (None, car, act, {"gamma": 0.85}), "car2": (ModuleEnv, car, act, {"model": {"activation": "relu"}}),
                                                "traffic_light": spec, "spare": {"observation_space": car}}, policy_mapping_fn=choose)
        text = {"observation_space": "Box(-1, 1, [3])", "action_space": "Discrete(2)"}
        self.assertEqual(given(config)[0]["multi_agent"], {
            "policies": {"car1": {**text, "algorithm": {"gamma": 0.85}},
                         "car2": {**text, "class": f"python:{__name__}:ModuleEnv", "model": {"activation": "relu"}},
                         "traffic_light": {"observation_space": 'Dict{"a-b": MultiBinary(2), phase: Discrete(4)}', "action_space": "Discrete(2)"},
                         "spare": {"observation_space": "Box(-1, 1, [3])"}},
            "policy_mapping": {"function": f"python:{__name__}:choose"}})
        for wrong, words in (((None, car), r"multi_agent.policies.p: got a tuple of 2, expected \(None, observation space"),
                             ((None, car, act, 3), "multi_agent.policies.p: got a config of type int"),
                             ((None, fake_spaces.Box(1, 0, (2,)), act, {}), "bounds that are NaN or cross")):
            with self.assertRaisesRegex(ValueError, words):
                Config().multi_agent(policies={"p": wrong})
        with self.assertRaisesRegex(ValueError, "got policy_mapping and policy_mapping_fn"):
            Config().multi_agent(policy_mapping={"*": "a"}, policy_mapping_fn=choose)

    def test_methods_of_rllib_are_errors_that_name_ours(self):
        for name, ours in (("rollouts", r"env_runners\("), ("framework", "LibTorch"), ("build_algo", r"train\(\) or start"), ("resources", "learner")):
            with self.assertRaisesRegex(AttributeError, f"RLlib's {name} is here: .*{ours}"):
                getattr(Config(), name)
        with self.assertRaisesRegex(AttributeError, "no attribute 'oops'$"):
            getattr(Config(), "oops")


class NamesTest(unittest.TestCase):
    def test_a_class_goes_by_module_and_folder(self):
        named = python_name(ModuleEnv.Inner)
        self.assertEqual(named, (f"python:{__name__}:ModuleEnv.Inner", os.path.dirname(HERE) if "." in __name__ else HERE))
        told, _ = given(Config().environment(ModuleEnv).multi_agent(policies=["p"], policy_mapping=choose))
        self.assertEqual(told["env"], {"name": f"python:{__name__}:ModuleEnv", "python": {"interpreter": sys.executable, "path": named.path}})
        self.assertEqual(told["multi_agent"]["policy_mapping"], {"function": f"python:{__name__}:choose"})

    def test_callbacks_are_classes_in_the_place_of_those_before(self):
        config = Config({"callbacks": ["python:m:Old"]}).callbacks(ModuleEnv, "python:m:Watch")
        named = python_name(ModuleEnv)
        self.assertEqual(given(config)[0], {"callbacks": [named.name, "python:m:Watch"], "env": {"python": {"path": named.path}}})
        self.assertEqual(given(config.callbacks())[0]["callbacks"], [])
        with self.assertRaisesRegex(ValueError, "callbacks: got an object of type ModuleEnv, expected a class"):
            config.callbacks(ModuleEnv())

    def test_the_interpreters_own_modules_need_no_folder(self):
        self.assertEqual(python_name(json.JSONDecoder), ("python:json.decoder:JSONDecoder", None))
        self.assertEqual(python_name(len), ("python:builtins:len", None))

    def test_a_folder_that_is_given_comes_behind(self):
        told, _ = given(Config().environment(ModuleEnv, python={"path": "/mine"}).environment(ModuleEnv))
        self.assertEqual(told["env"]["python"]["path"], f"{python_name(ModuleEnv).path}:/mine")

    def test_a_file_that_no_import_finds_goes_by_its_path(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "odd-name.py")
            with open(path, "w") as file:
                file.write("class Env:\n    pass\n")
            spec = importlib.util.spec_from_file_location("odd", path)
            module = importlib.util.module_from_spec(spec)
            sys.modules["odd"] = module
            self.addCleanup(sys.modules.pop, "odd")
            spec.loader.exec_module(module)
            self.assertEqual(python_name(module.Env), (f"python:{path}:Env", None))

    def test_what_no_other_process_finds_is_refused(self):
        class Local:
            pass
        renamed = type("Renamed", (), {"__module__": __name__})
        for thing, words in ((Local, "inside of a function"), (lambda: None, "inside of a function"), (renamed, "is not what module"),
                             (3, "type int, expected a name"), (NumberLike(), "type NumberLike")):
            with self.assertRaisesRegex(ValueError, words):
                python_name(thing)
        with self.assertRaisesRegex(ValueError, "expected a name, a class or a function"):
            Config().environment(3 + 4j)

    def test_what_is_of_main_has_a_name_that_says_so(self):
        main = type("Maze", (), {"__module__": "__main__"})
        told, _ = given(Config().environment(main))
        self.assertEqual(told["env"]["name"], "python:__main__:Maze (notebook)")
        self.assertEqual(notebook.name_of(main), "python:__main__:Maze (notebook)")
        with self.assertRaisesRegex(ValueError, "runs with .* alone, which has it"):
            Config().environment(main, python={"interpreter": "/usr/bin/other"}).notebook_file()
        self.assertEqual(Config().environment(main).environment("cartpole").notebook_file().variables, {}, "it is not the environment any more")


if __name__ == "__main__":
    unittest.main()
