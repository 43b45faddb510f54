#!/usr/bin/env python3
"""One PPO update of a critic that shares the actor's encoder, computed by plain PyTorch in double precision, as recorded numbers for
tests/parity/ppo_parity_test.cc.

    python tests/parity/shared_reference.py > tests/parity/shared_reference.json

Beside ppo_reference.py, recurrent_reference.py, layers_reference.py, convolution_reference.py and leaf_reference.py, whose losses, targets,
batches, sequences and encoders these are: one encoder, with its core, and two heads; the sum of the losses is differentiated at once, its
gradient clipped by the norm of all parameters. A sequence's values begin, as its actions do, with what the actor remembered.
"""
import numpy as np
import torch
from torch import nn

import convolution_reference as convolution
import layers_reference as layers
import leaf_reference as leaf
import ppo_reference as ppo
import recurrent_reference as recurrent


def reference_of(spec):
    """Whose encoder it is."""
    return convolution if "image" in spec else leaf if "leaves" in spec else layers


class Policy(ppo.Policy):
    def __init__(self, case, rng):
        spec = case["spec"]
        super().__init__(dict(case, spec=dict(spec, activation="tanh", critic_hidden_sizes=[])), rng)
        inputs, outputs = self.actor[0].in_features, self.actor[-1].out_features
        # The encoder with its core; its own head is taken off.
        self.actor = reference_of(spec).Network("actor", inputs, spec, outputs)
        self.actor_head, self.actor.head = self.actor.head, nn.Sequential()
        width = next(m for m in self.actor_head if isinstance(m, nn.Linear)).in_features
        critic = []
        for size in spec["critic_head_hidden_sizes"]:
            critic += [nn.Linear(width, size)] + [nn.LayerNorm(size)] * spec["critic_layer_norm"] + [layers.ACTIVATIONS[spec["critic_activation"]]()]
            width = size
        self.critic = nn.Sequential(*critic, nn.Linear(width, 1))
        leaf.draw(self, rng)

    def actor_parameters(self):
        return super().actor_parameters() + list(self.actor_head.parameters())

    def named(self, values):
        result = {name: values(parameter) for name, parameter in self.actor.named("actor")}
        first = sum(isinstance(m, nn.Linear) for m in self.actor.encoder)
        for role, head, first in (("actor", self.actor_head, first), ("critic", self.critic, 0)):
            for kind, name in ((nn.Linear, ""), (nn.LayerNorm, "norm.")):
                for i, module in enumerate(m for m in head if isinstance(m, kind)):
                    result[f"{role}.{name}{first + i}.weight"] = values(module.weight)
                    result[f"{role}.{name}{first + i}.bias"] = values(module.bias)
        if self.continuous:
            result["actor.log_std"] = values(self.log_std)
        return {name: np.asarray(v.detach()).ravel().tolist() for name, v in result.items()}


class Update(ppo.Update):
    def __init__(self, case, options, policy, batch):
        super().__init__(case, options, policy, batch)
        self.memory = torch.from_numpy(batch["memory"]) if "memory" in batch else None

    def values(self):
        p, b = self.policy, self.batch
        if self.memory is None:
            return tuple(p.critic(p.actor.run(x, None)[0]).squeeze(1) for x in (self.actor_in, self.final_in))
        value, final, after = torch.zeros(b["rows"]), torch.zeros(b["final_rows"]), {}
        for number, sequence in enumerate(b["sequences"]):
            end = sequence["first_row"] + sequence["rows"]
            shared, after[end] = p.actor.run(self.actor_in[sequence["first_row"]:end], self.memory[number])
            value[sequence["first_row"]:end] = p.critic(shared).squeeze(1)
        for segment in b["segments"]:
            if segment["final_row"] >= 0:
                row = self.final_in[segment["final_row"]:segment["final_row"] + 1]
                final[segment["final_row"]] = p.critic(p.actor.run(row, after[segment["first_row"] + segment["rows"]])[0])[0, 0]
        return value, final

    def forward(self, minibatch):
        p = self.policy
        if self.memory is None:
            shared = p.actor.run(self.actor_in[minibatch], None)[0]
            return minibatch, p.actor_head(shared), p.critic(shared).squeeze(1)
        active = set(int(row) for row in self.active)
        rows, kept = [], []
        for s in minibatch:
            sequence = self.batch["sequences"][s]
            of = range(sequence["first_row"], sequence["first_row"] + sequence["rows"])
            shared, _ = p.actor.run(self.actor_in[of.start:of.stop], self.memory[s])
            rows += [row for row in of if row in active]
            kept.append(shared[[i for i, row in enumerate(of) if row in active]])
        shared = torch.cat(kept)
        return torch.tensor(rows), p.actor_head(shared), p.critic(shared).squeeze(1)

    def clip(self, limit):
        norms = [float(torch.stack([p.grad.norm() for p in of]).norm()) for of in (self.policy.actor_parameters(), self.policy.critic.parameters())]
        nn.utils.clip_grad_norm_(self.policy.parameters(), limit)
        return norms


