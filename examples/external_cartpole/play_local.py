"""Plays cart-pole with the Python package, and acts in this process (docs/external.md, Local inference):

    PYTHONPATH=python python3 examples/external_cartpole/play_local.py runs/outside      # PYTHONPATH: in a checkout
"""

import sys
import time

from cartpole import CartPole

import troupe
from troupe.external import EpisodeError


def play(env, world):
    """One episode; its return."""
    episode = env.start_episode()
    observation, total = world.reset(), 0.0
    while True:
        action = env.get_actions(episode, {"cart": observation})["cart"]  # decided here; the worker hears of it meanwhile
        observation, reward, terminated, truncated = world.step(action)
        total += reward
        env.log_returns(episode, {"cart": reward})
        if terminated or truncated:
            env.end_episode(episode, {"cart": observation}, truncated=truncated)
            return total


def main():
    returns, world = [], CartPole()
    with troupe.ExternalEnv(sys.argv[1], local_inference=True) as env:
        while True:
            try:
                returns.append(play(env, world))
            except EpisodeError as error:
                if error.code in ("ABORTED", "DEADLINE_EXCEEDED"):
                    continue  # the episode is over without us: begin another
                if error.code == "UNAVAILABLE" and not returns:
                    time.sleep(0.5)  # the run has not begun yet
                    continue
                print(f"the run is over: {error.code}")
                return
            if len(returns) % 20 == 0:
                print(f"{len(returns)} episodes, the last 20 with a return of {sum(returns[-20:]) / 20:.1f}", flush=True)


if __name__ == "__main__":
    main()
