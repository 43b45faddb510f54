"""Environments for the tests of lib/envhost, without Gymnasium: spaces are known by their names and attributes."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np


class Box:
    """A Box of float32 or another dtype."""

    def __init__(self, low, high, shape, dtype=np.float32):
        self.low, self.high = np.full(shape, low, dtype), np.full(shape, high, dtype)
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)


class Discrete:
    """n actions."""

    def __init__(self, n, start=0):
        self.n, self.start = n, start


class Dict:
    """Named spaces."""

    def __init__(self, spaces):
        self.spaces = spaces


def note(path, text):
    """Appends a line to a file, for tests that count."""
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text + "\n")


class Counter:
    """Two agents whose observations tell seed, step and own last action; the reward is the action. As RLlib's dicts."""

    def __init__(self, length=5, log="", agent_type="str", close_seconds=0):
        self.possible_agents = {"str": ["a", "b"], "int": [7, 3], "tuple": [("x", 0), ("x", 1)]}[agent_type]
        self.observation_spaces = {agent: Box(-1, 2.0**31, (3,)) for agent in self.possible_agents}
        self.action_spaces = {agent: Discrete(5) for agent in self.possible_agents}
        self.length, self.log, self.close_seconds = length, log, close_seconds
        self.seed = self.steps = 0
        self.last = {agent: -1 for agent in self.possible_agents}
        note(log, f"made {os.getpid()}")

    def observations(self):
        """By agent."""
        return {a: np.array([self.seed % 65536, self.steps, self.last[a]], np.float32) for a in self.possible_agents}

    def reset(self, *, seed=None, options=None):
        """A new episode."""
        self.seed, self.steps = seed, 0
        self.last = {agent: -1 for agent in self.possible_agents}
        return self.observations(), {}

    def step(self, actions):
        """One step."""
        self.steps += 1
        self.last = {**self.last, **actions}
        over = self.steps >= self.length
        rewards = {agent: float(action) for agent, action in actions.items()}
        return self.observations(), rewards, {"__all__": False}, {"__all__": over}, {}

    def close(self):
        """Says so, and takes its time when told to."""
        note(self.log, "closed")
        time.sleep(self.close_seconds)


class Painter(Counter):
    """A Counter that draws itself, or what `how` says, and only with a render_mode where `asks` is true."""

    def __init__(self, how="picture", asks=True, height=4, width=6, render_mode=None):
        super().__init__()
        self.how, self.height, self.width = how, height, width
        self.draws = render_mode == "rgb_array" or not asks

    def render(self):
        """Each pixel is [step, row, column]."""
        if not self.draws or self.how == "none":
            return None
        if self.how == "raises":
            raise RuntimeError("no display")
        if self.how == "dies":
            os._exit(3)
        rows, columns = np.mgrid[0 : self.height, 0 : self.width]
        picture = np.stack([np.full_like(rows, self.steps), rows, columns], axis=2).astype(np.uint8)
        if self.how == "floats":
            return picture / 255
        if self.how == "gray":
            return picture[:, :, 0]
        if self.how == "rgba":
            return np.concatenate([picture, picture[:, :, :1]], axis=2)
        return [picture - 1, picture] if self.how == "list" else picture


class Blind(Counter):
    """Takes no render_mode and has no render()."""

    def __init__(self, length=5):
        super().__init__(length)


