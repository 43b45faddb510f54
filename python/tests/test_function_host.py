"""troupe.function_host without its C++ half: requests are written into a block of shared memory as lib/envhost does, and answers are read there. The two
together: lib/envhost/python_functions_test.cc."""

import json
import os
import random
import sys
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

try:
    import numpy as np
except ImportError:
    np = None

if np is not None:
    from troupe import _shm_host as shm
    from troupe import env_host
    from troupe.function_host import Function

PAYLOAD = shm.BLOCK_ERROR + shm.BLOCK_ERROR_CAPACITY if np is not None else 0
BLOCK_BYTES = PAYLOAD + 8192


class FunctionTestCase(unittest.TestCase):
    """A function in a block of its own, and the requests of a worker."""

    def make(self, function, **what):
        """Has `function` made, which is called mine:it; `what`: the worker's request."""
        fd = os.memfd_create("test")
        self.addCleanup(os.close, fd)
        os.ftruncate(fd, BLOCK_BYTES)
        self.view = memoryview(shm.map_block(fd, 0, BLOCK_BYTES))
        self.header = self.view[:64].cast("I")
        self.header[shm.BLOCK_BYTES_LOW] = BLOCK_BYTES
        host = env_host.EnvHost(None, types.SimpleNamespace())
        host.memory_fd = fd
        module = types.ModuleType("mine")
        module.it = function
        patch = mock.patch.dict(sys.modules, mine=module)
        patch.start()
        self.addCleanup(patch.stop)
        self.function = Function(host, 0)
        self.ask(shm.KIND_MAKE, what)

    def ask(self, kind, payload, count=None, seed=7, deterministic=False):
        """Serves a request. `payload`: what is written as JSON, or None."""
        data = b"" if payload is None else json.dumps(payload).encode()
        self.view[PAYLOAD : PAYLOAD + len(data)] = data
        self.header[shm.BLOCK_CALL_COUNT] = len(data) if count is None else count
        self.header[shm.BLOCK_CALL_SEED_LOW], self.header[shm.BLOCK_CALL_SEED_HIGH] = seed, 0
        self.header[shm.BLOCK_CALL_DETERMINISTIC] = deterministic
        self.function.serve(kind)

    def error(self):
        """The headline, or "" where there is no error."""
        if self.header[shm.BLOCK_STATUS] == shm.STATUS_OK:
            return ""
        text = bytes(self.view[shm.BLOCK_ERROR : shm.BLOCK_ERROR + self.header[shm.BLOCK_ERROR_BYTES]]).decode()
        return text.splitlines()[0]

    def answer(self):
        """What the function answered, as text."""
        self.assertEqual(self.error(), "")
        return bytes(self.view[PAYLOAD : PAYLOAD + self.header[shm.BLOCK_CALL_COUNT]]).decode()


@unittest.skipIf(np is None, "needs numpy")
class MappingTest(FunctionTestCase):
    QUESTION = {"agent_id": "a", "env_id": 3, "episode": 5, "env_args": {}, "mapped": {"b": "main"}, "worker": 0, "policies": ["main", "old"]}

    def map(self, **question):
        self.ask(shm.KIND_CALL, {**self.QUESTION, **question})
        return self.answer()

    def test_a_function_gets_as_many_arguments_as_it_takes(self):
        for function, answer in ((lambda agent_id: agent_id, "a"), (lambda agent_id, episode: episode.policy_for("b"), "main"),
                                 (lambda agent_id, episode, worker: worker.policies[1], "old"), (lambda *all: str(len(all)), "3")):
            self.make(function, mapping="mine:it")
            self.assertEqual(self.map(), answer)
        self.make(lambda: "main", mapping="mine:it")
        self.assertIn("expected 1 to 3 positional parameters", self.error())

    def test_an_episodes_id_is_its_own(self):
        self.make(lambda agent_id, episode: str(episode.episode_id), mapping="mine:it")
        ids = [self.map(), self.map(env_id=4), self.map(episode=6)]
        self.assertEqual((len(set(ids)), self.map()), (3, ids[0]), "the same for the same environment and episode")

    def test_workers_draw_apart(self):
        state = random.getstate(), np.random.get_state()
        self.addCleanup(lambda: (random.setstate(state[0]), np.random.set_state(state[1])))
        drawn = []
        for worker in (0, 1, 0):
            self.make(lambda agent_id: f"{random.random()} {np.random.rand()}", mapping="mine:it")
            drawn.append(self.map(worker=worker))
        self.assertEqual(drawn[0], drawn[2])
        self.assertNotEqual(drawn[0], drawn[1])

    def test_what_a_function_does_wrong_is_an_error_of_its_call(self):
        def leave(agent_id):
            sys.exit(3)
        for function, words in ((leave, "SystemExit: 3"), (lambda agent_id: 5, "got 5 (int), expected a policy's id, a str")):
            self.make(function, mapping="mine:it")
            self.ask(shm.KIND_CALL, self.QUESTION)
            self.assertIn(words, self.error())


