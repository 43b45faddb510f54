"""Agents by pattern: who gets which slot, and what is refused."""

import os
import sys
import unittest
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

try:
    import fake_spaces as fake
    import numpy as np

    from troupe.env_adapters import EnvAdapterError
    from troupe.env_adapters.recognize import adapt

    HAVE_NUMPY = True
except ModuleNotFoundError:
    HAVE_NUMPY = False


def obs(value):
    return np.array([value], dtype=np.float32)


class Road:
    """Cars pass a light: `plan` says by step who is observed and who ends. RLlib's form, or PettingZoo's."""

    def __init__(self, plan, agents=("light", "car_*"), sizes=None):
        self.possible_agents = list(agents)
        if sizes is not None:
            self.pool_sizes = sizes
        self.plan, self.given, self.agents = plan, [], []
        self.observation_spaces = {agent: fake.Box(0, 99, (1,)) for agent in agents}
        self.action_spaces = {agent: fake.Discrete(3) for agent in agents}

    def reset(self, *, seed=None, options=None):
        self.at, self.given = 0, []
        return {agent: obs(0) for agent in self.plan[0][0]}, {}

    def step(self, actions):
        self.given.append(dict(actions))
        self.at += 1
        observed, ended, *rest = self.plan[self.at]
        rewards = rest[0] if rest else {}
        terminated = {**{agent: True for agent in ended}, "__all__": self.at + 1 == len(self.plan)}
        return {agent: obs(self.at) for agent in observed}, rewards, terminated, {"__all__": False}, {agent: {"fuel": self.at} for agent in observed}


class RllibRoad(Road):
    observation_space = action_space = None


class ParallelRoad(Road):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.agents = ["somebody"]
        self.observation_space, self.action_space = self.observation_spaces.__getitem__, self.action_spaces.__getitem__


ROADS = (RllibRoad, ParallelRoad)


def seen(result):
    """Step of each slot's observation; None: none."""
    return [None if value is None else int(value[0]) for value in result.observations]


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class AgentPoolsTest(unittest.TestCase):
    def test_slots_are_named_by_number_and_known_to_everybody(self):
        for road in ROADS:
            adapter = adapt("road", road([(["light"], [])], sizes={"car_*": 3}))
            self.assertEqual([agent.id for agent in adapter.description.agents], ["light", "car_0", "car_1", "car_2"])
            self.assertIn("4 agents, car_* a pool of 3", adapter.description.recognized_as)
        self.assertEqual(len(adapt("road", RllibRoad([(["light"], [])])).description.agents), 65)

    def test_who_comes_takes_the_first_free_slot(self):
        plan = [
            (["light", "car_17"], []),
            (["light", "car_17", "car_9"], [], {"car_17": 1.0}),
            (["light", "car_17", "car_9"], ["car_17"], {"car_17": 2.0}),
            (["light", "car_9", "car_17"], ["car_17"]),  # it stays in the dicts
            (["light", "car_9", "car_400"], [], {"car_9": 3.0}),
            (["light", "car_9", "car_400", "car_17"], ["car_9"]),  # car_17 comes once more
            (["light", "car_400", "car_17"], []),
        ]
        for road in ROADS:
            with self.subTest(road=road.__name__), warnings.catch_warnings():
                warnings.simplefilter("error")  # nobody is told that agents of a pool return
                env = road(plan, sizes={"car_*": 3})
                adapter = adapt("road", env)
                for _ in range(2):
                    self.assertEqual(seen(adapter.reset(1)), [0, 0, None, None])
                    result = adapter.step([1, 1, None, None])
                    self.assertEqual((seen(result), result.rewards), ([1, 1, 1, None], [0, 1, 0, 0]))
                    result = adapter.step([1, 2, 0, None])
                    self.assertEqual((seen(result), result.rewards, result.terminated), ([2, 2, 2, None], [0, 2, 0, 0], [False, True, False, False]))
                    self.assertEqual(env.given[-1], {"light": 1, "car_17": 2, "car_9": 0})
                    result = adapter.step([1, None, 0, None])
                    self.assertEqual((seen(result), result.terminated), ([3, None, 3, None], [False] * 4))
                    result = adapter.step([1, None, 0, None])
                    self.assertEqual((seen(result), result.rewards), ([4, 4, 4, None], [0, 0, 3, 0]))
                    result = adapter.step([1, 2, 1, None])
                    self.assertEqual((seen(result), result.terminated), ([5, 5, 5, 5], [False, False, True, False]))
                    self.assertEqual(env.given[-1], {"light": 1, "car_400": 2, "car_9": 1})
                    result = adapter.step([1, 2, None, 0])
                    self.assertEqual(env.given[-1], {"light": 1, "car_400": 2, "car_17": 0})

    def test_more_than_there_is_room_for_is_refused(self):
        plan = [(["car_a", "car_b"], []), (["car_a", "car_b", "car_c"], [])]
        adapter = adapt("road", RllibRoad(plan, sizes={"car_*": 2}))
        adapter.reset(1)
        words = r"'car_c' came, but all 2 slots of 'car_\*' are taken \(one is free from the step after .* pool_sizes = \{'car_\*': N\} \(at most 1024"
        self.assertRaisesRegex(EnvAdapterError, words, adapter.step, [None, 0, 0])

    def test_who_fits_no_pattern_is_unknown(self):
        for key in ("bus_1", "car_"):
            adapter = adapt("road", RllibRoad([(["light"], []), (["light", key], [])]))
            adapter.reset(1)
            self.assertRaisesRegex(EnvAdapterError, f"observations hold the unknown agent '{key}'", adapter.step, [0] + [None] * 64)

    def test_bad_patterns_and_sizes_are_refused(self):
        for agents, sizes, words in (
            (("car_*", "c*"), None, r"'car_\*' and 'c\*' overlap"),
            (("car_*", "*_1"), None, "overlap"),
            (("car_*", "car_7"), None, r"'car_\*' and 'car_7' overlap"),
            (("a*b*",), None, r"several \*"),
            (("car_*",), {"bus_*": 3}, r"pool_sizes has 'bus_\*', expected a pattern among the agents"),
            (("car_*",), {"car_*": 0}, r"pool_sizes has 0 for 'car_\*', expected a whole number from 1 to 1024"),
            (("car_*",), {"car_*": 1025}, "1025"),
            (("car_*",), {"car_*": "many"}, "'many'"),
        ):
            with self.subTest(words):
                self.assertRaisesRegex(EnvAdapterError, words, adapt, "road", RllibRoad([(agents[:1], [])], agents=agents, sizes=sizes))
        fine = ("car_*", "bus_*", "car")
        adapt("road", RllibRoad([(["car"], [])], agents=fine))

    def test_a_wrapped_observation_function_sees_who_has_the_slot(self):
        from troupe.env_adapters.observed import ObservedAdapter

        told = []

        def observe(observation, agent, info):
            told.append(agent)
            return observation

        adapter = ObservedAdapter(adapt("road", RllibRoad([(["light", "car_17"], [])], sizes={"car_*": 2})), "observe", observe)
        adapter.reset(1)
        self.assertEqual(told, ["light", "car_17"])


