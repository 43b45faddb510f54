"""The short way of a step (python/extension): whatever an environment returns, the block holds what the long way writes,
and the short way is taken where it should be. TROUPE_USUAL_STEP names the module.
"""

import collections
import contextlib
import gc
import io
import os
import re
import sys
import unittest
import warnings
import weakref
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), HERE]

try:
    import numpy as np
except ImportError:
    np = None

if np is not None:
    import fake_envs as envs
    import fake_spaces as fake
    from troupe import _shm_env, usual_step
    from troupe import _shm_host as shm
    from troupe.env_adapters import recognize

MODULE = os.environ.get("TROUPE_USUAL_STEP")
NAN = float("nan")


class Watched:
    """The module, and how often its short ways were taken."""

    def __init__(self, module):
        self.module, self.taken = module, 0

    def UsualStep(self, *arguments):  # pylint: disable=invalid-name
        """One whose takes are counted."""
        real, watched = self.module.UsualStep(*arguments), self

        class Counted:
            """See above."""

            step, leave = real.step, real.leave

            @staticmethod
            def take():
                """Counts."""
                took = real.take()
                watched.taken += took
                return took

        return Counted


class Host:
    """What an Environment needs of its EnvHost."""

    def __init__(self, adapter, module):
        codecs = [_shm_env.SpaceCodec(agent.observation_space) for agent in adapter.description.agents]
        count, words = len(codecs), [max(1, codec.action_words) for codec in adapter._action_codecs]
        place = shm.BLOCK_ERROR + shm.BLOCK_ERROR_CAPACITY

        def take(size):
            nonlocal place
            begin, place = place, place + (size + 7) // 8 * 8
            return begin

        self.description = {
            "agents": [vars(agent) for agent in adapter.description.agents],
            "state_kind": adapter.description.state_kind,
            "state_space": adapter.description.state_space,
            "has_agent_mask": adapter.description.has_agent_mask,
            "info_columns": adapter.description.info_columns,
        }
        actions = take(4 * sum(words))
        self.layout = {
            "actions": [actions + 4 * sum(words[:i]) for i in range(count)],
            "action_words": words,
            "observations": [take(4 * codec.flat_size) for codec in codecs],
            "observation_sizes": [codec.flat_size for codec in codecs],
            "observation_uint8": [codec.flat_dtype == "uint8" for codec in codecs],
            "masks": [take(64) for _ in codecs],
            "mask_sizes": [codec.mask_size for codec in adapter._action_codecs],
            "acts": take(count),
            "agent_flags": take(count),
            "rewards": take(4 * count),
            "infos": take(8 * count * len(adapter.description.info_columns)),
            "state_size": 1,
            "picture": 0,
            "picture_bytes": 0,
            "states": [],
            "block_bytes": (place + 4095) // 4096 * 4096,
        }
        self.memory_fd = os.memfd_create("test")
        os.ftruncate(self.memory_fd, self.layout["block_bytes"])
        self.usual_step, self.adapter = module, adapter

    first_env_index = 0

    def make_adapter(self, env_index):
        """The one it was made with."""
        return self.adapter

    def watch_of(self, ids, header, view):
        """Nobody watches."""

    def seed_globals(self, seed):
        """Nothing draws."""


def bookkeeping(adapter):
    """What an adapter remembers of an episode."""
    kept = ("_steps", "_live", "_over", "_acted", "_seen", "_done", "dropped_rewards", "_warned")
    return {name: getattr(adapter, name) for name in kept}


