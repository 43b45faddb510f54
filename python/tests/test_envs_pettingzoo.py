"""Native environments as PettingZoo's: PettingZoo's own tests for every one, and what they do not look at."""

import importlib.util
import os
import pickle
import sys
import unittest
import warnings

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, ROOT)

HAVE_PETTINGZOO = importlib.util.find_spec("pettingzoo") is not None
if HAVE_PETTINGZOO:
    import numpy as np
    from gymnasium import spaces as gym_spaces
    from pettingzoo.test import api_test, max_cycles_test, parallel_api_test, parallel_seed_test, seed_test

    import troupe
    from troupe import envs

# What PettingZoo's tests say of environments that keep its rules all the same: unbounded observations, agents that differ, masks.
TOLERATED = ("Agent's minimum observation space value is -infinity", "Agent's maximum observation space value is infinity",
             "Observation is not a NumPy array", "Observation space for each agent probably should be", "Observation numpy array is all zeros",
             "We recommend agents to be named", "Observations are different shapes", "Agents have different observation space sizes",
             "The class of observation spaces is different", "The class of action spaces is different", "Observation is a single number",
             "Action space for each agent probably should be", "Observations between agents are different classes",
             "Action mask is not a NumPy array", "Agent's minimum observation space value", "Agent's maximum observation space value",
             "Agent's maximum and minimum observation space values are equal", "Observations have different number of dimensions",
             "Agent was given")


def broken_on_purpose(name):
    return name == "testing/faulty"


def simultaneous(name):
    """Whether all agents act in every step of some random episodes, so that the environment has a parallel form."""
    env = troupe.env(name)
    try:
        for seed in range(5):
            observations, infos = env.reset(seed)
            while env.agents:
                observations, _, _, _, infos = env.step({agent: env.action_space(agent).sample(infos[agent].get("action_mask")) for agent in env.agents})
    except RuntimeError as error:
        if "use troupe.aec_env" not in str(error):
            raise
        return False
    finally:
        env.close()
    return True


@unittest.skipUnless(HAVE_PETTINGZOO, "needs PettingZoo (pip install numpy gymnasium pettingzoo)")
class PettingZooTest(unittest.TestCase):
    def setUp(self):
        catcher = warnings.catch_warnings()
        catcher.__enter__()
        self.addCleanup(catcher.__exit__, None, None, None)
        warnings.simplefilter("error")
        for message in TOLERATED:
            warnings.filterwarnings("ignore", message=message)

    def test_its_own_tests_for_every_environment(self):
        parallel = []
        for name in envs.environments():
            if broken_on_purpose(name):
                continue
            with self.subTest(name):
                api_test(troupe.aec_env(name), num_cycles=200)
                seed_test(lambda: troupe.aec_env(name), num_cycles=200)
                if simultaneous(name):
                    parallel.append(name)
                    parallel_api_test(troupe.env(name), num_cycles=300)
                    parallel_seed_test(lambda: troupe.env(name), num_cycles=200)
        for name in ("mpe/simple_spread", "cartpole", "rock_paper_scissors"):
            self.assertIn(name, parallel)
        self.assertNotIn("testing/turn_based", parallel)
        for name in parallel:
            if name.startswith("mpe/"):
                max_cycles_test(envs.module(name))

    def test_with_options(self):
        for args in ({"continuous_actions": True}, {"benchmark_data": True, "N": 5}, {"num_agent_neighbors": 1}):
            parallel_api_test(troupe.env("mpe/simple_spread", **args), num_cycles=60)
            api_test(troupe.env("mpe/simple_spread", aec=True, **args), num_cycles=60)
        for state in ("none", "per_env", "per_agent"):
            api_test(troupe.aec_env("testing/turn_based", state=state), num_cycles=60)


