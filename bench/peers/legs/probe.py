"""What every leg shares: the settings, the minibatch counter, the marks, the result file.

A leg is a program that trains until it has been in the steady state for `--seconds` and writes one JSON
file, named by PEERS_RESULT, for the harness. Its core is `marks`: one `[time, env_steps, minibatch_steps]`
for each finished training iteration, time on the machine-wide monotonic clock. The first mark ends the
first iteration, so a rate between the first and the last mark leaves start-up and warm-up out. The harness
does that arithmetic, the same for all legs.
"""

import argparse
import json
import mmap
import os
import struct
import sys
import time

SETTINGS = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "settings.json")))
ROWS = SETTINGS["train_batch_env_steps"] * SETTINGS["num_agents"]
MINIBATCHES = ROWS // SETTINGS["minibatch_rows"]
MINIBATCH_STEPS = MINIBATCHES * SETTINGS["num_epochs"]  # per training iteration


class Enough(BaseException):
    """Raised at an iteration's end to leave a training loop that has no other exit.

    Not an Exception, so that a framework's own `except Exception` does not swallow it.
    """


class Marks:
    """The record of finished iterations. One thread only.

    Enough is `seconds` after the first mark and at least `min_iterations` more iterations.
    """

    def __init__(self, seconds, min_iterations=3):
        self.marks = []
        self._seconds = seconds
        self._min_iterations = min_iterations

    def add(self, env_steps, minibatch_steps, at=None):
        """Notes a finished iteration; true once enough are in."""
        self.marks.append((time.monotonic() if at is None else at, int(env_steps), int(minibatch_steps)))
        elapsed = self.marks[-1][0] - self.marks[0][0]
        return elapsed >= self._seconds and len(self.marks) > self._min_iterations

    def write(self, **facts):
        """Writes the result: to PEERS_RESULT, or to stdout when a person runs the leg by hand."""
        result = dict(facts, marks=self.marks)
        path = os.environ.get("PEERS_RESULT")
        if not path:
            print(json.dumps(result))
            return
        with open(path + ".part", "w") as f:
            json.dump(result, f)
        os.replace(path + ".part", path)


class StepCounter:
    """Counts optimizer steps, in this process or in all that map the same file.

    The count is what proves that a peer does the 120 minibatch steps it was asked for. `path` names a file
    for a learner that lives in a child process; only one process may step its optimizer.
    """

    def __init__(self, path=None):
        if path:
            with open(path, "a+b") as f:
                f.truncate(8)
                self._cell = mmap.mmap(f.fileno(), 8)
        else:
            self._cell = bytearray(8)

    @property
    def value(self):
        return struct.unpack_from("<q", self._cell)[0]

    def install(self, on_step=None):
        """Hooks every torch optimizer of this process; `on_step(count)` runs after each step."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        def hook(*_):
            count = self.value + 1
            struct.pack_into("<q", self._cell, 0, count)
            if on_step:
                on_step(count)

        register_optimizer_step_post_hook(hook)
        return self


def mark_every_iteration(marks, env_steps_per_iteration, minibatch_steps_per_iteration=MINIBATCH_STEPS):
    """For trainers that run for ever in one call: a mark at each iteration's last minibatch step.

    From the end of one update to the end of the next is one whole iteration. Raises Enough.
    """

    def on_step(count):
        iterations, rest = divmod(count, minibatch_steps_per_iteration)
        if rest == 0 and marks.add(iterations * env_steps_per_iteration, count):
            raise Enough

    return StepCounter().install(on_step)


def parse_args(description, **defaults):
    """`--seconds` and `--seed` of every leg, and one option for each keyword, typed by its default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=float, default=20.0, help="steady state to measure")
    parser.add_argument("--seed", type=int, default=1)
    for name, value in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    args = parser.parse_args()
    if getattr(args, "threads", 0):
        import torch

        torch.set_num_threads(args.threads)
    return args


def make_spread():
    """simple_spread_v3's parallel API, from mpe2 or, for old stacks, from the PettingZoo it came from."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if "pettingzoo_mpe" in os.environ.get("PEERS_ENV_SOURCE", ""):
        from pettingzoo.mpe import simple_spread_v3
    else:
        from mpe2 import simple_spread_v3
    return simple_spread_v3.parallel_env(
        N=SETTINGS["num_agents"], max_cycles=SETTINGS["max_cycles"], continuous_actions=False
    )


def leave():
    """Ends the process at once: a framework's own shutdown is not part of the figure, and may hang."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
