#!/usr/bin/env python3
"""One A2C update, computed by NumPy in double precision, as recorded numbers for tests/parity/a2c_parity_test.cc.

    python tests/parity/a2c_reference.py > tests/parity/a2c_reference.json

Needs numpy alone. It shares no code with lib/training, nor with ppo_reference.py: a gradient is the loss's difference quotient, one
parameter at a time (central, in double precision: nine digits), so no derivative is written down anywhere; advantages are the sum of
their definition. Only the order of minibatches must be the same, so the counter-based generator (Philox4x32-10) and the shuffle are
written down here once more from their definition.

Two cases: categorical actions with a mask, inactive rows, value normalization and several minibatches; a Gaussian head with observation
normalization, Huber's loss, a schedule and the whole batch in one step. Each is recorded twice: `one_step` (one minibatch of all rows:
losses and gradients) and `update`.
"""
import json
import sys

import numpy as np

M32 = 0xFFFFFFFF
M64 = 0xFFFFFFFFFFFFFFFF


def philox_words(seed, stream, a, b, c):
    """Salmon et al., SC'11; key from (seed, stream) by SplitMix64's finalizer; counter words (a, b, c, draw)."""
    z = (seed + 0x9E3779B97F4A7C15 * stream) & M64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    z ^= z >> 31
    draw = 0
    while True:
        w0, w1, w2, w3, k0, k1 = a, b, c, draw, z & M32, z >> 32
        for _ in range(10):
            p0, p1 = 0xD2511F53 * w0, 0xCD9E8D57 * w2
            w0, w1, w2, w3 = (p1 >> 32) ^ w1 ^ k0, p1 & M32, (p0 >> 32) ^ w3 ^ k1, p0 & M32
            k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
        yield from (w0, w1, w2, w3)
        draw += 1


def shuffled(rows, seed, iteration, epoch, slot):
    words = philox_words(seed, 5, iteration, epoch, slot)
    rows = list(rows)
    for i in range(len(rows), 1, -1):
        j = (next(words) * i) >> 32
        rows[i - 1], rows[j] = rows[j], rows[i - 1]
    return rows


def single(array):
    """Numbers that float32 holds exactly, so that both sides start from the same."""
    return np.asarray(array, dtype=np.float32).astype(np.float64)


ACTIVATIONS = {"tanh": np.tanh, "elu": lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)) - 1, x)}


def forward(parameters, network, x, activation):
    layers = sum(name.startswith(network + ".") and name.endswith(".weight") for name in parameters)
    for i in range(layers):
        x = x @ parameters[f"{network}.{i}.weight"].T + parameters[f"{network}.{i}.bias"]
        if i + 1 < layers:
            x = ACTIVATIONS[activation](x)
    return x


def fresh(case, rng):
    spec = case["spec"]
    outputs = sum(part.get("discrete", 0) + part.get("box", 0) for part in spec["action"])
    actor = [spec["obs_size"] + spec["agent_id_size"]] + spec["actor_hidden_sizes"] + [outputs]
    critic = [spec["critic_state_size"] or spec["obs_size"]] + spec["critic_hidden_sizes"] + [1]
    parameters = {}
    for network, sizes in (("actor", actor), ("critic", critic)):
        for i in range(len(sizes) - 1):
            parameters[f"{network}.{i}.weight"] = single(rng.normal(size=(sizes[i + 1], sizes[i])) / np.sqrt(sizes[i]))
            parameters[f"{network}.{i}.bias"] = single(rng.normal(size=sizes[i + 1]) * 0.2)
    if any("box" in part for part in spec["action"]):
        parameters["actor.log_std"] = single(rng.normal(size=outputs) * 0.2)
    return parameters


def distribution(case, parameters, x, actions, mask):
    """Log-probability and entropy of each row: one categorical distribution, or one normal a number."""
    out = forward(parameters, "actor", x, case["spec"]["activation"])
    if "actor.log_std" in parameters:
        log_std = parameters["actor.log_std"]
        logp = -0.5 * ((actions - out) / np.exp(log_std))**2 - log_std - 0.5 * np.log(2 * np.pi)
        return logp.sum(1), np.full(len(x), (log_std + 0.5 * np.log(2 * np.pi * np.e)).sum())
    out = np.where(mask == 0, -1e9, out) if mask.shape[1] else out
    log_p = out - out.max(1, keepdims=True)
    log_p = log_p - np.log(np.exp(log_p).sum(1, keepdims=True))
    return log_p[np.arange(len(x)), actions[:, 0].astype(int)], -(np.exp(log_p) * log_p).sum(1)


