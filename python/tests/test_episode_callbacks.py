"""troupe.episode_callbacks: how long callbacks may take, without an environment."""

import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from troupe.callbacks import Callback, EpisodeContext  # noqa: E402
from troupe.episode_callbacks import CallbackTimeout, EpisodeCallbacks  # noqa: E402


class Busy(Callback):
    """Takes most of a request's time."""

    def on_episode_step(self, ctx):
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            pass


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


class EpisodeCallbacksTest(unittest.TestCase):
    def make(self, *classes):
        callbacks = EpisodeCallbacks([], step_timeout_s=1.0)
        callbacks._names, callbacks._callbacks = [each.__name__ for each in classes], [each() for each in classes]
        return callbacks

    def test_the_calls_of_a_request_share_its_time(self):
        callbacks = self.make(Busy, Busy)
        begin = time.monotonic()
        callbacks.begin_request()
        callbacks.call("on_episode_step", EpisodeContext(None))
        self.assertIn("on_episode_step of Busy: did not return within 0.5 s", callbacks.off)
        self.assertLess(time.monotonic() - begin, 0.9, "half of the request is the environment's")

    def test_each_request_has_a_time_of_its_own(self):
        callbacks = self.make(Busy)
        for _ in range(3):
            callbacks.begin_request()
            callbacks.call("on_episode_step", EpisodeContext(None))
        self.assertEqual(callbacks.off, "")

    def test_one_that_catches_the_end_of_its_time_is_interrupted_again(self):
        callbacks = self.make(Deaf)
        callbacks.call("on_episode_end", EpisodeContext(None))
        self.assertIn("on_episode_end of Deaf", callbacks.off)


if __name__ == "__main__":
    unittest.main()
