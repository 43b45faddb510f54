"""docs/results.md and its pictures, from the cells that bench/zoo.py trained."""

import bisect
import re
import statistics
import textwrap

from zoo_tasks import ALGORITHMS, ENV_STEPS, NETWORKS, PYTHON_ENV_STEPS, TASKS

HEAD = """\
# Results

What agents return after training in the environments that come with Troupe. `bench/zoo.py` wrote this page: one
command that you can stop and that goes on where it was ([how](benchmarks.md#others-by-command)). It has a row for
what was trained, and no other.

A cell is an environment, an algorithm and a network, actor and critic alike: an MLP, of two layers of 64 where the
example says nothing else, or a GRU of 64 units behind a layer of 64. It trains {steps:,} env steps, in Python
{python_steps:,}; where an example is shorter, as long as the example. Settings are the examples that ship. Where none
fits, `bench/zoo_tasks.py` has a few numbers for each family: of the particle worlds those of
`examples/simple_reference.yaml`, of repeated games those of `examples/rock_paper_scissors.yaml`, of tic-tac-toe those
of `examples/python/connect_four.yaml` with a rate that falls. Nothing was tuned for a cell, so that a number says
what these settings give, not what can be had.

Returns are means of fresh episodes (500; Kuhn poker 10,000, foraging 200, the warehouse 100), actions sampled, and
deterministic beside it: summed over the agents, or of one agent of a role where roles have different aims. Such a
role is also played against the others at random, for what both learned side by side says little of either. The
episodes are the same for all cells of an environment, so that two cells are nearer to each other than each is to the
mean of all episodes: 500 of simple_speaker_listener leave a standard error of 0.8, of most others less. The spread is
from the worst to the best seed. Random play is all agents at random. Wall-clock is training alone, the mean over
seeds. A published number is one of the same environment, with its source; where none is known there is a dash.

{machines}
"""
COLUMNS = ("environment", "algorithm", "network", "return of", "sampled", "spread", "deterministic", "random play", "published", "env steps", "s a run", "seeds")


