"""The adapters with environments of others, beside the environments themselves; each test needs its package
installed.
"""

import importlib.util
import os
import sys
import unittest
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), HERE]


def installed(*packages):
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    return unittest.skipUnless(not missing, f"{', '.join(missing)} not installed")


if importlib.util.find_spec("numpy") is not None:
    import numpy as np

    from troupe.env_adapters import EnvAdapterError, make_adapter
    from troupe.env_adapters.recognize import adapt
    from troupe.env_adapters.spaces import SpaceCodec


def flat(adapter, i, value):
    codec = SpaceCodec(adapter.description.agents[i].observation_space)
    row = np.empty(codec.flat_size, dtype=codec.flat_dtype)
    codec.flatten_into(value, row)
    return row


class PackageTest(unittest.TestCase):
    def setUp(self):
        caught = warnings.catch_warnings()
        caught.__enter__()
        warnings.simplefilter("ignore")  # packages warn of their own dependencies
        self.addCleanup(caught.__exit__, None, None, None)

    def adapter(self, name, **args):
        adapter = make_adapter(name, args)
        self.addCleanup(adapter.close)
        return adapter


@installed("numpy", "pettingzoo", "pygame")
class AecRecordTest(PackageTest):
    # Squares are numbered down the columns. An observation is [3, 3, 2]: own marks, the other's; flattened, square s
    # has 2 s and 2 s + 1.
    # (who acts, square, who is observed then, ones of its row, forbidden squares)
    MOVES = [
        (None, None, 0, [], []),
        (0, 0, 1, [1], [0]),
        (1, 4, 0, [0, 9], [0, 4]),
        (0, 1, 1, [8, 1, 3], [0, 1, 4]),
        (1, 5, 0, [0, 2, 9, 11], [0, 1, 4, 5]),
    ]

    def test_tictactoe(self):
        adapter = self.adapter("pettingzoo.classic.tictactoe_v3")
        self.assertEqual(
            [
                (a.id, a.observation_space["shape"], a.action_space["n"], a.has_action_mask)
                for a in adapter.description.agents
            ],
            [("player_1", [3, 3, 2], 9, True), ("player_2", [3, 3, 2], 9, True)],
        )
        for _ in range(2):  # the second episode is like the first
            for mover, square, seen, ones, forbidden in self.MOVES:
                result = (
                    adapter.reset(1)
                    if mover is None
                    else adapter.step([square if i == mover else None for i in range(2)])
                )
                self.assertIsNone(result.observations[1 - seen])
                self.assertEqual(np.flatnonzero(flat(adapter, seen, result.observations[seen])).tolist(), sorted(ones))
                self.assertEqual(np.flatnonzero(result.action_masks[seen] == 0).tolist(), forbidden)
                self.assertEqual(
                    (result.rewards, result.terminated, result.truncated), ([0, 0], [False, False], [False, False])
                )
                self.assertFalse(result.all_terminated or result.all_truncated)
            result = adapter.step([2, None])
            self.assertEqual(
                [np.flatnonzero(flat(adapter, i, result.observations[i])).tolist() for i in range(2)],
                [[0, 2, 4, 9, 11], [1, 3, 5, 8, 10]],
            )
            self.assertEqual(
                (result.rewards, result.terminated, result.truncated), ([1, -1], [True, True], [False, False])
            )
            self.assertEqual((result.all_terminated, result.all_truncated), (True, False))

    def test_an_illegal_move_loses(self):
        adapter = self.adapter("pettingzoo.classic.tictactoe_v3")
        adapter.reset(1)
        adapter.step([4, None])
        result = adapter.step([None, 4])
        self.assertEqual((result.rewards, result.terminated, result.all_terminated), ([0, -1], [True, True], True))

    def test_connect_four_masks_full_columns(self):
        adapter = self.adapter("pettingzoo.classic.connect_four_v3")
        result = adapter.reset(1)
        for move in range(6):
            self.assertEqual(result.action_masks[move % 2].tolist(), [1] * 7)
            result = adapter.step([3 if i == move % 2 else None for i in range(2)])
        self.assertEqual(result.action_masks[0].tolist(), [1, 1, 1, 0, 1, 1, 1])


