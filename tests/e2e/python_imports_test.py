"""What processes of Python import, and what an environment in Python is taken for: a stranger's working folder runs no code,
a file finds its neighbours, and the first lines say the kind of the environment.
"""

import json
import os
import re

import harness

#: Two agents whose episodes have `length` steps.
ENV = harness.SPACES + """
class Env:
    possible_agents = ["a", "b"]
    length = 5
    observation_space = staticmethod(lambda agent: Box())
    action_space = staticmethod(lambda agent: Discrete())

    def each(self, value):
        return {agent: value for agent in self.possible_agents}

    def reset(self, seed=None, options=None):
        self.agents, self.at = self.possible_agents[:], 0
        return self.each(np.zeros(2, np.float32)), {}

    def step(self, actions):
        self.at += 1
        over = self.at == self.length
        self.agents = [] if over else self.possible_agents[:]
        return self.each(np.zeros(2, np.float32)), self.each(1.0), self.each(over), self.each(False), {}
"""

#: One that ends its process once, and functions; they note which process of Troupe's imports them.
MINE = ENV + """
import os
import time

from troupe import Callback

def note(text):
    with open(os.environ["NOTES"], "a") as file:
        file.write(text + "\\n")

with open("/proc/self/cmdline") as file:
    note(" ".join(word for word in file.read().split("\\0") if word.startswith("troupe.")))

class Mortal(Env):
    def step(self, actions):
        if self.at == 3 and not os.path.exists(os.environ["DIED"]):
            open(os.environ["DIED"], "w").close()
            os._exit(1)
        if self.at == 3:  # the process that forks others comes after the first death, and the run is to see it
            deadline = time.monotonic() + 25
            while "troupe.fork_server" not in open(os.environ["NOTES"]).read() and time.monotonic() < deadline:
                time.sleep(0.01)
        return super().step(actions)

def choose(agent_id, episode, worker):
    note("choose")
    return "learns" if agent_id == "a" else "plays"

def trains(policy_id, batch):
    note("trains")
    return policy_id == "learns"

def plays(observations, rows):
    note("plays")
    return np.zeros(len(observations), np.int64)

class Diary(Callback):
    def on_update_end(self, ctx):
        note("diary")
"""

RUN = """
env: {name: "python:mine:Mortal", max_failed_share: 1.0, python: {interpreter: PYTHON, path: PATH, processes: 1}}
algorithm: {name: ppo, train_batch_size: 200, minibatch_size: 100, num_epochs: 1}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
multi_agent:
  policies: {learns: {}, plays: {class: "python:mine:plays"}}
  policy_mapping: {function: "python:mine:choose"}
  policies_to_train: "python:mine:trains"
callbacks: ["python:mine:Diary"]
num_workers: 1
num_envs_per_worker: 2
evaluation: {at_end: false}
experiment: {wandb: true, write_interval: 200}
stop: {env_steps: 2000}
"""

FAKE_WANDB = """
import os

class Session:
    summary = {}
    define_metric = log = finish = lambda self, *args, **kwargs: None

def init(**options):
    with open(os.environ["NOTES"], "a") as file:
        file.write("wandb\\n")
    return Session()
"""

#: Modules that Python, numpy and Troupe import, of which some may be imported before any code of Troupe's runs.
PLANTED = ("troupe/__init__.py", "json.py", "numpy.py", "random.py", "signal.py", "runpy.py", "importlib/__init__.py", "argparse.py", "fcntl.py", "wandb.py")

TEAM = ENV + """
import multiprocessing

from team_rules import LENGTH

def count(pipe):
    pipe.send(LENGTH)

class Team(Env):
    def __init__(self):
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        process = context.Process(target=count, args=(theirs,))
        process.start()
        theirs.close()
        self.length = mine.recv()
        process.join()
"""

SMALL = """
env: {name: "python:NAME", python: {interpreter: PYTHON, processes: 1}}
algorithm: {name: ippo, train_batch_size: 200, num_epochs: 1}
num_workers: 1
num_envs_per_worker: 2
evaluation: {at_end: false}
stop: {env_steps: 400}
"""

KINDS = harness.SPACES + """
class Tuple:
    def __init__(self, spaces):
        self.spaces = tuple(spaces)

    def __len__(self):
        return len(self.spaces)

    def __getitem__(self, place):
        return self.spaces[place]

class Tuples:
    observation_space, action_space = Tuple([Box(), Box()]), Tuple([Discrete(), Discrete()])
    seen = (np.zeros(2, np.float32), np.zeros(2, np.float32))

    def reset(self, seed=None, options=None):
        return self.seen, {}

    def step(self, actions):
        return self.seen, 1.0, True, False, {}

class Several(Tuples):
    n_agents = 2
"""


