"""The part about whole runs over gRPC: how the rate scales with workers, and what the device's learner makes of it."""

import dataclasses
import os
import time

import processes
import updates
from parts import EXAMPLE, progress_lines
from plan import NotRun
from report import number

WORKERS = (1, 2, 4, 8, 14)
AGENTS = 3
POLICIES = 100
SHORTEST_S, LONGEST_S = 2.0, 5.0
WARM_UP = 1 / 3  # of a run, left out
END_S = 0.5  # after a run's summary is written, until its processes are ended
PATIENCE_S = 15.0  # beyond a run's seconds, for its start and its last update
SMALL = {"batch": 4_000, "envs": 160, "minibatch": 1_000}
LARGE = {"batch": 65_536, "envs": 2_048, "minibatch": 16_384}


@dataclasses.dataclass(frozen=True)
class Run:
    """A row of a table: what is set, besides the example."""

    table: str
    device: str
    workers: int
    epochs: int = 10
    hidden: int = 64
    batch: int = 4_000
    lag: int = 0
    policies: int = 1

    @property
    def size(self):
        return SMALL if self.batch == SMALL["batch"] else LARGE

    def name(self):
        return (f"{self.device} learner, {self.workers} worker{'s' * (self.workers > 1)}, {self.epochs} epoch{'s' * (self.epochs > 1)}, "
                f"2x{self.hidden}, batches of {self.batch:,}, lag {self.lag}, {self.policies} policies")


SCALING, DEVICE, MANY = "scaling", "device", "many"


def plan_runs(device, cores):
    """[(Run, reason)] in order; a reason says why it does not run on so many cores."""
    allowed = [n for n in WORKERS if n <= max(2, cores - 1)]
    found = []
    for epochs in (10, 1):
        for workers in WORKERS:
            found.append((Run(SCALING, "cpu", workers, epochs), "" if workers in allowed else f"not run: {cores} CPUs"))
    most = allowed[-1]
    for batch in (SMALL["batch"], LARGE["batch"]):
        for hidden in (64, 256):
            for lag in (0, 1):
                found.append((Run(DEVICE, device, most, hidden=hidden, batch=batch, lag=lag), ""))
    for batch in (SMALL["batch"], LARGE["batch"]):
        for learner in dict.fromkeys((device, "cpu")):
            found.append((Run(MANY, learner, most, batch=batch, policies=POLICIES), ""))
    return found


def settings(run, seconds):
    """The --set arguments of a run."""
    size, hidden = run.size, f"[{run.hidden}, {run.hidden}]"
    return [
        "seed=1", f"device={run.device}", f"num_workers={run.workers}", f"num_envs={size['envs']}",
        f"algorithm.train_batch_size={size['batch']}", f"algorithm.minibatch_size={size['minibatch']}",
        f"algorithm.num_epochs={run.epochs}", f"algorithm.max_policy_lag={run.lag}",
        f"model.actor_hidden_sizes={hidden}", f"model.critic_hidden_sizes={hidden}",
        f"stop.wall_clock={seconds:.1f}", "stop.env_steps=0", "experiment.write_interval=1",
        "experiment.checkpoint_interval=0", "evaluation.at_end=false",
    ]


def many_policies(example, policies):
    """The example's text with so many policies, of which each agent and episode draws one."""
    found = []
    for line in example.splitlines():
        if line.strip().startswith("policies:"):
            line = f"  policies: [{', '.join(f'p{i:03d}' for i in range(policies))}]"
        elif line.strip().startswith("policy_mapping:"):
            line = '  policy_mapping: {"*": {' + ", ".join(f"p{i:03d}: 1" for i in range(policies)) + "}}"
        found.append(line)
    return "\n".join(found) + "\n"


