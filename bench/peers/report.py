"""Turns the repetitions' facts into the table, the ratios and the verdict."""

import statistics

from measure import spread

EXPECTED_MINIBATCH_STEPS = 120
MINIBATCH_TOLERANCE = 0.02
DISTURBED_SHARE = 0.05  # of the pinned CPUs, used by others or stolen

# The bar of the project's performance figures, for --check.
FLOOR_ENV_STEPS_PER_S = 10_000
RATIO_RLLIB = 8.0
RATIO_BEST_PEER = 5.0
RATIO_SCRIPT = 1.2
RATIO_JITTED = 3.0
# Of Troupe with the peers' own environment in Python.
PYTHON_RATIO_RLLIB = 2.5
PYTHON_RATIO_BEST_PEER = 1.5
# Of Troupe with a GRU in actor and critic.
RECURRENT_RATIO_SCRIPT = 4.0
RECURRENT_SHARE = 0.15  # of its rate with MLPs


def by_leg(records):
    """{leg name: its successful records}, in order of first appearance."""
    groups = {}
    for record in records:
        groups.setdefault(record["leg"], [])
        if "error" not in record:
            groups[record["leg"]].append(record)
    return groups


def median_rate(records):
    return statistics.median(r["env_steps_per_s"] for r in records)


def _number(value, digits=0):
    return "-" if value is None else f"{value:,.{digits}f}"


def _median(records, key, scale=1.0):
    values = [r[key] * scale for r in records if r.get(key) is not None]
    return statistics.median(values) if values else None


def notes(record):
    """Why a repetition may not count as clean; empty when nothing was seen."""
    found = []
    steps = record["minibatch_steps_per_iteration"]
    off = abs(steps - EXPECTED_MINIBATCH_STEPS) / EXPECTED_MINIBATCH_STEPS
    if record["role"] != "floor" and off > MINIBATCH_TOLERANCE:
        found.append(f"{steps:.1f} minibatch steps an iteration, not {EXPECTED_MINIBATCH_STEPS}")
    others = record.get("foreign_cpu_share", 0.0) + record.get("stolen_cpu_share", 0.0)
    if others > DISTURBED_SHARE:
        found.append(f"others took {others:.0%} of its CPUs")
    if abs(record.get("clock_ratio", 1.0) - 1.0) > 0.03:
        found.append(f"its clock ran {record['clock_ratio']:.3f} of ours")
    return found


def table(records):
    """A Markdown table, one row a leg; ratios are Troupe's median over the row's, of a script with GRUs that of Troupe with GRUs."""
    groups = by_leg(records)

    def of_role(role):
        return [r for group in groups.values() for r in group if r["role"] == role]

    troupe, with_gru = of_role("troupe"), of_role("troupe_recurrent")
    header = (
        "| leg | steps | env steps/s: median (min–max) | n | Troupe is | minibatch steps / iteration"
        " | iteration s | CPUs used | first iteration done s | PSS MB |"
    )
    lines = [header, "|" + "---|" * header.count(" |")]
    for name, group in groups.items():
        if not group:
            lines.append(f"| {name} | | failed | 0 |" + " |" * 6)
            continue
        median, low, high = spread([r["env_steps_per_s"] for r in group])
        own = with_gru if group[0]["role"] == "script_recurrent" else troupe
        ratio = "" if not own or group[0]["role"] == "troupe" else f"{median_rate(own) / median:.2f}x"
        cells = [
            name,
            group[0]["environment"],
            f"{median:,.0f} ({low:,.0f}–{high:,.0f})",
            str(len(group)),
            ratio,
            _number(_median(group, "minibatch_steps_per_iteration"), 0),
            _number(_median([dict(r, s=r["seconds"] / r["iterations"]) for r in group], "s"), 2),
            _number(_median(group, "cpu_share", group[0]["num_cpus"]), 2),
            _number(_median(group, "first_iteration_done_s"), 1),
            _number(_median(group, "peak_pss_bytes", 1e-6)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdicts(records):
    """[(holds, sentence)] for each bar that this run's legs can decide; a bar without its legs is left out."""
    groups = {name: group for name, group in by_leg(records).items() if group}

    def rates(role, prefix=""):
        return {
            name: median_rate(group)
            for name, group in groups.items()
            if group[0]["role"] == role and name.startswith(prefix)
        }

    rllib, peers, scripts = rates("peer", "rllib"), rates("peer"), rates("script")
    jitted = rates("jitted", "jaxmarl:algorithm=mappo")  # the same algorithm; without a central critic it does less
    found = []
    for role, who, bars in (
        (
            "troupe",
            "Troupe",
            (
                ("RLlib's best setting", RATIO_RLLIB, rllib),
                ("the best framework", RATIO_BEST_PEER, peers),
                ("the plain PyTorch script's best setting", RATIO_SCRIPT, scripts),
                ("JaxMARL's jitted MAPPO", RATIO_JITTED, jitted),
            ),
        ),
        (
            "troupe_python",
            "Troupe with the peers' environment",
            (
                ("RLlib's best setting", PYTHON_RATIO_RLLIB, rllib),
                ("the best framework", PYTHON_RATIO_BEST_PEER, peers),
            ),
        ),
    ):
        own = rates(role)
        if not own:
            continue
        rate = max(own.values())
        if role == "troupe":
            found.append(
                (
                    rate >= FLOOR_ENV_STEPS_PER_S,
                    f"Troupe {rate:,.0f} env steps/s, the bar is {FLOOR_ENV_STEPS_PER_S:,}",
                )
            )
        for title, bar, against in bars:
            if against:
                name = max(against, key=against.get)
                ratio = rate / against[name]
                found.append((ratio >= bar, f"{who}: {ratio:.2f} times {title} ({name}), the bar is {bar:g}"))
    return found + recurrent_verdicts(rates)


def recurrent_verdicts(rates):
    """Those of networks with a GRU; `rates`: from a role to {leg name: median}."""
    own, scripts, mlps = rates("troupe_recurrent"), rates("script_recurrent"), rates("troupe")
    found = []
    if own and scripts:
        name = max(scripts, key=scripts.get)
        ratio = max(own.values()) / scripts[name]
        found.append(
            (
                ratio >= RECURRENT_RATIO_SCRIPT,
                f"Troupe with GRUs: {ratio:.2f} times the plain PyTorch script's best setting ({name}), the bar is {RECURRENT_RATIO_SCRIPT:g}",
            )
        )
    if own and mlps:
        share = max(own.values()) / max(mlps.values())
        found.append((share >= RECURRENT_SHARE, f"Troupe with GRUs: {share:.3f} of its rate with MLPs, the bar is {RECURRENT_SHARE:g}"))
    return found


def summary(records):
    """All that is printed at the end."""
    parts = [table(records), ""]
    for record in records:
        label = f"repetition {record['repetition']}, {record['leg']}"
        if "error" in record:
            parts.append(f"FAILED: {label}: {record['error']}")
        else:
            parts += [f"note: {label}: {note}" for note in notes(record)]
    parts += [("met:    " if holds else "MISSED: ") + sentence for holds, sentence in verdicts(records)]
    return "\n".join(parts)
