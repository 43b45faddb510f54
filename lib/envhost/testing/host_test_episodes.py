"""Callbacks of episode_callbacks_test.cc, and what env it watches."""

import os
import time

from host_test_envs import Counter
from troupe.callbacks import Callback


class Reporting(Counter):
    """A Counter whose agent a has an info."""

    def step(self, actions):
        observations, rewards, terminated, truncated, _ = super().step(actions)
        return observations, rewards, terminated, truncated, {"a": {"steps": self.steps, "word": "yes"}}


def reporting(length=3):
    return Reporting(length)


class Watches(Callback):
    def __init__(self):
        self.episodes = 0

    def on_episode_start(self, ctx):
        assert ctx.length == 0 and set(ctx.policies) == set(ctx.agents), vars(ctx)
        assert all(value == 0 for value in ctx.returns.values()), vars(ctx)
        ctx.own = ["start"]
        ctx.track("started", 1)

    def on_episode_step(self, ctx):
        ctx.own.append(ctx.length)
        ctx.track("step", ctx.length)
        if ctx.infos:
            assert ctx.infos["a"]["word"] == "yes", ctx.infos
            ctx.track("info", ctx.infos["a"]["steps"])

    def on_episode_end(self, ctx):
        assert ctx.own == ["start", *range(1, ctx.length + 1)], ctx.own
        self.episodes += 1
        ctx.track("episode", self.episodes)
        ctx.track("length", ctx.length)
        ctx.track("return", sum(ctx.returns.values()))
        ctx.track("env steps", ctx.env.steps)
        ctx.track(f"policy {ctx.policies['a']} {ctx.policies['b']}", 1)


class Ends(Callback):
    """What an environment that is not in Python tells."""

    def on_episode_end(self, ctx):
        assert ctx.env is None and ctx.infos == {}, vars(ctx)
        ctx.track("length", ctx.length)
        for agent in ctx.agents:
            ctx.track(f"return {agent} {ctx.policies[agent]}", ctx.returns[agent])


class Second(Callback):
    def on_episode_end(self, ctx):
        ctx.track("length", 100 + ctx.length)
        ctx.track("second", 1)


def at_place(place, act):
    """A class whose hook `place` does something."""

    class Acts(Callback):
        pass

    setattr(Acts, place, lambda self, ctx: act(ctx))
    return Acts


def raises(ctx):
    raise ValueError("not today")


def leaves(ctx):
    raise SystemExit(4)


def hangs(ctx):
    while True:
        pass


def sleeps(ctx):
    time.sleep(3600)


def dies(ctx):
    os._exit(6)


def tracks_badly(ctx):
    ctx.track("x", float("nan"))


def tracks_more_than_may_be(ctx):
    ctx.track("x", 1e101)


def tracks_a_sum_beyond(ctx):
    ctx.track("x", -6e99)


def tracks_many(ctx):
    for number in range(65):
        ctx.track(f"many {number}", number)


RaisesAtStart, RaisesAtStep, RaisesAtEnd = (at_place(f"on_episode_{place}", raises) for place in ("start", "step", "end"))
HangsAtStep, HangsAtEnd = (at_place(f"on_episode_{place}", hangs) for place in ("step", "end"))
DiesAtStep, DiesAtEnd = (at_place(f"on_episode_{place}", dies) for place in ("step", "end"))
SleepsAtEnd, LeavesAtEnd = at_place("on_episode_end", sleeps), at_place("on_episode_end", leaves)
NanAtEnd, ManyAtEnd = at_place("on_episode_end", tracks_badly), at_place("on_episode_end", tracks_many)
HugeAtEnd, SumAtEnd = at_place("on_episode_end", tracks_more_than_may_be), at_place("on_episode_end", tracks_a_sum_beyond)


class Everything(Callback):
    """Other names in each episode, as many as it may."""

    def __init__(self):
        self.number = 0

    def on_episode_end(self, ctx):
        for _ in range(64):
            ctx.track(f"name {self.number}", 1)
            self.number += 1


class Unmade(Callback):
    def __init__(self):
        raise RuntimeError("no disk")


class Largest(Callback):
    """The longest answer that there may be."""

    def __init__(self):
        self.calls = 0

    def on_episode_end(self, ctx):
        self.calls += 1
        for number in range(64):
            ctx.track(f"{number:03}" + 125 * '"', 1 / 3)
        if self.calls == 2:
            raise ValueError(5000 * "\\")
