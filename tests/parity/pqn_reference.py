#!/usr/bin/env python3
"""One PQN update, computed by plain PyTorch in double precision, as recorded numbers for tests/parity/pqn_parity_test.cc.

    python tests/parity/pqn_reference.py > tests/parity/pqn_reference.json

Needs torch and numpy. It shares no code with lib/training: networks are torch.nn modules, cores run one sequence after another, targets are
written by episodes and their steps, gradients are autograd's, the optimizer is torch.optim.Adam. Only the order of minibatches must be the
same: the shuffle is ppo_reference.py's, the units that it shuffles are found here by a search through rows that share a step.

A case is a world: episodes in which agents act at some of the steps, each until it terminates, is cut or is truncated. Cases: rows of one
policy with action masks and dead agents; two discrete leaves without a value after time limits; a GRU; a team of two policies whose agents
join, wait, die and leave; a team with a GRU that discounts env steps.
"""
import json

import numpy as np
import torch
from torch import nn

from ppo_reference import shuffled, single

torch.set_default_dtype(torch.float64)


class Network(nn.Module):
    """Hidden layers with layer norms before their activations, a core perhaps, and the last layer."""

    def __init__(self, inputs, spec, outputs):
        super().__init__()
        self.encoder, self.norms = nn.ModuleList(), nn.ModuleList()
        for size in spec["actor_hidden_sizes"]:
            self.encoder.append(nn.Linear(inputs, size))
            if spec["actor_layer_norm"]:
                self.norms.append(nn.LayerNorm(size))
            inputs = size
        self.activation = {"tanh": torch.tanh, "relu": torch.relu}[spec["activation"]]
        self.core = nn.GRU(inputs, spec["core_size"]) if spec.get("actor_core", "none") == "gru" else None
        self.last = nn.Linear(spec["core_size"] if self.core else inputs, outputs)

    def run(self, x, memory):
        """Outputs of the rows of a sequence."""
        for i, layer in enumerate(self.encoder):
            x = layer(x)
            x = self.activation(self.norms[i](x) if self.norms else x)
        if self.core:
            x, _ = self.core(x, memory.view(1, -1))
        return self.last(x)

    def named(self):
        result = {}
        for i, layer in enumerate([*self.encoder, self.last]):
            result[f"actor.{i}.weight"], result[f"actor.{i}.bias"] = layer.weight, layer.bias
        for i, norm in enumerate(self.norms):
            result[f"actor.norm.{i}.weight"], result[f"actor.norm.{i}.bias"] = norm.weight, norm.bias
        for name, value in self.core.named_parameters() if self.core else []:
            result[f"actor.core.{name}"] = value
        return result


