#!/usr/bin/env python3
"""One PPO update of networks with layer normalization, gelu and silu, and of an actor and a critic with different activations, computed by plain
PyTorch in double precision, as recorded numbers for tests/parity/ppo_parity_test.cc.

    python tests/parity/layers_reference.py > tests/parity/layers_reference.json

Beside ppo_reference.py and recurrent_reference.py, whose losses, targets, batches and sequences these are: layers are torch.nn.Linear,
torch.nn.LayerNorm, torch.nn.GELU and torch.nn.SiLU.
"""
import numpy as np
import torch
from torch import nn

import ppo_reference as ppo
import recurrent_reference as recurrent

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "gelu": nn.GELU, "silu": nn.SiLU}


class Network(recurrent.Network):
    """As recurrent.Network, but for what stands behind each hidden layer."""

    def __init__(self, role, inputs, spec, outputs):
        nn.Module.__init__(self)
        activation = ACTIVATIONS[spec[role + "_activation"]]

        def hidden(inputs, sizes):
            layers = []
            for size in sizes:
                layers += [nn.Linear(inputs, size)] + [nn.LayerNorm(size)] * spec[role + "_layer_norm"] + [activation()]
                inputs = size
            return layers, inputs

        layers, inputs = hidden(inputs, spec[role + "_hidden_sizes"])
        self.encoder = nn.Sequential(*layers)
        self.kind, self.size, self.layers = spec[role + "_core"], spec["core_size"], spec["core_layers"]
        if self.kind != "none":
            self.core = {"gru": nn.GRU, "lstm": nn.LSTM}[self.kind](inputs, self.size, self.layers)
            inputs = self.size
        layers, inputs = hidden(inputs, spec[role + "_head_hidden_sizes"])
        self.head = nn.Sequential(*layers, nn.Linear(inputs, outputs))
        self.state_size = {"none": 0, "gru": 1, "lstm": 2}[self.kind] * self.size * self.layers

    def forward(self, x):
        return self.run(x, None)[0]

    def named(self, role):
        yield from super().named(role)
        # The last linear layer has none behind it.
        norms = [m for part in (self.encoder, self.head) for m in part if isinstance(m, nn.LayerNorm)]
        for i, norm in enumerate(norms):
            yield f"{role}.norm.{i}.weight", norm.weight
            yield f"{role}.norm.{i}.bias", norm.bias


class Policy(recurrent.Policy):
    def __init__(self, case, rng):
        spec = case["spec"]
        plain = dict(case, spec=dict(spec, activation="tanh"))
        ppo.Policy.__init__(self, plain, rng)
        inputs = [n[0].in_features for n in (self.actor, self.critic)]
        outputs = self.actor[-1].out_features
        self.actor = Network("actor", inputs[0], spec, outputs)
        self.critic = Network("critic", inputs[1], spec, 1)
        with torch.no_grad():
            for p in self.parameters():
                scale = 1.2 / np.sqrt(p.shape[-1]) if p.dim() == 2 else 0.2
                p.copy_(torch.from_numpy(ppo.single(rng.normal(size=tuple(p.shape)) * scale)))
            for module in self.modules():
                if isinstance(module, nn.LayerNorm):
                    module.weight.copy_(torch.from_numpy(ppo.single(module.weight.numpy() + 1)))


SPEC = dict(recurrent.SPEC, actor_activation="tanh", critic_activation="tanh", actor_layer_norm=False, critic_layer_norm=False, actor_core="none",
            critic_core="none", core_size=0, core_layers=0, sequence_length=0)
CASES = [
    dict(name="layer_norm_with_a_relu_critic", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=1,
         spec=dict(SPEC, action=[dict(discrete=5)], agent_id_size=3, critic_input="joint_observation", critic_state_size=18, has_action_mask=True,
                   actor_layer_norm=True, critic_activation="relu"),
         options=dict(ppo.BASE, huber_delta=1.0, value_loss_coeff=0.7, max_grad_norm=0.3),
         value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]), context=dict(seed=11, iteration=4, env_steps=16000)),
    dict(name="gelu_with_a_silu_critic", segment_lengths=[6, 9, 8, 5, 7, 12], inactive_rows=False, numbers_seed=2,
         spec=dict(SPEC, action=[dict(box=2)], agent_id_size=3, critic_agent_id=True, normalize_observations=True, actor_hidden_sizes=[9],
                   actor_activation="gelu", critic_activation="silu"),
         options=dict(ppo.BASE, use_value_norm=False, max_grad_norm=0.0),
         observation_moments=dict(count=50.0, mean=[0.25, 0.5, 0.0, -0.25, 0.125], variance=[2.0, 1.5, 2.5, 1.0, 3.0]),
         context=dict(seed=5, iteration=0, env_steps=500)),
    dict(name="silu_with_a_normed_gelu_critic", segment_lengths=[5, 6, 7, 8, 9, 11, 4], inactive_rows=True, numbers_seed=3,
         spec=dict(SPEC, action=[dict(multi_discrete=[3, 2]), dict(box=1)], agent_id_size=3, critic_input="global_state", critic_state_size=6,
                   actor_activation="silu", critic_activation="gelu", critic_layer_norm=True, actor_hidden_sizes=[8, 8, 5]),
         options=dict(ppo.BASE, use_advnorm=False, minibatch_size=13, learning_rate=ppo.constant(1e-3)),
         value_moments=dict(count=10.0, mean=[0.5], variance=[2.25]), context=dict(seed=7, iteration=123456, env_steps=0)),
    dict(name="normed_gru", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=4,
         spec=dict(SPEC, action=[dict(discrete=5)], agent_id_size=3, critic_input="joint_observation", critic_state_size=18, actor_core="gru",
                   critic_core="gru", core_size=6, core_layers=1, sequence_length=4, actor_head_hidden_sizes=[7, 5], critic_head_hidden_sizes=[6],
                   actor_layer_norm=True, critic_layer_norm=True, actor_activation="silu", critic_activation="elu"),
         options=dict(ppo.BASE, huber_delta=1.0, max_grad_norm=0.3),
         value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]), context=dict(seed=12, iteration=3, env_steps=100)),
    dict(name="lstm_behind_gelu", segment_lengths=[4, 9, 6, 8, 1, 10], inactive_rows=True, numbers_seed=5,
         spec=dict(SPEC, action=[dict(discrete=4)], actor_core="lstm", critic_core="lstm", core_size=5, core_layers=2, sequence_length=6,
                   critic_head_hidden_sizes=[6, 4], actor_activation="gelu", critic_activation="gelu"),
         options=dict(ppo.BASE, minibatch_size=11),
         value_moments=dict(count=100.0, mean=[-0.5], variance=[1.5]), context=dict(seed=8, iteration=2, env_steps=100)),
]


def main():
    ppo.write(recurrent.records(CASES, Policy))


if __name__ == "__main__":
    main()
