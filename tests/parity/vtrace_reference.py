#!/usr/bin/env python3
"""One update of IMPALA and of APPO, computed by plain PyTorch in double precision, for tests/parity/vtrace_parity_test.cc.

    python tests/parity/vtrace_reference.py > tests/parity/vtrace_reference.json

Networks, batches and the optimizer are those of ppo_reference.py and recurrent_reference.py. V-trace is written as the sum of its
definition (Espeholt et al. 2018, eq. 1), not as the recursion. Rows of dead agents weigh 1: their actions do nothing.
"""
import contextlib
import copy

import numpy as np
import torch

import ppo_reference as ppo
import recurrent_reference as recurrent


class Target:
    """A policy with a target of its actor, which is a little different from it."""

    def add_target(self, rng):
        self.target = copy.deepcopy(self.actor)
        if self.continuous:
            self.target_log_std = torch.nn.Parameter(self.log_std.detach().clone())
        with torch.no_grad():
            for p in list(self.target.parameters()) + ([self.target_log_std] if self.continuous else []):
                p.copy_(torch.from_numpy(ppo.single(p.numpy() + rng.normal(size=tuple(p.shape)) * 0.05)))
        return self

    @contextlib.contextmanager
    def as_target(self):
        """The target stands in the actor's place."""
        names = ["actor"] + (["log_std"] if self.continuous else [])
        for name in names:
            other = name.replace("actor", "target").replace("log_std", "target_log_std")
            mine, its = getattr(self, name), getattr(self, other)
            setattr(self, name, its)
            setattr(self, other, mine)
        yield
        for name in names:
            other = name.replace("actor", "target").replace("log_std", "target_log_std")
            mine, its = getattr(self, name), getattr(self, other)
            setattr(self, name, its)
            setattr(self, other, mine)

    def named(self, values):
        def present(t):
            try:
                value = values(t)
            except KeyError:  # the optimizer has nothing of it
                value = None
            return torch.zeros_like(t) if value is None else value

        result = super().named(present)
        if hasattr(self, "target"):
            with self.as_target():
                for name, value in super().named(present).items():
                    if name.startswith("actor."):
                        result["actor.target." + name[len("actor."):]] = value
        return result


class Plain(Target, ppo.Policy):
    pass


class Remembering(Target, recurrent.Policy):
    pass


class Vtrace:
    """Beside an Update: V-trace's targets, and the loss of IMPALA or of APPO."""

    def all_logp(self):
        active, self.active = self.active, np.arange(self.batch["rows"])
        size, self.o = self.o, dict(self.o, minibatch_size=1 << 30)
        logp = np.zeros(self.batch["rows"])
        with torch.no_grad():
            rows, out, _ = self.forward(self.minibatches(0)[0])
            logp[rows.numpy()] = self.policy.distribution(out, self.actions[rows], None if self.mask is None else self.mask[rows])[0].numpy()
        self.active, self.o = active, size
        return logp

    def target_logp(self):
        if not hasattr(self.policy, "target"):
            return self.all_logp()
        with self.policy.as_target():
            return self.all_logp()

    def advantages(self, value, final):
        o, b = self.o, self.batch
        ratio = np.where(b["agent_mask"] == 1, np.exp(self.target_logp() - b["action_logp"]), 1.0)
        rho, pg_rho = (np.minimum(ratio, o[name]) for name in ("rho", "pg_rho"))
        c = o["vtrace_lambda"] * np.minimum(ratio, 1.0)
        self.mean_ratio = ratio[self.active].mean()
        self.clipped = (ratio[self.active] > o["rho"]).mean()
        adv, ret = np.zeros(b["rows"]), value.copy()
        for s in b["segments"]:
            r = np.arange(s["first_row"], s["first_row"] + s["rows"])
            v = np.append(value[r], self.value_after(s, final))
            delta = b["rewards"][r] + o["gamma"] * v[1:] - v[:-1]
            error = np.zeros(len(r) + 1)
            for t in range(len(r)):
                for k in range(t, len(r)):
                    error[t] += o["gamma"]**(k - t) * c[r[t:k]].prod() * rho[r[k]] * delta[k]
            ret[r] += error[:-1]
            adv[r] = pg_rho[r] * (delta + o["gamma"] * o["vtrace_lambda"] * error[1:])
        return adv, ret

    def old_logp(self):
        if not hasattr(self.policy, "target"):
            return super().old_logp()
        return torch.from_numpy(np.maximum(self.target_logp(), self.batch["action_logp"] - np.log(2.0)))

    def surrogate(self, ratio, logp, adv):
        return super().surrogate(ratio, logp, adv) if hasattr(self.policy, "target") else -adv * logp

    def run(self):
        result = super().run()
        o, p = self.o, self.policy
        result["metrics"].update({"Policy/Importance ratio": self.mean_ratio, "Policy/Clipped importance ratios": self.clipped})
        if not hasattr(p, "target"):
            for name in ("Policy/KL", "Policy/Clip fraction"):
                result["metrics"].pop(name)
            return result
        if (self.case["context"]["iteration"] + 1) % o["target_network_update_freq"] == 0:
            with torch.no_grad():
                pairs = list(zip(p.target.parameters(), p.actor.parameters())) + ([(p.target_log_std, p.log_std)] if p.continuous else [])
                for target, own in pairs:
                    target.add_(o["tau"] * (own - target))
            result["parameters"] = p.named(lambda t: t)
        return result


