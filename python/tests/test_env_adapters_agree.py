"""What all forms of environments have in common: rewards, ends, agents that stay after their end, states of infos."""

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
    from fake_envs import BOX, Dicts, Gym, Lists, Parallel, obs, row, shown

    from troupe.env_adapters import EnvAdapterError
    from troupe.env_adapters.recognize import adapt

GO = {"a": False, "b": False}
#: The forms in which both agents act in every step.
FORMS = ("parallel", "rllib", "rllib dones", "list", "tuple")


def make(form, steps, **more):
    """An environment of two agents, of this form. `steps`: (rewards, terminated, truncated, infos) of agents a and b, from
    the first step on. Observations are the number of the step. Agents that ended stay in what a step returns.
    """
    both = {"a": obs(0), "b": obs(0)}
    script = [(both, more.get("first_infos", {}))]
    for at, (rewards, terminated, truncated, infos) in enumerate(steps, 1):
        seen = {"a": obs(at), "b": obs(at)}
        flags = [dict(zip("ab", values)) for values in (terminated, truncated)]
        everybody = all(t or c for t, c in zip(terminated, truncated))
        if form == "rllib":
            cut = everybody and not any(terminated)
            flags[0]["__all__"], flags[1]["__all__"] = everybody and not cut, cut
        if form in ("list", "tuple"):
            rewards = None if rewards is None else [rewards[agent] for agent in "ab"]
            script.append(([obs(at), obs(at)], rewards, list(terminated), list(truncated), infos))
        elif form == "rllib dones":
            limits = {agent: {"TimeLimit.truncated": True} for agent, cut in flags[1].items() if cut}
            dones = {agent: flags[0][agent] or flags[1][agent] for agent in "ab"}
            infos = {agent: {**infos.get(agent, {}), **limits.get(agent, {})} for agent in {**infos, **limits}}
            script.append((seen, rewards or {}, {**dones, "__all__": everybody}, infos))
        else:
            script.append((seen, rewards or {}, *flags, infos))
    if form in ("list", "tuple"):
        script[0] = ((obs(0), obs(0)), more.get("first_infos", {}))
        env = Lists(script, lists=form == "list")
    elif form == "parallel":
        env = Parallel(script)
    else:
        env = Dicts(script)
    for name, value in more.items():
        setattr(env, name, value)
    return env


class Turns:
    """PettingZoo's AECEnv: a and b in turn, with the rewards and ends that `turns` say, by turn."""

    def __init__(self, turns, stays=False):
        self.possible_agents = ["a", "b"]
        self.turns, self.stays = turns, stays

    observation_space = staticmethod(lambda agent: BOX)
    action_space = staticmethod(lambda agent: fake.Discrete(3))

    def reset(self, seed=None, options=None):
        self.at, self.agents, self.agent_selection = 0, ["a", "b"], "a"
        self.pending = {"a": 0.0, "b": 0.0}
        self.ended = {"a": (False, False), "b": (False, False)}

    def observe(self, agent):
        return obs(self.at)

    def last(self):
        agent = self.agent_selection
        return (self.observe(agent), self.pending[agent], *self.ended[agent], {})

    def step(self, action):
        agent = self.agent_selection
        following = "b" if agent == "a" else "a"
        if action is None:
            if not self.stays:
                self.agents.remove(agent)
        else:
            self.pending[agent] = 0.0
            rewards, ends, *lets_go = self.turns[self.at]
            self.at += 1
            self.pending = {**self.pending, **rewards}
            self.ended = {**self.ended, **ends}
            for gone in lets_go:
                self.agents.remove(gone)
        if following in self.agents:
            self.agent_selection = following


