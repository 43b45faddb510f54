"""RLlib's and Gymnasium's forms behind the adapters, with scripted environments that need NumPy alone."""

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
    from fake_envs import BOX, Countdown, Dicts, Env, Gym, Lists, Parallel, obs, row, shown

    from troupe.env_adapters import EnvAdapterError, spaces
    from troupe.env_adapters.recognize import adapt

NO = {"a": False, "b": False}


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class RllibTest(unittest.TestCase):
    def test_the_new_form(self):
        env = Dicts(
            [
                ({"a": obs(1)}, {}),
                ({"b": obs(2)}, {"a": 1.0}, {"__all__": False}, {"__all__": False}, {}),
                (
                    {"a": obs(3), "b": obs(4)},
                    {"a": 1.0, "b": 2.0},
                    {"a": True, "__all__": False},
                    {"__all__": False},
                    {},
                ),
                ({"b": obs(5)}, {"b": 1.0}, {"a": True, "b": False, "__all__": False}, {"__all__": True}, {}),
            ]
        )
        adapter = adapt("x", env)
        adapter.reset(1)
        self.assertEqual(shown(adapter.step([0, None])), row([None, 2], [1, 0], ["", ""]))
        self.assertEqual(shown(adapter.step([None, 1])), row([3, 4], [1, 2], ["T", ""]))
        self.assertEqual(shown(adapter.step([None, 2])), row([None, 5], [0, 1], ["", ""], "C"))
        self.assertEqual(env.actions, [{"a": 0}, {"b": 1}, {"b": 2}])

    def test_a_space_that_is_not_supported_says_which_are(self):
        for how, what in ({"space": fake.Text()}, "observation"), ({"action": fake.Text()}, "action"):
            words = f"the {what} space is Text, which is not supported, expected Box, Discrete, .* Dict or Tuple, or a dict"
            self.assertRaisesRegex(EnvAdapterError, words, adapt, "x", Gym([(obs(1), {})], **how))

    def test_the_old_form(self):
        both = {"a": obs(1), "b": obs(2)}
        limit = {"TimeLimit.truncated": True}
        for dones, infos, expected in [
            ({"a": True, "__all__": False}, {}, (["T", ""], "")),
            ({"a": True, "__all__": False}, {"a": limit}, (["C", ""], "")),
            ({"__all__": True}, {}, (["", ""], "T")),
            ({"a": True, "b": True, "__all__": True}, {}, (["T", "T"], "T")),
            ({"__all__": True}, {"a": limit, "b": limit}, (["C", "C"], "C")),
            ({"a": True, "__all__": True}, {"b": limit}, (["T", "C"], "T")),
            ({"__all__": True}, {"__common__": limit}, (["", ""], "C")),
        ]:
            with self.subTest(dones=dones, infos=infos):
                adapter = adapt("x", Dicts([both, (both, {"a": None, "b": 1}, dones, infos)]))
                adapter.reset(1)
                result = shown(adapter.step([0, 0]))
                self.assertEqual((result["ended"], result["all"]), expected)
                self.assertEqual(result["rewards"], [0, 1])

    def test_all_is_required(self):
        both = {"a": obs(1), "b": obs(2)}
        for step, what in [((both, {}, NO, {}), "dones"), ((both, {}, NO, NO, {}), "terminated flags")]:
            adapter = adapt("x", Dicts([both, step]))
            adapter.reset(1)
            self.assertRaisesRegex(
                EnvAdapterError, f"environment x, step 1: {what} lack the key '__all__'", adapter.step, [0, 0]
            )

    def test_agents_and_spaces_where_they_may_stand(self):
        both = {"a": obs(1), "b": obs(2)}
        action = fake.Discrete(3)

        def variant(**attributes):
            env = Dicts([both])
            for name in ("possible_agents", "observation_space", "action_space"):
                delattr(env, name)
            for name, value in attributes.items():
                setattr(env, name, value)
            return env

        other = fake.Discrete(2)
        by_agent, actions = {"a": BOX, "b": BOX}, {"a": action, "b": other}
        variants = [
            variant(observation_space=by_agent, action_space=actions),
            variant(observation_space=fake.Dict(by_agent), action_space=fake.Dict(actions)),
            variant(observation_spaces=by_agent, action_spaces=actions),
            variant(get_agent_ids=lambda: {"b", "a"}, get_observation_space=by_agent.get, get_action_space=actions.get),
            variant(_agent_ids={"b", "a"}, observation_space=BOX, action_space=actions),
            variant(observation_space=BOX, action_space=actions),
        ]
        for i, env in enumerate(variants):
            with self.subTest(i):
                agents = adapt("x", env).description.agents
                self.assertEqual(
                    [(a.id, a.observation_space["type"], a.action_space["n"]) for a in agents],
                    [("a", "Box", 3), ("b", "Box", 2)],
                )

        class MultiAgentEnv(Dicts):
            pass

        env = MultiAgentEnv([both])
        del env.possible_agents
        env.observation_space = fake.Dict({"x": BOX, "y": BOX})
        env.script = [{"a": {"x": obs(1), "y": obs(2)}}]
        self.assertEqual(
            [a.observation_space["type"] for a in adapt("x", env).description.agents],
            ["Dict"],
            "a shared Dict space, not one by agent",
        )

    def test_masks_and_state_in_the_observation(self):
        space = fake.Dict(
            {
                "obs": fake.Box(0, 255, (2,), np.uint8),
                "action_mask": fake.Box(0, 1, (5,), np.int8),
                "state": fake.Box(0, 255, (3,), np.uint8),
            }
        )

        def value(mask):
            return {
                "obs": np.array([1, 2], np.uint8),
                "action_mask": np.array(mask, np.int8),
                "state": np.array([7, 8, 9], np.uint8),
            }

        steps = [
            {"a": value([1, 0, 1, 0, 0])},
            ({"a": value([0, 0, 1, 0, 0])}, {}, {"__all__": False}, {"__all__": False}, {}),
        ]
        env = Dicts(steps, agents=("a",), space=space, action=fake.MultiDiscrete([2, 3]))
        adapter = adapt("x", env)
        agent = adapter.description.agents[0]
        self.assertEqual(
            (agent.observation_space["type"], agent.observation_space["dtype"], agent.has_action_mask),
            ("Box", "uint8", True),
        )
        self.assertEqual(
            (
                adapter.description.state_kind,
                adapter.description.state_space["shape"],
                adapter.description.state_space["dtype"],
            ),
            ("per_agent", [3], "int32"),
        )
        result = adapter.reset(1)
        self.assertEqual(
            (result.observations[0].tolist(), result.action_masks[0].tolist(), result.states[0].tolist()),
            ([1, 2], [1, 0, 1, 0, 0], [7, 8, 9]),
        )
        with self.assertRaisesRegex(
            EnvAdapterError, "environment x, agent a, step 1: the action mask forbids everything in bytes 0 to 1"
        ):
            adapter.step([np.array([0, 0])])
        for bad, message in [
            (value([1, 1]), r"agent a, step 1: the action mask is array\(\[1, 1\]"),
            ({"obs": obs(1)}, "agent a, step 1: the observation lacks the key 'action_mask'"),
            (3, "the observation is no dict"),
        ]:
            env.script = [steps[0], ({"a": bad}, {}, {"__all__": False}, {"__all__": False}, {})]
            adapter.reset(1)
            self.assertRaisesRegex(EnvAdapterError, message, adapter.step, [np.array([0, 0])])
        env.script = [steps[0], ({"a": value([0] * 5)}, {}, {"__all__": True}, {"__all__": False}, {})]
        adapter.reset(1)
        self.assertEqual(
            adapter.step([np.array([0, 0])]).action_masks[0].tolist(), [0] * 5, "nobody acts after the end"
        )
        without = adapt(
            "x", Dicts(steps, agents=("a",), space=space, action=fake.MultiDiscrete([2, 3])), global_state=False
        )
        self.assertEqual(
            (without.description.state_kind, without.description.agents[0].observation_space["type"]),
            ("none", "Box"),
            "a state that nobody asks for is no observation either",
        )
        self.assertEqual((without.reset(1).observations[0].tolist(), without.reset(1).states), ([1, 2], []))

    def test_masks_states_and_agent_masks_in_infos(self):
        both = {"a": obs(1), "b": obs(2)}
        go = {"__all__": False}
        infos = {"a": {"action_mask": np.array([1, 0, 1]), "state": obs(3), "agent_mask": True}, "b": {"state": obs(4)}}
        later = {"a": {"state": obs(5), "agent_mask": False}, "b": {"state": obs(6), "action_mask": [0, 0, 1]}}
        adapter = adapt(
            "x", Dicts([(both, infos), (both, {}, go, go, later), (both, {}, go, go, {"a": {"state": obs(5)}})])
        )
        self.assertEqual(
            (
                adapter.description.state_kind,
                adapter.description.has_agent_mask,
                [a.has_action_mask for a in adapter.description.agents],
            ),
            ("per_agent", True, [True, True]),
        )
        result = adapter.reset(1)
        self.assertEqual([m.tolist() for m in result.action_masks], [[1, 0, 1], [1, 1, 1]])
        self.assertEqual(([float(s[0]) for s in result.states], result.agent_active), ([3, 4], [True, True]))
        result = adapter.step([0, 0])
        self.assertEqual([m.tolist() for m in result.action_masks], [[1, 1, 1], [0, 0, 1]])
        self.assertEqual(([float(s[0]) for s in result.states], result.agent_active), ([5, 6], [False, True]))
        self.assertRaisesRegex(EnvAdapterError, "agent b, step 2: the info holds no state", adapter.step, [0, 0])
        for key, common in [("__common__", {"state": obs(7)}), ("__all__", {"state": obs(7)}), ("state", obs(7))]:
            adapter = adapt(
                "x", Dicts([(both, {key: common, "agent_mask": {"a": True, "b": False}}), (both, {}, go, go, {})])
            )
            result = adapter.reset(1)
            self.assertEqual(
                (adapter.description.state_kind, float(result.states[0][0]), result.agent_active),
                ("per_env", 7, [True, False]),
            )
            self.assertRaisesRegex(EnvAdapterError, "step 1: infos hold no state", adapter.step, [0, 0])


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class GymnasiumTest(unittest.TestCase):
    def test_one_agent(self):
        env = Gym([(obs(1), {}), (obs(2), 1.5, False, False, {}), (obs(3), 1, False, True, {})])
        adapter = adapt("x", env)
        self.assertEqual([a.id for a in adapter.description.agents], ["agent_0"])
        self.assertEqual(shown(adapter.reset(4)), row([1], [0], [""]))
        self.assertEqual(shown(adapter.step([2])), row([2], [1.5], [""]))
        self.assertEqual(shown(adapter.step([2])), row([3], [1], ["C"], "C"))
        self.assertEqual((env.seeds, env.actions), ([0, 4], [2, 2]))

    def test_the_old_form(self):
        for info, end in [({}, "T"), ({"TimeLimit.truncated": False}, "T"), ({"TimeLimit.truncated": True}, "C")]:
            adapter = adapt("x", Gym([obs(1), (obs(2), 1.0, True, info)]))
            adapter.reset(1)
            self.assertEqual(shown(adapter.step([0])), row([2], [1], [end], end))
        adapter = adapt("x", Gym([obs(1), (obs(2), 1.0)]))
        adapter.reset(1)
        self.assertRaisesRegex(EnvAdapterError, "environment x, step 1: step returned a tuple of 2", adapter.step, [0])

    def test_lists(self):
        for lists in (False, True):
            env = Lists(
                [
                    ((obs(1), obs(2)), {}),
                    ([obs(3), obs(4)], [1, 0.5], False, False, {}),
                    ([obs(5), obs(6)], 2.0, [True, False], [False, False], {}),
                    ([obs(7), obs(8)], [0, 1], [True, True], [False, False], {}),
                ],
                lists=lists,
            )
            adapter = adapt("x", env)
            self.assertEqual(shown(adapter.reset(1)), row([1, 2], [0, 0], ["", ""]))
            self.assertEqual(shown(adapter.step([1, 2])), row([3, 4], [1, 0.5], ["", ""]))
            self.assertEqual(shown(adapter.step([1, 3])), row([5, 6], [2, 2], ["T", ""]))
            self.assertEqual(shown(adapter.step([None, 3])), row([None, 8], [0, 1], ["", "T"], "T"))
            self.assertEqual(env.actions, [[1, 2], [1, 3], [1, 3]] if lists else [(1, 2), (1, 3), (1, 3)])
        adapter = adapt("x", Lists([((obs(1), obs(2)), {}), ([obs(3), obs(4)], 1.0, False, True, {})]))
        adapter.reset(1)
        self.assertEqual(shown(adapter.step([1, 1])), row([3, 4], [1, 1], ["C", "C"], "C"))

    def test_a_list_whose_ends_differ_is_no_truncated_episode(self):
        adapter = adapt("x", Lists([((obs(1), obs(2)), {}), ([obs(3), obs(4)], 1.0, [True, False], [False, True], {})]))
        adapter.reset(1)
        self.assertEqual(shown(adapter.step([1, 1])), row([3, 4], [1, 1], ["T", "C"], "T"))

    def test_who_ended_alone_keeps_a_place_in_the_list(self):
        action = fake.Dict(
            {"b": fake.Discrete(2, 5), "a": fake.MultiDiscrete([2, 2], [1, 3]), "c": fake.Box(-1, 1, (1,))}
        )
        both = (obs(1), obs(2))
        env = Lists([(both, {}), (both, 0, [True, False], False, {}), (both, 0, False, False, {})], action=action)
        adapter = adapt("x", env)
        adapter.reset(1)
        adapter.step(["mine", "yours"])
        adapter.step([None, "yours"])
        filler = env.actions[-1][0]
        self.assertEqual((filler["a"].tolist(), filler["b"], filler["c"].tolist()), ([1, 3], 5, [0.0]))
        self.assertEqual(env.actions[-1][1], "yours")

    def test_infos_of_lists(self):
        first = (obs(1), obs(2))
        infos = {"action_mask": [[1, 0, 1], [1, 1, 1]], "state": obs(9), "agent_mask": [1, 0], "goals": [1, 2]}
        env = Lists(
            [
                (first, infos),
                (first, 0, False, False, {**infos, "goals": 3}),
                (first, 0, False, False, [{"goals": 5}, {"state": obs(1)}]),
            ]
        )
        env.info_columns = ["goals"]
        adapter = adapt("x", env)
        result = adapter.reset(1)
        self.assertEqual([m.tolist() for m in result.action_masks], [[1, 0, 1], [1, 1, 1]])
        self.assertEqual(
            (adapter.description.state_kind, float(result.states[0][0]), result.agent_active, result.infos),
            ("per_env", 9, [True, False], [{"goals": 1.0}, {"goals": 2.0}]),
        )
        self.assertEqual(adapter.step([1, 1]).infos, [{"goals": 3.0}, {"goals": 3.0}])
        self.assertRaisesRegex(EnvAdapterError, "step 2: infos hold no state", adapter.step, [1, 1])

    def test_lists_that_are_too_short(self):
        first = (obs(1), obs(2))
        for step, message in [
            (([obs(1)], 0, False, False, {}), "the observations are a list of 1, expected a list of 2"),
            ((first, [1], False, False, {}), "the rewards are a list of 1"),
            ((first, 0, [True], False, {}), "the terminated flags are a list of 1"),
            ((3, 0, False, False, {}), "the observations are int"),
        ]:
            adapter = adapt("x", Lists([(first, {}), step]))
            adapter.reset(1)
            self.assertRaisesRegex(EnvAdapterError, "environment x, step 1: " + message, adapter.step, [1, 1])

    def test_a_list_called_agents_makes_no_other_kind(self):
        """What reset gives and what the spaces are by decides."""
        both = fake.Dict({"left": BOX, "right": BOX})
        one, two = (obs(1), {}), ({"left": obs(1), "right": obs(2)}, {})
        three = fake.Discrete(3)

        class NoGym(Dicts):
            possible_agents: list

        for kind in (Gym, NoGym):
            for first, space, action, agents in [
                (one, BOX, three, ["hunter", "prey"]),
                (one, BOX, three, [np.zeros(2), np.ones(2)]),
                (one, BOX, three, [object()]),
                (two, both, three, ["hunter", "prey"]),
                (two, both, fake.Dict({"left": three, "right": three}), ["hunter", "prey"]),
            ]:
                with self.subTest(kind=kind, space=space, agents=agents):
                    env = kind([first], space=space, action=action)
                    env.__dict__.pop("possible_agents", None)
                    env.agents = agents
                    described = adapt("x", env).description.agents
                    self.assertEqual([a.id for a in described], ["agent_0"])
                    self.assertEqual(described[0].observation_space, spaces.describe(space))
            shared = fake.Dict({"x": BOX, "y": BOX})
            for first, space in [(two, BOX), (({"right": {"x": obs(1), "y": obs(2)}}, {}), shared)]:
                with self.subTest(kind=kind, space=space):
                    env = kind([first], space=space)
                    env.possible_agents = ["left", "right"]
                    described = adapt("x", env).description.agents
                    self.assertEqual([a.id for a in described], ["left", "right"])
                    self.assertEqual(described[0].observation_space, spaces.describe(space))

    def test_tuples_of_one_agent_are_one_agents(self):
        env = Lists([((obs(1), obs(2)), {}), ((obs(3), obs(4)), 1.0, False, False, {})])
        del env.n_agents
        adapter = adapt("x", env)
        self.assertEqual([a.observation_space["type"] for a in adapter.description.agents], ["Tuple"])
        adapter.reset(1)
        self.assertEqual(adapter.step([(1, 1)]).rewards, [1.0])

    def test_a_wrappers_attribute_makes_several_agents_of_tuples(self):
        class Wrapper(Env):
            """Gymnasium's since 1.0: it hands on spaces, not other attributes."""

            def __init__(self, env, **attributes):
                self.env, self.observation_space, self.action_space = env, env.observation_space, env.action_space
                self.reset, self.step = env.reset, env.step
                for name, value in attributes.items():
                    setattr(self, name, value)

            @property
            def unwrapped(self):
                return getattr(self.env, "unwrapped", self.env)

        script = [((obs(1), obs(2)), {}), ((obs(3), obs(4)), [1.0, 2.0], False, False, {})]
        for wrap in (
            lambda env: Wrapper(env, n_agents=2),
            lambda env: Wrapper(Wrapper(env, n_agents=2)),
            lambda env: Wrapper(Wrapper(Wrapper(env), num_agents=2)),
        ):
            env = Lists(script)
            del env.n_agents
            adapter = adapt("x", wrap(env))
            self.assertEqual([a.id for a in adapter.description.agents], ["agent_0", "agent_1"])
            adapter.reset(1)
            self.assertEqual(adapter.step([1, 1]).rewards, [1, 2])

    def test_a_list_of_rewards_of_one_agent_says_how_it_becomes_several(self):
        env = Lists([((obs(1), obs(2)), {}), ((obs(3), obs(4)), [1.0, 2.0], False, False, {})])
        del env.n_agents
        adapter = adapt("x", env)
        adapter.reset(1)
        words = r"the reward is \[1.0, 2.0\], expected one number or None; its spaces are Tuples of 2: with an attribute n_agents .* 2 agents"
        self.assertRaisesRegex(EnvAdapterError, words, adapter.step, [(1, 1)])


