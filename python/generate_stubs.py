#!/usr/bin/env python3
"""Writes python/troupe/v1/*_pb2.py, the messages of the services that Python asks, from proto/troupe/v1.

  python/generate_stubs.py [--out python/troupe/v1]      needs protoc 3.20 to 3.21, as Debian 12 and 13 have it

What such a protoc writes runs with every protobuf from 3.20 on; what a newer one writes asks for a protobuf as new. python/tests/test_stubs.py holds the
files against the .proto, and tests/python/protobuf_versions.py against the oldest and the newest protobuf.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES = ("common", "episodes", "query")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "python" / "troupe" / "v1")
    out = parser.parse_args().out
    version = subprocess.run(["protoc", "--version"], capture_output=True, text=True, check=True).stdout
    if not re.search(r" 3\.2[01]\.", version):
        sys.exit(f"protoc is {version.strip()}, expected 3.20 or 3.21: what others write does not run with every protobuf")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["protoc", "-I", ROOT / "proto", f"--python_out={folder}", *(f"troupe/v1/{name}.proto" for name in NAMES)], check=True)
        for name in NAMES:
            shutil.copyfile(pathlib.Path(folder) / "troupe" / "v1" / f"{name}_pb2.py", out / f"{name}_pb2.py")


if __name__ == "__main__":
    main()
