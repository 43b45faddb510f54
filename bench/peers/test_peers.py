#!/usr/bin/env python3
"""Tests of the arithmetic and of the process handling, without any peer: python3 bench/peers/test_peers.py"""

import http.server
import json
import os
import pathlib
import socket
import sys
import tempfile
import threading
import unittest
from unittest import mock

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "legs"), str(HERE / "script")]

import numpy as np  # noqa: E402

import legs  # noqa: E402
import measure  # noqa: E402
import policy_map  # noqa: E402
import probe  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import serving  # noqa: E402
from spread import Spread  # noqa: E402

TRACES = HERE.parents[1] / "tests" / "conformance" / "traces" / "simple_spread_options.jsonl"


def record(leg, rate, role="peer", **facts):
    return dict(
        leg=leg,
        role=role,
        environment="an environment",
        env_steps_per_s=rate,
        minibatch_steps_per_iteration=120.0,
        seconds=10.0,
        iterations=5,
        num_cpus=2,
        repetition=0,
        **facts,
    )


class LegsTest(unittest.TestCase):
    def test_options_become_arguments(self):
        leg = legs.parse_leg("rllib:runners=2,envs=8")
        self.assertEqual(leg.arguments(), ["--runners", "2", "--envs", "8"])
        self.assertEqual(legs.parse_leg("troupe").arguments(), [])

    def test_what_a_kind_always_gets_is_taken_by_its_program(self):
        arguments = legs.parse_leg("troupe_gru:workers=1").arguments()
        self.assertEqual((arguments[0], arguments[2:]), ("--set", ["--workers", "1"]))
        settings = dict(setting.split("=") for setting in arguments[1].split(","))  # as troupe_leg.py reads them
        self.assertEqual((settings["model.actor_core"], settings["model.critic_core"], settings["model.core_size"]), ("gru", "gru", "64"))
        self.assertEqual(int(settings["model.max_seq_len"]), probe.SETTINGS["max_cycles"], "a sequence is an episode, as in the script")

    def test_malformed_legs_are_refused(self):
        for text in ("nobody", "rllib:", "rllib:runners", "rllib:runners=2,,envs=8", "rllib:runners=2=3", ""):
            with self.subTest(text), self.assertRaises(ValueError):
                legs.parse_leg(text)

    def test_default_legs_parse_and_their_programs_exist(self):
        for text in (*legs.default_legs(), *legs.default_legs({}), *(name for names in legs.SWEEP.values() for name in names)):
            kind = legs.parse_leg(text).kind
            self.assertTrue((HERE / "legs" / kind.script).exists())
            if kind.venv:
                self.assertTrue((HERE / "requirements" / f"{kind.venv}.txt").exists())


class SweepTest(unittest.TestCase):
    def test_the_best_of_the_settings_tried_are_the_default(self):
        swept = {"xuance:algorithm=mappo,envs=8": 1700, "xuance:algorithm=mappo,envs=16": 1900, "xuance:algorithm=mappo,envs=32": 1800, "reference:threads=1": 9}
        chosen = legs.default_legs(swept)
        self.assertIn("xuance:algorithm=mappo,envs=16", chosen)
        self.assertIn("reference:threads=1", chosen)
        self.assertIn("rllib:runners=2,envs=40", chosen, "of those that were not swept what was fastest before")
        self.assertEqual([name.partition(":")[0] for name in chosen], ["troupe", "troupe_mpe2", "troupe_gru", *legs.SWEEP, "jaxmarl"])

    def test_a_sweep_is_recorded_with_its_machine_and_what_failed(self):
        records = [dict(record("skrl:algorithm=mappo", rate), machine={"cpu": "a cpu"}, when="today") for rate in (700, 900, 800)]
        records.append(dict(leg="skrl:algorithm=mappo,threads=1", role="peer", repetition=0, error="it crashed"))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "sweep.json"
            run.record_sweep(records, path)
            swept = json.loads(path.read_text())
        self.assertEqual(swept["env_steps_per_s"], {"skrl:algorithm=mappo": 800})
        self.assertEqual((swept["failed"], swept["machine"], swept["when"]), (["skrl:algorithm=mappo,threads=1"], {"cpu": "a cpu"}, "today"))


