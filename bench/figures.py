"""The figures of docs/benchmarks.md: which program measures each, how its output is read, what stands beside it, and its target."""

import dataclasses
import json
import pathlib
import re
import sys

BENCH = pathlib.Path(__file__).resolve().parent
EXAMPLES = BENCH.parent / "examples"


@dataclasses.dataclass(frozen=True)
class Figure:
    """One row. `measured` takes a program's output to a number, or None; `beside` to words, or None. `same_unit`: the words begin with a number
    in the figure's unit, which is shown behind it. `in_readme`: README has it, too."""

    what: str
    unit: str
    measured: object
    beside: object = None
    at_least: float | None = None
    at_most: float | None = None
    same_unit: bool = False
    in_readme: bool = False

    def target(self):
        if self.at_least is not None:
            return f"≥ {self.at_least:,g}"
        return "" if self.at_most is None else f"≤ {self.at_most:,g}"

    def met(self, value):
        """True, False, or None without a target."""
        if self.at_least is not None:
            return value >= self.at_least
        return None if self.at_most is None else value <= self.at_most


@dataclasses.dataclass(frozen=True)
class Program:
    """`command` with {build}, {python} and {rounds} filled in; its output goes to the figures. `one_core`: pinned to a core."""

    name: str
    command: tuple
    figures: tuple
    one_core: bool = False


def number(value):
    """As it is shown: three digits, or whole thousands."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def text(pattern, scale=1.0):
    """The number in the first group of a pattern, in the printed output."""

    def take(output):
        found = re.search(pattern, output)
        return None if found is None else float(found[1].replace(",", "")) * scale

    return take


def ratio(above, below):
    def take(output):
        a, b = above(output), below(output)
        return None if a is None or not b else a / b

    return take


def greatest(pattern):
    """The largest quotient of a pattern's two groups, without their signs."""

    def take(output):
        found = re.findall(pattern, output)
        return max((abs(float(a)) / float(b) for a, b in found), default=None)

    return take


def google(name, key, scale=1.0):
    """The median over repetitions of a Google Benchmark's number."""

    def take(output):
        values = [b[key] for b in json.loads(output)["benchmarks"] if b["name"].removesuffix("_median") == name and key in b]
        return values[-1] * scale if values else None

    return take


def last_json(key, scale=1.0):
    def take(output):
        value = json.loads(output.splitlines()[-1])
        for part in key.split("/"):
            value = value[part]
        return value * scale

    return take


def near(measured, words):
    """`beside`: a number and what it is."""

    def take(output):
        value = measured(output)
        return None if value is None else f"{number(value)} {words}"

    return take


def leg(name):
    """The median env steps/s of a row of the peers' table; `name` is a pattern of its first words."""
    return text(rf"(?m)^\| {name}[^|]* \| [^|]* \| ([\d,]+) \(")


def peer(title, name):
    """A row of its own for one of the peers; beside it the setting and how many times as fast Troupe is."""

    def beside(output):
        found = re.search(rf"(?m)^\| ({name}[^|]*) \| [^|]* \| [^|]* \| [^|]* \| ([\d.]+)x", output)
        return None if found is None else f"`{found[1]}`; Troupe: {number(float(found[2]))} times"

    return Figure(title, "env steps/s", leg(name), beside)


GOOGLE = ("--benchmark_format=json", "--benchmark_repetitions={rounds}", "--benchmark_report_aggregates_only=true")
TRAIN = (sys.executable, "-B", str(BENCH / "all.py"), "{build}", "--train", "--rounds", "{rounds}")
TROUPE = "{build}/services/cli/troupe"

