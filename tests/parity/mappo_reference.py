#!/usr/bin/env python3
"""One PPO update with what MAPPO's authors train with, computed by plain PyTorch in double precision, as recorded numbers for
tests/parity/ppo_parity_test.cc: PopArt, normalized states, the agent's observation behind the state, dead agents' rows, minibatches of
env steps.

    python tests/parity/mappo_reference.py > tests/parity/mappo_reference.json

Beside ppo_reference.py and recurrent_reference.py, whose networks and batches these are; targets, inputs of the critic and means over
rows are written down here once more. A row whose agent mask is 0 is a dead agent's.
"""
import copy

import numpy as np
import torch
from torch import nn

import ppo_reference as ppo
import recurrent_reference as recurrent


def widened(case):
    """The case as a critic's size is worked out of it: the agent's observation counts as a part of the state."""
    if not case["spec"].get("agent_specific_state"):
        return case
    case = copy.deepcopy(case)
    case["spec"]["critic_state_size"] += case["spec"]["obs_size"]
    return case


class Policy(ppo.Policy):
    def __init__(self, case, rng):
        super().__init__(widened(case), rng)

    def last_layer(self):
        return self.critic[-1]


class RecurrentPolicy(recurrent.Policy):
    def last_layer(self):
        return self.critic.head[-1]


def add_absent_agents(case, batch, rng):
    """Makes joint observations of the states: agents one after another, then a bit for each that is there."""
    sizes = case["spec"].get("joint_sizes")
    if sizes is None:
        return
    batch["joint_sizes"] = sizes
    there = rng.random((batch["critic_rows"], len(sizes))) < 0.7
    batch["critic_state"][:, sum(sizes):] = there
    first = 0
    for agent, size in enumerate(sizes):
        batch["critic_state"][:, first:first + size] *= there[:, agent:agent + 1]
        first += size


