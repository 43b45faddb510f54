#!/usr/bin/env python3
"""What './troupe wheel' runs: writes the wheels from the product as './troupe bundle' lays it out, and from LibTorch (ADR 48).

  python/make_wheels.py BUNDLE LIBTORCH OUT [--time SECONDS]

BUNDLE: that folder. LIBTORCH: the folder that holds torch/ and torch-*.dist-info/. OUT: where the wheels go. The same input makes the same bytes; --time
is what files have as their time. Needs objdump and strip. A file that asks for more than its tag promises is an error, and no wheel is written then.
"""

import argparse
import base64
import glob
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile

import distribution

LINUX_TAG = "py3-none-manylinux_2_34_x86_64"
LIBTORCH_TAG = "py3-none-manylinux_2_28_x86_64"
PURE_TAG = "py3-none-any"
# Newest versions of symbols that a system of the tag has (PEP 600; auditwheel's table).
NEWEST = {
    LINUX_TAG: {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)},
    LIBTORCH_TAG: {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)},
}
# Libraries that every system of either tag has.
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "ld-linux-x86-64.so.2", "libstdc++.so.6", "libgcc_s.so.1"}
# What the launcher finds (services/torch_launcher): LibTorch, and what that asks for, of which the wheel has stubs.
LIBTORCH = ["libtorch_cpu.so", "libc10.so", "libgomp.so.1"]
LAUNCHED = {"libtorch_cpu.so", "libc10.so", "libcudart.so.13", "libcupti.so.13"}
LIMIT_BYTES = 20_000_000

# Where a file of the bundle is in the wheel; a folder ends with "/". Wheels hold no links: the launcher is there under the learner's name.
PLACES = (("python/troupe/", "troupe/"), ("bin/troupe", "troupe/bin/troupe"), ("libexec/troupe/troupe-torch", "troupe/bin/troupe-learner"),
          ("libexec/troupe/troupe-learner", "troupe/libexec/troupe-learner"), ("libexec/troupe/stubs/", "troupe/libexec/stubs/"))

NOTICE = """Licences of what is in this wheel.

LICENSE is Troupe's own. third_party/ has, by the name of its Debian package, the copyright file of everything that is linked into the programs and
libraries; Abseil's shared libraries (troupe/_lib, troupe/envs/_lib) are of libabsl-dev.

What is not clear: Debian marks its own packaging (debian/*, patches included) of gRPC and yaml-cpp as GPL-2+. The programs are linked with archives that
were built with those patches. The libraries themselves are Apache-2.0 and MIT.
"""
LIBTORCH_NOTICE = """Licences of what is in this wheel.

torch/ has PyTorch's LICENSE and NOTICE. The libraries are those of the package torch {version}, without their symbol tables.

What is not clear: libtorch_cpu.so has Intel's MKL linked in, whose licence asks for its notice to be passed on; PyTorch's LICENSE has none.
libgomp.so.1 is GCC's, GPL-3 with the GCC runtime library exception.
"""


class WheelError(Exception):
    """What is wrong with the input; one sentence."""


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def asked_for(headers):
    """What `objdump -p` says that a file needs: names of libraries, and {library of symbols: newest version}."""
    needed = set(re.findall(r"^\s+NEEDED\s+(\S+)", headers, re.M))
    references = headers.split("Version References:")[1] if "Version References:" in headers else ""
    newest = {}
    for library, version in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)\b", references):
        newest[library] = max(newest.get(library, (0,)), tuple(map(int, version.split("."))))
    return needed, newest


def complaints(name, headers, tag, others):
    """What a system of `tag` does not have of what `name` asks for. `others`: libraries that come from elsewhere."""
    needed, newest = asked_for(headers)
    missing = needed - SYSTEM - others
    found = [f"{name} needs {library}, expected only libraries of {tag} and of the wheel" for library in sorted(missing)]
    for library, version in newest.items():
        if version > NEWEST[tag][library]:
            found.append(f"{name} asks for {library}_{'.'.join(map(str, version))}, expected at most "
                         f"{'.'.join(map(str, NEWEST[tag][library]))} ({tag})")
    return found