class PythonImportsTest(harness.TroupeTestCase):
    def setUp(self):
        super().setUp()
        self.python = os.environ["TROUPE_TEST_PYTHON"]

    def plant(self):
        """A folder of a stranger's, in which each module notes that it ran."""
        os.mkdir(self.path("stranger"))
        for name in PLANTED:
            os.makedirs(os.path.dirname(self.path("stranger", name)), exist_ok=True)
            self.write(f"stranger/{name}", f"open({self.path('ran')!r}, 'a').write({name + chr(10)!r})\nraise SystemExit(9)\n")
        return self.path("stranger")

    def assert_nothing_planted_ran(self, done):
        self.assertFalse(os.path.exists(self.path("ran")), f"{done.stdout}\n{done.stderr}")

    def notes(self):
        with open(self.path("notes")) as file:
            return set(file.read().splitlines())

    def test_no_process_of_python_imports_from_the_working_folder(self):
        stranger = self.plant()
        os.mkdir(self.path("fake"))
        self.write("fake/wandb.py", FAKE_WANDB)
        os.mkdir(self.path("mine"))
        self.write("mine/mine.py", MINE)
        # An empty item stands for the working folder.
        environment = {**os.environ, "NOTES": self.path("notes"), "DIED": self.path("died"), "PYTHONPATH": f":{self.path('fake')}:"}
        config = self.write("run.yaml", RUN.replace("PYTHON", self.python).replace("PATH", self.path("mine")))
        done = self.troupe("train", config, "--name", "run", cwd=stranger, env=environment)
        self.assert_nothing_planted_ran(done)
        self.assertLessEqual({"troupe.env_host", "troupe.fork_server", "troupe.callback_host", "choose", "plays", "trains", "diary", "wandb"}, self.notes())
        check = ("envs", "check", "python:mine:Mortal", "--python", self.python, "--set", f"env.python.path={self.path('mine')}", "--episodes", "1")
        self.assert_nothing_planted_ran(self.troupe(*check, cwd=stranger, env=environment))
        # They become Python themselves; whether it has what they need is another matter.
        for command in (("export", "runs/run", "--output", "x.safetensors"), ("runs", "plot", "run", "--output", "x.png")):
            self.assert_nothing_planted_ran(self.troupe(*command, cwd=stranger, env=environment, ok=False))

    def test_a_module_of_the_working_folder_is_found_by_its_name(self):
        stranger = self.plant()
        self.write("stranger/here.py", ENV)
        done = self.troupe("envs", "check", "python:here:Env", "--python", self.python, "--episodes", "1", cwd=stranger)
        self.assertIn("recognized as PettingZoo parallel, 2 agents\n", done.stdout)
        self.assert_nothing_planted_ran(done)

    def test_a_file_imports_its_neighbours_and_its_processes_import_it(self):
        os.mkdir(self.path("team"))
        self.write("team/team_rules.py", "LENGTH = 4\n")
        self.write("team/team_env.py", TEAM)
        config = self.write("team/run.yaml", SMALL.replace("PYTHON", self.python).replace("NAME", "team_env.py:Team"))
        self.troupe("train", config, "--name", "run")
        self.assertEqual(self.progress("run")[-1]["episode_length"], 4)
        self.troupe("envs", "check", "python:team/team_env.py:Team", "--python", self.python, "--episodes", "1")

    def test_what_an_environment_was_recognized_as_is_said(self):
        self.write("kinds.py", KINDS)
        one = "Gymnasium, 1 agent (its spaces are Tuples of 2: with an attribute n_agents it has 2 agents)"
        for name, words in (("Tuples", one), ("Several", "Gymnasium with lists, 2 agents")):
            with self.subTest(name):
                arguments = (f"python:kinds.py:{name}", "--python", self.python)
                self.assertEqual(self.troupe("envs", "check", *arguments, "--episodes", "1").stdout.splitlines()[0], f"recognized as {words}")
                checked = json.loads(self.troupe("envs", "check", *arguments, "--episodes", "1", "--json").stdout)
                self.assertEqual((checked["recognized_as"], checked["ok"]), (words, True))
                self.assertEqual(self.troupe("init", *arguments, "--output", f"{name}.yaml").stdout.splitlines()[0], f"recognized as {words}")
                config = self.write(f"{name}_run.yaml", SMALL.replace("PYTHON", self.python).replace("NAME", f"kinds.py:{name}"))
                said = self.troupe("train", config, "--name", name)
                lines = [line for line in (said.stdout + said.stderr).splitlines() if "recognized_as" in line]
                self.assertEqual([re.sub(r".* environment name", "environment name", line) for line in lines],
                                 [f'environment name=python:kinds.py:{name} recognized_as="{words}"'])
        native = self.troupe("envs", "check", "cartpole", "--episodes", "1", "--json")
        self.assertIsNone(json.loads(native.stdout)["recognized_as"])
        self.assertNotIn("recognized", self.troupe("envs", "check", "cartpole", "--episodes", "1").stdout)


if __name__ == "__main__":
    harness.main()
