#!/usr/bin/env python3
"""What ./troupe shows of a build, and how long it lets tests run, tried with a stand-in for CMake that says what ninja says.

  build_progress_test.py SOURCE
"""

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = ""
TOOLS = ["awk", "bash", "flock", "mkdir", "nproc"]


class BuildProgress(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="troupe_progress_")
        self.addCleanup(shutil.rmtree, self.folder)
        os.makedirs(self.path("bin"))
        os.makedirs(self.path("cmake"))
        shutil.copy(os.path.join(SOURCE, "troupe"), self.path("troupe"))
        for file in ("libtorch.pin", "apt-packages.txt"):
            shutil.copy(os.path.join(SOURCE, "cmake", file), self.path("cmake", file))
        for tool in TOOLS:
            os.symlink(shutil.which(tool), self.path("bin", tool))

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def build(self, lines, status=0, stderr=subprocess.PIPE):
        """Runs ./troupe build; ninja's steps are (finished, of, seconds), other lines are as they are."""
        said = []
        for line in lines:
            said.append(line if isinstance(line, str) else "$(step %d %d %.3f) Building CXX object lib/x.o" % line)
        text = "\n".join(f'echo "{line}"' for line in said)
        with open(self.path("bin", "cmake"), "w", encoding="utf-8") as file:
            file.write(f"""#!/bin/bash
step() {{ local status=$NINJA_STATUS; status=${{status//%f/$1}}; status=${{status//%t/$2}}; echo "${{status//%e/$3}}"; }}
if [[ $1 == --build ]]; then
{text}
exit {status}
fi
""")
        os.chmod(self.path("bin", "cmake"), 0o755)
        return subprocess.run([self.path("troupe"), "build", "--preset", "no-torch"], stdout=subprocess.PIPE, stderr=stderr, text=stderr == subprocess.PIPE,
                              timeout=60, check=False, env={"PATH": self.path("bin"), "HOME": self.folder, "TROUPE_JOBS": "1"})

    def test_into_a_file_a_line_comes_every_half_minute(self):
        done = self.build([(step, 200, 2.5 * step) for step in range(1, 201)])
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        lines = [line for line in done.stderr.splitlines() if " files in " in line]
        self.assertEqual(len(lines), 17, lines)
        self.assertEqual(lines[1], "troupe: built 16 of 200 files in 40 s, about 460 s to go")
        self.assertNotIn("Building CXX", done.stderr)

    def test_a_build_that_fails_shows_all_that_the_compiler_says(self):
        words = ["FAILED: lib/x.o ", "c++ -c x.cc", "x.cc:1:2: error: 'y' was not declared", "  1 | y", "    | ^", "ninja: build stopped: subcommand failed."]
        done = self.build([(1, 9, 1.0), *words], status=1)
        self.assertEqual(done.returncode, 1)
        self.assertIn("\n".join(words), done.stderr)
        self.assertIn("building build/no-torch failed", done.stderr)

    def test_on_a_terminal_one_line_is_rewritten(self):
        terminal, other_end = pty.openpty()
        self.build([(1, 10, 2.0), "x.cc:1: warning: w", (2, 10, 4.0), (10, 10, 20.0)], stderr=other_end)
        os.close(other_end)
        text = b""
        try:
            while part := os.read(terminal, 4096):
                text += part
        except OSError:
            pass  # so a terminal says that its other end is closed
        os.close(terminal)
        lines = text.decode().split("\r\n")
        self.assertEqual(len([line for line in lines if "files in" in line]), 2, lines)
        self.assertIn("x.cc:1: warning: w", [line.split("\r")[-1] for line in lines])
        self.assertEqual([re.sub(" +$", "", part) for part in lines[-2].split("\r")],
                         ["", "troupe: built 2 of 10 files in 4 s, about 16 s to go", "troupe: built 10 of 10 files in 20 s, about 0 s to go"])

    def test_a_slow_machine_gives_tests_more_time(self):
        os.makedirs(self.path("build", "asan-core"))
        with open(self.path("build", "asan-core", "CMakeCache.txt"), "w", encoding="utf-8") as file:
            file.write("TROUPE_TEST_SLOWNESS:STRING=1\nTROUPE_BUILD_TESTS:BOOL=ON\nTROUPE_BUILD_BENCHMARKS:BOOL=ON\n")
        for tool in ("cat", "rm", "sha256sum", "grep", "sleep"):
            os.symlink(shutil.which(tool), self.path("bin", tool))
        os.remove(self.path("bin", "bash"))
        said = {"cmake": 'echo "$*" >> "$HOME/cmake.log"', "ctest": 'echo "$*" >> "$HOME/ctest.log"', "bash": "sleep ${LOOP_S}", "nproc": "echo 2"}
        for name, does in said.items():
            if os.path.lexists(self.path("bin", name)):
                os.remove(self.path("bin", name))
            with open(self.path("bin", name), "w", encoding="utf-8") as file:
                file.write(f"#!/bin/bash\n{does}\n")
            os.chmod(self.path("bin", name), 0o755)
        for loop_s, slowness in (("0", None), ("2.5", 8)):
            for name in ("cmake.log", "ctest.log"):
                with open(self.path(name), "w", encoding="utf-8"):
                    pass
            done = subprocess.run([self.path("troupe"), "test", "--preset", "asan-core", "unit"], capture_output=True, text=True, timeout=60, check=False,
                                  env={"PATH": self.path("bin"), "HOME": self.folder, "TROUPE_JOBS": "1", "TROUPE_TEST_PYTHON": sys.executable, "LOOP_S": loop_s})
            with open(self.path("ctest.log"), encoding="utf-8") as file:
                self.assertIn("--parallel 2 -L unit", file.read(), done.stderr)
            with open(self.path("cmake.log"), encoding="utf-8") as file:
                found = re.findall(r"-DTROUPE_TEST_SLOWNESS=(\d+)", file.read())
            self.assertEqual(found, [str(slowness)] if slowness else [], done.stderr)
            self.assertEqual("tests may take 8 times longer" in done.stderr, bool(slowness), done.stderr)


if __name__ == "__main__":
    SOURCE = sys.argv.pop(1)
    unittest.main()
