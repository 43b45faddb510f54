"""The parts that say whether things hold: the device's path, tests, checkpoints across devices, and learning."""

import json
import os

import machine
import plan
from report import figure, mebibytes, number

BENCH = ("bench", "gpu_update_bench")
EXAMPLE = ("examples", "simple_spread_mappo.yaml")

# The bar of docs/benchmarks.md ("learning, seed by seed"): summed return of simple_spread after 1 M env steps.
SAMPLED_BAR = -33.0
DETERMINISTIC_BAR = -30.0
LEARNING_ENV_STEPS = 1_000_000
LEARNING_END_S = 14.0  # of the part: loading CUDA before training, evaluation after it

# One that is most about the device comes first. The last two do not touch it.
TEST_PROGRAMS = ("device_parity_test", "training_test", "update_parity_test", "training_core_test", "fused_parity_test")
DEVICE_TEST = "device_parity_test"
GTEST_KEYS = {"name", "file", "line", "status", "result", "timestamp", "time", "classname", "failures", "skipped",
              "value_param", "type_param"}


def json_lines(lines):
    """The objects among a program's lines."""
    found = []
    for line in lines:
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
    return found


class Watch:
    """Asks nvidia-smi, while a program runs, for the device's use and memory."""

    def __init__(self, index):
        self._index = index
        self.before_mib = self._ask()[1]
        self.use_percent = 0.0
        self.memory_mib = self.before_mib

    def _ask(self):
        rows = machine.ask_smi(["utilization.gpu", "memory.used"], self._index, timeout_s=2.0)
        try:
            return float(rows[0][0]), float(rows[0][1])
        except (IndexError, ValueError):
            return 0.0, 0.0

    def tick(self, _session):
        use, memory = self._ask()
        self.use_percent = max(self.use_percent, use)
        self.memory_mib = max(self.memory_mib, memory)


def run_device(context, outcome):
    """An update on the device, and what it and nvidia-smi say of where it ran."""
    hidden, rows, rounds = (64, 12000, 2) if context.stand_in else (256, 262144, 20)
    watch = None if context.stand_in else Watch(context.gpu_index)
    ended = context.must_run(
        [context.program(*BENCH), "--device", context.device, "--backend", "auto", "--hidden", hidden, "--rows", rows,
         "--epochs", 10, "--rounds", rounds, "--max-seconds", f"{max(1.0, context.seconds_left() - 8):.0f}"],
        "an update", on_tick=watch.tick if watch else None, tick_s=0.3)
    found = json_lines(ended.lines)
    if not found or "ms_p50" not in found[-1]:
        raise plan.PartFailed(f"gpu_update_bench printed no time, but {ended.last_line()!r}")
    one = outcome.figures["update"] = found[-1]
    device, backend = str(one.get("device")), str(one.get("backend"))
    peak = one.get("device_memory_peak_bytes") or 0
    if watch:
        outcome.figures["nvidia_smi"] = vars(watch)
        outcome.check(device.startswith("cuda"), f'the update\'s device is "{device}"')
        outcome.check("cuda" in backend, f'its backend is "{backend}"')
        outcome.check(peak > 0, f"LibTorch held up to {mebibytes(peak)} MiB of the device's memory")
        rise = watch.memory_mib - watch.before_mib
        outcome.check(rise > 0 or watch.use_percent > 0,
                      f"nvidia-smi saw {watch.use_percent:.0f}% use and {rise:,.0f} MiB more memory meanwhile")
    rows_ = outcome.table("One update, as gpu_update_bench reports it", ["", ""])
    rows_ += [["device", device], ["backend", backend], ["networks", f"2x{hidden}"], ["rows", f"{rows:,}"],
              ["ms, median (min–max)", f"{figure(one['ms_p50'])} ({figure(one['ms_min'])}–{figure(one['ms_max'])})"],
              ["device memory at its peak", f"{mebibytes(peak)} MiB" if peak else "none"]]
    outcome.line = (f"{'the CPU stood in: ' if context.stand_in else ''}backend {backend} on {device}, {figure(one['ms_p50'])} ms "
                    f"an update at 2x{hidden} with {rows:,} rows" + (f", {mebibytes(peak)} MiB of device memory" if peak else ""))


def _walk(suites):
    for suite in suites:
        for test in suite.get("testsuite", []):
            yield f"{suite.get('name')}.{test.get('name')}", test


def read_gtest(path):
    """(passed, [failed], [skipped], {property: largest value}) of GoogleTest's JSON."""
    with open(path, encoding="utf-8", errors="replace") as file:
        report = json.load(file)
    passed, failed, skipped, largest = 0, [], [], {}
    for name, test in _walk(report.get("testsuites", [])):
        if test.get("failures"):
            failed.append(name)
        elif test.get("result") == "SKIPPED" or test.get("skipped"):
            skipped.append(name)
        elif test.get("status") == "RUN":
            passed += 1
        for key in set(test) - GTEST_KEYS:
            try:
                value = float(test[key])
            except (TypeError, ValueError):
                continue
            if key not in largest or value > largest[key][0]:
                largest[key] = (value, name)
    return passed, failed, skipped, largest


