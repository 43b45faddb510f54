#!/usr/bin/env python3
"""Optimizers, clipping, schedules and what follows the KL divergence, computed by plain PyTorch in double precision, as recorded numbers for
tests/parity/optimizer_parity_test.cc.

    python tests/parity/optimizer_reference.py > tests/parity/optimizer_reference.json

`steps`: several steps of each torch.optim optimizer from recorded gradients. `cases`: updates of PPO beside ppo_reference.py, whose losses,
targets and batches these are, with those optimizers; schedules by numpy.interp; the penalty is kl_coeff times the mean of ratio - 1 - log ratio.
"""
import json
import sys

import numpy as np
import torch
from torch import nn

import ppo_reference as ppo

OPTIMIZER = dict(optimizer="adam", adam_epsilon=1e-5, adam_beta1=0.9, adam_beta2=0.999, weight_decay=0.0, momentum=0.0, rmsprop_alpha=0.99,
                 rmsprop_epsilon=1e-5, max_grad_norm=0.5, clip_grad_norm_by="network")


def make_optimizer(o, parameters, **lr):
    adam = dict(betas=(o["adam_beta1"], o["adam_beta2"]), eps=o["adam_epsilon"], weight_decay=o["weight_decay"], **lr)
    return {"adam": lambda: torch.optim.Adam(parameters, **adam), "adamw": lambda: torch.optim.AdamW(parameters, **adam),
            "rmsprop": lambda: torch.optim.RMSprop(parameters, alpha=o["rmsprop_alpha"], eps=o["rmsprop_epsilon"], momentum=o["momentum"],
                                                   weight_decay=o["weight_decay"], **lr),
            "sgd": lambda: torch.optim.SGD(parameters, momentum=o["momentum"], weight_decay=o["weight_decay"], **lr)}[o["optimizer"]]()


STEPS = [dict(OPTIMIZER), dict(OPTIMIZER, max_grad_norm=0.0, adam_beta1=0.5), dict(OPTIMIZER, weight_decay=0.1),
         dict(OPTIMIZER, optimizer="adamw"), dict(OPTIMIZER, optimizer="adamw", weight_decay=0.1, max_grad_norm=0.0),
         dict(OPTIMIZER, optimizer="rmsprop"), dict(OPTIMIZER, optimizer="rmsprop", momentum=0.7, weight_decay=0.05, rmsprop_alpha=0.9),
         dict(OPTIMIZER, optimizer="sgd"), dict(OPTIMIZER, optimizer="sgd", momentum=0.9, max_grad_norm=0.0),
         dict(OPTIMIZER, optimizer="sgd", momentum=0.9, weight_decay=0.2)]


def steps_of(o, rng):
    """A parameter of 45 numbers, six gradients and the numbers after each of the steps."""
    parameter = nn.Parameter(torch.from_numpy(ppo.single(rng.normal(size=45))))
    record = dict(options=o, lr=0.02, parameters=parameter.detach().tolist(), gradients=[], after=[])
    optimizer = make_optimizer(o, [parameter], lr=record["lr"])
    for _ in range(6):
        gradient = ppo.single(rng.normal(size=45) * 0.3)
        record["gradients"].append(gradient.tolist())
        parameter.grad = torch.from_numpy(gradient.copy())
        if o["max_grad_norm"] > 0:
            nn.utils.clip_grad_norm_([parameter], o["max_grad_norm"])
        optimizer.step()
        record["after"].append(parameter.detach().tolist())
    return record


def value_at(schedule, context):
    if not isinstance(schedule, dict) or "points" not in schedule:
        return schedule
    now = context["iteration"] if schedule["by"] == "updates" else context["env_steps"]
    value = float(np.interp(now, *zip(*schedule["points"])))
    return ppo.constant(value)


class Update(ppo.Update):
    def __init__(self, case, options, policy, batch):
        self.frozen = case["frozen"]
        at = {key: value_at(value, case["context"]) for key, value in options.items()}
        at["clip_param"] = at["clip_param"]["initial"]
        super().__init__(case, at, policy, batch)
        self.rate = self.o["learning_rate"]["initial"]
        for name, parameter in self.names().items():
            parameter.requires_grad_(not any(name.startswith(prefix) for prefix in self.frozen))

    def names(self):
        """Parameters by the names that ParameterLayout gives them."""
        names = {}
        self.policy.named(lambda t: names.setdefault(len(names), t))
        return dict(zip(self.policy.named(lambda t: t), names.values()))

    def value_after(self, segment, final):
        if segment["truncated"] and not self.o["time_limit_bootstrap"]:
            return 0.0
        return super().value_after(segment, final)

    def make_optimizer(self, networks):
        for network in networks:
            network["params"] = [p for p in network["params"] if p.requires_grad]
        return make_optimizer(self.o, networks)

    def clip(self, limit):
        for parameter in self.policy.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self.o["clip_grad_norm_by"] == "network":
            return super().clip(limit)
        norms = super().clip(float("inf"))
        nn.utils.clip_grad_norm_(self.policy.parameters(), limit)
        return norms

    def penalty(self, ratio, log_ratio):
        return self.o["kl_coeff"] * (ratio - 1 - log_ratio).mean() if self.o["use_kl_loss"] else 0.0

    def end_epoch(self, kl, optimizer):
        self.kl = kl
        o = self.o
        if not o["lr_kl_target"]:
            return
        if kl > o["lr_kl_target"] * o["lr_kl_factor"]:
            self.rate = max(self.rate / o["lr_kl_step"], o["min_lr"])
        elif kl < o["lr_kl_target"] / o["lr_kl_factor"]:
            self.rate = min(self.rate * o["lr_kl_step"], o["max_lr"])
        for group in optimizer.param_groups:
            group["lr"] = self.rate

    def moments(self, optimizer):
        """momentum and averages of squares in the rows that Adam has; zeros where there are none."""
        rows = {"exp_avg": ("exp_avg", "momentum_buffer"), "exp_avg_sq": ("exp_avg_sq", "square_avg")}
        def of(parameter, names):
            found = [optimizer.state[parameter][name] for name in names if optimizer.state.get(parameter, {}).get(name) is not None]
            return found[0] if found else torch.zeros_like(parameter)
        return {row: self.policy.named(lambda t: of(t, names)) for row, names in rows.items()}

    def run(self):
        result = super().run()
        o, metrics = self.o, result["metrics"]
        if o["lr_kl_target"]:
            metrics["Policy/Learning rate"] = metrics["Policy/Critic learning rate"] = result["learning_rate"] = self.rate
        if o["use_kl_loss"]:
            metrics["Policy/KL coefficient"] = o["kl_coeff"]
            factor = 1.5 if self.kl > 2 * o["kl_target"] else 0.5 if self.kl < 0.5 * o["kl_target"] else 1.0
            result["kl_coeff"] = o["kl_coeff"] * (factor if o["kl_target"] else 1.0)
        return result


