#!/usr/bin/env python3
"""One PPO update of networks with an encoder for each of some leaves of a Dict or Tuple observation, computed by plain PyTorch in double
precision, as recorded numbers for tests/parity/ppo_parity_test.cc.

    python tests/parity/leaf_reference.py > tests/parity/leaf_reference.json

Beside ppo_reference.py, recurrent_reference.py and layers_reference.py, whose losses, targets, batches, sequences and layers these are: the
observation is cut into its leaves; one with an encoder goes through torch.nn.Conv2d and torch.nn.Linear, bytes divided by 255 before unless
observations are normalized; what became of all of them is joined for the network.
"""
import numpy as np
import torch
from torch import nn

import layers_reference as layers
import ppo_reference as ppo
import recurrent_reference as recurrent


class Leaf(nn.Module):
    """[rows, size] of one leaf -> what stands for it."""

    def __init__(self, leaf, encoder, spec, role):
        super().__init__()
        self.shape, self.size = leaf["shape"], int(np.prod(leaf["shape"]))
        self.divides = leaf["bytes"] and not spec["normalize_observations"]
        activation = layers.ACTIVATIONS[spec[role + "_activation"]]
        width = self.size
        self.convolutions = None
        if encoder["conv"]:
            convolutions, (height, across, channels) = [], self.shape
            for out, kernel, stride in encoder["conv"]:
                convolutions += [nn.Conv2d(channels, out, kernel, stride), activation()]
                height, across, channels = (height - kernel) // stride + 1, (across - kernel) // stride + 1, out
            self.convolutions, width = nn.Sequential(*convolutions), height * across * channels
        hidden = []
        for size in encoder["hidden"]:
            hidden += [nn.Linear(width, size)] + [nn.LayerNorm(size)] * spec[role + "_layer_norm"] + [activation()]
            width = size
        self.linears, self.made = nn.Sequential(*hidden), width

    def forward(self, x):
        if self.divides:
            x = x / 255
        if self.convolutions is not None:
            height, width, channels = self.shape
            x = self.convolutions(x.reshape(-1, height, width, channels).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).flatten(1)
        return self.linears(x)

    def named(self, stem):
        for kind, modules, name in ((nn.Conv2d, self.convolutions or [], "conv."), (nn.Linear, self.linears, ""), (nn.LayerNorm, self.linears, "norm.")):
            for i, module in enumerate(m for m in modules if isinstance(m, kind)):
                yield f"{stem}.{name}{i}.weight", module.weight
                yield f"{stem}.{name}{i}.bias", module.bias


class Network(layers.Network):
    """As layers.Network, over what became of the leaves."""

    def __init__(self, role, inputs, spec, outputs):
        encoders = {encoder["leaf"]: encoder for encoder in spec[role + "_leaves"]}
        made, sizes, width = {}, [int(np.prod(leaf["shape"])) for leaf in spec["leaves"]], inputs
        for i, leaf in enumerate(spec["leaves"]):
            if i in encoders:
                made[str(i)] = Leaf(leaf, encoders[i], spec, role)
                width += made[str(i)].made - sizes[i]
        super().__init__(role, width, spec, outputs)
        self.leaves, self.sizes = nn.ModuleDict(made), sizes

    def run(self, x, state):
        if len(self.leaves) > 0:
            pieces = list(torch.split(x, self.sizes + [x.shape[1] - sum(self.sizes)], 1))
            x = torch.cat([self.leaves[str(i)](piece) if str(i) in self.leaves else piece for i, piece in enumerate(pieces)], 1)
        return super().run(x, state)

    def named(self, role):
        yield from super().named(role)
        for number, leaf in self.leaves.items():
            yield from leaf.named(f"{role}.leaf.{number}")


def draw(policy, rng):
    """The policy's first parameters."""
    with torch.no_grad():
        for p in policy.parameters():
            scale = 1.2 / np.sqrt(p[0].numel()) if p.dim() > 1 else 0.2
            p.copy_(torch.from_numpy(ppo.single(rng.normal(size=tuple(p.shape)) * scale)))
        for module in policy.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.copy_(torch.from_numpy(ppo.single(module.weight.numpy() + 1)))


class Policy(recurrent.Policy):
    def __init__(self, case, rng):
        spec = case["spec"]
        ppo.Policy.__init__(self, case, rng)
        inputs = [n[0].in_features for n in (self.actor, self.critic)]
        outputs = self.actor[-1].out_features
        self.actor = Network("actor", inputs[0], spec, outputs)
        self.critic = Network("critic", inputs[1], spec, 1)
        draw(self, rng)


