"""What a reader does with a page: types its files, pastes its commands, and looks whether what it shows is printed."""

import os
import re
import signal
import subprocess
import sys
import time

import harness

# What follows from the machine's speed, or from what was learned.
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?|[\d,]+(?= env steps/s)|\d+(?= apples)")
GRID = re.compile(r"[.abo ]+")


class PageTestCase(harness.TroupeTestCase):
    """A folder that looks like a checkout: `./troupe`, `examples`, `bench`, and in `.venv` the tests' Python, which has what pages install."""

    left_out = ("apt-get install", "python3 -m venv .venv", ".venv/bin/pip install")

    def setUp(self):
        super().setUp()
        wrapper = self.write("troupe", f'#!/bin/bash\nexec -a "$0" "{self.program}" "$@"\n')
        os.chmod(wrapper, 0o755)
        for name in ("examples", "bench"):
            os.symlink(os.path.join(self.source, name), self.path(name))
        os.symlink(sys.prefix, self.path(".venv"))
        self.environment = dict(os.environ, PYTHONPATH=os.path.join(self.source, "python"), TROUPE_PROGRAM=self.program)
        self.background = []
        self.addCleanup(self.end_background)

    def document(self, *parts):
        with open(os.path.join(self.source, *parts)) as file:
            return file.read()

    def blocks(self, *parts):
        """[(language, text)] of a page's code, in order."""
        return re.findall(r"^```(\w*)\n(.*?)^```$", self.document(*parts), re.S | re.M)

    def end_background(self):
        for process in self.background:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)

    def await_file(self, process, line):
        """Of a command in the background: its run, or its socket, is there."""
        name = re.search(r"--name (\S+)|--listen unix:(\S+)", line)
        path = self.path("runs", name[1], "address") if name[1] else self.path(name[2])
        deadline = time.monotonic() + 60
        while not os.path.exists(path):
            self.assertIsNone(process.poll(), line)
            self.assertLess(time.monotonic(), deadline, line)
            time.sleep(0.05)

    def paste(self, line):
        """One line of a block, without its comment; what has a terminal of its own goes on until the test ends. -> what it printed.
        It must succeed, or fail where the comment says `an error`."""
        command = re.sub(r"\s+#.*$", "", line)
        if "# in a terminal of its own" in line:
            process = subprocess.Popen(["bash", "-c", "exec " + command], cwd=self.folder, env=self.environment,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.background.append(process)
            self.await_file(process, line)
            return ""
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=240)
        self.assertEqual(done.returncode != 0, "# an error" in line, f"{line}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done.stderr if done.returncode != 0 else done.stdout

    def follow(self, *parts):
        """A page from top to end. A block of Python or YAML that begins with a file's name is that file, a block without a language is what the commands
        above it print, among other lines. -> {line: what it printed}"""
        outputs, printed = {}, None
        for language, text in self.blocks(*parts):
            name = re.match(r"# (\S+\.\w+)\n", text)
            if language in ("python", "yaml") and name is not None:
                self.write(name[1], text)
            elif language == "bash":
                printed = ""
                for line in re.sub(r"\\\n *", "", text).splitlines():  # as a shell joins them
                    if not line.startswith(self.left_out):
                        with self.subTest(line):
                            outputs[line] = self.paste(line)
                            printed += outputs[line]
            elif language == "":
                self.assert_printed(text, printed)
        return outputs

    def assert_printed(self, expected, printed):
        """Every line of `expected` is a line of `printed`, in order; numbers with a fraction, rates and grids of a world may differ."""
        def form(line):
            return f"grid of {len(line)}" if GRID.fullmatch(line) else re.sub(r" +", " ", NUMBER.sub("#", line)).rstrip()
        lines = iter([form(line) for line in printed.splitlines()])
        for line in expected.splitlines():
            self.assertTrue(any(form(line) == one for one in lines), f"not printed: {line!r}, in\n{printed[-3000:]}")

    def assert_pinned(self, *parts):
        """What a page installs beside ./python, the tests' Python has."""
        for line in re.findall(r"^\.venv/bin/pip install (.*?)(?:\s+#.*)?$", self.document(*parts), re.M):
            pinned = re.findall(r"^([\w-]+)==", self.document("cmake", "test-python.pin"), re.M)
            self.assertEqual(set(line.split()) - set(pinned), {"./python"})
