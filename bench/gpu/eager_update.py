#!/usr/bin/env python3
"""One PPO update in plain eager PyTorch: what gpu_update_bench measures, as a usual script would do it.

    eager_update.py --device cuda --hidden 64,256,1024 --rows 12000,262144 --epochs 10 --rounds 5 --max-seconds 10

The same networks (actor 21-H-H-5, critic 57-H-H-1, tanh), the same losses as tests/parity/ppo_reference.py (clipped
surrogate, clipped Huber value loss, entropy), clipped gradients of each network, Adam. The data lies on the device, and
nothing is read back within an update. Values, advantages and their normalization are part of it. One JSON object a line.
"""

import argparse
import json
import statistics
import sys
import time

try:
    import torch
    from torch import nn
except Exception as error:  # noqa: BLE001: also what its libraries raise
    print(f"cannot import torch ({type(error).__name__}: {error}), expected a python3 that has it", file=sys.stderr)
    sys.exit(2)

ACTOR_INPUT, CRITIC_INPUT, ACTIONS = 21, 57, 5
GAMMA, GAE_LAMBDA = 0.95, 0.95
CLIP, VALUE_CLIP, HUBER_DELTA, ENTROPY_COEFF = 0.2, 0.2, 10.0, 0.01
MAX_GRAD_NORM, LEARNING_RATE, ADAM_EPSILON = 10.0, 7e-4, 1e-5


def minibatch_rows(rows):
    """As gpu_update_bench has it."""
    return 1_000 if rows <= 12_000 else 16_384


def network(inputs, hidden, outputs, gain):
    layers = [nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, outputs)]
    for layer in layers[::2]:
        nn.init.orthogonal_(layer.weight, gain if layer is layers[-1] else 5 / 3)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