class Battle:
    """As StarCraft2Env of SMAC: no spaces, no seed for reset, (reward, terminated, info) of a step. `allowed` by step and agent."""

    battles_won = 0

    def __init__(self, allowed, ends=({},)):
        self.allowed, self.ends, self.actions, self.at = allowed, ends, [], 0

    def get_env_info(self):
        return {"state_shape": 2, "obs_shape": 1, "n_actions": 3, "n_agents": 2, "episode_limit": 120}

    def seed(self):
        return 7

    def get_obs(self):
        return [obs(10 * self.at + i) for i in range(2)]

    def get_state(self):
        return np.array([self.at, 0.5])

    def get_avail_actions(self):
        return self.allowed[self.at]

    def reset(self):
        self.at = 0
        return self.get_obs(), self.get_state()

    def step(self, actions):
        self.actions.append(actions)
        self.at += 1
        over = self.at == len(self.allowed) - 1
        return 1.5, over, {"battle_won": False, "dead_allies": 0, **(self.ends[0] if over else {})}


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class SmacTest(unittest.TestCase):
    BOTH, DEAD = [0, 1, 1], [1, 0, 0]

    def test_masks_state_and_who_is_dead(self):
        env = Battle([[self.BOTH, self.BOTH], [[0, 1, 0], self.DEAD], [self.BOTH, self.DEAD]], [{"battle_won": True}])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            adapter = adapt("x", env)
        self.assertRegex(str(said[0].message), "takes no seed")
        self.assertIs(adapter.env, env)
        told = adapter.description
        self.assertEqual((told.state_kind, told.state_space["shape"], told.has_agent_mask, told.max_episode_steps), ("per_env", [2], True, 120))
        self.assertEqual(told.info_columns, ["battle_won", "dead_allies", "dead_enemies"])
        first = adapter.reset(1)
        self.assertEqual([mask.tolist() for mask in first.action_masks], [self.BOTH, self.BOTH])
        self.assertEqual((first.agent_active, first.states[0].tolist(), first.observations[1].tolist()), ([True, True], [0, 0.5], [1]))
        second = adapter.step([1, 2])
        self.assertEqual([mask.tolist() for mask in second.action_masks], [[0, 1, 0], self.DEAD])
        self.assertEqual((second.agent_active, second.states[0].tolist(), second.rewards), ([True, False], [1, 0.5], [1.5, 1.5]))
        self.assertEqual(second.infos, [None, None], "of the episode: its last step says it")
        last = adapter.step([1, 0])
        self.assertEqual((last.all_terminated, last.all_truncated, last.infos[0]), (True, False, {"battle_won": 1.0, "dead_allies": 0.0}))
        self.assertEqual(env.actions, [[1, 2], [1, 0]])

    def test_own_columns_count_in_each_step(self):
        class Own(Battle):
            metadata = {"info_columns": ["kills"]}

            @property
            def battles_won(self):
                raise AttributeError

        self.assertEqual(adapt("x", Own([[self.BOTH] * 2] * 2)).description.info_columns, ["kills"])

    def test_a_limit_truncates(self):
        adapter = adapt("x", Battle([[self.BOTH] * 2] * 2, [{"episode_limit": True}]), global_state=False)
        self.assertEqual(adapter.description.state_kind, "none")
        adapter.reset(1)
        result = adapter.step([1, 1])
        self.assertEqual((result.all_terminated, result.all_truncated, result.truncated), (False, True, [True, True]))


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class KindTest(unittest.TestCase):
    """What is said of the kind that an environment is taken for."""

    def test_every_kind_has_words(self):
        tuples = Lists([((obs(1), obs(2)), {})])
        del tuples.n_agents
        uneven = Gym([((obs(1), obs(2)), {})], space=fake.Tuple([BOX] * 2), action=fake.Tuple([fake.Discrete(3)] * 3))
        for env, words in (
            (Parallel([{"a": obs(1), "b": obs(2)}]), "PettingZoo parallel, 2 agents"),
            (Countdown(), "PettingZoo AEC, 3 agents"),
            (Dicts([({"a": obs(1)}, {})]), "RLlib MultiAgentEnv, 2 agents"),
            (Gym([(obs(1), {})]), "Gymnasium, 1 agent"),
            (uneven, "Gymnasium, 1 agent"),
            (tuples, "Gymnasium, 1 agent (its spaces are Tuples of 2: with an attribute n_agents it has 2 agents)"),
            (Lists([((obs(1), obs(2)), {})]), "Gymnasium with lists, 2 agents"),
            (Lists([((obs(1), obs(2)), {})], lists=True), "Gymnasium with lists, 2 agents"),
            (Battle([[[1, 1, 1]] * 2]), "SMAC, 2 agents"),
        ):
            with self.subTest(words):
                self.assertEqual(adapt("x", env).description.recognized_as, words)


if __name__ == "__main__":
    unittest.main()
