#!/usr/bin/env python3
"""What .ci/run does with its stages, tried with stand-ins for everything that it starts: what it counts, what it skips by name and why, and that
the stages with containers end within the time of the whole.

  ci_stages_test.py SOURCE
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = ""
# What the script itself needs; docker and debootstrap are there only where a test puts them.
TOOLS = ["bash", "cat", "dirname", "env", "grep", "mktemp", "rm", "sed", "sleep", "tail", "tee"]
STAGES = ["release", "learns", "bundle", "bundle test", "wheel", "wheel test", "asan+ubsan", "tsan", "clang thread safety", "compose", "newcomer"]
# Notes the arguments of a stand-in, and what it is told to answer.
NOTE = '#!/bin/bash\necho "$(basename "$0" .sh) $*" >> "$NOTES"\n'


class CiStages(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="troupe_ci_")
        self.addCleanup(shutil.rmtree, self.folder)
        for folder in (".ci", "bin", "build/release", "docker", "tests/e2e"):
            os.makedirs(self.path(folder))
        for file in (".ci/run", "docker/Dockerfile"):
            shutil.copy(os.path.join(SOURCE, file), self.path(file))
        for tool in [*TOOLS, "basename"]:
            os.symlink(shutil.which(tool), self.path("bin", tool))
        self.write("build/release/CMakeCache.txt", "TROUPE_TEST_PYTHON:FILEPATH=python3\n")
        self.stand_in("troupe", 'if [[ $1 == test ]]; then echo "100% tests passed, 0 tests failed out of 5"; echo "2 skipped"; fi\n')
        self.stand_in("bin/python3", "")
        self.stand_in("tests/e2e/compose_test.sh", "")
        self.stand_in("tests/e2e/newcomer_test.sh", "")
        # Does what `timeout` is for where it is told so.
        self.stand_in("bin/timeout", 'while [[ $1 == --* ]]; do shift; done; [[ ! -e $NOTES.$(basename "$2") ]] || exit 124; exec "${@:2}"\n')

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def stand_in(self, name, does):
        self.write(name, NOTE + does)
        os.chmod(self.path(name), 0o755)

    def with_docker(self, image="true", pull="true"):
        self.stand_in("bin/docker", f'case $1 in image) {image} ;; pull) {pull} ;; esac\n')
        self.stand_in("bin/docker-compose", "")

    def run_ci(self, spent_s=0, **variables):
        """Exit status and output of .ci/run at so many seconds of its time, in an environment without anything else."""
        done = subprocess.run([self.path("bin/bash"), self.path(".ci/run")], capture_output=True, text=True, timeout=60, check=False,
                              env={"PATH": self.path("bin"), "NOTES": self.path("notes"), "SECONDS": str(spent_s), "HOME": self.folder, **variables})
        return done.returncode, done.stdout + done.stderr

    def notes(self, of):
        """The arguments with which a stand-in was called."""
        if not os.path.exists(self.path("notes")):
            return []
        with open(self.path("notes"), encoding="utf-8") as file:
            return [line.rstrip("\n").partition(" ")[2] for line in file if line.split(" ")[0].rstrip("\n") == of]

    def counts(self, text):
        return tuple(int(number) for number in re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", text.splitlines()[-1]).groups())

    def why_skipped(self, text, stage):
        found = re.search(rf"^=== {re.escape(stage)}: skipped: (.*)$", text, re.M)
        return found and found[1]

    def test_without_docker_and_debootstrap_both_are_skipped_by_name(self):
        status, text = self.run_ci()
        self.assertEqual(status, 0, text)
        self.assertEqual(self.why_skipped(text, "compose"), "there is no docker daemon")
        self.assertEqual(self.why_skipped(text, "newcomer"), "there is no debootstrap")
        # Three stages of tests with 5 each and 2 skipped, and six others.
        self.assertEqual(self.counts(text), (3 * 5 + 6, 0, 3 * 2 + 2), text)
        for stage in STAGES[:-2]:
            self.assertIn(f"=== {stage}: exit status 0", text)

    def test_with_docker_that_has_no_daemon_compose_is_skipped(self):
        self.stand_in("bin/docker", 'if [[ $1 == info ]]; then exit 1; fi\n')
        self.stand_in("bin/docker-compose", "")
        status, text = self.run_ci()
        self.assertEqual((status, self.why_skipped(text, "compose")), (0, "there is no docker daemon"), text)
        self.assertEqual(self.notes("compose_test"), [])

    def test_without_docker_compose_it_is_skipped(self):
        self.stand_in("bin/docker", "")
        _, text = self.run_ci()
        self.assertEqual(self.why_skipped(text, "compose"), "there is no docker-compose", text)

    def test_where_no_base_image_is_to_be_had_it_is_skipped(self):
        self.with_docker(image="exit 1", pull="exit 1")
        status, text = self.run_ci()
        self.assertEqual(status, 0, text)
        self.assertRegex(self.why_skipped(text, "compose"), "debian:bookworm-slim")
        self.with_docker(image="exit 1")
        _, text = self.run_ci()
        self.assertIsNone(self.why_skipped(text, "compose"), text)

    def test_both_run_where_they_can_and_get_the_certificates(self):
        self.with_docker()
        self.stand_in("bin/debootstrap", "")
        self.write("given.crt", "")
        status, text = self.run_ci(TROUPE_CA_CERTS=self.path("given.crt"))
        self.assertEqual(status, 0, text)
        self.assertEqual(self.notes("compose_test"), [f"--ca {self.path('given.crt')}"])
        self.assertIn("=== compose: exit status 0", text)
        if os.geteuid() == 0:
            self.assertEqual(self.notes("newcomer_test"), [f"--ca {self.path('given.crt')} -- --set stop.env_steps=1000000"])
            self.assertEqual(self.counts(text), (3 * 5 + 8, 0, 3 * 2), text)
        else:
            self.assertEqual(self.why_skipped(text, "newcomer"), "only root may make a machine")

    def test_a_stage_that_would_not_end_in_time_is_skipped(self):
        self.with_docker()
        status, text = self.run_ci(spent_s=54 * 60)
        self.assertEqual(status, 0, text)
        self.assertRegex(self.why_skipped(text, "compose"), r"^it takes about \d+ minutes, and 54 of 55 are over")
        status, text = self.run_ci(TROUPE_CI_MINUTES="1")
        self.assertRegex(self.why_skipped(text, "compose"), r"^it takes about \d+ minutes, and 0 of 1 are over")
        self.assertEqual(self.notes("compose_test"), [])

    def test_on_a_slow_machine_what_would_not_end_is_skipped_and_counted(self):
        # Release takes two seconds, and then the time is over.
        self.stand_in("troupe", 'if [[ $1 == test ]]; then sleep 2; echo "100% tests passed, 0 tests failed out of 5"; fi\n')
        status, text = self.run_ci(spent_s=60 * 60, TROUPE_CI_LIMIT="60")
        self.assertEqual(status, 0, text)
        for stage in ("asan+ubsan", "tsan", "clang thread safety"):
            self.assertRegex(self.why_skipped(text, stage) or "", r"^it takes about 0 minutes here, and 60 of 60 are over", text)
        self.assertEqual(self.counts(text), (5 + 5, 0, 5), text)
        self.assertEqual(len(self.notes("troupe")), 3, self.notes("troupe"))  # the tests of release, the bundle and the wheels
        status, text = self.run_ci(spent_s=60 * 60)
        self.assertIsNone(self.why_skipped(text, "tsan"), text)

    def test_a_stage_that_takes_longer_than_thought_ends_with_the_time_and_counts_as_failed(self):
        self.with_docker()
        self.write("notes.compose_test.sh", "")
        status, text = self.run_ci(spent_s=20 * 60)
        self.assertEqual(status, 1, text)
        self.assertIn("=== compose: exit status 124", text)
        self.assertIn("=== compose: ended by the time", text)
        self.assertEqual(self.counts(text)[1], 1, text)
        # What is left of 55 minutes after 20, less what killing and clearing up may take.
        kill_after, left = re.fullmatch(r"--kill-after=(\d+) (\d+) .*compose_test.sh.*", self.notes("timeout")[-1]).groups()
        self.assertLessEqual(int(kill_after) + int(left), 35 * 60)
        self.assertGreater(int(left), 30 * 60)

    def test_a_stage_that_fails_does_not_end_the_others(self):
        self.with_docker()
        self.stand_in("tests/e2e/compose_test.sh", "exit 3\n")
        self.stand_in("troupe", 'if [[ $1 == test ]]; then echo "60% tests passed, 2 tests failed out of 5"; exit 8; fi; exit 1\n')
        status, text = self.run_ci()
        self.assertEqual(status, 1, text)
        for stage in STAGES[:-1]:
            self.assertIn(f"=== {stage}: exit status", text)
        # Two tests in each of three stages, a bundle, wheels and clang that are not built, and compose.
        self.assertEqual(self.counts(text), (3 * 3 + 3, 3 * 2 + 4, 1), text)


if __name__ == "__main__":
    SOURCE = sys.argv.pop(1)
    unittest.main()