PROGRAMS = (
    Program(
        "ingest",
        ("{build}/bench/ingest_bench", "--trials", "{rounds}"),
        (
            Figure("memcpy, one core", "GB/s", text(r"memcpy, one core: ([\d.]+)")),
            *(
                Figure(
                    f"payload from a worker process into the training buffer, {socket}, observations of {floats} floats",
                    "GB/s",
                    text(rf"training buffer, obs{floats} {place}"),
                    near(text(rf"bare stream, callback -> callback {place}"), "as a bare stream"),
                    same_unit=True,
                    at_least=1.5,
                )
                for floats in (18, 64)
                for socket, place in (("Unix socket", r"+([\d.]+)"), ("TCP", r"+[\d.]+ +([\d.]+)"))
            ),
        ),
    ),
    Program(
        "environments",
        ("{build}/bench/env_bench", *GOOGLE),
        (
            Figure(
                "`mpe/simple_spread`, random actions, one core",
                "M env steps/s",
                google("Run/spread_random_actions", "items_per_second", 1e-6),
                near(google("Run/spread_floor_random_actions", "items_per_second", 1e-6), "where the environment only writes its rows"),
                same_unit=True,
                at_least=1.0,
                in_readme=True,
            ),
            Figure("`cartpole` with two agents, random actions, one core", "M env steps/s", google("Run/cartpole_random_actions", "items_per_second", 1e-6)),
        ),
        one_core=True,
    ),
    Program(
        "a game",
        (TROUPE, "envs", "bench", "connect_four", "--env-steps", "2000000", "--json"),
        (Figure("`connect_four`, random actions, one core", "M env steps/s", last_json("env_steps_per_s", 1e-6)),),
        one_core=True,
    ),
    Program(
        "rollout",
        ("{build}/bench/rollout_bench", "--repetitions", "9"),
        (
            Figure(
                "rollout, one core: environments, actor, sampling, log-probabilities, recording",
                "M agent-steps/s",
                text(r"rollout \(everything\) +(\d+)", 1e-6),
                near(text(r"floor \(environments \+ inference, (\d+)", 1e-6), "as environments and inference alone"),
                same_unit=True,
                at_least=1.0,
                in_readme=True,
            ),
            Figure("rollout over 500 policies, of the rate of one", "of it", text(r"500 policies: ([\d.]+) of"), at_least=0.25),
        ),
        one_core=True,
    ),
    Program(
        "stacked forward",
        ("{build}/bench/stacked_forward_bench",),
        (Figure("forward of 256 rows over 64 policies, beside one policy", "times", text(r"many policies +[\d.]+ us +([\d.]+) x"), at_most=2.5),),
        one_core=True,
    ),
    Program(
        "recurrent forward",
        ("{build}/bench/recurrent_forward_bench",),
        tuple(
            Figure(
                f"decision of an actor with a GRU of 64 units for {rows} rows, beside LibTorch",
                "times",
                text(rf"mlp\+gru, {rows} rows +.* us +([\d.]+) x"),
                near(text(rf"mlp\+gru, {rows} rows +([\d.]+) us"), "us a call"),
                at_least=target,
            )
            for rows, target in ((3, 4.0), (16, 4.0), (64, 2.0), (192, 1.4))
        ),
        one_core=True,
    ),
    Program(
        "convolutions forward",
        ("{build}/bench/conv_forward_bench",),
        (
            Figure(
                "decision of an actor with DQN's layers for 16 images of 84x84x4, beside LibTorch",
                "times",
                text(r"DQN's, 16 rows +.* us +([\d.]+) x"),
                near(text(r"DQN's, 16 rows +([\d.]+) us"), "us a call"),
                at_least=1.0,
            ),
        ),
        one_core=True,
    ),
    Program(
        "assembly",
        ("{build}/bench/assemble_bench", *GOOGLE),
        (
            Figure(
                "assembly of 12,000 rows of 18 floats",
                "ms",
                google("BM_Assemble", "cpu_time", 1e-3),
                near(google("BM_AssembleFloorMemcpy", "cpu_time", 1e-3), "as memcpy of the same"),
                same_unit=True,
                at_most=2.0,
            ),
        ),
    ),
    Program(
        "update",
        ("{build}/bench/update_bench", "9"),
        (
            *(
                Figure(
                    f"update of 120 minibatch steps of 1000 rows, {threads}",
                    "ms",
                    text(rf"fused avx(?:512|2), {threads} +([\d.]+)(?![\s\S]*fused avx\d+, {threads})"),
                    near(text(rf"LibTorch, {threads} +([\d.]+)"), "with LibTorch's autograd"),
                    same_unit=True,
                )
                for threads in ("1 thread", "2 threads")
            ),
            Figure("the same, share of the measured FMA peak, 1 thread", "%", text(r"of the FMA peak: 1 thread ([\d.]+) %"), at_least=58),
            Figure("the same, 2 threads", "%", text(r"of the FMA peak: .*2 threads ([\d.]+) %"), at_least=58),
        ),
    ),
    Program(
        "stacked update",
        ("{build}/bench/stacked_update_bench", "{rounds}"),
        (
            Figure(
                "update of 64 policies with 128 rows each, beside LibTorch one after another",
                "times",
                ratio(text(r"LibTorch, one after another, 2 threads +([\d.]+)"), text(r"fused, stacked, 2 threads +([\d.]+)")),
                near(
                    ratio(text(r"fused, one after another, 2 threads +([\d.]+)"), text(r"fused, stacked, 2 threads +([\d.]+)")),
                    "times beside the same kernels one after another",
                ),
                at_least=4.0,
            ),
        ),
    ),
    Program(
        "weights",
        ("{build}/bench/weights_bench",),
        tuple(
            Figure(f"weights of 0.33 MB to 8 subscribers, {words}, p50", "ms", text(rf"{socket} +0.33 MB.* all p50 ([\d.]+)"), at_most=5.0)
            for socket, words in (("unix", "Unix socket"), ("tcp", "TCP"))
        ),
    ),
    Program(
        "queries",
        ("{build}/bench/query_bench",),
        tuple(
            Figure(
                f"one-row policy query, {words}, p50 beside a bare call",
                "times",
                text(rf"{socket} +one row: .*p50 ([\d.]+) times"),
                near(text(rf"{socket} +one row: p50 ([\d.]+) us"), "us a query"),
                at_most=1.5,
            )
            for socket, words in (("unix", "Unix socket"), ("tcp", "TCP"))
        ),
    ),
    Program(
        "saturation",
        ("{build}/bench/saturation_bench", "--rounds", "{rounds}"),
        (
            *(
                Figure(
                    f"a policy service asked by 16 clients on the same cores, {words}",
                    unit,
                    text(rf"(?m)^{kind}, rows {rows} .* ([\d.]+) {unit}"),
                    near(text(rf"(?m)^bare call, rows {rows} +(\d+) queries/s", rows), "as bare calls"),
                    same_unit=True,
                    at_least=bar,
                )
                for kind, rows, words, unit, bar in (
                    ("call", 1, "calls of one row", "queries/s", None),
                    ("stream", 1, "streams of one row each", "queries/s", 25_000),
                    ("stream", 64, "streams of 64 rows each", "rows/s", 1_000_000),
                )
            ),
            Figure("the same of 1,000 policies by Zipf's law, 100 of them resident, of the rate of one", "of it", text(r"Zipf's law: ([\d.]+) of"), at_least=0.5),
        ),
    ),
    Program(
        "Python client",
        ("{python}", "-B", str(BENCH / "python_client_bench.py"), "{build}", "--rounds", "{rounds}"),
        tuple(
            Figure(
                f"a policy service asked by one Python thread, {words}",
                unit,
                text(rf"{kind}, +rows +{rows}: .*?([\d.]+) {unit}"),
                near(text(rf"{kind}, +rows +{rows}: .*grpcio alone +(\d+) queries/s", rows), "with grpcio alone"),
                same_unit=True,
                at_least=bar,
            )
            for kind, rows, words, unit, bar in (
                ("call", 1, "calls of one row", "queries/s", None),
                ("stream", 1, "a stream of one row each", "queries/s", 4000),
                ("stream", 64, "a stream of 64 rows each", "rows/s", 150_000),
            )
        ),
    ),
    Program(
        "Python policies",
        ("{python}", "-B", str(BENCH / "act_bench.py"), "--repeat", "{rounds}"),
        (Figure("`Policy.act` of one row, 18 floats through two layers of 64, sampled", "us", text(r"sampled .*median ([\d.]+)"), at_most=30),),
    ),
    Program(
        "policy map",
        ("{build}/bench/policy_map_bench", *GOOGLE),
        (
            Figure(
                "64 lookups among 1,000 policies, beside 64 atomic increments",
                "times",
                ratio(google("BM_Lookups/real_time/threads:1", "cpu_time"), google("BM_LookupsFloorIncrements/real_time", "cpu_time")),
                at_most=3.0,
            ),
            Figure(
                "a miss of 0.33 MB from host memory",
                "us",
                google("BM_MissThroughTheTier/host:1/real_time", "real_time", 1e-3),
                near(google("BM_MissFloorMemcpy/real_time", "real_time", 1e-3), "as memcpy of the same"),
                same_unit=True,
                at_most=150,
            ),
            Figure("a miss of 0.33 MB from disk", "us", google("BM_MissThroughTheTier/host:0/real_time", "real_time", 1e-3), at_most=2000),
            Figure(
                "others' lookups while a thread misses all the time, beside without",
                "times",
                ratio(google("BM_LookupsBesideMisses/1/real_time", "cpu_time"), google("BM_LookupsBesideMisses/0/real_time", "cpu_time")),
                at_most=2.0,
            ),
        ),
    ),
    Program(
        "end to end",
        TRAIN,
        (
            Figure(
                "main job: 2 workers, gRPC, 4000 env steps a batch, 120 minibatch steps of 1000 rows, lag 0", "env steps/s", last_json("epochs10_lag0"), at_least=10_000
            ),
            Figure(
                "main job, lag 1, with `minibatch_by: env_steps` beside `rows`", "times", ratio(last_json("epochs10_lag1"), last_json("epochs10_lag1_rows")), at_least=1.35
            ),
            Figure("one pass over the data (num_epochs: 1), lag 0", "env steps/s", last_json("epochs1_lag0"), at_least=480_000),
            Figure("one pass over the data, lag 1", "env steps/s", last_json("epochs1_lag1"), at_least=480_000),
            Figure("one pass over the data, lag 1 beside lag 0", "times", ratio(last_json("epochs1_lag1"), last_json("epochs1_lag0")), at_least=1.0),
        ),
    ),
    Program(
        "processes",
        (sys.executable, "-B", str(BENCH / "footprint_bench.py"), "{build}", "--repetitions", "{rounds}"),
        (
            Figure("worker: private memory", "MB", text(r"worker, private memory +median ([\d.]+)"), at_most=25, in_readme=True),
            Figure(
                "worker: from start until an update of its samples",
                "s",
                text(r"worker, start to an update of its samples +median ([\d.]+)"),
                near(text(r"floor: troupe version +median ([\d.]+)"), "as `troupe version` alone"),
                same_unit=True,
                at_most=0.3,
                in_readme=True,
            ),
            Figure("learner: from start to ready", "s", text(r"learner, start to ready +median ([\d.]+)"), at_most=2.0),
        ),
    ),
    Program(
        "fragment bytes",
        (sys.executable, "-B", str(BENCH / "fragment_bytes.py"), "{build}"),
        (
            Figure("a fragment of simple_spread on the wire, an env step", "bytes", text(r"(?m)^MLP +([\d.]+) bytes"), at_most=276),
            Figure(
                "the same with a GRU of 64 units in actor and critic, sequences of 25: more than that",
                "bytes",
                text(r"(?m)^GRU of 64 units +[\d.]+ bytes an env step, +([\d.]+) more"),
                near(text(r"(?m)^GRU of 64 units +([\d.]+) bytes"), "in all"),
                same_unit=True,
                at_most=45,
            ),
        ),
    ),
    Program(
        "small fragments",
        (sys.executable, "-B", str(BENCH / "small_fragments_bench.py"), "{build}", "--repetitions", "{rounds}"),
        (
            Figure(
                "a fragment of 8 env steps, 64 workers: CPU of learner and worker together, with its grant and the weights for the next",
                "ms",
                text(r"a small fragment, CPU of learner and worker +median ([\d.]+)"),
                at_most=0.3,
            ),
        ),
    ),
    Program(
        "round trips",
        (sys.executable, "-B", str(BENCH / "round_trips_bench.py"), "{build}"),
        tuple(
            Figure(f"an update over a network of {trip} ms with {what}, beyond the work itself", "round trips",
                   text(rf"(?m)^{what}, {trip} ms: median ([\d.]+)"), at_most=bar)
            for what, trip, bar in (("160 KB of rows", 100, 1.2), ("1.1 MB of rows", 100, 1.2), ("4.3 MB of weights", 50, 2))
        )
        + (
            Figure("an update of 90 ms at lag 1 over a network of 50 ms, of the rate without a delay", "times",
                   text(r"(?m)^an update of 90 ms at lag 1, 50 ms: median ([\d.]+)"), at_least=0.85),
        ),
    ),
    Program(
        "many policies",
        (sys.executable, "-B", str(BENCH / "many_policies_bench.py"), "{build}"),
        tuple(
            Figure(
                f"1,000 policies drawn by Zipf's law, {capacity} of them resident, of the rate with all",
                "of it",
                text(rf"capacity {capacity}: .*?ratio ([\d.]+)"),
                near(text(rf"capacity {capacity}: (\d+) env"), "env steps/s"),
                at_least=bar,
                in_readme=True,
            )
            for capacity, bar in ((100, 0.8), (16, 0.5))
        ),
    ),
    Program(
        "learning",
        (sys.executable, "-B", str(BENCH / "learning.py"), TROUPE, str(EXAMPLES / "simple_spread_mappo.yaml"), "--seeds", "1", "2", "3", "--set", "stop.env_steps=1000000"),
        (
            Figure(
                "`simple_spread_mappo.yaml`, 1 M env steps: summed return, sampled, worst of seeds 1 to 3 (random play -80)",
                "",
                text(r"(?m)^\| worst \| (-?[\d.]+)"),
                near(text(r"(?m)^\| mean \| [^|]* \| [^|]* \| ([\d.]+)"), "s a run"),
                at_least=-32,
                in_readme=True,
            ),
            Figure("the same, deterministic", "", text(r"(?m)^\| worst \| [^|]* \| (-?[\d.]+)"), at_least=-29),
        ),
    ),
    Program(
        "learning cartpole",
        (sys.executable, "-B", str(BENCH / "learning.py"), TROUPE, str(EXAMPLES / "cartpole_ippo.yaml"), "--seeds", "1", "2", "3"),
        (Figure("`cartpole_ippo.yaml`: summed return of two agents, sampled, worst of seeds 1 to 3 (most 1000)", "", text(r"(?m)^\| worst \| (-?[\d.]+)"), at_least=800),),
    ),
    Program(
        "Python environments",
        ("{python}", "-B", str(BENCH / "env_host_bench.py"), "--binary", "{build}/bench/env_host_bench", "--repeat", "{rounds}"),
        (
            *(
                Figure(
                    f"{words} through the host, one process, beside a bare loop",
                    "times",
                    text(rf"{case}[^\n]*\n[\s\S]*?bare loop[^\n]*?this: ([\d.]+)"),
                    near(text(rf"{case}[^\n]*\n +host, pipelined +([\d,.]+) /s"), "env steps/s"),
                    at_least=0.9,
                )
                for case, words in (("mpe2 simple_spread_v3", "mpe2's simple_spread"), ("lbforaging", "lbforaging"))
            ),
            Figure(
                "an environment of 5 us with two agents through the host, one process",
                "env steps/s",
                text(r"dummy of 5 us, two agents[^\n]*\n +host, pipelined +([\d,.]+) /s"),
                at_least=60_000,
            ),
            *(
                Figure(
                    f"the same beside {words}", "times", text(rf"dummy of 5 us, \d+ process[\s\S]*?{contender}[^\n]*?this: ([\d.]+)"), at_least=2
                )
                for contender, words in (("AsyncVectorEnv", "Gymnasium's AsyncVectorEnv"), ("concat_vec_envs", "SuperSuit's concat_vec_envs"))
            ),
            Figure("observations of 84x84x4 bytes of four agents through the host", "GB/s", text(r"84x84x4[^\n]*\n +host, pipelined +([\d.]+) /s"), at_least=3),
        ),
    ),
    Program(
        "faults of Python environments",
        ("{build}/bench/env_host_faults_bench", "--interpreter", "{python}", "--seconds", "10", "--repeat", "3"),
        (
            Figure(
                "environments beside ones that fail once in 1,000 steps, of the steps a CPU second without faults",
                "of them",
                text(r"median: [\d.]+ by the clock, ([\d.]+) by CPU"),
                near(text(r"median: ([\d.]+) by the clock"), "by the clock"),
                at_least=0.9,
            ),
        ),
    ),
    Program(
        "native beside Python",
        (
            sys.executable, "-B", str(BENCH / "same_curve.py"), TROUPE, str(EXAMPLES / "simple_spread_mappo.yaml"), "--set", "stop.env_steps=120000",
            "--other", "env.name=python:mpe2.simple_spread_v3", "--other", "env.python.interpreter={python}",
        ),
        (
            Figure(
                "curves of the native simple_spread and mpe2's: largest difference, of what seeds allow",
                "times",
                greatest(r"(?m)^\| \d \|[^\n]*\| ([+-][\d.]+) \| ([\d.]+) \|$"),
                at_most=1,
            ),
        ),
    ),
    Program(
        "peers",
        (sys.executable, "-B", str(BENCH / "peers" / "run.py"), "--repetitions", "{rounds}", "--seconds", "10", "--troupe", TROUPE),
        (
            Figure("Troupe in the peers' run, its native simple_spread", "env steps/s", leg(r"troupe(?!_)"), in_readme=True),
            peer("RLlib, mpe2's Python objects", "rllib:"),
            peer("Sample Factory, PettingZoo's Python objects, rows up to some 100 steps old", "sample_factory:"),
            peer("XuanCe MAPPO, PettingZoo's Python objects", "xuance:"),
            peer("skrl MAPPO, mpe2's Python object", "skrl:"),
            peer("plain PyTorch script, 160 environments in one numpy program", "reference:"),
            Figure("Troupe with a GRU of 64 units in actor and critic, sequences of 25", "env steps/s", leg("troupe_gru")),
            peer("plain PyTorch script with the same GRUs, 160 environments in one numpy program", "recurrent:"),
            peer("JaxMARL MAPPO, environments and update in one jitted program", "jaxmarl:algorithm=mappo"),
            peer("JaxMARL IPPO, the same", "jaxmarl:algorithm=ippo"),
            *(
                Figure(f"Troupe beside {words}, environments included", "times", text(rf"Troupe: ([\d.]+) times {start}"), at_least=bar, in_readme=True)
                for words, start, bar in (
                    ("RLlib", "RLlib", 8),
                    ("the best framework", "the best framework", 5),
                    ("the plain PyTorch script", "the plain", 1.2),
                    ("JaxMARL's jitted MAPPO", "JaxMARL", 3),
                )
            ),
            Figure("Troupe beside the plain PyTorch script, both with GRUs", "times", text(r"Troupe with GRUs: ([\d.]+) times the plain"), at_least=4),
            Figure("Troupe with GRUs, of its rate with MLPs", "of it", text(r"Troupe with GRUs: ([\d.]+) of its rate"), at_least=0.15),
            Figure("Troupe with the peers' environment (mpe2's Python objects)", "env steps/s", leg(r"troupe_mpe2"), in_readme=True),
            *(
                Figure(f"the same beside {words}", "times", text(rf"Troupe with the peers' environment: ([\d.]+) times {start}"), at_least=bar, in_readme=True)
                for words, start, bar in (("RLlib", "RLlib", 2.5), ("the best framework", "the best framework", 1.5))
            ),
        ),
    ),
    Program(
        "peers' policy map",
        (
            sys.executable, "-B", str(BENCH / "peers" / "policy_map.py"), "--repetitions", "{rounds}", "--program", "{build}/bench/policy_access_bench",
        ),
        (
            Figure(
                "an access to one of 100 policies of which 10 are resident, beside RLlib's old PolicyMap, least of four orders",
                "times",
                text(r"([\d,]+) times at least"),
                at_least=100,
                in_readme=True,
            ),
            *(
                Figure(
                    f"the same access, {order}, states {'swappable' if swappable == 'yes' else 'not swappable'}",
                    "us",
                    text(rf"(?m)^\| {order} \| {swappable} \| [^|]* \| [^|]* \| ([\d,.]+) \("),
                    near(text(rf"(?m)^\| {order} \| {swappable} \| [^|]* \| ([\d,.]+) \("), "us: RLlib's"),
                )
                for swappable in ("no", "yes")
                for order in ("uniform", "zipf")
            ),
        ),
    ),
)