class MarksTest(unittest.TestCase):
    def test_enough_needs_both_time_and_iterations(self):
        marks = probe.Marks(seconds=10, min_iterations=2)
        self.assertFalse(marks.add(4000, 120, at=100.0))  # the first iteration only starts the clock
        self.assertFalse(marks.add(8000, 240, at=115.0))  # time, but one iteration
        self.assertTrue(marks.add(12000, 360, at=116.0))

    def test_rate_leaves_the_first_iteration_out(self):
        rate = measure.steady_rate([[50.0, 4000, 120], [51.0, 8000, 240], [54.0, 12000, 360]])
        self.assertEqual(rate.env_steps_per_s, 2000)
        self.assertEqual(rate.minibatch_steps_per_iteration, 120)
        self.assertEqual((rate.iteration_s_min, rate.iteration_s_max), (1.0, 3.0))

    def test_too_few_or_stalled_marks_are_a_failure(self):
        for marks in ([], [[1.0, 4000, 120]], [[1.0, 4000, 120], [2.0, 4000, 120]]):
            with self.subTest(marks), self.assertRaises(measure.LegFailed):
                measure.steady_rate(marks)


class ReportTest(unittest.TestCase):
    def test_ratios_are_of_medians_and_bars_use_the_best_setting(self):
        records = [record("troupe", r, "troupe") for r in (19000, 20000, 90000)]
        records += [record("rllib:runners=2", r) for r in (1000, 2000, 2100)]
        records += [record("rllib:runners=0", 500), record("sample_factory", 5000)]
        records += [record("reference:threads=1", 10000, "script"), record("reference:threads=2", 16000, "script")]
        self.assertIn("10.00x", report.table(records))
        self.assertEqual([holds for holds, _ in report.verdicts(records)], [True, True, False, True])

    def test_jitted_training_is_compared_with_the_same_algorithm(self):
        records = [record("troupe", 80000, "troupe"), record("jaxmarl:algorithm=ippo", 40000, "jitted")]
        self.assertEqual([holds for holds, _ in report.verdicts(records)], [True])  # the floor alone
        records.append(record("jaxmarl:algorithm=mappo", 30000, "jitted"))
        self.assertEqual([holds for holds, _ in report.verdicts(records)], [True, False])
        self.assertIn("2.67 times JaxMARL's jitted MAPPO", report.verdicts(records)[1][1])

    def test_with_the_peers_environment_the_bars_are_others(self):
        records = [record("troupe_mpe2", 6000, "troupe_python"), record("rllib:runners=2", 2500)]
        self.assertEqual([holds for holds, _ in report.verdicts(records)], [False, True])
        self.assertIn("Troupe with the peers' environment: 2.40 times RLlib", report.verdicts(records)[0][1])

    def test_a_script_with_grus_is_compared_with_troupe_with_grus(self):
        records = [record("troupe", 80000, "troupe"), record("troupe_gru", 16000, "troupe_recurrent")]
        self.assertEqual([holds for holds, _ in report.verdicts(records)], [True, True])  # the floor, and the share of MLPs
        self.assertIn("Troupe with GRUs: 0.200 of its rate with MLPs, the bar is 0.15", report.verdicts(records)[1][1])
        records += [record("recurrent:threads=1", 4100, "script_recurrent"), record("recurrent:threads=2", 3000, "script_recurrent")]
        self.assertIn("Troupe with GRUs: 3.90 times the plain PyTorch script's best setting (recurrent:threads=1), the bar is 4", report.verdicts(records)[1][1])
        self.assertEqual([holds for holds, _ in report.verdicts(records)], [True, False, True])
        self.assertIn("| 4,100 (4,100–4,100) | 1 | 3.90x |", report.table(records))
        self.assertIn("| 16,000 (16,000–16,000) | 1 | 5.00x |", report.table(records), "of its own rate with MLPs")

    def test_what_makes_a_repetition_doubtful_is_said(self):
        self.assertEqual(report.notes(record("x", 1)), [])
        self.assertEqual(len(report.notes(record("x", 1, foreign_cpu_share=0.04, stolen_cpu_share=0.04))), 1)
        self.assertEqual(len(report.notes(record("x", 1, clock_ratio=0.9))), 1)
        self.assertEqual(len(report.notes(dict(record("x", 1), minibatch_steps_per_iteration=12.0))), 1)

    def test_a_leg_that_only_failed_keeps_its_row(self):
        records = [dict(leg="xuance", role="peer", repetition=0, error="exited with code 1")]
        self.assertIn("| xuance | | failed |", report.table(records))
        self.assertIn("FAILED", report.summary(records))
        self.assertEqual(report.verdicts(records), [])