class Faulty(Counter):
    """A Counter that does what `faults` say (joined by commas, drawn at random): at a step, or at random once in so
    many.
    """

    def __init__(self, faults="exception", at_step=0, one_in=0, length=100, log=""):
        super().__init__(length, log)
        self.faults, self.at_step, self.one_in = faults.split(","), at_step, one_in
        self.random = random.Random()

    def step(self, actions):
        """One step, perhaps its last."""
        returned = super().step(actions)
        due = self.steps == self.at_step or (self.one_in and self.random.randrange(self.one_in) == 0)
        return self.fail(self.random.choice(self.faults), returned) if due else returned

    def fail(self, fault, returned):
        """Does it."""
        observations, rewards, terminateds, truncateds, infos = returned
        note(self.log, "fault " + fault)
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif fault == "exit":
            os._exit(3)
        elif fault == "litter":
            leave_child(self.log)
            os._exit(3)
        elif fault == "exception":
            raise ValueError("the wheel came off")
        elif fault == "system_exit":
            sys.exit(4)
        elif fault == "hang":
            time.sleep(1000)
        elif fault == "nan":
            observations["a"][1] = np.nan
        elif fault == "shape":
            observations["b"] = np.zeros(4, np.float32)
        elif fault == "dtype":
            observations["b"] = np.array(["x", "y", "z"])
        elif fault == "unknown_agent":
            observations["nobody"] = observations["a"]
        elif fault == "missing_all":
            del terminateds["__all__"]
        elif fault == "reward":
            rewards["a"] = "much"
        return returned


class Images:
    """Agents that each see an image, of which a step changes the first and the last number."""

    def __init__(self, agents=4, shape=(84, 84, 4), length=1000):
        self.possible_agents = [f"agent_{i}" for i in range(agents)]
        self.observation_spaces = {agent: Box(0, 255, tuple(shape), np.uint8) for agent in self.possible_agents}
        self.action_spaces = {agent: Discrete(5) for agent in self.possible_agents}
        self.images = {agent: np.zeros(shape, np.uint8) for agent in self.possible_agents}
        self.length, self.steps = length, 0

    def reset(self, *, seed=None, options=None):
        """Images of the step's number."""
        self.steps = 0
        return self.images, {}

    def step(self, actions):
        """The same, one higher."""
        self.steps += 1
        for image in self.images.values():
            image[0, 0, 0] = self.steps % 256
            image[-1, -1, -1] = self.steps % 256
        rewards = dict.fromkeys(self.possible_agents, 1.0)
        return self.images, rewards, {"__all__": False}, {"__all__": self.steps >= self.length}, {}


class Everything:
    """Action masks, agent masks, a global state, infos, an agent that comes late and one that ends early."""

    info_columns = ["score"]

    def __init__(self):
        self.possible_agents = ["early", "late"]
        mask = Box(0, 1, (3,), np.int8)
        self.observation_spaces = {
            agent: Dict({"action_mask": mask, "observation": Box(0, 10, (2, 2)), "state": Box(0, 10, (4,))})
            for agent in self.possible_agents
        }
        self.action_spaces = {agent: Discrete(3, start=1) for agent in self.possible_agents}
        self.steps = 0

    def one(self, mask):
        """An observation."""
        return {
            "action_mask": np.array(mask, np.int8),
            "observation": np.full((2, 2), self.steps, np.float32),
            "state": np.arange(4, dtype=np.float32) + self.steps,
        }

    def reset(self, *, seed=None, options=None):
        """`early` alone."""
        self.steps = 0
        return {"early": self.one([1, 0, 1])}, {"early": {"agent_mask": True, "score": 0.5}}

    def step(self, actions):
        """Then both; then `early` ends; then all."""
        self.steps += 1
        if self.steps == 1:
            observations = {"early": self.one([0, 0, 1]), "late": self.one([1, 1, 1])}
            infos = {"early": {"agent_mask": False, "score": 1.5}}
            return observations, {"early": 2.0}, {"__all__": False}, {}, infos
        if self.steps == 2:
            observations = {"early": self.one([1, 1, 1]), "late": self.one([0, 1, 0])}
            return observations, {"early": -1.0, "late": None}, {"early": True, "__all__": False}, {}, {}
        return {"late": self.one([1, 1, 1])}, {"late": 3.0}, {"__all__": True}, {}, {}


