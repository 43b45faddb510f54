"""Makes report.md from the outcomes of the parts: a table of verdicts, a section a part, and the commands."""

import shlex

import plan

MAX_CELL = 160


def cell(value):
    """Text for a Markdown table."""
    return str(value).replace("|", "\\|").replace("\n", " ").strip()


def short(text):
    text = cell(text)
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 2].rstrip() + " …"


def table(header, rows):
    lines = ["| " + " | ".join(map(cell, header)) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(map(cell, row)) + " |" for row in rows]


def number(value, digits=0):
    return "–" if value is None else f"{value:,.{digits}f}"


def figure(value, digits=3):
    """A number with so many digits that count."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    size = len(f"{abs(value):.0f}") if abs(value) >= 1 else 0
    return f"{value:,.{max(0, digits - size)}f}"


def mebibytes(value):
    return "–" if value is None else f"{value / 2**20:,.0f}"


def _head(facts):
    lines = [f"# Troupe on {facts['machine_name']}", ""]
    lines.append(f"Bundle `{facts['bundle']}`, {facts['started']}, device `{facts['device']}`, "
                 f"{facts['seconds']:.0f} s of {facts['minutes']:g} minutes.")
    if facts["device"] == "cpu":
        lines += ["", f"> **The CPU stood in for CUDA: {facts['why_device']}. No figure here is a GPU's.**"]
    if facts.get("unfinished"):
        lines += ["", f"> **The check did not come to its end: {facts['unfinished']}.**"]
    return lines + [""]


def _summary(parts, outcomes):
    done = {outcome.name: outcome for outcome in outcomes}
    rows = []
    for part in parts:
        outcome = done.get(part.name)
        if outcome is None:
            rows.append([part.title, plan.NOT_RUN, "the check ended before it", ""])
            continue
        verdict = f"**{outcome.verdict}**" if outcome.verdict == plan.FAILED else outcome.verdict
        rows.append([part.title, verdict, short(outcome.line), f"{outcome.seconds:.0f}"])
    bad = sum(1 for row in rows if row[1] != plan.OK)
    ended = f"{len(rows) - bad} of {len(rows)} parts ran and hold" if bad else f"All {len(rows)} parts ran, and all their checks hold"
    return table(["part", "verdict", "result", "s"], rows) + ["", ended + ".", ""]


def _section(outcome):
    lines = [f"## {outcome.title}", ""]
    if outcome.verdict != plan.OK:
        lines += [f"**{outcome.verdict}**: {cell(outcome.line)}.", ""]
    for check in outcome.checks:
        lines.append(f"- {'holds' if check['holds'] else '**does not hold**'}: {check['what']}")
    if outcome.checks:
        lines.append("")
    for entry in outcome.tables:
        if entry["rows"]:
            lines += [f"{entry['title']}:", ""] + table(entry["header"], entry["rows"]) + [""]
    for note in outcome.notes:
        lines.append(f"- {note}")
    if outcome.notes:
        lines.append("")
    if outcome.tail and outcome.verdict != plan.OK:
        lines += ["The end of the output:", "", "```", *outcome.tail[-plan.SECTION_TAIL_LINES:], "```", ""]
    return lines


def _command(words, places):
    text = shlex.join(words)
    for path, name in places:
        text = text.replace(path, name)
    return text


def _pairs(command):
    """The words of a command, a flag and its value together."""
    found = []
    for word in command:
        if found and found[-1][0].startswith("--") and len(found[-1]) == 1 and not word.startswith("--"):
            found[-1].append(word)
        else:
            found.append([word])
    return [tuple(words) for words in found]


def _shown(entry, before):
    """The words to show of a command, and what to put before them: of one like another before it, the difference."""
    pairs = _pairs(entry["command"])
    for number_, other in before:
        old = _pairs(other["command"])
        new = [word for pair in pairs if pair not in old for word in pair]
        if old[:2] == pairs[:2] and len(pairs) > 6 and len(new) < len(entry["command"]) / 2:
            return new, f"as ({number_}), but "
    return entry["command"], ""


def _method(outcomes, facts):
    places = sorted(((path, name) for path, name in facts["places"] if path), key=lambda place: -len(place[0]))
    lines = ["## How it was measured", "",
             "All programs are the bundle's, run in this order; `BUNDLE` is its folder, `TMP` a temporary one. "
             f"The environment has {', '.join(f'`{name}={value}`' for name, value in facts['environment'])}. "
             "`log.txt` has all output, `figures.json` all numbers.", ""]
    for outcome in outcomes:
        if not outcome.commands:
            continue
        lines += [f"{outcome.title}, {outcome.seconds:.1f} s of at most {outcome.limit_s:.0f} s:", "", "```"]
        before = []
        for at, entry in enumerate(outcome.commands, 1):
            words, prefix = _shown(entry, before)
            if not prefix:
                before.append((at, entry))
            end = "" if entry["end"] == "exited with code 0" else f"; {entry['end']}"
            seconds = "–" if entry["seconds"] is None else f"{entry['seconds']:.1f}"
            mark = f"({at}) " if len(outcome.commands) > 1 else ""
            lines.append(f"{mark}{prefix}{_command(words, places)}  # {seconds} s{end[:MAX_CELL]}")
        lines += ["```", ""]
    return lines


def render(parts, outcomes, facts):
    """The whole report. `facts`: machine_name, bundle, started, device, why_device, seconds, minutes, places, environment."""
    lines = _head(facts) + _summary(parts, outcomes)
    for outcome in outcomes:
        lines += _section(outcome)
    return "\n".join(lines + _method(outcomes, facts)).rstrip() + "\n"
