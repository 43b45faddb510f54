"""Mapping functions and policies for the tests of lib/envhost."""

import os
import random
import signal
import time

import numpy as np

NOT_CALLABLE = 3


def tell(agent_id, episode, worker):
    """Answers with what it was told."""
    others = ",".join(f"{agent}={policy}" for agent, policy in episode.agent_policies.items())
    return (
        f"{agent_id} env {episode.env_id} episode {episode.episode} worker {worker.worker_index} "
        f"of {len(worker.policies)} args {episode.env_args} others {others} {episode.episode_id % 1000003}"
    )


def draw(agent_id, episode, worker):
    """One of the policies, by the global generator."""
    return random.choice(worker.policies)


def two(agent_id, episode):
    """As RLlib's newer form."""
    return f"{agent_id} {episode.episode}"


one = lambda agent_id: f"only {agent_id}"  # noqa: E731


def none():
    """Takes nothing."""


def faulty(agent_id, episode, worker):
    """Fails as the episode's number says."""
    return _fail(episode.episode, "fine")


def _fail(kind, otherwise):
    if kind == 1:
        raise ValueError("nobody plays")
    if kind == 2:
        return 5
    if kind == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == 4:
        time.sleep(60)
    if kind == 5:
        raise SystemExit(3)
    return otherwise


def shifted(observations, rows):
    """Discrete(2): whether the observation's sum is above 0; fails in the episodes with numbers from 1 on."""
    answer = _fail(int(rows.episodes[0]), None)
    return answer if answer is not None else (observations.sum(axis=1) > 0).astype(int)


def allowed(observations, rows):
    """The last action that the mask allows."""
    assert rows.action_mask.shape == (len(observations), 2)
    return [int(np.flatnonzero(mask)[-1]) for mask in rows.action_mask]


def drawn(observations, rows):
    """Uniform in [-1, 1], by the rows' generator; zeros when a deterministic action is wanted."""
    assert observations.shape[1:] == (2, 2) and observations.dtype == np.float32
    return np.zeros((len(observations), 3)) if rows.deterministic else rows.rng.uniform(-1, 1, (len(observations), 3))


def outside(observations):
    """Not in Discrete(2)."""
    return [2] * len(observations)


def too_few(observations):
    """A row less."""
    return [0] * (len(observations) - 1)


def of_dict(observations, rows):
    """A Dict observation, a Tuple action."""
    return [(int(o["direction"]), np.array([o["place"][0]])) for o in observations]


class Remembers:
    """Discrete(2): the number of calls so far, modulo 2. Its end leaves a mark in the file that policy_id names."""

    def __init__(self, policy_id):
        self.calls, self.policy_id = 0, policy_id

    def __call__(self, observations, rows):
        self.calls += 1
        return [self.calls % 2] * len(observations)

    def close(self):
        """Leaves a mark."""
        with open(os.path.join(os.environ["TROUPE_TEST_MARKS"], self.policy_id), "a", encoding="utf-8") as file:
            file.write(f"closed after {self.calls}\n")


class NotCallable:
    """Has no __call__."""


class Sleepy:
    """Takes a minute to be made, and leaves a mark when that begins."""

    def __init__(self, policy_id):
        with open(os.path.join(os.environ["TROUPE_TEST_MARKS"], policy_id), "a", encoding="utf-8"):
            pass
        time.sleep(60)

    def __call__(self, observations, rows):
        return [0] * len(observations)