class OneElement:
    """An array of JAX or PyTorch, as far as it is looked at: a shape and item()."""

    def __init__(self, value, shape=(1,)):
        self.shape, self._value = shape, value

    def item(self):
        return self._value

    def __float__(self):
        raise TypeError("only 0-dimensional arrays can be converted")

    def __ne__(self, other):
        raise ValueError("The truth value of an array is ambiguous")


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class RewardsTest(unittest.TestCase):
    def test_arrays_of_one_element_count_as_numbers(self):
        made = [
            lambda value: np.array([value], np.float32),
            lambda value: np.array([[value]]),
            lambda value: np.array(value),
            lambda value: np.array([int(value)]),
            OneElement,
        ]
        for how in made:
            for form in FORMS:
                with self.subTest(form=form, example=how(3.0)):
                    env = make(form, [({"a": how(value), "b": how(-value)}, *[(False, False)] * 2, {}) for value in (0.0, 3.0)])
                    adapter = adapt("x", env)
                    adapter.reset(1)
                    self.assertEqual(adapter.step([1, 1]).rewards, [0, 0])
                    self.assertEqual(adapter.step([1, 1]).rewards, [3, -3])
            with self.subTest(form="one agent", example=how(3.0)):
                adapter = adapt("x", Gym([(obs(1), {}), (obs(1), how(0.0), False, False, {}), (obs(1), how(3.0), False, False, {})]))
                adapter.reset(1)
                self.assertEqual([adapter.step([0]).rewards[:] for _ in range(2)], [[0], [3]])
            with self.subTest(form="turns", example=how(3.0)):
                adapter = adapt("x", Turns([({"b": how(3.0)}, {}), ({"a": how(0.0)}, {})]))
                adapter.reset(1)
                self.assertEqual(adapter.step([0, None]).rewards, [0, 3])
                self.assertEqual(adapter.step([None, 0]).rewards, [0, 0])

    def test_an_array_of_rewards_may_be_a_column(self):
        for rewards in (np.array([[1.0], [2.0]]), np.array([1.0, 2.0]), [np.array([1.0]), np.array([2.0])]):
            env = Lists([((obs(1), obs(2)), {}), ((obs(3), obs(4)), rewards, False, False, {})])
            adapter = adapt("x", env)
            adapter.reset(1)
            self.assertEqual(adapter.step([1, 1]).rewards, [1, 2])
        env = Lists([((obs(1), obs(2)), {}), ((obs(3), obs(4)), np.array(1.5), False, False, {})])
        adapter = adapt("x", env)
        adapter.reset(1)
        self.assertEqual(adapter.step([1, 1]).rewards, [1.5, 1.5], "everybody's")

    def test_vectors_are_refused_in_words(self):
        words = r"the reward is an array of shape \(2,\), expected one number or None; make one number of a vector of objectives"
        for vector in (np.zeros(2), np.array([1.0, 0.5])):
            for form in FORMS:
                with self.subTest(form=form, vector=vector):
                    adapter = adapt("x", make(form, [({"a": 0.0, "b": vector}, *[(False, False)] * 2, {})]))
                    adapter.reset(1)
                    agent = "agent_1" if form in ("list", "tuple") else "b"
                    self.assertRaisesRegex(EnvAdapterError, f"agent {agent}, step 1: {words}", adapter.step, [1, 1])
            adapter = adapt("x", Gym([(obs(1), {}), (obs(1), vector, False, False, {})]))
            adapter.reset(1)
            self.assertRaisesRegex(EnvAdapterError, f"agent agent_0, step 1: {words}", adapter.step, [0])
            adapter = adapt("x", Turns([({"b": vector}, {})]))
            adapter.reset(1)
            self.assertRaisesRegex(EnvAdapterError, f"agent b, step 1: {words}", adapter.step, [0, None])
        for reward in ("much", [1.0, 2.0], 1j, object(), np.array([])):
            adapter = adapt("x", Gym([(obs(1), {}), (obs(1), reward, False, False, {})]))
            adapter.reset(1)
            self.assertRaisesRegex(EnvAdapterError, "agent agent_0, step 1: the reward is .*, expected one number or None", adapter.step, [0])

    def test_zeros_of_agents_that_are_unknown_pass(self):
        for zero in (0, 0.0, None, np.float32(0), np.array([0.0])):
            adapter = adapt("x", Parallel([{"a": obs(1)}, ({"a": obs(1)}, {"c": zero}, GO, GO, {})]))
            adapter.reset(1)
            self.assertEqual(adapter.step([0, None]).rewards, [0, 0])

    def test_info_columns_may_be_arrays_of_one_element(self):
        env = Gym([(obs(1), {}), (obs(1), 0.0, False, False, {"goals": np.array([2.0])}), (obs(1), 0.0, False, False, {"goals": np.zeros(2)})])
        env.info_columns = ["goals"]
        adapter = adapt("x", env)
        adapter.reset(1)
        self.assertEqual(adapter.step([0]).infos, [{"goals": 2.0}])
        self.assertRaisesRegex(EnvAdapterError, r"step 2: info goals is an array of shape \(2,\), expected a number", adapter.step, [0])


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class EndsTest(unittest.TestCase):
    def test_both_ends_in_one_step_see_the_state_of_that_step(self):
        for form in FORMS:
            for last_terminates in (True, False):
                with self.subTest(form=form, last_terminates=last_terminates):
                    nobody, first, second = (False, False), (True, False), (False, True)
                    steps = [(None, nobody, nobody, {}), (None, *((second, first) if last_terminates else (first, second)), {})]
                    env = make(form, steps, state_space=fake.Box(0, 9, (1,)))
                    env.state = lambda env=env: obs(env.at)
                    adapter = adapt("x", env)
                    self.assertEqual(adapter.reset(1).states[0].tolist(), [0])
                    self.assertEqual(adapter.step([1, 1]).states[0].tolist(), [1])
                    result = adapter.step([1, 1])
                    self.assertEqual(shown(result), row([2, 2], [0, 0], ["C", "T"] if last_terminates else ["T", "C"], "T"))
                    self.assertEqual(result.states[0].tolist(), [2], "the truncated agent is bootstrapped from this state")

    def test_an_end_of_turns_sees_the_state_of_its_step(self):
        env = Turns([({}, {}), ({}, {"a": (True, False), "b": (False, True)})])
        env.state_space, env.state = fake.Box(0, 9, (1,)), lambda: obs(env.at)
        adapter = adapt("x", env)
        adapter.reset(1)
        adapter.step([0, None])
        result = adapter.step([None, 0])
        self.assertEqual((shown(result)["ended"], result.all_terminated, result.states[0].tolist()), (["T", "C"], True, [2]))

    def test_the_last_state_stands_in_where_nobody_is_left_to_make_one(self):
        env = make("parallel", [(None, (True, False), (False, True), {})], state_space=fake.Box(0, 9, (2,)))
        env.state = lambda: np.concatenate([obs(env.at) for agent in env.agents])
        adapter = adapt("x", env)
        adapter.reset(1)
        with self.assertWarnsRegex(UserWarning, "environment x: state\\(\\) fails after a truncation"):
            self.assertEqual(adapter.step([1, 1]).states[0].tolist(), [0, 0])

    def test_an_agent_that_an_aec_environment_lets_go_is_truncated(self):
        let_go = [({}, {}), ({}, {"a": (True, False)}, "b")]
        adapter = adapt("x", Turns(let_go))
        adapter.reset(1)
        adapter.step([0, None])
        self.assertEqual(shown(adapter.step([None, 0])), row([2, None], [0, 0], ["T", "C"], "T"))
        everybody = [({}, {}), ({}, {}, "a", "b")]
        env = Turns(everybody)
        env.state_space, env.state = fake.Box(0, 9, (1,)), lambda: obs(env.at)
        adapter = adapt("x", env)
        adapter.reset(1)
        adapter.step([0, None])
        result = adapter.step([None, 0])
        self.assertEqual((shown(result)["ended"], shown(result)["all"], result.states[0].tolist()), (["C", "C"], "C", [2]))


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class AgentsThatStayTest(unittest.TestCase):
    """An agent that ended may stay in what a step returns, while its flag says so."""

    NOBODY, FIRST, BOTH = (False, False), (True, False), (True, True)

    def test_they_are_left_out_while_their_flag_is_true(self):
        for form in FORMS:
            for ends, cuts in ((self.FIRST, self.NOBODY), (self.NOBODY, self.FIRST)):
                with self.subTest(form=form, ends=ends):
                    infos = {} if form in ("list", "tuple") else {"a": {"goals": 7}}
                    steps = [(None, ends, cuts, {}), ({"a": 0.0, "b": 1.0}, ends, cuts, infos), (None, (ends[0], True), cuts, {})]
                    adapter = adapt("x", make(form, steps, info_columns=["goals"]))
                    adapter.reset(1)
                    self.assertEqual(shown(adapter.step([1, 1])), row([1, 1], [0, 0], ["T" if ends[0] else "C", ""]))
                    result = adapter.step([None, 1])
                    self.assertEqual((shown(result), result.infos), (row([None, 2], [0, 1], ["", ""]), [None, None]))
                    self.assertEqual(shown(adapter.step([None, 1])), row([None, 3], [0, 0], ["", "T"], "T"))

    def test_without_the_flag_they_return_and_it_is_said(self):
        for form in FORMS:
            with self.subTest(form=form):
                nobody, everybody = (None, self.NOBODY, self.NOBODY, {}), (None, self.BOTH, self.NOBODY, {})
                rewarded = ({"a": 3.0, "b": 0.0}, self.NOBODY, self.NOBODY, {})
                adapter = adapt("x", make(form, [(None, self.FIRST, self.NOBODY, {}), nobody, rewarded, everybody]))
                adapter.reset(1)
                self.assertEqual(shown(adapter.step([1, 1])), row([1, 1], [0, 0], ["T", ""]))
                agent = "agent_0" if form in ("list", "tuple") else "a"
                with self.assertWarnsRegex(UserWarning, f"agent {agent} is observed after its end, in the same episode"):
                    self.assertEqual(shown(adapter.step([None, 1])), row([2, 2], [0, 0], ["", ""]))
                self.assertEqual(shown(adapter.step([1, 1])), row([3, 3], [3, 0], ["", ""]))
                self.assertEqual(shown(adapter.step([1, 1])), row([4, 4], [0, 0], ["T", "T"], "T"))

    def test_a_reward_after_the_end_is_refused(self):
        for form in FORMS:
            with self.subTest(form=form):
                steps = [(None, self.FIRST, self.NOBODY, {}), ({"a": 2.0, "b": 0.0}, self.FIRST, self.NOBODY, {})]
                adapter = adapt("x", make(form, steps))
                adapter.reset(1)
                adapter.step([1, 1])
                self.assertRaisesRegex(EnvAdapterError, "step 2: the reward 2.0 came after its end", adapter.step, [None, 1])

    def test_turns(self):
        ends = {"a": (True, False)}
        adapter = adapt("x", Turns([({}, {}), ({}, ends), ({}, {}), ({}, {"b": (True, False)})], stays=True))
        adapter.reset(1)
        adapter.step([0, None])
        self.assertEqual(shown(adapter.step([None, 0])), row([2, 2], [0, 0], ["T", ""]))
        self.assertEqual(shown(adapter.step([None, 0])), row([None, 3], [0, 0], ["", ""]))
        self.assertEqual(shown(adapter.step([None, 0])), row([None, 4], [0, 0], ["", "T"], "T"))


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class StateOfInfosTest(unittest.TestCase):
    """What infos call `state` is the global state where it can be one."""

    def test_what_is_no_array_of_numbers_is_left_alone(self):
        for value in ("MOVING", None, {"x": 1}, 3, np.float32(3), object(), [], ["a"], [[1], [2, 3]], np.array(["a"])):
            for form in FORMS:
                with self.subTest(form=form, value=value):
                    by_agent = [{"state": value}] * 2 if form in ("list", "tuple") else {agent: {"state": value} for agent in "ab"}
                    env = make(form, [(None, *[(False, False)] * 2, by_agent)], first_infos=by_agent)
                    if form in ("list", "tuple"):
                        env.script[0] = ((obs(0), obs(0)), {"state": (value, value) if value != 3 else value})
                    with self.assertWarnsRegex(UserWarning, "infos hold the key 'state' .*, which is not taken for the global state"):
                        adapter = adapt("x", env)
                    self.assertEqual(adapter.description.state_kind, "none")
                    adapter.reset(1)
                    self.assertEqual(adapter.step([1, 1]).states, [])
                    with warnings.catch_warnings():
                        warnings.simplefilter("error")
                        adapt("x", env, global_state=False).reset(1)  # nobody asks for it
            with self.subTest(form="one agent", value=value):
                env = Gym([(obs(1), {"state": value})])
                with self.assertWarnsRegex(UserWarning, "infos hold the key 'state'"):
                    self.assertEqual(adapt("x", env).description.state_kind, "none")
        with self.assertWarnsRegex(UserWarning, "infos hold the key 'state'"):
            adapter = adapt("x", Parallel([({"a": obs(1), "b": obs(2)}, {"state": "common"})]))
        self.assertEqual(adapter.description.state_kind, "none")

    def test_nor_are_arrays_of_different_shapes(self):
        infos = {"a": {"state": np.zeros(2)}, "b": {"state": np.zeros(3)}}
        with self.assertWarnsRegex(UserWarning, "expected an array of numbers, of one shape for all agents"):
            adapter = adapt("x", Parallel([({"a": obs(1), "b": obs(2)}, infos)]))
        self.assertEqual(adapter.description.state_kind, "none")

    def test_arrays_and_lists_of_numbers_are_taken(self):
        for value in (np.zeros(3), [0, 0, 0], (0.0, 0.0, 0.0), np.zeros(3, bool)):
            adapter = adapt("x", Parallel([({"a": obs(1)}, {"a": {"state": value}})]))
            self.assertEqual((adapter.description.state_kind, adapter.description.state_space["shape"]), ("per_agent", [3]))
            self.assertEqual(list(adapter.reset(1).states[0]), [0, 0, 0])
        env = Lists([((obs(1), obs(2)), {"state": [4.0, 5.0]})])
        adapter = adapt("x", env)
        self.assertEqual((adapter.description.state_kind, adapter.description.state_space["shape"]), ("per_env", [2]), "one for all")
        self.assertEqual(adapter.reset(1).states, [[4.0, 5.0]])
        env = Lists([((obs(1), obs(2)), {"state": [np.zeros(3), np.ones(3)]})])
        adapter = adapt("x", env)
        self.assertEqual((adapter.description.state_kind, adapter.description.state_space["shape"]), ("per_agent", [3]))

    def test_what_it_becomes_later_is_said_with_the_key_and_the_option(self):
        first = {agent: {"state": np.zeros(2)} for agent in "ab"}
        for later in ("MOVING", None, np.zeros(3), 4):
            for form in ("parallel", "rllib", "rllib dones"):
                with self.subTest(form=form, later=later):
                    env = make(form, [(None, *[(False, False)] * 2, {**first, "b": {"state": later}})], first_infos=first)
                    adapter = adapt("x", env)
                    adapter.reset(1)
                    words = r"agent b, step 1: the info's key 'state' is .*, expected an array of numbers of shape \(2,\).*env.python.global_state: false"
                    self.assertRaisesRegex(EnvAdapterError, words, adapter.step, [1, 1])


if __name__ == "__main__":
    unittest.main()
