#!/usr/bin/env python3
"""One PPO update of critics that attend to agents, computed by plain PyTorch in double precision, as recorded numbers for
tests/parity/ppo_parity_test.cc.

    python tests/parity/attention_reference.py > tests/parity/attention_reference.json

Beside ppo_reference.py, recurrent_reference.py and mappo_reference.py, whose losses, targets, sequences and joint observations these are.
Attention is torch.nn.MultiheadAttention, row by row over the agents that are there and nobody else: there is no mask that could be wrong.
"""
import numpy as np
import torch
from torch import nn

import mappo_reference as mappo
import ppo_reference as ppo
import recurrent_reference as recurrent


class Network(recurrent.Network):
    def forward(self, x):
        return self.run(x, None)[0]


class Critic(Network):
    def __init__(self, others, spec):
        size = spec["attention_size"]
        super().__init__(size + others, spec["critic_hidden_sizes"], spec["critic_core"], spec, spec["critic_head_hidden_sizes"], 1)
        self.sizes, self.spaces = spec["joint_sizes"], spec["attention_agents"]
        self.activation = {"tanh": torch.tanh, "relu": torch.relu, "elu": nn.functional.elu}[spec["activation"]]
        widths = dict(zip(self.spaces, self.sizes))
        self.embedding = nn.ModuleList(nn.Linear(widths[space], size) for space in range(len(widths)))
        self.attention = nn.MultiheadAttention(size, spec["attention_heads"], batch_first=True)

    def attend(self, row):
        observations = row[:sum(self.sizes)].split(self.sizes)
        there = row[sum(self.sizes):sum(self.sizes) + len(self.sizes)]
        embedded = [self.activation(self.embedding[s](o)) for s, o, bit in zip(self.spaces, observations, there) if bit > 0]
        if not embedded:
            return torch.zeros(self.attention.embed_dim)
        e = torch.stack(embedded)[None]
        return (e + self.attention(e, e, e, need_weights=False)[0]).mean(1)[0]

    def run(self, x, state):
        others = x[:, sum(self.sizes) + len(self.sizes):]
        return super().run(torch.cat([torch.stack([self.attend(row) for row in x]), others], 1), state)

    def named(self, role):
        yield from super().named(role)
        for part in ("embedding", "attention"):
            for name, parameter in getattr(self, part).named_parameters():
                yield f"{role}.{part}.{name}", parameter


class Policy(recurrent.Policy):
    def __init__(self, case, rng):
        ppo.Policy.__init__(self, case, rng)
        spec = case["spec"]
        inputs, outputs = self.actor[0].in_features, self.actor[-1].out_features
        self.actor = Network(inputs, spec["actor_hidden_sizes"], spec["actor_core"], spec, spec["actor_head_hidden_sizes"], outputs)
        self.critic = Critic(spec["agent_id_size"] if spec["critic_agent_id"] else 0, spec)
        with torch.no_grad():
            for p in self.parameters():
                scale = 1.2 / np.sqrt(p.shape[-1]) if p.dim() == 2 else 0.2
                p.copy_(torch.from_numpy(ppo.single(rng.normal(size=tuple(p.shape)) * scale)))

    def last_layer(self):
        return self.critic.head[-1]


class SpacesShareMoments(mappo.Tricks):
    def observe_states(self):
        """Those of all agents of a space that are there, the recorded ones of each of which are the same."""
        spec = self.case["spec"]
        if spec["critic_input"] != "joint_observation":
            return super().observe_states()
        read = self.batch["critic_state"][np.unique(self.batch["critic_row"][self.alive])]
        sizes, spaces, m = spec["joint_sizes"], spec["attention_agents"], self.case["state_moments"]
        first = np.concatenate([[0], np.cumsum(sizes)])
        result = {part: list(m[part]) for part in ("count", "mean", "variance")}
        for agent, size in enumerate(sizes):
            same = [a for a in range(len(sizes)) if spaces[a] == spaces[agent]]
            for element in range(size):
                values = np.concatenate([read[read[:, first[-1] + a] > 0, first[a] + element] for a in same])
                c = first[agent] + element
                count, mean, variance = (m[part][c] for part in ("count", "mean", "variance"))
                total = count + len(values)
                delta = values.mean() - mean
                result["variance"][c] = (variance * count + values.var() * len(values) + delta**2 * count * len(values) / total) / total
                result["mean"][c], result["count"][c] = mean + delta * len(values) / total, total
        return result


