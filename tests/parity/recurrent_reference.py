#!/usr/bin/env python3
"""One PPO update of networks with a core, computed by plain PyTorch in double precision, as recorded numbers for
tests/parity/recurrent_parity_test.cc.

    python tests/parity/recurrent_reference.py > tests/parity/recurrent_reference.json

Beside ppo_reference.py, whose losses, targets and batches these are: cores are torch.nn.GRU and torch.nn.LSTM, run one sequence after
another, never packed. Sequences begin at each segment's first row and at each decision of an episode that is a multiple of
sequence_length. The actor begins each from a recorded state; the critic from what it remembered, which a segment begins at zero.
"""
import numpy as np
import torch
from torch import nn

import ppo_reference as ppo


class Network(nn.Module):
    """Encoder, core, head; without a core a plain network. A state is a row: by layer the output, of an LSTM then the cell."""

    def __init__(self, inputs, hidden, kind, spec, head, outputs):
        super().__init__()
        activation = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}[spec["activation"]]
        encoder = []
        for size in hidden:
            encoder += [nn.Linear(inputs, size), activation()]
            inputs = size
        self.encoder = nn.Sequential(*encoder)
        self.kind, self.size, self.layers = kind, spec["core_size"], spec["core_layers"]
        if kind != "none":
            self.core = {"gru": nn.GRU, "lstm": nn.LSTM}[kind](inputs, self.size, self.layers)
            inputs = self.size
        last = []
        for size in head:
            last += [nn.Linear(inputs, size), activation()]
            inputs = size
        self.head = nn.Sequential(*last, nn.Linear(inputs, outputs))
        self.state_size = {"none": 0, "gru": 1, "lstm": 2}[kind] * self.size * self.layers

    def run(self, x, state):
        """Outputs of a sequence, [rows, outputs], and the state after it."""
        x = self.encoder(x)
        if self.kind == "none":
            return self.head(x), state
        if self.kind == "gru":
            x, after = self.core(x, state.view(self.layers, self.size))
            return self.head(x), after.reshape(-1)
        parts = state.view(self.layers, 2, self.size)
        x, (h, c) = self.core(x, (parts[:, 0].contiguous(), parts[:, 1].contiguous()))
        return self.head(x), torch.stack([h, c], 1).reshape(-1)

    def named(self, role):
        linears = [m for part in (self.encoder, self.head) for m in part if isinstance(m, nn.Linear)]
        for i, linear in enumerate(linears):
            yield f"{role}.{i}.weight", linear.weight
            yield f"{role}.{i}.bias", linear.bias
        if self.kind != "none":
            for name, parameter in self.core.named_parameters():
                yield f"{role}.core.{name}", parameter


class Policy(ppo.Policy):
    def __init__(self, case, rng):
        super().__init__(case, rng)
        spec = case["spec"]
        inputs = [n[0].in_features for n in (self.actor, self.critic)]
        outputs = self.actor[-1].out_features
        self.actor = Network(inputs[0], spec["actor_hidden_sizes"], spec["actor_core"], spec, spec["actor_head_hidden_sizes"], outputs)
        self.critic = Network(inputs[1], spec["critic_hidden_sizes"], spec["critic_core"], spec, spec["critic_head_hidden_sizes"], 1)
        with torch.no_grad():
            for p in self.parameters():
                scale = 1.2 / np.sqrt(p.shape[-1]) if p.dim() == 2 else 0.2
                p.copy_(torch.from_numpy(ppo.single(rng.normal(size=tuple(p.shape)) * scale)))

    def named(self, values):
        result = {}
        for role in ("actor", "critic"):
            for name, parameter in getattr(self, role).named(role):
                result[name] = values(parameter)
        if self.continuous:
            result["actor.log_std"] = values(self.log_std)
        return {name: np.asarray(v.detach()).ravel().tolist() for name, v in result.items()}


def add_sequences(case, policy, batch, rng):
    """Every third segment goes on in an episode, from a decision that is mostly not on the grid."""
    length = case["spec"]["sequence_length"]
    sequences = []
    for number, segment in enumerate(batch["segments"]):
        decision = int(rng.integers(1, 3 * length)) if number % 3 == 2 else 0
        for t in range(segment["rows"]):
            if t == 0 or (decision + t) % length == 0:
                sequences.append(dict(first_row=segment["first_row"] + t, rows=0, decision=decision + t))
            sequences[-1]["rows"] += 1
    batch["sequences"] = sequences
    memory = ppo.single(rng.normal(size=(len(sequences), policy.actor.state_size)) * 0.5)
    for sequence, row in zip(sequences, memory):
        if sequence["decision"] == 0:
            row[:] = 0
    batch["memory"] = memory


