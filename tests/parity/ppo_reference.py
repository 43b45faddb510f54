#!/usr/bin/env python3
"""One PPO update, computed by plain PyTorch in double precision, as recorded numbers for tests/parity/ppo_parity_test.cc.

    python tests/parity/ppo_reference.py > tests/parity/ppo_reference.json

Needs torch and numpy. It shares no code with lib/training: networks are torch.nn modules, gradients are autograd's, the optimizer is
torch.optim.Adam, clipping torch.nn.utils.clip_grad_norm_, distributions torch.distributions. Only the order of minibatches must be the
same, so the counter-based generator (Philox4x32-10) and the shuffle are written down here once more from their definition.

Three cases: MAPPO with value normalization, an action mask, inactive rows, truncated, cut and terminated segments; IPPO with a Gaussian
head and observation normalization; a mix of discrete and continuous actions with a global state, plain returns and a stop by target_kl.
Each is recorded twice: `one_step` (one minibatch of all rows: losses and gradients) and `update` (epochs of minibatches with a remainder).
"""
import json
import sys

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical, Normal

torch.set_default_dtype(torch.float64)
M32 = 0xFFFFFFFF
M64 = 0xFFFFFFFFFFFFFFFF


class Philox:
    """Salmon et al., SC'11; key from (seed, stream) by SplitMix64's finalizer; counter words (a, b, c, draw)."""

    def __init__(self, seed, stream, a, b, c):
        z = (seed + 0x9E3779B97F4A7C15 * stream) & M64
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
        z ^= z >> 31
        self.key = (z & M32, z >> 32)
        self.prefix = (a, b, c)
        self.draw = 0
        self.words = []

    def block(self):
        c0, c1, c2 = self.prefix
        c3 = self.draw
        k0, k1 = self.key
        for _ in range(10):
            p0 = 0xD2511F53 * c0
            p1 = 0xCD9E8D57 * c2
            c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & M32, (p0 >> 32) ^ c3 ^ k1, p0 & M32
            k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
        self.draw += 1
        return [c0, c1, c2, c3]

    def below(self, n):
        if not self.words:
            self.words = self.block()
        return (self.words.pop(0) * n) >> 32


def shuffled(rows, seed, iteration, epoch, slot):
    random = Philox(seed, 5, iteration, epoch, slot)
    rows = list(rows)
    for i in range(len(rows), 1, -1):
        j = random.below(i)
        rows[i - 1], rows[j] = rows[j], rows[i - 1]
    return rows


