"""Counts in a Chrome trace that LibTorch's profiler wrote: kernels, launches, synchronisations, copies, busy time.

The recorded update is wrapped in "troupe::update", each of its minibatch steps in "troupe::minibatch_step". Times in
the trace are microseconds. What the GPU does carries the correlation number of the CUDA call that asked for it, so a
kernel belongs to the minibatch step in which it was launched, whenever it ran.
"""

import bisect
import gzip
import json

UPDATE = "troupe::update"
STEP = "troupe::minibatch_step"
ANNOTATIONS = {"user_annotation", "cpu_op"}
RUNTIME = {"cuda_runtime", "cuda_driver"}
GPU_WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
SYNCHRONISATIONS = {
    "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaMemcpy2D",
    "cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize",
}
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cuLaunchKernel", "cudaGraphLaunch", "cuGraphLaunch")
TOP_KERNELS = 10


def read(path):
    """The events of a trace file, plain or gzipped. ValueError when it is no Chrome trace."""
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as file:
        trace = json.load(file)
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(events, list):
        raise ValueError(f"{path}: has no traceEvents, expected a Chrome trace")
    return [event for event in events if isinstance(event, dict) and event.get("ph") == "X"]


def _end(event):
    return event["ts"] + event.get("dur", 0)


def _within(event, spans):
    """True for an event that begins in one of the spans, which are sorted and do not overlap."""
    at = bisect.bisect_right(spans, (event["ts"], float("inf"))) - 1
    return at >= 0 and event["ts"] <= spans[at][1]


def _spans(events, name):
    """[(begin, end)] of an annotation, in order of time."""
    found = [(e["ts"], _end(e)) for e in events if e.get("name") == name and e.get("cat") in ANNOTATIONS]
    return sorted(found)


def covered(spans):
    """Length of the union of intervals."""
    total, reach = 0.0, float("-inf")
    for first, last in sorted(spans):
        total += max(0.0, last - max(first, reach))
        reach = max(reach, last)
    return total


def _base(name):
    return name.split("_v")[0].split("_ptsz")[0]


def summarize(events):
    """A dict of counts; `gpu_events` is 0 where no GPU took part, and then all counts are 0."""
    updates = _spans(events, UPDATE)
    steps = _spans(events, STEP)
    if updates:
        begin, end = updates[0][0], updates[-1][1]
    else:
        begin = min((e["ts"] for e in events), default=0.0)
        end = max((_end(e) for e in events), default=0.0)
    calls = [e for e in events if e.get("cat") in RUNTIME and begin <= e["ts"] <= end]
    in_step = {id(e): _within(e, steps) for e in calls}
    place = {}  # correlation: whether the call lies in a step
    for call in calls:
        correlation = call.get("args", {}).get("correlation")
        if correlation is not None:
            place[correlation] = in_step[id(call)]

    def asked_in_step(event):
        known = place.get(event.get("args", {}).get("correlation"))
        return known if known is not None else bool(steps) and steps[0][0] <= event["ts"]

    gpu = [e for e in events if e.get("cat") in GPU_WORK and e["ts"] >= begin]
    kernels = [e for e in gpu if e["cat"] == "kernel"]
    # From or to memory that is not pinned: the host waits for such a copy.
    pageable = [e for e in gpu if e["cat"] == "gpu_memcpy" and "pageable" in e.get("name", "").lower()]
    copies = {"HtoD": 0, "DtoH": 0, "DtoD": 0, "other": 0}
    for event in gpu:
        if event["cat"] == "gpu_memcpy":
            kind = next((k for k in ("HtoD", "DtoH", "DtoD") if k in event.get("name", "")), "other")
            copies[kind] += int(event.get("args", {}).get("bytes", 0))
    waits = [e for e in calls if _base(e.get("name", "")) in SYNCHRONISATIONS]
    launches = [e for e in calls if e.get("name", "").startswith(LAUNCHES)]
    by_kernel = {}
    for kernel in kernels:
        entry = by_kernel.setdefault(kernel.get("name", "?"), [0, 0.0])
        entry[0] += 1
        entry[1] += kernel.get("dur", 0)
    top = sorted(by_kernel.items(), key=lambda item: -item[1][1])[:TOP_KERNELS]
    last = max([end] + [_end(e) for e in gpu])
    duration_us = last - begin
    count = max(1, len(steps))
    return {
        "gpu_events": len(gpu),
        "minibatch_steps": len(steps),
        "update_us": duration_us,
        "kernels": len(kernels),
        "kernels_in_steps": sum(map(asked_in_step, kernels)),
        "kernels_a_step": sum(map(asked_in_step, kernels)) / count,
        "kernel_us_a_step": sum(k.get("dur", 0) for k in kernels if asked_in_step(k)) / count,
        "launches_a_step": sum(in_step[id(e)] for e in launches) / count,
        "synchronisations": len(waits),
        "synchronisations_in_steps": sum(in_step[id(e)] for e in waits),
        "synchronisations_a_step": sum(in_step[id(e)] for e in waits) / count,
        "synchronisation_us": sum(e.get("dur", 0) for e in waits),
        "bytes_host_to_device": copies["HtoD"],
        "bytes_device_to_host": copies["DtoH"],
        "bytes_device_to_device": copies["DtoD"] + copies["other"],
        "copies": sum(e["cat"] == "gpu_memcpy" for e in gpu),
        "pageable_copies": len(pageable),
        "pageable_copies_in_steps": sum(map(asked_in_step, pageable)),
        "gpu_busy": covered([(e["ts"], _end(e)) for e in gpu]) / duration_us if duration_us else 0.0,
        "top_kernels": [{"name": name, "count": n, "us": us} for name, (n, us) in top],
    }