@unittest.skipUnless(HAVE_PETTINGZOO, "needs PettingZoo (pip install numpy gymnasium pettingzoo)")
class ParallelTest(unittest.TestCase):
    def test_an_episode_of_simple_spread(self):
        env = troupe.env("mpe/simple_spread", N=2, max_cycles=2, benchmark_data=True)
        observations, infos = env.reset(seed=3)
        self.assertEqual(infos, {"agent_0": {}, "agent_1": {}}, "a reset gives none")
        self.assertEqual(env.agents, ["agent_0", "agent_1"])
        self.assertEqual(env.observation_space("agent_0"), gym_spaces.Box(-np.inf, np.inf, (12,), np.float32))
        self.assertEqual(env.action_space("agent_0"), gym_spaces.Discrete(5))
        np.testing.assert_array_equal(env.state(), np.concatenate(list(observations.values())))
        self.assertTrue(env.state_space.contains(env.state()))
        kept = observations["agent_0"].copy()
        first = env.step({"agent_0": 2, "agent_1": np.int64(0)})
        np.testing.assert_array_equal(observations["agent_0"], kept, "an observation is the caller's own")
        self.assertEqual(first[2], {"agent_0": False, "agent_1": False})
        self.assertLess(first[1]["agent_0"], 0)
        self.assertEqual(sorted(first[4]["agent_0"]), sorted(env._columns))
        last = env.step({"agent_0": 2, "agent_1": 0})
        self.assertEqual(last[3], {"agent_0": True, "agent_1": True})
        self.assertEqual(last[2], {"agent_0": False, "agent_1": False})
        self.assertEqual(env.agents, [])
        env.close()
        env.close()

    def test_seeds(self):
        env, other = troupe.env("mpe/simple_spread"), troupe.env("mpe/simple_spread")
        first = env.reset(seed=5)[0]["agent_0"]
        second = env.reset()[0]["agent_0"]
        self.assertFalse(np.array_equal(first, second), "the next episode")
        np.testing.assert_array_equal(other.reset(seed=5)[0]["agent_0"], first)
        np.testing.assert_array_equal(other.reset()[0]["agent_0"], second)
        np.testing.assert_array_equal(env.reset(seed=5)[0]["agent_0"], first)
        self.assertFalse(np.array_equal(troupe.env("mpe/simple_spread").reset()[0]["agent_0"], troupe.env("mpe/simple_spread").reset()[0]["agent_0"]),
                         "without a seed every environment has its own")

    def test_agents_that_end_alone_leave(self):
        env = troupe.env("cartpole", num_agents=2)
        sizes = []
        for seed in range(10):
            env.reset(seed)
            while env.agents:
                observations, rewards, terminations, truncations, _ = env.step({agent: int(agent.endswith("0")) for agent in env.agents})
                sizes.append(len(observations))
                self.assertEqual(list(rewards), list(observations))
                self.assertEqual(env.agents, [agent for agent in observations if not terminations[agent] and not truncations[agent]])
        self.assertEqual(sorted(set(sizes)), [1, 2], "one fell before the other")
        with self.assertRaisesRegex(ValueError, "got an action of .*, expected those of nobody"):
            env.step({"x": 0})

    def test_errors(self):
        env = troupe.env("mpe/simple_spread")
        env.reset(0)
        with self.assertRaisesRegex(ValueError, "got no action of agent agent_2, expected those of agent_0, agent_1, agent_2"):
            env.step({"agent_0": 0, "agent_1": 0})
        with self.assertRaisesRegex(ValueError, "got an action of wolf, expected"):
            env.step({"agent_0": 0, "agent_1": 0, "agent_2": 0, "wolf": 1})
        with self.assertRaisesRegex(ValueError, r"agent agent_1: action 'left' does not fit Discrete\(5\)"):
            env.step({"agent_0": 0, "agent_1": "left", "agent_2": 0})
        with self.assertRaisesRegex(envs.NativeEnvError, "agent agent_1, step 1: action outside"):
            env.step({"agent_0": 0, "agent_1": 5, "agent_2": 0})
        with self.assertRaisesRegex(ValueError, "render_mode is 'human', expected None"):
            troupe.env("mpe/simple_spread", render_mode="human")
        with self.assertRaisesRegex(NotImplementedError, "has no global state"):
            rock = troupe.env("rock_paper_scissors")
            rock.reset()
            rock.state()
        with self.assertRaises(AttributeError):
            troupe.environment

    def test_a_waiting_agent_is_an_error_that_names_the_other_form(self):
        env = troupe.env("testing/turn_based")
        with self.assertRaisesRegex(RuntimeError, "waits for its turn, but in a ParallelEnv .* use troupe.aec_env"):
            _, infos = env.reset(0)
            for _ in range(20):
                _, _, _, _, infos = env.step({agent: env.action_space(agent).sample(infos[agent].get("action_mask")) for agent in env.agents})

    def test_pickled_it_is_made_again(self):
        env = pickle.loads(pickle.dumps(troupe.env("mpe/simple_spread", N=2)))
        self.assertEqual(env.possible_agents, ["agent_0", "agent_1"])
        env.reset(1)


