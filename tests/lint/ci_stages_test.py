#!/usr/bin/env python3
"""What .ci/run does with its stages, tried with stand-ins for everything that it starts: what it counts, what it skips by name and why, which stage's
turn it is, what it installs and starts for it, and that the last stage ends within the time of the whole.

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
# What the script itself needs; apt-get, docker and debootstrap are there only where a test puts them.
TOOLS = ["bash", "cat", "dirname", "env", "grep", "mktemp", "rm", "sed", "sleep", "tail", "tee", "touch"]
ALWAYS = ["release", "learns", "bundle", "bundle test", "wheel", "wheel test"]
# By the number of commits modulo 6.
TURNS = ["asan+ubsan", "clang thread safety", "compose", "newcomer", "tsan", "tsan-grpc"]
ROOT = os.geteuid() == 0
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
        self.turn("tsan-grpc")
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

    def turn(self, stage):
        """A number of commits for which it is this stage's turn."""
        self.stand_in("bin/git", f"echo {30 + TURNS.index(stage)}\n")

    def with_docker(self, image="true", pull="true"):
        self.stand_in("bin/docker", f'case $1 in image) {image} ;; pull) {pull} ;; esac\n')
        self.stand_in("bin/docker-compose", "")

    def with_apt(self):
        """apt-get, which brings docker and debootstrap. Docker has a daemon once dockerd runs, and an image once it is imported."""
        stand_ins = {"dockerd": 'touch "$NOTES.daemon"; echo "$$" > "$NOTES.dockerd"; exec sleep 600\n', "docker-compose": "", "debootstrap": "",
                     "docker": 'case $1 in info) [[ -e $NOTES.daemon ]] ;; image) [[ -e $NOTES.image ]] ;; pull) exit 1 ;; '
                               'import) cat > /dev/null; touch "$NOTES.image" ;; esac\n'}
        for name, does in stand_ins.items():
            self.stand_in("brought-" + name, does)
        os.symlink(shutil.which("cp"), self.path("bin", "cp"))
        self.stand_in("bin/tar", "")
        self.stand_in("bin/apt-get", 'for name in docker docker-compose dockerd debootstrap; do\n'
                      f'  if [[ " $* " == *" ${{name/%docker/docker.io}} "* || ( $name == dockerd && " $* " == *" docker.io "* ) ]]; then\n'
                      f'    cp "{self.path("brought-")}$name" "{self.path("bin")}/$name"\n  fi\ndone\n')

    def run_ci(self, *stages, spent_s=0, **variables):
        """Exit status and output of .ci/run at so many seconds of its time, in an environment without anything else."""
        done = subprocess.run([self.path("bin/bash"), self.path(".ci/run"), *stages], capture_output=True, text=True, timeout=60, check=False,
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

    def test_the_long_stages_take_turns(self):
        self.with_docker()
        self.stand_in("bin/debootstrap", "")
        for stage in TURNS:
            self.turn(stage)
            status, text = self.run_ci()
            self.assertEqual(status, 0, text)
            ran = re.findall(r"^=== (.*): exit status 0", text, re.M)
            self.assertEqual(ran, ALWAYS + ([stage] if ROOT or stage != "newcomer" else []), text)
            # The end says how long each took.
            self.assertRegex(text, rf"(?m)^ +\d+ s  {re.escape(ran[-1])}, exit status 0$")

    def test_the_counts_of_all_stages_are_added(self):
        status, text = self.run_ci()
        self.assertEqual(status, 0, text)
        # Two stages of tests with 5 each and 2 skipped, and five others.
        self.assertEqual(self.counts(text), (2 * 5 + 5, 0, 2 * 2), text)

    def test_the_tests_against_pytorch_run_at_a_landing(self):
        self.stand_in("troupe", 'echo "$TROUPE_TORCH_PYTHON"\n')
        self.assertRegex(self.run_ci("release")[1], r"(?m)^auto$")
        self.assertRegex(self.run_ci("release", TROUPE_TORCH_PYTHON="/mine")[1], r"(?m)^/mine$")

    def test_the_clients_in_go_and_java_run_at_a_landing(self):
        self.stand_in("troupe", 'echo "clients: $TROUPE_TEST_CLIENTS"\n')
        self.assertRegex(self.run_ci("release")[1], r"(?m)^clients: 1$")
        self.assertRegex(self.run_ci("release", TROUPE_TEST_CLIENTS="0")[1], r"(?m)^clients: 0$")

    def test_a_stage_by_its_name(self):
        status, text = self.run_ci("clang thread safety")
        self.assertEqual((status, self.counts(text)), (0, (1, 0, 0)), text)
        self.assertEqual(self.notes("troupe"), ["build --preset clang -DTROUPE_BUILD_BENCHMARKS=OFF"])
        # It has all the time it needs.
        status, text = self.run_ci("tsan-grpc", spent_s=100 * 60)
        self.assertEqual(status, 0, text)
        self.assertRegex(self.notes("timeout")[-1], r"^--kill-after=\d+ 0 ./troupe test --preset tsan-grpc ")

    def test_a_stage_that_there_is_not(self):
        for stages in (["clnag"], ["tsan", "bundle"], [""]):
            status, text = self.run_ci(*stages)
            self.assertEqual(status, 2, text)
            self.assertIn(f"unknown stage '{' '.join(stages)}', expected one of: release, learns, ", text)
        self.assertEqual(self.notes("troupe"), [])

    def test_without_docker_and_debootstrap_compose_and_newcomer_are_skipped_by_name(self):
        status, text = self.run_ci("compose")
        self.assertEqual((status, self.counts(text)), (0, (0, 0, 1)), text)
        self.assertEqual(self.why_skipped(text, "compose"), "there is no docker daemon, and none can be installed")
        status, text = self.run_ci("newcomer")
        self.assertEqual((status, self.counts(text)), (0, (0, 0, 1)), text)
        self.assertEqual(self.why_skipped(text, "newcomer"), "there is no debootstrap" if ROOT else "only root may make a machine")

    def test_docker_is_installed_and_started_and_ends_with_the_script(self):
        self.with_apt()
        status, text = self.run_ci("compose")
        if not ROOT:
            self.assertEqual(self.why_skipped(text, "compose"), "there is no docker daemon, and none can be installed")
            return
        self.assertEqual(status, 0, text)
        self.assertEqual(len(self.notes("compose_test")), 1, text)
        self.assertRegex(self.notes("docker")[-1], r"^import - debian:bookworm-slim$")
        self.assertEqual([line.split()[0] for line in self.notes("brought-debootstrap") + self.notes("debootstrap")], ["--variant=minbase"])
        with open(self.path("notes.dockerd"), encoding="utf-8") as file:
            self.assertFalse(os.path.exists(f"/proc/{file.read().strip()}"), "dockerd runs on")

    def test_where_dockerd_does_not_start_compose_is_skipped_with_its_words(self):
        self.stand_in("bin/dockerd", 'echo "no cgroups here"; exit 1\n')
        self.stand_in("bin/docker", "exit 1\n")
        status, text = self.run_ci("compose")
        self.assertEqual((status, self.why_skipped(text, "compose")), (0, "dockerd does not start: no cgroups here"), text)

    def test_without_docker_compose_it_is_skipped(self):
        self.stand_in("bin/docker", "")
        _, text = self.run_ci("compose")
        self.assertEqual(self.why_skipped(text, "compose"), "there is no docker-compose", text)

    def test_where_no_base_image_is_to_be_had_compose_is_skipped(self):
        self.with_docker(image="exit 1", pull="exit 1")
        status, text = self.run_ci("compose")
        self.assertEqual(status, 0, text)
        self.assertRegex(self.why_skipped(text, "compose"), "debian:bookworm-slim")
        self.with_docker(image="exit 1")
        _, text = self.run_ci("compose")
        self.assertIsNone(self.why_skipped(text, "compose"), text)

    def test_both_get_the_certificates(self):
        self.with_docker()
        self.stand_in("bin/debootstrap", "")
        self.write("given.crt", "")
        for stage in ("compose", "newcomer"):
            status, text = self.run_ci(stage, TROUPE_CA_CERTS=self.path("given.crt"))
            self.assertEqual(status, 0, text)
        self.assertEqual(self.notes("compose_test"), [f"--ca {self.path('given.crt')}"])
        self.assertEqual(self.notes("newcomer_test"), [f"--ca {self.path('given.crt')} -- --set stop.env_steps=1000000"] if ROOT else [])

    def test_on_a_slow_machine_what_would_not_end_is_skipped_and_counted(self):
        # Release takes two seconds, and then the time is over.
        self.stand_in("troupe", 'if [[ $1 == test ]]; then sleep 2; echo "100% tests passed, 0 tests failed out of 5"; fi\n')
        status, text = self.run_ci(spent_s=60 * 60, TROUPE_CI_LIMIT="60")
        self.assertEqual(status, 0, text)
        self.assertRegex(self.why_skipped(text, "tsan-grpc") or "", r"^it takes about 0 minutes here, and 60 of 60 are over", text)
        self.assertRegex(text, r"(?m)^ +tsan-grpc, skipped: it takes about")
        self.assertEqual(self.counts(text), (5 + 5, 0, 1), text)
        self.assertEqual(len(self.notes("troupe")), 3, self.notes("troupe"))  # the tests of release, the bundle and the wheels
        self.assertIn("that is more than 60 minutes", text)
        status, text = self.run_ci(spent_s=50 * 60)
        self.assertIsNone(self.why_skipped(text, "tsan-grpc"), text)
        self.assertNotIn("that is more than 60 minutes", text)

    def test_a_stage_that_takes_longer_than_thought_ends_with_the_time_and_counts_as_failed(self):
        self.with_docker()
        self.turn("compose")
        self.write("notes.compose_test.sh", "")
        status, text = self.run_ci(spent_s=20 * 60)
        self.assertEqual(status, 1, text)
        self.assertIn("=== compose: exit status 124", text)
        self.assertIn("=== compose: ended by the time", text)
        self.assertEqual(self.counts(text)[1], 1, text)
        # What is left of 82 minutes after 20, less what killing and clearing up may take.
        kill_after, left = re.fullmatch(r"--kill-after=(\d+) (\d+) .*compose_test.sh.*", self.notes("timeout")[-1]).groups()
        self.assertLessEqual(int(kill_after) + int(left), 62 * 60)
        self.assertGreater(int(left), 57 * 60)

    def test_a_stage_that_fails_does_not_end_the_others(self):
        self.with_docker()
        self.turn("compose")
        self.stand_in("tests/e2e/compose_test.sh", "exit 3\n")
        self.stand_in("troupe", 'if [[ $1 == test ]]; then echo "60% tests passed, 2 tests failed out of 5"; exit 8; fi; exit 1\n')
        status, text = self.run_ci()
        self.assertEqual(status, 1, text)
        for stage in [*ALWAYS, "compose"]:
            self.assertIn(f"=== {stage}: exit status", text)
        # Two tests in release, a bundle and wheels that are not built, and compose.
        self.assertEqual(self.counts(text), (3 + 3, 2 + 3, 0), text)


if __name__ == "__main__":
    SOURCE = sys.argv.pop(1)
    unittest.main()
