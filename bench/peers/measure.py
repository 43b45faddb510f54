"""Runs one leg pinned to given CPUs and measures it: rate, minibatch steps, CPU seconds, memory, disturbance."""

import ctypes
import dataclasses
import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time

TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER = 36
SAMPLE_PERIOD_S = 2.0
MEMORY_PERIOD_S = 10.0


class LegFailed(Exception):
    """A leg gave no usable result; the message names its log."""


def become_subreaper():
    """Makes orphans of a leg (Ray's daemons) children of this process, so that it can count and end them."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _stat(pid):
    """(parent, CPU seconds with reaped children) of a process, or None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), sum(int(t) for t in fields[11:15]) / TICKS


def descendants(root):
    """{pid: CPU seconds} of all processes below root."""
    stats = {int(p): _stat(p) for p in os.listdir("/proc") if p.isdigit()}
    children = {}
    for pid, stat in stats.items():
        if stat:
            children.setdefault(stat[0], []).append(pid)
    found, queue = {}, [root]
    while queue:
        for pid in children.get(queue.pop(), ()):
            found[pid] = stats[pid][1]
            queue.append(pid)
    return found


def proportional_memory_bytes(pids):
    """Summed PSS: shared pages count once in total."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as f:
                total += sum(int(line.split()[1]) * 1024 for line in f if line.startswith("Pss:"))
        except OSError:
            pass
    return total


def cpus_busy_seconds(cpus):
    """(busy, stolen) seconds of these CPUs since boot."""
    busy = stolen = 0
    with open("/proc/stat") as f:
        for line in f:
            name, *values = line.split()
            if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cpus:
                v = [int(x) for x in values]
                busy += v[0] + v[1] + v[2] + v[5] + v[6]  # user, nice, system, irq, softirq
                stolen += v[7]
    return busy / TICKS, stolen / TICKS


class Sampler(threading.Thread):
    """Notes the CPU time of the leg's processes and of the pinned CPUs while a leg runs."""

    def __init__(self, cpus):
        super().__init__(daemon=True)
        self._cpus = cpus
        self._halt = threading.Event()
        self.samples = []  # (time, leg's CPU s, CPUs' busy s, stolen s)
        self.peak_memory_bytes = 0

    def run(self):
        memory_at = 0.0
        while not self._halt.wait(SAMPLE_PERIOD_S):
            processes = descendants(os.getpid())
            self.samples.append(
                (time.monotonic(), sum(processes.values()), *cpus_busy_seconds(self._cpus))
            )
            if time.monotonic() >= memory_at:
                self.peak_memory_bytes = max(self.peak_memory_bytes, proportional_memory_bytes(processes))
                memory_at = time.monotonic() + MEMORY_PERIOD_S

    def finish(self):
        self._halt.set()
        self.join()

    def within(self, begin, end):
        """Shares of the pinned CPUs from begin to end: (leg, others, stolen), or None without two samples."""
        inside = [s for s in self.samples if begin <= s[0] <= end]
        if len(inside) < 2:
            return None
        first, last = inside[0], inside[-1]
        leg, busy, stolen = (last[i] - first[i] for i in (1, 2, 3))
        capacity = (last[0] - first[0]) * len(self._cpus)
        return leg / capacity, max(0.0, busy - leg) / capacity, stolen / capacity


@dataclasses.dataclass
class Rate:
    """Steady state of one repetition, from its marks."""

    env_steps_per_s: float
    iterations: int
    seconds: float
    minibatch_steps_per_iteration: float
    iteration_s_min: float
    iteration_s_max: float


def steady_rate(marks) -> Rate:
    """Between the end of the first iteration and the end of the last. LegFailed without two marks."""
    if len(marks) < 2:
        raise LegFailed(f"{len(marks)} finished iterations, at least 2 are needed")
    (t0, n0, u0), (t1, n1, u1) = marks[0], marks[-1]
    gaps = [b[0] - a[0] for a, b in zip(marks, marks[1:])]
    if t1 <= t0 or n1 <= n0:
        raise LegFailed(f"marks do not advance: {marks[0]} to {marks[-1]}")
    return Rate(
        env_steps_per_s=(n1 - n0) / (t1 - t0),
        iterations=len(gaps),
        seconds=t1 - t0,
        minibatch_steps_per_iteration=(u1 - u0) / len(gaps),
        iteration_s_min=min(gaps),
        iteration_s_max=max(gaps),
    )


def _end(pids, how):
    for pid in pids:
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            pass


def _reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def end_descendants(grace_s=5.0):
    """Ends whatever a leg left behind; all of it descends from this process."""
    _end(descendants(os.getpid()), signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        _reap()
        if not descendants(os.getpid()):
            return
        time.sleep(0.1)
    _end(descendants(os.getpid()), signal.SIGKILL)
    time.sleep(0.2)
    _reap()


def run_leg(command, *, cpus, seconds, log_path, environment):
    """Runs one leg in a folder of its own under the system's temporary folder and returns its facts as a dict.

    Blocks for the leg's start-up, `seconds` of steady state and its end; a leg that takes much longer is
    ended and is LegFailed.
    """
    limit_s = 240 + 4 * seconds
    # A short name: Ray puts Unix sockets in it, whose paths may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="tp") as folder:
        result_path = os.path.join(folder, "result.json")
        env = dict(os.environ, **environment)
        env.update(PEERS_RESULT=result_path, PEERS_TMP=os.path.join(folder, "r"), PYTHONDONTWRITEBYTECODE="1")
        os.mkdir(env["PEERS_TMP"])
        sampler = Sampler(cpus)
        start = time.monotonic()
        with open(log_path, "w") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, cpus),
            )
            sampler.start()
            try:
                code = process.wait(timeout=limit_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                sampler.finish()
                end_descendants()
        if code != 0 or not os.path.exists(result_path):
            what = f"exceeded {limit_s:.0f} s" if code is None else f"exited with code {code}"
            raise LegFailed(f"{what}; see {log_path}")
        with open(result_path) as f:
            result = json.load(f)
    marks = result.pop("marks")
    rate = steady_rate(marks)
    facts = dataclasses.asdict(rate)
    facts["first_iteration_done_s"] = marks[0][0] - start
    facts["peak_pss_bytes"] = sampler.peak_memory_bytes
    shares = sampler.within(marks[0][0], marks[-1][0])
    if shares:
        facts["cpu_share"], facts["foreign_cpu_share"], facts["stolen_cpu_share"] = shares
    return facts | result


def spread(values):
    """(median, min, max)"""
    return statistics.median(values), min(values), max(values)