@unittest.skipUnless(HAVE_PETTINGZOO, "needs PettingZoo (pip install numpy gymnasium pettingzoo)")
class AECTest(unittest.TestCase):
    def test_turns_rewards_and_masks(self):
        env = troupe.aec_env("testing/turn_based")
        env.reset(seed=1)
        selected, total = [], {}
        for agent in env.agent_iter():
            observation, reward, terminated, truncated, info = env.last()
            total[agent] = total.get(agent, 0) + reward
            selected.append(agent)
            if terminated or truncated:
                env.step(None)
                continue
            self.assertTrue(env.observation_space(agent).contains(observation), agent)
            if "action_mask" in info:
                np.testing.assert_array_equal(observation["action_mask"], info["action_mask"])
                self.assertEqual(info["action_mask"].dtype, np.int8)
            env.step(env.action_space(agent).sample(info.get("action_mask")))
        self.assertEqual(env.agents, [])
        self.assertGreater(len(set(selected)), 1)
        with self.assertRaisesRegex(ValueError, "expected reset"):
            env.step(0)

    def test_rewards_are_those_of_the_parallel_form(self):
        parallel, aec = troupe.env("mpe/simple_spread", max_cycles=6), troupe.aec_env("mpe/simple_spread", max_cycles=6)
        parallel.reset(seed=9)
        aec.reset(seed=9)
        expected = {agent: 0.0 for agent in parallel.agents}
        while parallel.agents:
            actions = {agent: index for index, agent in enumerate(parallel.agents)}
            for agent, reward in parallel.step(actions)[1].items():
                expected[agent] += reward
        got = {agent: 0.0 for agent in aec.agents}
        for agent in aec.agent_iter():
            _, reward, terminated, truncated, _ = aec.last()
            got[agent] += reward
            aec.step(None if terminated or truncated else aec.possible_agents.index(agent))
        self.assertEqual(got, expected)

    def test_the_benchmark_counts_env_steps_as_the_parallel_form_has_them(self):
        spec = importlib.util.spec_from_file_location("envs_from_python", os.path.join(ROOT, "..", "bench", "envs_from_python.py"))
        bench = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(bench)
        for name in ("mpe/simple_spread", "cartpole"):  # agents that end together, and alone
            counts = []
            for form, env in ((bench.parallel, troupe.env(name)), (bench.aec, troupe.aec_env(name))):
                for seed, agent in enumerate(env.possible_agents):
                    env.action_space(agent).seed(seed)
                play = form(env)
                counts.append([play() for _ in range(5)])
                env.close()
            with self.subTest(name):
                self.assertEqual(counts[0], counts[1])

    def test_who_was_not_observed_yet_sees_zeros(self):
        env = troupe.aec_env("testing/turn_based")
        env.reset(0)
        self.assertEqual(env.agents, env.possible_agents)
        unseen = [agent for agent in env.agents if "action_mask" not in env.infos[agent] and isinstance(env.observe(agent), dict)]
        self.assertTrue(unseen)
        for agent in unseen:
            observation = env.observe(agent)
            self.assertTrue(env.observation_space(agent).contains(observation))
            rows = observation.values() if isinstance(observation, dict) else [observation]
            self.assertFalse(any(np.any(row) for row in rows))


if __name__ == "__main__":
    unittest.main()