def missing():
    """Why no picture can be drawn; None where one can."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        import sys

        return f"{sys.executable} has no matplotlib: {sys.executable} -m pip install matplotlib"
    return None


def number(value):
    return f"{value:.2f}"


def row(parts):
    return "| " + " | ".join(str(part) for part in parts) + " |\n"


def seeds_of(record, task, algorithm, network):
    """{seed: entry} of a cell."""
    found = {seed: record["cells"].get(f"{task.name}/{algorithm}/{network}/{seed}") for seed in record["seeds"]}
    return {seed: entry for seed, entry in found.items() if entry}


def seeds_in_words(done, failed):
    """"1, 2; failed: 3"."""
    parts = [", ".join(map(str, done))] if done else []
    parts += [f"failed: {', '.join(map(str, failed))}"] if failed else []
    return "; ".join(parts)


def rows_of(record, task, algorithm, network):
    """The rows of a cell, one a measure; one row where it failed or makes no sense, of all networks where none does; none where it was not run."""
    begin = (f"`{task.name}`", algorithm, network.upper())
    why = task.why_not(algorithm, network)
    if why is not None:
        of_all = (algorithm, "*") in task.not_applicable
        if of_all and network != NETWORKS[0]:
            return []
        return [(*begin[:2], "all" if of_all else begin[2], "", f"not applicable: {why}", *[""] * 7)]
    entries = seeds_of(record, task, algorithm, network)
    done = {seed: entry for seed, entry in entries.items() if "measures" in entry}
    failed = [seed for seed, entry in entries.items() if "error" in entry]
    if not entries:
        return []
    if not done:
        words = f"failed: {entries[failed[0]]['error']}"
        return [(*begin, "", words.replace("|", "/").replace("\n", " "), *[""] * 7)]
    published = task.published.get(algorithm, task.published.get("*"))
    found = []
    for measure in task.measures:
        sampled = [entry["measures"][measure.name]["sampled"] for entry in done.values()]
        deterministic = [entry["measures"][measure.name]["deterministic"] for entry in done.values()]
        random = record["random"].get(task.name, {}).get("measures", {}).get(measure.name)
        found.append((
            *begin, measure.name, number(statistics.mean(sampled)),
            f"{number(min(sampled))} to {number(max(sampled))}" if len(sampled) > 1 else "one seed",
            number(statistics.mean(deterministic)), "-" if random is None else number(random),
            f"{published[0]} ({published[1]})" if published and measure is task.measures[0] else "-",
            f"{next(iter(done.values()))['env_steps']:,}", f"{statistics.mean(entry['wall_clock_s'] for entry in done.values()):.0f}",
            seeds_in_words(done, failed),
        ))
    return found


def families():
    return list(dict.fromkeys(task.family for task in TASKS))


def picture(family):
    return f"results_{re.sub(r'[^a-z]+', '_', family.lower())}.png"


def machines(record):
    """Where and when the cells were trained, and how many of them are missing."""
    places = sorted({(entry["machine"], entry["commit"], entry["date"], entry["note"]) for entry in record["cells"].values() if "measures" in entry})
    wanted = [f"{task.name}/{algorithm}/{network}/{seed}" for task in TASKS for algorithm in ALGORITHMS for network in NETWORKS
              if task.why_not(algorithm, network) is None for seed in record["seeds"]]
    done = sum("measures" in record["cells"].get(key, {}) for key in wanted)
    words = "; ".join(f"{place[0]}, commit {place[1]}, {place[2]}{', ' if place[3] else ''}{place[3]}" for place in places) or "nothing"
    return textwrap.fill(f"{done} of {len(wanted)} runs are done: {words}.", 118)


def page(record):
    """The text of docs/results.md."""
    text = HEAD.format(steps=ENV_STEPS, python_steps=PYTHON_ENV_STEPS, machines=machines(record))
    for family in families():
        tried = [task for task in TASKS if task.family == family and was_tried(record, task)]
        if not tried:
            continue
        text += f"\n## {family}\n\n"
        if any(entry.get("measures") for task in tried for key, entry in record["cells"].items() if key.startswith(task.name + "/")):
            text += f"![Learning curves: {family.lower()}](images/{picture(family)})\n\n"
        text += row(COLUMNS) + "|" + "---|" * len(COLUMNS) + "\n"
        for task in tried:
            text += "".join(row(cell) for algorithm in ALGORITHMS for network in NETWORKS for cell in rows_of(record, task, algorithm, network))
    return text


def was_tried(record, task):
    """Whether a cell of the environment was trained, or failed."""
    return any(seeds_of(record, task, algorithm, network) for algorithm in ALGORITHMS for network in NETWORKS)


def point_at(curve, step):
    """(seconds, value) of a curve at an env step that it has passed, on the line between the points beside it."""
    after = bisect.bisect_left([point[0] for point in curve], step)
    (first, *begin), (last, *end) = curve[max(0, after - 1)], curve[after]
    share = (step - first) / (last - first) if last > first else 0.0
    return tuple(a + share * (b - a) for a, b in zip(begin, end))


def mean_curve(curves):
    """[[env steps, seconds, mean, least, most]] of seeds' curves at the steps of the one that ends first, as far as all of them go. When a line of
    progress is written depends on the clock, too, so that the others have theirs at other steps, and another number of them."""
    if not all(curves):
        return []
    shortest = min(curves, key=lambda curve: (curve[-1][0], len(curve)))
    begin = max(curve[0][0] for curve in curves)
    found = []
    for step in (point[0] for point in shortest if point[0] >= begin):
        seconds, values = zip(*(point_at(curve, step) for curve in curves))
        found.append((step, statistics.mean(seconds), statistics.mean(values), min(values), max(values)))
    return found


def draw(cells, random, seeds, folder):
    """A picture a family, with a part for each environment that has a finished cell; the paths of those that were written."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colors = {("ippo", "mlp"): "tab:blue", ("ippo", "gru"): "tab:cyan", ("mappo", "mlp"): "tab:red", ("mappo", "gru"): "tab:orange"}
    written = []
    for family in families():
        drawn = [(task, lines) for task in TASKS if task.family == family and (lines := lines_of(task, cells, seeds))]
        if not drawn:
            continue
        across = min(3, len(drawn))
        down = -(-len(drawn) // across)
        figure, axes = plt.subplots(down, across, figsize=(4.2 * across, 3.1 * down), squeeze=False, constrained_layout=True)
        for axis in axes.flat[len(drawn):]:
            axis.set_visible(False)
        for axis, (task, lines) in zip(axes.flat, drawn):
            styles = dict(zip(task.curves, ("-", "--", ":")))
            for algorithm, network, label, points in lines:
                steps = [point[0] / 1e6 for point in points]
                name = f"{algorithm} {network.upper()}" + (f", {label}" if len(task.curves) > 1 else "")
                color = colors[algorithm, network]
                axis.plot(steps, [point[2] for point in points], styles[label], color=color, label=name, linewidth=1.3)
                axis.fill_between(steps, [point[3] for point in points], [point[4] for point in points], color=color, alpha=0.15, linewidth=0)
            floor = random.get(task.name, {}).get("measures", {}).get(task.measures[0].name)
            if floor is not None and list(task.curves) == ["sum"]:
                axis.axhline(floor, color="gray", linewidth=0.9, linestyle=(0, (1, 2)), label="random play")
            axis.set_title(task.name, fontsize=9)
            axis.set_xlabel("million env steps", fontsize=8)
            axis.set_ylabel("return" if len(task.curves) > 1 else f"return, {next(iter(task.curves))}", fontsize=8)
            axis.tick_params(labelsize=7)
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
            axis.legend(frameon=False, fontsize=6)
        path = folder / picture(family)
        figure.savefig(path, dpi=110)
        plt.close(figure)
        written.append(path)
    return written


def lines_of(task, cells, seeds):
    """[(algorithm, network, label, points of mean_curve)]"""
    found = []
    for algorithm in ALGORITHMS:
        for network in NETWORKS:
            entries = [cells.get(f"{task.name}/{algorithm}/{network}/{seed}", {}) for seed in seeds]
            for label in task.curves:
                curves = [entry["curves"][label] for entry in entries if entry.get("curves", {}).get(label)]
                if curves and (points := mean_curve(curves)):
                    found.append((algorithm, network, label, points))
    return found
