#!/usr/bin/env python3
"""Distributions of actions as torch.distributions has them, and PPO updates with them, in double precision, as recorded numbers
for tests/parity/distribution_parity_test.cc.

    python tests/parity/distribution_reference.py > tests/parity/distribution_reference.json

`elements`: single elements, far into their tails: what the actor's last layer says, the recorded action, log-probability and entropy with
their derivatives by what the layer says. `cases`: updates as ppo_reference.py's, whose losses, targets and batches these are. A squashed
Gaussian is Normal and TanhTransform; its entropy, which has no closed form, Normal's plus the transform's log-determinant at the row's
action, differentiated through mean and deviation with the normal number behind the action held. A Beta is stretched to [-1, 1].
"""
import itertools
import math

import numpy as np
import torch
from torch.distributions import Bernoulli, Beta, Categorical, Normal
from torch.distributions.transforms import TanhTransform
from torch.nn.functional import softplus

import ppo_reference as ppo

LAST = float(np.nextafter(np.float32(1), np.float32(0)))  # below 1
MAX_BETA_OUTPUT = 1e6


def terms(kind, first, second, action, low, high):
    """Log-probability and entropy by element. `second`: log standard deviations, the outputs that make beta, or the logits of a set bit."""
    if kind == "bernoulli":  # an element of a MultiBinary space, which has two categories
        d = Bernoulli(logits=second - first)
        return d.log_prob(action), d.entropy()
    if kind == "beta":
        d = Beta(1 + softplus(first.clamp(max=MAX_BETA_OUTPUT)), 1 + softplus(second.clamp(max=MAX_BETA_OUTPUT)))
        return d.log_prob((1 + action) / 2) - math.log(2), d.entropy() + math.log(2)
    d = Normal(first, second.clamp(low, high).exp())
    logp, entropy = d.log_prob(action), d.entropy()
    if kind == "squashed_gaussian":
        tanh = TanhTransform()
        logp = logp - tanh.log_abs_det_jacobian(action, None)
        again = d.loc + d.scale * ((action - d.loc) / d.scale).detach()
        entropy = entropy + tanh.log_abs_det_jacobian(again, None)
    return logp, entropy


def element(kind, first, second, action):
    numbers = torch.tensor([first, second], dtype=torch.float64).requires_grad_(True)
    action = torch.tensor(float(np.float32(action)), dtype=torch.float64)
    logp, entropy = terms(kind, numbers[0], numbers[1], action, -20.0, 5.0)
    by_logp, = torch.autograd.grad(logp, numbers, retain_graph=True)
    by_entropy, = torch.autograd.grad(entropy, numbers, allow_unused=True)
    return dict(kind=kind, outputs=[first, second], action=float(action), logp=logp.item(), entropy=entropy.item(), by_logp=by_logp.tolist(),
                by_entropy=by_entropy.tolist())


def elements():
    result = []
    for kind in ("gaussian", "squashed_gaussian"):
        for mean, log_std in itertools.product([0.0, 0.75, -50.0, 50.0], [-25.0, -20.0, -3.0, 0.0, 1.5, 5.0, 7.0]):
            std = math.exp(min(max(log_std, -20.0), 5.0))
            if mean and std < 1e-6:  # floats do not tell such an action from its mean
                result.append(element(kind, mean, log_std, mean))
                continue
            result += [element(kind, mean, log_std, mean + z * std) for z in (0.0, 1.0, -6.0)]
        for mean, u in itertools.product([0.0, 0.5, -19.0], [20.0, -20.0, 8.0, 1e-4, -3e-3]):
            result.append(element(kind, mean, 0.5, u))
    for first, second in itertools.product([-30.0, -5.0, 0.0, 1.25, 20.0, 100.0, 3000.0], repeat=2):
        a, b = (1 + math.log1p(math.exp(-abs(x))) + max(x, 0.0) for x in (first, second))
        mode = (a - b) / (a + b)
        for y in (0.0, 0.3, -0.999, LAST, -LAST, mode):
            result.append(element("beta", first, second, max(-LAST, min(LAST, y))))
    result += [element("beta", first, second, y) for first, second, y in ((2e6, 2e6, 0.0), (2e6, 1e6, 0.3), (4.0, 2e6, -0.9))]
    for (off, on), bit in itertools.product([(0.0, 0.0), (1.5, -0.25), (-9.0, 8.0), (50.0, -40.0)], [0, 1]):
        result.append(element("bernoulli", off, on, bit))
    return result


