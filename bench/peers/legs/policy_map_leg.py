"""RLlib's old-stack PolicyMap, driven over stdin: policy_map.py says how.

A policy is PPOTorchPolicy with an actor and a separate critic of two layers of 64 and an Adam that has taken a step. Reads a line of
policy numbers at a time, looks them up one after another, and answers with a line of JSON.
"""

import argparse
import json
import logging
import os
import sys
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", type=int, default=100)
    parser.add_argument("--capacity", type=int, default=10)
    parser.add_argument("--swappable", type=int, default=0)
    args = parser.parse_args()
    # What the libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import gymnasium
    import numpy
    import ray
    import torch
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.algorithms.ppo.ppo_torch_policy import PPOTorchPolicy
    from ray.rllib.policy.policy_map import PolicyMap

    logging.disable(logging.WARNING)
    ray.init(
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=1 << 30,
        _temp_dir=os.environ.get("PEERS_TMP"),
    )
    torch.set_num_threads(1)
    config = PPOConfig().framework("torch")
    config.api_stack(enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False)
    config.training(model={"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh", "vf_share_layers": False})
    observations = gymnasium.spaces.Box(-100, 100, (18,), numpy.float32)
    actions = gymnasium.spaces.Discrete(5)
    policies = PolicyMap(capacity=args.capacity, policy_states_are_swappable=bool(args.swappable))
    for number in range(args.policies):
        policy = PPOTorchPolicy(observations, actions, config.to_dict())
        for optimizer in policy._optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
        with torch.no_grad():
            next(policy.model.parameters()).fill_(float(number))
        policies[f"policy_{number}"] = policy
    for line in sys.stdin:
        names = [f"policy_{number}" for number in line.split()]
        misses = 0
        seconds = 0.0
        for name in names:
            misses += name not in policies.cache
            begin = time.perf_counter()
            policy = policies[name]
            seconds += time.perf_counter() - begin
            got = next(policy.model.parameters()).detach().flatten()[0].item()
            if f"policy_{got:.0f}" != name:
                raise SystemExit(f"{name} came back as policy_{got:.0f}")
        answer = {"us_per_access": seconds * 1e6 / len(names), "miss_share": misses / len(names)}
        print(json.dumps(answer), file=answers, flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