class Policy:
    """A policy's network and its rows."""

    def __init__(self, number, case, rng):
        spec = self.spec = case["spec"]
        self.number, self.agents = number, case["agents"][number]
        part = spec["action"][0]
        self.leaves = [part["discrete"]] if "discrete" in part else part["multi_discrete"]
        self.net = Network(spec["obs_size"], spec, sum(self.leaves))
        with torch.no_grad():
            for name, p in self.net.named().items():
                scale, mean = (1.2 / np.sqrt(p.shape[-1]), 0.0) if p.dim() == 2 else (0.3, 1.0 if "norm" in name and "weight" in name else 0.0)
                p.copy_(torch.from_numpy(single(mean + scale * rng.normal(size=tuple(p.shape)))))
        # Rows by (env, slot), segment after segment.
        self.rows, self.finals, self.segments, self.sequences = [], [], [], []
        for env, acts in enumerate(case["world"]):
            for seg in sorted((s for s in acts if s["agent"] in self.agents), key=lambda s: s["agent"]):
                first = len(self.rows)
                final = -1
                if seg["end"] != "terminated":
                    final = len(self.finals)
                    self.finals.append((env, seg["final_step"], seg["agent"]))
                self.segments.append(dict(first_row=first, rows=len(seg["steps"]), final_row=final, env_id=env, episode=0, slot=seg["agent"],
                                          truncated=seg["end"] == "truncated"))
                for t, step in enumerate(seg["steps"]):
                    self.rows.append((env, step, seg["agent"]))
                    if self.net.core and (t == 0 or t % spec["sequence_length"] == 0):
                        self.sequences.append(dict(first_row=first + t, rows=0, decision=t))
                    if self.net.core:
                        self.sequences[-1]["rows"] += 1
        n, f = len(self.rows), len(self.finals)
        self.obs, self.final_obs = single(rng.normal(size=(n, spec["obs_size"]))), single(rng.normal(size=(f, spec["obs_size"])))
        self.rewards = single(rng.normal(size=n))
        self.alive = (rng.random(n) < case["alive"]).astype(int)
        self.actions = np.stack([rng.integers(0, size, size=n) for size in self.leaves], 1)
        self.mask, self.final_mask = np.ones((n, sum(self.leaves)), int), np.ones((f, sum(self.leaves)), int)
        if spec["has_action_mask"]:
            self.mask, self.final_mask = ((rng.random(m.shape) < 0.6).astype(int) for m in (self.mask, self.final_mask))
            self.mask[np.arange(n), self.actions[:, 0]] = 1
            self.final_mask[:, 0] = 1
        self.memory = single(rng.normal(size=(len(self.sequences), spec["core_size"] if self.net.core else 0)) * 0.5)

    def values(self):
        """Action values of rows and of final rows."""
        obs, final_obs = torch.from_numpy(self.obs), torch.from_numpy(self.final_obs)
        if not self.net.core:
            return self.net.run(obs, None), self.net.run(final_obs, None)
        rows, finals = [], [None] * len(self.finals)
        for number, sequence in enumerate(self.sequences):
            first, end = sequence["first_row"], sequence["first_row"] + sequence["rows"]
            segment = next(s for s in self.segments if s["first_row"] <= first < s["first_row"] + s["rows"])
            x = obs[first:end]
            ends = segment["final_row"] >= 0 and segment["first_row"] + segment["rows"] == end
            if ends:
                x = torch.cat([x, final_obs[segment["final_row"]:segment["final_row"] + 1]])
            out = self.net.run(x, torch.from_numpy(self.memory[number]))
            rows.append(out[:sequence["rows"]])
            if ends:
                finals[segment["final_row"]] = out[sequence["rows"]:]
        return torch.cat(rows), torch.cat(finals) if finals else torch.zeros(0, sum(self.leaves))

    def greatest(self, values, mask):
        """Of allowed actions, [rows, leaves]."""
        values = torch.where(torch.from_numpy(mask) != 0, values, -np.inf)
        return torch.stack([leaf.max(1).values for leaf in values.split(self.leaves, 1)], 1).numpy()

    def chosen(self, values, rows):
        at = torch.from_numpy(self.actions[rows] + np.cumsum([0] + self.leaves[:-1]))
        return values.gather(1, at)