class Tricks:
    """In front of an Update: inputs of the critic, targets, losses."""

    def __init__(self, case, options, policy, batch):
        super().__init__(case, options, policy, batch)
        spec, rows = case["spec"], batch["rows"]
        alive = batch["agent_mask"].astype(bool)
        every = np.ones(rows, dtype=bool)
        self.alive = np.flatnonzero(alive)
        self.of_policy = alive if options["use_policy_active_masks"] else every
        self.of_value = alive if options["use_value_active_masks"] else every
        self.active = np.flatnonzero(self.of_policy | self.of_value)  # what minibatches are cut from
        state_size = spec["critic_state_size"]
        if spec["normalize_state"]:
            self.new_state_moments = self.observe_states()
        if state_size:
            inputs = [self.states(batch["critic_row"]), self.states(batch["final_critic_row"])]
        else:
            inputs = [x.numpy()[:, :spec["obs_size"]] for x in (self.critic_in, self.final_in)]
        slots = [batch["slot"], batch["final_slot"]]
        if spec["agent_specific_state"]:
            observed = [self.actor_in.numpy()[:, :spec["obs_size"]], self.final_observations()]
            inputs = [np.concatenate(pair, 1) for pair in zip(inputs, observed)]
        if options["death_masking"]:
            last = {s["final_row"]: s["first_row"] + s["rows"] - 1 for s in batch["segments"] if s["final_row"] >= 0}
            dead = [~alive, np.array([not alive[last[f]] for f in range(batch["final_rows"])], dtype=bool)]
            inputs = [np.where(d[:, None], 0.0, x) for d, x in zip(dead, inputs)]
        ids = spec["agent_id_size"] if spec["critic_agent_id"] else 0
        self.critic_in, self.final_in = (torch.from_numpy(np.concatenate([x, ppo.one_hot(s, ids)], 1)) for x, s in zip(inputs, slots))

    def minibatches(self, epoch):
        """Of env steps: rows of one joint observation or state stay together; a minibatch ends where a multiple of its size is reached."""
        if self.o.get("minibatch_by") != "env_steps":
            return super().minibatches(epoch)
        env_steps = {}
        for row in self.active:
            env_steps.setdefault(int(self.batch["critic_row"][row]), []).append(int(row))
        env_steps, c = list(env_steps.values()), self.case["context"]
        minibatches, taken = [[]], 0
        for number in ppo.shuffled(np.arange(len(env_steps)), c["seed"], c["iteration"], epoch, 0):
            if minibatches[-1] and taken // self.o["minibatch_size"] > (taken - len(minibatches[-1])) // self.o["minibatch_size"]:
                minibatches.append([])
            minibatches[-1] += env_steps[number]
            taken += len(env_steps[number])
        return [torch.tensor(rows) for rows in minibatches]

    def final_observations(self):
        final = self.batch["final_obs"]
        if not self.case["spec"]["normalize_observations"]:
            return final
        m = self.case["observation_moments"]
        return np.clip((final - np.array(m["mean"])) / np.sqrt(np.array(m["variance"])), -10, 10)

    def there(self):
        """[critic rows, elements]: whether what an element is of is there; of presence bits never."""
        spec, states = self.case["spec"], self.batch["critic_state"]
        there = np.ones(states.shape, dtype=bool)
        sizes = spec.get("joint_sizes")
        if sizes is not None:
            bits = states[:, sum(sizes):] > 0
            there = np.concatenate([np.repeat(bits, sizes, axis=1), np.zeros(bits.shape, dtype=bool)], 1)
        return there

    def states(self, rows):
        states = self.batch["critic_state"]
        if self.case["spec"]["normalize_state"]:
            m = self.case["state_moments"]
            scaled = np.clip((states - np.array(m["mean"])) / np.sqrt(np.array(m["variance"])), -10, 10)
            states = np.where(self.there(), scaled, states)
        return states[rows]

    def observe_states(self):
        """Those that living agents' rows read, each once, with the recorded moments."""
        read = np.unique(self.batch["critic_row"][self.alive])
        states, there = self.batch["critic_state"][read], self.there()[read]
        m = self.case["state_moments"]
        result = dict(count=[], mean=[], variance=[])
        for c in range(states.shape[1]):
            count, mean, variance = (m[part][c] for part in ("count", "mean", "variance"))
            values = states[there[:, c], c]
            if len(values):
                total = count + len(values)
                delta = values.mean() - mean
                variance = (variance * count + values.var() * len(values) + delta**2 * count * len(values) / total) / total
                mean, count = mean + delta * len(values) / total, total
            for part, value in (("count", count), ("mean", mean), ("variance", variance)):
                result[part].append(value)
        return result

    def targets(self):
        o, b = self.o, self.batch
        mean, variance, count = 0.0, 1.0, 0.0
        normalizes = o["use_value_norm"] or o["use_popart"]
        if normalizes:
            m = self.case["value_moments"]
            mean, variance, count = m["mean"][0], m["variance"][0], m["count"]
        with torch.no_grad():
            value, final = (v.numpy() * np.sqrt(variance) + mean for v in self.values())
        adv = np.zeros(b["rows"])
        for s in b["segments"]:
            r = range(s["first_row"], s["first_row"] + s["rows"])
            after = final[s["final_row"]] if s["final_row"] >= 0 else 0.0
            v = np.append(value[list(r)], after)
            delta = b["rewards"][list(r)] + o["gamma"] * v[1:] - v[:-1]
            for t in range(len(delta)):
                k = np.arange(len(delta) - t)
                adv[s["first_row"] + t] = ((o["gamma"] * o["gae_lambda"]) ** k * delta[t:]).sum()
        ret = adv + value
        v = np.flatnonzero(self.of_value)
        self.explained_variance = 1 - (ret - value)[v].var() / ret[v].var()
        if normalizes:
            n = len(v)
            kept = min(count, 50.0 * n)
            delta, total = ret[v].mean() - mean, kept + n
            new_variance = (variance * kept + ret[v].var() * n + delta**2 * kept * n / total) / total
            new_mean = mean + delta * n / total
            if o["use_popart"]:
                with torch.no_grad():
                    last, before = self.policy.last_layer(), (np.sqrt(variance), mean)
                    after = (np.sqrt(new_variance), new_mean)
                    last.weight *= before[0] / after[0]
                    last.bias.copy_((before[0] * last.bias + before[1] - after[1]) / after[0])
                    again, _ = self.values()
                    assert np.abs(again.numpy() * after[0] + after[1] - value).max() < 1e-12
            mean, variance, count = new_mean, new_variance, total
        self.value_moments = dict(count=count, mean=[mean], variance=[variance])
        self.target = torch.from_numpy((ret - mean) / np.sqrt(variance))
        self.old_value = torch.from_numpy((value - mean) / np.sqrt(variance))
        if o["use_advnorm"]:
            a = self.alive
            adv = (adv - adv[a].mean()) / (adv[a].std() + 1e-8)
        self.advantage = torch.from_numpy(adv)

    def run(self):
        o, p = self.o, self.policy
        self.targets()
        lr = o["learning_rate"]["initial"]
        optimizer = torch.optim.Adam(list(p.actor_parameters()) + list(p.critic.parameters()), lr=lr, eps=o["adam_epsilon"])
        old_logp = torch.from_numpy(self.batch["action_logp"])
        masks = [torch.from_numpy(m.astype(np.float64)) for m in (self.of_policy, self.of_value)]
        mean = lambda x, w: (x * w).sum() / max(float(w.sum()), 1.0)
        sums, counts, norms, steps = np.zeros(5), np.zeros(2), np.zeros(2), 0
        for epoch in range(o["num_epochs"]):
            kl_sum, kl_rows = 0.0, 0.0
            for minibatch in self.minibatches(epoch):
                i, out, v = self.forward(minibatch)
                w, u = (m[i] for m in masks)
                logp, entropy = p.distribution(out, self.actions[i], None if self.mask is None else self.mask[i])
                log_ratio = logp - old_logp[i]
                ratio, adv = log_ratio.exp(), self.advantage[i]
                surrogate = -torch.min(ratio * adv, ratio.clamp(1 - o["clip_param"], 1 + o["clip_param"]) * adv)
                f = lambda x: nn.functional.huber_loss(x, self.target[i], delta=o["huber_delta"], reduction="none")
                old = self.old_value[i]
                value_loss = torch.max(f(v), f(old + (v - old).clamp(-o["value_clip_param"], o["value_clip_param"])))
                optimizer.zero_grad()
                policy_loss = mean(surrogate, w) - o["entropy_coeff"]["initial"] * mean(entropy, w)
                (policy_loss + o["value_loss_coeff"] * mean(value_loss, u)).backward()
                norms += [float(nn.utils.clip_grad_norm_(p.actor_parameters(), o["max_grad_norm"])),
                          float(nn.utils.clip_grad_norm_(list(p.critic.parameters()), o["max_grad_norm"]))]
                optimizer.step()
                with torch.no_grad():
                    kl = float(((ratio - 1 - log_ratio) * w).sum())
                    clipped = ((ratio - 1).abs() > o["clip_param"]) * w
                    sums += [float(x) for x in ((surrogate * w).sum(), (value_loss * u).sum(), (entropy * w).sum(), kl, clipped.sum())]
                    kl_sum, kl_rows = kl_sum + kl, kl_rows + float(w.sum())
                counts += [float(w.sum()), float(u.sum())]
                steps += 1
        per_row = sums / np.array([counts[0], counts[1], counts[0], counts[0], counts[0]])
        metrics = {"Loss/Policy loss": per_row[0], "Loss/Value loss": o["value_loss_coeff"] * per_row[1],
                   "Loss/Entropy loss": -o["entropy_coeff"]["initial"] * per_row[2], "Policy/Entropy": per_row[2],
                   "Policy/KL": kl_sum / kl_rows, "Policy/Clip fraction": per_row[4], "Policy/Explained variance": self.explained_variance,
                   "Policy/Gradient norm": norms[0] / steps, "Policy/Critic gradient norm": norms[1] / steps}
        if o["use_popart"]:
            metrics["Policy/Return mean"] = self.value_moments["mean"][0]
            metrics["Policy/Return deviation"] = np.sqrt(self.value_moments["variance"][0])
        result = dict(metrics=metrics, minibatch_steps=steps, epochs=o["num_epochs"], trained_rows=len(self.alive),
                      value_moments=self.value_moments, gradients=p.named(lambda t: t.grad),
                      exp_avg=p.named(lambda t: optimizer.state[t]["exp_avg"]), exp_avg_sq=p.named(lambda t: optimizer.state[t]["exp_avg_sq"]),
                      parameters=p.named(lambda t: t))
        if self.case["spec"]["normalize_state"]:
            result["state_moments"] = self.new_state_moments
        return result


