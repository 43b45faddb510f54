"""Follows a run's progress.jsonl and logs it with the official Weights & Biases client.

    python3 -m troupe.wandb_follow runs/my_run --project my_project

The learner starts this where the configuration says `experiment.wandb: true`; it can as well be started by hand, during the run or after
it. It ends when the run's summary.json is there. Started again it goes on where it stopped, in the same W&B run: what it needs
for that is in RUN/wandb_follow.json. A learner that resumes from a checkpoint trains some env steps twice; W&B's history cannot be cut, so lines
up to the env steps that are logged already are left out. A second line of the same env steps, which has the last evaluation, is logged, too.
"""

import argparse
import fcntl
import json
import os
import signal
import stat
import sys
import threading
import uuid

from troupe.progress import LineCount, LineTail

STATE_FILE = "wandb_follow.json"
VIDEO_FOLDER, VIDEO_KEY, MOST_VIDEO_BYTES = "videos", "Videos_Test", 16 << 20


class FollowError(Exception):
    """What a person has to know and do; main() prints it without a traceback."""


class Follower:
    """Carries lines of one run folder to one W&B run. Not thread-safe.

    `wandb` is the client module. Between steps nothing is held open in the run folder but the lock that keeps a second follower out.
    """

    def __init__(self, run, wandb, options=None, warn=lambda message: print(message, file=sys.stderr)):
        self._run = run
        self._wandb = wandb
        self._options = dict(options or {})
        self._warn = warn
        self._tail = LineTail(os.path.join(run, "progress.jsonl"))
        # lines: of the lines of `env_steps`, the number that is logged.
        self._state = {"id": uuid.uuid4().hex[:16], "env_steps": -1, "lines": 0, "film": -1}
        self._count = LineCount(self._tail)
        self._session = None

    def start(self):
        """Makes or takes up the W&B run."""
        path = os.path.join(self._run, STATE_FILE)
        if os.path.exists(path):
            try:
                with open(path, encoding="utf-8") as file:
                    state = json.load(file)
                self._state = {"id": str(state["id"]), "env_steps": int(state["env_steps"]), "lines": int(state.get("lines", 1)),
                               "film": int(state.get("film", -1))}
            except (ValueError, KeyError, TypeError) as error:
                raise FollowError(f"{path}: not a follower's state ({error}); remove it to begin a new W&B run") from error
        options = {"project": "troupe", "name": os.path.basename(os.path.abspath(self._run)), "dir": self._run}
        options.update(self._options)
        # The id is ours, because it has to survive this process.
        options.update({"id": self._state["id"], "resume": "allow"})
        self._session = self._wandb.init(config=self._read_config(), **options)
        # Every metric over environment steps, as in TensorBoard; W&B's own step only counts lines.
        self._session.define_metric("env_steps")
        self._session.define_metric("*", step_metric="env_steps")
        self._save_state()

    def step(self):
        """Logs what has come. Returns True when the run has ended and everything is logged."""
        # Before the lines: a summary seen now is newer than all of them.
        ended = self._has_ended()
        logged = False
        for line in self._tail.read():
            logged = self._log(line) or logged
        logged = self._log_films() or logged
        if logged:
            self._save_state()
        return ended

    def finish(self):
        """Ends the W&B run, with the run's summary where it is there."""
        if self._has_ended():
            with open(os.path.join(self._run, "summary.json"), encoding="utf-8") as file:
                self._session.summary.update(json.load(file))
        self._session.finish()

    def _log(self, line):
        try:
            values = json.loads(line)
            env_steps = int(values["env_steps"])
        except (ValueError, KeyError, TypeError) as error:
            self._warn(f"troupe.wandb_follow: left out a line of progress.jsonl that is none: {error}")
            return False
        place = self._count.place(env_steps)
        if place <= (self._state["env_steps"], self._state["lines"]):
            return False
        # null stands for "no value yet", which W&B would draw as a category.
        self._session.log({key: value for key, value in values.items() if value is not None})
        self._state["env_steps"], self._state["lines"] = place
        return True

    def _log_films(self):
        """Films of evaluations, videos/<env steps>.gif, that came since the last one that was logged."""
        try:
            names = os.listdir(os.path.join(self._run, VIDEO_FOLDER))
        except OSError:
            return False
        numbers = (name[:-len(".gif")] for name in names if name.endswith(".gif"))
        films = sorted(int(number) for number in numbers if number.isascii() and number.isdigit())
        films = [film for film in films if film > self._state["film"]]
        for env_steps in films:
            path = os.path.join(self._run, VIDEO_FOLDER, f"{env_steps}.gif")
            try:
                status = os.lstat(path)
                whole = stat.S_ISREG(status.st_mode) and status.st_size <= MOST_VIDEO_BYTES
                video = self._wandb.Video(path, format="gif") if whole else None
            except OSError:  # the learner keeps the newest alone
                continue
            if video is not None:
                self._session.log({VIDEO_KEY: video, "env_steps": env_steps})
            else:
                self._warn(f"troupe.wandb_follow: left out {path}: no file of at most {MOST_VIDEO_BYTES} bytes")
            self._state["film"] = env_steps
        return bool(films)

    def _has_ended(self):
        # A resumed run still has the summary of its last life, which its progress.jsonl then is newer than.
        try:
            summary = os.stat(os.path.join(self._run, "summary.json"))
        except FileNotFoundError:
            return False
        try:
            progress = os.stat(os.path.join(self._run, "progress.jsonl"))
        except FileNotFoundError:
            return True
        return summary.st_mtime_ns >= progress.st_mtime_ns

    def _read_config(self):
        """The run's configuration, for W&B to show; without the arguments of wandb.init, which are nobody's to see."""
        try:
            import yaml  # comes with wandb
        except ImportError:
            return None
        try:
            with open(os.path.join(self._run, "config.yaml"), encoding="utf-8") as file:
                config = yaml.safe_load(file)
        except FileNotFoundError:
            return None
        except PermissionError as error:  # it is its owner's alone
            self._warn(f"troupe.wandb_follow: W&B gets no configuration: {error}")
            return None
        if isinstance(config, dict) and isinstance(config.get("experiment"), dict):
            config["experiment"].pop("wandb_kwargs", None)
        return config

    def _save_state(self):
        path = os.path.join(self._run, STATE_FILE)
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(self._state, file)
        os.replace(path + ".tmp", path)


