"""Callbacks of callback_host_test.cc."""

import os
import threading
import time

from troupe.callbacks import Callback


def note(text):
    with open(os.environ["TROUPE_TEST_NOTES"], "a") as file:
        file.write(text + "\n")


class First(Callback):
    def on_run_start(self, ctx):
        note(f"first starts resumed={ctx.resumed} reason={ctx.reason}")

    def on_update_end(self, ctx):
        note(f"first {ctx.env_steps}")

    def on_run_end(self, ctx):
        note(f"first ends {ctx.reason} {ctx.path}")


class Second(Callback):
    def on_update_end(self, ctx):
        note(f"second {ctx.env_steps}")


class Idle(Callback):
    """Overrides nothing."""


class Stranger:
    """No callback."""


class Unmade(Callback):
    def __init__(self):
        raise RuntimeError("no disk")


class Faulty(Callback):
    """What it does is the number of env steps."""

    def on_update_end(self, ctx):
        if ctx.env_steps == 1:
            raise ValueError("not today")
        if ctx.env_steps == 2:
            time.sleep(3600)
        if ctx.env_steps == 3:
            os._exit(3)
        if ctx.env_steps == 4:
            raise SystemExit(4)
        if ctx.env_steps == 5:
            os.write(3, b"hello\n")
            time.sleep(3600)
        if ctx.env_steps == 6:
            threading.Timer(0.1, os._exit, [6]).start()
        note(f"called {ctx.env_steps}")


class Asking(Callback):
    """Its questions take longer than a call may."""

    def on_update_end(self, ctx):
        ctx._learner.ask(lambda run: time.sleep(2.5))
        note("answered")


class Tracking(Callback):
    def on_update_end(self, ctx):
        ctx.track("reward", ctx.env_steps)
        ctx.track("Loss/mine", 0.5)

    def on_evaluation_end(self, ctx):
        for name, value in (("", 1), ("x" * 129, 1), ("a\nb", 1), (5, 1), ("nan", float("nan")), ("much", -1e101), ("word", "one")):
            try:
                ctx.track(name, value)
            except (ValueError, TypeError) as error:
                note(str(error))
        for number in range(300):
            ctx.track(f"many {number}", number)

    def on_run_end(self, ctx):
        for number in range(300):  # past the package's own check
            ctx._learner.send({"op": "track", "name": f"others {number}", "value": 1})


class Stopping(Callback):
    def on_update_end(self, ctx):
        ctx.stop("solved " * 100)


class Episodes(Callback):
    def on_update_end(self, ctx):
        note(f"episodes {ctx.env_steps}")

    def on_episode_step(self, ctx):
        note("never called here")


class Ends(Callback):
    def on_episode_end(self, ctx):
        note("never called here")