class Update(Tricks, ppo.Update):
    pass


class RecurrentUpdate(Tricks, recurrent.Update):
    pass


OPTIONS = dict(ppo.BASE, use_value_norm=True, use_popart=False, use_policy_active_masks=True, use_value_active_masks=True, death_masking=False,
               huber_delta=1.0, value_loss_coeff=0.7, max_grad_norm=0.3)
POPART = dict(OPTIONS, use_value_norm=False, use_popart=True)
TRICKS = dict(normalize_state=False, agent_specific_state=False)
SPEC = dict(ppo.SPEC, action=[dict(discrete=5)], agent_id_size=3, **TRICKS)
JOINT = dict(SPEC, critic_input="joint_observation", critic_state_size=16, joint_sizes=[5, 5, 3])
LENGTHS = [7, 5, 9, 1, 8, 6, 10, 4, 3]
MOMENTS = dict(count=400.0, mean=[-1.5], variance=[4.0])


def state_moments(size, bits):
    """Something else in each column; of presence bits, and of an agent that was never there, what there is before any data."""
    data = range(size - bits)
    return dict(count=[float(7 * c) for c in data] + [0.0] * bits, mean=[0.125 * (c % 5) - 0.25 for c in data] + [0.0] * bits,
                variance=[0.25 + 0.5 * (c % 4) if c else 1.0 for c in data] + [1.0] * bits)