class TurnsOnTheRoad:
    """PettingZoo's AECEnv: a car ends, and another one comes into its slot."""

    possible_agents = ["light", "car_*"]
    pool_sizes = {"car_*": 1}
    observation_space = staticmethod(lambda agent: fake.Box(0, 99, (1,)))
    action_space = staticmethod(lambda agent: fake.Discrete(3))

    def reset(self, seed=None, options=None):
        self.at, self.cars, self.agents, self.agent_selection = 0, 1, ["light", "car_1"], "light"
        self.terminations = {"light": False, "car_1": False}
        self.truncations = dict(self.terminations)

    def observe(self, agent):
        return obs(self.at)

    def last(self):
        agent = self.agent_selection
        return self.observe(agent), 0.0, self.terminations[agent], self.truncations[agent], {}

    def step(self, action):
        agent = self.agent_selection
        if action is None:
            self.agents.remove(agent)
            if self.cars < 3 and agent != "light":
                self.cars += 1
                self.agents.append(f"car_{self.cars}")
                self.terminations[self.agents[-1]] = self.truncations[self.agents[-1]] = False
        else:
            self.at += 1
            if agent != "light":
                self.terminations[agent] = True
                self.terminations["light"] = self.cars == 3
        if len(self.agents) > 1:
            self.agent_selection = next(other for other in self.agents if other != agent)
        elif self.agents:
            self.agent_selection = self.agents[0]


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class TurnsTest(unittest.TestCase):
    def test_agents_of_a_pool_take_turns(self):
        adapter = adapt("road", TurnsOnTheRoad())
        result, rows = adapter.reset(1), []
        while not (result.all_terminated or result.all_truncated):
            rows.append((seen(result), list(result.terminated)))
            result = adapter.step([None if value is None else 0 for value in result.observations])
        ends = sum(row[1][1] for row in rows) + result.terminated[1]
        self.assertEqual(ends, 3, rows)


if __name__ == "__main__":
    unittest.main()
