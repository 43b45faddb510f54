#!/usr/bin/env python3
"""Troupe's PQN beside JaxMARL's: env steps a second of training, each from its own environment (docs/benchmarks.md).

    git clone https://github.com/FLAIROx/JaxMARL CHECKOUT
    python3.11 -m venv VENV
    VENV/bin/pip install -r bench/peers/requirements/jaxmarl.txt wandb hydra-core omegaconf six
    bench/peers/pqn.py build/release --jaxmarl-python VENV/bin/python --jaxmarl CHECKOUT [--rounds 5] [--updates 100]

PyPI's jaxmarl has the environments alone, so the checkout gives both the trainer and its environments. Each round runs all cases, one after another,
each with all cores:

  jaxmarl       `make_train` of CHECKOUT/baselines/QLearning/pqn_vdn_ff.py as one jitted program; it learns the team's value. Its settings for MPE,
                but for those below; W&B and evaluations are off. It is compiled and called once before the call that is timed. Its own main wraps
                it in a vmap over seeds, which with one seed is slower: with --vmap it is timed so
  troupe        `troupe train`, learner and two workers as processes, each agent learns its own value (mixer: none)
  troupe lag 1  the same with `algorithm.max_policy_lag: 1`: sampling overlaps the update
  troupe vdn    as `troupe` with `algorithm.mixer: vdn`: the loss that JaxMARL's has

All: simple_spread with 3 agents, 160 environments x 25 steps an update, then 4 epochs of 16 minibatches of 750 rows; one network for all agents,
which sees 18 numbers and which agent it is, 2 x 64 with layer norms and ReLU. Troupe's figures are of its progress.jsonl, behind 20 updates; beside
them stand the seconds of an update (update_s) and of waiting for samples (wait_s). Troupe steps with Adam, JaxMARL with RAdam.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

CONFIG = """
env: {name: mpe/simple_spread, args: {N: 3, local_ratio: 0.5, max_cycles: 25}}
algorithm: {name: pqn, train_batch_size: 4000, num_minibatches: 16, num_epochs: 4, gamma: 0.9, q_lambda: 0.3, max_grad_norm: 1.0}
model: {actor_hidden_sizes: [64, 64], activation: relu}
num_workers: 2
num_envs_per_worker: 80
device: cpu
evaluation: {at_end: false}
experiment: {write_interval: 1}
"""
CASES = {"troupe": [], "troupe lag 1": ["--set", "algorithm.max_policy_lag=1"], "troupe vdn": ["--set", "algorithm.mixer=vdn"]}
ENVS, STEPS, EPOCHS, MINIBATCHES = 160, 25, 4, 16
BATCH = ENVS * STEPS
WARM = 20  # updates


def time_jaxmarl(checkout, updates, vmap):
    """In JaxMARL's interpreter: prints env steps a second and versions as JSON."""
    folder = os.path.join(checkout, "baselines", "QLearning")
    sys.path[:0] = [checkout, folder]
    os.environ["WANDB_MODE"] = "disabled"
    import jax
    import jaxmarl
    import pqn_vdn_ff as pqn
    import yaml

    with open(os.path.join(folder, "config", "alg", "pqn_vdn_ff_mpe.yaml")) as file:
        config = yaml.safe_load(file)
    config.update(WANDB_MODE="disabled", TEST_DURING_TRAINING=False, HIDDEN_SIZE=64, NUM_LAYERS=2, NORM_TYPE="layer_norm", NUM_ENVS=ENVS,
                  NUM_STEPS=STEPS, NUM_EPOCHS=EPOCHS, NUM_MINIBATCHES=MINIBATCHES, TOTAL_TIMESTEPS=updates * BATCH, ENV_NAME="MPE_simple_spread_v3",
                  ENV_KWARGS={"num_agents": 3, "num_landmarks": 3, "local_ratio": 0.5, "max_steps": STEPS})
    env, _ = pqn.env_from_config(config)
    train = pqn.make_train(config, env)
    key = jax.random.PRNGKey(0)
    if vmap:
        train, key = jax.vmap(train), key[None]
    train = jax.jit(train).lower(key).compile()
    jax.block_until_ready(train(key))
    start, cpu = time.monotonic(), time.process_time()
    state = jax.block_until_ready(train(key))["runner_state"][0]
    seconds, cpu = time.monotonic() - start, time.process_time() - cpu
    env_steps = int(state.timesteps.sum())
    if (env_steps, int(state.grad_steps.sum())) != (updates * BATCH, updates * EPOCHS * MINIBATCHES):
        sys.exit(f"JaxMARL made {env_steps} env steps and {int(state.grad_steps.sum())} minibatch steps")
    print(json.dumps({"rate": env_steps / seconds, "cpus": cpu / seconds, "jax": jax.__version__, "jaxmarl": jaxmarl.__version__}))


