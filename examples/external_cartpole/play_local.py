"""Plays cart-pole with the Python package, and acts in this process (docs/external.md, Local inference):

    PYTHONPATH=python python3 examples/external_cartpole/play_local.py runs/outside      # PYTHONPATH: in a checkout
"""

import sys
import time

from cartpole import CartPole

import troupe
from troupe.external import EpisodeError, RunEnded

PATIENCE_S = 60  # for a run that has not begun yet


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
    print(f"waiting for a run at {sys.argv[1]}, {PATIENCE_S} s at most", flush=True)
    deadline = time.monotonic() + PATIENCE_S
    with troupe.ExternalEnv(sys.argv[1], local_inference=True) as env:
        while True:
            try:
                returns.append(play(env, world))
            except RunEnded:
                print("the run has ended")
                return
            except EpisodeError as error:
                if error.code in ("ABORTED", "DEADLINE_EXCEEDED"):
                    continue  # the episode is over without us: begin another
                if error.code == "UNAVAILABLE" and not returns:
                    if time.monotonic() > deadline:
                        sys.exit(f"no run answers at {sys.argv[1]}: got nothing in {PATIENCE_S} s, expected the folder that `troupe train` says")
                    time.sleep(0.5)
                    continue
                sys.exit(f"no more answers: {error.code}")
            if len(returns) % 20 == 0:
                print(f"{len(returns)} episodes, the last 20 with a return of {sum(returns[-20:]) / 20:.1f}", flush=True)


if __name__ == "__main__":
    main()