class SpreadTest(unittest.TestCase):
    """The environment of the script with GRUs against recorded episodes of mpe2's simple_spread."""

    def test_it_is_the_original(self):
        played = 0
        for line in TRACES.read_text().splitlines():
            trace = json.loads(line)
            arguments = trace["args"]
            if not set(arguments) <= {"N", "local_ratio"}:
                continue
            agents, world = trace["agents"], trace["world"]
            env = Spread(2, len(agents), arguments.get("local_ratio", 0.5))
            env.positions[1] = [agent["p_pos"] for agent in world["agents"]]
            env.velocities[1] = [agent["p_vel"] for agent in world["agents"]]
            env.landmarks[1] = [landmark["p_pos"] for landmark in world["landmarks"]]
            # Float32 of the record; the environment beside it is another one, and must not matter.
            np.testing.assert_allclose(env.observe()[1], [trace["reset_obs"][agent] for agent in agents], atol=1e-6)
            env.positions[0] = [[i, 0.5] for i in range(len(agents))]
            for step in trace["steps"]:
                actions = [step["actions"][agent] for agent in agents]
                observations, rewards = env.step(np.array([[0] * len(agents), actions]))
                np.testing.assert_allclose(observations[1], [step["obs"][agent] for agent in agents], atol=1e-6)
                np.testing.assert_allclose(rewards[1], [step["rewards"][agent] for agent in agents], atol=1e-6)
                played += 1
        self.assertGreaterEqual(played, 50)

    def test_a_reset_begins_other_episodes_from_the_seed(self):
        env, again = Spread(3, seed=1), Spread(3, seed=1)
        first = env.reset()
        np.testing.assert_array_equal(first, again.reset())
        env.step(np.ones((3, 3), int))
        second = env.reset()
        self.assertEqual((second.shape, second.dtype, np.abs(env.velocities).max()), ((3, 3, 18), np.float32, 0))
        self.assertGreater(np.abs(second - first).max(), 0.1)
        self.assertLessEqual(max(np.abs(env.positions).max(), np.abs(env.landmarks).max()), 1)


class PolicyMapTest(unittest.TestCase):
    def answers(self, own):
        found = {"rllib": [6000.0, 9000.0, 7000.0], "troupe": own}
        return {subject: [{"us_per_access": us, "miss_share": 0.9} for us in values] for subject, values in found.items()}

    def test_the_bar_is_for_the_worst_of_the_orders(self):
        good, bad = self.answers([50.0, 60.0, 70.0]), self.answers([50.0, 95.0, 71.0])
        holds, lines = policy_map.verdict({("uniform", 0): good})
        self.assertTrue(holds)
        self.assertIn("| 7,000.0 (6,000.0–9,000.0) | 60.0 (50.0–70.0) | 120x |", lines[2])
        holds, lines = policy_map.verdict({("uniform", 0): good, ("zipf", 0): bad})
        self.assertFalse(holds)
        self.assertIn("MISSED", lines[-1])

    def test_orders_are_the_same_each_time_and_within_the_policies(self):
        orders = policy_map.sequences(500, seed=1)
        self.assertEqual(orders, policy_map.sequences(500, seed=1))
        self.assertNotEqual(orders, policy_map.sequences(500, seed=2))
        for numbers in orders.values():
            self.assertEqual((len(numbers), set(numbers) - set(range(policy_map.POLICIES))), (500, set()))
        self.assertGreater(orders["zipf"].count(0), 3 * orders["uniform"].count(0))

    def test_a_subject_that_ends_names_its_log(self):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log")
            subject = policy_map.Subject([sys.executable, "-c", "print('$ a line'); print('{\"x\": 1}')"], 0, log)
            self.assertEqual(subject.ask([1, 2]), {"x": 1})
            with self.assertRaisesRegex(SystemExit, "ended with 0; see .*log"):
                subject.ask([3])


class RunLegTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.log = os.path.join(self.folder.name, "log")
        measure.become_subreaper()

    def run_python(self, code, seconds=0.0):
        return measure.run_leg(
            [sys.executable, "-c", code],
            cpus={min(os.sched_getaffinity(0))},
            seconds=seconds,
            log_path=self.log,
            environment={},
        )

    def test_a_leg_is_pinned_measured_and_its_orphans_are_ended(self):
        code = """
import json, os, subprocess, time
orphan = subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!"], stdout=subprocess.PIPE, start_new_session=True)
pid = int(orphan.stdout.readline())
now = time.monotonic()
marks = [[now, 4000, 120], [now + 2, 12000, 360]]
json.dump(dict(marks=marks, orphan=pid, cpus=len(os.sched_getaffinity(0))), open(os.environ["PEERS_RESULT"], "w"))
"""
        facts = self.run_python(code)
        self.assertAlmostEqual(facts["env_steps_per_s"], 4000, places=3)  # a difference of clock readings
        self.assertEqual(facts["cpus"], 1)
        with self.assertRaises(ProcessLookupError):
            os.kill(facts["orphan"], 0)

    def test_a_leg_that_fails_names_its_log(self):
        with self.assertRaisesRegex(measure.LegFailed, "code 3; see .*log"):
            self.run_python("raise SystemExit(3)")
        with self.assertRaisesRegex(measure.LegFailed, "code 0"):
            self.run_python("pass")  # no result


class TroupeLegTest(unittest.TestCase):
    """The Troupe leg against a stand-in that writes progress.jsonl as `troupe train` does."""

    STAND_IN = """#!%s
import json, os, signal, sys, time
assert sys.argv[1:4] == ["train", "bench.yaml", "--workers"], sys.argv
overrides = dict(a.split("=", 1) for a in sys.argv if "=" in a)
run = os.path.join(overrides["experiment.directory"], "run")
os.makedirs(run)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
begin = time.monotonic()
with open(os.path.join(run, "progress.jsonl"), "w") as f:
    for i in range(1, %d):
        time.sleep(0.05)
        line = json.dumps(dict(env_steps=4000 * i, updates=i, minibatch_steps=120, wall_clock_s=time.monotonic() - begin))
        f.write(line[:20]); f.flush(); f.write(line[20:] + "\\n"); f.flush()
"""

    def run_stand_in(self, lines):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        troupe = os.path.join(folder.name, "troupe")
        with open(troupe, "w") as f:
            f.write(self.STAND_IN % (sys.executable, lines))
        os.chmod(troupe, 0o755)
        command = [sys.executable, str(HERE / "legs" / "troupe_leg.py"), "--seconds", "0.5"]
        return measure.run_leg(
            command + ["--troupe", troupe, "--config", "bench.yaml"],
            cpus=os.sched_getaffinity(0),
            seconds=0.5,
            log_path=os.path.join(folder.name, "log"),
            environment={},
        )

    def test_follows_progress_and_drains(self):
        facts = self.run_stand_in(lines=10_000)
        self.assertEqual(facts["minibatch_steps_per_iteration"], 120)
        self.assertEqual(facts["exit_code"], 0)
        self.assertLess(facts["env_steps_per_s"], 4000 / 0.05)
        self.assertAlmostEqual(facts["clock_ratio"], 1.0, delta=0.2)

    def test_a_run_without_progress_is_a_failure(self):
        with self.assertRaises(measure.LegFailed):
            self.run_stand_in(lines=1)