def check_programs(files, tag):
    """`files`: name in the wheel -> its path. WheelError names all that is wrong."""
    found = []
    inside = {os.path.basename(name) for name in files}
    for name, path in sorted(files.items()):
        if is_elf(path):
            headers = subprocess.run(["objdump", "-p", path], check=True, capture_output=True, text=True).stdout
            found += complaints(name, headers, tag, inside | LAUNCHED)
    if found:
        raise WheelError("; ".join(found))


def wheel_name(name, version, tag):
    return f"{name.replace('-', '_')}-{version}-{tag}.whl"


def metadata(name, version, summary, extras):
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", f"Summary: {summary}", f"License: {distribution.LICENSE}",
             f"Requires-Python: {distribution.REQUIRES_PYTHON}"]
    for extra, packages in extras.items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {package}; extra == "{extra}"' for package in packages]
    return "\n".join(lines) + "\n"


class Wheel:
    """A wheel that is being written; one thread uses it. `close` has to be called."""

    def __init__(self, path, pure, tag, seconds):
        self.path = path
        self.date = time.gmtime(max(seconds, 315532800))[:6]  # a zip knows nothing before 1980
        self.info = "-".join(os.path.basename(path).split("-")[:2]) + ".dist-info"
        self.record = []
        self.archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.wheel_text = f"Wheel-Version: 1.0\nGenerator: troupe\nRoot-Is-Purelib: {str(pure).lower()}\nTag: {tag}\n"

    def add(self, name, data, executable=False):
        entry = zipfile.ZipInfo(name, self.date)
        entry.create_system = 3  # Unix: permissions count
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.archive.writestr(entry, data, compresslevel=9 if len(data) < 1 << 26 else 6)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def add_file(self, name, path):
        with open(path, "rb") as file:
            self.add(name, file.read(), os.access(path, os.X_OK))

    def close(self, about, entry_points=""):
        self.add(f"{self.info}/METADATA", about.encode())
        self.add(f"{self.info}/WHEEL", self.wheel_text.encode())
        if entry_points:
            self.add(f"{self.info}/entry_points.txt", entry_points.encode())
        record = "\n".join([*self.record, f"{self.info}/RECORD,,"]) + "\n"
        self.archive.writestr(zipfile.ZipInfo(f"{self.info}/RECORD", self.date), record)
        self.archive.close()


def files_below(folder):
    for directory, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            yield os.path.relpath(os.path.join(directory, name), folder)


def package_files(bundle):
    """Name in the wheel -> path in the bundle."""
    files = {}
    for name in files_below(bundle):
        for place, target in PLACES:
            if name == place or (place.endswith("/") and name.startswith(place)):
                files[target + name[len(place):]] = os.path.join(bundle, name)
    for _, target in PLACES:
        if not any(name == target or (target.endswith("/") and name.startswith(target)) for name in files):
            raise WheelError(f"{bundle} has nothing for {target}, expected the folder that ./troupe bundle packs")
    return files


def write_package(bundle, files, out, tag, seconds):
    """-> the wheel's path."""
    path = os.path.join(out, wheel_name(distribution.NAME, distribution.VERSION, tag))
    wheel = Wheel(path, tag == PURE_TAG, tag, seconds)
    for name, source in sorted(files.items()):
        wheel.add_file(name, source)
    licenses = f"{wheel.info}/licenses"
    wheel.add_file(f"{licenses}/LICENSE", os.path.join(bundle, "LICENSE"))
    if tag != PURE_TAG:
        wheel.add(f"{licenses}/NOTICE", NOTICE.encode())
        for name in files_below(os.path.join(bundle, "licenses")):
            wheel.add_file(f"{licenses}/third_party/{name}", os.path.join(bundle, "licenses", name))
    about = metadata(distribution.NAME, distribution.VERSION, distribution.SUMMARY, distribution.EXTRAS)
    wheel.close(about, f"[console_scripts]\n{distribution.COMMAND}\n")
    return path