def mlp(sizes, activation):
    layers = []
    for i in range(len(sizes) - 1):
        layers.append(nn.Linear(sizes[i], sizes[i + 1]))
        if i + 2 < len(sizes):
            layers.append({"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}[activation]())
    return nn.Sequential(*layers)


def single(array):
    """Numbers that float32 holds exactly, so that both sides start from the same."""
    return np.asarray(array, dtype=np.float32).astype(np.float64)


class Policy(nn.Module):
    def __init__(self, case, rng):
        super().__init__()
        spec = case["spec"]
        self.leaves = []  # ("discrete", n) and ("box", n), one per action word group
        for part in spec["action"]:
            if "discrete" in part:
                self.leaves.append(("discrete", part["discrete"]))
            elif "multi_discrete" in part:
                self.leaves += [("discrete", n) for n in part["multi_discrete"]]
            else:
                self.leaves.append(("box", part["box"]))
        outputs = sum(n for _, n in self.leaves)
        self.continuous = sum(n for kind, n in self.leaves if kind == "box")
        actor_in = spec["obs_size"] + spec["agent_id_size"]
        base = spec["critic_state_size"] or spec["obs_size"]
        critic_in = base + (spec["agent_id_size"] if spec["critic_agent_id"] else 0)
        self.actor = mlp([actor_in] + spec["actor_hidden_sizes"] + [outputs], spec["activation"])
        self.critic = mlp([critic_in] + spec["critic_hidden_sizes"] + [1], spec["activation"])
        if self.continuous:
            self.log_std = nn.Parameter(torch.zeros(self.continuous))
        with torch.no_grad():
            for p in self.parameters():
                scale = 0.6 / np.sqrt(p.shape[-1]) if p.dim() == 2 else 0.1
                p.copy_(torch.from_numpy(single(rng.normal(size=tuple(p.shape)) * scale * 1.7)))

    def named(self, values):
        """Tensors by the names that ParameterLayout gives them."""
        result = {}
        for network in ("actor", "critic"):
            linears = [m for m in getattr(self, network) if isinstance(m, nn.Linear)]
            for i, linear in enumerate(linears):
                result[f"{network}.{i}.weight"] = values(linear.weight)
                result[f"{network}.{i}.bias"] = values(linear.bias)
        if self.continuous:
            result["actor.log_std"] = values(self.log_std)
        return {name: np.asarray(v.detach()).ravel().tolist() for name, v in result.items()}

    def actor_parameters(self):
        return list(self.actor.parameters()) + ([self.log_std] if self.continuous else [])

    def distribution(self, out, actions, mask):
        """Log-probability and entropy per row of the actor's outputs. Logits of all discrete leaves come first, then the means."""
        logp, entropy = 0.0, 0.0
        at, mask_at = 0, 0
        words = []
        word = 0
        for kind, n in self.leaves:
            words.append(word)
            word += 1 if kind == "discrete" else n
        for (kind, n), w in zip(self.leaves, words):
            if kind != "discrete":
                continue
            logits = out[:, at:at + n]
            if mask is not None:
                logits = logits.masked_fill(mask[:, mask_at:mask_at + n] == 0, -1e9)
                mask_at += n
            d = Categorical(logits=logits)
            logp = logp + d.log_prob(actions[:, w].long())
            entropy = entropy + d.entropy()
            at += n
        std_at = 0
        for (kind, n), w in zip(self.leaves, words):
            if kind != "box":
                continue
            d = Normal(out[:, at:at + n], self.log_std[std_at:std_at + n].exp())
            logp = logp + d.log_prob(actions[:, w:w + n]).sum(-1)
            entropy = entropy + d.entropy().sum(-1)
            at += n
            std_at += n
        return logp, entropy


def one_hot(slots, size):
    return np.eye(size)[np.asarray(slots)] if size else np.zeros((len(slots), 0))


def make_batch(case, policy, rng):
    """Segments of several lengths; ends: terminated, truncated or cut (both bootstrap)."""
    spec = case["spec"]
    lengths, rows, finals = case["segment_lengths"], sum(case["segment_lengths"]), 0
    segments, first = [], 0
    for i, length in enumerate(lengths):
        bootstrap = i % 3 != 0
        segments.append(dict(first_row=first, rows=length, final_row=finals if bootstrap else -1, env_id=i // 3, episode=0, slot=i % 3))
        finals += bootstrap
        first += length
    batch = dict(rows=rows, final_rows=finals, segments=segments)
    batch["obs"] = single(rng.normal(size=(rows, spec["obs_size"])) * 1.5 + 0.3)
    batch["final_obs"] = single(rng.normal(size=(finals, spec["obs_size"])))
    batch["slot"] = np.concatenate([[s["slot"]] * s["rows"] for s in segments]).astype(int)
    batch["final_slot"] = np.array([s["slot"] for s in segments if s["final_row"] >= 0], dtype=int)
    batch["rewards"] = single(rng.normal(size=rows) - 0.5)
    batch["agent_mask"] = (rng.random(rows) < 0.85).astype(int) if case["inactive_rows"] else np.ones(rows, dtype=int)
    state = spec["critic_state_size"]
    critic_rows = rows // 2 + finals if state else 0
    batch["critic_rows"] = critic_rows
    batch["critic_state"] = single(rng.normal(size=(critic_rows, state)))
    batch["critic_row"] = rng.integers(0, max(critic_rows, 1), size=rows if state else 0)
    batch["final_critic_row"] = rng.integers(0, max(critic_rows, 1), size=finals if state else 0)
    actions, masks = [], []
    for kind, n in policy.leaves:
        if kind == "box":
            actions.append(single(rng.normal(size=(rows, n))))
            continue
        chosen = rng.integers(0, n, size=rows)
        if spec["has_action_mask"]:
            allowed = (rng.random((rows, n)) < 0.6).astype(int)
            allowed[np.arange(rows), chosen] = 1
            masks.append(allowed)
        actions.append(chosen[:, None].astype(np.float64))
    batch["actions"] = np.concatenate(actions, 1)
    batch["action_mask"] = np.concatenate(masks, 1) if masks else np.zeros((rows, 0), dtype=int)
    return batch


class Update:
    def __init__(self, case, options, policy, batch):
        self.case, self.o, self.policy, self.batch = case, options, policy, batch
        spec = case["spec"]
        obs, final_obs = batch["obs"], batch["final_obs"]
        if spec["normalize_observations"]:
            m = case["observation_moments"]
            scale = lambda x: np.clip((x - np.array(m["mean"])) / np.sqrt(np.array(m["variance"])), -10, 10)
            obs, final_obs = scale(obs), scale(final_obs)
        ids = spec["agent_id_size"]
        self.actor_in = torch.from_numpy(np.concatenate([obs, one_hot(batch["slot"], ids)], 1))
        if spec["critic_state_size"]:
            own, final = batch["critic_state"][batch["critic_row"]], batch["critic_state"][batch["final_critic_row"]]
        else:
            own, final = obs, final_obs
        cids = ids if spec["critic_agent_id"] else 0
        self.critic_in = torch.from_numpy(np.concatenate([own, one_hot(batch["slot"], cids)], 1))
        self.final_in = torch.from_numpy(np.concatenate([final, one_hot(batch["final_slot"], cids)], 1))
        self.actions = torch.from_numpy(batch["actions"])
        self.mask = torch.from_numpy(batch["action_mask"]) if spec["has_action_mask"] else None
        self.active = np.flatnonzero(batch["agent_mask"])

    def values(self):
        """The critic's, in its own units, of rows and of final rows."""
        return self.policy.critic(self.critic_in).squeeze(1), self.policy.critic(self.final_in).squeeze(1)

    def minibatches(self, epoch):
        c = self.case["context"]
        order = shuffled(self.active, c["seed"], c["iteration"], epoch, 0)
        return [torch.tensor(order[first:first + self.o["minibatch_size"]]) for first in range(0, len(order), self.o["minibatch_size"])]

    def forward(self, minibatch):
        """Rows that count, the actor's outputs and the critic's values of each."""
        return minibatch, self.policy.actor(self.actor_in[minibatch]), self.policy.critic(self.critic_in[minibatch]).squeeze(1)

    def value_after(self, segment, final):
        return final[segment["final_row"]] if segment["final_row"] >= 0 else 0.0

    def make_optimizer(self, networks):
        """`networks`: a parameter group each."""
        return torch.optim.Adam(networks, eps=self.o["adam_epsilon"], betas=(0.9, 0.999))

    def clip(self, limit):
        """Clips the gradients; the norms of the actor's and the critic's before."""
        return [float(nn.utils.clip_grad_norm_(p, limit)) for p in (self.policy.actor_parameters(), list(self.policy.critic.parameters()))]

    def penalty(self, ratio, log_ratio):
        return 0.0

    def end_epoch(self, kl, optimizer):
        pass

    def moments(self, optimizer):
        """What the optimizer keeps, by the names of a checkpoint."""
        state = optimizer.state
        return {name: self.policy.named(lambda t: state[t][name]) for name in ("exp_avg", "exp_avg_sq")}

    def advantages(self, value, final):
        """Advantages and returns of all rows; `value` and `final` are in the units of rewards."""
        o, b = self.o, self.batch
        lam = o["gae_lambda"] if o["use_gae"] else 1.0
        adv = np.zeros(b["rows"])
        for s in b["segments"]:
            r = range(s["first_row"], s["first_row"] + s["rows"])
            after = self.value_after(s, final)
            v = np.append(value[list(r)], after)
            delta = b["rewards"][list(r)] + o["gamma"] * v[1:] - v[:-1]
            for t in range(len(delta)):  # the sum of the definition, not the recursion
                k = np.arange(len(delta) - t)
                adv[s["first_row"] + t] = ((o["gamma"] * lam) ** k * delta[t:]).sum()
        return adv, adv + value

    def old_logp(self):
        """Log-probabilities by the policy that the ratio is to."""
        return torch.from_numpy(self.batch["action_logp"])

    def surrogate(self, ratio, logp, adv):
        return -torch.min(ratio * adv, ratio.clamp(1 - self.o["clip_param"], 1 + self.o["clip_param"]) * adv)

    def targets(self):
        o = self.o
        mean, variance, count = 0.0, 1.0, 0.0
        if o["use_value_norm"]:
            m = self.case["value_moments"]
            mean, variance, count = m["mean"][0], m["variance"][0], m["count"]
        with torch.no_grad():
            value, final = (v.numpy() * np.sqrt(variance) + mean for v in self.values())
        adv, ret = self.advantages(value, final)
        a = self.active
        self.explained_variance = 1 - (ret - value)[a].var() / ret[a].var()
        if o["use_value_norm"]:
            n = len(a)
            count = min(count, 50.0 * n)
            delta, total = ret[a].mean() - mean, count + n
            variance = (variance * count + ret[a].var() * n + delta**2 * count * n / total) / total
            mean, count = mean + delta * n / total, total
        self.value_moments = dict(count=count, mean=[mean], variance=[variance])
        self.target = torch.from_numpy((ret - mean) / np.sqrt(variance))
        self.old_value = torch.from_numpy((value - mean) / np.sqrt(variance))
        if o["use_advnorm"]:
            adv = (adv - adv[a].mean()) / (adv[a].std() + 1e-8)
        self.advantage = torch.from_numpy(adv)

    def run(self):
        o, p, c = self.o, self.policy, self.case["context"]
        self.targets()
        at = lambda s: s["initial"] if not s["env_steps"] else s["initial"] + (s["final"] - s["initial"]) * min(1, c["env_steps"] / s["env_steps"])
        lr, entropy_coeff = at(o["learning_rate"]), at(o["entropy_coeff"])
        critic_lr = at(o["critic_learning_rate"]) if o["critic_learning_rate"]["initial"] else lr
        optimizer = self.make_optimizer([dict(params=p.actor_parameters(), lr=lr), dict(params=list(p.critic.parameters()), lr=critic_lr)])
        old_logp = self.old_logp()
        sums, rows, norms, steps, epochs = np.zeros(5), 0, np.zeros(2), 0, 0
        for epoch in range(o["num_epochs"]):
            epoch_kl = 0.0
            for minibatch in self.minibatches(epoch):
                i, out, v = self.forward(minibatch)
                logp, entropy = p.distribution(out, self.actions[i], None if self.mask is None else self.mask[i])
                log_ratio = logp - old_logp[i]
                ratio, adv = log_ratio.exp(), self.advantage[i]
                surrogate = self.surrogate(ratio, logp, adv)
                if o["huber_delta"]:
                    f = lambda x: nn.functional.huber_loss(x, self.target[i], delta=o["huber_delta"], reduction="none")
                else:
                    f = lambda x: 0.5 * (x - self.target[i])**2
                value_loss = f(v)
                if o["use_value_clip"]:
                    old = self.old_value[i]
                    value_loss = torch.max(value_loss, f(old + (v - old).clamp(-o["value_clip_param"], o["value_clip_param"])))
                optimizer.zero_grad()
                loss = surrogate.mean() - entropy_coeff * entropy.mean() + o["value_loss_coeff"] * value_loss.mean()
                (loss + self.penalty(ratio, log_ratio)).backward()
                norms += self.clip(o["max_grad_norm"] if o["max_grad_norm"] > 0 else float("inf"))
                optimizer.step()
                with torch.no_grad():
                    kl = (ratio - 1 - log_ratio).sum()
                    sums += [float(x) for x in (surrogate.sum(), value_loss.sum(), entropy.sum(), kl, ((ratio - 1).abs() > o["clip_param"]).sum())]
                    epoch_kl += float(kl)
                rows, steps = rows + len(i), steps + 1
            epochs += 1
            self.end_epoch(epoch_kl / len(self.active), optimizer)
            if o["target_kl"] and epoch_kl / len(self.active) > o["target_kl"]:
                break
        sums /= rows
        return dict(
            metrics={"Loss/Policy loss": sums[0], "Loss/Value loss": o["value_loss_coeff"] * sums[1], "Loss/Entropy loss": -entropy_coeff * sums[2],
                     "Policy/Entropy": sums[2], "Policy/KL": epoch_kl / len(self.active), "Policy/Clip fraction": sums[4],
                     "Policy/Explained variance": self.explained_variance, "Policy/Gradient norm": norms[0] / steps,
                     "Policy/Critic gradient norm": norms[1] / steps, "Policy/Learning rate": lr, "Policy/Critic learning rate": critic_lr},
            minibatch_steps=steps, epochs=epochs, trained_rows=len(self.active), value_moments=self.value_moments,
            gradients=p.named(lambda t: t.grad),  # of the last minibatch, after clipping
            parameters=p.named(lambda t: t), **self.moments(optimizer))


def constant(value):
    return dict(initial=value, final=value, env_steps=0)


BASE = dict(learning_rate=constant(3e-3), critic_learning_rate=constant(0.0), adam_epsilon=1e-5, gamma=0.95, gae_lambda=0.9, use_gae=True,
            use_advnorm=True, use_value_norm=True, clip_param=0.2, use_value_clip=True, value_clip_param=0.2, value_loss_coeff=1.0,
            huber_delta=0.0, entropy_coeff=constant(0.01), target_kl=0.0, max_grad_norm=0.5, num_epochs=3, minibatch_size=16)
SPEC = dict(obs_size=5, agent_id_size=0, critic_agent_id=False, critic_input="observation", critic_state_size=0, has_action_mask=False,
            normalize_observations=False, activation="tanh", actor_hidden_sizes=[8, 6], critic_hidden_sizes=[7, 8])
CASES = [
    dict(name="mappo_categorical", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=1,
         spec=dict(SPEC, action=[dict(discrete=5)], agent_id_size=3, critic_input="joint_observation", critic_state_size=18, has_action_mask=True),
         options=dict(BASE, huber_delta=1.0, value_loss_coeff=0.7, max_grad_norm=0.3),
         value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]), context=dict(seed=11, iteration=4, env_steps=16000)),
    dict(name="ippo_gaussian", segment_lengths=[6, 9, 8, 5, 7, 12], inactive_rows=False, numbers_seed=2,
         spec=dict(SPEC, action=[dict(box=2)], agent_id_size=3, critic_agent_id=True, normalize_observations=True, actor_hidden_sizes=[9]),
         options=dict(BASE, use_value_norm=False, entropy_coeff=dict(initial=0.02, final=0.0, env_steps=1000), max_grad_norm=0.0,
                      learning_rate=dict(initial=4e-3, final=1e-3, env_steps=3000), critic_learning_rate=constant(2e-3)),
         observation_moments=dict(count=50.0, mean=[0.25, 0.5, 0.0, -0.25, 0.125], variance=[2.0, 1.5, 2.5, 1.0, 3.0]),
         context=dict(seed=5, iteration=0, env_steps=500)),
    dict(name="mixed_actions_global_state", segment_lengths=[5, 6, 7, 8, 9, 11, 4], inactive_rows=True, numbers_seed=3,
         spec=dict(SPEC, action=[dict(multi_discrete=[3, 2]), dict(box=1), dict(discrete=4)], agent_id_size=3, critic_agent_id=True,
                   critic_input="global_state", critic_state_size=6, activation="elu", actor_hidden_sizes=[8, 8, 5]),
         options=dict(BASE, use_gae=False, use_advnorm=False, use_value_clip=False, clip_param=0.1, target_kl=0.04, num_epochs=8, minibatch_size=13,
                      learning_rate=constant(1e-3)),
         value_moments=dict(count=10.0, mean=[0.5], variance=[2.25]), context=dict(seed=7, iteration=123456, env_steps=0)),
]


def plain(value):
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.ravel().tolist())
    if isinstance(value, (np.integer, int)) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return int(value) if float(value).is_integer() else float("%.10g" % value)
    return value


def record(case, policy, batch, rng, make_update):
    """The case with its batch, what acted a little different from the policy, and the two updates."""
    initial = {k: v.clone() for k, v in policy.state_dict().items()}
    probe = make_update(case, dict(case["options"], minibatch_size=1 << 30), policy, batch)
    with torch.no_grad():  # so that ratios spread and some are clipped
        logp = np.zeros(batch["rows"])
        probe.active = np.arange(batch["rows"])
        i, out, _ = probe.forward(probe.minibatches(0)[0])
        logp[i.numpy()] = policy.distribution(out, probe.actions[i], None if probe.mask is None else probe.mask[i])[0].numpy()
    batch["action_logp"] = single(logp + rng.normal(size=batch["rows"]) * 0.15)
    recorded = dict(case, batch=batch, parameters=policy.named(lambda t: t))
    for name, options in (("one_step", dict(case["options"], num_epochs=1, minibatch_size=batch["rows"])), ("update", case["options"])):
        policy.load_state_dict(initial)
        recorded[name] = make_update(case, options, policy, batch).run()
    recorded["one_step"].pop("exp_avg_sq")
    recorded["one_step"].pop("parameters")
    print(case["name"], recorded["update"]["epochs"], "epochs,", recorded["update"]["minibatch_steps"], "steps", recorded["update"]["metrics"],
          file=sys.stderr)
    return recorded


def write(records):
    json.dump(plain(dict(torch=torch.__version__, cases=records)), sys.stdout, separators=(",", ":"))
    print()


def main():
    records = []
    for case in CASES:
        rng = np.random.default_rng(case["numbers_seed"])
        policy = Policy(case, rng)
        records.append(record(case, policy, make_batch(case, policy, rng), rng, Update))
    write(records)


if __name__ == "__main__":
    main()