class Meter:
    """CPU seconds by role beside the run's clock, taken while it runs."""

    def __init__(self, run_folder):
        self._times = processes.CpuTimes()
        self._path = os.path.join(run_folder, "progress.jsonl")
        self._summary = os.path.join(run_folder, "summary.json")
        self._summary_at = None
        self.samples = []  # (wall_clock_s of the newest line, monotonic clock, {role: CPU seconds})

    def tick(self, session):
        """True when the run has ended: how long its processes take to go is no part of it."""
        if self._summary_at is None and os.path.exists(self._summary):
            self._summary_at = time.monotonic()
        if self._summary_at is not None:
            return time.monotonic() >= self._summary_at + END_S
        totals = self._times.sample(session)
        try:
            with open(self._path, "rb") as file:
                file.seek(max(0, os.path.getsize(self._path) - 65536))
                lines = file.read().split(b"\n")
        except OSError:
            return False
        if len(lines) > 1:
            totals["machine"] = processes.system_busy_s()
            self.samples.append((_wall_clock(lines[-2]), time.monotonic(), totals))
        return False

    def busy(self, begin_s):
        """{role: CPUs busy}, "rest" for processes that are no part of the run, from the first sample whose line is at least so old to the last with news; {} without two."""
        inside = [sample for sample in self.samples if sample[0] >= begin_s]
        while len(inside) > 1 and inside[-1][0] == inside[-2][0]:
            inside.pop()  # the run is ending
        if len(inside) < 2:
            return {}
        first, last = inside[0], inside[-1]
        used = {role: (last[2][role] - first[2][role]) / (last[1] - first[1]) for role in last[2]}
        used["rest"] = max(0.0, used.pop("machine") - used["learner"] - used["worker"] - used.pop("other"))
        return used


def _wall_clock(line):
    """Of a line of progress.jsonl, without reading all of it."""
    _, _, rest = line.partition(b'"wall_clock_s":')
    try:
        return float(rest.split(b",")[0])
    except ValueError:
        return 0.0


def steady(lines, seconds):
    """Rates and shares of a run's warm part, from its lines. {} when no update ended."""
    if not lines:
        return {}
    warm = [line for line in lines if line["wall_clock_s"] >= seconds * WARM_UP]
    if len(warm) < 2:
        warm = lines
    first, last = warm[0], warm[-1]
    if len(warm) < 2:
        return {"updates": 1, "env_steps_per_s": last["env_steps"] / max(last["wall_clock_s"], 1e-9), "warm": False}
    span = last["wall_clock_s"] - first["wall_clock_s"]
    found = {"updates": last["updates"] - first["updates"], "warm": warm is not lines, "policy_lag": last.get("policy_lag"),
             "env_steps_per_s": (last["env_steps"] - first["env_steps"]) / span}
    for share in ("update_s", "assemble_s", "wait_s"):
        if all(share in line for line in warm):
            found[share.replace("_s", "_share")] = sum(line[share] for line in warm[1:]) / span
    return found


def predicted_s(run, device, found):
    """Seconds of one update by what the part on updates measured, None when it did not."""
    who = "Troupe" if run.device == device else "fused on the CPU"
    rate = updates.rate(found.get("updates", {}), who, run.hidden)
    return run.batch * AGENTS * run.epochs / rate if rate and run.policies == 1 else None


def _percent(value):
    return "–" if value is None else f"{value:.0%}"


def _row(run, facts, one_worker):
    rate = facts.get("env_steps_per_s")
    what = facts.get("not_run") or (number(rate) + ("" if facts.get("warm") else " (with its start)") if rate else "no update")
    busy = [number(facts.get("busy", {}).get(role), 2) for role in ("learner", "worker", "rest")]
    shares = [_percent(facts.get(share)) for share in ("update_share", "assemble_share", "wait_share")]
    measured = [what, facts.get("updates", "–"), *busy, *shares]
    if run.table == SCALING:
        gain = f"{rate / one_worker:.2f}x" if rate and one_worker else "–"
        return [run.epochs, run.workers, measured[0], gain, number(rate / run.workers) if rate else "–", *measured[1:]]
    if run.table == DEVICE:
        return [f"2x{run.hidden}", f"{run.batch:,}", run.lag, *measured]
    return [run.device, f"{run.batch:,}", *measured]