def skip_reasons(lines):
    """What skipped tests print, each reason once: the line after GoogleTest's "Skipped"."""
    found = [lines[at + 1].strip() for at, line in enumerate(lines[:-1]) if line.rstrip().endswith(": Skipped")]
    return list(dict.fromkeys(reason for reason in found if reason))


def run_tests(context, outcome):
    """The tests of training, on the device where they take one."""
    rows = outcome.table("Tests", ["program", "passed", "failed", "skipped", "s", ""])
    total = {"passed": 0, "failed": 0, "skipped": 0}
    differences = {}
    names = [name for name in TEST_PROGRAMS if (context.root / "tests" / name).exists()]
    for name in TEST_PROGRAMS:
        if name not in names:
            rows.append([name, "", "", "", "", "not in the bundle"])
    outcome.check(DEVICE_TEST in names, f"{DEVICE_TEST} {'is' if DEVICE_TEST in names else 'is not'} in the bundle")
    for at, name in enumerate(names):
        result = os.path.join(context.folder, name + ".json")
        share = context.seconds_left() * (0.75 if at + 1 < len(names) else 1.0)
        ended = context.run([context.root / "tests" / name, f"--gtest_output=json:{result}"], limit_s=share)
        facts = outcome.figures[name] = {"seconds": ended.seconds, "code": ended.code}
        if not os.path.exists(result):
            outcome.failed_with(ended)
            rows.append([name, "", "", "", f"{ended.seconds:.1f}", ended.problem() or "wrote no result"])
            outcome.check(False, f"{name} {ended.problem() or 'wrote no result'}")
            continue
        passed, failed, skipped, largest = read_gtest(result)
        facts.update(passed=passed, failed=failed, skipped=skipped, largest={k: v[0] for k, v in largest.items()})
        reasons = skip_reasons(ended.lines) if skipped else []
        remark = "; ".join([f"failed: {', '.join(failed[:6])}{' …' if len(failed) > 6 else ''}"] * bool(failed) +
                           [f"did not run: {', '.join(skipped[:3])}{' …' if len(skipped) > 3 else ''}"
                            f"{' (' + '; '.join(reasons[:2]) + ')' if reasons else ''}"] * bool(skipped))
        rows.append([name, passed, len(failed), len(skipped), f"{ended.seconds:.1f}", remark])
        for key, count in (("passed", passed), ("failed", len(failed)), ("skipped", len(skipped))):
            total[key] += count
        for key, (value, test) in largest.items():
            if key not in differences or value > differences[key][0]:
                differences[key] = (value, f"{name}: {test}")
        if failed or ended.problem():
            outcome.failed_with(ended)
            outcome.check(False, f"{name}: {len(failed)} of {passed + len(failed)} tests failed: {', '.join(failed[:3])}"
                          if failed else f"{name} {ended.problem()}")
        elif name == DEVICE_TEST and not context.stand_in:
            outcome.check(passed and not skipped, f"{name}: {passed} tests ran on the device, {len(skipped)} were skipped")
    if differences:
        table = outcome.table(f"Largest values that the tests recorded on `{context.device}`", ["what", "largest", "in"])
        for key in sorted(differences):
            table.append([key.replace("_", " "), f"{differences[key][0]:.2g}", differences[key][1]])
    outcome.figures["total"] = total
    outcome.line = f"{total['passed']} tests passed, {total['failed']} failed, {total['skipped']} skipped"


def train(context, name, *sets, resume=None, **options):
    """Trains simple_spread into a run folder below the temporary one; returns (Ended, the run's folder)."""
    runs = os.path.join(context.folder, "runs")
    run = os.path.join(runs, name)
    start = ["--resume", run] if resume else [context.program(*EXAMPLE), "--name", name]
    words = [word for value in (*sets, f"experiment.directory={runs}", "evaluation.at_end=false") for word in ("--set", value)]
    return context.run([context.program("bin", "troupe"), "train", *start, *words], **options), run


def progress_lines(run):
    """The lines of a run's progress.jsonl; the last may be cut off, and is left out then."""
    try:
        with open(os.path.join(run, "progress.jsonl"), encoding="utf-8") as file:
            return json_lines(line for line in file if line.endswith("\n"))
    except OSError:
        return []


def unbalanced(line):
    """What does not add up in a line of progress.jsonl (docs/metrics.md), "" when all does."""
    kept = sum(line[f"rows_{name}"] for name in ("trained", "queued", "dropped", "rolled_back"))
    taken = sum(line[f"rows_{name}"] for name in ("accepted", "duplicate", "stale", "invalid"))
    if kept != line["rows_accepted"]:
        return f"{line['rows_accepted']} rows accepted, but {kept} trained, queued, dropped or rolled back"
    if taken != line["rows_received"]:
        return f"{line['rows_received']} rows received, but {taken} accepted, duplicate, stale or invalid"
    return ""


