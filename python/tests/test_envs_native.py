"""Native environments as arrays: with numpy alone. libtroupe_envs.so is found as a user's would be."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, ROOT)

HAVE_NUMPY = importlib.util.find_spec("numpy") is not None
if HAVE_NUMPY:
    import numpy as np

    from troupe.envs import NativeEnv, NativeEnvError, environments, library, native, spaces


def play(env, seed, steps, action):
    """Everything that an episode brings, as bytes; action(env, slot) writes an action."""
    env.reset(seed)
    seen = [snapshot(env)]
    for _ in range(steps):
        for slot in np.flatnonzero(env.flags[native.READY]):
            action(env, slot)
        env.step()
        seen.append(snapshot(env))
        if env.all_done.any():
            break
    return seen


def snapshot(env):
    observed = np.flatnonzero(env.flags[native.OBSERVED])
    return (env.flags.tobytes(), env.all_done.tobytes(), env.rewards.tobytes(), env.infos.tobytes(),
            [env.observations[slot].tobytes() for slot in observed], [env.action_masks[slot].tobytes() for slot in observed])


def first_allowed(env, slot):
    mask = env.action_masks[slot]
    env.actions[slot][:] = int(np.argmax(mask)) if mask.size else 0


@unittest.skipUnless(HAVE_NUMPY, "needs numpy (apt install python3-numpy)")
class NativeEnvTest(unittest.TestCase):
    def test_every_environment_is_there_and_repeats_itself(self):
        names = environments()
        self.assertIn("mpe/simple_spread", names)
        self.assertTrue(all(names.values()), "everyone has a description")
        for name in names:
            one, two = NativeEnv(name), NativeEnv(name)
            discrete = all(space.kind == "Discrete" and space.start == 0 for space in one.action_spaces)
            self.assertTrue(discrete, f"{name}: first_allowed plays Discrete actions")
            first = play(one, 7, 40, first_allowed)
            self.assertGreater(len(first), 1)
            play(two, 8, 3, first_allowed)
            self.assertEqual(first, play(two, 7, 40, first_allowed), name)
            self.assertEqual(one.agents, two.agents)
            for env in (one, two):
                env.close()
                env.close()

    def test_arrays_of_simple_spread(self):
        env = NativeEnv("mpe/simple_spread", {"N": 2, "max_cycles": 3, "benchmark_data": True})
        self.assertEqual(env.agents, ["agent_0", "agent_1"])
        self.assertEqual([row.shape for row in env.observations], [(12,), (12,)])
        self.assertEqual(env.states.shape, (1, 24))
        self.assertEqual(env.spec["max_episode_steps"], 3)
        self.assertEqual(env.infos.shape, (2, len(env.spec["info_columns"])))
        env.reset(seed=2**64 - 1, env_id=2**32 - 1, episode=3)
        np.testing.assert_array_equal(env.states[0], np.concatenate(env.observations))
        before = env.observations[0][2:4].copy()
        for step in range(3):
            self.assertTrue(env.flags[native.READY].all())
            env.actions[0][0] = 2  # right
            env.actions[1][0] = 0
            env.step()
            self.assertTrue((env.rewards < 0).all())
        self.assertGreater(env.observations[0][2], before[0])
        self.assertEqual(env.all_done.tolist(), [0, 1], "truncated")
        self.assertFalse(env.flags[native.READY].any())
        env.close()

    def test_continuous_actions(self):
        env = NativeEnv("mpe/simple_spread", {"continuous_actions": True})
        env.reset()
        self.assertEqual(env.actions_float[0].shape, (5,))
        env.actions_float[0][:] = [0, 0, 1, 0, 0]
        for row in env.actions_float[1:]:
            row[:] = 0
        env.step()
        self.assertGreater(env.observations[0][0], 0, "velocity to the right")
        env.close()

    def test_errors_say_what_and_where(self):
        for arguments, code, words in [
            (("mpe/simple_sprad",), 5, "did you mean 'mpe/simple_spread'"),
            (("mpe/simple_spread", {"N": 0}), 3, "argument N is 0, expected an integer in [1, 512]"),
            (("mpe/simple_spread", {"M": 1}), 3, "has no argument 'M'"),
            (("mine", {}, "/nowhere/libmine.so"), 5, "/nowhere/libmine.so"),
            (("mine", {}, __file__), 3, "is no shared library"),
        ]:
            with self.assertRaisesRegex(NativeEnvError, ".*") as raised:
                NativeEnv(*arguments)
            self.assertEqual(raised.exception.code, code, arguments)
            self.assertIn(words, str(raised.exception))
        with self.assertRaisesRegex(TypeError, "arguments must be numbers"):
            NativeEnv("mpe/simple_spread", {"N": object()})
        with self.assertRaisesRegex(TypeError, "arguments must be numbers"):
            NativeEnv("mpe/simple_spread", {"local_ratio": float("nan")})
        with self.assertRaises(NativeEnvError) as raised:
            environments(plugin="/nowhere/libmine.so")
        self.assertEqual(raised.exception.code, 5)

    def test_after_an_error_only_reset_may_follow(self):
        env = NativeEnv("mpe/simple_spread")
        with self.assertRaisesRegex(NativeEnvError, "Step before Reset"):
            env.step()
        env.reset()
        env.actions[1][0] = 9
        with self.assertRaisesRegex(NativeEnvError, r"agent agent_1, step 1: action outside Discrete\(5\)"):
            env.step()
        with self.assertRaises(NativeEnvError):
            env.step()
        env.reset()
        env.actions[1][0] = 4
        env.step()
        for seed, words in [(-1, "seed is -1"), (2**64, "seed is")]:
            with self.assertRaisesRegex(ValueError, words):
                env.reset(seed)
        with self.assertRaisesRegex(ValueError, "env_id"):
            env.reset(0, env_id=2**32)
        env.close()
        with self.assertRaisesRegex(ValueError, "was closed"):
            env.step()

    def test_what_an_environment_throws_is_an_error(self):
        for fault in ("throw", "bad_status"):
            env = NativeEnv("testing/faulty", {"fault": fault, "at_step": 1})
            env.reset()
            first_allowed(env, 0)
            with self.assertRaisesRegex(NativeEnvError, r"environment testing/faulty \(env 0, episode 0\), step 1: "):
                env.step()
            env.reset(episode=1)
            env.close()

    def test_without_pettingzoo_it_says_what_to_install(self):
        code = "import sys\nsys.modules['pettingzoo'] = None\nimport troupe\ntroupe.env('mpe/simple_spread')"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
        last = done.stderr.strip().splitlines()[-1]
        self.assertIn("needs PettingZoo and Gymnasium", last)
        self.assertIn("-m pip install pettingzoo gymnasium", last)

    def test_the_library_is_looked_for(self):
        with tempfile.TemporaryDirectory() as folder:
            for value, words in [(os.path.join(folder, "none.so"), "found no libtroupe_envs.so at " + folder),
                                 (__file__, "invalid ELF header")]:
                environment = dict(os.environ, TROUPE_ENVS_LIBRARY=value, PYTHONPATH=ROOT)
                done = subprocess.run([sys.executable, "-c", "from troupe import envs; envs.environments()"], env=environment, capture_output=True,
                                      text=True)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr)
        with tempfile.TemporaryDirectory() as folder:  # as pip puts it somewhere
            shutil.copytree(os.path.join(ROOT, "troupe"), os.path.join(folder, "troupe"), ignore=shutil.ignore_patterns("*.so", "__pycache__"))
            environment = {key: value for key, value in os.environ.items() if key not in ("TROUPE_ENVS_LIBRARY", "PYTHONPATH")}
            done = subprocess.run([sys.executable, "-c", "from troupe import envs; envs.environments()"], env=environment, capture_output=True,
                                  text=True, cwd=folder)
            last = done.stderr.strip().splitlines()[-1]
            self.assertIn(f"found no libtroupe_envs.so at {os.path.realpath(folder)}/troupe/envs/libtroupe_envs.so; the Python package comes without it", last)
            self.assertIn("TROUPE_ENVS_LIBRARY=CHECKOUT/build/release/lib/envs/c_api/libtroupe_envs.so", last)
        import ctypes.util
        with self.assertRaisesRegex(ImportError, "has no function troupe_arrays_version"):
            library.load(ctypes.util.find_library("c"))


@unittest.skipUnless(HAVE_NUMPY, "needs numpy (apt install python3-numpy)")
class SpacesTest(unittest.TestCase):
    def test_reads_what_troupe_writes(self):
        space = spaces.parse('Dict{"x y": Box([0, -inf], [1, inf], [2], float64), "q\\"": Discrete(3, start=-1), z: Tuple(MultiDiscrete([2, 3]), MultiBinary(4))}')
        self.assertEqual(space.keys, ('q"', "x y", "z"))
        self.assertEqual((space.flat_size, space.action_words, space.mask_size), (3 + 2 + 5 + 4, 1 + 2 + 2 + 4, 3 + 5 + 8))
        box = space.children[1]
        self.assertEqual((box.low, box.high, box.shape, box.dtype), ([0.0, -np.inf], [1.0, np.inf], (2,), "float64"))
        self.assertEqual(spaces.parse("Box(0, 255, [84, 84, 4], uint8)").flat_dtype, np.uint8)
        self.assertEqual(spaces.parse("Box(-1e-05, 1e+16, [1])").low, -1e-05)
        for text in ("", "Box", "Box(1)", "Disc(3)", "Discrete(3) x", "Tuple()", "Dict{a}", "Box(0, 1, [x])", "$"):
            with self.assertRaisesRegex(ValueError, "is not a space"):
                spaces.parse(text)

    def test_rows_and_back(self):
        space = spaces.parse("Dict{a: Discrete(3, start=5), b: Tuple(MultiDiscrete([2, 3]), MultiBinary(2)), c: Box(-1, 1, [1, 2])}")
        row = np.array([0, 1, 0, 1, 0, 0, 0, 1, 1, 0, 0.5, -0.5], dtype=np.float32)
        seen = space.unflatten(row)
        self.assertEqual(seen["a"], 6)
        np.testing.assert_array_equal(seen["b"][0], [0, 2])
        np.testing.assert_array_equal(seen["b"][1], [1, 0])
        np.testing.assert_array_equal(seen["c"], [[0.5, -0.5]])
        words = np.zeros(space.action_words, dtype=np.int32)
        space.encode(seen, words, words.view(np.float32))
        np.testing.assert_array_equal(words[:5], [6, 0, 2, 1, 0])
        np.testing.assert_array_equal(words[5:].view(np.float32), [0.5, -0.5])
        mask = space.mask(np.array([1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 0, 1], dtype=np.uint8))
        np.testing.assert_array_equal(mask["a"], [1, 0, 1])
        np.testing.assert_array_equal(mask["b"][0][1], [0, 1, 1])
        np.testing.assert_array_equal(mask["b"][1], [0, 1])
        self.assertIsNone(mask["c"])

    def test_actions_of_another_form_are_refused(self):
        for text, action in [
            ("MultiDiscrete([3, 3])", 1),
            ("MultiDiscrete([3, 3])", [1]),
            ("MultiDiscrete([3, 3])", [2**32 + 1, 1]),
            ("MultiDiscrete([3, 3])", [1.9, 1]),
            ("Discrete(3)", 1.9),
            ("Box(-1, 1, [5])", [0.5]),
        ]:
            with self.subTest(text, action=action), self.assertRaises((TypeError, ValueError)):
                space = spaces.parse(text)
                words = np.zeros(space.action_words, dtype=np.int32)
                space.encode(action, words, words.view(np.float32))
        space = spaces.parse("Discrete(3)")
        words = np.zeros(1, dtype=np.int32)
        for action in (2, np.int64(2), np.array(2), np.array([2])):
            space.encode(action, words, words.view(np.float32))
            self.assertEqual(words[0], 2)


if __name__ == "__main__":
    unittest.main()