def lock_run(run, wait):
    """One follower a run. `wait(seconds)` paces the attempts. Returns the open lock; closing it lets go."""
    lock = open(os.path.join(run, STATE_FILE + ".lock"), "w", encoding="utf-8")
    # Long enough for the follower of a learner that died to notice and leave.
    for _ in range(30):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            wait(1.0)
    lock.close()
    raise FollowError(f"{run}: another follower logs this run")


def read_kwargs(path):
    """The JSON object in the file; {} without one. What it holds stands in no error."""
    if path is None:
        return {}
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if path.startswith("/dev/fd/"):
        os.close(int(path[len("/dev/fd/"):]))  # what this process starts is not to inherit it
    try:
        options = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(options, dict):
        raise ValueError(f"got {type(options).__name__}, expected a JSON object")
    return options


def parse_arguments(argv):
    parser = argparse.ArgumentParser(prog="python3 -m troupe.wandb_follow", description=__doc__.split("\n\n")[0],
                                     epilog="example: python3 -m troupe.wandb_follow runs/my_run --project my_project")
    parser.add_argument("run", help="the run's folder")
    parser.add_argument("--project", help="W&B project (default: troupe)")
    parser.add_argument("--entity", help="W&B user or team")
    parser.add_argument("--name", help="name of the W&B run (default: the folder's)")
    parser.add_argument("--group", help="W&B group")
    parser.add_argument("--kwargs-file", metavar="FILE",
                        help="a file, or /dev/stdin, with further arguments of wandb.init, as experiment.wandb_kwargs, in JSON: they may hold what nobody else "
                             "should read, and command lines are open to all")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds between looks at the file (default: 1)")
    parser.add_argument("--with-parent", action="store_true", help="end, too, when the process that started this one is gone")
    arguments = parser.parse_args(argv)
    try:
        options = read_kwargs(arguments.kwargs_file)
    except (OSError, ValueError) as error:
        parser.error(f"--kwargs-file {arguments.kwargs_file}: {error}")
    for key in ("project", "entity", "name", "group"):
        if getattr(arguments, key) is not None:
            options[key] = getattr(arguments, key)
    if arguments.interval <= 0:
        parser.error(f"--interval: expected more than 0 seconds, got {arguments.interval}")
    return arguments, options


def follow(arguments, options, stop):
    """Runs until the run has ended or `stop` (a threading.Event) is set; then logs what is left."""
    if not os.path.isdir(arguments.run):
        raise FollowError(f"{arguments.run}: no such run folder")
    try:
        import wandb
    except ImportError as error:
        raise FollowError(f"the W&B client cannot be imported ({error}): python3 -m pip install wandb") from error
    parent = os.getppid()
    with lock_run(arguments.run, stop.wait):
        follower = Follower(arguments.run, wandb, options)
        follower.start()
        try:
            while not follower.step() and not stop.wait(arguments.interval):
                if arguments.with_parent and os.getppid() != parent:
                    break
            follower.step()
        finally:
            follower.finish()


def main(argv=None):
    arguments, options = parse_arguments(argv)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        follow(arguments, options, stop)
    except FollowError as error:
        print(f"troupe.wandb_follow: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
