"""Policy and Agents against a library that only writes down what it is asked; that it acts as a worker does say lib/acting/acting_test.cc and
tests/e2e/python_api_test.py."""

import ctypes
import os
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from troupe import TroupeError, acting  # noqa: E402
from troupe.envs import spaces  # noqa: E402
from troupe.policy import Agents, Policy, _split  # noqa: E402

BOX, CARDS = "Box(-1, 1, [2])", 'Dict{"card": Discrete(3), "dice": Tuple(Box(0, 9, [1]), MultiDiscrete([2, 3]))}'


def array(address, dtype, *shape):
    if not address:
        return None
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype).reshape(shape)


class FakeCheckpoint:
    """Two agents; policy 0 of agent_0, policy 1 of agent_1."""

    def __init__(self, *policies):
        self.handle, self.path = ctypes.c_void_p(1), "/runs/run/checkpoints/400"
        self.description = {"agents": ["agent_0", "agent_1"], "policies": []}
        self.calls, self.episodes, self.code = [], [], 0
        for observation, action, more in policies:
            observed, acts = spaces.parse(observation), spaces.parse(action)
            self.description["policies"].append({
                "id": f"p{len(self.description['policies'])}", "version": 3, "observation_space": observation, "action_space": action,
                "obs_dtype": "uint8" if observed.flat_dtype is np.uint8 else "float32", "obs_size": observed.flat_size, "mask_size": 0, "state_size": 0,
                "word_dtypes": ["int32"] * acts.action_words, "needs_agent": False, "agents": [min(1, len(self.description["policies"]))], **more})

    def map(self, env_id, episode):
        self.episodes.append((env_id, episode))
        return [0, len(self.description["policies"]) - 1]

    def act(self, _handle, call_ref, error_ref):
        call = call_ref._obj
        policy = self.description["policies"][call.policy]
        dtype = np.uint8 if policy["obs_dtype"] == "uint8" else np.float32
        state = array(call.state_in, np.float32, call.rows, policy["state_size"])
        masks = array(call.action_masks, np.uint8, call.rows, policy["mask_size"])
        self.calls.append({"policy": call.policy, "obs": array(call.observations, dtype, call.rows, policy["obs_size"]).tolist(),
                           "masks": None if masks is None else masks.tolist(), "keys": array(call.keys, np.uint32, call.rows, 4).tolist(),
                           "deterministic": call.deterministic, "state": None if state is None else state.tolist()})
        array(call.actions, np.int32, call.rows, len(policy["word_dtypes"]))[:] = 1
        if state is not None:
            array(call.state_out, np.float32, call.rows, policy["state_size"])[:] += 1
        error_ref._obj.text = b"refused"
        return self.code


