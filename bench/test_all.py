#!/usr/bin/env python3
"""Tests of bench/all.py without any measurement: what programs print becomes figures, records and tables. python3 bench/test_all.py"""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import all as bench_all  # noqa: E402
import figures  # noqa: E402
import pairs  # noqa: E402


def google(**entries):
    """Google Benchmark's JSON; `__` stands for what a keyword cannot have."""
    return json.dumps({"benchmarks": [dict(values, name=f"{name}_median") for name, values in entries.items()]})


# Of each program what it prints, as far as it is read; then (value, beside) of each figure.
SAMPLES = {
    "ingest": (
        """memcpy, one core: 11.9 GB/s
bare stream, callback -> callback                  4.57     3.63   (0.52, 0.89 ns/B)
bare stream, queue -> callback                     0.49     0.60   (0.70, 0.57 ns/B)
ingest to the training buffer, obs18               1.61     1.41   (1.10, 2.00 ns/B)
ingest to the training buffer, obs64               2.03     1.58   (0.90, 1.63 ns/B)
ingest to the training buffer, obs18-quarter       1.36     1.33   (1.46, 1.57 ns/B)
""",
        [(11.9, ""), (1.61, "4.57 as a bare stream"), (1.41, "3.63 as a bare stream"), (2.03, "4.57 as a bare stream"), (1.58, "3.63 as a bare stream")],
    ),
    "environments": (
        google(**{"Run/spread_random_actions": dict(items_per_second=6.1e6), "Run/spread_random_actions_checked": dict(items_per_second=1e6),
                  "Run/spread_floor_random_actions": dict(items_per_second=12.7e6), "Run/cartpole_random_actions": dict(items_per_second=9e6)}),
        [(6.1, "12.7 where the environment only writes its rows"), (9.0, "")],
    ),
    "a game": ('{"name":"connect_four","env_steps":20032,"env_steps_per_s":4200000.0}\n', [(4.2, "")]),
    "rollout": (
        """rollout (everything)                                    5610000          178.2                 208.33
rollout over 500 policies: 0.26 of the rate of one
rollout at 1.01 of its floor (environments + inference, 6512345 agent-steps/s); recording and the loop take -2.2 ns
""",
        [(5.61, "6.51 as environments and inference alone"), (0.26, "")],
    ),
    "stacked forward": ("one policy                                     23.4 us     1.00 x\nmany policies                                  36.0 us     1.54 x\n", [(1.54, "")]),
    "recurrent forward": (
        """mlp+gru, 3 rows                2.10 us      20.50 us      31.00 us      9.76 x      62.2 %
mlp+gru, 16 rows               8.00 us      40.00 us      48.00 us      5.00 x      84.0 %
mlp+gru, 64 rows              30.00 us      66.00 us      90.00 us      2.20 x      89.2 %
mlp+gru, 192 rows             90.00 us     135.00 us     144.00 us      1.50 x      89.0 %
mlp+lstm, 3 rows               2.90 us      20.50 us      31.00 us      7.07 x      62.2 %
""",
        [(9.76, "2.1 us a call"), (5.0, "8 us a call"), (2.2, "30 us a call"), (1.5, "90 us a call")],
    ),
    "convolutions forward": (
        """84x84x4, DQN's, 4 rows            740.0 us     1682.5 us     2.27 x      86.1 %      37.9 %
84x84x4, DQN's, 16 rows          3100.0 us     6200.0 us     2.00 x      86.4 %      43.2 %
42x42x1, 16 rows                  278.8 us      489.6 us     1.76 x      93.0 %      52.9 %
""",
        [(2.0, "3,100 us a call")],
    ),
    "assembly": (google(BM_Assemble=dict(cpu_time=220), BM_AssembleFloorMemcpy=dict(cpu_time=40)), [(0.22, "0.04 as memcpy of the same")]),
    "update": (
        """fused avx2, 1 thread              104.7      104.0        2.539        13128
fused avx2, 2 threads              60.0       59.0        3.191        10445
fused avx512, 1 thread             67.0       66.9        2.549        13077
fused avx512, 2 threads            36.5       36.0        2.788        11956
LibTorch, 1 thread                214.1      214.1       10.118         3295
LibTorch, 2 threads               144.1      144.1       13.118         2541
of the FMA peak: 1 thread 58.4 % of 208 GFLOP/s, 2 threads 54.5 % of 422 GFLOP/s
""",
        [(67.0, "214 with LibTorch's autograd"), (36.5, "144 with LibTorch's autograd"), (58.4, ""), (54.5, "")],
    ),
    "stacked update": (
        """fused, one after another, 2 threads               27.00      27.00         1599.7
fused, stacked, 2 threads                         18.00      18.00          478.7
fused, one after another, 1 thread                60.00      60.00          938.5
LibTorch, one after another, 2 threads           270.00     270.00        10855.0
""",
        [(15.0, "1.5 times beside the same kernels one after another")],
    ),
    "weights": (
        """unix   0.33 MB to 8 subscribers: first p50 1.79 ms, all p50 3.00 ms, p99 21.29 ms; Publish returns after 841 us
tcp    0.33 MB to 8 subscribers: first p50 2.38 ms, all p50 2.70 ms, p99 17.07 ms; Publish returns after 594 us
""",
        [(3.0, ""), (2.7, "")],
    ),
    "queries": (
        """unix  one row: p50 51 us, p99 128 us; bare call: p50 42 us, p99 98 us; p50 1.21 times (medians of 5 rounds of 400)
tcp   one row: p50 56 us, p99 155 us; bare call: p50 47 us, p99 125 us; p50 1.19 times (medians of 5 rounds of 400)
""",
        [(1.21, "51 us a query"), (1.19, "56 us a query")],
    ),
    "saturation": (
        """bare call, rows 1      7211 queries/s      7211 rows/s; CPU  34.6 us a query at the client,  43.0 at the server; p50   474 us, p99   9346 us
bare call, rows 64     6064 queries/s    388096 rows/s; CPU  41.8 us a query at the client,  43.4 at the server; p50   574 us, p99   8220 us
call, rows 1           4722 queries/s      4722 rows/s; CPU  60.6 us a query at the client,  60.4 at the server; p50   892 us, p99   9449 us
call, rows 64          4068 queries/s    260333 rows/s; CPU  69.7 us a query at the client,  75.9 at the server; p50  1084 us, p99   9631 us
stream, rows 1         6290 queries/s      6290 rows/s; CPU  36.1 us a query at the client,  39.6 at the server; p50   486 us, p99   9083 us
stream, rows 64        5259 queries/s    336588 rows/s; CPU  45.5 us a query at the client,  59.9 at the server; p50   758 us, p99  10368 us
zipf stream, rows 1    4925 queries/s      4925 rows/s; CPU  42.6 us a query at the client,  59.5 at the server; p50   636 us, p99   9738 us
1000 policies, 100 of them resident, by Zipf's law: 0.81 of one policy's rate
""",
        [(4722.0, "7,211 as bare calls"), (6290.0, "7,211 as bare calls"), (336588.0, "388,096 as bare calls"), (0.81, "")],
    ),
    "Python client": (
        """call,   rows  1:   2193 queries/s,    2193 rows/s,  456 us; grpcio alone   4518 queries/s,  221 us; 0.49 of it
stream, rows  1:   4973 queries/s,    4973 rows/s,  201 us; grpcio alone   6401 queries/s,  156 us; 0.78 of it
call,   rows 64:   1526 queries/s,   97688 rows/s,  655 us; grpcio alone   2727 queries/s,  367 us; 0.56 of it
stream, rows 64:   2850 queries/s,  182385 rows/s,  351 us; grpcio alone   5583 queries/s,  179 us; 0.51 of it
load average 2.1
""",
        [(2193.0, "4,518 with grpcio alone"), (4973.0, "6,401 with grpcio alone"), (182385.0, "357,312 with grpcio alone")],
    ),
    "Python policies": ("sampled          4.5 us, median 5.7\ndeterministic    5.5 us, median 6.9\n", [(5.7, "")]),
    "policy map": (
        google(**{"BM_Lookups/real_time/threads:1": dict(cpu_time=605), "BM_LookupsFloorIncrements/real_time": dict(cpu_time=356),
                  "BM_MissThroughTheTier/host:1/real_time": dict(real_time=10_000), "BM_MissThroughTheTier/host:0/real_time": dict(real_time=88_000),
                  "BM_MissFloorMemcpy/real_time": dict(real_time=3_000), "BM_LookupsBesideMisses/0/real_time": dict(cpu_time=500),
                  "BM_LookupsBesideMisses/1/real_time": dict(cpu_time=550)}),
        [(605 / 356, ""), (10.0, "3 as memcpy of the same"), (88.0, ""), (1.1, "")],
    ),
    "end to end": (
        '{"epochs10_lag0": 84000, "epochs10_lag1": 126000, "epochs1_lag0": 500000, "epochs1_lag1": 550000, "epochs10_lag1_rows": 90000}\n',
        [(84000, ""), (1.4, ""), (500000, ""), (550000, ""), (1.1, "")],
    ),
    "processes": (
        """learner, start to ready                      median 0.180 s  min 0.170  max 0.190  (target: at most 2.0 s)
worker, start to an update of its samples    median 0.020 s  min 0.020  max 0.030  (target: at most 0.3 s)
worker, private memory                       median 4.900 MB  min 4.800  max 5.000  (target: at most 25.0 MB)
floor: troupe version                        median 0.010 s  min 0.010  max 0.010
""",
        [(4.9, ""), (0.02, "0.01 as `troupe version` alone"), (0.18, "")],
    ),
    "fragment bytes": (
        """MLP                272.8 bytes an env step,   0.0 more than the MLP: 10 fragments of 2000 to 2000 env steps
GRU of 64 units    305.1 bytes an env step,  32.3 more than the MLP: 10 fragments of 2000 to 2000 env steps
""",
        [(272.8, ""), (32.3, "305 in all")],
    ),
    "round trips": (
        "an update of 90 ms at lag 1, 50 ms: median 0.98 of the rate without a delay, 83.9 ms an update\n"
        "160 KB of rows, 100 ms: median 1.00 round trips beyond the work of 28.0 ms\n"
        "1.1 MB of rows, 100 ms: median 1.07 round trips beyond the work of 91.6 ms\n"
        "4.3 MB of weights, 50 ms: median 1.14 round trips beyond the work of 184.8 ms\n",
        [(1.0, ""), (1.07, ""), (1.14, ""), (0.98, "")],
    ),
    "small fragments": (
        """2 workers 1.97 ms, 64 workers 94.94 ms of CPU an update
a small fragment, CPU of learner and worker  median 1.499 ms  (1.321 to 1.701)
""",
        [(1.499, "")],
    ),
    "many policies": (
        """capacity 1000: 70088 env steps/s (70000 to 70100), ratio 1.000 (1.000 to 1.000), CPU 23.8 s a million env steps (23.8, 22.7)
  12 updates, 900 draws: chi-square 1.003 (p 0.430), memory 434.0 then 440.0 MiB, worker (hits, misses, evictions, waits) (1, 2, 3, 4)
capacity 100: 55293 env steps/s (55000 to 55500), ratio 0.790 (0.760 to 0.820), CPU 29.5 s a million env steps (29.5, 29.4)
capacity 16: 58122 env steps/s (58000 to 58500), ratio 0.830 (0.770 to 0.890), CPU 26.8 s a million env steps (26.8, 28.1)
""",
        [(0.79, "55,293 env steps/s"), (0.83, "58,122 env steps/s")],
    ),
    "learning": (
        """| seed | sampled | deterministic | wall-clock s | env steps |
|---|---|---|---|---|
| 1 | -30.10 | -27.60 | 9.1 | 1000000 |
| worst | -30.60 | -28.30 | | |
| mean | -30.20 | -27.70 | 9.3 | |
""",
        [(-30.6, "9.3 s a run"), (-28.3, "")],
    ),
    "learning cartpole": ("| worst | 1000.00 | 1000.00 | | |\n", [(1000.0, "")]),
    "Python environments": (
        """mpe2 simple_spread_v3, one process
  host, pipelined       1,649 /s; 1,653 / CPU s
  host, rounds          1,500 /s; host, pipelined / this: 1.10 (1.00 to 1.37); 2,560 / CPU s, ratio 0.90 (0.90 to 0.90)
  bare loop             1,812 /s; host, pipelined / this: 0.91 (0.81 to 1.02); 2,597 / CPU s, ratio 0.89 (0.89 to 0.89)
lbforaging Foraging-8x8-2p-2f-coop-v3, one process
  host, pipelined       6,110 /s; 6,139 / CPU s
  host, rounds          5,000 /s; host, pipelined / this: 1.22 (1.00 to 1.96); 9,867 / CPU s, ratio 0.97 (0.97 to 0.97)
  bare loop             6,943 /s; host, pipelined / this: 0.88 (0.79 to 0.96); 11,270 / CPU s, ratio 0.85 (0.85 to 0.85)
dummy of 5 us, two agents, one process
  host, pipelined      91,665 /s; 93,649 / CPU s
  bare loop            20,541 /s; host, pipelined / this: 6.26 (6.26 to 6.26); 176,704 / CPU s, ratio 0.79 (0.79 to 0.79)
dummy of 5 us, 1 process(es) each
  host, pipelined      91,000 /s; 93,000 / CPU s
  AsyncVectorEnv        3,800 /s; host, pipelined / this: 24.00 (23.00 to 25.00)
  concat_vec_envs      19,000 /s; host, pipelined / this: 4.80 (4.70 to 4.90)
84x84x4 uint8, four agents (GB/s)
  host, pipelined        5.60 /s; 5.70 / CPU s
""",
        [(0.91, "1,649 env steps/s"), (0.88, "6,110 env steps/s"), (91665, ""), (24.0, ""), (4.8, ""), (5.6, "")],
    ),
    "faults of Python environments": ("\nmedian: 0.95 by the clock, 0.98 by CPU seconds, the bar is 0.9\n", [(0.98, "0.95 by the clock")]),
    "native beside Python": (
        """| quarter | as it is: mean (each seed) | other: mean (each seed) | difference | allowed |
|---|---|---|---|---|
| 1 | -70.00 (-70.00, -71.00) | -69.50 (-69.50) | +0.50 | 0.80 |
| 4 | -50.00 (-50.00) | -51.30 (-51.30) | -1.30 | 3.80 |
""",
        [(0.625, "")],
    ),
    "peers": (
        """| leg | steps | env steps/s: median (min–max) | n | Troupe is | minibatch steps / iteration | iteration s |
|---|---|---|---|---|---|---|
| troupe | native | 84,185 (83,617–87,287) | 5 |  | 120 | 0.05 |
| troupe_mpe2 | mpe2 | 2,878 (2,800–2,900) | 5 | 29.25x | 120 | 1.4 |
| rllib:runners=2,envs=40 | mpe2 | 2,242 (1,413–2,379) | 5 | 37.55x | 125 | 1.8 |
| sample_factory:workers=2,envs=8 | PettingZoo | 2,324 (2,166–2,486) | 5 | 36.22x | 120 | 1.7 |
| xuance:algorithm=mappo,envs=16 | PettingZoo | 1,887 (1,572–2,117) | 5 | 44.61x | 120 | 2.1 |
| skrl:algorithm=mappo,threads=1 | mpe2 | 967 (952–1,068) | 5 | 87.06x | 120 | 4.1 |
| troupe_gru | native | 14,900 (14,000–15,100) | 5 | 5.65x | 120 | 0.3 |
| reference:threads=2 | numpy | 15,418 (12,021–18,963) | 5 | 5.46x | 120 | 0.3 |
| recurrent:threads=1 | numpy | 2,710 (2,600–2,800) | 5 | 5.50x | 120 | 1.5 |
| jaxmarl:algorithm=mappo | jitted | 20,700 (20,000–21,000) | 5 | 4.07x | 120 | 0.2 |
| jaxmarl:algorithm=ippo | jitted | 24,400 (24,000–25,000) | 5 | 3.45x | 120 | 0.2 |

met:    Troupe 84,185 env steps/s, the bar is 10,000
met:    Troupe: 37.55 times RLlib's best setting (rllib:runners=2,envs=40), the bar is 8
met:    Troupe: 36.22 times the best framework (sample_factory:workers=2,envs=8), the bar is 5
met:    Troupe: 5.46 times the plain PyTorch script's best setting (reference:threads=2), the bar is 1.2
met:    Troupe: 4.07 times JaxMARL's jitted MAPPO (jaxmarl:algorithm=mappo), the bar is 3
MISSED: Troupe with the peers' environment: 1.28 times RLlib's best setting (rllib:runners=2,envs=40), the bar is 2.5
MISSED: Troupe with the peers' environment: 1.24 times the best framework (sample_factory:workers=2,envs=8), the bar is 1.5
met:    Troupe with GRUs: 5.50 times the plain PyTorch script's best setting (recurrent:threads=1), the bar is 4
met:    Troupe with GRUs: 0.177 of its rate with MLPs, the bar is 0.15
""",
        [(84185, ""), (2242, "`rllib:runners=2,envs=40`; Troupe: 37.5 times"), (2324, "`sample_factory:workers=2,envs=8`; Troupe: 36.2 times"),
         (1887, "`xuance:algorithm=mappo,envs=16`; Troupe: 44.6 times"), (967, "`skrl:algorithm=mappo,threads=1`; Troupe: 87.1 times"),
         (15418, "`reference:threads=2`; Troupe: 5.46 times"), (14900, ""), (2710, "`recurrent:threads=1`; Troupe: 5.5 times"), (20700, "`jaxmarl:algorithm=mappo`; Troupe: 4.07 times"),
         (24400, "`jaxmarl:algorithm=ippo`; Troupe: 3.45 times"), (37.55, ""), (36.22, ""), (5.46, ""), (4.07, ""), (5.5, ""), (0.177, ""), (2878, ""), (1.28, ""), (1.24, "")],
    ),
    "peers' policy map": (
        """| order of accesses | states swappable | misses | RLlib, us per access | Troupe, us per access | Troupe is |
|---|---|---|---|---|---|
| uniform | no | 90%, Troupe 90% | 13,064.1 (10,851.0–15,424.0) | 54.8 (53.3–67.6) | 225x |
| zipf | no | 58%, Troupe 58% | 6,240.0 (5,454.0–8,786.0) | 30.8 (30.2–33.1) | 191x |
| uniform | yes | 90%, Troupe 90% | 3,492.0 (3,325.0–3,637.0) | 16.0 (15.7–16.5) | 213x |
| zipf | yes | 58%, Troupe 58% | 2,121.0 (2,094.0–2,199.0) | 9.5 (9.3–9.7) | 225x |

met:    191 times at least, the bar is 100
""",
        [(191, ""), (54.8, "13,064 us: RLlib's"), (30.8, "6,240 us: RLlib's"), (16.0, "3,492 us: RLlib's"), (9.5, "2,121 us: RLlib's")],
    ),
}
FIGURES = [(program, figure) for program in figures.PROGRAMS for figure in program.figures]