@installed("numpy", "pettingzoo", "mpe2")
class MpeTest(PackageTest):
    def test_parallel_is_the_environment_itself(self):
        import mpe2

        for module, args in [
            ("simple_spread_v3", {"N": 2, "max_cycles": 7}),
            ("simple_tag_v3", {"max_cycles": 7}),
            ("simple_spread_v3", {"max_cycles": 7, "continuous_actions": True}),
            ("simple_speaker_listener_v4", {"max_cycles": 7}),
        ]:
            with self.subTest(module=module, args=args):
                adapter = self.adapter(f"mpe2.{module}", **args)
                bare = importlib.import_module(f"{mpe2.__name__}.{module}").parallel_env(**args)
                codecs = [SpaceCodec(a.action_space) for a in adapter.description.agents]
                self.assertEqual(
                    (adapter.description.state_kind, adapter.description.max_episode_steps), ("per_env", 7)
                )
                random = np.random.default_rng(2)
                for seed in (3, 4):
                    result = adapter.reset(seed)
                    observations, _ = bare.reset(seed=seed)
                    for step in range(8):
                        np.testing.assert_array_equal(result.states[0], bare.state())
                        for i, agent in enumerate(bare.possible_agents):
                            np.testing.assert_array_equal(result.observations[i], observations[agent])
                        if step == 7:
                            break
                        words = [
                            random.uniform(0, 1, c.action_words).astype(np.float32).view(np.int32)
                            if c.mask_size == 0
                            else random.integers(c.mask_size, size=1, dtype=np.int32)
                            for c in codecs
                        ]
                        actions = [codec.unflatten_action(word) for codec, word in zip(codecs, words)]
                        result = adapter.step(actions)
                        observations, rewards, _, truncations, _ = bare.step(dict(zip(bare.possible_agents, actions)))
                        self.assertEqual(result.rewards, [rewards[agent] for agent in bare.possible_agents])
                        self.assertEqual(result.truncated, [truncations[agent] for agent in bare.possible_agents])
                    self.assertEqual((result.all_truncated, result.all_terminated, bare.agents), (True, False, []))

    def test_agents_in_turn_get_what_they_get_together(self):
        together, in_turn = (
            self.adapter("mpe2.simple_spread_v3", max_cycles=5),
            self.adapter("mpe2.simple_spread_v3:env", max_cycles=5),
        )
        together.reset(9)
        in_turn.reset(9)
        returns = np.zeros((2, 3))
        for step in range(5):
            actions = [step % 5, (step + 1) % 5, 4]
            returns[0] += together.step(actions).rewards
            for i in range(3):
                result = in_turn.step([actions[j] if j == i else None for j in range(3)])
                returns[1] += result.rewards
        self.assertEqual((result.all_truncated, result.truncated), (True, [True] * 3))
        np.testing.assert_allclose(returns[1], returns[0], rtol=1e-12)


@installed("numpy", "pettingzoo")
class PettingZooTest(PackageTest):
    def generated(self, module):
        """PettingZoo's example of agents that come and go, which draws new spaces at every reset; here with spaces that
        stay and agents that are named.
        """
        from gymnasium import spaces

        example = importlib.import_module(f"pettingzoo.test.example_envs.{module}")

        class Declared(getattr(example, "parallel_env", None) or example.raw_env):
            possible_agents = [f"type{kind}_{i}" for kind in range(3) for i in range(90)]

            def add_type(self):
                name = f"type{len(self.types) % 3}"
                if name not in self.types:
                    self.types.append(name)
                    self._obs_spaces[name], self._act_spaces[name] = spaces.Box(0, 1, (4,)), spaces.Discrete(3)
                    self._agent_counters[name] = 0
                return name

        return Declared()

    def test_generated_agents(self):
        for module in ("generated_agents_parallel_v0", "generated_agents_env_v0"):
            with self.subTest(module):
                adapter = adapt(module, self.generated(module))
                seen = set()
                for seed in range(3):
                    result = adapter.reset(seed)
                    first = {i for i, o in enumerate(result.observations) if o is not None}
                    for _ in range(200):  # one of the two never ends
                        ready = [
                            o is not None and not t and not c
                            for o, t, c in zip(result.observations, result.terminated, result.truncated)
                        ]
                        seen |= {i for i, r in enumerate(ready) if r}
                        result = adapter.step([0 if r else None for r in ready])
                        if result.all_terminated or result.all_truncated:
                            break
                    self.assertGreater(len(seen), len(first) + 2, "agents came later")
                    seen.clear()

    def test_agents_that_nobody_named(self):
        adapter = self.adapter("pettingzoo.test.example_envs.generated_agents_parallel_v0")
        with self.assertRaisesRegex(EnvAdapterError, "unknown agent 'type._.*needs possible_agents|space changed from"):
            result = adapter.reset(0)
            for _ in range(100):
                result = adapter.step([None if o is None else 0 for o in result.observations])