class PolicyTest(unittest.TestCase):
    def test_one_observation(self):
        fake = FakeCheckpoint((BOX, "Discrete(3, start=-1)", {}))
        policy = Policy(fake, 0)
        self.assertEqual((policy.id, policy.version, policy.agents), ("p0", 3, ["agent_0"]))
        self.assertEqual(policy.source, "checkpoint:/runs/run/checkpoints/400#p0")
        self.assertEqual([policy.act([0.5, -1], deterministic=True), policy.act(np.array([0.25, 0])), policy.act((0, 1), agent="agent_1")], [1, 1, 1])
        self.assertEqual([call["obs"] for call in fake.calls], [[[0.5, -1]], [[0.25, 0]], [[0, 1]]])
        self.assertEqual([call["deterministic"] for call in fake.calls], [1, 0, 0])
        self.assertEqual([call["keys"] for call in fake.calls], [[[1, 0, 0, 1]], [[1, 0, 0, 2]], [[1, 0, 1, 3]]], "no two decisions share random numbers")
        fake.code = 13
        with self.assertRaisesRegex(TroupeError, "^refused$"):
            policy.act([0, 0])

    def test_policies_of_one_checkpoint_draw_apart(self):
        fake = FakeCheckpoint((BOX, "Discrete(3)", {}), (BOX, "Discrete(3)", {}))
        for policy in (Policy(fake, 0), Policy(fake, 1)):
            policy.act([0, 0])
            policy.predict(np.zeros((2, 2)))
        Agents(fake, deterministic=False).act({"agent_0": [0, 0], "agent_1": [0, 0]})
        keys = [tuple(key) for call in fake.calls for key in call["keys"]]
        self.assertEqual(len(set(keys)), 8, keys)

    def test_a_policy_that_is_not_asked_has_no_buffers(self):
        policy = Policy(FakeCheckpoint(("Box(0, 255, [1000000], uint8)", "Discrete(3)", {})), 0)
        self.assertFalse([name for name, value in vars(policy).items() if hasattr(value, "observations")])
        policy.act(np.zeros(1000000, np.uint8))
        self.assertEqual([name for name, value in vars(policy).items() if hasattr(value, "observations")], ["_one"])

    def test_forms_of_observations_and_actions(self):
        fake = FakeCheckpoint((CARDS, "MultiDiscrete([2, 2])", {}), ("Box(0, 255, [2, 2], uint8)", 'Tuple(Discrete(2), MultiBinary(2))', {}))
        action = Policy(fake, 0).act({"card": 2, "dice": ([7], [1, 2])})
        self.assertEqual(action.tolist(), [1, 1])
        self.assertEqual(fake.calls[0]["obs"], [[0, 0, 1, 7, 0, 1, 0, 0, 1]])
        one, bits = Policy(fake, 1).act(np.array([[1, 2], [3, 255]], np.uint8))
        self.assertEqual((one, bits.tolist(), fake.calls[1]["obs"]), (1, [1, 1], [[1, 2, 3, 255]]))

    def test_many_observations(self):
        fake = FakeCheckpoint((BOX, "Discrete(3)", {}), (CARDS, "Discrete(3)", {}), ("Discrete(4)", "Discrete(3)", {}))
        policy = Policy(fake, 0)
        self.assertEqual(policy.predict(np.zeros((2, 2)), agent=["agent_1", "agent_0"]), ([1, 1], None))
        self.assertEqual(fake.calls[-1]["keys"], [[1, 0, 1, 1], [1, 0, 0, 2]])
        self.assertEqual(policy.predict([0, 0]), (1, None))
        self.assertEqual(fake.calls[-1]["keys"], [[1, 0, 0, 3]])
        cards = {"card": 0, "dice": ([1], [0, 0])}
        self.assertEqual(Policy(fake, 1).predict([cards, cards])[0], [1, 1])
        self.assertEqual(Policy(fake, 1).predict(cards)[0], 1)
        self.assertEqual(Policy(fake, 2).predict(np.array([3, 0]))[0], [1, 1])
        self.assertEqual(fake.calls[-1]["obs"], [[0, 0, 0, 1], [1, 0, 0, 0]])
        for rows in (0, acting.MAX_ROWS + 1):
            with self.assertRaisesRegex(ValueError, f"got {rows} observations, expected 1 to {acting.MAX_ROWS}"):
                policy.predict(np.zeros((rows, 2)))
        with self.assertRaisesRegex(ValueError, "got 3 agents, expected one, or 2"):
            policy.predict(np.zeros((2, 2)), agent=["agent_0"] * 3)

    def test_masks(self):
        fake = FakeCheckpoint((BOX, "Discrete(3)", {"mask_size": 3}), (BOX, "Discrete(3)", {}))
        policy = Policy(fake, 0)
        policy.act([0, 0], action_mask=[1, 0, 1])
        policy.act([0, 0])
        policy.predict(np.zeros((2, 2)), action_mask=np.array([[1, 0, 0], [0, 0, 1]], bool))
        self.assertEqual([call["masks"] for call in fake.calls], [[[1, 0, 1]], None, [[1, 0, 0], [0, 0, 1]]])
        with self.assertRaisesRegex(ValueError, "policy p0: .*expected 3 bytes"):
            policy.act([0, 0], action_mask=[1, 0])
        with self.assertRaisesRegex(ValueError, "policy p1 has no action masks"):
            Policy(fake, 1).act([0, 0], action_mask=[1, 1, 1])

    def test_what_a_policy_remembers(self):
        fake = FakeCheckpoint((BOX, "Discrete(3)", {"state_size": 2}))
        policy = Policy(fake, 0)
        with self.assertRaisesRegex(ValueError, r"policy p0 remembers .*predict\(obs, state\)"):
            policy.act([0, 0])
        _, first = policy.predict([0, 0])
        _, second = policy.predict([0, 0], first)
        _, third = policy.predict([0, 0], second, episode_start=True)
        self.assertEqual([state.tolist() for state in (first, second, third)], [[[1, 1]], [[2, 2]], [[1, 1]]], "what was given back stays as it is")
        _, states = policy.predict(np.zeros((3, 2)), np.full((3, 2), 5), episode_start=[False, True, False])
        self.assertEqual(states.tolist(), [[6, 6], [1, 1], [6, 6]])
        with self.assertRaisesRegex(ValueError, r"got a state of shape \(2, 2\), expected \(3, 2\)"):
            policy.predict(np.zeros((3, 2)), np.zeros((2, 2)))

    def test_one_states_rows_and_masks_are_exact(self):
        fake = FakeCheckpoint((BOX, "Discrete(3)", {"state_size": 2, "mask_size": 3}))
        policy = Policy(fake, 0)
        policy.predict([0, 0], np.array([3.0, 4.0]))
        self.assertEqual(fake.calls[-1]["state"], [[3, 4]], "one row may be given as it is")
        for words, state in ((r"got a state of shape \(2, 3\), expected \(3, 2\)", np.zeros((2, 3))), (r"got a state of shape \(6,\)", np.zeros(6)),
                             ("got a state of dtype complex128, expected real numbers", np.zeros((3, 2), complex))):
            with self.assertRaisesRegex(ValueError, words):
                policy.predict(np.zeros((3, 2)), state)
        with self.assertRaisesRegex(ValueError, r"got episode_start of shape \(1,\), expected a truth value, or 3"):
            policy.predict(np.zeros((3, 2)), np.zeros((3, 2)), [True])
        for masks in (np.ones((2, 3)), np.ones((4, 3))):
            with self.assertRaisesRegex(ValueError, f"got {len(masks)} action masks, expected 3"):
                policy.predict(np.zeros((3, 2)), action_mask=masks)

    def test_rows_of_outputs_are_exact(self):
        """NumPy would repeat a row, and make 4 of 260 as a byte."""
        image = Policy(FakeCheckpoint(("Box(0, 255, [2], uint8)", "Discrete(3)", {"state_size": 2, "mask_size": 3, "needs_agent": True})), 0)
        rows = np.zeros((4, 2), np.uint8)
        for words, given in ((r"got observations of shape \(4, 1\), expected \(4, 2\)", {"observations": np.zeros((4, 1), np.uint8)}),
                             (r"got observations of shape \(2,\), expected \(2, 2\)", {"observations": np.zeros(2, np.uint8)}),
                             ("got observations of dtype float64, expected whole numbers", {"observations": np.zeros((4, 2))}),
                             (r"got observations from 0 to 256, expected whole numbers in \[0, 255\]", {"observations": np.array([[0, 256]])}),
                             (r"got observations from -1 to 0, expected whole numbers in \[0, 255\]", {"observations": np.array([[0, -1]])}),
                             ("got 0 observations, expected 1 to 65536", {"observations": np.zeros((0, 2), np.uint8)}),
                             (r"got agent_slots of shape \(1,\), expected \(4,\)", {"agent_slots": np.zeros(1, int)}),
                             ("got agent_slots of dtype float64, expected whole numbers", {"agent_slots": np.zeros(4)}),
                             (r"got agent_slots from 0 to 2, expected whole numbers in \[0, 1\]", {"agent_slots": np.array([0, 1, 2, 0])}),
                             (r"got action_masks of shape \(3,\), expected \(4, 3\)", {"action_masks": np.ones(3, bool)}),
                             (r"got action_masks from 0 to 2, expected whole numbers in \[0, 1\]", {"action_masks": np.array([[0, 1, 2]] * 4)}),
                             (r"got states of shape \(4, 1\), expected \(4, 2\)", {"states": np.zeros((4, 1))})):
            with self.assertRaisesRegex(ValueError, f"^{words}"):
                image.outputs(**{"observations": rows, **given})

    def test_a_policy_that_sees_its_agent_is_told(self):
        policy = Policy(FakeCheckpoint((BOX, "Discrete(3)", {"needs_agent": True})), 0)
        with self.assertRaisesRegex(ValueError, "give agent, one of agent_0"):
            policy.act([0, 0])
        with self.assertRaisesRegex(ValueError, "there is no agent 'me', expected one of agent_0, agent_1"):
            policy.act([0, 0], agent="me")
        with self.assertRaisesRegex(ValueError, r"policy p0: observation: got an array of shape \(3,\), expected \(2,\)"):
            policy.act([0, 0, 0], agent="agent_0")