def measure(context, run, seconds, at):
    """Runs once and returns its facts."""
    runs = os.path.join(context.folder, "runs")
    example = context.program(*EXAMPLE)
    if run.policies > 1:
        text = many_policies(example.read_text(), run.policies)
        example = os.path.join(context.folder, f"policies_{run.policies}.yaml")
        with open(example, "w", encoding="utf-8") as file:
            file.write(text)
    name = f"run{at:02d}"
    meter = Meter(os.path.join(runs, name))
    words = [word for value in [*settings(run, seconds), f"experiment.directory={runs}"] for word in ("--set", value)]
    facts = {"run": dataclasses.asdict(run), "seconds": seconds}
    # What the part's end cuts off counts with what it wrote until then.
    left = context.seconds_left()
    ended = context.run([context.program("bin", "troupe"), "train", example, "--name", name, *words],
                        limit_s=min(seconds + PATIENCE_S, left - 0.5), on_tick=meter.tick, tick_s=0.25)
    facts.update(steady(progress_lines(os.path.join(runs, name)), seconds), took_s=ended.seconds, busy=meter.busy(seconds * WARM_UP))
    return facts, ended


def run(context, outcome):
    """All runs, in order; each gets its share of the time that is left."""
    context.program("bin", "troupe")
    planned = plan_runs(context.device, context.cores)
    shares = ["updates", "learner CPU", "worker CPU", "other CPU", "update", "assemble", "wait"]
    most = max(run.workers for run, reason in planned if not reason)
    device = "CPU in CUDA's place" if context.stand_in else "CUDA"
    tables = {
        SCALING: outcome.table("CPU learner, 2x64, batches of 4,000 env steps, lag 0, by epochs and workers",
                               ["epochs", "workers", "env steps/s", "of 1 worker", "a worker", *shares]),
        DEVICE: outcome.table(f"Learner: {device}, 10 epochs, {most} workers",
                              ["networks", "batch", "lag", "env steps/s", *shares]),
        MANY: outcome.table(f"{POLICIES} policies, one drawn for each agent and episode, 2x64, 10 epochs, lag 0, {most} workers",
                            ["learner", "batch", "env steps/s", *shares]),
    }
    outcome.notes.append("Learner, worker and other CPU are CPUs that the run's learner, its workers and all other processes kept busy; update, assemble and wait are shares of the learner's "
                         "time. The first third of a run is left out, where more than one update ended after it.")
    figures = outcome.figures["runs"] = []
    one_worker, overhead_s, ran, best = {}, {}, 0, {}
    for at, (one, reason) in enumerate(planned):
        waiting = sum(1 for _, other in planned[at:] if not other)
        share = context.seconds_left() / max(1, waiting)
        guess_s = overhead_s.get(one.device, 1.0 if one.device == "cpu" else 4.0)
        seconds = min(LONGEST_S, max(SHORTEST_S, share - guess_s))
        update_s = predicted_s(one, context.device, context.found)
        if not reason and context.seconds_left() < SHORTEST_S + guess_s:
            reason = "not run: no time was left"
        if not reason and update_s and 2 * update_s > 2 * share:
            reason = f"not run: an update would take about {update_s:.0f} s of {share:.0f} s"
        if reason:
            facts = {"run": dataclasses.asdict(one), "not_run": reason}
        else:
            facts, ended = measure(context, one, seconds, at)
            ran += 1
            overhead_s[one.device] = max(overhead_s.get(one.device, 0.0), min(PATIENCE_S, ended.seconds - seconds))
            if ended.timed_out:
                outcome.notes.append(f"{one.name()}: ended after {ended.seconds:.0f} s, before it stopped by itself.")
            elif ended.problem():
                outcome.failed_with(ended)
                outcome.check(False, f"{one.name()}: {ended.problem()}")
        rate = facts.get("env_steps_per_s")
        if one.table == SCALING and one.workers == 1:
            one_worker[one.epochs] = rate
        if rate and rate > best.get(one.table, (0,))[0]:
            best[one.table] = (rate, one)
        figures.append(facts)
        tables[one.table].append(_row(one, facts, one_worker.get(one.epochs)))
        outcome.line = _headline(best, device) + f"; {ran} of {len(planned)} runs"
    if not ran:
        raise NotRun("no time was left")
    outcome.check(best, f"{ran} runs made updates")


def _headline(best, device):
    parts = []
    for table, title in ((SCALING, "CPU learner"), (DEVICE, device)):
        if table in best:
            rate, one = best[table]
            what = f"{one.epochs} epoch{'s' * (one.epochs > 1)}, {one.workers} worker{'s' * (one.workers > 1)}" if table == SCALING else \
                f"2x{one.hidden}, batch {one.batch:,}, lag {one.lag}"
            parts.append(f"{title} {number(rate)} env steps/s ({what})")
    return "; ".join(parts) or "no update yet"
