"""troupe.episode_callbacks: how long callbacks may take, and what they know of an episode, without an environment."""

import json
import os
import signal
import struct
import sys
import time
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from troupe import _shm_host as shm  # noqa: E402
from troupe import callbacks as hooks_of  # noqa: E402
from troupe import episode_callbacks  # noqa: E402
from troupe.callbacks import Callback, EpisodeContext, _check_tracked, check_hooks  # noqa: E402
from troupe.episode_callbacks import CallbackTimeout, EpisodeCallbacks, EpisodeWatch  # noqa: E402


class Busy(Callback):
    """Takes most of a request's time, by the test's clock."""

    def __init__(self, clock):
        self._clock = clock
        self.alarms = []  # in how many seconds, when it was called

    def on_episode_step(self, ctx):
        self.alarms.append(signal.getitimer(signal.ITIMER_REAL)[0])
        self._clock.now += 18


class Deaf(Callback):
    """Does not let itself be interrupted, twice."""

    def on_episode_end(self, ctx):
        for _ in range(2):
            try:
                while True:
                    pass
            except CallbackTimeout:
                continue
        while True:
            pass


class Catches(Callback):
    """Takes the end of its time for a failure of what it waits for, and returns."""

    calls = 0

    def on_episode_step(self, ctx):
        self.calls += 1
        try:
            time.sleep(3600)
        except BaseException:
            pass


class Quick(Callback):
    """Returns at once."""

    calls = 0

    def on_episode_step(self, ctx):
        self.calls += 1


class Clock:
    """Goes on when it is told to."""

    now = 1000.0

    def monotonic(self):
        return self.now


class TrackedNumbersTest(unittest.TestCase):
    def test_arrays_of_one_element_are_numbers(self):
        class Array:
            def __init__(self, value, shape=(1,)):
                self.shape, self.item = shape, lambda: value

        self.assertEqual([_check_tracked("x", value) for value in (2, 2.5, Array(3.0), Array(3, (1, 1)))], [2, 2.5, 3, 3])
        for value, words in ((Array(0, (2,)), r"an array of shape \(2,\)"), ("much", "'much'"), (None, "None")):
            self.assertRaisesRegex(ValueError, f"^track x: got {words}, expected one number$", _check_tracked, "x", value)


class NamesTest(unittest.TestCase):
    """A method that was misspelt was never called, in silence."""

    def refused(self, *names):
        made = type("Mine", (Callback,), {name: lambda self, ctx: None for name in names})()
        with self.assertRaises(TypeError) as caught:
            check_hooks(made)
        return str(caught.exception)

    def test_unknown_hooks_are_refused(self):
        hooks = ("on_run_start, on_update_end, on_evaluation_start, on_evaluation_end, on_checkpoint_end, on_run_end, on_episode_start, on_episode_step, "
                 "on_episode_end")
        self.assertEqual(self.refused("on_update_ends"), f"got the method on_update_ends, which nothing calls, expected one of {hooks}; the nearest is on_update_end")
        self.assertTrue(self.refused("on_run_end", "on_train_result").endswith("; RLlib's on_train_result is on_update_end"))
        self.assertTrue(self.refused("on_step").endswith("; Stable-Baselines3's on_step is on_episode_step"))
        self.assertTrue(self.refused("on_create_policy").endswith("; of RLlib's on_create_policy there is no counterpart"))
        self.assertTrue(self.refused("on_zzz").endswith("; a method of your own begins otherwise than with on_"))
        # All of ours, methods of its own, and what is no method.
        names = {name: lambda self, ctx: None for name in (*hooks.split(", "), "_on_update_ends", "once")}
        check_hooks(type("Mine", (Callback,), {**names, "on_gpu": True})())
        inherited = type("Child", (type("Parent", (Callback,), {"on_update_ends": lambda self, ctx: None}),), {})
        with self.assertRaisesRegex(TypeError, "on_update_ends"):
            check_hooks(inherited())
        self.assertLessEqual({hook for _, hook in hooks_of._COUNTERPARTS.values() if hook}, set(hooks.split(", ")))