def make_batch(case, rng):
    """Segments that end in turn terminated, cut and truncated (the latter two are bootstrapped)."""
    spec, lengths = case["spec"], case["segment_lengths"]
    rows, segments, first, finals = sum(lengths), [], 0, 0
    for i, length in enumerate(lengths):
        bootstrap = i % 3 != 0
        segments.append(dict(first_row=first, rows=length, final_row=finals if bootstrap else -1, env_id=i // 3, episode=0, slot=i % 3))
        first, finals = first + length, finals + bootstrap
    state = spec["critic_state_size"]
    critic_rows = rows // 2 + finals if state else 0
    batch = dict(rows=rows, final_rows=finals, segments=segments, critic_rows=critic_rows,
                 obs=single(rng.normal(size=(rows, spec["obs_size"])) * 1.5 + 0.3), final_obs=single(rng.normal(size=(finals, spec["obs_size"]))),
                 slot=np.concatenate([[s["slot"]] * s["rows"] for s in segments]).astype(int),
                 final_slot=np.array([s["slot"] for s in segments if s["final_row"] >= 0], dtype=int),
                 rewards=single(rng.normal(size=rows) - 0.5), action_logp=single(rng.normal(size=rows) - 1.5),
                 agent_mask=(rng.random(rows) < 0.85).astype(int) if case["inactive_rows"] else np.ones(rows, dtype=int),
                 critic_state=single(rng.normal(size=(critic_rows, state))),
                 critic_row=rng.integers(0, max(critic_rows, 1), size=rows if state else 0),
                 final_critic_row=rng.integers(0, max(critic_rows, 1), size=finals if state else 0))
    part = spec["action"][0]
    mask = np.zeros((rows, 0), dtype=int)
    if "box" in part:
        actions = single(rng.normal(size=(rows, part["box"])))
    else:
        chosen = rng.integers(0, part["discrete"], size=rows)
        actions = chosen[:, None].astype(np.float64)
        if spec["has_action_mask"]:
            mask = (rng.random((rows, part["discrete"])) < 0.6).astype(int)
            mask[np.arange(rows), chosen] = 1
    return dict(batch, actions=actions, action_mask=mask)


class Update:
    def __init__(self, case, options, parameters, batch):
        self.case, self.o, self.p, self.b = case, options, {name: value.copy() for name, value in parameters.items()}, batch
        spec, obs, final_obs = case["spec"], batch["obs"], batch["final_obs"]
        if spec["normalize_observations"]:
            m = case["observation_moments"]
            obs, final_obs = (np.clip((x - np.array(m["mean"])) / np.sqrt(np.array(m["variance"])), -10, 10) for x in (obs, final_obs))
        self.actor_in = np.concatenate([obs, np.eye(3)[batch["slot"]]], 1) if spec["agent_id_size"] else obs
        by_state = spec["critic_state_size"] > 0
        self.critic_in = batch["critic_state"][batch["critic_row"]] if by_state else obs
        self.final_in = batch["critic_state"][batch["final_critic_row"]] if by_state else final_obs
        self.active = np.flatnonzero(batch["agent_mask"])

    def critic(self, x):
        return forward(self.p, "critic", x, self.case["spec"]["activation"])[:, 0]

    def targets(self):
        o, b, a = self.o, self.b, self.active
        count, mean, variance = 0.0, 0.0, 1.0
        if o["use_value_norm"]:
            m = self.case["value_moments"]
            count, mean, variance = m["count"], m["mean"][0], m["variance"][0]
        value, final = (self.critic(x) * np.sqrt(variance) + mean for x in (self.critic_in, self.final_in))
        lam = o["gae_lambda"] if o["use_gae"] else 1.0
        advantage = np.zeros(b["rows"])
        for s in b["segments"]:
            r = np.arange(s["first_row"], s["first_row"] + s["rows"])
            v = np.append(value[r], final[s["final_row"]] if s["final_row"] >= 0 else 0.0)
            delta = b["rewards"][r] + o["gamma"] * v[1:] - v[:-1]
            for t in range(len(r)):  # the sum of the definition, not the recursion
                advantage[r[t]] = ((o["gamma"] * lam)**np.arange(len(r) - t) * delta[t:]).sum()
        returns = advantage + value
        self.explained_variance = 1 - (returns - value)[a].var() / returns[a].var()
        if o["use_value_norm"]:
            n = len(a)
            count = min(count, 50.0 * n)
            apart, total = returns[a].mean() - mean, count + n
            variance = (variance * count + returns[a].var() * n + apart**2 * count * n / total) / total
            mean, count = mean + apart * n / total, total
        self.value_moments = dict(count=count, mean=[mean], variance=[variance])
        self.target = (returns - mean) / np.sqrt(variance)
        self.advantage = (advantage - advantage[a].mean()) / (advantage[a].std() + 1e-8) if o["use_advnorm"] else advantage

    def losses(self, rows, entropy_coeff):
        """(what is minimized, sums over rows of policy loss, value loss, entropy)"""
        o, b = self.o, self.b
        logp, entropy = distribution(self.case, self.p, self.actor_in[rows], b["actions"][rows], b["action_mask"][rows])
        policy = -self.advantage[rows] * logp
        away = np.abs(self.critic(self.critic_in[rows]) - self.target[rows])
        d = o["huber_delta"]
        value = np.where(away > d, d * (away - 0.5 * d), 0.5 * away**2) if d else 0.5 * away**2
        total = policy.mean() - entropy_coeff * entropy.mean() + o["value_loss_coeff"] * value.mean()
        return total, np.array([policy.sum(), value.sum(), entropy.sum()])

    def gradient(self, rows, entropy_coeff, step=1e-5):
        result = {}
        for name, values in self.p.items():
            flat, derivative = values.reshape(-1), np.zeros(values.size)
            for i in range(values.size):
                kept, around = flat[i], []
                for by in (-2, -1, 1, 2):  # of the fourth order
                    flat[i] = kept + by * step
                    around.append(self.losses(rows, entropy_coeff)[0])
                flat[i] = kept
                derivative[i] = (around[0] - 8 * around[1] + 8 * around[2] - around[3]) / (12 * step)
            result[name] = derivative.reshape(values.shape)
        return result

    def run(self):
        o, c = self.o, self.case["context"]
        self.targets()
        at = lambda s: s["initial"] if not s["env_steps"] else s["initial"] + (s["final"] - s["initial"]) * min(1, c["env_steps"] / s["env_steps"])
        lr, entropy_coeff = at(o["learning_rate"]), at(o["entropy_coeff"])
        critic_lr = at(o["critic_learning_rate"]) if o["critic_learning_rate"]["initial"] else lr
        m, v = ({name: np.zeros_like(value) for name, value in self.p.items()} for _ in range(2))
        sums, norms, steps = np.zeros(3), np.zeros(2), 0
        order = shuffled(self.active, c["seed"], c["iteration"], 0, 0)
        size = o["minibatch_size"] or len(order)
        for first in range(0, len(order), size):
            rows = order[first:first + size]
            sums += self.losses(rows, entropy_coeff)[1]
            gradient = self.gradient(rows, entropy_coeff)
            steps += 1
            for which, network in enumerate(("actor", "critic")):
                names = [name for name in self.p if name.startswith(network)]
                norm = np.sqrt(sum((gradient[name]**2).sum() for name in names))
                norms[which] += norm
                scale = min(1.0, o["max_grad_norm"] / (norm + 1e-6)) if o["max_grad_norm"] > 0 else 1.0
                for name in names:  # Kingma & Ba 2015, algorithm 1
                    g = gradient[name] = gradient[name] * scale
                    m[name] = 0.9 * m[name] + 0.1 * g
                    v[name] = 0.999 * v[name] + 0.001 * g**2
                    self.p[name] = self.p[name] - (critic_lr if which else lr) * (m[name] / (1 - 0.9**steps)) / (
                        np.sqrt(v[name] / (1 - 0.999**steps)) + o["adam_epsilon"])
        sums /= len(order)
        return dict(
            metrics={"Loss/Policy loss": sums[0], "Loss/Value loss": o["value_loss_coeff"] * sums[1], "Loss/Entropy loss": -entropy_coeff * sums[2],
                     "Policy/Entropy": sums[2], "Policy/Explained variance": self.explained_variance, "Policy/Gradient norm": norms[0] / steps,
                     "Policy/Critic gradient norm": norms[1] / steps, "Policy/Learning rate": lr, "Policy/Critic learning rate": critic_lr},
            minibatch_steps=steps, epochs=1, trained_rows=len(order), value_moments=self.value_moments,
            gradients=gradient,  # of the last minibatch, after clipping
            exp_avg=m, exp_avg_sq=v, parameters=self.p)


def constant(value):
    return dict(initial=value, final=value, env_steps=0)


BASE = dict(learning_rate=constant(3e-3), critic_learning_rate=constant(0.0), adam_epsilon=1e-5, gamma=0.95, gae_lambda=0.9, use_gae=True,
            use_advnorm=False, use_value_norm=True, value_loss_coeff=0.7, huber_delta=0.0, entropy_coeff=constant(0.01), max_grad_norm=0.5,
            minibatch_size=0)
SPEC = dict(obs_size=5, agent_id_size=0, critic_agent_id=False, critic_input="observation", critic_state_size=0, has_action_mask=False,
            normalize_observations=False, activation="tanh", actor_hidden_sizes=[7, 6], critic_hidden_sizes=[7, 5])
CASES = [
    dict(name="joint_categorical", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=11,
         spec=dict(SPEC, action=[dict(discrete=5)], agent_id_size=3, critic_input="joint_observation", critic_state_size=12, has_action_mask=True),
         options=dict(BASE, max_grad_norm=0.3, minibatch_size=16),
         value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]), context=dict(seed=11, iteration=4, env_steps=16000)),
    dict(name="gaussian_whole_batch", segment_lengths=[6, 9, 8, 5, 7, 12], inactive_rows=False, numbers_seed=12,
         spec=dict(SPEC, action=[dict(box=2)], normalize_observations=True, activation="elu", actor_hidden_sizes=[9]),
         options=dict(BASE, use_value_norm=False, use_advnorm=True, huber_delta=0.5, max_grad_norm=0.0,
                      entropy_coeff=dict(initial=0.02, final=0.0, env_steps=1000), learning_rate=dict(initial=4e-3, final=1e-3, env_steps=3000),
                      critic_learning_rate=constant(2e-3)),
         observation_moments=dict(count=50.0, mean=[0.25, 0.5, 0.0, -0.25, 0.125], variance=[2.0, 1.5, 2.5, 1.0, 3.0]),
         context=dict(seed=5, iteration=0, env_steps=500)),
]


def flat(value):
    """Arrays as flat lists of nine digits, which float32 needs."""
    if isinstance(value, dict):
        return {key: flat(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return [flat(entry) for entry in value.reshape(-1).tolist()]
    if isinstance(value, list):
        return [flat(entry) for entry in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.9g}")
    return int(value) if isinstance(value, np.integer) else value


def record(case):
    rng = np.random.default_rng(case["numbers_seed"])
    parameters = fresh(case, rng)
    batch = make_batch(case, rng)
    one_step = Update(case, dict(case["options"], minibatch_size=0), parameters, batch).run()
    update = Update(case, case["options"], parameters, batch).run()
    for name in ("exp_avg", "exp_avg_sq", "parameters"):
        one_step.pop(name)
    update.pop("gradients")
    kept = {key: case[key] for key in ("name", "spec", "options", "context", "value_moments", "observation_moments") if key in case}
    return flat(dict(kept, batch=batch, parameters=parameters, one_step=one_step, update=update))


json.dump(dict(made_by="tests/parity/a2c_reference.py", numpy=np.__version__, cases=[record(case) for case in CASES]), sys.stdout)
print()
