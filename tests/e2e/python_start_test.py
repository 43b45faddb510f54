"""What stands between a person and an environment in Python that runs: where its file is looked for, which Python runs it, and what is said where
something is missing."""

import os
import shutil
import subprocess
import sys

import harness

WALK = harness.SPACES + """class Walk:
    def __init__(self, words=0):
        self.possible_agents = ["walker"]
        self.observation_spaces, self.action_spaces = {"walker": Box()}, {"walker": Discrete()}
        self.words = words

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return {"walker": np.zeros(2, np.float32)}, {"walker": {}}

    def step(self, actions):
        self.t += 1
        for _ in range(self.words):
            print("a word at", self.t)
        done = {"walker": self.t == 5, "__all__": self.t == 5}
        return {"walker": np.zeros(2, np.float32)}, {"walker": float(actions["walker"])}, done, {"walker": False, "__all__": False}, {"walker": {}}

def choose(agent_id):
    return "main"
"""
RUN = """
env: {name: "python:walk.py:Walk", python: {processes: 1}}
multi_agent: {policies: [main], policy_mapping: {function: "python:walk.py:choose"}}
algorithm: {name: ippo, train_batch_size: 100, minibatch_size: 50, num_epochs: 1}
model: {actor_hidden_sizes: [8], critic_hidden_sizes: [8]}
num_workers: 1
num_envs_per_worker: 2
stop: {env_steps: 200}
evaluation: {episodes: 2}
"""
PYTHON = os.environ["TROUPE_TEST_PYTHON"]
NAME_ANOTHER = "env.python.interpreter in the configuration (--python of train, learner and envs)"


class PythonStartTest(harness.TroupeTestCase):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("mine"))
        self.config = self.write("mine/run.yaml", RUN)
        self.write("mine/walk.py", WALK)

    def fails(self, *arguments, saying, **how):
        done = self.troupe(*arguments, ok=False, **how)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        for words in saying:
            self.assertIn(words, done.stderr)
        return done.stderr

    def assert_said_in_an_error_alone(self, said):
        """Nothing of the log stands before it, and no traceback in it."""
        self.assertTrue(said.startswith("troupe: error: "), said)
        self.assertEqual(len(said.splitlines()), 1, said)
        self.assertNotIn("Traceback", said)
        self.assertNotIn(" | ", said)

    def test_files_are_relative_to_the_configuration_that_names_them(self):
        python = ["--python", PYTHON]
        self.troupe("train", "mine/run.yaml", "--name", "run", *python)
        self.assertEqual(self.summary("run")["env_steps"], 200)
        # The run's own configuration lies elsewhere, and says where they are; so does that of a worker.
        os.makedirs(self.path("elsewhere"))
        self.troupe("train", "--resume", self.path("runs", "run"), "--set", "stop.env_steps=300", cwd=self.path("elsewhere"))
        self.troupe("evaluate", self.path("runs", "run"), "--episodes", "2", cwd=self.path("elsewhere"))
        self.assertEqual(self.summary("run")["env_steps"], 300)
        with open(self.path("runs", "run", "config.yaml")) as file:
            self.assertIn('name: "python:walk.py:Walk"', file.read())

    def test_files_on_the_command_line_are_relative_to_the_working_folder(self):
        python = ["--python", PYTHON]
        self.troupe("envs", "check", "python:walk.py:Walk", "--episodes", "1", *python, cwd=self.path("mine"))
        self.troupe("envs", "check", "python:mine/walk.py:Walk", "--episodes", "1", *python)
        self.fails("envs", "check", "python:walk.py:Walk", *python, saying=[f"there is no file {self.path('walk.py')}"])
        # Beside a file of the configuration, which has the same name.
        self.write("walk.py", WALK.replace("self.t == 5", "self.t == 7"))
        self.troupe("train", "mine/run.yaml", "--name", "seven", "--set", "env.name=python:walk.py:Walk", *python)
        self.assertEqual(self.summary("seven")["evaluation"]["episode_length"]["mean"], 7)

    def test_an_example_runs_from_any_folder(self):
        done = self.troupe("config", "show", self.example("python/corridor.yaml"), "--set", f"env.python.interpreter={PYTHON}", ok=False)
        self.assertNotIn("there is no file", done.stderr)
        self.assertTrue(done.returncode == 0 or "gymnasium" in done.stderr, done.stderr)

    def bare_venv(self):
        """A virtual environment that has nothing."""
        folder = self.path("venv")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        return folder

    def test_a_python_without_numpy_says_which_and_what_to_do(self):
        venv = self.bare_venv()
        words = [f"{venv}/bin/python has no numpy", f"{venv}/bin/python -m pip install numpy", NAME_ANOTHER]
        said = self.fails("envs", "check", "python:mine/walk.py:Walk", "--python", venv, saying=words)
        self.assert_said_in_an_error_alone(said)
        self.fails("train", "mine/run.yaml", "--python", venv, saying=words)
        # The one that is activated is the default, whatever is on the PATH.
        activated = dict(os.environ, VIRTUAL_ENV=venv)
        self.fails("train", "mine/run.yaml", env=activated, saying=words)
        self.fails("envs", "check", "python:mine/walk.py:Walk", env=activated, saying=words)

    def test_without_an_activated_one_the_python_beside_the_program_is_the_default(self):
        # As in a virtual environment of its own, so that it has no numpy on a machine whose own Python has.
        beside = self.bare_venv() + "/bin"
        program = shutil.copy(self.program, beside + "/troupe")
        environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
        environment["TROUPE_PYTHON"] = os.path.join(self.source, "python")
        done = subprocess.run([program, "envs", "check", "python:mine/walk.py:Walk"], cwd=self.folder, env=environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60, check=False)
        self.assertIn(f"{beside}/python3 has no numpy", done.stderr)

    def test_what_is_missing_is_said_without_a_traceback(self):
        python = ["--python", PYTHON]
        said = self.fails("envs", "check", "python:smac:Env", *python,
                          saying=["there is no module smac for ", "-m pip install smac", NAME_ANOTHER])
        self.assertNotIn("hmac", said)
        self.assert_said_in_an_error_alone(said)
        self.assert_said_in_an_error_alone(self.fails("envs", "check", "python:mine/walk.py:Wlak", *python, saying=["did you mean Walk?"]))
        self.write("needs.py", "import smac\n")
        self.assert_said_in_an_error_alone(self.fails("envs", "check", "python:needs:Env", *python, cwd=self.folder,
                                                      saying=["it needs the module smac, which ", "-m pip install smac"]))
        self.write("broken.py", WALK + "    oops(\n")
        self.assert_said_in_an_error_alone(self.fails("envs", "check", "python:broken.py:Walk", *python, saying=["broken.py", "SyntaxError"]))
        self.write("raises.py", WALK.replace('self.words = words', 'raise RuntimeError("no licence")'))
        self.assert_said_in_an_error_alone(self.fails("envs", "check", "python:raises.py:Walk", *python, saying=["RuntimeError: no licence (at ", "raises.py:"]))

    def test_what_an_environment_prints_is_one_line(self):
        done = self.troupe("envs", "bench", "python:mine/walk.py:Walk", "--arg", "words=4", "--env-steps", "20", "--num-envs", "1",
                           "--set", "env.python.processes=1", "--python", PYTHON)
        said = done.stdout + done.stderr
        self.assertRegex(said, r"printed [0-9]+ lines; the first: a word at 1")
        self.assertEqual(said.count("a word at"), 1, said)


if __name__ == "__main__":
    harness.main()