class EpisodeCallbacksTest(unittest.TestCase):
    def setUp(self):
        """An environment has an alarm of its own."""
        self.alarm = lambda *_: None
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, self.alarm))
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 2000, 3000)

    def make(self, *objects, step_timeout_s):
        callbacks = EpisodeCallbacks([], step_timeout_s)
        callbacks._names, callbacks._callbacks = [type(each).__name__ for each in objects], list(objects)
        return callbacks

    def with_clock(self):
        clock = Clock()
        patch = mock.patch.object(episode_callbacks, "time", types.SimpleNamespace(monotonic=clock.monotonic))
        patch.start()
        self.addCleanup(patch.stop)
        return clock

    def call(self, callbacks, hook="on_episode_step"):
        callbacks.begin_request()
        callbacks.call(hook, EpisodeContext(None))
        self.assert_as_before()

    def assert_as_before(self):
        self.assertIs(signal.getsignal(signal.SIGALRM), self.alarm)
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        self.assertEqual(interval, 3000)
        self.assertGreater(left, 100, "the environment's, not a callback's")

    def test_the_calls_of_a_request_share_its_time(self):
        clock = self.with_clock()
        first, second, third = Busy(clock), Busy(clock), Busy(clock)
        callbacks = self.make(first, second, third, step_timeout_s=60)
        self.call(callbacks)
        self.assertEqual(callbacks.off, "on_episode_step of Busy: did not return within 30 s")
        self.assertEqual([len(each.alarms) for each in (first, second, third)], [1, 1, 0])
        self.assertLessEqual(first.alarms[0], 30)
        self.assertTrue(0 < second.alarms[0] <= 12, "half of the request is the environment's")

    def test_each_request_has_a_time_of_its_own(self):
        busy = Busy(self.with_clock())
        callbacks = self.make(busy, step_timeout_s=60)
        for _ in range(3):
            self.call(callbacks)
        self.assertEqual((callbacks.off, len(busy.alarms)), ("", 3))
        self.assertGreater(min(busy.alarms), 12, "not what an earlier one left")

    def test_one_that_catches_the_end_of_its_time_is_interrupted_again(self):
        callbacks = self.make(Deaf(), step_timeout_s=0.1)
        self.call(callbacks, "on_episode_end")
        self.assertIn("on_episode_end of Deaf", callbacks.off)

    def test_one_that_catches_the_end_of_its_time_and_returns_is_not_called_again(self):
        catches = Catches()
        callbacks = self.make(catches, step_timeout_s=0.1)
        for _ in range(2):
            self.call(callbacks)
        self.assertEqual((callbacks.off, catches.calls), ("on_episode_step of Catches: did not return within 0.05 s", 1))

    def test_where_no_time_is_left_it_is_not_called(self):
        clock = self.with_clock()
        busy, quick = Busy(clock), Quick()
        callbacks = self.make(busy, quick, step_timeout_s=36)
        self.call(callbacks)
        self.assertEqual((callbacks.off, len(busy.alarms), quick.calls), ("on_episode_step of Quick: did not return within 18 s", 1, 0))

    def test_an_alarm_beside_the_call_leaves_nothing_armed(self):
        """It strikes when the timer has been set, before the callback is called; or when that has returned and the timer is being stopped."""
        armed = signal.setitimer

        def strikes(when):
            def set_timer(which, seconds, interval=0.0):
                was = armed(which, seconds, interval)
                if when(seconds):
                    signal.raise_signal(signal.SIGALRM)
                return was
            return set_timer

        for when, calls, off in ((lambda seconds: 0 < seconds < 100, 0, "on_episode_step of Quick: did not return within 30 s"),
                                 (lambda seconds: seconds == 0, 1, "")):
            quick = Quick()
            callbacks = self.make(quick, step_timeout_s=60)
            with mock.patch.object(signal, "setitimer", strikes(when)):
                self.call(callbacks)
            self.assertEqual((callbacks.off, quick.calls), (off, calls))
            callbacks._on_alarm(signal.SIGALRM, None)  # one that comes late strikes nobody


class Notes(Callback):
    """Writes down what it knows of each episode, and tracks each agent's return of each step."""

    def __init__(self):
        self.episodes, self.starts, self.seen, self.first = [], [], [], {}

    def on_episode_start(self, ctx):
        self.starts.append(dict(ctx.policies))
        self.first = ctx.observations

    def on_episode_step(self, ctx):
        self.seen.append({name: getattr(ctx, name) for name in ("actions", "log_probs", "rewards", "observations", "action_masks")})
        ctx.track("Return", sum(ctx.returns.values()))

    def on_episode_end(self, ctx):
        self.episodes.append({"env": ctx.env, "agents": ctx.agents, "policies": ctx.policies, "returns": ctx.returns, "length": ctx.length})