class Update(ppo.Update):
    def __init__(self, case, options, policy, batch):
        super().__init__(case, options, policy, batch)
        self.memory = torch.from_numpy(batch["memory"])
        self.critic_memory = torch.zeros(len(batch["sequences"]), policy.critic.state_size)

    def values(self):
        critic, b = self.policy.critic, self.batch
        value, final = torch.zeros(b["rows"]), torch.zeros(b["final_rows"])
        sequences = list(enumerate(b["sequences"]))
        for segment in b["segments"]:
            end = segment["first_row"] + segment["rows"]
            state = torch.zeros(critic.state_size)
            while sequences and sequences[0][1]["first_row"] < end:
                number, sequence = sequences.pop(0)
                self.critic_memory[number] = state
                rows = slice(sequence["first_row"], sequence["first_row"] + sequence["rows"])
                out, state = critic.run(self.critic_in[rows], state)
                value[rows] = out.squeeze(1)
            if segment["final_row"] >= 0:
                out, _ = critic.run(self.final_in[segment["final_row"]:segment["final_row"] + 1], state)
                final[segment["final_row"]] = out[0, 0]
        return value, final

    def minibatches(self, epoch):
        c, active = self.case["context"], set(int(row) for row in self.active)
        count = [sum(row in active for row in range(s["first_row"], s["first_row"] + s["rows"])) for s in self.batch["sequences"]]
        order = ppo.shuffled([s for s, n in enumerate(count) if n > 0], c["seed"], c["iteration"], epoch, 0)
        result, rows = [[]], 0
        for s in order:
            if rows >= self.o["minibatch_size"]:
                result.append([])
                rows = 0
            result[-1].append(s)
            rows += count[s]
        return result

    def forward(self, minibatch):
        active = set(int(row) for row in self.active)
        rows, outputs, values = [], [], []
        for s in minibatch:
            sequence = self.batch["sequences"][s]
            of = range(sequence["first_row"], sequence["first_row"] + sequence["rows"])
            out, _ = self.policy.actor.run(self.actor_in[of.start:of.stop], self.memory[s])
            value, _ = self.policy.critic.run(self.critic_in[of.start:of.stop], self.critic_memory[s])
            kept = [i for i, row in enumerate(of) if row in active]
            rows += [of[i] for i in kept]
            outputs.append(out[kept])
            values.append(value[kept].squeeze(1))
        return torch.tensor(rows), torch.cat(outputs), torch.cat(values)


def records(cases, make_policy, make_batch=ppo.make_batch):
    """One update of each case; of one without sequences ppo_reference's."""
    result = []
    for case in cases:
        rng = np.random.default_rng(case["numbers_seed"])
        policy = make_policy(case, rng)
        batch = make_batch(case, policy, rng)
        remembers = case["spec"]["sequence_length"] > 0
        if remembers:
            add_sequences(case, policy, batch, rng)
        result.append(ppo.record(case, policy, batch, rng, Update if remembers else ppo.Update))
    return result


SPEC = dict(ppo.SPEC, actor_core="gru", critic_core="gru", core_size=6, core_layers=1, actor_head_hidden_sizes=[], critic_head_hidden_sizes=[],
            sequence_length=4)
CASES = [
    dict(name="mappo_gru", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=1,
         spec=dict(SPEC, action=[dict(discrete=5)], agent_id_size=3, critic_input="joint_observation", critic_state_size=18, has_action_mask=True),
         options=dict(ppo.BASE, huber_delta=1.0, value_loss_coeff=0.7, max_grad_norm=0.3),
         value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]), context=dict(seed=11, iteration=4, env_steps=16000)),
    dict(name="ippo_lstm_of_two_layers", segment_lengths=[6, 9, 8, 5, 7, 12], inactive_rows=False, numbers_seed=2,
         spec=dict(SPEC, action=[dict(box=2)], agent_id_size=3, critic_agent_id=True, normalize_observations=True, actor_hidden_sizes=[9],
                   actor_core="lstm", critic_core="lstm", core_size=5, core_layers=2, critic_head_hidden_sizes=[4], sequence_length=5),
         options=dict(ppo.BASE, use_value_norm=False, entropy_coeff=dict(initial=0.02, final=0.0, env_steps=1000), max_grad_norm=0.0),
         observation_moments=dict(count=50.0, mean=[0.25, 0.5, 0.0, -0.25, 0.125], variance=[2.0, 1.5, 2.5, 1.0, 3.0]),
         context=dict(seed=5, iteration=0, env_steps=500)),
    dict(name="actor_without_encoder_and_plain_critic", segment_lengths=[5, 6, 7, 8, 9, 11, 4], inactive_rows=True, numbers_seed=3,
         spec=dict(SPEC, action=[dict(discrete=3)], agent_id_size=3, critic_core="none", critic_input="global_state", critic_state_size=6,
                   activation="elu", actor_hidden_sizes=[], actor_head_hidden_sizes=[7], sequence_length=3),
         options=dict(ppo.BASE, use_advnorm=False, use_value_clip=False, minibatch_size=13, learning_rate=ppo.constant(1e-3)),
         value_moments=dict(count=10.0, mean=[0.5], variance=[2.25]), context=dict(seed=7, iteration=123456, env_steps=0)),
    dict(name="plain_actor_and_lstm_critic", segment_lengths=[4, 9, 6, 8, 1, 10], inactive_rows=True, numbers_seed=4,
         spec=dict(SPEC, action=[dict(discrete=4)], actor_core="none", critic_core="lstm", sequence_length=6),
         options=dict(ppo.BASE, minibatch_size=11),
         value_moments=dict(count=100.0, mean=[-0.5], variance=[1.5]), context=dict(seed=8, iteration=2, env_steps=100)),
    # So many sequences in a minibatch, of which so few are long, that whole vectors of 8 and of 16 lanes end before the last step.
    dict(name="sequences_in_more_than_two_vectors", segment_lengths=[6, 1, 2, 6, 3, 1, 4, 2, 6, 1, 3, 5] * 4, inactive_rows=False, numbers_seed=5,
         spec=dict(SPEC, action=[dict(discrete=3)], core_size=3, sequence_length=6), options=dict(ppo.BASE, minibatch_size=80),
         value_moments=dict(count=100.0, mean=[-0.5], variance=[1.5]), context=dict(seed=9, iteration=3, env_steps=100)),
]


def main():
    ppo.write(records(CASES, Policy))


if __name__ == "__main__":
    main()