BASE = dict(ppo.BASE, **OPTIMIZER, time_limit_bootstrap=True, lr_kl_target=0.0, lr_kl_factor=2.0, lr_kl_step=1.5, min_lr=1e-6, max_lr=1e-2,
            use_kl_loss=False, kl_coeff=0.2, kl_target=0.01, clip_param=ppo.constant(0.2))
SPEC = dict(ppo.SPEC, action=[dict(discrete=5)], agent_id_size=3, critic_input="joint_observation", critic_state_size=18, has_action_mask=True)


def case(name, number, spec=None, context=None, frozen=(), **options):
    return dict(name=name, segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=number, frozen=list(frozen),
                spec=dict(SPEC, **(spec or {})), options=dict(BASE, **options), value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]),
                context=context or dict(seed=11, iteration=4, env_steps=16000))


GAUSSIAN = dict(action=[dict(box=2)], has_action_mask=False)
CASES = [
    case("adam_with_weight_decay", 1, weight_decay=0.1),
    case("adamw_clipped_by_policy", 2, spec=GAUSSIAN, optimizer="adamw", weight_decay=0.05, clip_grad_norm_by="policy", max_grad_norm=0.3),
    case("rmsprop", 3, optimizer="rmsprop", critic_learning_rate=ppo.constant(1e-3)),
    case("rmsprop_with_momentum", 4, spec=GAUSSIAN, optimizer="rmsprop", momentum=0.5, rmsprop_alpha=0.9, weight_decay=0.01,
         learning_rate=ppo.constant(5e-4)),
    case("sgd", 5, optimizer="sgd", learning_rate=ppo.constant(0.05), max_grad_norm=0.0),
    case("sgd_with_momentum_by_policy", 6, spec=GAUSSIAN, optimizer="sgd", momentum=0.9, weight_decay=0.02, learning_rate=ppo.constant(0.02),
         clip_grad_norm_by="policy", max_grad_norm=0.4),
    case("schedules_of_points", 7, learning_rate=dict(points=[[0, 1e-3], [3, 4e-3], [7, 2e-3], [90, 1e-4]], by="updates"),
         critic_learning_rate=dict(points=[[0, 1e-3], [32000, 3e-3]], by="env_steps"), clip_param=dict(points=[[4, 0.15], [9, 0.3]], by="updates"),
         entropy_coeff=dict(points=[[1000, 0.02], [16000, 0.05], [20000, 0.0]], by="env_steps")),
    case("no_time_limit_bootstrap", 8, time_limit_bootstrap=False),
    case("adaptive_rate_that_falls", 9, lr_kl_target=0.002, num_epochs=4, max_lr=3e-3),
    case("adaptive_rate_that_rises", 10, spec=GAUSSIAN, lr_kl_target=1.0, lr_kl_factor=1.5, lr_kl_step=2.0, num_epochs=3, max_lr=8e-3),
    case("kl_penalty", 11, use_kl_loss=True, kl_coeff=1.5),
    case("kl_penalty_that_stays", 12, spec=GAUSSIAN, use_kl_loss=True, kl_coeff=0.7, kl_target=0.0, optimizer="adamw"),
    case("frozen_encoders", 13, frozen=["actor.0.", "critic.1."], weight_decay=0.1, optimizer="adamw", clip_grad_norm_by="policy"),
]


def main():
    records = []
    for each in CASES:
        rng = np.random.default_rng(each["numbers_seed"])
        policy = ppo.Policy(each, rng)
        batch = ppo.make_batch(each, policy, rng)
        for i, segment in enumerate(batch["segments"]):
            segment["truncated"] = i % 3 == 1
        records.append(ppo.record(each, policy, batch, rng, Update))
    rng = np.random.default_rng(0)
    steps = [steps_of(o, rng) for o in STEPS]
    json.dump(ppo.plain(dict(torch=torch.__version__, steps=steps, cases=records)), sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