def run_checkpoints(context, outcome):
    """A run that changes its device at every resume, from checkpoint to checkpoint."""
    rows = outcome.table("One run, resumed on another device twice", ["device", "env steps", "updates", "s"])
    run = None
    for at, device in enumerate(("cpu", context.device, "cpu")):
        goal = 20_000 * (at + 1)
        ended, run = train(context, "chain", f"device={device}", f"stop.env_steps={goal}", "experiment.write_interval=4000",
                           resume=at > 0)
        lines = progress_lines(run)
        reached = lines[-1]["env_steps"] if lines else 0
        rows.append([device, f"{reached:,}", lines[-1]["updates"] if lines else 0, f"{ended.seconds:.1f}"])
        if ended.problem():
            outcome.failed_with(ended)
            raise plan.PartFailed(f"{'resuming' if at else 'training'} with device {device} {ended.problem()}")
        outcome.check(reached == goal, f"with device {device} the run ends at {reached:,} env steps of {goal:,}")
    verify = context.run([context.program("bin", "troupe"), "checkpoint", "verify", run, "--json"])
    if verify.problem():
        outcome.failed_with(verify)
    outcome.check(not verify.problem(), f"`checkpoint verify` finds nothing damaged {verify.problem()}".strip())
    lines = progress_lines(run)
    wrong = [problem for problem in map(unbalanced, lines) if problem]
    outcome.check(lines and not wrong, f"the row counters of {len(lines)} lines add up" + (f": {wrong[0]}" if wrong else ""))
    agents = lines[-1]["agent_steps"] if lines else 0
    outcome.check(lines and agents == 3 * lines[-1]["env_steps"], f"{agents:,} agent steps are three for each env step")
    outcome.figures.update(lines=len(lines), last=lines[-1] if lines else None)
    outcome.line = f"cpu -> {context.device} -> cpu: {lines[-1]['env_steps']:,} env steps, checkpoints verified, counters add up"


def _evaluate(context, run, *extra):
    ended = context.must_run([context.program("bin", "troupe"), "evaluate", run, "--episodes", 500, "--seed", 1000, "--json",
                              "--checkpoint", "latest", *extra], "the evaluation")
    return json_lines(ended.lines)[-1]["return_sum"]["mean"]


def run_learning(context, outcome):
    """simple_spread at 1 M env steps on the device, held to the bar of docs/benchmarks.md."""
    run = os.path.join(context.folder, "runs", "learning")
    # A run that is too slow ends by itself in time to be evaluated.
    ended, _ = train(context, "learning", "seed=1", f"device={context.device}", f"stop.env_steps={LEARNING_ENV_STEPS}",
                     f"stop.wall_clock={max(1.0, context.seconds_left() - LEARNING_END_S):.0f}",
                     limit_s=max(1.0, context.seconds_left() - 3))
    lines = progress_lines(run)
    last = outcome.figures["last"] = lines[-1] if lines else {}
    if last:
        outcome.line = (f"{last['env_steps']:,} env steps in {last['wall_clock_s']:.1f} s, training return "
                        f"{last['return_sum'] if last['return_sum'] is None else round(last['return_sum'], 1)}")
    if ended.problem():
        outcome.failed_with(ended)
        raise plan.PartFailed(f"training {ended.problem()}" + (f"; until then: {outcome.line}" if last else ""))
    sampled, best = _evaluate(context, run), _evaluate(context, run, "--deterministic")
    outcome.figures.update(sampled=sampled, deterministic=best)
    rate = last["env_steps"] / last["wall_clock_s"]
    rows = outcome.table("simple_spread, 1 M env steps, seed 1, 500 fresh episodes (random play: -80)",
                         ["device", "sampled", "deterministic", "wall-clock s", "env steps/s"])
    rows.append([context.device, f"{sampled:.1f}", f"{best:.1f}", f"{last['wall_clock_s']:.1f}", number(rate)])
    reached = last["env_steps"]
    outcome.check(reached >= LEARNING_ENV_STEPS, f"{reached:,} of {LEARNING_ENV_STEPS:,} env steps were reached in time")
    outcome.check(sampled >= SAMPLED_BAR, f"sampled return {sampled:.1f}, the bar is {SAMPLED_BAR:g}")
    outcome.check(best >= DETERMINISTIC_BAR, f"deterministic return {best:.1f}, the bar is {DETERMINISTIC_BAR:g}")
    outcome.line = f"return {sampled:.1f} sampled, {best:.1f} deterministic; {number(rate)} env steps/s, {last['wall_clock_s']:.1f} s"
