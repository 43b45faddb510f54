"""Runs a program under the thread sanitizer and judges its reports: own_races.py COMMAND…

gRPC is not instrumented, so the sanitizer does not see how it orders what our threads do (lib/base/hidden_order.h tells it for the reactors),
and the parts of gRPC that are inlined from headers into our programs look like races with the rest of it. A report counts when both of its
accesses were made by our code: when, from the innermost frame outwards and past the standard library, Abseil and Protobuf, each stack comes
to a file of ours before it comes to gRPC. Reports that count are passed on; of the others the number is told. Everything else the program
writes is passed on, too. Exit status: the program's, or 66 when a report counts.
"""

import re
import subprocess
import sys

BORDER = "=================="
TRANSPARENT = re.compile(r"/usr/include/c\+\+/|/usr/include/absl/|/usr/include/google/protobuf/|generated/proto/|\(libtsan|\(libstdc\+\+|\(libprotobuf|\(libabsl"
                         r"|/libsanitizer/")
FOREIGN = re.compile(r"/usr/include/grpc|\(libgrpc|\(libgpr|\(libc\.so|\(libcares|\(libssl|\(libcrypto|grpc::|grpc_core::")


def stacks_of(report):
    """The frames of each stack, innermost first."""
    stacks, current = [], None
    for line in report:
        if re.match(r"    #\d+ ", line):
            if current is None:
                current = []
                stacks.append(current)
            current.append(line)
        else:
            current = None
    return stacks


def is_ours(stack):
    for frame in stack:
        place = frame.rsplit(" ", 2)  # function, file:line, (module+offset)
        if TRANSPARENT.search(" ".join(place[1:])):
            continue
        return not FOREIGN.search(" ".join(place[1:]))
    return False


def counts(report):
    """Whether the report is about two accesses of ours; one that is no data race always counts."""
    if not any("ThreadSanitizer: data race" in line for line in report):
        return True
    stacks = stacks_of(report)
    return len(stacks) < 2 or (is_ours(stacks[0]) and is_ours(stacks[1]))


def main():
    process = subprocess.Popen(sys.argv[1:], stderr=subprocess.PIPE, text=True, errors="replace")
    kept = dropped = 0
    report = None
    for line in process.stderr:
        line = line.rstrip("\n")
        if line == BORDER:
            if report is None:
                report = []
                continue
            if counts(report):
                kept += 1
                print(BORDER, *report, BORDER, sep="\n", file=sys.stderr)
            else:
                dropped += 1
            report = None
        elif report is not None:
            report.append(line)
        else:
            print(line, file=sys.stderr)
    if report:
        kept += 1
        print(*report, sep="\n", file=sys.stderr)
    status = process.wait()
    print(f"own_races: {kept} reports of ours, {dropped} within gRPC", file=sys.stderr)
    return 66 if kept else status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