class FiguresTest(unittest.TestCase):
    def test_each_is_read_from_what_its_program_prints(self):
        self.assertEqual(sorted(SAMPLES), sorted(program.name for program in figures.PROGRAMS))
        for program in figures.PROGRAMS:
            output, expected = SAMPLES[program.name]
            self.assertEqual(len(expected), len(program.figures), program.name)
            for figure, (value, beside) in zip(program.figures, expected):
                with self.subTest(figure.what):
                    entry = bench_all.measure(figure, output, None)
                    self.assertNotIn("error", entry)
                    self.assertAlmostEqual(entry["value"], value)
                    self.assertEqual(entry["beside"], beside)

    def test_names_are_unique_and_programs_are_there(self):
        names = [figure.what for _, figure in FIGURES]
        self.assertEqual(len(set(names)), len(names))
        for program in figures.PROGRAMS:
            for part in program.command:
                if part.endswith(".py"):
                    self.assertTrue(pathlib.Path(part).is_file(), part)
                elif part.startswith("{build}/bench/"):
                    self.assertTrue((figures.BENCH / (part.rpartition("/")[2] + ".cc")).is_file(), part)

    def test_targets(self):
        for at, value, met in ((dict(at_least=5), 5, True), (dict(at_least=5), 4.9, False), (dict(at_most=5), 5.1, False), ({}, 1, None)):
            self.assertEqual(figures.Figure("a figure", "", None, **at).met(value), met)