class Update:
    """A policy, its optimizer, and a batch whose rows are episodes of `steps` steps, one agent's after another."""

    def __init__(self, device, hidden, rows, epochs):
        self.device, self.rows, self.epochs = device, rows, epochs
        self.minibatch = min(rows, minibatch_rows(rows))
        self.steps = next(steps for steps in (25, 32, 16, 8, 4, 2, 1) if rows % steps == 0)
        torch.manual_seed(1)
        self.actor = network(ACTOR_INPUT, hidden, ACTIONS, 0.01).to(device)
        self.critic = network(CRITIC_INPUT, hidden, 1, 1.0).to(device)
        self.optimizer = torch.optim.Adam([*self.actor.parameters(), *self.critic.parameters()], lr=LEARNING_RATE, eps=ADAM_EPSILON)
        self.obs = torch.randn(rows, ACTOR_INPUT, device=device)
        self.state = torch.randn(rows, CRITIC_INPUT, device=device)
        self.final_state = torch.randn(rows // self.steps, CRITIC_INPUT, device=device)
        self.actions = torch.randint(ACTIONS, (rows,), device=device)
        self.rewards = torch.randn(rows, device=device)
        self.old_logp = torch.full((rows,), -1.6094379, device=device)

    def minibatch_steps(self):
        return self.epochs * -(-self.rows // self.minibatch)

    @torch.no_grad()
    def prepare(self):
        """Values, advantages and targets, normalized by the batch."""
        value = self.critic(self.state).squeeze(1)
        final = self.critic(self.final_state).squeeze(1)
        v, reward = value.view(-1, self.steps), self.rewards.view(-1, self.steps)
        advantage, running, after = torch.empty_like(v), torch.zeros_like(final), final
        for step in range(self.steps - 1, -1, -1):
            delta = reward[:, step] + GAMMA * after - v[:, step]
            running = delta + GAMMA * GAE_LAMBDA * running
            advantage[:, step] = running
            after = v[:, step]
        advantage = advantage.view(-1)
        target = advantage + value
        self.mean, self.deviation = target.mean(), target.std()
        self.target = (target - self.mean) / self.deviation
        self.old_value = (value - self.mean) / self.deviation
        self.advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        self.sums = torch.zeros(3, device=self.device)

    def step(self, i):
        logits = torch.log_softmax(self.actor(self.obs.index_select(0, i)), 1)
        logp = logits.gather(1, self.actions.index_select(0, i).unsqueeze(1)).squeeze(1)
        entropy = -(logits.exp() * logits).sum(1).mean()
        ratio = (logp - self.old_logp.index_select(0, i)).exp()
        advantage = self.advantage.index_select(0, i)
        surrogate = -torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
        value = self.critic(self.state.index_select(0, i)).squeeze(1)
        old, target = self.old_value.index_select(0, i), self.target.index_select(0, i)
        clipped = old + (value - old).clamp(-VALUE_CLIP, VALUE_CLIP)
        value_loss = torch.max(nn.functional.huber_loss(value, target, delta=HUBER_DELTA, reduction="none"),
                               nn.functional.huber_loss(clipped, target, delta=HUBER_DELTA, reduction="none")).mean()
        self.optimizer.zero_grad(set_to_none=True)
        (surrogate + value_loss - ENTROPY_COEFF * entropy).backward()
        nn.utils.clip_grad_norm_(self.actor.parameters(), MAX_GRAD_NORM)
        nn.utils.clip_grad_norm_(self.critic.parameters(), MAX_GRAD_NORM)
        self.optimizer.step()
        self.sums += torch.stack([surrogate.detach(), value_loss.detach(), entropy.detach()])

    def run(self, step_limit=None):
        """One update; fewer minibatch steps with a limit. Returns the mean losses, which waits for the device."""
        self.prepare()
        done = 0
        for _ in range(self.epochs):
            for i in torch.randperm(self.rows, device=self.device).split(self.minibatch):
                if step_limit is not None and done >= step_limit:
                    return self.sums.tolist()
                self.step(i)
                done += 1
        return [total / done for total in self.sums.tolist()]


def timed(device, work):
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    answer = work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start, answer


def measure(device, hidden, rows, options):
    """The JSON object of one size; it is skipped when a warm-up and an update would take longer than a size may."""
    seconds_left = options.max_seconds
    facts = {"hidden": hidden, "rows": rows}
    if device.type == "cuda":
        torch.cuda.init()  # else there are no statistics to reset
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    update = Update(device, hidden, rows, options.epochs)
    timed(device, lambda: update.run(2))  # libraries load, memory is taken
    prepare_s, _ = timed(device, lambda: update.run(0))
    probe_s = min(timed(device, lambda: update.run(4))[0] for _ in range(2))
    expected_s = prepare_s + max(0.0, probe_s - prepare_s) / 4 * update.minibatch_steps()
    if 2 * expected_s > seconds_left:
        return dict(facts, skipped=f"would take about {2 * expected_s:.0f} s of the {seconds_left:.0f} s given, by four minibatch steps")
    first_s, losses = timed(device, update.run)
    rounds = max(1, min(options.rounds, int((seconds_left - first_s) / first_s)))
    seconds = [timed(device, update.run)[0] for _ in range(rounds)]
    if not all(loss == loss for loss in losses):
        return dict(facts, error=f"the losses are {losses}, expected numbers")
    facts.update(device=str(device), backend="eager PyTorch " + torch.__version__, threads=torch.get_num_threads(),
                 minibatch=update.minibatch, epochs=options.epochs, minibatch_steps=update.minibatch_steps(), rounds=rounds,
                 seconds=[round(s, 6) for s in seconds], ms_p50=statistics.median(seconds) * 1e3, ms_min=min(seconds) * 1e3,
                 ms_max=max(seconds) * 1e3)
    if device.type == "cuda":
        facts.update(device_memory_peak_bytes=torch.cuda.max_memory_allocated(device),
                     device_memory_reserved_bytes=torch.cuda.max_memory_reserved(device))
    return facts


def main():
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--hidden", type=numbers, default=[64])
    parser.add_argument("--rows", type=numbers, default=[12_000])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-seconds", type=float, default=20.0, help="for one size; what would take longer is left out")
    options = parser.parse_args()
    device = torch.device("cuda:0" if options.device == "cuda" else options.device)
    for hidden, rows in [(hidden, rows) for hidden in options.hidden for rows in options.rows]:
        try:
            facts = measure(device, hidden, rows, options)
        except RuntimeError as error:
            facts = {"hidden": hidden, "rows": rows, "error": str(error).strip().split("\n")[0]}
        print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