class Update:
    def __init__(self, case):
        self.case, self.o = case, case["options"]
        rng = np.random.default_rng(case["numbers_seed"])
        self.policies = [Policy(number, case, rng) for number in range(len(case["agents"]))]
        self.steps = sorted({at[:2] for p in self.policies for at in p.rows + p.finals})

    def at(self, schedule):
        done = min(1, self.case["context"]["env_steps"] / schedule["env_steps"]) if schedule["env_steps"] else 0
        return schedule["initial"] + (schedule["final"] - schedule["initial"]) * done

    def targets(self):
        """By policy, [rows, leaves], or of a team [rows, 1]."""
        with torch.no_grad():
            values = [p.values() for p in self.policies]
        greatest = [(p.greatest(v, p.mask), p.greatest(f, p.final_mask) if len(p.finals) else np.zeros((0, len(p.leaves))))
                    for p, (v, f) in zip(self.policies, values)]
        return self.team_targets(greatest) if self.o["mixer"] == "vdn" else [self.own_targets(p, *g) for p, g in zip(self.policies, greatest)]

    def final_value(self, policy, segment, finals):
        dead = not policy.alive[segment["first_row"] + segment["rows"] - 1]
        nothing = segment["final_row"] < 0 or dead or (segment["truncated"] and not self.o["time_limit_bootstrap"])
        return 0.0 if nothing else finals[segment["final_row"]]

    def own_targets(self, p, rows, finals):
        o, target = self.o, p.rewards[:, None].repeat(len(p.leaves), 1)
        for s in p.segments:
            for t in range(s["first_row"], s["first_row"] + s["rows"]):
                # The sum of the definition: over all that follows while its agent lives.
                total, weight, last = 0.0, 1.0, s["first_row"] + s["rows"] - 1
                for k in range(t, last + 1):
                    total = total + weight * p.rewards[k]
                    weight *= o["gamma"]
                    if k == last:
                        total = total + weight * self.final_value(p, s, finals)
                    elif not p.alive[k + 1]:
                        break
                    else:
                        total = total + weight * (1 - o["q_lambda"]) * rows[k + 1]
                        weight *= o["q_lambda"]
                if p.alive[t]:
                    target[t] = total
        return target

    def team_targets(self, greatest):
        o = self.o
        acts, ends = {}, {}  # by (env, step)
        known = set()  # pairs of joint steps between which nothing is unknown
        for p, (rows, finals) in zip(self.policies, greatest):
            for s in p.segments:
                span = [p.rows[r][:2] for r in range(s["first_row"], s["first_row"] + s["rows"])]
                for r in range(s["first_row"], s["first_row"] + s["rows"]):
                    if p.alive[r]:
                        reward, value = acts.get(p.rows[r][:2], (0.0, 0.0))
                        acts[p.rows[r][:2]] = reward + p.rewards[r], value + rows[r].sum()
                if s["final_row"] >= 0:
                    span.append(p.finals[s["final_row"]][:2])
                    value = self.final_value(p, s, finals)
                    if not np.isscalar(value):
                        ends[span[-1]] = ends.get(span[-1], 0.0) + value.sum()
                known |= {(a, b) for a in self.steps for b in self.steps if span[0] <= a < b <= span[-1]}
        target = {}

        def ahead(step):
            """What follows a joint step, by the env steps that it is away."""
            later = [s for s in self.steps if s[0] == step[0] and s > step]
            if not later or not ((step, later[0]) in known or later[0][1] == step[1] + 1):
                return []
            after = later[0]
            parts = [(after[1] - step[1], ends.get(after, 0.0))]
            if after in acts:
                parts.append((after[1] - step[1], o["q_lambda"] * of(after) + (1 - o["q_lambda"]) * acts[after][1]))
                return parts
            return parts + [(wait + after[1] - step[1], value) for wait, value in ahead(after)]

        def of(step):
            if step not in target:
                by_env_step = o["discount_by"] == "env_step"
                target[step] = acts[step][0] + sum(o["gamma"]**(wait if by_env_step else 1) * value for wait, value in ahead(step))
            return target[step]

        return [np.array([[of(at[:2]) if at[:2] in acts else 0.0] for at in p.rows]) for p in self.policies]

    def units(self):
        """Lists of (policy, row or sequence), in the order of their first."""
        pieces = []
        for p in self.policies:
            if p.net.core:
                pieces += [(p.number, s, [r for r in range(q["first_row"], q["first_row"] + q["rows"]) if p.alive[r]]) for s, q in enumerate(p.sequences)]
            else:
                pieces += [(p.number, r, [r]) for r in range(len(p.rows)) if p.alive[r]]
        pieces = [piece for piece in pieces if piece[2]]
        if self.o["mixer"] == "none":
            return [[piece] for piece in pieces]
        units, left = [], list(pieces)
        while left:
            unit, steps = [left.pop(0)], set()
            while True:
                steps |= {self.policies[n].rows[r][:2] for n, _, rows in unit for r in rows}
                joined = [piece for piece in left if steps & {self.policies[piece[0]].rows[r][:2] for r in piece[2]}]
                if not joined:
                    break
                unit += joined
                left = [piece for piece in left if piece not in joined]
            units.append(unit)
        return units

    def minibatches(self, epoch):
        c, units = self.case["context"], self.units()
        largest = max(self.policies, key=lambda p: (p.alive.sum(), -p.number)).number
        result, rows, goal = [[]], 0, self.o["minibatch_size"]
        order = shuffled(range(len(units)), c["seed"], c["iteration"], epoch, 0)
        for i, unit in enumerate(order):
            result[-1] += units[unit]
            rows += sum(len(piece[2]) for piece in units[unit] if piece[0] == largest)
            if rows >= goal and i + 1 < len(order):
                result.append([])
                goal = (rows // self.o["minibatch_size"] + 1) * self.o["minibatch_size"]
        return result

    def loss(self, minibatch, targets):
        """The loss, and the mean of the values."""
        if self.o["mixer"] == "none":
            p = self.policies[0]
            rows = sorted(r for piece in minibatch for r in piece[2])
            chosen = p.chosen(p.values()[0][rows], rows)
            return 0.5 * (chosen - torch.from_numpy(targets[0][rows])).square().mean(), chosen.mean()
        totals, of_steps = {}, {}
        for p in self.policies:
            values = p.values()[0]
            for r in (r for number, _, rows in minibatch if number == p.number for r in rows):
                at = p.rows[r][:2]
                totals[at] = totals.get(at, 0) + p.chosen(values[[r]], [r]).sum()
                of_steps[at] = targets[p.number][r, 0]
        total = torch.stack([totals[at] for at in totals])
        return 0.5 * (total - torch.tensor([of_steps[at] for at in totals])).square().mean(), total.mean()

    def run(self):
        o, parameters = self.o, [value for p in self.policies for value in p.net.named().values()]
        optimizer = torch.optim.Adam(parameters, lr=self.at(o["learning_rate"]), eps=o["adam_epsilon"])
        targets = self.targets()
        sums, steps = np.zeros(3), 0
        for epoch in range(o["num_epochs"]):
            for minibatch in self.minibatches(epoch):
                optimizer.zero_grad()
                loss, value = self.loss(minibatch, targets)
                loss.backward()
                for p in self.policies:
                    if all(number != p.number for number, _, _ in minibatch):  # it takes no step
                        for value in p.net.named().values():
                            value.grad = None
                norm = torch.nn.utils.clip_grad_norm_(parameters, o["max_grad_norm"] or np.inf)
                optimizer.step()
                sums += [loss.item(), value.item(), norm.item()]
                steps += 1
        sums /= steps
        state = lambda name: [{n: optimizer.state[v][name].ravel().tolist() for n, v in p.net.named().items()} for p in self.policies]
        return dict(metrics={"Loss/Value loss": sums[0], "Policy/Action value": sums[1], "Policy/Gradient norm": sums[2],
                             "Policy/Learning rate": self.at(o["learning_rate"])},
                    minibatch_steps=steps, epochs=o["num_epochs"], trained_rows=[int(p.alive.sum()) for p in self.policies],
                    parameters=[{n: v.detach().ravel().tolist() for n, v in p.net.named().items()} for p in self.policies], exp_avg=state("exp_avg"))

    def record(self):
        """What both sides start from."""
        steps = {at: number for number, at in enumerate(self.steps)}
        policies, case = [], self.case
        for p in self.policies:
            batch = dict(rows=len(p.rows), final_rows=len(p.finals), segments=p.segments, critic_rows=0, obs=p.obs.ravel(), final_obs=p.final_obs.ravel(),
                         slot=[at[2] for at in p.rows], final_slot=[at[2] for at in p.finals], rewards=p.rewards, action_logp=np.zeros(len(p.rows)),
                         agent_mask=p.alive if case["alive"] < 1 else [], critic_state=[], critic_row=[], final_critic_row=[], actions=p.actions.ravel(),
                         action_mask=p.mask.ravel() if p.spec["has_action_mask"] else [], joint_place=[steps[at[:2]] for at in p.rows],
                         final_action_mask=p.final_mask.ravel() if p.spec["has_action_mask"] else [])
            if p.net.core:
                batch.update(sequences=p.sequences, memory=p.memory.ravel())
            parameters = {n: v.detach().ravel().tolist() for n, v in p.net.named().items()}
            policies.append(dict(name=f"{case['name']}_{p.number}", spec=case["spec"], batch=batch, parameters=parameters))
        joint = []
        for at, number in steps.items():
            here = [(agent, 0, p.number, r) for p in self.policies for r, (e, s, agent) in enumerate(p.rows) if (e, s) == at]
            here += [(agent, 1, p.number, f) for p in self.policies for f, (e, s, agent) in enumerate(p.finals) if (e, s) == at]
            joint.append(dict(env_id=at[0], step=at[1], entries=[list(entry) for entry in sorted(here)]))
        return dict(name=case["name"], context=case["context"], policies=policies, joint=joint)


def constant(value):
    return dict(initial=value, final=value, env_steps=0)


def acts(agent, steps, end, final_step=None):
    steps = list(steps)
    return dict(agent=agent, steps=steps, end=end, final_step=steps[-1] + 1 if final_step is None else final_step)


SPEC = dict(obs_size=4, agent_id_size=0, critic_agent_id=False, critic_input="observation", critic_state_size=0, critic_hidden_sizes=[3],
            has_action_mask=False, normalize_observations=False, activation="tanh", actor_hidden_sizes=[7, 6], actor_layer_norm=True)
GRU = dict(actor_core="gru", critic_core="none", core_size=5, core_layers=1, sequence_length=3, actor_head_hidden_sizes=[], critic_head_hidden_sizes=[])
OPTIONS = dict(learning_rate=constant(3e-3), adam_epsilon=1e-5, gamma=0.9, discount_by="decision", q_lambda=0.65, time_limit_bootstrap=True,
               num_epochs=2, minibatch_size=10, max_grad_norm=0.5, mixer="none")
ALONE = [[acts(0, range(7), "terminated")], [acts(0, range(5), "cut")], [acts(0, range(9), "truncated")], [acts(0, range(1), "terminated")],
         [acts(0, range(8), "cut")], [acts(0, range(6), "truncated")]]
# Agents 0 and 1 are of the first policy, 2 and 3 of the second. They leave early, wait, join late, and end by themselves.
TEAM = [[acts(0, range(6), "cut"), acts(1, range(6), "cut"), acts(2, range(6), "cut")],
        [acts(0, range(7), "terminated"), acts(1, range(3), "terminated"), acts(2, range(7), "terminated"), acts(3, range(4, 7), "terminated")],
        [acts(0, [0, 1, 4, 5], "truncated"), acts(1, [0, 4], "truncated", 6), acts(2, range(3), "truncated"), acts(3, [0, 5], "cut")]]
CASES = [
    dict(name="rows", world=ALONE, agents=[[0]], alive=0.8, numbers_seed=1, context=dict(seed=11, iteration=4, env_steps=1000),
         spec=dict(SPEC, action=[dict(discrete=5)], has_action_mask=True), options=dict(OPTIONS, max_grad_norm=0.3)),
    dict(name="leaves", world=ALONE, agents=[[0]], alive=1, numbers_seed=2, context=dict(seed=5, iteration=0, env_steps=500),
         spec=dict(SPEC, action=[dict(multi_discrete=[3, 4])], activation="relu", actor_layer_norm=False),
         options=dict(OPTIONS, max_grad_norm=0.0, time_limit_bootstrap=False, q_lambda=0.3, learning_rate=dict(initial=4e-3, final=1e-3, env_steps=3000))),
    dict(name="gru", world=ALONE, agents=[[0]], alive=0.8, numbers_seed=3, context=dict(seed=7, iteration=2, env_steps=0),
         spec=dict(SPEC, action=[dict(discrete=4)], has_action_mask=True, **GRU), options=OPTIONS),
    dict(name="team", world=TEAM, agents=[[0, 1], [2, 3]], alive=0.85, numbers_seed=4, context=dict(seed=3, iteration=9, env_steps=0),
         spec=dict(SPEC, action=[dict(discrete=3)], has_action_mask=True), options=dict(OPTIONS, mixer="vdn")),
    dict(name="team_gru", world=TEAM, agents=[[0, 1, 2, 3]], alive=1, numbers_seed=6, context=dict(seed=4, iteration=1, env_steps=0),
         spec=dict(SPEC, action=[dict(multi_discrete=[2, 3])], **GRU),
         options=dict(OPTIONS, mixer="vdn", discount_by="env_step", minibatch_size=12, q_lambda=0.5)),
]


def flat(value):
    """Arrays as lists of nine digits, which float32 needs."""
    if isinstance(value, dict):
        return {key: flat(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [flat(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return [flat(entry) for entry in value.tolist()]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def main():
    cases = []
    for case in CASES:
        record = Update(case).record()
        # One step from all rows: the loss and the gradients.
        once = dict(case, options=dict(case["options"], num_epochs=1, minibatch_size=1000, max_grad_norm=0.0))
        both = {name: dict(options=of["options"], **Update(of).run()) for name, of in (("one_step", once), ("update", case))}
        cases.append(flat(dict(record, **both)))
    print(json.dumps(dict(cases=cases)))


if __name__ == "__main__":
    main()
