"""`troupe train` at a terminal: its block fits, follows the terminal's width and stands there once, also after Ctrl-C."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading

import harness

CONFIG = """
env: {name: cartpole, args: {num_agents: 2}}
num_workers: 1
num_envs_per_worker: 4
algorithm: {name: ippo, train_batch_size: 200, minibatch_size: 200, num_epochs: 1, lr: 7.0e-4}
model: {actor_hidden_sizes: [16], critic_hidden_sizes: [16]}
stop: {env_steps: 100000000}
evaluation: {at_end: false}
"""
ESCAPE = re.compile(r"\x1b\[[0-9]*([A-Z])")


class TerminalTest(harness.RunningTestCase):
    def setUp(self):
        super().setUp()
        self.said = b""

    def resize(self, columns):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def begin(self, columns):
        """`troupe train` of a run named `run` in the foreground of a terminal of its own."""
        self.terminal, inside = pty.openpty()
        self.addCleanup(os.close, self.terminal)
        self.resize(columns)
        self.write("log", "")
        process = subprocess.Popen([self.program, "train", self.write("run.yaml", CONFIG), "--name", "run"], cwd=self.folder, stdin=inside, stdout=inside,
                                   stderr=inside, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(inside)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        return process

    def read(self):
        while True:
            try:
                data = os.read(self.terminal, 1 << 16)
            except OSError:  # its other side is closed
                return
            self.said += data

    def blocks(self):
        """The blocks that were drawn: lists of lines, each begun where the one before was gone back over."""
        return [[ESCAPE.sub("", line) for line in block.replace("\r", "").split("\n")] for block in re.split(r"\x1b\[[0-9]+A", self.said.decode())]

    def await_blocks(self, count, process):
        def there():
            self.assertIsNone(process.poll(), self.said)
            return len(self.blocks()) > count
        self.await_true(there, f"{count} blocks")

    def test_a_block_follows_the_terminal_and_stands_once_after_ctrl_c(self):
        process = self.begin(50)
        self.await_blocks(3, process)
        for line in self.blocks()[1]:
            self.assertLess(len(line), 50)
        self.assertRegex("  ".join(self.blocks()[1]), r"env steps/s .*return .*update \d+ .*workers 1 .*lr 0\.0007 .*run run")
        narrow = len(self.blocks()[1])
        self.resize(120)
        self.await_true(lambda: len(self.blocks()[-2]) < narrow, "a block of the new width")
        os.write(self.terminal, b"\x03")
        self.assertEqual(process.wait(timeout=60), 130, self.said)
        self.reader.join(30)
        end = self.said.decode().partition("^C")[2]
        self.assertNotEqual(end, "", self.said)
        self.assertNotRegex(end, r"\x1b\[[0-9]+A|workers 1 +policy lag", "no block is drawn once more below what Ctrl-C wrote")
        self.assertIn("results in runs/run", end)


if __name__ == "__main__":
    harness.main()