class PairsTest(unittest.TestCase):
    """A program of two builds, whose outputs are here."""

    def pairs(self, *arguments, outputs):
        """(exit status, what it printed): the new build's program and the old one's print `outputs` in turns."""
        asked, out = [], io.StringIO()

        def run(command, **_):
            asked.append("new" if any("new/build" in part for part in command) else "old")
            return mock.Mock(stdout=outputs[asked[-1]], stderr="", returncode=0)
        with mock.patch.object(pairs.subprocess, "run", run), mock.patch.object(sys, "argv", ["pairs.py", "new", "old", "--pairs", "3", *arguments]), \
                contextlib.redirect_stdout(out):
            status = pairs.main()
        self.assertEqual(asked, ["new", "old", "old", "new", "new", "old"], "who goes first changes")
        return status, out.getvalue()

    def test_a_ratio_above_one_is_better_whichever_way_the_figure_goes(self):
        rollout = "rollout (everything)  {} 1 1\n500 policies: {} of it\n"
        outputs = {"new": rollout.format(2000000, 0.3), "old": rollout.format(1000000, 0.3)}
        status, out = self.pairs("--program", "rollout", outputs=outputs)
        self.assertEqual(status, 0, out)
        self.assertRegex(out, r"(?m)^ 3  new +2  old +1  ratio 2\.000  rollout, one core")
        self.assertRegex(out, r"rollout over 500 policies.*: medians new 0\.3, old 0\.3; ratio 1\.000, 95 % interval 1\.000 to 1\.000")
        forward = "many policies 10 us {} x\n"
        status, out = self.pairs("--program", "stacked forward", outputs={"new": forward.format(2.0), "old": forward.format(1.0)})
        self.assertEqual(status, 1, "twice as long is half as good")
        self.assertRegex(out, r"ratio 0\.500, 95 % interval 0\.500 to 0\.500")

    def test_a_setting_of_the_new_one_alone_is_not_the_old_ones(self):
        asked = []

        def rate(build, env_steps, workers, sets=()):
            asked.append((os.path.dirname(os.path.dirname(build)), tuple(sets)))
            return 10 if "x=2" in sets else 40
        with mock.patch.object(pairs, "rate", rate), contextlib.redirect_stdout(io.StringIO()) as out, \
                mock.patch.object(sys, "argv", ["pairs.py", "a", "b", "--pairs", "2", "--set", "y=1", "--new-set", "x=2", "--at-least", "0.3"]):
            status = pairs.main()
        self.assertEqual(asked, [("a", ("y=1", "x=2")), ("b", ("y=1",)), ("b", ("y=1",)), ("a", ("y=1", "x=2"))])
        self.assertEqual(status, 1, "a quarter is less than 0.3")
        self.assertRegex(out.getvalue(), r"ratio 0\.250, 95 % interval 0\.250 to 0\.250")

    def test_settings_are_not_of_a_program(self):
        with mock.patch.object(sys, "argv", ["pairs.py", "a", "b", "--program", "rollout", "--new-set", "x=2"]), \
                contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(SystemExit):
            pairs.main()
        self.assertIn("--set and --new-set are of the main job", err.getvalue())

    def test_what_a_program_does_not_print_ends_it(self):
        with self.assertRaisesRegex(SystemExit, r"without \['forward of 256 rows"):
            self.pairs("--program", "stacked forward", outputs={"new": "something else", "old": "something else"})


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.asked = []
        (self.folder / "docs").mkdir()
        for name in ("README.md", "docs/benchmarks.md"):
            (self.folder / name).write_text((bench_all.ROOT / name).read_text())
        for patch in (mock.patch.object(bench_all, "ROOT", self.folder), mock.patch.object(bench_all, "RECORDED", self.folder / "recorded.json"),
                      mock.patch.object(bench_all, "commit", lambda: "abc1234"), mock.patch.object(bench_all, "machine", lambda: "2 x a cpu"),
                      mock.patch.object(bench_all, "run", self.sample)):
            patch.start()
            self.addCleanup(patch.stop)
        self.broken = {}

    def sample(self, program, places):
        self.asked.append(program.name)
        if program.name in self.broken:
            return self.broken[program.name]
        return (None, "needs --python") if places["python"] is None and "{python}" in program.command else (SAMPLES[program.name][0], None)

    def all(self, *arguments):
        """(exit status, what it printed)"""
        out = io.StringIO()
        with mock.patch.object(sys, "argv", ["all.py", *arguments, "--json", str(self.folder / "bench.json")]), contextlib.redirect_stdout(out):
            status = bench_all.main()
        return status, out.getvalue()

    def document(self, name):
        return (self.folder / name).read_text()

    def test_one_run_is_recorded_and_fills_the_tables(self):
        status, printed = self.all("--python", "python3", "--record")
        self.assertEqual(status, 1, "some of the samples miss their targets")
        self.assertEqual(self.asked, [program.name for program in figures.PROGRAMS])
        self.assertEqual(printed.count("not recorded yet"), len(FIGURES), "there was nothing before")
        recorded = json.loads((self.folder / "recorded.json").read_text())
        self.assertEqual((recorded["machine"], recorded["commit"], len(recorded["figures"])), ("2 x a cpu", "abc1234", len(FIGURES)))
        table = self.document("docs/benchmarks.md")
        self.assertNotIn("not recorded yet", table)
        self.assertIn("One run: 2 x a cpu, commit abc1234, ", table)
        self.assertIn("| rollout over 500 policies, of the rate of one | 0.26 of it |  | ≥ 0.25: met | rollout |\n", table)
        self.assertIn("| assembly of 12,000 rows of 18 floats | 0.22 ms | 0.04 ms as memcpy of the same | ≤ 2: met | assembly |\n", table)
        self.assertIn("| learner: from start to ready | 0.18 s |  | ≤ 2: met | processes |\n", table)
        self.assertIn("| the same, 2 threads | 54.5 % |  | ≥ 58: **missed**, memcpy 11.9 GB/s | update |\n", table)
        self.assertIn("38 times as fast as RLlib", " ".join(self.document("README.md").split()))
        self.assertIn("| worker: private memory | 4.9 MB |  |\n", self.document("README.md"))
        self.assertIn(" | 0.02 s | 0.01 s as `troupe version` alone |\n", self.document("README.md"))
        # The next one says what it was, and where.
        self.asked.clear()
        _, printed = self.all("--python", "python3", "--only", "rollout")
        self.assertEqual(self.asked, ["rollout"])
        self.assertRegex(printed, r"\| rollout over 500 policies, of the rate of one \| 0\.26 of it \|  \| ≥ 0\.25: met \| 0\.26 of it \(2 x a cpu, memcpy 11\.9 GB/s, abc1234, \d{4}-")
        # A part that does not measure it says nothing of it.
        self.assertRegex(self.all("--only", "update")[1], r"\| the same, 2 threads \| 54\.5 % \|  \| ≥ 58: \*\*missed\*\* \| 54\.5 % \(2 x a cpu, memcpy 11\.9 GB/s, ")

    def test_what_the_recorded_run_did_not_measure_has_no_row(self):
        self.broken["weights"] = None, "/no/bench: No such file or directory"
        self.all("--python", "python3", "--record")
        recorded = json.loads((self.folder / "recorded.json").read_text())
        del recorded["figures"]["worker: private memory"]
        (self.folder / "recorded.json").write_text(json.dumps(recorded))
        self.assertEqual(self.all("--docs"), (0, ""))
        for name in ("docs/benchmarks.md", "README.md"):
            table = self.document(name).partition(bench_all.MARKS[0])[2].partition(bench_all.MARKS[1])[0]
            for absent in ("not recorded", "not measured", "weights of 0.33 MB", "worker: private memory"):
                self.assertNotIn(absent, table)
            self.assertIn("| worker: from start until an update of its samples | 0.02 s |", table)

    def test_without_a_recorded_run_there_is_nothing_to_write_and_it_says_so(self):
        before = self.document("docs/benchmarks.md"), self.document("README.md")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(self.all("--docs"), (1, ""))
        self.assertEqual(said.getvalue(), "bench/all.py: no run is recorded, so docs/benchmarks.md and README.md stay as they are; --record measures "
                                          "and records one\n")
        self.assertEqual((self.document("docs/benchmarks.md"), self.document("README.md")), before)
        self.all("--python", "python3", "--record")
        (self.folder / "README.md").write_text(before[1])
        self.assertEqual(self.all("--docs"), (0, ""))
        self.assertIn("| worker: private memory | 4.9 MB |  |\n", self.document("README.md"))

    def test_what_is_not_measured_is_said_and_fails(self):
        status, printed = self.all("--only", "Python environments")
        self.assertEqual(status, 1)
        self.assertEqual(printed.count("not measured: needs --python"), 7)
        self.broken["learning cartpole"] = "something else\n", None
        status, printed = self.all("--only", "learning cartpole")
        self.assertEqual((status, printed.count("not measured: not found in the output")), (1, 1))
        self.broken["environments"] = "no JSON", None
        self.assertIn("not measured: not found in the output: JSONDecodeError", self.all("--only", "environments")[1])
        self.broken["weights"] = None, "/no/bench: No such file or directory"
        self.assertIn("not measured: /no/bench: No such file or directory", self.all("--only", "weights")[1])
        self.assertEqual(self.all("--only", "rollout")[0], 0)

    def test_a_run_that_was_cut_short_goes_on(self):
        self.all("--only", "rollout", "weights")
        self.asked.clear()
        self.all("--go-on", "--only", "rollout", "weights", "queries")
        self.assertEqual(self.asked, ["queries"])
        with mock.patch.object(bench_all, "commit", lambda: "def5678"):
            self.all("--go-on", "--only", "rollout")
        self.assertEqual(self.asked, ["queries", "rollout"], "another commit is another run")

    def test_a_part_is_not_recorded(self):
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
            self.all("--record", "--only", "rollout")
        self.assertIn("--record takes a whole run", said.getvalue())


class DocumentsTest(unittest.TestCase):
    def test_documents_have_what_is_recorded_and_nothing_else(self):
        """Who changes a figure by hand, or a target, has to run bench/all.py --docs."""
        for path, text in bench_all.documents(bench_all.read(bench_all.RECORDED)).items():
            self.assertEqual(path.read_text(), text, path)
        self.assertRegex((bench_all.ROOT / "README.md").read_text(), bench_all.HEADLINE)


if __name__ == "__main__":
    unittest.main()