class Policy(ppo.Policy):
    def __init__(self, case, rng):
        super().__init__(case, rng)
        spec = case["spec"]
        self.kind, self.free = spec["continuous"], spec["free_log_std"]
        self.low, self.high = spec["min_log_std"], spec["max_log_std"]
        self.two = self.kind == "beta" or not self.free
        sizes = [n * (2 if kind == "box" and self.two else 1) for kind, n in self.leaves]
        self.actor = ppo.mlp([self.actor[0].in_features] + spec["actor_hidden_sizes"] + [sum(sizes)], spec["activation"])
        if self.two:
            del self.log_std
            self.continuous = 0
        with torch.no_grad():
            for p in self.parameters():
                scale = 1.0 / np.sqrt(p.shape[-1]) if p.dim() == 2 else 0.3
                p.copy_(torch.from_numpy(ppo.single(rng.normal(size=tuple(p.shape)) * scale)))

    def distribution(self, out, actions, mask):
        logp, entropy, at, mask_at, free_at = 0.0, 0.0, 0, 0, 0
        word, continuous = 0, []
        for kind, n in self.leaves:
            if kind == "box":
                continuous.append((word, n))
                word += n
                continue
            logits = out[:, at:at + n]
            if mask is not None:
                logits = logits.masked_fill(mask[:, mask_at:mask_at + n] == 0, -1e9)
            d = Categorical(logits=logits)
            logp, entropy = logp + d.log_prob(actions[:, word].long()), entropy + d.entropy()
            at, mask_at, word = at + n, mask_at + n, word + 1
        for word, n in continuous:
            first = out[:, at:at + n]
            second = out[:, at + n:at + 2 * n] if self.two else self.log_std[free_at:free_at + n].expand(len(out), n)
            by_element = terms(self.kind, first, second, actions[:, word:word + n], self.low, self.high)
            logp, entropy = logp + by_element[0].sum(-1), entropy + by_element[1].sum(-1)
            at, free_at = at + n * (2 if self.two else 1), free_at + n
        return logp, entropy


def fit_actions(policy, batch):
    """Into [-LAST, LAST], where a Beta draws; discrete words stay."""
    word = 0
    for kind, n in policy.leaves:
        words = slice(word, word + (n if kind == "box" else 1))
        if kind == "box":
            batch["actions"][:, words] = np.clip(ppo.single(np.tanh(batch["actions"][:, words])), -LAST, LAST)
        word = words.stop


SPEC = dict(ppo.SPEC, continuous="gaussian", free_log_std=True, min_log_std=-20.0, max_log_std=5.0)
CASES = [
    dict(name="predicted_gaussian", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=1,
         spec=dict(SPEC, action=[dict(box=2)], free_log_std=False, min_log_std=-1.0, max_log_std=0.5),
         options=dict(ppo.BASE, max_grad_norm=0.3), value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]),
         context=dict(seed=11, iteration=4, env_steps=16000)),
    dict(name="free_gaussian_within_bounds", segment_lengths=[6, 9, 8, 5, 7, 12], inactive_rows=False, numbers_seed=2,
         spec=dict(SPEC, action=[dict(box=4)], min_log_std=-0.25, max_log_std=0.25), options=dict(ppo.BASE, entropy_coeff=ppo.constant(0.05)),
         value_moments=dict(count=10.0, mean=[0.5], variance=[2.25]), context=dict(seed=3, iteration=1, env_steps=0)),
    dict(name="squashed_gaussian", segment_lengths=[6, 9, 8, 5, 7, 12], inactive_rows=False, numbers_seed=3,
         spec=dict(SPEC, action=[dict(box=2)], continuous="squashed_gaussian", agent_id_size=3, critic_agent_id=True),
         options=dict(ppo.BASE, entropy_coeff=ppo.constant(0.05)), value_moments=dict(count=10.0, mean=[0.5], variance=[2.25]),
         context=dict(seed=5, iteration=0, env_steps=500)),
    dict(name="predicted_squashed_gaussian_beside_masks", segment_lengths=[5, 6, 7, 8, 9, 11, 4], inactive_rows=True, numbers_seed=4,
         spec=dict(SPEC, action=[dict(discrete=3), dict(box=1), dict(multi_discrete=[2, 4]), dict(box=2)], has_action_mask=True,
                   continuous="squashed_gaussian", free_log_std=False, max_log_std=0.75, critic_input="global_state", critic_state_size=6),
         options=dict(ppo.BASE, entropy_coeff=ppo.constant(0.03), minibatch_size=13, clip_param=0.1),
         value_moments=dict(count=10.0, mean=[0.5], variance=[2.25]), context=dict(seed=7, iteration=123456, env_steps=0)),
    dict(name="beta", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=5,
         spec=dict(SPEC, action=[dict(box=3)], continuous="beta", activation="elu"),
         options=dict(ppo.BASE, entropy_coeff=ppo.constant(0.05), huber_delta=1.0), value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]),
         context=dict(seed=13, iteration=9, env_steps=100)),
    dict(name="beta_beside_masks", segment_lengths=[5, 6, 7, 8, 9, 11, 4], inactive_rows=False, numbers_seed=6,
         spec=dict(SPEC, action=[dict(box=2), dict(discrete=4), dict(box=1)], has_action_mask=True, continuous="beta"),
         options=dict(ppo.BASE, use_value_norm=False, minibatch_size=20), context=dict(seed=17, iteration=2, env_steps=0)),
]


def main():
    records = []
    for case in CASES:
        rng = np.random.default_rng(case["numbers_seed"])
        policy = Policy(case, rng)
        batch = ppo.make_batch(case, policy, rng)
        if policy.kind == "beta":
            fit_actions(policy, batch)
        records.append(ppo.record(case, policy, batch, rng, ppo.Update))
    ppo.json.dump(dict(torch=torch.__version__, elements=ppo.plain(elements()), cases=ppo.plain(records)), ppo.sys.stdout, separators=(",", ":"))
    print()


if __name__ == "__main__":
    main()