def play(env, steps, module, acts=None, resets=()):
    """What the block holds after each reset and step, (status, error) or the bytes; the actions; what the adapter
    remembers; warnings. Actions differ by step. `acts`: step -> who acts; `resets`: after these steps, also in mid-episode.
    """
    adapter = recognize.adapt("test", env, False)
    host = Host(adapter, module)
    environment = _shm_env.Environment(host, 0)
    view, layout = environment._block.view, host.layout
    words = np.frombuffer(view[layout["actions"][0] :][: 4 * sum(layout["action_words"])], np.int32)
    seen = []

    def note():
        if environment.header[shm.BLOCK_STATUS] == shm.STATUS_OK:
            seen.append(bytes(view[layout["observations"][0] :]) + bytes(view[: shm.BLOCK_ERROR]))
        else:
            error = bytes(view[shm.BLOCK_ERROR :][: environment.header[shm.BLOCK_ERROR_BYTES]])
            # Without the call of this file's that only one of the ways has in between.
            between = r' *File "[^"\n]*", line \d+, in take\n *took = real\.take\(\)\n(?: *\^+\n)?'
            seen.append((environment.header[shm.BLOCK_STATUS], re.sub(between, "", error.decode())))

    environment.serve(shm.KIND_RESET)
    note()
    for step in range(steps):
        words[:] = (np.arange(len(words)) + step) % 3
        view[layout["acts"] : layout["acts"] + len(layout["observations"])] = bytes(
            (acts or {}).get(step, [1] * len(layout["observations"]))
        )
        if environment.send():
            environment.publish()
        note()
        if environment.header[shm.BLOCK_STATUS] != shm.STATUS_OK:
            break
        if adapter._over or step in resets:
            environment.serve(shm.KIND_RESET)
            note()
    os.close(host.memory_fd)
    if environment._adapter is not None and environment._usual is not None:
        environment._leave_short_way()
    kept = None if environment._adapter is None else bookkeeping(adapter)
    environment.serve(shm.KIND_CLOSE)
    return seen, [str(actions) for actions in env.actions], kept


def dicts(first, second, reward=1.0, ends=(False, False), infos=None, agents=("a", "b")):
    """What an environment of two agents returns."""
    a, b = agents
    flags = dict(zip(agents, ends))
    observations = {a: np.full(2, first, np.float32), b: np.full(2, second, np.float32)}
    return observations, {a: reward, b: -reward}, {a: False, b: False}, flags, {} if infos is None else infos


def changed(returned, place, value):
    """With another value there."""
    return tuple(value if i == place else part for i, part in enumerate(returned))


