"""The parts about one update: how long it takes at several sizes for whom, and what a profile of one says."""

import dataclasses
import gzip
import os
import pathlib
import shutil
import sys
import time

import chrome_trace
import plan
from parts import BENCH, json_lines
from report import figure, mebibytes, number

HIDDEN = (64, 256, 1024)
ROWS = (12_000, 262_144)
EPOCHS = 10
ROUNDS = 5
START_S = 3.0  # of a program, before its first update; PyTorch takes longer
END_S = 3.0  # of the part, left for ending the last program
LARGE_SIZES = 3.0  # so many times what one size may take all sizes take together: most are small beside the largest
DISTURBED_CPUS = 0.2  # of other processes, from which on the report speaks of them
WITH_TF32 = (("NVIDIA_TF32_OVERRIDE", None), ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", None))
EAGER = pathlib.Path(__file__).resolve().parent / "eager_update.py"
PROFILES = ((64, 12_000), (256, 12_000))
TRACE_LIMIT_BYTES = 12 << 20
MOST_LAUNCHES = 20  # a minibatch step on average, of which one by one nearly 200 would be


@dataclasses.dataclass(frozen=True)
class Contender:
    """One row of the table. `weight` is its share of the part's time."""

    name: str
    command: tuple
    weight: float
    reason: str = ""  # why it does not run
    eager: bool = False
    on_gpu: bool = False  # loads LibTorch's CUDA part, which takes seconds
    environment: tuple = ()  # (name, value); None: without it


def contenders(context):
    """Who updates: Troupe on the device, PyTorch on the device, and the back ends on the CPU."""
    bench = (context.program(*BENCH), "--rounds", ROUNDS, "--epochs", EPOCHS)
    device = "CPU in CUDA's place" if context.stand_in else "CUDA"
    threads = context.cores if context.stand_in else 1
    found = [
        Contender(f"Troupe, {device}", (*bench, "--device", context.device, "--backend", "auto", "--threads", threads), 2.0,
                  on_gpu=not context.stand_in),
        Contender(f"eager PyTorch, {device}", (sys.executable, EAGER, "--device", context.device, "--rounds", ROUNDS,
                                               "--epochs", EPOCHS), 2.0, eager=True),
    ]
    for precision in () if context.stand_in else ("tf32", "bfloat16"):
        found.append(Contender(f"{precision}: Troupe, CUDA", (*found[0].command, "--precision", precision), 2.0,
                               on_gpu=True, environment=WITH_TF32))
    for threads in (1, 4, 16):
        reason = f"not run: {context.cores} CPUs" if threads > context.cores else ""
        found.append(Contender(f"fused on the CPU, {threads} thread{'s' * (threads > 1)}",
                               (*bench, "--device", "cpu", "--backend", "fused", "--threads", threads), 1.0, reason))
    found.append(Contender(f"LibTorch on the CPU, {context.cores} threads",
                           (*bench, "--device", "cpu", "--backend", "libtorch", "--threads", context.cores), 1.0))
    return found


def _named(hidden, rows):
    return f"2x{hidden}, {rows:,} rows"


def _cell(found):
    if found is None:
        return "–"
    if "ms_p50" not in found:
        return "not run"
    if not found.get("warm", True):
        return f"{figure(found['ms_p50'])} (the first alone)"
    return f"{figure(found['ms_p50'])} ({figure(found['ms_min'])}–{figure(found['ms_max'])})"


def _fill(tables, found, names):
    """Rewrites the rows of the tables from what was measured: {name: {(hidden, rows): line}}."""
    times, steps, ratios, memory = tables
    for rows in tables:
        rows.clear()
    sizes = [(hidden, rows) for hidden in HIDDEN for rows in ROWS]
    first = found.get(names[0], {})
    for name in names:
        own = found.get(name)
        if own is None:
            continue
        times.append([name, *[_cell(own.get(size)) for size in sizes]])
        if not any("ms_p50" in line for line in own.values()):
            continue
        steps.append([name, *[figure(own[size]["ms_p50"] * 1e3 / own[size]["minibatch_steps"]) if "ms_p50" in own.get(size, {})
                              else "–" for size in sizes]])
        if name != names[0]:
            cells = []
            for size in sizes:
                mine, base = own.get(size, {}).get("ms_p50"), first.get(size, {}).get("ms_p50")
                cells.append(f"{figure(mine / base, 2)}x" if mine and base else "–")
            ratios.append([name, *cells])
        if any(line.get("device_memory_peak_bytes") for line in own.values()):
            memory.append([name, *[mebibytes(own.get(size, {}).get("device_memory_peak_bytes")) for size in sizes]])


def run(context, outcome):
    """One update at 2x64, 2x256 and 2x1024 with 12,000 and 262,144 rows, for each contender."""
    header = ["", *[_named(hidden, rows) for hidden in HIDDEN for rows in ROWS]]
    who = contenders(context)
    tables = [
        outcome.table(f"One update of {EPOCHS} epochs, ms: median (min–max) of at most {ROUNDS}; minibatches of 1,000 rows, "
                      "16,384 of 262,144 rows", header),
        outcome.table("A minibatch step, us", header),
        outcome.table(f"Times as long as {who[0].name}", header),
        outcome.table("Device memory at its peak, MiB", header),
    ]
    found = outcome.figures["contenders"] = {}
    raw = outcome.figures["lines"] = []
    measured = {}  # {contender: {(hidden, rows): line}}
    for at, contender in enumerate(who):
        if contender.reason:
            outcome.notes.append(f"{contender.name}: {contender.reason}.")
            continue
        waiting = [other for other in who[at:] if not other.reason]
        share = (context.seconds_left() - END_S) * contender.weight / sum(other.weight for other in waiting)
        own = {}

        def keep(text, own=own, name=contender.name):
            for line in json_lines([text]):
                if "hidden" in line and "rows" in line:
                    own[line["hidden"], line["rows"]] = line
                    raw.append(dict(line, contender=name))
                    found[name] = {_named(*size): one for size, one in own.items()}
                    measured[name] = own
                    _fill(tables, measured, [other.name for other in who])

        start_s = START_S * (3 if contender.eager or contender.on_gpu else 1)
        ended = context.run([*contender.command, "--hidden", ",".join(map(str, HIDDEN)), "--rows", ",".join(map(str, ROWS)),
                             "--max-seconds", f"{max(1.0, (share - start_s) / LARGE_SIZES):.1f}"], limit_s=share, on_line=keep,
                            environment=dict(contender.environment))
        if own and ended.others_cpus > DISTURBED_CPUS:
            outcome.notes.append(f"{contender.name}: other processes kept {ended.others_cpus:.1f} CPUs busy meanwhile.")
        times = sum("ms_p50" in line for line in own.values())
        outcome.line = f"{who[0].name}: " + _headline(measured.get(who[0].name, {}))
        skipped = [f"{_named(*size)} {line['skipped']}" for size, line in own.items() if line.get("skipped")]
        if skipped:
            outcome.notes.append(f"{contender.name}, not run: {'; '.join(skipped)}.")
        for line in own.values():
            if line.get("error"):
                outcome.check(False, f"{contender.name}, {_named(line['hidden'], line['rows'])}: {line['error']}")
        if contender.eager and ended.code == 2 and not own:
            outcome.notes.append(f"{contender.name}: not run, {ended.last_line()}.")
        elif ended.timed_out and own:
            outcome.notes.append(f"{contender.name}: its {ended.seconds:.0f} s were over after {times} of 6 sizes.")
        elif ended.problem():
            outcome.failed_with(ended)
            outcome.check(False, f"{contender.name} {ended.problem()}")
    ran = len(found)
    outcome.check(any("ms_p50" in line for line in raw if line["contender"] == who[0].name), f"{who[0].name} updates")
    outcome.line += f"; {ran} of {len(who)} contenders ran"


def _headline(own):
    parts = [f"{figure(own[size]['ms_p50'])} ms at {_named(*size)}" for size in ((64, 12_000), (1024, 262_144))
             if "ms_p50" in own.get(size, {})]
    return ", ".join(parts) or "no time"


def rate(found, backend_name, hidden):
    """Rows times epochs a second that a contender's measured updates made at a width, None when not measured."""
    lines = [line for line in found.get("lines", []) if line["contender"].startswith(backend_name) and
             line["hidden"] == hidden and "ms_p50" in line]
    return max((line["rows"] * line["epochs"] / line["ms_p50"] * 1e3 for line in lines), default=None)


def profile(context, outcome):
    """Counts in a recorded update on the device: kernels, launches, synchronisations, bytes, busy time."""
    names = [f"2x{hidden}, {rows:,} rows" for hidden, rows in PROFILES]
    table = outcome.table("One recorded update (the profiler makes it slower)", ["", *names])
    columns = []
    # The profiler sees LibTorch, so that it is who stands in here.
    backend = "libtorch" if context.stand_in else "auto"
    column_s = 0.0  # that the one before took, its reading included
    for hidden, rows in PROFILES:
        begin = time.monotonic()
        if columns and context.seconds_left() < 1.3 * column_s + 2:
            outcome.notes.append(f"2x{hidden}: not recorded, no time was left.")
            break
        path = os.path.join(context.folder, f"trace_{hidden}.json")
        ended = context.must_run(
            [context.program(*BENCH), "--device", context.device, "--backend", backend, "--hidden", hidden, "--rows", rows,
             "--epochs", EPOCHS, "--rounds", 2, "--max-seconds", f"{max(1.0, context.seconds_left() - 4):.0f}", "--profile", path],
            "the profiled update")
        if not os.path.exists(path):
            raise plan.PartFailed(f"gpu_update_bench wrote no trace, but {ended.last_line()!r}")
        if not columns:
            _keep_trace(path, context, outcome)  # first: it is of use also where the reader below does not understand it
        counts = chrome_trace.summarize(chrome_trace.read(path))
        plain = next((line for line in json_lines(ended.lines) if "ms_p50" in line), {})
        counts["ms_p50_without_profiler"] = plain.get("ms_p50")
        outcome.figures[f"2x{hidden}"] = counts
        columns.append(counts)
        table[:] = _profile_rows(columns, len(PROFILES))
        column_s = time.monotonic() - begin
        if len(columns) == 1:
            _judge(context, outcome, counts)
            if context.stand_in:
                break


def _keep_trace(path, context, outcome):
    """Puts the first trace, compressed, beside the report when it is small enough."""
    target = os.path.join(context.out, "trace.json.gz")
    with open(path, "rb") as source, gzip.open(target, "wb", 5) as file:
        shutil.copyfileobj(source, file)
    if os.path.getsize(target) > TRACE_LIMIT_BYTES:
        os.remove(target)
        outcome.notes.append("The trace is too large to be kept.")
    else:
        outcome.notes.append("`trace.json.gz` is the trace of the first column, for chrome://tracing or Perfetto.")


def _judge(context, outcome, counts):
    if context.stand_in and not counts["gpu_events"]:
        outcome.check(counts["minibatch_steps"] > 0, f"{counts['minibatch_steps']} minibatch steps are marked in the trace")
        outcome.line = f"no GPU events: the CPU stood in; {counts['minibatch_steps']} minibatch steps recorded"
        return
    kernels = f"{counts['kernels']:,} kernels ran on the GPU"
    outcome.check(counts["kernels"] > 0, kernels if counts["kernels"] else f"{kernels} by the trace: is CUPTI allowed here?")
    outcome.check(counts["minibatch_steps"] > 0, f"{counts['minibatch_steps']} minibatch steps are marked in the trace")
    for what in ("synchronisations", "pageable_copies"):
        inside = counts[f"{what}_in_steps"]
        outcome.check(inside == 0, f"{inside} {what.replace('_', ' ')} lie inside minibatch steps")
    outcome.check(counts["launches_a_step"] <= MOST_LAUNCHES,
                  f"a minibatch step is {counts['launches_a_step']:.1f} launches, at most {MOST_LAUNCHES} when steps are "
                  "captured")
    outcome.line = (f"a minibatch step: {counts['kernels_a_step']:.0f} kernels, {figure(counts['synchronisations_a_step'], 2)} "
                    f"synchronisations; an update: {counts['bytes_host_to_device'] / 1e6:.1f} MB to the GPU, "
                    f"{counts['bytes_device_to_host'] / 1e6:.2f} MB back; GPU busy {counts['gpu_busy']:.0%}")


def _profile_rows(columns, width):
    def row(title, show):
        return [title, *[show(counts) for counts in columns], *["–"] * (width - len(columns))]

    rows = [
        row("minibatch steps", lambda c: number(c["minibatch_steps"])),
        row("update with the profiler, ms", lambda c: figure(c["update_us"] / 1e3)),
        row("update without, ms", lambda c: figure(c["ms_p50_without_profiler"])),
    ]
    if not any(c["gpu_events"] for c in columns):
        return rows + [row("GPU events", lambda c: "none: the CPU stood in")]
    rows += [
        row("kernels a minibatch step", lambda c: figure(c["kernels_a_step"])),
        row("their time on the GPU, us a step", lambda c: figure(c["kernel_us_a_step"])),
        row("launches a minibatch step", lambda c: figure(c["launches_a_step"])),
        row("synchronisations a minibatch step (target 0)", lambda c: figure(c["synchronisations_a_step"], 2)),
        row("synchronisations an update", lambda c: number(c["synchronisations"])),
        row("host to device, bytes an update", lambda c: number(c["bytes_host_to_device"])),
        row("device to host, bytes an update", lambda c: number(c["bytes_device_to_host"])),
        row("copies an update, and of memory that is not pinned",
            lambda c: f"{number(c['copies'])}, {number(c['pageable_copies'])}"),
        row("GPU busy, share of the update", lambda c: f"{c['gpu_busy']:.0%}"),
    ]
    for rank in range(3):
        rows.append(row(f"kernel {rank + 1} by time", lambda c, rank=rank: _kernel(c, rank)))
    return rows


def _kernel(counts, rank):
    if rank >= len(counts["top_kernels"]):
        return "–"
    top = counts["top_kernels"][rank]
    name = top["name"].replace("void ", "")
    return f"`{name[:60]}{'…' if len(name) > 60 else ''}` {top['count']:,} times, {figure(top['us'] / 1e3)} ms"