CASES = [
    dict(name="popart", segment_lengths=LENGTHS, inactive_rows=False, numbers_seed=11, spec=JOINT, options=POPART, value_moments=MOMENTS,
         context=dict(seed=11, iteration=4, env_steps=16000)),
    dict(name="joint_observations_normalized_where_agents_are_there", segment_lengths=LENGTHS, inactive_rows=True, numbers_seed=12,
         spec=dict(JOINT, normalize_state=True, critic_agent_id=True), options=OPTIONS, value_moments=MOMENTS,
         state_moments=state_moments(16, 3), context=dict(seed=12, iteration=5, env_steps=0)),
    dict(name="dead_agents_in_the_value_loss_alone", segment_lengths=LENGTHS, inactive_rows=True, numbers_seed=13,
         spec=dict(JOINT, critic_agent_id=True), options=dict(OPTIONS, use_value_active_masks=False, death_masking=True), value_moments=MOMENTS,
         context=dict(seed=13, iteration=6, env_steps=0)),
    dict(name="state_and_observation_with_popart_and_the_dead_in_the_policy", segment_lengths=[5, 6, 7, 8, 9, 11, 4], inactive_rows=True,
         numbers_seed=14,
         spec=dict(SPEC, critic_input="global_state", critic_state_size=6, critic_agent_id=True, normalize_state=True, agent_specific_state=True,
                   normalize_observations=True),
         options=dict(POPART, use_policy_active_masks=False, minibatch_size=13), value_moments=dict(count=10.0, mean=[0.5], variance=[2.25]),
         observation_moments=dict(count=50.0, mean=[0.25, 0.5, 0.0, -0.25, 0.125], variance=[2.0, 1.5, 2.5, 1.0, 3.0]),
         state_moments=state_moments(6, 0), context=dict(seed=14, iteration=7, env_steps=0)),
    dict(name="gru_with_popart_and_dead_agents_in_the_value_loss", segment_lengths=LENGTHS, inactive_rows=True, numbers_seed=15,
         spec=dict(recurrent.SPEC, action=[dict(discrete=5)], agent_id_size=3, critic_agent_id=True, critic_input="joint_observation",
                   critic_state_size=16, joint_sizes=[5, 5, 3], **TRICKS),
         options=dict(POPART, use_value_active_masks=False, death_masking=True), value_moments=MOMENTS,
         context=dict(seed=15, iteration=8, env_steps=0)),
    dict(name="ippo_with_dead_agents_in_both_losses", segment_lengths=[6, 9, 8, 5, 7, 12], inactive_rows=True, numbers_seed=16,
         spec=dict(SPEC, critic_agent_id=True),
         options=dict(OPTIONS, use_policy_active_masks=False, use_value_active_masks=False, death_masking=True), value_moments=MOMENTS,
         context=dict(seed=16, iteration=9, env_steps=0)),
    dict(name="env_steps_with_popart", segment_lengths=LENGTHS, inactive_rows=True, numbers_seed=17, spec=JOINT,
         options=dict(POPART, minibatch_by="env_steps"), value_moments=MOMENTS, context=dict(seed=17, iteration=10, env_steps=0)),
    dict(name="env_steps_with_the_dead_in_the_value_loss", segment_lengths=LENGTHS, inactive_rows=True, numbers_seed=18,
         spec=dict(SPEC, critic_input="global_state", critic_state_size=6, normalize_state=True),
         options=dict(OPTIONS, use_value_active_masks=False, death_masking=True, minibatch_by="env_steps", minibatch_size=13), value_moments=MOMENTS,
         state_moments=state_moments(6, 0), context=dict(seed=18, iteration=11, env_steps=0)),
]


def main():
    records = []
    for case in CASES:
        rng = np.random.default_rng(case["numbers_seed"])
        is_recurrent = "actor_core" in case["spec"]
        policy = (RecurrentPolicy if is_recurrent else Policy)(case, rng)
        batch = ppo.make_batch(case, policy, rng)
        add_absent_agents(case, batch, rng)
        if is_recurrent:
            recurrent.add_sequences(case, policy, batch, rng)
        records.append(ppo.record(case, policy, batch, rng, RecurrentUpdate if is_recurrent else Update))
    ppo.write(records)


if __name__ == "__main__":
    main()
