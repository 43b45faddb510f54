"""What a person sees of `troupe train` in a terminal: the progress block stands once, and no line that comes meanwhile is lost in it."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading

import harness

CONFIG = """
env: {name: mpe/simple_spread}
num_workers: 2
num_envs_per_worker: 8
algorithm: {train_batch_size: 400, minibatch_size: 300, num_epochs: 1}
multi_agent: {policies: {main: {}}}
model: {actor_hidden_sizes: [16], critic_hidden_sizes: [16]}
stop: {env_steps: 100000000}
experiment: {write_interval: 400}
evaluation: {at_end: false}
"""
ROWS, COLUMNS = 50, 400
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [^\r\n\x1b]*")


class Screen:
    """What a terminal shows, as far as troupe uses one: text, line feeds, "up", "clear to the right" and "clear below"."""

    def __init__(self, columns):
        self.columns = columns
        self.rows = [""]
        self.row = self.column = 0

    def write(self, text):
        for part in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", text):
            if part == "\n":
                self.down()
            elif part == "\r":
                self.column = 0
            elif part.startswith("\x1b"):
                self.control(part[-1], int(part[2:-1] or 0))
            else:
                for character in part:
                    self.put(character)

    def down(self):
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append("")

    def control(self, what, count):
        if what == "A":
            self.row = max(0, self.row - count)
        if what in "KJ":
            self.rows[self.row] = self.rows[self.row][:self.column]
        if what == "J":
            del self.rows[self.row + 1:]

    def put(self, character):
        if self.column == self.columns:
            self.down()
            self.column = 0
        line = self.rows[self.row].ljust(self.column)
        self.rows[self.row] = line[:self.column] + character + line[self.column + 1:]
        self.column += 1


class TerminalTest(harness.RunningTestCase):
    def start_in_terminal(self, *arguments):
        """`troupe train ARGUMENTS` in a terminal of its own; `self.said` grows by what it writes there."""
        self.said = ""
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        process = subprocess.Popen([self.program, "train", *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=its, stderr=its,
                                   env=dict(os.environ, **{harness.MARK: self.folder}))
        os.close(its)

        def read():
            while True:
                try:
                    self.said += os.read(ours, 65536).decode(errors="replace")
                except OSError:  # nobody has the other end any more
                    return
        reader = threading.Thread(target=read)
        reader.start()
        self.addCleanup(os.close, ours)
        self.addCleanup(reader.join, 30)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.reader = reader
        return process

    def log_text(self):
        return self.said

    def screen(self):
        """The rows at the end, of which none may lack a word that was said."""
        self.reader.join(30)
        said = COLOUR.sub("", self.said)
        screen = Screen(COLUMNS)
        screen.write(said)
        lines = LINE.findall(said)
        self.assertTrue(lines)
        for line in lines:
            self.assertIn(line.rstrip(), [row.rstrip() for row in screen.rows], "overdrawn, or broken")
        return screen.rows

    def count(self, rows, words):
        return sum(words in row for row in rows)

    def disturb(self, process):
        """Everybody says something while the block is shown."""
        self.await_env_steps(2000, process)
        for copy in ("one", "two", "three"):
            self.troupe("policy", "copy", "run", "main", copy, "--frozen")
            self.await_env_steps(self.env_steps() + 2000, process)
        victim = self.workers(process)[0]
        os.kill(victim, signal.SIGKILL)
        self.await_true(lambda: victim not in self.workers(process) and len(self.workers(process)) == 2, "a successor")
        self.await_env_steps(self.env_steps() + 4000, process)

    def test_lines_of_all_processes_stand_above_the_block(self):
        process = self.start_in_terminal(self.write("run.yaml", CONFIG), "--name", "run", "--set", "stop.wall_clock=12")
        self.disturb(process)
        self.assertEqual(process.wait(timeout=60), 0, self.said)
        rows = self.screen()
        text = "\n".join(rows)
        self.assertEqual(self.count(rows, "policy lag "), 1, f"the block stands once\n{text}")
        self.assertEqual(self.count(rows, "policies changed"), 3, text)
        self.assertEqual(self.count(rows, "was killed by signal 9"), 1, text)
        self.assertGreaterEqual(self.count(rows, "worker left"), 3, text)
        self.assertIn("results in runs/run", [row.rstrip() for row in rows])

    def test_what_workers_say_stands_above_the_block(self):
        process = self.start_in_terminal(self.write("run.yaml", CONFIG), "--name", "run", "--set", "stop.wall_clock=4", "--log-level", "debug")
        self.assertEqual(process.wait(timeout=60), 0, self.said)
        rows = self.screen()
        text = "\n".join(rows)
        self.assertGreaterEqual(self.count(rows, " debug worker memory pid="), 4, text)
        self.assertGreaterEqual(self.count(rows, " info worker worker ends "), 2, text)
        self.assertEqual(self.count(rows, "policy lag "), 1, text)

    def test_after_an_interrupt_lines_follow_the_block(self):
        process = self.start_in_terminal(self.write("run.yaml", CONFIG), "--name", "run")
        self.disturb(process)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), 130, self.said)
        rows = self.screen()
        text = "\n".join(rows)
        self.assertEqual(self.count(rows, "policy lag "), 1, f"the block stands once\n{text}")
        block = next(i for i, row in enumerate(rows) if "policy lag " in row)
        stopping = next(i for i, row in enumerate(rows) if "stopping: the learner ends the run in order" in row)
        self.assertLess(block, stopping, text)


if __name__ == "__main__":
    harness.main()
