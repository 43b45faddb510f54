#!/usr/bin/env python3
"""Python environments through Troupe's host beside the same environments in a bare loop, and beside Gymnasium's and
SuperSuit's vector environments, in one run.

    PYTHON bench/env_host_bench.py [--binary FILE] [--processes 1] [--seconds 3] [--repeat 3] [--only CASE …]

PYTHON is an interpreter with numpy; cases whose packages it lacks (mpe2, lbforaging, gymnasium, supersuit) are reported
as missing. Each repetition runs every contender of a case once, in turn, each in a new process, since a process's
addresses and hashes alone make some percent; the table shows the median, and of the repetitions' ratios the median,
lowest and highest. Rates are by the clock, and by the CPU time of the host's process or of the bare loop: what a core
of its own would give, whatever else runs on the machine.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TESTING = os.path.join(ROOT, "lib", "envhost", "testing")
sys.path[:0] = [TESTING, os.path.join(ROOT, "python")]


def host(arguments, env, args, processes, envs):
    """What the host's bench says, as a dict."""
    command = [arguments.binary, "python:" + env, json.dumps(args), "--interpreter", sys.executable, "--path", TESTING]
    command += ["--processes", str(processes), "--envs", str(envs), "--seconds", str(arguments.seconds)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def per_second(result, how):
    """(steps a second, steps a CPU second) of the host."""
    return result[f"env_steps_per_s_{how}"], result[f"env_steps_per_cpu_s_{how}"]


def bare_parallel(make, seconds):
    """Steps a second of a PettingZoo parallel environment with random actions, in a loop and nothing else."""
    env = make()
    env.reset(seed=1)
    spaces = {agent: env.action_space(agent).n for agent in env.possible_agents}
    table = [{agent: (i * 7 + j) % n for j, (agent, n) in enumerate(spaces.items())} for i in range(1009)]
    steps, begin, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds:
        for _ in range(50):
            if not env.agents:
                env.reset()
            env.step(table[steps % 1009])
            steps += 1
    return steps / (time.perf_counter() - begin), steps / (time.process_time() - cpu)


def bare_foraging(name, seconds):
    """The same for lbforaging, a Gymnasium environment with lists."""
    import gymnasium
    import lbforaging  # noqa: F401  pylint: disable=unused-import

    env = gymnasium.make(name, disable_env_checker=True)
    env.reset(seed=1)
    sizes = [space.n for space in env.action_space]
    table = [tuple((i * 7 + j) % n for j, n in enumerate(sizes)) for i in range(1009)]
    steps, begin, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds:
        for _ in range(50):
            _, _, terminated, truncated, _ = env.step(table[steps % 1009])
            steps += 1
            if terminated or truncated:
                env.reset()
    return steps / (time.perf_counter() - begin), steps / (time.process_time() - cpu)


def gym_dummy(microseconds):
    """The dummy as one agent, for Gymnasium's vector environment: the same computing, both agents' numbers together."""
    import gymnasium
    import numpy as np

    class OneAgent(gymnasium.Env):
        """See above."""

        observation_space = gymnasium.spaces.Box(-1, 1, (8,), np.float32)
        action_space = gymnasium.spaces.MultiDiscrete([5, 5])

        def __init__(self):
            self.row = np.zeros(8, np.float32)
            self.steps = 0

        def reset(self, *, seed=None, options=None):
            """Zeros."""
            self.steps = 0
            return self.row, {}

        def step(self, action):
            """Computes until its time is over."""
            end = time.perf_counter() + microseconds * 1e-6
            self.steps += 1
            while time.perf_counter() < end:
                pass
            return self.row, 1.0, False, self.steps >= 1000, {}

    return OneAgent()


def zoo_dummy(microseconds):
    """The dummy with Gymnasium's spaces, which SuperSuit asks for."""
    import gymnasium
    import numpy as np
    import host_test_envs
    from pettingzoo import ParallelEnv

    class Zoo(host_test_envs.Dummy, ParallelEnv):
        """See above."""

        render_mode = None

        def __init__(self):
            host_test_envs.Dummy.__init__(self, microseconds)
            self.box = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
            self.discrete = gymnasium.spaces.Discrete(5)

    return Zoo()


def async_vector(microseconds, processes, seconds):
    """Env steps a second of Gymnasium's AsyncVectorEnv: a process an environment."""
    import gymnasium

    envs = gymnasium.vector.AsyncVectorEnv([lambda: gym_dummy(microseconds)] * processes)
    try:
        envs.reset(seed=1)
        actions = envs.action_space.sample()
        steps, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            envs.step(actions)
            steps += processes
        return steps / (time.perf_counter() - begin), 0
    finally:
        envs.close()


def concat_vec(microseconds, processes, envs, seconds):
    """Env steps a second of SuperSuit's concat_vec_envs with so many processes."""
    import supersuit

    vector = supersuit.pettingzoo_env_to_vec_env_v1(zoo_dummy(microseconds))
    vector = supersuit.concat_vec_envs_v1(vector, envs, num_cpus=processes, base_class="gymnasium")
    try:
        vector.reset(seed=1)
        agents = vector.num_envs // envs
        import numpy as np

        actions = np.zeros(vector.num_envs, np.int64)
        steps, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            vector.step(actions)
            steps += vector.num_envs // agents
        return steps / (time.perf_counter() - begin), 0
    finally:
        vector.close()


def cases(arguments):
    """name -> (needed packages, {contender: function})."""
    import host_test_envs

    def spread():
        from mpe2 import simple_spread_v3

        return simple_spread_v3.parallel_env()

    seconds = arguments.seconds
    forage = "Foraging-8x8-2p-2f-coop-v3"
    processes = arguments.processes
    return {
        "mpe2 simple_spread_v3, one process": (
            ["mpe2"],
            {
                "host, rounds": lambda: per_second(host(arguments, "mpe2.simple_spread_v3", {}, 1, 16), "rounds"),
                "host, pipelined": lambda: per_second(host(arguments, "mpe2.simple_spread_v3", {}, 1, 16), "pipelined"),
                "bare loop": lambda: bare_parallel(spread, seconds),
            },
        ),
        f"lbforaging {forage}, one process": (
            ["lbforaging"],
            {
                "host, rounds": lambda: per_second(host(arguments, "lbforaging:" + forage, {}, 1, 16), "rounds"),
                "host, pipelined": lambda: per_second(host(arguments, "lbforaging:" + forage, {}, 1, 16), "pipelined"),
                "bare loop": lambda: bare_foraging(forage, seconds),
            },
        ),
        "dummy of 5 us, two agents, one process": (
            [],
            {
                "host, rounds": lambda: per_second(
                    host(arguments, "host_test_envs:Dummy", {"microseconds": 5.0}, 1, 16), "rounds"
                ),
                "host, pipelined": lambda: per_second(
                    host(arguments, "host_test_envs:Dummy", {"microseconds": 5.0}, 1, 16), "pipelined"
                ),
                "bare loop": lambda: bare_parallel(lambda: host_test_envs.Dummy(5.0), seconds),
            },
        ),
        f"dummy of 5 us, {processes} process(es) each": (
            ["gymnasium", "supersuit"],
            {
                "host, rounds": lambda: per_second(
                    host(arguments, "host_test_envs:Dummy", {"microseconds": 5.0}, processes, 16 * processes), "rounds"
                ),
                "AsyncVectorEnv": lambda: async_vector(5.0, processes, seconds),
                "concat_vec_envs": lambda: concat_vec(5.0, processes, 16 * processes, seconds),
            },
        ),
        "84x84x4 uint8, four agents (GB/s)": (
            [],
            {
                "host, pipelined": lambda: (
                    host(arguments, "host_test_envs:Images", {}, 1, 8)["observation_gb_per_s_pipelined"],
                    0,
                )
            },
        ),
    }


def main():
    """Runs the cases and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "build", "release", "bench", "env_host_bench"))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", action="append", help="cases whose name contains this")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "CONTENDER"), help="run this alone, once; prints JSON")
    arguments = parser.parse_args()
    if arguments.one:
        case, contender = arguments.one
        print(json.dumps(cases(arguments)[case][1][contender]()))
        return
    for name, (packages, contenders) in cases(arguments).items():
        if arguments.only and not any(word in name for word in arguments.only):
            continue
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        if missing:
            print(f"{name}: not measured, {sys.executable} lacks {', '.join(missing)}")
            continue
        print(name, flush=True)
        rates = {contender: [] for contender in contenders}
        for _ in range(arguments.repeat):
            for contender in contenders:
                rates[contender].append(in_new_process(name, contender))
        first = next(iter(rates))
        for contender, values in rates.items():
            text = f"  {contender:16} {shown(values, 0):>10} /s"
            if contender != first:
                text += f"; {first} / this: {ratio(rates[first], values, 0)}"
            if values[0][1]:
                text += f"; {shown(values, 1)} / CPU s"
                if contender != first:
                    text += f", ratio {ratio(rates[first], values, 1)}"
            print(text, flush=True)


def in_new_process(case, contender):
    """What --one prints."""
    command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--one", case, contender]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.splitlines()[-1])


def shown(values, column):
    """The median."""
    median = statistics.median(value[column] for value in values)
    return f"{median:,.0f}" if median > 100 else f"{median:.2f}"


def ratio(firsts, values, column):
    """Median, lowest and highest of the repetitions' ratios."""
    ratios = [first[column] / value[column] for first, value in zip(firsts, values)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