class AgentsTest(unittest.TestCase):
    def test_each_agent_has_its_policy_its_memory_and_its_numbers(self):
        fake = FakeCheckpoint((BOX, "Discrete(3)", {}), (BOX, "Discrete(3)", {"state_size": 1}))
        agents = Agents(fake, deterministic=True)
        self.assertEqual((agents.policy_of("agent_0").id, agents.policy_of("agent_1").id), ("p0", "p1"))
        for _ in range(2):
            self.assertEqual(agents.act({"agent_0": [0, 0], "agent_1": [1, 1]}), {"agent_0": 1, "agent_1": 1})
        agents.reset()
        agents.act({"agent_1": [1, 1]})
        self.assertEqual([(call["policy"], call["keys"][0], call["state"]) for call in fake.calls],
                         [(0, [0, 0, 0, 0], None), (1, [0, 0, 1, 0], [[0]]), (0, [0, 0, 0, 1], None), (1, [0, 0, 1, 1], [[1]]), (1, [0, 1, 1, 0], [[0]])])
        self.assertEqual(fake.episodes, [(0, 0), (0, 1)])
        with self.assertRaisesRegex(ValueError, "there is no agent 'agent_2', expected one of agent_0, agent_1"):
            agents.act({"agent_2": [0, 0]})

    def test_masks_are_found_where_environments_have_them(self):
        fake = FakeCheckpoint((BOX, "Discrete(3)", {"mask_size": 3}), (BOX, "Discrete(3)", {}))
        agents = Agents(fake, deterministic=False)
        agents.act({"agent_0": [0, 0]}, {"agent_0": {"action_mask": [0, 1, 1]}})
        agents.act({"agent_0": {"observation": [0, 1], "action_mask": [1, 1, 0], "state": [5]}}, {"agent_0": {}})
        agents.act({"agent_1": {"observation": [0, 1], "action_mask": [1, 1, 0]}}, {"agent_1": {"action_mask": [0, 1, 1]}})
        agents.act({"agent_0": [0, 0]}, {})
        self.assertEqual([call["masks"] for call in fake.calls], [[[0, 1, 1]], [[1, 1, 0]], None, None])
        self.assertEqual(fake.calls[1]["obs"], [[0, 1]])

    def test_what_of_a_dict_is_the_observation(self):
        box, cards = spaces.parse(BOX), spaces.parse(CARDS)
        both = {"card": 1, "dice": 2, "action_mask": [1], "state": 4}
        self.assertEqual(_split(both, cards), ({"card": 1, "dice": 2}, [1]))
        self.assertEqual(_split({"obs": [1, 2], "state": [3]}, box), ([1, 2], None))
        self.assertEqual(_split([1, 2], box), ([1, 2], None))
        with_mask = spaces.parse('Dict{"action_mask": Box(0, 1, [1]), "card": Discrete(3)}')
        self.assertEqual(_split({"card": 1, "action_mask": [1]}, with_mask), ({"card": 1, "action_mask": [1]}, None), "the policy reads it")