class Dummy:
    """Agents that see 4 numbers; a step takes `microseconds` of computing. As PettingZoo's parallel environments."""

    metadata: dict = {"name": "dummy"}

    def __init__(self, microseconds=5.0, agents=2, length=1000):
        self.possible_agents = [f"agent_{i}" for i in range(agents)]
        self.agents = self.possible_agents[:]
        self.box, self.discrete = Box(-1, 1, (4,)), Discrete(5)
        self.seconds, self.length, self.steps = microseconds * 1e-6, length, 0
        self.row = np.zeros(4, np.float32)

    def observation_space(self, agent):
        """The same for everybody."""
        return self.box

    def action_space(self, agent):
        """The same for everybody."""
        return self.discrete

    def reset(self, seed=None, options=None):
        """Zeros."""
        self.agents, self.steps = self.possible_agents[:], 0
        return {agent: self.row for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        """Computes until its time is over: what it makes is part of that."""
        end = time.perf_counter() + self.seconds
        self.steps += 1
        over = self.steps >= self.length
        agents = self.agents
        observations = dict.fromkeys(agents, self.row)
        rewards = dict.fromkeys(agents, 1.0)
        terminations = dict.fromkeys(agents, False)
        truncations = dict.fromkeys(agents, over)
        infos = {agent: {} for agent in agents}
        if over:
            self.agents = []
        while time.perf_counter() < end:
            pass
        return observations, rewards, terminations, truncations, infos

    def close(self):
        """Nothing to do."""


def leave_child(log):
    """Starts a process that lives on, and notes it."""
    child = subprocess.Popen(["sleep", "1000"])  # pylint: disable=consider-using-with
    note(log, f"left {child.pid}")


def with_child(log):
    """A Counter that has started another process."""
    leave_child(log)
    return Counter()


def counter(**args):
    """Makes a Counter."""
    return Counter(**args)


def teams(**args):
    """A Counter with an agent for each member of a team."""
    env = Counter()
    env.possible_agents = [f"{team}_{i}" for team, size in {**args["teams"], **args["more"][0]}.items() for i in range(size)]
    env.observation_spaces = {agent: Box(-1, 1, (3,)) for agent in env.possible_agents}
    env.action_spaces = {agent: Discrete(5) for agent in env.possible_agents}
    env.last = {agent: -1 for agent in env.possible_agents}
    return env


def plain_painter():
    """A Painter whose maker takes no render_mode."""
    return Painter(asks=False)


def changing(folder, **args):
    """Each process makes another number of observations."""
    env = Counter(**args)
    name = os.path.join(folder, "count")
    note(name, "x")
    with open(name, encoding="utf-8") as file:
        size = 3 + len(file.readlines())
    env.observation_spaces = {agent: Box(-1, 1, (size,)) for agent in env.possible_agents}
    env.observations = lambda: {a: np.zeros(size, np.float32) for a in env.possible_agents}
    return env


def slow_start(seconds):
    """Takes its time."""
    time.sleep(seconds)
    return Counter()


def noisy_start(lines):
    """Prints so many lines of 1,000 characters before it is there."""
    for i in range(lines):
        print(str(i % 10) * 1000, flush=True)
    return Counter()


def printing(lines, width=100, **args):
    """Prints so many lines in every step."""
    env = Counter(**args)
    step = env.step

    def noisy(actions):
        for i in range(lines):
            print(str(i) * width, flush=True)
        return step(actions)

    env.step = noisy
    return env


def tells_caller():
    """A Counter whose observations say whether an adapter has called step, or the short way."""
    env = Counter()
    step = env.step

    def watched(actions):
        caller = sys._getframe(1).f_code.co_filename
        return step({agent: float("env_adapters" in caller) for agent in actions})

    env.step = watched
    return env


def fractions():
    """A Counter whose rewards are no whole numbers, and no sums of few powers of two."""
    env = Counter(length=4)
    step = env.step
    rewards = [{"a": 0.1, "b": -1e-7}, {"a": 1 / 3, "b": 123456.789}, {"a": -2.5e-3, "b": np.float32(0.7)}]

    def of_step(actions):
        observations, _, *rest = step(actions)
        return observations, rewards[min(env.steps, 3) - 1], *rest

    env.step = of_step
    return env


def globals_only():
    """A Counter whose observations come from the global generators."""
    env = Counter()
    env.observations = lambda: {
        a: np.array([random.random(), np.random.rand(), 0], np.float32) for a in env.possible_agents
    }
    return env