class PlainUpdate(Vtrace, ppo.Update):
    pass


class RememberingUpdate(Vtrace, recurrent.Update):
    pass


BASE = dict(ppo.BASE, num_epochs=1, use_advnorm=False, use_value_clip=False, use_gae=True, gae_lambda=1.0, vtrace_lambda=0.9, rho=1.0, pg_rho=1.0)
APPO = dict(BASE, target_network_update_freq=2, tau=0.5, use_value_norm=False)
TEAM = dict(action=[dict(discrete=5)], agent_id_size=3, critic_input="joint_observation", critic_state_size=18, has_action_mask=True)
MOMENTS = dict(count=400.0, mean=[-1.5], variance=[4.0])
LENGTHS = [7, 5, 9, 1, 8, 6, 10, 4, 3]
CASES = [
    dict(name="impala_masked_and_dead", algorithm="impala", segment_lengths=LENGTHS, inactive_rows=True, numbers_seed=21,
         spec=dict(recurrent.SPEC, **TEAM, actor_core="none", critic_core="none", sequence_length=0), options=dict(BASE, max_grad_norm=0.3),
         value_moments=MOMENTS, context=dict(seed=11, iteration=4, env_steps=16000)),
    dict(name="impala_gaussian_with_larger_clips", algorithm="impala", segment_lengths=[6, 9, 8, 5, 7, 12], inactive_rows=False, numbers_seed=22,
         spec=dict(recurrent.SPEC, action=[dict(box=2)], actor_core="none", critic_core="none", sequence_length=0, normalize_observations=True),
         options=dict(BASE, use_value_norm=False, vtrace_lambda=1.0, rho=1.4, pg_rho=2.0, minibatch_size=1000, huber_delta=0.5),
         observation_moments=dict(count=50.0, mean=[0.25, 0.5, 0.0, -0.25, 0.125], variance=[2.0, 1.5, 2.5, 1.0, 3.0]),
         context=dict(seed=5, iteration=0, env_steps=500)),
    dict(name="impala_gru", algorithm="impala", segment_lengths=LENGTHS, inactive_rows=True, numbers_seed=23, spec=dict(recurrent.SPEC, **TEAM),
         options=dict(BASE, max_grad_norm=0.3), value_moments=MOMENTS, context=dict(seed=12, iteration=6, env_steps=16000)),
    dict(name="appo_masked_and_dead", algorithm="appo", segment_lengths=LENGTHS, inactive_rows=True, numbers_seed=24,
         spec=dict(recurrent.SPEC, **TEAM, actor_core="none", critic_core="none", sequence_length=0, actor_target=True),
         options=dict(APPO, use_value_norm=True), value_moments=MOMENTS, context=dict(seed=13, iteration=3, env_steps=16000)),
    dict(name="appo_gaussian_between_two_moves", algorithm="appo", segment_lengths=[6, 9, 8, 5, 7, 12], inactive_rows=False, numbers_seed=27,
         spec=dict(recurrent.SPEC, action=[dict(box=2)], actor_core="none", critic_core="none", sequence_length=0, actor_target=True),
         options=dict(APPO, vtrace_lambda=1.0), context=dict(seed=14, iteration=4, env_steps=500)),
    dict(name="appo_gru", algorithm="appo", segment_lengths=LENGTHS, inactive_rows=True, numbers_seed=26, spec=dict(recurrent.SPEC, **TEAM, actor_target=True),
         options=dict(APPO, tau=1.0), context=dict(seed=15, iteration=7, env_steps=16000)),
]


def main():
    records = []
    for case in CASES:
        rng = np.random.default_rng(case["numbers_seed"])
        remembers = case["spec"]["sequence_length"] > 0
        policy = (Remembering if remembers else Plain)(case, rng)
        if case["algorithm"] == "appo":
            policy.add_target(rng)
        batch = ppo.make_batch(case, policy, rng)
        if remembers:
            recurrent.add_sequences(case, policy, batch, rng)
        records.append(ppo.record(case, policy, batch, rng, RememberingUpdate if remembers else PlainUpdate))
    ppo.write(records)


if __name__ == "__main__":
    main()
