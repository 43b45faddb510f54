"""`troupe watch` in a terminal: one picture stands there, whatever its size; newer checkpoints are taken up; Ctrl-C ends it in order."""

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import termios
import threading

import harness
from terminal_test import COLOUR, Screen

CONFIG = """
env: {name: cartpole, args: {num_agents: 8}}
num_workers: 0
num_envs_per_worker: 4
algorithm: {name: ippo, train_batch_size: 200, minibatch_size: 200, num_epochs: 1}
model: {actor_hidden_sizes: [16], critic_hidden_sizes: [16]}
stop: {env_steps: 200}
evaluation: {at_end: false}
"""


class Window(Screen):
    """A screen of so many rows: what has left it at the top is not gone back to."""

    def __init__(self, height, columns):
        super().__init__(columns)
        self.height, self.top = height, 0

    def down(self):
        super().down()
        self.top = max(self.top, self.row - self.height + 1)

    def control(self, what, count):
        super().control(what, min(count, self.row - self.top) if what == "A" else count)


class WatchTest(harness.RunningTestCase):
    def setUp(self):
        super().setUp()
        self.troupe("train", self.write("run.yaml", CONFIG), "--name", "run")

    def watch(self, height, columns, *arguments, **environment):
        """`troupe watch run ARGUMENTS` in the foreground of a terminal of its own; `self.said` grows by what it writes there."""
        self.said = b""
        self.terminal, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", height, columns, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLORTERM", "LC_ALL", "LC_CTYPE")}
        process = subprocess.Popen([self.program, "watch", "run", "--fps", "100", *arguments], cwd=self.folder, stdin=inside, stdout=inside, stderr=inside,
                                   start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
                                   env={**inherited, "TERM": "xterm-256color", "LANG": "C.UTF-8", **environment})
        os.close(inside)
        self.reader = threading.Thread(target=self.read, args=(self.terminal,))
        self.reader.start()
        self.addCleanup(os.close, self.terminal)
        self.addCleanup(self.reader.join, 30)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def read(self, terminal):
        while True:
            try:
                self.said += os.read(terminal, 65536)
            except OSError:  # nobody has the other end any more
                return

    def log_text(self):
        return self.said.decode(errors="replace")

    def await_said(self, process, what, condition):
        def there():
            self.assertIsNone(process.poll(), self.log_text())
            return condition(self.log_text())
        self.await_true(there, what)

    def interrupt(self, process):
        os.write(self.terminal, b"\x03")
        self.assertEqual(process.wait(timeout=60), 130, self.log_text())
        self.reader.join(30)
        return self.log_text().replace("^C", "")

    def standing(self, height, columns, **environment):
        """The lines that stand in a terminal of that size after many pictures, also those that have left it at the top."""
        process = self.watch(height, columns, **environment)
        self.await_said(process, "many pictures", lambda said: said.count("\x1b[J") > 20)
        window = Window(height, columns)
        window.write(COLOUR.sub("", self.interrupt(process)))
        rows = [row.rstrip() for row in window.rows]
        self.assertLess(len(rows) - rows[::-1].index(next(row for row in rows[::-1] if row)), height, "they fit above the cursor\n" + "\n".join(rows))
        self.assertLess(max(map(len, rows)), columns)
        return rows

    def test_a_picture_is_drawn_over_the_one_before(self):
        rows = self.standing(24, 80)
        self.assertEqual({row for row in rows[:15]}, {"▀" * 30})
        self.assertRegex(rows[15], r"^cartpole  weights of 200 env steps  episode \d+  step \d+(  the end)?$")
        self.assertEqual([re.sub(r"return .*", "return", row) for row in rows[16:22]], [f"agent_{i}  default_policy  return" for i in range(6)])
        self.assertEqual(rows[22:], ["and 2 more", ""])

    def test_where_rows_do_not_suffice_captions_give_way(self):
        for height, told in ((10, 3), (7, 0)):
            rows = self.standing(height, 80)
            self.assertEqual(rows[:4], ["▀" * 8] * 4)
            self.assertIn("weights of", rows[4])
            self.assertEqual([row.split()[0] for row in rows[5:5 + told]], [f"agent_{i}" for i in range(told)])
            self.assertEqual(rows[5 + told:], [f"and {8 - told} more" if told else "8 agents", ""])
        self.assertEqual(self.standing(4, 80), ["▀" * 6] * 3 + [""])

    def test_lines_are_cut_at_the_terminals_width(self):
        rows = self.standing(24, 30, NO_COLOR="1")
        self.assertIn("cartpole  weights of 200 e...", rows)
        self.assertRegex("\n".join(rows), r"\nagent_0  default_policy  r\.\.\.\n")
        self.assertIn("and 2 more", rows)
        self.assertTrue("".join(rows).isascii(), "NO_COLOR is heard")

    def test_a_newer_checkpoint_is_taken_up_and_what_is_played_may_go(self):
        process = self.watch(24, 80)
        self.await_said(process, "the first checkpoint", lambda said: "weights of 200 env steps" in said)
        self.troupe("train", "--resume", "runs/run", "--set", "stop.env_steps=400")
        self.await_said(process, "the newer checkpoint", lambda said: "weights of 400 env steps" in said)
        shutil.rmtree(self.path("runs", "run", "checkpoints"))
        episodes = self.episodes()
        self.await_said(process, "two more episodes", lambda said: self.episodes() > episodes + 2)
        said = self.interrupt(process)
        self.assertEqual(re.findall(r"weights of (\d+)", said), sorted(re.findall(r"weights of (\d+)", said)), "it does not go back")
        self.assertNotIn("error", said)

    def episodes(self):
        return int(re.findall(r"episode (\d+)  step", self.log_text())[-1])


if __name__ == "__main__":
    harness.main()