class LibraryTest(unittest.TestCase):
    def setUp(self):
        variables = mock.patch.dict(os.environ)
        variables.start()
        self.addCleanup(variables.stop)
        os.environ.pop(acting.VARIABLE, None)
        acting.load.cache_clear()
        self.addCleanup(acting.load.cache_clear)

    def test_where_there_is_none_it_says_what_to_do(self):
        os.environ[acting.VARIABLE] = "/no/such.so"
        with self.assertRaisesRegex(TroupeError, "found no libtroupe_acting.so at /no/such.so: './troupe build troupe_acting'"):
            acting.Checkpoint("run/checkpoints/1", 0)

    def test_what_is_no_library_is_named(self):
        os.environ[acting.VARIABLE] = __file__
        with self.assertRaisesRegex(TroupeError, "test_policy.py cannot be loaded: .*ELF"):
            acting.Checkpoint("run/checkpoints/1", 0)

    def test_that_of_a_build_is_a_checkouts(self):
        with tempfile.TemporaryDirectory() as folder:
            own = os.path.join(folder, "python", "troupe", acting.LIBRARY)
            with mock.patch.object(acting, "__file__", os.path.join(os.path.dirname(own), "acting.py")):
                self.assertEqual(acting.candidates(), [own], "beside an installed package anybody's build may lie")
                open(os.path.join(folder, "CMakePresets.json"), "w").close()
                self.assertEqual(acting.candidates(), [own, os.path.join(folder, "build", "release", "lib", "acting", acting.LIBRARY)])


if __name__ == "__main__":
    unittest.main()
