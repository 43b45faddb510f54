"""troupe.callback_host and the contexts of its calls, without a learner: what each call sends to it."""

import os
import sys
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import troupe.env_adapters.resolve  # noqa: E402,F401  before a test puts modules of its own beside it
from troupe import callbacks  # noqa: E402
from troupe.callback_host import CallbackHost  # noqa: E402
from troupe.program import TroupeError  # noqa: E402


class Leaves(callbacks.Callback):
    """Ends its process, or would."""

    def on_update_end(self, ctx):
        sys.exit("enough")


class Tracks(callbacks.Callback):
    """Tracks what it is told, under as many names as it is told."""

    def on_update_end(self, ctx):
        for number in range(ctx.names):
            ctx.track(f"name_{number}", ctx.env_steps)

    def on_episode_end(self, ctx):
        """Called in other processes."""


class Saves(callbacks.Callback):
    """Wants a checkpoint after each checkpoint."""

    def on_checkpoint_end(self, ctx):
        ctx.save()


class CallbackHostTest(unittest.TestCase):
    def setUp(self):
        self.sent = []
        module = types.ModuleType("mine")
        module.Leaves, module.Tracks, module.Saves, module.Other = Leaves, Tracks, Saves, dict
        patch = mock.patch.dict(sys.modules, mine=module)
        patch.start()
        self.addCleanup(patch.stop)

    def make(self, *names):
        return CallbackHost(types.SimpleNamespace(send=self.sent.append), {"callbacks": [f"mine:{name}" for name in names], "run": "runs/here"})

    def call(self, host, hook, **facts):
        """-> what the learner is sent."""
        self.sent.clear()
        host.call(hook, facts)
        return self.sent

    def test_a_method_that_nothing_calls_is_refused(self):
        sys.modules["mine"].Typo = type("Typo", (Leaves,), {"on_train_result": lambda self, ctx: None})
        with self.assertRaisesRegex(TypeError, "^callback mine:Typo: got the method on_train_result, which nothing calls, expected one of .*; RLlib's"):
            self.make("Leaves", "Typo")

    def test_only_what_is_overridden_is_called(self):
        host = self.make("Leaves", "Tracks", "Saves")
        self.assertEqual(host.hooks, ["on_update_end", "on_checkpoint_end"])
        self.assertEqual(host.episode_hooks, [[], ["on_episode_end"], []])
        self.assertEqual(self.call(host, "on_run_start", env_steps=0), [{"op": "done"}])

    def test_one_that_ends_the_process_costs_the_next_one_nothing(self):
        said = self.call(self.make("Leaves", "Tracks"), "on_update_end", env_steps=400, names=1)
        self.assertEqual([message["op"] for message in said], ["raised", "track", "done"])
        self.assertEqual((said[0]["callback"], said[1]), ("mine:Leaves", {"op": "track", "name": "name_0", "value": 400.0}))
        self.assertIn("enough", said[0]["error"])

    def test_a_run_has_so_many_names(self):
        host = self.make("Tracks")
        self.call(host, "on_update_end", env_steps=1, names=callbacks.MAX_TRACKED)
        for names, raised in ((callbacks.MAX_TRACKED, []), (callbacks.MAX_TRACKED + 1, ["raised"])):
            said = self.call(host, "on_update_end", env_steps=2, names=names)
            self.assertEqual([message["op"] for message in said], ["track"] * callbacks.MAX_TRACKED + raised + ["done"])

    def test_no_checkpoint_asks_for_the_next(self):
        said = self.call(self.make("Saves"), "on_checkpoint_end", env_steps=400, is_best=False, error=None)
        self.assertEqual([message["op"] for message in said], ["raised", "done"], "the learner is not asked")
        self.assertIn("TroupeError: save in on_checkpoint_end", said[0]["error"])
        with self.assertRaises(TroupeError):
            callbacks.CheckpointContext(mock.Mock(), {}).save()

    def test_what_is_no_callback_is_named(self):
        with self.assertRaisesRegex(TypeError, "callback mine:Other: got an object of type dict"):
            self.make("Other")


if __name__ == "__main__":
    unittest.main()
