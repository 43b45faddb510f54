"""A bundle of small Python programs that answer at once, for test_check.py."""

import pathlib
import stat
import sys

TROUPE = '''
import json, os, sys
words = sys.argv[1:]
sets = dict(word.split("=", 1) for flag, word in zip(words, words[1:]) if flag == "--set")
if words[0] == "version":
    print("troupe 9.9.9")
elif words[0] == "evaluate":
    print(json.dumps({"return_sum": {"mean": RETURN}}))
elif words[0] == "train":
    if FAILS == "train":
        sys.exit("learner error: the fake was told to fail")
    resumed = "--resume" in words
    named = words[words.index("--resume" if resumed else "--name") + 1]
    run = os.path.join(sets["experiment.directory"], named)
    os.makedirs(run, exist_ok=True)
    path = os.path.join(run, "progress.jsonl")
    before = json.loads(open(path).readlines()[-1])["env_steps"] if resumed else 0
    goal = int(sets["stop.env_steps"]) or before + 400000
    batch = int(sets.get("algorithm.train_batch_size", 4000))
    with open(path, "a") as file:
        for steps in range(before + batch, goal + 1, batch):
            line = dict(env_steps=steps, agent_steps=3 * steps, updates=steps // batch, wall_clock_s=steps / 80000, return_sum=-29.5,
                        update_s=0.04 * batch / 4000, assemble_s=0.001, wait_s=0.005, policy_lag=0.0, rows_received=3 * steps,
                        rows_accepted=3 * steps, rows_trained=3 * steps, rows_queued=0, rows_dropped=0, rows_rolled_back=0, rows_duplicate=0,
                        rows_stale=0, rows_invalid=0)
            file.write(json.dumps(line) + "\\n")
    with open(os.path.join(run, "summary.json"), "w") as file:
        file.write("{}")
'''

BENCH = '''
import json, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
cuda = words["--device"] == "cuda" and FAILS != "cuda"
for hidden in map(int, words["--hidden"].split(",")):
    for rows in map(int, words["--rows"].split(",")):
        ms = hidden * rows / 20000
        line = dict(hidden=hidden, rows=rows)
        if ms > 5000:
            line["skipped"] = "would take about 93 s of the 20 s given, by 12,000 rows"
        else:
            line.update(device="cuda:0" if cuda else "cpu", backend="libtorch/cuda:0" if cuda else "fused/fake", minibatch=1000,
                        epochs=10, minibatch_steps=120, rounds=3, seconds=[ms / 1e3] * 3, ms_p50=ms,
                        ms_min=ms * 0.9, ms_max=ms * 1.1, device_memory_peak_bytes=cuda << 28)
        print(json.dumps(line), flush=True)
if "--profile" in words:
    events = [dict(ph="X", cat="user_annotation", name="troupe::update", ts=0, dur=100),
              dict(ph="X", cat="user_annotation", name="troupe::minibatch_step", ts=1, dur=9)]
    if cuda:
        events += [dict(ph="X", cat="cuda_runtime", name="cudaLaunchKernel", ts=2, dur=1, args=dict(correlation=1)),
                   dict(ph="X", cat="kernel", name="void fake_gemm<float>(a | b)", ts=5, dur=50, args=dict(correlation=1)),
                   dict(ph="X", cat="gpu_memcpy", name="Memcpy HtoD", ts=60, dur=5, args=dict(correlation=2, bytes=3000000))]
    with open(words["--profile"], "w") as file:
        json.dump({"traceEvents": events}, file)
'''

TEST = '''
import json, os, sys, time
if FAILS == "hang":
    print("[ RUN      ] Fake.Hangs", flush=True)
    time.sleep(60)
path = sys.argv[1].partition(":")[2]
tests = [dict(name="Holds", status="RUN", result="COMPLETED", largest_gradient_difference="1.5e-06"),
         dict(name="NeedsMore", status="RUN", result="SKIPPED")]
if FAILS == "tests" and "device" in sys.argv[0]:
    tests.append(dict(name="Breaks", status="RUN", result="COMPLETED", failures=[dict(failure="x")]))
    print("fake_test.cc:7: Failure")
print("fake_test.cc:3: Skipped\\nno such unit here")
with open(path, "w") as file:
    json.dump(dict(testsuites=[dict(name="Fake", testsuite=tests)]), file)
sys.exit(FAILS == "tests" and "device" in sys.argv[0])
'''

SMI = """
import os, sys
asked = os.path.exists(sys.argv[0] + ".asked")
if "utilization" in sys.argv[1]:
    open(sys.argv[0] + ".asked", "w").close()
    print("50, 612" if asked and USED else "0, 100")
else:
    print("NVIDIA Fake, 580.1, 81559, 9.0, 5, 16, 1980\\n" * (1 if "--id" in sys.argv[-1] else 2))
"""

EXAMPLE = """multi_agent:
  policies: [shared]
  policy_mapping: {"*": shared}
"""


def write_program(path, body, **names):
    path.parent.mkdir(parents=True, exist_ok=True)
    heads = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    path.write_text(f"#!{sys.executable} -B\n{heads}{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def make(folder, fails="", return_sum=-29.5):
    """A bundle in `folder`, whose programs `fails` tells to fail: "", "train", "tests", "hang", or "cuda" (it is not used)."""
    root = pathlib.Path(folder) / "troupe-9.9.9-linux-x86_64"
    write_program(root / "bin" / "troupe", TROUPE, RETURN=return_sum, FAILS=fails)
    write_program(root / "bench" / "gpu_update_bench", BENCH, FAILS=fails)
    for name in ("device_parity_test", "training_test", "update_parity_test", "fused_parity_test"):
        write_program(root / "tests" / name, TEST, FAILS=fails)
    (root / "examples").mkdir()
    (root / "examples" / "simple_spread_mappo.yaml").write_text(EXAMPLE)
    return root


def is_alive(pid):
    """False for a process that is gone or waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