@installed("numpy", "gymnasium")
class GymnasiumTest(PackageTest):
    def test_a_time_limit_truncates(self):
        adapter = self.adapter("gymnasium:Pendulum-v1", max_episode_steps=3)
        self.assertEqual(adapter.description.max_episode_steps, 3)
        adapter.reset(1)
        for _ in range(3):
            result = adapter.step([np.zeros(1, np.float32)])
        self.assertEqual(
            (result.truncated, result.terminated, result.all_truncated, result.all_terminated),
            ([True], [False], True, False),
        )

    def test_cartpole_is_the_environment_itself(self):
        import gymnasium

        adapter, bare = self.adapter("gymnasium:CartPole-v1"), gymnasium.make("CartPole-v1")
        self.assertEqual(adapter.description.max_episode_steps, 500)
        result = adapter.reset(3)
        np.testing.assert_array_equal(result.observations[0], bare.reset(seed=3)[0])
        while not result.all_terminated:
            result = adapter.step([1])
            observation, reward, terminated, _, _ = bare.step(1)
            np.testing.assert_array_equal(result.observations[0], observation)
            self.assertEqual((result.rewards, result.terminated), ([reward], [terminated]))

    def test_an_id_that_is_unknown(self):
        with self.assertRaisesRegex(
            EnvAdapterError,
            "'CartPol-v1' is no attribute of module gymnasium and no id that Gymnasium knows, did you mean CartPole-v1",
        ):
            make_adapter("gymnasium:CartPol-v1", {})


@installed("numpy", "gymnasium")
class ExampleTest(PackageTest):
    def test_corridor(self):
        """examples/python/corridor.py: two walkers who go straight to their goals, the second enters a step later."""
        adapter = self.adapter(
            os.path.join(HERE, "../../examples/python/corridor.py:Corridor"), num_walkers=2, length=3
        )
        result = adapter.reset(1)
        entered, ended, total = [], [], 0.0
        for step in range(5):
            ready = [i for i, o in enumerate(result.observations) if o is not None and not result.terminated[i]]
            entered += [(i, step) for i in ready if i not in [agent for agent, _ in entered]]
            cells = [result.observations[i][:2] if i in ready else None for i in range(2)]
            actions = [None if cell is None else 1 + int(np.sign(cell[1] - cell[0])) for cell in cells]
            distance = [0 if cell is None else round(2 * abs(cell[1] - cell[0])) for cell in cells]
            result = adapter.step(actions)
            total += sum(result.rewards)
            for i in ready:
                self.assertEqual(result.terminated[i], distance[i] == 1)
                self.assertIn(round(result.rewards[i], 3), (0.9, 0.4) if distance[i] == 1 else (-0.1, -0.6))
                if result.terminated[i]:
                    ended.append(i)
            if result.all_terminated:
                break
        self.assertTrue(result.all_terminated)
        self.assertEqual((entered, sorted(ended)), ([(0, 0), (1, 1)], [0, 1]))


class ListPackage:
    """A package whose environments have lists, beside the bare environment."""

    def test_is_the_environment_itself(self):
        import gymnasium

        adapter, bare = self.adapter(self.NAME), gymnasium.make(self.NAME.partition(":")[2], disable_env_checker=True)
        self.assertEqual([(a.id, a.action_space["n"]) for a in adapter.description.agents], self.AGENTS)
        self.assertEqual(adapter.description.max_episode_steps, self.LIMIT)
        random = np.random.default_rng(1)
        for seed in (3, 4):
            result, total, done = adapter.reset(seed), 0, False
            observations, _ = bare.reset(seed=seed)
            while not done:
                for i in range(2):
                    np.testing.assert_array_equal(flat(adapter, i, result.observations[i]), observations[i])
                actions = random.integers(self.AGENTS[0][1], size=2).tolist()
                result = adapter.step(actions)
                observations, rewards, done, _, _ = bare.step(actions)
                self.assertEqual((result.rewards, result.all_terminated), (list(map(float, rewards)), done))
                total += 1
            self.assertGreater(total, 10)


@installed("numpy", "gymnasium", "lbforaging")
class LbforagingTest(ListPackage, PackageTest):
    NAME, AGENTS, LIMIT = "lbforaging:Foraging-8x8-2p-2f-coop-v3", [("agent_0", 6), ("agent_1", 6)], 50


@installed("numpy", "gymnasium", "rware")
class RwareTest(ListPackage, PackageTest):
    NAME, AGENTS, LIMIT = "rware:rware-tiny-2ag-v2", [("agent_0", 5), ("agent_1", 5)], 500


if __name__ == "__main__":
    unittest.main()