@unittest.skipIf(np is None or not MODULE, "needs numpy and TROUPE_USUAL_STEP")
class UsualStepTest(unittest.TestCase):
    """Both ways side by side."""

    def setUp(self):
        self.module = usual_step.load(MODULE)
        if sys.version_info < (3, 11):
            self.skipTest("the module needs Python 3.11")
        self.assertIsNotNone(self.module)

    def both(self, make, steps, short, **more):
        """Plays both ways, which must agree; so many steps the short way."""
        watched = Watched(self.module)
        results = []
        for module in (watched, None):
            with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                results.append((play(make(), steps, module, **more), [str(warning.message) for warning in warned]))
        (quick, _), _ = results
        self.assertEqual(*results)
        self.assertEqual(watched.taken, short)
        return quick[0]

    def parallel(self, odd, short, steps=6, **kwargs):
        """A PettingZoo environment whose third step returns `odd`."""
        script = [dicts(0, 0)[0]] + [dicts(i, -i, i / 8) for i in range(1, steps + 1)]
        if odd is not None:
            script[3] = odd
        box = fake.Box(-9, 9, (2,))
        return self.both(lambda: envs.Parallel(script, space=box), steps, short, **kwargs)

    def test_all_but_the_first_step_go_the_short_way(self):
        seen = self.parallel(None, 5)
        self.assertEqual(len(set(seen)), 7, "every step has written something else")

    def test_what_is_usual(self):
        usual = dicts(1, 2)
        many = collections.defaultdict(int, usual[1])
        for odd in (
            dicts(1, 2, reward=np.float64(0.1)),
            dicts(1, 2, reward=np.float32(0.1)),
            dicts(1, 2, reward=3),
            dicts(1, 2, reward=-0.0),
            dicts(1, 2, reward=1e-300),
            dicts(1, 2, reward=True),
            dicts(1, 2, agents=("".join(["", "a"]), "ab"[1:])),
            changed(usual, 1, {"a": None, "b": True}),
            changed(usual, 1, many),
            changed(usual, 1, collections.OrderedDict(usual[1])),
            changed(usual, 0, {"a": np.array([0.1, 1e30]), "b": np.array([NAN, float("inf")])}),
            changed(usual, 2, {"a": np.False_, "b": False}),
            changed(usual, 3, {}),
            dicts(1, 2, infos={"a": {}, "b": {"score": 3, "text": "x"}}),
        ):
            with self.subTest(odd=odd):
                self.parallel(odd, 5)

    def test_what_is_not_goes_the_long_way_once(self):
        usual = dicts(1, 2)
        wide = np.arange(4, dtype=np.float32)

        class Number(float):
            """With a value of its own."""

            def __float__(self):
                return 0.25

        for odd in (
            changed(usual, 0, {"a": wide[::2], "b": wide[1::2]}),
            changed(usual, 0, {"a": [1, 2], "b": wide[:2]}),
            changed(usual, 0, {"a": wide[:2].astype(">f4"), "b": wide[:2]}),
            changed(usual, 0, {"a": wide[:2].astype(np.float16), "b": np.array([1, 2])}),
            changed(usual, 0, {"b": wide[:2], "a": wide[2:]}),
            changed(usual, 0, {"b": wide[:2]}),
            changed(usual, 0, {"a": np.array([1e300, 0]), "b": np.array([0, 1e-300])}),
            changed(usual, 1, {"a": Number(3), "b": np.int64(2)}),
            changed(usual, 1, {"a": np.array(1.5), "b": np.float16(2)}),
            changed(usual, 1, {"b": 2.0}),
            changed(usual, 1, {"b": 2.0, "a": 1.0}),
            changed(usual, 1, {**usual[1], "c": 0.0}),
            changed(usual, 4, {"a": {}, "__common__": {"x": 1}}),
            list(usual)[:4] and tuple([*usual[:2], {"a": False, "b": False}, {}]),
        ):
            with self.subTest(odd=odd):
                self.parallel(odd, 4)

    def test_numpy_raises_what_it_is_told_to(self):
        odd = changed(dicts(1, 2), 0, {"a": np.array([1e300, 0]), "b": np.array([0, 1])})
        script = [dicts(0, 0)[0], dicts(1, 1), dicts(2, 2), odd]
        with np.errstate(all="raise"):
            seen = self.both(lambda: envs.Parallel(script, space=fake.Box(-9, 9, (2,))), 3, 1)
        self.assertIn("FloatingPointError", seen[-1][1])

    def test_resets_in_mid_episode(self):
        self.parallel(None, 4, resets=(2,))

    def test_agents_that_raise(self):
        class Breaks(envs.Parallel):
            """When asked for its agents in the third step."""

            error: type = LookupError

            @property
            def agents(self):
                """See above."""
                if self.at == 3:
                    raise self.error("lost them")
                return self.possible_agents

        script = [dicts(0, 0)[0]] + [dicts(i, -i) for i in range(1, 4)]
        for error in (LookupError, SystemExit, KeyboardInterrupt):
            Breaks.error = error
            seen = self.both(lambda: Breaks(script, space=fake.Box(-9, 9, (2,))), 3, 1)
            self.assertRegex(seen[-1][1], error.__name__ + r": lost them \(at .*test_usual_step.py:\d+ in agents")
        Breaks.error = _shm_env.Stop
        with self.assertRaises(_shm_env.Stop):
            play(Breaks(script, space=fake.Box(-9, 9, (2,))), 3, self.module)

    def test_infos_that_compare_as_they_like(self):
        class Key:
            """Like a text that means something, until it is compared."""

            def __hash__(self):
                return hash("state")

            def __eq__(self, other):
                raise LookupError("no comparing")

        script = [dicts(0, 0)[0], dicts(1, 1), dicts(2, 2), dicts(3, 3, infos={"a": {Key(): 1}, "b": {}})]
        seen = self.both(lambda: envs.Parallel(script, space=fake.Box(-9, 9, (2,))), 3, 1)
        self.assertIn("LookupError: no comparing", seen[-1][1])

    def test_ends(self):
        self.parallel(dicts(1, 2, ends=(True, True)), 2, steps=5)
        self.parallel(dicts(1, 2, ends=(np.True_, True)), 2, steps=5)
        script = [dicts(0, 0)[0]] + [dicts(i, -i) for i in range(1, 6)]
        script[3] = dicts(3, 4, ends=(True, False))
        for i in (4, 5):
            script[i] = tuple({"b": part["b"]} if part else {} for part in dicts(i, i))
        box = fake.Box(-9, 9, (2,))
        self.both(lambda: envs.Parallel(script, space=box), 5, 1, acts={3: [0, 1], 4: [0, 1]})

    def test_errors_are_the_long_ways(self):
        usual = dicts(1, 2)
        for odd, text in (
            (changed(usual, 0, {"a": np.zeros(3, np.float32), "b": np.zeros(2, np.float32)}), "shape"),
            (changed(usual, 0, {"a": None, "b": np.zeros(2, np.float32)}), "None"),
            (changed(usual, 0, {"a": np.array(["x", "y"]), "b": np.zeros(2, np.float32)}), "dtype"),
            (changed(usual, 0, {**usual[0], "c": usual[0]["a"]}), "unknown agent"),
            (dicts(1, 2, reward=NAN), "the reward is nan"),
            (dicts(1, 2, reward=1e39), "too large"),
            (changed(usual, 1, {"a": "much", "b": 0}), "the reward is 'much'"),
            (dicts(1, 2, infos={"a": {"action_mask": [1, 1, 1]}, "b": {}}), "action_mask"),
            (usual[:3], "a tuple of 3"),
            (list(usual), "list"),
            (None, "NoneType"),
        ):
            with self.subTest(text=text):
                script = [dicts(0, 0)[0], dicts(1, 1), dicts(2, 2), odd]
                box = fake.Box(-9, 9, (2,))
                seen = self.both(lambda: envs.Parallel(script, space=box), 3, 1)
                self.assertIn(text, seen[-1][1])

    def test_exceptions_cost_the_episode(self):
        class Breaks(envs.Parallel):
            """In its third step."""

            def step(self, actions):
                """See above."""
                if self.at == 2:
                    raise LookupError("lost it")
                return super().step(actions)

        script = [dicts(0, 0)[0]] + [dicts(i, -i) for i in range(1, 4)]
        seen = self.both(lambda: Breaks(script, space=fake.Box(-9, 9, (2,))), 3, 1)
        self.assertRegex(seen[-1][1], r"LookupError: lost it \(at .*test_usual_step.py:\d+ in step")

    def test_who_does_not_act(self):
        self.parallel(None, 4, acts={3: [1, 0]})

    def test_rllib_dicts(self):
        def step(i, over=False, **more):
            observations, rewards, terminated, truncated, infos = dicts(i, -i)
            return observations, rewards, {**terminated, "__all__": over, **more}, {**truncated, "__all__": False}, infos

        box = fake.Box(-9, 9, (2,))
        script = [(dicts(0, 0)[0], {}), step(1), step(2), step(3), step(4, over=True)]
        self.both(lambda: envs.Dicts(script, space=box), 4, 2)
        script[3] = changed(step(3), 2, {"a": False, "b": False})
        seen = self.both(lambda: envs.Dicts(script, space=box), 3, 1)
        self.assertIn("lack the key '__all__'", seen[-1][1])

    def test_lists(self):
        def step(i, reward=None, over=False, info=None):
            return [envs.obs(i), envs.obs(-i)], reward or [1.0, 2], over, False, info or {}

        script = [([envs.obs(0), envs.obs(0)], {})] + [step(i) for i in range(1, 4)]
        script += [step(4, reward=3.0), (*step(5)[:2], [False, False], False, {}), step(6, info={"x": 1}), step(7, over=True)]
        for lists in (True, False):
            with self.subTest(lists=lists):
                # The first, one reward for all, a list of flags, and the end.
                self.both(lambda: envs.Lists(script, lists=lists), 7, 3)

    def test_one_agent(self):
        images = fake.Box(0, 255, (3, 2), np.uint8)
        script = [(np.zeros((3, 2), np.uint8), {})]
        script += [(np.full((3, 2), i, np.uint8), i, np.False_, False, {"lives": 3}) for i in range(1, 5)]
        script += [(np.full((3, 2), 9), 1, False, False, {}), (np.zeros((3, 2), np.uint8), 1, np.True_, False, {})]
        self.both(lambda: envs.Gym(script, space=images), 6, 3)

    def test_actions_that_are_no_words(self):
        script = [(envs.obs(0), {})] + [(envs.obs(i), 0.5, False, False, {}) for i in range(1, 5)]
        self.both(lambda: envs.Gym(script, action=fake.Box(-1, 1, (2,))), 4, 3)
        script = [dicts(0, 0)[0]] + [dicts(i, -i) for i in range(1, 5)]
        for action in (fake.Box(-1, 1, (2,)), fake.MultiDiscrete([3, 3])):
            self.both(lambda: envs.Parallel(script, space=fake.Box(-9, 9, (2,)), action=action), 4, 3)

    def test_environments_that_have_none(self):
        watched = Watched(self.module)
        turns = envs.Countdown()
        for env in (turns, envs.Gym([(1, {}), (2, 0, False, False, {})], space=fake.Discrete(3))):
            adapter = recognize.adapt("test", env, False)
            host = Host(adapter, watched)
            environment = _shm_env.Environment(host, 0)
            environment.serve(shm.KIND_RESET)
            self.assertIsNone(environment._short_way)
            os.close(host.memory_fd)

    def test_it_keeps_nothing(self):
        class Fresh(envs.Parallel):
            """Makes what it returns."""

            def step(self, actions):
                """See above."""
                return dicts(1, 2, reward=0.1)

        env = Fresh([dicts(0, 0)[0]], space=fake.Box(-9, 9, (2,)))
        watched = weakref.ref(env)
        adapter = recognize.adapt("test", env, False)
        module = Watched(self.module)
        host = Host(adapter, module)
        environment = _shm_env.Environment(host, 0)
        environment.serve(shm.KIND_RESET)
        environment._acts[:] = b"\1\1"
        before = None
        for step in range(300):
            self.assertTrue(environment.send())
            environment.publish()
            if step == 100:
                before = sys.getallocatedblocks()
        self.assertLess(sys.getallocatedblocks() - before, 100)
        self.assertEqual(module.taken, 299)
        environment.close()
        os.close(host.memory_fd)
        del env, adapter, host.adapter, host, environment
        gc.collect()
        self.assertIsNone(watched())

    def test_bad_arguments_are_refused(self):
        def make(form="parallel", row=8, shape=(2,), words=0):
            agents = (("a", row, False, shape, None),)
            numpy = (np.ndarray, np.False_, np.float64, np.float32)
            return self.module.UsualStep(form, None, numpy, bytearray(64), agents, 0, words, 4, 8)

        make()
        for arguments, text in (
            ({"form": "other"}, "form is 'other', expected parallel"),
            ({"row": 60}, "8 bytes at 60 are not within the block's 64"),
            ({"row": -1}, "at -1 are not within"),
            ({"shape": (-2,)}, "a shape has the length -2"),
            ({"words": 62}, "4 bytes at 62"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                make(**arguments)


@unittest.skipIf(np is None, "needs numpy")
class LoadTest(unittest.TestCase):
    """Where there is no module."""

    def test_no_such_file_or_interpreter(self):
        self.assertIsNone(usual_step.load("/no/such/file.so"))
        self.assertIsNone(usual_step.load(__file__), "no library")
        with mock.patch.object(sys, "version_info", (3, 10)):
            self.assertIsNone(usual_step.load(MODULE or ""))
        with mock.patch.object(usual_step.importlib.machinery, "EXTENSION_SUFFIXES", [".cpython-313t-x86_64-linux-gnu.so"]):
            self.assertIsNone(usual_step.load(MODULE or ""), "one without the GIL")
        with mock.patch.object(usual_step, "_VERSION", 99):
            self.assertIsNone(usual_step.load(MODULE or ""), "of another version")


if __name__ == "__main__":
    unittest.main()
