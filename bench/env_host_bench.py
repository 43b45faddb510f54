#!/usr/bin/env python3
"""Python environments through Troupe's host beside the same environments in a bare loop, and beside Gymnasium's and
SuperSuit's vector environments, in one run.

    PYTHON bench/env_host_bench.py [--binary FILE] [--processes 1] [--seconds 3] [--repeat 3] [--only CASE …]

PYTHON is an interpreter with numpy; cases whose packages it lacks (mpe2, lbforaging, gymnasium, supersuit) are reported
as missing. Each repetition starts every contender of a case in a process of its own and has them take short turns, until
each has had `--seconds`: whatever else the machine does meets all of them. The processes of the next repetition are new
ones, since a process's addresses and hashes alone make some percent. The table shows the median, and of the
repetitions' ratios the median, lowest and highest. Rates are by the clock, and by the CPU time of the host's process or
of the bare loop: what a core of its own would give, whatever else runs on the machine.
"""

import argparse
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TESTING = os.path.join(ROOT, "lib", "envhost", "testing")
TURN_SECONDS = 0.25
sys.path[:0] = [TESTING, os.path.join(ROOT, "python")]


def host(arguments, env, args, processes, envs, how):
    """A contender: turns of the host's bench."""
    command = [arguments.binary, "python:" + env, json.dumps(args), "--interpreter", sys.executable, "--path", TESTING]
    command += ["--processes", str(processes), "--envs", str(envs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bench:
        seconds = yield
        while True:
            bench.stdin.write(f"{how} {seconds}\n")
            bench.stdin.flush()
            turn = json.loads(bench.stdout.readline())
            done = turn["bytes"] / 1e9 if env.endswith(":Images") else turn["steps"]
            seconds = yield done, turn["seconds"], turn["cpu_seconds"]


def turns(steps):
    """A contender: turns of a loop. `steps` makes some and returns how many."""
    seconds = yield
    while True:
        done, begin, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - begin < seconds:
            done += steps()
        seconds = yield done, time.perf_counter() - begin, time.process_time() - cpu


def bare_parallel(make):
    """A PettingZoo parallel environment with random actions, in a loop and nothing else."""
    env = make()
    env.reset(seed=1)
    spaces = {agent: env.action_space(agent).n for agent in env.possible_agents}
    table = itertools.cycle([{a: (i * 7 + j) % n for j, (a, n) in enumerate(spaces.items())} for i in range(1009)])

    def steps():
        for _ in range(50):
            if not env.agents:
                env.reset()
            env.step(next(table))
        return 50

    return turns(steps)


def bare_foraging(name):
    """The same for lbforaging, a Gymnasium environment with lists."""
    import gymnasium
    import lbforaging  # noqa: F401  pylint: disable=unused-import

    env = gymnasium.make(name, disable_env_checker=True)
    env.reset(seed=1)
    sizes = [space.n for space in env.action_space]
    table = itertools.cycle([tuple((i * 7 + j) % n for j, n in enumerate(sizes)) for i in range(1009)])

    def steps():
        for _ in range(50):
            _, _, terminated, truncated, _ = env.step(next(table))
            if terminated or truncated:
                env.reset()
        return 50

    return turns(steps)


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


def async_vector(microseconds, processes):
    """Gymnasium's AsyncVectorEnv: a process an environment."""
    import gymnasium

    envs = gymnasium.vector.AsyncVectorEnv([lambda: gym_dummy(microseconds)] * processes)
    envs.reset(seed=1)
    actions = envs.action_space.sample()

    def steps():
        envs.step(actions)
        return processes

    return without_cpu(turns(steps))


def concat_vec(microseconds, processes, envs):
    """SuperSuit's concat_vec_envs with so many processes."""
    import numpy as np
    import supersuit

    vector = supersuit.pettingzoo_env_to_vec_env_v1(zoo_dummy(microseconds))
    vector = supersuit.concat_vec_envs_v1(vector, envs, num_cpus=processes, base_class="gymnasium")
    vector.reset(seed=1)
    actions = np.zeros(vector.num_envs, np.int64)

    def steps():
        vector.step(actions)
        return envs

    return without_cpu(turns(steps))


def without_cpu(contender):
    """Of one whose work is done in processes that it does not tell of."""
    turn = next(contender)
    while True:
        seconds = yield turn
        done, wall, _ = contender.send(seconds)
        turn = done, wall, 0


def cases(arguments):
    """name -> (needed packages, {contender: function})."""
    import host_test_envs

    def spread():
        from mpe2 import simple_spread_v3

        return simple_spread_v3.parallel_env()

    forage = "Foraging-8x8-2p-2f-coop-v3"
    processes = arguments.processes

    def both_ways(env, args):
        return {
            "host, pipelined": lambda: host(arguments, env, args, 1, 16, "pipelined"),
            "host, rounds": lambda: host(arguments, env, args, 1, 16, "rounds"),
        }

    dummy = ("host_test_envs:Dummy", {"microseconds": 5.0})
    return {
        "mpe2 simple_spread_v3, one process": (
            ["mpe2"],
            {**both_ways("mpe2.simple_spread_v3", {}), "bare loop": lambda: bare_parallel(spread)},
        ),
        f"lbforaging {forage}, one process": (
            ["lbforaging"],
            {**both_ways("lbforaging:" + forage, {}), "bare loop": lambda: bare_foraging(forage)},
        ),
        "dummy of 5 us, two agents, one process": (
            [],
            {**both_ways(*dummy), "bare loop": lambda: bare_parallel(lambda: host_test_envs.Dummy(5.0))},
        ),
        f"dummy of 5 us, {processes} process(es) each": (
            ["gymnasium", "supersuit"],
            {
                "host, pipelined": lambda: host(arguments, *dummy, processes, 16 * processes, "pipelined"),
                "AsyncVectorEnv": lambda: async_vector(5.0, processes),
                "concat_vec_envs": lambda: concat_vec(5.0, processes, 16 * processes),
            },
        ),
        "84x84x4 uint8, four agents (GB/s)": (
            [],
            {"host, pipelined": lambda: host(arguments, "host_test_envs:Images", {}, 1, 8, "pipelined")},
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
    parser.add_argument("--one", nargs=2, metavar=("CASE", "CONTENDER"), help="one contender: a turn for every line")
    arguments = parser.parse_args()
    if arguments.one:
        case, name = arguments.one
        contender = cases(arguments)[case][1][name]()
        next(contender)
        print("ready", flush=True)
        for line in sys.stdin:
            print(json.dumps(contender.send(float(line))), flush=True)
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
            for contender, rate in take_turns(name, contenders, arguments.seconds).items():
                rates[contender].append(rate)
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


def take_turns(case, contenders, seconds):
    """contender -> (done a second, done a CPU second), each in a new process."""
    command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--one", case]
    running, totals = {}, {contender: [0, 0, 0] for contender in contenders}
    for contender in contenders:
        running[contender] = subprocess.Popen(
            [*command, contender], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        while running[contender].stdout.readline() not in ("ready\n", ""):  # packages print what they like
            pass
    for turn in range(-1, max(1, round(seconds / TURN_SECONDS))):
        for contender, process in running.items():
            process.stdin.write(f"{TURN_SECONDS}\n")
            process.stdin.flush()
            measured = json.loads(process.stdout.readline())
            if turn >= 0:  # the first one warms up
                totals[contender] = [total + part for total, part in zip(totals[contender], measured)]
    for process in running.values():
        process.communicate()
    return {name: (done / wall, done / cpu if cpu else 0) for name, (done, wall, cpu) in totals.items()}


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
