#!/usr/bin/env python3
"""Tests of bench/gpu/check without a GPU and without a bundle: python3 -B bench/gpu/test_check.py"""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import types
import unittest
from unittest import mock

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import bundle  # noqa: E402
import chrome_trace  # noqa: E402
import end_to_end  # noqa: E402
import fake_bundle  # noqa: E402
import machine  # noqa: E402
import parts  # noqa: E402
import plan  # noqa: E402
import processes  # noqa: E402
import report  # noqa: E402
import updates  # noqa: E402


def load_check():
    loader = importlib.machinery.SourceFileLoader("check", str(HERE / "check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
    loader.exec_module(module)
    return module


check = load_check()


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="check-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def python(self, code, limit_s=20.0, **options):
        log = processes.Log(self.folder / "log.txt")
        self.addCleanup(log.close)
        return processes.run([sys.executable, "-c", code], cwd=self.folder, env=os.environ, limit_s=limit_s, log=log, **options)

    def context(self, root=None, **options):
        log = processes.Log(self.folder / "log.txt")
        self.addCleanup(log.close)
        return plan.Context(root=root or self.folder, device="cpu", folder=str(self.folder), out=str(self.folder), log=log,
                            environment=dict(os.environ), **options)

    def run_part(self, work, limit_s=20.0, context=None):
        outcome = plan.Outcome("part", "Part")
        plan.run_part(plan.Part("part", "Part", limit_s, work), context or self.context(), outcome, limit_s)
        return outcome


# A child in a process group of its own that does not listen to SIGTERM, as a hung learner.
HANGS = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
                          "print('ready', flush=True); time.sleep(60)"], preexec_fn=os.setpgrp, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
print("the last line", file=sys.stderr, flush=True)
time.sleep(60)
"""


class ProcessesTest(FolderTest):
    def test_a_time_out_ends_the_program_and_its_deaf_child(self):
        with mock.patch.object(processes, "GRACE_S", 0.2):
            ended = self.python(HANGS, limit_s=1.5)
        self.assertTrue(ended.timed_out)
        self.assertEqual(len(ended.lines), 1)
        self.assertFalse(fake_bundle.is_alive(int(ended.lines[0])))
        self.assertRegex(ended.problem(), "^timed out after [12] s; its last line: the last line$")

    def test_a_child_that_holds_the_pipes_open_does_not_hold_up_the_end(self):
        ended = self.python("import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid)")
        self.assertEqual((ended.code, ended.seconds < 10), (0, True))
        self.assertFalse(fake_bundle.is_alive(int(ended.lines[0])))

    def test_ends_are_told_in_words(self):
        ended = self.python("import sys; print('learner error: no such key'); print('bye'); sys.exit(3)")
        self.assertEqual(ended.problem(), "exited with code 3: learner error: no such key")
        self.assertEqual(self.python("import os; os.kill(os.getpid(), 9)").problem(), "was ended by SIGKILL; it printed nothing")
        log = processes.Log(self.folder / "log.txt")
        self.addCleanup(log.close)
        ended = processes.run([self.folder / "absent"], cwd=self.folder, env={}, limit_s=5, log=log)
        self.assertRegex(ended.problem(), "^exited with code 127: cannot start .*absent: No such file or directory$")

    def test_a_tick_may_end_the_program(self):
        ended = self.python("import time; time.sleep(60)", on_tick=lambda session: True)
        self.assertEqual((ended.code, ended.problem(), ended.seconds < 10), (0, "", True))

    def test_the_log_is_cut_off(self):
        log = processes.Log(self.folder / "small.txt", limit_bytes=1000)
        for _ in range(100):
            log.write("x" * 99 + "\n")
        log.close()
        text = (self.folder / "small.txt").read_text()
        self.assertLess(len(text), 1100)
        self.assertIn("is full", text)

    def test_cpu_time_is_told_apart_by_role_and_outlives_the_process(self):
        busy = "import sys, time\nwhile time.process_time() < 0.25: pass\ntime.sleep(0.3)"
        for name, arguments, role, other in (("troupe-learner", [], "learner", "worker"), ("troupe", ["worker"], "worker", "learner")):
            fake_bundle.write_program(self.folder / name, busy)
            times, totals = processes.CpuTimes(), []
            code = f"import subprocess, time; subprocess.run({[str(self.folder / name), *arguments]}); time.sleep(0.3)"
            self.python(code, on_tick=lambda session: totals.append(times.sample(session)), tick_s=0.1)
            self.assertGreater(totals[-1][role], 0.2)
            self.assertEqual(totals[-1][other], 0.0)


class PlanTest(FolderTest):
    def parts(self, *limits):
        return [plan.Part(str(at), str(at), limit, None) for at, limit in enumerate(limits)]

    def test_a_part_gets_its_limit_or_its_share(self):
        some = self.parts(10, 30, 60)
        self.assertEqual(plan.limit_for(some, 0, 1000), 10)
        self.assertEqual(plan.limit_for(some, 0, 50), 5)  # half of all that is wanted
        self.assertEqual(plan.limit_for(some, 2, 45), 45)
        self.assertEqual(plan.limit_for(some, 1, -1), 0)

    def test_the_limits_of_the_parts_fit_into_the_usual_time(self):
        seconds = check.DEFAULT_MINUTES * 60 - plan.RESERVE_S
        left = seconds
        for at in range(len(check.PARTS)):  # each takes all it may
            left -= plan.limit_for(check.PARTS, at, left)
        self.assertGreaterEqual(left, -1e-6)

    def test_a_part_that_raises_gets_a_line(self):
        def breaks(context, outcome):
            outcome.table("T", ["a"]).append([1])
            raise ValueError("seven")

        outcome = self.run_part(breaks)
        self.assertEqual((outcome.verdict, outcome.line), (plan.FAILED, "ValueError: seven"))
        self.assertEqual(outcome.tables[0]["rows"], [[1]])

    def test_what_was_measured_before_a_time_out_stays(self):
        def hangs(context, outcome):
            outcome.line = "one of two"
            context.run([sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"])

        outcome = self.run_part(hangs, limit_s=1.2)
        self.assertEqual(outcome.verdict, plan.FAILED)
        self.assertEqual(outcome.line, "timed out after 1 s; its last line: begun; until then: one of two")
        self.assertIn("timed out", outcome.commands[0]["end"])

    def test_a_part_that_hangs_by_itself_is_ended(self):
        with mock.patch.object(plan, "OVERTIME_S", 0.2):
            outcome = self.run_part(lambda context, outcome: time.sleep(30), limit_s=1.0)
        self.assertEqual(outcome.verdict, plan.FAILED)
        self.assertLess(outcome.seconds, 5)

    def test_a_check_that_does_not_hold_is_the_result(self):
        def two(context, outcome):
            outcome.check(True, "one is 1")
            outcome.check(False, "two is 3")
            outcome.line = "fine"

        outcome = self.run_part(two)
        self.assertEqual((outcome.verdict, outcome.line), (plan.FAILED, "does not hold: two is 3"))

    def test_what_the_bundle_lacks_is_not_run(self):
        outcome = self.run_part(parts.run_device)
        self.assertEqual((outcome.verdict, outcome.line), (plan.NOT_RUN, "the bundle has no bench/gpu_update_bench"))


class BundleTest(FolderTest):
    def archive(self, *members, name="troupe-1.tar.gz"):
        """Members: (name, kind, link) with the kinds of tarfile."""
        path = self.folder / name
        with tarfile.open(path, "w:gz") as tar:
            for member, kind, link in members:
                info = tarfile.TarInfo(member)
                info.type, info.linkname = kind, link
                tar.addfile(info, io.BytesIO(b"") if kind == tarfile.REGTYPE else None)
        return path

    def test_archives_that_would_leave_their_folder_are_refused(self):
        file, link = tarfile.REGTYPE, tarfile.SYMTYPE
        good = ("top/bin/troupe", file, "")
        for bad, words in ((("top/../../x", file, ""), "would leave"), (("/etc/x", file, ""), "would leave"),
                           (("top/x", link, "../../x"), "leaves the bundle"), (("top/x", link, "/etc/passwd"), "leaves the bundle"),
                           (("top/x", tarfile.LNKTYPE, "../x"), "leaves the bundle"), (("top/x", tarfile.CHRTYPE, ""), "is a device"),
                           (("other/x", file, ""), "got 2 top folders")):
            with self.subTest(bad), self.assertRaisesRegex(bundle.BundleError, words):
                bundle.unpack(self.archive(good, bad), self.folder / "out")
        with self.assertRaisesRegex(bundle.BundleError, "lies below a link"):
            bundle.unpack(self.archive(good, ("top/a", link, "bin"), ("top/a/x", file, "")), self.folder / "out")
        self.assertFalse((self.folder / "out").exists() and list((self.folder / "out").iterdir()))

    def test_a_bundle_is_found_as_archive_folder_and_newest_of_the_build(self):
        path = self.archive(("top/bin/troupe", tarfile.REGTYPE, ""), ("top/lib", tarfile.SYMTYPE, "bin"))
        root, name = bundle.locate(str(path), HERE, self.folder / "a")
        self.assertEqual((root, name), (self.folder / "a" / "top", "troupe-1.tar.gz"))
        self.assertEqual(bundle.locate(str(self.folder / "a"), HERE, self.folder / "b")[0], root.resolve())
        inside = root / "bench" / "gpu"
        inside.mkdir(parents=True)
        self.assertEqual(bundle.locate(None, inside, self.folder / "b")[0], root.resolve())
        checkout = self.folder / "checkout"
        (checkout / "build").mkdir(parents=True)
        (checkout / "bench" / "gpu").mkdir(parents=True)
        with self.assertRaisesRegex(bundle.BundleError, "`./troupe bundle` makes one"):
            bundle.locate(None, checkout / "bench" / "gpu", self.folder / "b")
        for at, version in enumerate(("2", "1")):
            made = self.archive((f"v{version}/bin/troupe", tarfile.REGTYPE, ""), name=f"checkout/build/troupe-{version}.tar.gz")
            os.utime(made, (1e9 + at, 1e9 + at))
        self.assertEqual(bundle.locate(None, checkout / "bench" / "gpu", self.folder / "b")[1], "troupe-1.tar.gz")

    def test_what_is_no_bundle_is_told_in_a_sentence(self):
        text = self.folder / "troupe.tar.gz"
        text.write_text("no archive")
        with self.assertRaisesRegex(bundle.BundleError, "not an archive"):
            bundle.unpack(text, self.folder / "out")
        with self.assertRaisesRegex(bundle.BundleError, "no such file"):
            bundle.locate(str(self.folder / "absent"), HERE, self.folder)
        with self.assertRaisesRegex(bundle.BundleError, "has no bin/troupe"):
            bundle.locate(str(self.folder), HERE, self.folder)


def event(cat, name, ts, dur, **args):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}


class TraceTest(FolderTest):
    EVENTS = [
        event("kernel", "before the update", 1, 3, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 0, 1, correlation=1),
        event("user_annotation", "troupe::update", 100, 900),
        event("gpu_user_annotation", "troupe::minibatch_step", 100, 900),  # the GPU's copy of the mark
        event("cuda_runtime", "cudaMemcpyAsync", 110, 5, correlation=2),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 120, 30, bytes=4096, correlation=2),
        event("cpu_op", "troupe::minibatch_step", 200, 100),
        event("cuda_runtime", "cudaLaunchKernel", 210, 2, correlation=3),
        event("cuda_runtime", "cudaLaunchKernelExC_v11060", 220, 2, correlation=4),
        event("kernel", "void gemm", 230, 50, correlation=3),
        event("kernel", "void gemm", 320, 50, correlation=4),  # launched in the step, runs after it
        event("cpu_op", "troupe::minibatch_step", 400, 100),
        event("cuda_driver", "cuLaunchKernel", 410, 2, correlation=5),
        event("kernel", "tanh", 420, 20, correlation=5),
        event("kernel", "tanh", 430, 20, correlation=5),  # at the same time as the one before for half of its time
        event("cuda_runtime", "cudaStreamSynchronize", 450, 10, correlation=6),
        event("cuda_runtime", "cudaEventQuery", 460, 1, correlation=7),
        event("cuda_runtime", "cudaLaunchKernel", 600, 2, correlation=8),
        event("kernel", "sum", 610, 10, correlation=8),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 700, 5, bytes=256, correlation=9),
        event("cuda_runtime", "cudaMemcpy", 690, 20, correlation=9),
        # A number that an operation of a step takes from the host's memory.
        event("cuda_runtime", "cudaMemcpyAsync", 410, 5, correlation=10),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 412, 1, bytes=4, correlation=10),
        {"ph": "M", "name": "process_name"},
    ]

    def test_counts_of_a_small_trace(self):
        path = self.folder / "trace.json"
        path.write_text(json.dumps({"traceEvents": self.EVENTS}))
        counts = chrome_trace.summarize(chrome_trace.read(path))
        expected = {"minibatch_steps": 2, "kernels": 5, "kernels_in_steps": 4, "kernels_a_step": 2.0, "kernel_us_a_step": 70.0,
                    "launches_a_step": 1.5, "synchronisations": 2, "synchronisations_in_steps": 1, "synchronisations_a_step": 0.5,
                    "bytes_host_to_device": 4100, "bytes_device_to_host": 256, "copies": 3, "pageable_copies": 2,
                    "pageable_copies_in_steps": 1, "gpu_events": 8, "update_us": 900}
        self.assertEqual({name: counts[name] for name in expected}, expected)
        self.assertAlmostEqual(counts["gpu_busy"], (30 + 50 + 50 + 30 + 10 + 5 + 1) / 900)
        self.assertEqual(counts["top_kernels"][0], {"name": "void gemm", "count": 2, "us": 100})

    def test_waits_inside_steps_do_not_hold(self):
        outcome = plan.Outcome("profile", "Profile")
        updates._judge(types.SimpleNamespace(stand_in=False), outcome, chrome_trace.summarize(self.EVENTS[:-1]))
        self.assertEqual([check["what"] for check in outcome.checks if not check["holds"]],
                         ["1 synchronisations lie inside minibatch steps", "1 pageable copies lie inside minibatch steps"])

    def test_steps_that_are_not_captured_do_not_hold(self):
        counts = {**chrome_trace.summarize(self.EVENTS[:1]), "minibatch_steps": 1, "kernels": 197, "launches_a_step": 197.0,
                  "synchronisations_in_steps": 0, "pageable_copies_in_steps": 0}
        outcome = plan.Outcome("profile", "Profile")
        updates._judge(types.SimpleNamespace(stand_in=False), outcome, counts)
        self.assertEqual([check["what"] for check in outcome.checks if not check["holds"]],
                         ["a minibatch step is 197.0 launches, at most 20 when steps are captured"])

    def test_a_trace_without_a_gpu(self):
        counts = chrome_trace.summarize([event("user_annotation", "troupe::update", 0, 100), event("cpu_op", "aten::mm", 10, 5)])
        self.assertEqual((counts["gpu_events"], counts["kernels_a_step"], counts["gpu_busy"]), (0, 0.0, 0.0))
        self.assertEqual(chrome_trace.summarize([])["update_us"], 0.0)

    def test_what_is_no_trace_is_told(self):
        path = self.folder / "trace.json"
        path.write_text("{}")
        with self.assertRaisesRegex(ValueError, "has no traceEvents"):
            chrome_trace.read(path)


class FiguresTest(FolderTest):
    def lines(self, *walls, batch=4000):
        return [dict(env_steps=batch * at, updates=at, wall_clock_s=wall, update_s=0.2, assemble_s=0.1, wait_s=0.05)
                for at, wall in enumerate(walls, 1)]

    def test_the_rate_leaves_the_first_third_out(self):
        found = end_to_end.steady(self.lines(1.0, 1.5, 2.0, 2.5, 3.0), seconds=4.5)
        self.assertEqual((found["env_steps_per_s"], found["updates"], found["warm"]), (8000.0, 3, True))
        self.assertAlmostEqual(found["update_share"], 3 * 0.2 / 1.5)

    def test_cpus_are_those_of_the_warm_part_and_what_is_left_over_is_others(self):
        meter = end_to_end.Meter(str(self.folder))
        for wall, learner, whole in ((1.0, 5.0, 100.0), (2.0, 6.0, 103.0), (4.0, 9.0, 110.0), (4.0, 9.1, 119.0), (4.0, 9.2, 130.0)):
            totals = {"learner": learner, "worker": wall, "other": 0.0, "machine": whole}
            meter.samples.append((wall, 50 + wall, totals))
        self.assertEqual(meter.busy(begin_s=1.5), {"learner": 1.5, "worker": 1.0, "rest": 1.0})
        self.assertEqual(meter.busy(begin_s=3.9), {})

    def test_few_updates_are_counted_with_the_start_and_none_is_no_rate(self):
        self.assertEqual(end_to_end.steady(self.lines(0.5, 2.5), seconds=4.5)["warm"], False)
        self.assertEqual(end_to_end.steady(self.lines(4.0), seconds=4.5)["env_steps_per_s"], 1000.0)
        self.assertEqual(end_to_end.steady([], seconds=4.5), {})

    def test_workers_leave_the_learner_a_cpu_but_two_always_run(self):
        for cores, expected in ((1, [1, 2]), (2, [1, 2]), (8, [1, 2, 4]), (16, [1, 2, 4, 8, 14])):
            runs = end_to_end.plan_runs("cuda", cores)
            ran = [run.workers for run, reason in runs if run.table == end_to_end.SCALING and run.epochs == 1 and not reason]
            self.assertEqual(ran, expected)
            self.assertEqual({run.workers for run, _ in runs if run.table != end_to_end.SCALING}, {expected[-1]})

    def test_the_keys_that_are_set_are_in_the_documentation(self):
        page = ROOT / "docs" / "configuration.md"
        if not page.exists():
            self.skipTest("no docs here")
        text = page.read_text()
        for setting in end_to_end.settings(end_to_end.Run("scaling", "cpu", 1), 4.0):
            self.assertIn(f"| `{setting.partition('=')[0]}` |", text)

    def test_the_bar_is_the_documented_one(self):
        page = ROOT / "docs" / "benchmarks.md"
        if not page.exists():
            self.skipTest("no docs here")
        text = " ".join(page.read_text().split())  # whatever the lines' ends
        self.assertIn(f"at least {parts.SAMPLED_BAR:g} sampled, {parts.DETERMINISTIC_BAR:g} deterministic", text)

    def test_many_policies_replace_the_only_one_of_the_example(self):
        text = end_to_end.many_policies(fake_bundle.EXAMPLE, 3)
        self.assertIn("  policies: [p000, p001, p002]\n", text)
        self.assertIn('  policy_mapping: {"*": {p000: 1, p001: 1, p002: 1}}\n', text)
        self.assertNotIn("shared", text)

    def test_an_update_that_would_take_too_long_is_predicted_from_what_was_measured(self):
        found = {"updates": {"lines": [dict(contender="Troupe, CUDA", hidden=64, rows=12000, epochs=10, ms_p50=120.0),
                                       dict(contender="fused on the CPU, 1 thread", hidden=64, rows=12000, epochs=10, ms_p50=1200.0)]}}
        run = end_to_end.Run("device", "cuda", 2, batch=40_000)
        self.assertAlmostEqual(end_to_end.predicted_s(run, "cuda", found), 1.2)
        self.assertAlmostEqual(end_to_end.predicted_s(end_to_end.Run("scaling", "cpu", 2, batch=40_000), "cuda", found), 12.0)
        self.assertIsNone(end_to_end.predicted_s(end_to_end.Run("device", "cuda", 2, hidden=256), "cuda", found))

    def test_rows_that_do_not_add_up_are_named(self):
        line = dict.fromkeys(("rows_trained", "rows_queued", "rows_dropped", "rows_rolled_back", "rows_duplicate", "rows_stale",
                              "rows_invalid"), 0)
        self.assertEqual(parts.unbalanced(dict(line, rows_accepted=0, rows_received=0)), "")
        self.assertIn("5 rows accepted, but 0", parts.unbalanced(dict(line, rows_accepted=5, rows_received=5)))
        self.assertIn("6 rows received, but 0", parts.unbalanced(dict(line, rows_accepted=0, rows_received=6)))

    def test_numbers_have_three_digits_that_count(self):
        self.assertEqual([report.figure(x) for x in (0.01234, 1.234, 56.78, 912.3, 12345.6, 0, None)],
                         ["0.012", "1.23", "56.8", "912", "12,346", "0", "–"])


class WholeRunTest(FolderTest):
    def setUp(self):
        super().setUp()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        eager = self.folder / "eager.py"
        eager.write_text("import sys\nprint('cannot import torch (fake)', file=sys.stderr)\nsys.exit(2)\n")
        patch = mock.patch.object(updates, "EAGER", eager)
        patch.start()
        self.addCleanup(patch.stop)

    def check(self, *arguments, device="cpu", **options):
        """(exit code, report, figures)"""
        out = self.folder / "out"
        with contextlib.redirect_stdout(io.StringIO()):
            code = check.main([str(fake_bundle.make(self.folder, **options)), "--device", device, "--out", str(out), *arguments])
        return code, (out / "report.md").read_text(), json.loads((out / "figures.json").read_text())

    def test_all_parts_of_a_fake_bundle(self):
        code, text, figures = self.check()
        self.assertEqual(code, 0, text)
        self.assertEqual([part["verdict"] for part in figures["parts"]], ["ok"] * len(check.PARTS))
        for line in ("**The CPU stood in for CUDA: --device cpu was given. No figure here is a GPU's.**",
                     "All 8 parts ran, and all their checks hold.",
                     "| largest gradient difference | 1.5e-06 | device_parity_test: Fake.Holds |",
                     "| cpu | 60,000 | 15 |",
                     "- holds: sampled return -29.5, the bar is -33",
                     "| cpu | -29.5 | -29.5 | 12.5 | 80,000 |",
                     "| Troupe, CPU in CUDA's place | 38.4 (34.6–42.2) | 839 (755–923) | 154 (138–169) | 3,355 (3,020–3,691) | 614 (553–676) "
                     "| not run |",
                     "- Troupe, CPU in CUDA's place, not run: 2x1024, 262,144 rows would take about 93 s of the 20 s given, by 12,000 "
                     "rows.",
                     "- eager PyTorch, CPU in CUDA's place: not run, cannot import torch (fake).",
                     "| GPU events | none: the CPU stood in | – |",
                     "| 10 | 1 | 80,000 | 1.00x | 80,000 |",
                     "| 2x64 | 65,536 | 1 | ",
                     "## How it was measured"):
            self.assertIn(line, text)
        self.assertIn("did not run: Fake.NeedsMore (no such unit here)", text)
        shown = [line for line in text.splitlines() if "eager.py" not in line and not line.startswith("Bundle ")]
        self.assertNotIn(str(self.folder), "\n".join(shown))
        names = sorted(path.name for path in (self.folder / "out").iterdir())
        self.assertEqual(names, ["figures.json", "log.txt", "report.md", "trace.json.gz"])
        self.assertTrue(all(len(line) < 1200 for line in text.splitlines()))

    def with_smi(self, used):
        fake_bundle.write_program(self.folder / "nvidia-smi", fake_bundle.SMI, USED=used)
        patch = mock.patch.object(machine, "nvidia_smi", return_value=str(self.folder / "nvidia-smi"))
        patch.start()
        self.addCleanup(patch.stop)

    def test_with_a_gpu(self):
        self.with_smi(used=True)
        code, text, _ = self.check("--only", "machine", "device", "checkpoints", "profile", "updates", "end_to_end", device="cuda:1")
        self.assertEqual(code, 0, text)
        for line in ("# Troupe on NVIDIA Fake",
                     "| GPU | NVIDIA Fake, 81559 MiB, compute capability 9.0, PCIe generation 5 x16 (now), at most 1980 MHz, driver 580.1 |",
                     '- holds: its backend is "libtorch/cuda:0"',
                     "- holds: nvidia-smi saw 50% use and 512 MiB more memory meanwhile",
                     "| cuda | 40,000 | 10 |",
                     "| kernels a minibatch step | 1.00 | 1.00 |",
                     "| synchronisations a minibatch step (target 0) | 0 | 0 |",
                     "| host to device, bytes an update | 3,000,000 | 3,000,000 |",
                     "| GPU busy, share of the update | 55% | 55% |",
                     "`fake_gemm<float>(a \\| b)` 1 times",
                     "| Troupe, CUDA | 256 | 256 | 256 | 256 | 256 | – |",
                     "Learner: CUDA, 10 epochs",
                     "`CUDA_VISIBLE_DEVICES=1`"):
            self.assertIn(line, text)
        self.assertNotIn("stood in", text)
        self.assertIn("| Machine | ok | NVIDIA Fake; ", text)

    def test_an_update_that_does_not_run_on_the_gpu_is_a_failure(self):
        self.with_smi(used=False)
        code, text, _ = self.check("--only", "device", "profile", device="cuda", fails="cuda")
        self.assertEqual(code, 1)
        self.assertIn("- **does not hold**: the update's device is \"cpu\"", text)
        self.assertIn("- **does not hold**: nvidia-smi saw", text)
        self.assertIn("does not hold: 0 kernels ran on the GPU", text)

    def test_a_failing_test_is_named_and_the_others_run(self):
        code, text, figures = self.check("--only", "machine", "tests", "learning", fails="tests", return_sum=-50)
        self.assertEqual(code, 1)
        self.assertEqual([part["verdict"] for part in figures["parts"]], ["ok", "FAILED", "FAILED"])
        self.assertIn("| Tests and parity | **FAILED** | does not hold: device_parity_test: 1 of 2 tests failed: Fake.Breaks |", text)
        self.assertIn("fake_test.cc:7: Failure", text)
        self.assertIn("does not hold: sampled return -50.0, the bar is -33", text)
        self.assertIn("1 of 3 parts ran and hold.", text)

    def test_a_part_that_hangs_is_ended_and_the_next_one_runs(self):
        short = [plan.Part(part.name, part.title, 1.5 if part.name == "tests" else part.limit_s, part.run) for part in check.PARTS]
        with mock.patch.object(check, "PARTS", short):
            code, text, figures = self.check("--only", "tests", "checkpoints", fails="hang")
        self.assertEqual(code, 1)
        self.assertIn("[ RUN      ] Fake.Hangs", text)
        self.assertEqual([part["verdict"] for part in figures["parts"]], ["FAILED", "ok"])

    def test_a_learner_that_fails_is_told_by_its_first_error(self):
        code, text, _ = self.check("--only", "checkpoints", "end_to_end", fails="train")
        self.assertEqual(code, 1)
        self.assertIn("training with device cpu exited with code 1: learner error: the fake was told to fail", text)
        self.assertIn("| 10 | 1 | no update | – |", text)

    def test_wrong_usage_is_a_sentence_and_code_2(self):
        for arguments, words in ((["--device", "tpu"], "expected cuda, cuda:N or cpu"), (["--only", "nothing"], "expected one of machine"),
                                 (["--minutes", "0"], "expected more than 0")):
            with self.subTest(arguments), contextlib.redirect_stderr(io.StringIO()) as errors:
                with self.assertRaises(SystemExit) as ended:
                    check.main(arguments)
                self.assertEqual(ended.exception.code, 2)
                self.assertIn(words, errors.getvalue())
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(check.main([str(self.folder / "absent.tar.gz")]), 2)
        self.assertIn("absent.tar.gz: no such file", errors.getvalue())


class KilledTest(FolderTest):
    def kill(self, number):
        """The report of a check that was sent a signal while its second part hung."""
        root, out = fake_bundle.make(self.folder / str(number), fails="hang"), self.folder / str(number) / "out"
        process = subprocess.Popen([sys.executable, "-B", HERE / "check", root, "--device", "cpu", "--out", out, "--only", "machine",
                                    "tests"], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(self.folder)})
        self.addCleanup(process.stdout.close)
        log, deadline = out / "log.txt", time.monotonic() + 20
        while not (log.exists() and "Fake.Hangs" in log.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        code = process.wait(timeout=20)
        return code, (out / "report.md").read_text(), json.loads((out / "figures.json").read_text())

    def test_ctrl_c_writes_the_report(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                code, text, figures = self.kill(number)
                self.assertEqual(code, 1)
                self.assertIn("The check did not come to its end: it was interrupted.", text)
                self.assertEqual([part["line"] for part in figures["parts"]], [figures["parts"][0]["line"], "interrupted"])

    def test_a_killed_check_leaves_what_was_measured(self):
        code, text, figures = self.kill(signal.SIGKILL)
        self.assertEqual(code, -signal.SIGKILL)
        self.assertIn("it is still running, or it was killed", text)
        self.assertIn("| Machine | ok | ", text)
        self.assertEqual(figures["parts"][0]["verdict"], "ok")


class MachineTest(unittest.TestCase):
    def test_the_device_is_cuda_where_nvidia_smi_shows_one(self):
        with mock.patch.object(machine, "ask_smi", return_value=[["NVIDIA H100"]]):
            self.assertEqual(machine.pick_device(None)[0], "cuda")
        with mock.patch.object(machine, "ask_smi", return_value=[]), mock.patch.object(machine.os.path, "exists", return_value=False):
            self.assertEqual(machine.pick_device(None)[0], "cpu")
        self.assertEqual(machine.pick_device("cuda:3")[:2], ("cuda", 3))


if __name__ == "__main__":
    unittest.main()