class ServingTest(unittest.TestCase):
    def serve(self, status=200, chunked=False):
        """-> the port of a server that answers every request, and the list of what it was sent."""
        bodies = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(status)
                self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", "13")))
                self.end_headers()
                self.wfile.write(b'd\r\n{"action": 3}\r\n' if chunked else b'{"action": 3}')
                self.wfile.flush()
                if chunked:
                    self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server.server_address[1], bodies

    def test_clients_count_whole_answers(self):
        for chunked in (False, True):
            port, bodies = self.serve(chunked=chunked)
            count, seconds = serving.load(port, 2, 0.3)
            self.assertEqual(count, len(bodies))
            self.assertGreaterEqual(count, 2, "each has asked")
            self.assertGreaterEqual(seconds, 0.3)
            self.assertEqual([len(body["obs"]) for body in bodies[:2]], [18, 18])

    def test_another_status_is_a_failure(self):
        port, _ = self.serve(status=500)
        with self.assertRaises(ConnectionError):
            serving.load(port, 2, 0.3)

    STAND_IN = """
import http.server, subprocess, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(sys.argv[1], subprocess.Popen(["sleep", "1000"], start_new_session=True).pid, flush=True)
sys.stdin.read()
"""

    def measure_peer(self, program):
        """-> what serving.peer says of a program in the place of a peer's, and the numbers that it printed."""
        measure.become_subreaper()
        with tempfile.TemporaryDirectory() as folder:
            script, log = pathlib.Path(folder, "script.py"), pathlib.Path(folder, "log")
            script.write_text(program)
            with mock.patch.object(serving, "PEERS", {"Stand-in": (str(script),)}), mock.patch.object(serving, "CLIENTS", (1, 2)):
                return serving.peer(sys.executable, "Stand-in", 0.1, log), [int(word) for word in log.read_text().split() if word.isdigit()]

    def test_each_server_has_a_port_of_its_own_and_leaves_nothing(self):
        measured, (port, left) = self.measure_peer(self.STAND_IN)
        self.assertEqual(list(measured), [1, 2])
        self.assertGreater(min(measured.values()), 0)
        with self.assertRaises(ProcessLookupError):
            os.kill(left, 0)
        with socket.create_server(("127.0.0.1", port)):  # somebody else's
            _, (other, _) = self.measure_peer(self.STAND_IN)
        self.assertNotEqual(other, port)

    def test_a_server_that_does_not_begin_says_why(self):
        with self.assertRaisesRegex(RuntimeError, "(?s)^Stand-in: the server has not begun to answer.*no module named serve$"):
            self.measure_peer("import sys; sys.exit('no module named serve')")

    def test_ratios_are_of_the_best_in_the_same_repetition(self):
        words = "bare call, rows 1  7000 queries/s\ncall, rows 1    5000 queries/s\nstream, rows 1  8000 queries/s\nstream, rows 64  1 queries/s\n"
        self.assertEqual(serving.rates(words), {"bare call": 7000.0, "call": 5000.0, "stream": 8000.0})
        repetitions = [{"Troupe": serving.rates(words), "FastAPI": {1: 400.0, 8: fast}, "Ray Serve": {1: 40.0}, "Ray Serve, batched": {1: 80.0}}
                       for fast in (500.0, 1000.0, 800.0)]
        lines, ratios = serving.report(repetitions)
        self.assertEqual(ratios, {"FastAPI": 10.0, "Ray Serve": 200.0, "Ray Serve, batched": 100.0})
        self.assertIn("Troupe beside FastAPI: 10.0 times (8.0 to 16.0)", lines)
        self.assertIn("FastAPI: requests/s by clients: 1: 400; 8: 800", lines)


if __name__ == "__main__":
    unittest.main()