def write_libtorch(libtorch, out, seconds):
    """-> the wheel's path. Takes a minute, so that one that is newer than what it is made of stays."""
    version = distribution.LIBTORCH_VERSION
    path = os.path.join(out, wheel_name(distribution.LIBTORCH_NAME, version, LIBTORCH_TAG))
    libraries = {name: os.path.join(libtorch, "torch", "lib", name) for name in LIBTORCH}
    licences = glob.glob(os.path.join(libtorch, "torch-*.dist-info", "licenses", "*"))
    for library in libraries.values():
        if not os.path.isfile(library):
            raise WheelError(f"there is no {library}, expected the package torch {version} as pip installs it")
    if not licences:
        raise WheelError(f"{libtorch} has no torch-*.dist-info/licenses, expected the package torch {version} as pip installs it")
    sources = [*libraries.values(), *licences, __file__, distribution.__file__]
    if os.path.isfile(path) and os.path.getmtime(path) > max(map(os.path.getmtime, sources)):
        return path
    with tempfile.TemporaryDirectory(dir=out) as work:
        stripped = {}
        for name, library in libraries.items():
            stripped[f"troupe_libtorch/lib/{name}"] = os.path.join(work, name)
            subprocess.run(["strip", "--strip-unneeded", "-o", os.path.join(work, name), library], check=True)
        check_programs(stripped, LIBTORCH_TAG)
        partial = os.path.join(work, os.path.basename(path))
        wheel = Wheel(partial, False, LIBTORCH_TAG, seconds)
        wheel.add("troupe_libtorch/__init__.py", f'"""{distribution.LIBTORCH_SUMMARY}."""\n'.encode())
        wheel.add("troupe_libtorch/version.py", f"__version__ = '{version}'\n".encode())
        for name, library in sorted(stripped.items()):
            wheel.add_file(name, library)
        wheel.add(f"{wheel.info}/licenses/NOTICE", LIBTORCH_NOTICE.format(version=version).encode())
        for licence in sorted(licences):
            wheel.add_file(f"{wheel.info}/licenses/torch/{os.path.basename(licence)}", licence)
        wheel.close(metadata(distribution.LIBTORCH_NAME, version, distribution.LIBTORCH_SUMMARY, {}))
        os.replace(partial, path)
    return path


def write_all(bundle, libtorch, out, seconds):
    """-> the wheels' paths."""
    os.makedirs(out, exist_ok=True)
    files = package_files(bundle)
    check_programs(files, LINUX_TAG)
    paths = []
    with tempfile.TemporaryDirectory(dir=out) as work:
        pure = {name: path for name, path in files.items() if name.endswith((".py", "/py.typed"))}
        for tag, chosen in ((LINUX_TAG, files), (PURE_TAG, pure)):
            made = write_package(bundle, chosen, work, tag, seconds)
            size = os.path.getsize(made)
            if size > LIMIT_BYTES:
                raise WheelError(f"{os.path.basename(made)} has {size} bytes, expected at most {LIMIT_BYTES}")
            paths.append(os.path.join(out, os.path.basename(made)))
        paths.append(write_libtorch(libtorch, out, seconds))
        for path in paths[:2]:
            os.replace(os.path.join(work, os.path.basename(path)), path)
    return paths


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("bundle")
    parser.add_argument("libtorch")
    parser.add_argument("out")
    parser.add_argument("--time", type=int, default=0)
    arguments = parser.parse_args()
    try:
        paths = write_all(arguments.bundle, arguments.libtorch, arguments.out, arguments.time)
    except WheelError as error:
        print(f"make_wheels.py: error: {error}", file=sys.stderr)
        return 1
    for path in paths:
        print(path, os.path.getsize(path), "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