class SequencesUpdate(Update):
    minibatches = recurrent.Update.minibatches


def make_batch(case, policy, rng):
    batch = getattr(reference_of(case["spec"]), "make_batch", ppo.make_batch)(case, policy, rng)
    if case["spec"]["sequence_length"] > 0:
        recurrent.add_sequences(case, policy, batch, rng)
    return batch


SPEC = dict(layers.SPEC, critic_encoder="shared", critic_hidden_sizes=[])
CASES = [
    dict(name="mlp_with_a_critic_head", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=1,
         spec=dict(SPEC, action=[dict(discrete=5)], agent_id_size=3, critic_agent_id=True, has_action_mask=True, critic_head_hidden_sizes=[7],
                   actor_layer_norm=True, critic_layer_norm=True, critic_activation="relu"),
         options=dict(ppo.BASE, huber_delta=1.0, value_loss_coeff=0.7, max_grad_norm=0.3),
         value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]), context=dict(seed=11, iteration=4, env_steps=16000)),
    dict(name="gaussian_of_normalized_observations", segment_lengths=[6, 9, 8, 5, 7, 12], inactive_rows=False, numbers_seed=2,
         spec=dict(SPEC, action=[dict(box=2)], normalize_observations=True, actor_hidden_sizes=[9]),
         options=dict(ppo.BASE, use_value_norm=False, max_grad_norm=0.0, learning_rate=dict(initial=4e-3, final=1e-3, env_steps=3000)),
         observation_moments=dict(count=50.0, mean=[0.25, 0.5, 0.0, -0.25, 0.125], variance=[2.0, 1.5, 2.5, 1.0, 3.0]),
         context=dict(seed=5, iteration=0, env_steps=500)),
    dict(name="convolutions_of_bytes", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=3,
         spec=dict(SPEC, action=[dict(multi_discrete=[3, 2])], agent_id_size=3, critic_agent_id=True, image=[6, 5, 2], obs_size=60, bytes=True,
                   actor_conv=[[4, 3, 1], [3, 2, 2]], critic_conv=[], actor_hidden_sizes=[9], critic_head_hidden_sizes=[6, 4]),
         options=dict(ppo.BASE, max_grad_norm=0.2, minibatch_size=13),
         value_moments=dict(count=10.0, mean=[0.5], variance=[2.25]), context=dict(seed=7, iteration=123456, env_steps=0)),
    dict(name="convolutions_that_heads_read", segment_lengths=[6, 9, 8, 5, 7, 12], inactive_rows=False, numbers_seed=4,
         spec=dict(SPEC, action=[dict(discrete=3)], agent_id_size=3, critic_agent_id=True, image=[5, 7, 1], obs_size=35, bytes=False,
                   actor_conv=[[4, 3, 2]], critic_conv=[], actor_hidden_sizes=[]),
         options=dict(ppo.BASE, max_grad_norm=0.3),
         value_moments=dict(count=10.0, mean=[0.5], variance=[2.25]), context=dict(seed=17, iteration=12, env_steps=0)),
    dict(name="leaves", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=5,
         spec=dict(SPEC, leaves=[leaf.leaf(4), leaf.leaf(6, 5, 2, bytes=True), leaf.leaf(3)], obs_size=67, action=[dict(discrete=5)],
                   has_action_mask=True, critic_leaves=[], actor_leaves=[leaf.encoder(0, hidden=[7, 5]), leaf.encoder(1, [(4, 3, 1), (3, 2, 2)], [6])]),
         options=dict(ppo.BASE, value_loss_coeff=0.5),
         value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]), context=dict(seed=12, iteration=3, env_steps=100)),
    dict(name="gru", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=6,
         spec=dict(SPEC, action=[dict(discrete=5)], agent_id_size=3, critic_agent_id=True, actor_core="gru", core_size=6, core_layers=1,
                   sequence_length=4, actor_head_hidden_sizes=[7, 5], critic_head_hidden_sizes=[6]),
         options=dict(ppo.BASE, huber_delta=1.0, max_grad_norm=0.3),
         value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]), context=dict(seed=13, iteration=2, env_steps=100)),
    dict(name="lstm_of_two_layers", segment_lengths=[4, 9, 6, 8, 1, 10], inactive_rows=True, numbers_seed=7,
         spec=dict(SPEC, action=[dict(box=2)], actor_core="lstm", core_size=5, core_layers=2, sequence_length=6, actor_hidden_sizes=[]),
         options=dict(ppo.BASE, minibatch_size=11),
         value_moments=dict(count=100.0, mean=[-0.5], variance=[1.5]), context=dict(seed=8, iteration=2, env_steps=100)),
]


def main():
    records = []
    for case in CASES:
        rng = np.random.default_rng(case["numbers_seed"])
        policy = Policy(case, rng)
        batch = make_batch(case, policy, rng)
        records.append(ppo.record(case, policy, batch, rng, SequencesUpdate if "sequences" in batch else Update))
    ppo.write(records)


if __name__ == "__main__":
    main()