def make_batch(case, policy, rng):
    batch = ppo.make_batch(case, policy, rng)
    first = 0
    for leaf in case["spec"]["leaves"]:
        size = int(np.prod(leaf["shape"]))
        if leaf["bytes"]:
            for name in ("obs", "final_obs"):
                batch[name][:, first:first + size] = rng.integers(0, 256, size=(len(batch[name]), size))
        first += size
    return batch


def leaf(*shape, bytes=False):
    return dict(shape=list(shape), bytes=bytes)


def encoder(number, conv=(), hidden=()):
    return dict(leaf=number, conv=[list(c) for c in conv], hidden=list(hidden))


def spec_of(leaves, **more):
    return dict(layers.SPEC, leaves=leaves, obs_size=sum(int(np.prod(each["shape"])) for each in leaves), actor_leaves=[], critic_leaves=[], **more)


CASES = [
    dict(name="camera_arm_and_goal", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=1,
         spec=dict(spec_of([leaf(4), leaf(6, 5, 2, bytes=True), leaf(3)]), action=[dict(discrete=5)], agent_id_size=3, critic_agent_id=True,
                   has_action_mask=True, actor_leaves=[encoder(0, hidden=[7, 5]), encoder(1, [(4, 3, 1), (3, 2, 2)], [6])],
                   critic_leaves=[encoder(1, [(5, 3, 2)]), encoder(2, hidden=[4])]),
         options=dict(ppo.BASE, huber_delta=1.0, value_loss_coeff=0.7, max_grad_norm=0.3),
         value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]), context=dict(seed=11, iteration=4, env_steps=16000)),
    dict(name="normalized_with_layer_norm", segment_lengths=[6, 9, 8, 5, 7, 12], inactive_rows=False, numbers_seed=2,
         spec=dict(spec_of([leaf(2), leaf(3, bytes=True), leaf(3, 3, 1)]), action=[dict(box=2)], agent_id_size=3, normalize_observations=True,
                   actor_activation="silu", critic_activation="elu", actor_layer_norm=True, actor_hidden_sizes=[9],
                   actor_leaves=[encoder(1, hidden=[8]), encoder(2, [(6, 2, 1)], [5])], critic_leaves=[encoder(0, hidden=[6])]),
         options=dict(ppo.BASE, use_value_norm=False, learning_rate=ppo.constant(1e-3)),
         observation_moments=dict(count=50.0, mean=[0.25, 0.5, 128, 100, 64, 0, 0.1, 0.2, 0.3, 0.4, 0.5, -0.1, -0.2, -0.3],
                                  variance=[2.0, 1.5, 5000, 4000, 3000, 1, 1.5, 2, 2.5, 3, 1, 1.5, 2, 2.5]),
         context=dict(seed=5, iteration=0, env_steps=500)),
    dict(name="critic_of_the_state", segment_lengths=[5, 6, 7, 8, 9, 11, 4], inactive_rows=True, numbers_seed=3,
         spec=dict(spec_of([leaf(5, 4, 1, bytes=True), leaf(2)]), action=[dict(multi_discrete=[3, 2])], agent_id_size=3, critic_input="global_state",
                   critic_state_size=6, actor_leaves=[encoder(0, [(4, 3, 1)])]),
         options=dict(ppo.BASE, use_advnorm=False, minibatch_size=13, learning_rate=ppo.constant(1e-3)),
         value_moments=dict(count=10.0, mean=[0.5], variance=[2.25]), context=dict(seed=7, iteration=123456, env_steps=0)),
    dict(name="gru_behind_leaves", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=4,
         spec=dict(spec_of([leaf(3), leaf(4, 4, 2, bytes=True)]), action=[dict(discrete=5)], agent_id_size=3, actor_core="gru", critic_core="gru",
                   core_size=6, core_layers=1, sequence_length=4, actor_hidden_sizes=[], critic_hidden_sizes=[7], actor_head_hidden_sizes=[7],
                   critic_head_hidden_sizes=[], actor_leaves=[encoder(0, hidden=[4]), encoder(1, [(4, 2, 2)], [6])],
                   critic_leaves=[encoder(1, [(3, 3, 1)])]),
         options=dict(ppo.BASE, max_grad_norm=0.3),
         value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]), context=dict(seed=12, iteration=3, env_steps=100)),
]


def main():
    ppo.write(recurrent.records(CASES, Policy, make_batch))


if __name__ == "__main__":
    main()
