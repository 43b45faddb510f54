#!/usr/bin/env python3
"""The Python client with the oldest protobuf that it takes and with the newest: the tests of its stubs and of what it does, in virtual environments.

  tests/python/protobuf_versions.py [VERSION ...]        needs a package index; without VERSION the oldest of EXTRAS["client"] and the newest there is

Prints a line each; exit 1 where a test fails.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import distribution  # noqa: E402  of this checkout

TESTS = ("stubs", "query", "query_servers")


def oldest():
    requirement, = (each for each in distribution.EXTRAS["client"] if each.startswith("protobuf"))
    return re.fullmatch(r"protobuf>=([0-9.]+)", requirement)[1]


def check(requirement, folder):
    """-> (the version that was installed, whether all tests passed)"""
    venv = os.path.join(folder, re.sub(r"\W", "_", requirement))
    python = os.path.join(venv, "bin", "python")
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement, "numpy", "grpcio"], check=True)
    about = "import google.protobuf as p; from google.protobuf.internal import api_implementation as a; print(p.__version__, a.Type())"
    version = subprocess.run([python, "-c", about], capture_output=True, text=True, check=True).stdout.strip()
    # Of protobuf's warnings none may be of our stubs.
    done = [subprocess.run([python, "-B", "-W", "error::UserWarning", "-m", "unittest", f"tests/test_{name}.py"], cwd=ROOT / "python",
                           capture_output=True, text=True) for name in TESTS]
    for each in done:
        if each.returncode or "skipped" in each.stderr:
            print(each.stderr)
    return version, all(each.returncode == 0 and "skipped" not in each.stderr for each in done)


def main():
    wanted = [f"protobuf=={version}" for version in sys.argv[1:] or [oldest()]] + ([] if sys.argv[1:] else ["protobuf"])
    passed = True
    with tempfile.TemporaryDirectory() as folder:
        for requirement in wanted:
            version, good = check(requirement, folder)
            print(f"protobuf {version}: {'passed' if good else 'FAILED'}", flush=True)
            passed = passed and good
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