@unittest.skipIf(np is None, "needs numpy")
class PolicyTest(FunctionTestCase):
    """Of two rows at most, with two numbers an observation."""

    KEYS, OBS, ACTIONS = 1024, 2048, 3072

    def make_policy(self, function):
        self.make(function, policy="mine:it", observation_space="Box(-9, 9, [2])", action_space="Discrete(5)", policy_id="p", rows=2,
                  keys=self.KEYS, obs=self.OBS, mask_size=0, actions=self.ACTIONS)
        self.assertEqual(self.error(), "")

    def act(self, keys, observations, **how):
        rows = len(keys)
        np.frombuffer(self.view, np.uint32, 4 * rows, PAYLOAD + self.KEYS)[:] = np.ravel(keys)
        np.frombuffer(self.view, np.float32, 2 * rows, PAYLOAD + self.OBS)[:] = np.ravel(observations)
        self.ask(shm.KIND_CALL, None, count=rows, **how)
        return np.frombuffer(self.view, np.int32, rows, PAYLOAD + self.ACTIONS).tolist()

    def test_rows_go_in_and_actions_come_out(self):
        said = []

        def act(observations, rows):
            said.append((observations.tolist(), rows.env_ids.tolist(), rows.episodes.tolist(), rows.agent_slots.tolist(), rows.env_steps.tolist(),
                         rows.deterministic))
            return [3, 1]
        self.make_policy(act)
        self.assertEqual(self.act([[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 2], [3, 4]], deterministic=True), [3, 1])
        self.act([[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 2], [3, 4]])
        self.assertEqual(said[0], ([[1, 2], [3, 4]], [1, 5], [2, 6], [3, 7], [4, 8], True))
        self.assertEqual(said[1][5], False)

    def test_what_it_draws_follows_from_the_seed_and_its_rows(self):
        drawn = []
        self.make_policy(lambda observations, rows: drawn.append(rows.rng.integers(1 << 60)) or [0])
        for key, seed in (([0, 0, 0, 1], 7), ([0, 0, 0, 2], 7), ([1, 0, 0, 1], 7), ([0, 0, 0, 1], 8), ([0, 0, 0, 1], 7)):
            self.act([key], [[0, 0]], seed=seed)
        self.assertEqual((len(set(drawn)), drawn[0]), (4, drawn[4]))

    def test_actions_that_do_not_fit_are_an_error_of_the_call(self):
        for actions, words in (([0], "got 1 actions, expected 2, one a row"), ([0, 1, 2], "got 3 actions, expected 2, one a row"),
                               (None, "got NoneType, expected actions, one a row"), ([0, "up"], "row 1: action 'up'")):
            self.make_policy(lambda observations: actions)
            self.act([[0, 0, 0, 0]] * 2, np.zeros((2, 2)))
            self.assertIn(words, self.error())


@unittest.skipIf(np is None, "needs numpy")
class TrainTest(FunctionTestCase):
    QUESTION = {"updates": 3, "env_steps": 400, "infos": {"wins": 0.5},
                "policies": [{"id": "main", "rows": 300, "agents": {"a": 300}}, {"id": "old", "rows": 100, "agents": {"b": 100}}]}

    def test_it_is_asked_for_each_policy(self):
        def trains(policy_id, batch):
            return np.bool_(policy_id == "main" and batch.rows == batch.policies["main"] == batch.agents["a"] and batch.infos["wins"] == 0.5)
        self.make(trains, trains="mine:it")
        self.ask(shm.KIND_CALL, self.QUESTION)
        self.assertEqual(json.loads(self.answer()), [True, False])

    def test_only_true_and_false_are_answers(self):
        for wrong in (1, None, "True"):
            self.make(lambda policy_id: wrong, trains="mine:it")
            self.ask(shm.KIND_CALL, self.QUESTION)
            self.assertIn(f"got {wrong!r} ({type(wrong).__name__}) for policy main, expected True or False", self.error())


if __name__ == "__main__":
    unittest.main()
