"""The floor under the frameworks: the Python environment alone, random actions, one process.

Writes marks as a trainer does, one for each 4000 env steps, with no minibatch steps.
"""

import importlib.metadata
import random

import probe


def main():
    args = probe.parse_args(__doc__)
    env = probe.make_spread()
    env.reset(seed=args.seed)
    agents = list(env.possible_agents)
    actions = int(env.action_space(agents[0]).n)
    choice = random.Random(args.seed)
    marks = probe.Marks(args.seconds)
    steps = 0
    while True:
        env.step({agent: choice.randrange(actions) for agent in agents})
        if not env.agents:
            env.reset()
        steps += 1
        if steps % probe.SETTINGS["train_batch_env_steps"] == 0 and marks.add(steps, 0):
            break
    versions = {}
    for name in ("mpe2", "pettingzoo"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    marks.write(versions=versions)
    probe.leave()


if __name__ == "__main__":
    main()
