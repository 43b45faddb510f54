"""What the end-to-end tests share: the program under test, a folder of their own, and small looks into run folders."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest


class TroupeTestCase(unittest.TestCase):
    """A test with a folder of its own in which `troupe` runs. `main` sets program and source from the command line."""

    program = None
    source = None

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="troupe_e2e_")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def troupe(self, *arguments, ok=True, timeout=120):
        """Runs `troupe ARGUMENTS` to its end; with `ok` it must succeed."""
        done = subprocess.run([self.program, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL)
        if ok:
            self.assertEqual(done.returncode, 0, f"troupe {' '.join(arguments)}\n{done.stdout}\n{done.stderr}")
        return done

    def example(self, name):
        return os.path.join(self.source, "examples", name)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def hash_of(self, *parts):
        with open(self.path(*parts), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def hashes_below(self, *parts):
        """Every file below a folder with its content's hash, links with their targets."""
        found = {}
        for directory, folders, files in os.walk(self.path(*parts)):
            for name in folders + files:
                path = os.path.join(directory, name)
                if os.path.islink(path):
                    found[path] = os.readlink(path)
                elif os.path.isfile(path):
                    found[path] = self.hash_of(path)
        return found

    def tensors(self, *parts):
        """(name, bytes) of everything in a checkpoint's policies.safetensors."""
        with open(self.path(*parts, "policies.safetensors"), "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header, data = json.loads(file.read(size)), file.read()
        return [(name, data[slice(*entry["data_offsets"])]) for name, entry in header.items() if name != "__metadata__"]

    def progress(self, run):
        with open(self.path("runs", run, "progress.jsonl")) as file:
            return [json.loads(line) for line in file]

    def summary(self, run):
        with open(self.path("runs", run, "summary.json")) as file:
            return json.load(file)

    def assert_rows_add_up(self, rows):
        self.assertEqual(rows["received"], rows["accepted"] + rows["duplicate"] + rows["stale"] + rows["invalid"], rows)
        self.assertEqual(rows["accepted"], rows["trained"] + rows["queued"] + rows["dropped"] + rows["rolled_back"], rows)


def main():
    TroupeTestCase.program, TroupeTestCase.source = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