class EpisodeWatchTest(unittest.TestCase):
    """Two agents of an environment, whose episodes a test plays by hand."""

    def setUp(self):
        self.notes = Notes()
        callbacks = EpisodeCallbacks([], 60)
        callbacks._names, callbacks._callbacks = ["Notes"], [self.notes]
        self.header, self.players, self.tracked = [0] * 16, bytearray(2 * shm.PLAYER_BYTES), bytearray(shm.TRACKED_BYTES)
        self.header[shm.BLOCK_CALLBACKS] = 1
        self.adapter = types.SimpleNamespace(env="the environment", kept_infos={})
        self.watch = EpisodeWatch(callbacks, ["a", "b"], self.header, memoryview(self.players), memoryview(self.tracked))

    def play(self, steps, *, a, b):
        """An episode of these rewards, [(of a, of b)]; a and b: who plays them."""
        for index, player in enumerate((a, b)):
            data = struct.pack("=f", -0.5 * (index + 1)) + bytes([len(player)]) + player.encode()
            self.players[index * shm.PLAYER_BYTES : index * shm.PLAYER_BYTES + len(data)] = data
        self.watch.begin(self.adapter, types.SimpleNamespace(observations=[1, 1], rewards=[0.0, 0.0], action_masks=[None, None]))
        for number, rewards in enumerate(steps):
            self.watch.acting(memoryview(bytes([1, 1])), [number, -number])
            self.watch.stepped(self.adapter, types.SimpleNamespace(observations=[number, None], rewards=rewards, action_masks=["a mask", None]))
        self.watch.end()
        return json.loads(bytes(self.tracked[: self.header[shm.BLOCK_CALLBACK_BYTES]]))

    def test_an_episode_has_its_players_and_the_sums_of_its_rewards(self):
        self.play([(1.0, 0.5), (2.0, -1.0), (4.0, 0.0)], a="main", b="old")
        self.play([(1.0, 0.0)], a="other", b="main")
        self.assertEqual(self.notes.episodes, [
            {"env": "the environment", "agents": ["a", "b"], "policies": {"a": "main", "b": "old"}, "returns": {"a": 7.0, "b": -0.5}, "length": 3},
            {"env": "the environment", "agents": ["a", "b"], "policies": {"a": "other", "b": "main"}, "returns": {"a": 1.0, "b": 0.0}, "length": 1}])
        self.assertEqual(self.notes.starts, [{"a": "main", "b": "old"}, {"a": "other", "b": "main"}], "known before the first step")

    def test_a_step_is_seen_as_it_was(self):
        self.play([(1.0, 0.5), (2.0, -1.0)], a="main", b="old")
        self.assertEqual(self.notes.seen, [
            {"actions": {"a": 0, "b": 0}, "log_probs": {"a": -0.5, "b": -1.0}, "rewards": {"a": 1.0, "b": 0.5}, "observations": {"a": 0}, "action_masks": {"a": "a mask"}},
            {"actions": {"a": 1, "b": -1}, "log_probs": {"a": -0.5, "b": -1.0}, "rewards": {"a": 2.0, "b": -1.0}, "observations": {"a": 1}, "action_masks": {"a": "a mask"}}])
        self.assertEqual(self.notes.first, {"a": 1, "b": 1})

    def test_what_an_episode_tracks_is_its_mean(self):
        self.assertEqual(self.play([(1.0, 0.0), (2.0, 0.0), (1.0, 4.0)], a="main", b="main"), {"tracked": [["Return", 4.0, 1]], "off": ""})
        self.watch.end()
        said = json.loads(bytes(self.tracked[: self.header[shm.BLOCK_CALLBACK_BYTES]]))
        self.assertEqual((said, len(self.notes.episodes)), ({"tracked": [], "off": ""}, 1), "an end without an episode says nothing")

    def test_episodes_of_other_environments_add_up(self):
        class Tracks(Callback):
            """Tracks an episode's length."""

            def on_episode_end(self, ctx):
                ctx.track("Length", ctx.length)
        callbacks = EpisodeCallbacks([], 60)
        callbacks._names, callbacks._callbacks = ["Tracks"], [Tracks()]
        episodes = [{"length": length, "returns": {}, "policies": {}} for length in (3, 5)]
        said = episode_callbacks.call_ended(callbacks, episodes, 10)
        self.assertEqual(said, {"called": 2, "tracked": [["Length", 8.0, 2]], "off": ""})

    def test_after_one_raised_none_is_called(self):
        class Raises(Callback):
            """Does."""

            def on_episode_end(self, ctx):
                raise KeyError("broken")
        quick = Notes()
        callbacks = EpisodeCallbacks([], 60)
        callbacks._names, callbacks._callbacks = ["Raises", "Notes"], [Raises(), quick]
        callbacks.begin_request()
        callbacks.call("on_episode_end", EpisodeContext(None))
        self.assertRegex(callbacks.off, "^on_episode_end of Raises: KeyError: 'broken'")
        self.assertEqual(quick.episodes, [])


if __name__ == "__main__":
    unittest.main()
