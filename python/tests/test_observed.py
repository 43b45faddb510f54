"""Observation functions: what agents observe instead of what their environment gives."""

import os
import sys
import types
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

try:
    import numpy as np
except ImportError:
    np = None

if np is not None:
    from fake_envs import Dicts, obs
    from fake_spaces import Box

    from troupe import function_host
    from troupe.env_adapters import EnvAdapterError, observed, recognize

    SCRIPT = [
        ({"a": obs(1), "b": obs(2)}, {"a": {"fuel": 5.0}}),
        ({"a": obs(3), "b": obs(4)}, {"a": 1.0}, {"__all__": False}, {"__all__": False}, {"b": {"fuel": 7.0}}),
        ({"a": obs(5)}, {"a": 1.0}, {"__all__": True}, {"__all__": False}, {}),
    ]

    def with_fuel(observation, agent, info):
        """One number more."""
        return np.append(observation, np.float32(info.get("fuel", -1)))

    with_fuel.observation_space = lambda agent, space: Box(-10, 10, (space.shape[0] + 1,))

    def beside_each_other(observations, infos):
        """Each agent's observation, and how many agents are observed."""
        return {agent: np.append(observation, np.float32(len(observations) + infos[agent].get("fuel", 0))) for agent, observation in observations.items()}

    beside_each_other.observation_space = lambda agent, space: Box(-10, 10, (space.shape[0] + 1,))

    def for_one_alone(observations, infos):
        """Forgets the others."""
        return {"a": observations["a"]}

    def no_dict(observations, infos):
        """A list."""
        return list(observations.values())

    def doubled(observation, agent, info):
        """In the same space."""
        return 2 * observation

    def nothing(observation, agent, info):
        """No observation."""

    class Counts:
        """Remembers how often it was called."""

        observation_space = Box(0, 100, (1,))

        def __init__(self):
            self.calls = 0

        def __call__(self, observation, agent, info):
            self.calls += 1
            return np.array([self.calls], np.float32)

    def of_each(observation, agent, info=None):
        assert isinstance(agent, str)
        return observation

    class NotCallable:
        """No function."""

    def badly_declared(observation, agent, info):
        """Its space is none."""

    badly_declared.observation_space = lambda agent, space: "five"


@unittest.skipIf(np is None, "needs numpy")
class ObservedTest(unittest.TestCase):
    """The adapter behind a function."""

    def setUp(self):
        module = types.ModuleType("functions_of_observed")
        for function in (with_fuel, of_each, beside_each_other, for_one_alone, no_dict, doubled, nothing, Counts, NotCallable, badly_declared):
            setattr(module, function.__name__, function)
        sys.modules[module.__name__] = module

    @staticmethod
    def adapter(name, script=None):
        return observed.wrap(recognize.adapt("mine", Dicts(script or SCRIPT), False), f"functions_of_observed:{name}")

    def test_each_observation_goes_through_it_with_its_agents_info(self):
        adapter = self.adapter("with_fuel")
        shapes = [agent.observation_space["shape"] for agent in adapter.description.agents]
        inner = np.size(obs(1))
        self.assertEqual([list(shape) for shape in shapes], [[inner + 1], [inner + 1]])
        seen = []
        for call in (lambda: adapter.reset(0), lambda: adapter.step([0, 0]), lambda: adapter.step([0, 0])):
            seen.append([None if value is None else float(value[-1]) for value in call().observations])
        self.assertEqual(seen, [[5, -1], [-1, 7], [-1, None]])

    def test_one_with_two_parameters_sees_all_agents_at_once(self):
        adapter = self.adapter("beside_each_other")
        seen = []
        for call in (lambda: adapter.reset(0), lambda: adapter.step([0, 0]), lambda: adapter.step([0, 0])):
            seen.append([None if value is None else float(value[-1]) for value in call().observations])
        self.assertEqual(seen, [[7, 2], [2, 9], [1, None]])
        self.assertEqual([value is None for value in self.adapter("of_each").reset(0).observations], [False, False], "an info may have a default")
        for name, words in (("for_one_alone", "agent b.*answered None"), ("no_dict", "answered list, expected a dict of observations by agent")):
            with self.assertRaisesRegex(EnvAdapterError, words):
                self.adapter(name).reset(0)

    def test_without_a_space_of_its_own_the_environments_stays(self):
        plain = recognize.adapt("mine", Dicts(SCRIPT), False)
        adapter = self.adapter("doubled")
        self.assertEqual(adapter.description, plain.description)
        np.testing.assert_array_equal(adapter.reset(0).observations[1], 2 * obs(2))
        self.assertIsNone(adapter.usual_parts(), "there is no short way past it")

    def test_a_class_is_made_for_each_environment(self):
        first, second = self.adapter("Counts"), self.adapter("Counts")
        first.reset(0)
        self.assertEqual([float(value[0]) for value in second.reset(0).observations], [1, 2])

    def test_what_is_no_function_or_answers_nothing_is_an_error(self):
        for name, words in (("NotCallable", "expected a method __call__"), ("nobody", "is no attribute of module"),
                            ("badly_declared", "observation_space of agent a: ")):
            with self.assertRaisesRegex(EnvAdapterError, words):
                self.adapter(name)
        with self.assertRaisesRegex(EnvAdapterError, "agent a.*answered None"):
            self.adapter("nothing").reset(0)


@unittest.skipIf(np is None, "needs numpy")
class BatchTest(unittest.TestCase):
    """What a function that says who trains is told."""

    def test_a_batch_has_no_arrays(self):
        question = {"updates": 3, "env_steps": 20, "infos": {"win": 0.5},
                    "policies": [{"id": "main", "rows": 30, "agents": {"a": 20, "b": 10}}, {"id": "old", "rows": 10, "agents": {"b": 10}}]}
        batch = function_host.Batch(question, question["policies"][1])
        self.assertEqual((batch.updates, batch.env_steps, batch.rows, batch.policies, batch.agents, batch.infos),
                         (3, 20, 10, {"main": 30, "old": 10}, {"b": 10}, {"win": 0.5}))


if __name__ == "__main__":
    unittest.main()