class Update(SpacesShareMoments, ppo.Update):
    pass


class RecurrentUpdate(SpacesShareMoments, recurrent.Update):
    pass


SPEC = dict(recurrent.SPEC, actor_core="none", critic_core="none", core_size=0, core_layers=0, sequence_length=0, action=[dict(discrete=5)],
            agent_id_size=3, critic_input="joint_observation", critic_state_size=16, joint_sizes=[5, 5, 3], attention_size=6, attention_heads=2,
            attention_agents=[0, 0, 1], actor_hidden_sizes=[7], critic_hidden_sizes=[8], **mappo.TRICKS)
CASES = [
    dict(name="agents_of_two_spaces", segment_lengths=mappo.LENGTHS, inactive_rows=True, numbers_seed=21, spec=dict(SPEC, has_action_mask=True),
         options=mappo.OPTIONS, value_moments=mappo.MOMENTS, context=dict(seed=21, iteration=4, env_steps=0)),
    dict(name="env_steps_with_popart", segment_lengths=mappo.LENGTHS, inactive_rows=True, numbers_seed=22,
         spec=dict(SPEC, joint_sizes=[5, 3, 5], attention_agents=[0, 1, 0], attention_heads=3, activation="elu", critic_hidden_sizes=[]),
         options=dict(mappo.POPART, minibatch_by="env_steps"), value_moments=mappo.MOMENTS, context=dict(seed=22, iteration=5, env_steps=0)),
    dict(name="normalized_with_agent_ids_and_dead_agents", segment_lengths=mappo.LENGTHS, inactive_rows=True, numbers_seed=23,
         spec=dict(SPEC, joint_sizes=[5, 5, 5], attention_agents=[0, 0, 0], critic_state_size=18, critic_agent_id=True, normalize_state=True),
         options=dict(mappo.OPTIONS, use_value_active_masks=False, death_masking=True), value_moments=mappo.MOMENTS,
         state_moments=dict(count=[40.0, 7.0, 80.0, 9.0, 1.0] * 3 + [0.0] * 3, mean=[0.125, -0.25, 0.5, 0.25, 0.0] * 3 + [0.0] * 3,
                            variance=[0.5, 1.5, 2.25, 0.75, 1.0] * 3 + [1.0] * 3), context=dict(seed=23, iteration=6, env_steps=0)),
    dict(name="gru_behind_attention", segment_lengths=mappo.LENGTHS, inactive_rows=True, numbers_seed=24,
         spec=dict(SPEC, actor_core="gru", critic_core="gru", core_size=4, core_layers=1, sequence_length=4, actor_hidden_sizes=[]),
         options=mappo.OPTIONS, value_moments=mappo.MOMENTS, context=dict(seed=24, iteration=7, env_steps=0)),
]


def main():
    records = []
    for case in CASES:
        rng = np.random.default_rng(case["numbers_seed"])
        policy = Policy(case, rng)
        batch = ppo.make_batch(case, policy, rng)
        mappo.add_absent_agents(case, batch, rng)
        remembers = case["spec"]["sequence_length"] > 0
        if remembers:
            recurrent.add_sequences(case, policy, batch, rng)
        records.append(ppo.record(case, policy, batch, rng, RecurrentUpdate if remembers else Update))
    ppo.write(records)


if __name__ == "__main__":
    main()
