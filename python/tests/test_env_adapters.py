"""PettingZoo's two forms behind the adapters, with scripted environments that need NumPy alone: what comes out, and
what bad input says.
"""

import collections
import importlib.util
import os
import sys
import unittest
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), HERE]

HAVE_NUMPY = importlib.util.find_spec("numpy") is not None
if HAVE_NUMPY:
    import fake_spaces as fake
    import numpy as np
    from fake_envs import Countdown, Parallel, Scripted, obs, row, shown

    from troupe.env_adapters import EnvAdapterError
    from troupe.env_adapters.recognize import adapt
    from troupe.env_adapters.spaces import SpaceCodec, SpaceError, to_text

NO = {"a": False, "b": False}


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class ParallelTest(unittest.TestCase):
    def test_an_episode(self):
        env = Parallel(
            [
                {"a": obs(1), "b": obs(2)},
                ({"a": obs(3), "b": obs(4)}, {"a": 1, "b": None}, NO, NO, {"a": {}, "b": {}}),
                ({"a": obs(5), "b": obs(6)}, {"a": np.float32(0.5), "b": -1}, {"a": True, "b": False}, NO, {}),
                ({"b": obs(7)}, {"b": 2.0}, {"b": False}, {"b": True}, {}),
            ]
        )
        adapter = adapt("x", env)
        self.assertEqual(
            [(a.id, a.key, a.has_action_mask) for a in adapter.description.agents],
            [("a", "a", False), ("b", "b", False)],
        )
        self.assertEqual(
            (adapter.description.state_kind, adapter.description.has_agent_mask, adapter.description.max_episode_steps),
            ("none", False, 0),
        )
        for seed in (5, 6):
            self.assertEqual(shown(adapter.reset(seed)), row([1, 2], [0, 0], ["", ""]))
            self.assertEqual(shown(adapter.step([0, 1])), row([3, 4], [1, 0], ["", ""]))
            self.assertEqual(shown(adapter.step([1, 2])), row([5, 6], [0.5, -1], ["T", ""]))
            self.assertEqual(shown(adapter.step([None, 2])), row([None, 7], [0, 2], ["", "C"], "C"))
        self.assertEqual(env.seeds, [0, 5, 6])
        self.assertEqual(env.actions[:3], [{"a": 0, "b": 1}, {"a": 1, "b": 2}, {"b": 2}])
        with self.assertRaisesRegex(EnvAdapterError, "environment x, step 3: step after the end"):
            adapter.step([None, 0])
        adapter.close()
        adapter.close()
        self.assertEqual(env.closes, 1)

    def test_all_ends_the_episode_in_this_form_too(self):
        seen = {"a": obs(1), "b": obs(2)}
        for terminated, truncated, end in [
            ({**NO, "__all__": True}, NO, "T"),
            (NO, {**NO, "__all__": True}, "C"),
            (NO, {"__all__": True}, "C"),
        ]:
            with self.subTest(end=end, truncated=truncated):
                adapter = adapt("x", Parallel([seen, (seen, {}, terminated, truncated, {})]))
                adapter.reset(1)
                result = adapter.step([0, 0])
                self.assertEqual((result.all_terminated, result.all_truncated), (end == "T", end == "C"))

    def test_agents_come_late_wait_and_end_without_acting(self):
        env = Parallel(
            [
                {1: obs(1)},
                ({(0, "x"): obs(2)}, {1: 3.0, "c": 0}, {1: False}, {1: False}, {}),
                ({1: obs(4), "c": obs(5)}, {1: 1.0}, {"c": True}, {}, {}),
                ({}, {(0, "x"): 9.0}, {1: True, (0, "x"): True}, {(0, "x"): True}, {}),
            ],
            agents=(1, (0, "x"), "c", "never"),
        )
        adapter = adapt("x", env)
        self.assertEqual([a.id for a in adapter.description.agents], ["1", "(0, 'x')", "c", "never"])
        adapter.reset(1)
        self.assertEqual(shown(adapter.step([2, None, None, None])), row([None, 2, None, None], [3, 0, 0, 0], [""] * 4))
        self.assertEqual(
            shown(adapter.step([None, 1, None, None])), row([4, None, 5, None], [1, 0, 0, 0], ["", "", "T", ""])
        )
        self.assertEqual(
            shown(adapter.step([1, None, None, None])), row([None] * 4, [0, 9, 0, 0], ["T", "T", "", ""], "T")
        )

    def test_a_reward_before_the_first_action_is_handed_on(self):
        adapter = adapt("x", Parallel([{"a": obs(1)}, ({"b": obs(1)}, {"b": 4.0}, NO, NO, {})]))
        adapter.reset(1)
        result = adapter.step([0, None])
        self.assertEqual((result.rewards, adapter.dropped_rewards), ([0, 4], 0))

    def test_infos(self):
        class WithInfos(Parallel):
            metadata = {"info_columns": ["goals", "other"]}

        env = WithInfos(
            [
                ({"a": obs(1), "b": obs(2)}, {"a": {"goals": 0}}),
                (
                    {"a": obs(1), "b": obs(2)},
                    {},
                    NO,
                    NO,
                    {"a": {"goals": np.int64(2), "text": "x"}, "b": {"other": 0.5, "goals": None}},
                ),
                ({"a": obs(1), "b": obs(2)}, {}, NO, NO, {"a": {"goals": "many"}}),
            ]
        )
        adapter = adapt("x", env)
        self.assertEqual(adapter.description.info_columns, ["goals", "other"])
        self.assertEqual(adapter.reset(1).infos, [{"goals": 0.0}, None])
        self.assertEqual(adapter.step([0, 0]).infos, [{"goals": 2.0}, {"other": 0.5}])
        with self.assertRaisesRegex(
            EnvAdapterError, "environment x, agent a, step 2: info goals is 'many', expected a number"
        ):
            adapter.step([0, 0])

    def test_infos_may_be_any_kind_of_dict(self):
        class Info(dict):
            pass

        env = Parallel([({"a": obs(1)}, {"a": Info(action_mask=np.array([1, 0, 1], np.int8))})], agents=("a",))
        adapter = adapt("x", env)
        self.assertTrue(adapter.description.agents[0].has_action_mask)
        self.assertEqual(adapter.reset(1).action_masks[0].tolist(), [1, 0, 1])

    def test_state_of_the_environment(self):
        class WithState(Parallel):
            state_space = fake.Box(0, 9, (2,))

            def state(self):
                return np.array([self.at, 7.0])

        script = [{"a": obs(1), "b": obs(2)}, ({"a": obs(1), "b": obs(2)}, {}, NO, NO, {})]
        adapter = adapt("x", WithState(script))
        self.assertEqual((adapter.description.state_kind, adapter.description.state_space["shape"]), ("per_env", [2]))
        self.assertEqual(adapter.reset(1).states[0].tolist(), [0, 7])
        self.assertEqual(adapter.step([0, 0]).states[0].tolist(), [1, 7])
        without = adapt("x", WithState(script), global_state=False)
        self.assertEqual((without.description.state_kind, without.reset(1).states), ("none", []))

    def test_state_after_the_end_of_an_episode(self):
        class WithState(Parallel):
            state_space = fake.Box(0, 9, (2,))
            asked = 0

            def state(self):
                self.asked += 1
                return np.concatenate([obs(self.at) for agent in self.agents])  # nobody is left: an error

        both, go = {"a": obs(1), "b": obs(2)}, {"a": False, "b": False}
        ends = {"a": True, "b": True}
        env = WithState([both, (both, {}, go, go, {}), (both, {}, ends, go, {})])
        adapter = adapt("x", env)
        self.assertEqual(adapter.reset(1).states[0].tolist(), [0, 0])
        self.assertEqual(adapter.step([0, 0]).states[0].tolist(), [1, 1])
        asked = env.asked
        result = adapter.step([0, 0])
        self.assertTrue(result.all_terminated)
        self.assertEqual((env.asked, result.states[0].tolist()), (asked, [1, 1]), "nobody reads the state of a terminated episode")
        # The value of what a truncation cut off is the critic's, who sees the last state there was.
        adapter = adapt("x", WithState([both, (both, {}, go, go, {}), (both, {}, go, ends, {})]))
        adapter.reset(1)
        adapter.step([0, 0])
        with self.assertWarnsRegex(UserWarning, "environment x: state\\(\\) fails after a truncation .ValueError"):
            self.assertEqual(adapter.step([0, 0]).states[0].tolist(), [1, 1])

    def test_what_is_wrong_is_said(self):
        first = {"a": obs(1), "b": obs(2)}
        cases = [
            (
                ({"c": obs(1)}, {}, {}, {}, {}),
                "environment x, step 1: observations hold the unknown agent 'c', expected one of a, b",
            ),
            (({}, {"c": 1.0}, {}, {}, {}), "rewards hold the unknown agent 'c'"),
            (({}, {}, {"c": True}, {}, {}), "terminations hold the unknown agent 'c'"),
            (({"a": None}, {}, {}, {}, {}), "agent a, step 1: the observation is None"),
            (({}, {"a": float("nan")}, {}, {}, {}), "agent a, step 1: the reward is nan, expected a finite number"),
            (({}, {"b": np.float32(np.inf)}, {}, {}, {}), "agent b, step 1: the reward is inf"),
            (({}, {"a": "much"}, {}, {}, {}), "agent a, step 1: the reward is 'much'"),
            (([], {}, {}, {}, {}), "step 1: step's observations are list, expected a dict"),
            (({}, {}, {}, [1], {}), "step 1: step's truncated flags are list"),
            (({}, {}, {}), "step 1: step returned a tuple of 3"),
            (
                ({}, {}, {}, {}, {"a": {"action_mask": [1, 1, 1]}}),
                "agent a, step 1: infos hold an action_mask, but held none at the first reset",
            ),
            (
                ({}, {}, {}, {}, {"a": {"agent_mask": False}}),
                "agent a, step 1: infos hold an agent_mask, but held none",
            ),
        ]
        for step, message in cases:
            with self.subTest(message):
                adapter = adapt("x", Parallel([first, step]))
                adapter.reset(1)
                self.assertRaisesRegex(EnvAdapterError, message, adapter.step, [0, 0])
        for step, message in [
            (({"b": obs(1)}, {"a": 1.0}, {}, {}, {}), "agent a, step 2: the reward 1.0 came after its end"),
        ]:
            adapter = adapt("x", Parallel([first, ({"b": obs(1)}, {}, {"a": True}, {}, {}), step]))
            adapter.reset(1)
            adapter.step([0, 0])
            with self.assertRaisesRegex(EnvAdapterError, message):
                adapter.step([None, 0])
        self.assertRaisesRegex(
            EnvAdapterError,
            "environment x, step 0: step after the end of the episode .or before reset.",
            adapt("x", Parallel([first])).step,
            [0, 0],
        )

    def test_an_environment_that_cannot_be_used_is_closed(self):
        first = {"a": obs(1), "b": obs(2)}
        cases = [
            (Parallel([first], agents=(1, "1")), "the agents 1 and '1' have the same text '1'"),
            (Parallel([first], agents=()), "it has no agents"),
            (Parallel([first], space=fake.Text()), "agent a, observation space: a space of kind Text is not supported"),
            (Parallel([first], action=fake.Discrete(0)), "agent a, action space: Discrete.0"),
            (Parallel([{}]), "step 0: reset observed no agent"),
            (Parallel([{"c": obs(1)}]), "step 0: observations hold the unknown agent 'c'"),
            (Parallel([((), {})]), "step 0: reset returned tuple, expected a dict"),
            (Scripted([1]), "Scripted has no observation spaces: expected an attribute observation_space"),
        ]
        lacking = Parallel([first])
        del lacking.spaces["b"]
        cases.append((lacking, "agent b: its action space is missing .KeyError: 'b'"))
        for env, message in cases:
            with self.subTest(message):
                self.assertRaisesRegex(EnvAdapterError, message, adapt, "x", env)
                self.assertEqual(env.closes, 1)

    def test_what_is_cut_is_cut_in_ascii(self):
        """Logs escape everything else."""
        many = [f"agent_{i}" for i in range(20)]
        adapter = adapt("x", Parallel([{agent: obs(1) for agent in many}, ({"c": obs(1)}, {}, {}, {}, {})], agents=many))
        adapter.reset(1)
        with self.assertRaisesRegex(EnvAdapterError, r"expected one of agent_0, .*, agent_7, \.\.\.$") as caught:
            adapter.step([0] * 20)
        self.assertTrue(str(caught.exception).isascii())
        codec = SpaceCodec(adapter.description.agents[0].action_space)
        with self.assertRaisesRegex(SpaceError, r"got 'x{79}\.\.\. \(str\), expected an integer"):
            codec.flatten_into("x" * 1000, np.zeros(3, np.float32))

    def test_agents_without_an_order_are_sorted(self):
        env = Parallel([{"b": obs(1), "a10": obs(2)}], agents=("b", "a10", "a9", "c"))
        env.possible_agents = {"b", "a10", "a9", "c"}
        self.assertEqual([a.id for a in adapt("x", env).description.agents], ["b", "c", "a9", "a10"])

    def test_a_list_of_possible_agents_is_enough(self):
        class Plain(Scripted):
            possible_agents = ["a", "b"]
            observation_space = staticmethod(lambda agent: fake.Box(-9, 9, (1,)))
            action_space = staticmethod(lambda agent: fake.Discrete(3))

        script = [({"a": obs(1), "b": obs(2)}, {})]
        script += [({"a": obs(3)}, {"a": 1, "b": 2}, {"a": False, "b": True}, NO, {})]
        script += [({"a": obs(5)}, {"a": 1}, {"a": True}, {"a": False}, {})]
        adapter = adapt("x", Plain(script))
        self.assertEqual(shown(adapter.reset(1)), row([1, 2], [0, 0], ["", ""]))
        self.assertEqual(shown(adapter.step([0, 1])), row([3, None], [1, 2], ["", "T"]))
        self.assertEqual(shown(adapter.step([0, None])), row([5, None], [1, 0], ["T", ""], "T"))

        del Plain.possible_agents
        with self.assertRaisesRegex(EnvAdapterError, "Plain has methods observation_space and action_space, but says .* expected a list possible_agents"):
            adapt("x", Plain(script))

    def test_spaces_may_be_known_after_a_reset_only(self):
        class Late(Parallel):
            def reset(self, seed=None, options=None):
                self.known = True
                return super().reset(seed)

            def observation_space(self, agent):
                return super().observation_space(agent) if self.known else self.size

        env = Late([{"a": obs(1), "b": obs(2)}])
        env.known = False
        self.assertEqual(len(adapt("x", env).description.agents), 2)
        never = Late([{"a": obs(1), "b": obs(2)}])
        never.known, never.reset = False, lambda seed=None: 1 / 0
        self.assertRaisesRegex(EnvAdapterError, "agent a: its observation space is missing .*'size'", adapt, "x", never)

    def test_a_first_observation_says_what_no_space_does(self):
        class Bare(Parallel):
            def observation_space(self, agent):
                return self.observation_spaces[agent]  # as PettingZoo's base class: there are none

        env = Bare([{"a": np.zeros((2, 3)), "b": np.zeros((4, 5, 1), np.uint8)}])
        with self.assertWarnsRegex(UserWarning, r"agent a declares no observation space: .* Box\(-inf, inf, \[2, 3\]\)"):
            adapter = adapt("x", env)
        self.assertEqual(
            [to_text(agent.observation_space) for agent in adapter.description.agents],
            ["Box(-inf, inf, [2, 3])", "Box(0, 255, [4, 5, 1], uint8)"],
        )
        adapter.reset(1)
        for first in ({"a": "text", "b": obs(2)}, {"a": obs(1)}):
            agent = "a" if len(first) == 2 else "b"
            with self.subTest(first), self.assertRaisesRegex(EnvAdapterError, f"agent {agent}: its observation space is missing .AttributeError"):
                adapt("x", Bare([first]))

    def test_spaces_named_otherwise(self):
        """crafter's, without Gym."""
        BoxSpace = collections.namedtuple("BoxSpace", "low, high, shape, dtype")
        DiscreteSpace = collections.namedtuple("DiscreteSpace", "n")
        env = Parallel([{"a": obs(1), "b": obs(2)}], space=BoxSpace(-9, 9, (1,), np.float32), action=DiscreteSpace(4))
        agent = adapt("x", env).description.agents[0]
        self.assertEqual((to_text(agent.observation_space), to_text(agent.action_space)), ("Box(-9, 9, [1])", "Discrete(4)"))

    def test_spaces_that_change(self):
        env = Parallel([{"a": obs(1), "b": obs(2)}])
        adapter = adapt("x", env)
        env.spaces["b"] = (fake.Box(-9, 9, (1,)), fake.Discrete(3))
        adapter.reset(1)  # another object, the same space
        env.spaces["b"] = (fake.Box(-9, 9, (2,)), fake.Discrete(3))
        with self.assertRaisesRegex(
            EnvAdapterError,
            r"agent b, step 0: its observation space changed from Box\(-9, 9, \[1\]\) to Box\(-9, 9, \[2\]\)",
        ):
            adapter.reset(1)


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class AecTest(unittest.TestCase):
    def setUp(self):
        caught = warnings.catch_warnings()
        caught.__enter__()
        warnings.simplefilter("ignore")
        self.addCleanup(caught.__exit__, None, None, None)

    def play(self, adapter, actions, players=3):
        """The rows of an episode; an action goes to whoever is ready."""
        rows = [shown(adapter.reset(3))]
        for action in actions:
            ready = [i for i, o in enumerate(rows[-1]["obs"]) if o is not None and not rows[-1]["ended"][i]]
            self.assertEqual(len(ready), 1)
            rows.append(shown(adapter.step([action if i == ready[0] else None for i in range(players)])))
        return rows

    def test_record(self):
        env = Countdown(heap=6)
        adapter = adapt("nim", env)
        self.assertEqual(
            [a.id for a in adapter.description.agents], ["('player', 0)", "('player', 1)", "('player', 2)"]
        )
        self.assertTrue(all(a.has_action_mask for a in adapter.description.agents))
        self.assertEqual(
            self.play(adapter, [2, 3, 1]),
            [
                row([6, None, None], [0, 0, 0], ["", "", ""]),
                row([None, 4, None], [0, 0, 0], ["", "", ""]),
                row([None, None, 1], [0, 0, 2], ["", "", ""]),  # before its first action
                row([0, 0, 0], [-1, -1, 5], ["T", "T", "T"], "T"),
            ],
        )
        self.assertEqual(adapter.dropped_rewards, 0)
        # Player 1 takes too much and leaves; the 2 that player 0 gives player 2 then counts, since it has acted.
        self.assertEqual(
            self.play(adapt("nim", Countdown(heap=7)), [1, 1, 1, 3, 2, 3, 1]),
            [
                row([7, None, None], [0, 0, 0], ["", "", ""]),
                row([None, 6, None], [0, 0, 0], ["", "", ""]),
                row([None, None, 5], [0, 0, 0], ["", "", ""]),
                row([4, None, None], [0, 0, 0], ["", "", ""]),
                row([None, 1, None], [0, 2, 0], ["", "", ""]),
                row([None, 1, 1], [0, -3, 0], ["", "T", ""]),
                row([1, None, 1], [0, 0, -3], ["", "", "T"]),
                row([0, None, None], [5, 0, 0], ["T", "", ""], "T"),
            ],
        )
        self.assertEqual(env.seeds, [0, 3])

    def test_masks_and_infos_come_with_the_turn(self):
        adapter = adapt("nim", Countdown(heap=2))
        result = adapter.reset(1)
        self.assertEqual([None if m is None else m.tolist() for m in result.action_masks], [[1, 1, 1], None, None])
        self.assertEqual(result.infos, [{"heap": 2.0}, None, None])
        result = adapter.step([1, None, None])
        self.assertEqual([None if m is None else m.tolist() for m in result.action_masks], [None, [1, 0, 1], None])
        self.assertEqual(result.infos, [None, {"heap": 1.0}, None])

    def test_a_limit_truncates_everybody_who_was_seen(self):
        rows = self.play(adapt("nim", Countdown(heap=9, limit=2)), [1, 1])
        self.assertEqual(rows[-1], row([7, 7, None], [0, 0, 0], ["C", "C", ""], "C"))

    def test_what_is_wrong_is_said(self):
        adapter = adapt("nim", Countdown())
        adapter.reset(1)
        self.assertRaisesRegex(
            EnvAdapterError,
            r"environment nim, agent \('player', 0\), step 1: got no action, though it is its turn",
            adapter.step,
            [None, 1, 1],
        )
        adapter = adapt("nim", Countdown(heap=1, leaves=False))
        adapter.reset(1)
        with self.assertRaisesRegex(EnvAdapterError, "has its turn again after its end"):
            adapter.step([1, None, None])

        class Forbids(Countdown):
            def last(self):
                return super().last()[:4] + ({"action_mask": [0, 0, int(self.heap > 3)]},)

        adapter = adapt("nim", Forbids(heap=4))
        adapter.reset(1)
        with self.assertRaisesRegex(
            EnvAdapterError, r"agent \('player', 1\), step 1: the action mask forbids everything in bytes 0 to 2"
        ):
            adapter.step([1, None, None])


if __name__ == "__main__":
    unittest.main()