def cpu_seconds():
    """(busy of all CPUs, of this program's children that have ended)."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, *_ = map(int, file.readline().split()[1:])
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK"), children.ru_utime + children.ru_stime


def beside(measured, *args):
    """What `measured(*args)` gives, CPUs that its processes used, and CPUs that other programs used meanwhile."""
    before = *cpu_seconds(), time.monotonic()
    result = measured(*args)
    busy, own, seconds = (now - then for now, then in zip((*cpu_seconds(), time.monotonic()), before))
    return result, own / seconds, max(0.0, busy - own) / seconds


def measure_jaxmarl(args):
    command = [args.jaxmarl_python, os.path.abspath(__file__), "--time-jaxmarl", "--jaxmarl", os.path.abspath(args.jaxmarl),
               "--updates", str(args.updates), *(["--vmap"] if args.vmap else [])]
    said = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, JAX_PLATFORMS="cpu"))
    if said.returncode != 0:
        sys.exit(f"JaxMARL's exit status is {said.returncode}:\n{said.stdout[-1000:]}{said.stderr[-2000:]}")
    return json.loads(said.stdout.splitlines()[-1])


def measure_troupe(build, settings, updates):
    """Env steps a second, and mean seconds of an update and of waiting for samples."""
    with tempfile.TemporaryDirectory(prefix="troupe-pqn-") as folder:
        config = os.path.join(folder, "config.yaml")
        with open(config, "w") as file:
            file.write(CONFIG)
        command = [os.path.join(build, "services", "cli", "troupe"), "train", config, "--directory", folder, "--name", "run"]
        command += ["--set", f"stop.env_steps={(WARM + 1 + updates) * BATCH}", *settings]
        said = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if said.returncode != 0:
            sys.exit(f"troupe's exit status is {said.returncode}:\n{said.stdout[-2000:]}")
        with open(os.path.join(folder, "run", "progress.jsonl")) as file:
            lines = [json.loads(line) for line in file]
    first, *timed = lines[WARM:]
    last = timed[-1]
    if last["minibatch_steps"] != EPOCHS * MINIBATCHES:
        sys.exit(f"an update of Troupe's had {last['minibatch_steps']} minibatch steps")
    rate = (last["env_steps"] - first["env_steps"]) / (last["wall_clock_s"] - first["wall_clock_s"])
    return rate, *(statistics.mean(line[name] for line in timed) for name in ("update_s", "wait_s"))


def spread(numbers, digits):
    return f"{statistics.median(numbers):,.{digits}f} ({min(numbers):,.{digits}f} to {max(numbers):,.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?")
    parser.add_argument("--jaxmarl-python", help="a Python with what JaxMARL's script imports")
    parser.add_argument("--jaxmarl", required=True, help="a checkout of JaxMARL")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=100, help="that are timed, of each case")
    parser.add_argument("--vmap", action="store_true", help="time JaxMARL's program under a vmap over one seed, as its main makes it")
    parser.add_argument("--time-jaxmarl", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.time_jaxmarl:
        return time_jaxmarl(args.jaxmarl, args.updates, args.vmap)
    if not args.build or not args.jaxmarl_python:
        parser.error("expected a build and --jaxmarl-python")
    peer, others, (rates, ratios, parts) = [], [], ({case: [] for case in CASES} for _ in range(3))
    for _ in range(args.rounds):
        said, _, other = beside(measure_jaxmarl, args)
        peer.append(said["rate"])
        others.append(other)
        line = f"jaxmarl {said['rate']:,.0f} on {said['cpus']:.2f} CPUs"
        for case, settings in CASES.items():
            (rate, *seconds), own, other = beside(measure_troupe, args.build, settings, args.updates)
            rates[case].append(rate)
            ratios[case].append(rate / said["rate"])
            parts[case].append(seconds)
            others.append(other)
            line += f"; {case} {rate:,.0f} on {own:.2f}: {ratios[case][-1]:.2f} times"
        print(f"{line}; other programs used {', '.join(f'{other:.2f}' for other in others[-1 - len(CASES):])}", flush=True)
    print(f"jaxmarl {said['jaxmarl']} with jax {said['jax']}: {spread(peer, 0)} env steps/s")
    for case in CASES:
        update_s, wait_s = (statistics.median(part) for part in zip(*parts[case]))
        print(f"{case}: {spread(rates[case], 0)} env steps/s, {spread(ratios[case], 2)} times JaxMARL's; "
              f"an update takes {update_s * 1e3:.1f} ms, waiting for samples {wait_s * 1e3:.1f} ms")
    if max(others) > 0.1:
        print(f"other programs used up to {max(others):.2f} CPUs meanwhile: the figures do not count")


if __name__ == "__main__":
    main()
