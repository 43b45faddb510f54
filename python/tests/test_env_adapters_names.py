"""Names of Python environments and their seeds: what is found, and what is said of what is not."""

import importlib.util
import os
import random
import subprocess
import sys
import tempfile
import types
import unittest
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), HERE]

HAVE_NUMPY = importlib.util.find_spec("numpy") is not None
if HAVE_NUMPY:
    import numpy as np
    from fake_envs import Gym, obs

    from troupe.env_adapters import EnvAdapterError, make_adapter
    from troupe.env_adapters.recognize import adapt
    from troupe.env_adapters.resolve import Place, find_callable, make_environment


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class SeedTest(unittest.TestCase):
    def test_a_method_seed(self):
        class Old(Gym):
            def reset(self):
                return super().reset()

            def seed(self, seed):
                self.seeds.append(seed)

        env = Old([obs(1)])
        adapt("x", env).reset(7)
        self.assertEqual(env.seeds, [0, None, 7, None])

    def test_global_generators_when_there_is_no_way(self):
        class Unseeded(Gym):
            def reset(self):
                self.seeds.append((random.random(), float(np.random.rand())))
                return self.script[0]

        class Wrapped(Unseeded):
            def reset(self, **kwargs):
                return super().reset(**kwargs)

        for cls in (Unseeded, Wrapped):
            env = cls([obs(1)])
            with self.assertWarnsRegex(UserWarning, "environment x: its reset takes no seed"):
                adapter = adapt("x", env)
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # said once
                for seed in (7, 8, 7):
                    adapter.reset(seed)
            self.assertEqual(env.seeds[1], env.seeds[3])
            self.assertNotEqual(env.seeds[1], env.seeds[2])

    def test_refused(self):
        class Refuses(Gym):
            def reset(self, seed=None):
                if seed:
                    raise ValueError("only even worlds")
                return self.script[0]

        adapter = adapt("x", Refuses([obs(1)]))
        self.assertRaisesRegex(
            EnvAdapterError,
            r"environment x, step 0: reset\(seed=3\) raised ValueError: only even worlds",
            adapter.reset,
            3,
        )

    def test_what_the_environment_raises_in_a_step_passes(self):
        class Raises(Gym):
            def step(self, action):
                raise ZeroDivisionError("mine")

        adapter = adapt("x", Raises([obs(1)]))
        adapter.reset(1)
        self.assertRaisesRegex(ZeroDivisionError, "mine", adapter.step, [0])


MODULE = """
import os
import xml.dom
import fake_envs
from fake_envs import Gym as Lent

class Mine(fake_envs.Gym):
    def __init__(self, start=1, *, scale=2):
        super().__init__([fake_envs.obs(start * scale)])

class Configured(Mine):
    def __init__(self, config):
        super().__init__(config["start"])

def make_env(start):
    return Mine(start)

class Holder:
    Inner = Mine

    def make(self, start=1):
        return Mine(start)

holder = Holder()
number = 3
def make_nothing():
    return 5
"""


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class NameTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name, text in [
            ("troupe_test_mine.py", MODULE),
            ("troupe_test_needs.py", "import troupe_test_absent"),
            ("troupe_test_bad.py", "1 / 0"),
            ("troupe_test_empty.py", MODULE.replace("make_env", "make")),
        ]:
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        sys.path.insert(0, self.folder)
        self.addCleanup(sys.path.remove, self.folder)

    def test_an_environment_may_ask_which_of_the_run_it_is(self):
        module = types.ModuleType("troupe_test_places")
        module.both = lambda *, worker_index, env_index, **more: types.SimpleNamespace(worker_index=worker_index, env_index=env_index, **more)
        module.any_of_them = lambda **all: types.SimpleNamespace(**all)
        sys.modules[module.__name__] = module
        self.addCleanup(sys.modules.pop, module.__name__)

        def made(attribute, args, place):
            return vars(make_environment(f"{module.__name__}:{attribute}", args, place=place))
        place = Place(2, 7)
        self.assertEqual(made("both", {"size": 3}, place), {"worker_index": 2, "env_index": 7, "size": 3})
        self.assertTrue(place.asked_for)
        self.assertEqual(made("both", {"env_index": 1}, Place(2, 7)), {"worker_index": 2, "env_index": 1})
        place = Place(2, 7)
        self.assertEqual(made("any_of_them", {"size": 3}, place), {"size": 3}, "it names neither")
        self.assertFalse(place.asked_for)
        args = {"port": "${env_index}", "log": ["a-${worker_index}-${env_index}.txt"], "deep": {"n": "${env_index}"}}
        self.assertEqual(made("any_of_them", args, place), {"port": 7, "log": ["a-2-7.txt"], "deep": {"n": 7}})
        self.assertTrue(place.asked_for)
        self.assertEqual(made("both", {}, None), {"worker_index": 0, "env_index": -1})

    def first(self, name, args):
        return float(make_adapter(name, args).reset(1).observations[0][0])

    def test_forms(self):
        self.assertEqual(self.first("troupe_test_mine:Mine", {}), 2)
        self.assertEqual(self.first("troupe_test_mine:Mine", {"start": 3, "scale": 1}), 3)
        self.assertEqual(self.first("troupe_test_mine:Holder.Inner", {"start": 3}), 6)
        self.assertEqual(self.first("troupe_test_mine", {"start": 4}), 8)
        self.assertEqual(self.first("troupe_test_mine:Configured", {"start": 5}), 10)
        self.assertEqual(self.first("troupe_test_mine:holder.make", {"start": 3}), 6)
        self.assertEqual(self.first("troupe_test_mine:Lent", {"script": [obs(4)]}), 4)  # one name may be borrowed
        path = os.path.join(self.folder, "troupe_test_mine.py")
        self.assertEqual(self.first(path, {"start": 6}), 12)
        self.assertEqual(self.first(path + ":Holder.Inner", {"start": 7}), 14)
        self.assertEqual(self.first(path + ":Mine", {"start": 7}), 14)

    def test_a_dotted_name_stays_inside_its_module(self):
        marker = os.path.join(self.folder, "marker")
        self.addCleanup(lambda: self.assertFalse(os.path.exists(marker), "a stranger's name was called"))
        for name, args, message in [
            ("troupe_test_mine:os.system", {"command": "touch " + marker}, "os of module troupe_test_mine is the module os"),
            ("troupe_test_mine:xml.dom.getDOMImplementation", {}, "xml of module troupe_test_mine is the module xml"),
            ("troupe_test_mine:fake_envs.os.system", {"command": "touch " + marker}, "expected fake_envs:os"),
            ("troupe_test_mine:Lent.reset", {}, "Lent of module troupe_test_mine is of fake_envs.Gym, expected .* or fake_envs:Gym.reset$"),
            ("troupe_test_mine:make_env.__globals__", {}, "'__globals__' is Python's own"),
            ("troupe_test_mine:make_env.partial", {}, "make_env of module troupe_test_mine is of builtins.function"),
            ("troupe_test_mine:Holder.__subclasses__", {}, "'__subclasses__' is Python's own"),
            ("troupe_test_mine:__loader__.get_data", {}, "'__loader__' is Python's own"),
            ("troupe_test_mine:number.bit_length", {}, "number of module troupe_test_mine is of builtins.int"),
        ]:
            with self.subTest(name=name):
                self.assertRaisesRegex(EnvAdapterError, message, make_adapter, name, args)
                self.assertRaisesRegex(EnvAdapterError, message, find_callable, "policy", name)

    def test_what_is_not_found_is_said(self):
        for name, args, message in [
            (
                "troupe_test_mint:Mine",
                {},
                "environment troupe_test_mint:Mine: there is no module troupe_test_mint for .*did you mean "
                "troupe_test_mine",
            ),
            ("troupe_test_mine.sub", {}, "there is no module troupe_test_mine.sub"),
            ("hmacs:Env", {}, "there is no module hmacs for [^,;]*; install its package, .* -m pip install hmacs, or name a Python that"),
            ("troupe_test_needs", {}, "importing troupe_test_needs failed: it needs the module troupe_test_absent"),
            ("troupe_test_bad", {}, "importing troupe_test_bad failed: ZeroDivisionError: division by zero"),
            ("troupe_test_mine:Mime", {}, "'Mime' is no attribute of module troupe_test_mine.*did you mean Mine"),
            ("troupe_test_mine:Holder.Outer", {}, "'Holder.Outer' is no attribute"),
            ("troupe_test_mine:number", {}, "number of module troupe_test_mine is int, expected a class or function"),
            (
                "troupe_test_empty",
                {},
                "has none of parallel_env, env, raw_env, make_env, expected one, or a name after a colon "
                ".troupe_test_empty:Configured",
            ),
            (
                "troupe_test_mine:Mine",
                {"strat": 1},
                "got an unexpected keyword argument 'strat'; it takes the arguments: start=1, scale=2",
            ),
            ("troupe_test_mine:make_env", {}, "missing a required argument: 'start'"),
            ("troupe_test_mine:make_nothing", {}, "made int, which has no methods reset and step"),
            (":Mine", {}, "the module is missing"),
            ("troupe_test_mine:", {}, "nothing follows the colon"),
            (os.path.join(self.folder, "absent.py"), {}, "there is no file .*absent.py, expected a program in Python"),
            (
                os.path.join(self.folder, "troupe_test_needs.py"),
                {},
                "importing .*troupe_test_needs.py failed: it needs the module troupe_test_absent, which .* does not find; install its "
                "package, .* -m pip install troupe_test_absent, or name a Python that",
            ),
            (
                os.path.join(self.folder, "troupe_test_bad.py"),
                {},
                "importing .*troupe_test_bad.py failed: ZeroDivisionError",
            ),
        ]:
            with self.subTest(name=name, message=message):
                self.assertRaisesRegex(EnvAdapterError, message, make_adapter, name, args)


#: An environment that imports its neighbour and has a process of its own that runs its code.
SPAWNING = """
import multiprocessing

import fake_envs
from troupe_test_rules import LENGTH

def measure(pipe):
    pipe.send(LENGTH)

class Spawning(fake_envs.Gym):
    def __init__(self):
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        process = context.Process(target=measure, args=(theirs,))
        process.start()
        theirs.close()
        super().__init__([fake_envs.obs(mine.recv() if mine.poll(100) else -1)])
        process.join()
"""


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class FileTest(unittest.TestCase):
    """Files are run as `python FILE.py` runs them, each test in a Python of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        self.write("troupe_test_rules.py", "LENGTH = 5")
        self.write("installed/troupe_test_rules.py", "LENGTH = 1")  # a neighbour counts before it

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def run_python(self, program, folder="/"):
        """What the program prints, with make_adapter there and `first`, which gives a first observation."""
        first = "def first(name): return float(make_adapter(name, {}).reset(1).observations[0][0])"
        start = f"import sys\nsys.path[:] = filter(None, sys.path)\nfrom troupe.env_adapters import EnvAdapterError, make_adapter\n{first}\n"
        path = os.pathsep.join(os.path.abspath(place) for place in (os.path.join(HERE, ".."), HERE, os.path.join(self.folder, "installed")))
        done = subprocess.run(
            [sys.executable, "-B", "-c", start + program],
            cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=110,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split()

    def test_neighbours_are_imported_and_processes_are_spawned(self):
        # The name of json.py is another module's, that of team.v2.py is no module's: they import their neighbours all the same.
        for name in ("team_env.py", "sub/team-env.py"):
            with self.subTest(name=name):
                self.write(os.path.join(os.path.dirname(name), "troupe_test_rules.py"), "LENGTH = 5")
                path = self.write(name, SPAWNING)
                self.assertEqual(self.run_python(f"print(first({path + ':Spawning'!r}))"), ["5.0"])
        lone = SPAWNING.partition("def measure")[0] + "class Lone(fake_envs.Gym):\n    def __init__(self):\n        super().__init__([fake_envs.obs(LENGTH)])\n"
        for name in ("json.py", "team.v2.py"):
            with self.subTest(name=name):
                path = self.write(name, lone)
                self.assertEqual(self.run_python(f"import json\nprint(first({path + ':Lone'!r}), json.dumps(1))"), ["5.0", "1"])

    def test_files_of_one_name_are_two_modules(self):
        text = "import fake_envs\nclass Mine(fake_envs.Gym):\n    def __init__(self):\n        super().__init__([fake_envs.obs(%d)])\n"
        one, two = self.write("a/env.py", text % 1), self.write("b/env.py", text % 2)
        names = f"{one + ':Mine'!r}, {two + ':Mine'!r}, {one + ':Mine'!r}"
        self.assertEqual(self.run_python(f"print(*map(first, ({names})))"), ["1.0", "2.0", "1.0"])

    def test_a_module_of_the_working_folder_is_found_and_stands_in_for_no_other(self):
        text = "import fake_envs\nclass Mine(fake_envs.Gym):\n    def __init__(self):\n        super().__init__([fake_envs.obs(4)])\n"
        self.write("troupe_test_here.py", text)
        for planted in ("json.py", "fake_spaces.py", "troupe/__init__.py", "numpy.py"):
            self.write(planted, "raise SystemExit('planted')")
        self.assertEqual(self.run_python("import json\nprint(first('troupe_test_here:Mine'))", self.folder), ["4.0"])
        program = "try:\n    make_adapter('troupe_test_heer', {})\nexcept EnvAdapterError as e:\n    print(%r in sys.path, 'did you mean troupe_test_here' in str(e))"
        self.assertEqual(self.run_python(program % self.folder, self.folder), ["False", "True"])


@unittest.skipUnless(HAVE_NUMPY, "numpy is not installed")
class MadeInVainTest(unittest.TestCase):
    """Environments that cannot be used are closed, and what that raises does not hide why."""

    class Broken(Gym if HAVE_NUMPY else object):
        def __init__(self, script, second):
            super().__init__(script)
            self.second = second

        def close(self):
            super().close()
            raise self.second

        def reset(self, seed=None, options=None):
            raise FileNotFoundError("the data file is missing")

    def test_close_does_not_hide_the_first_error(self):
        for second in (AttributeError("no attribute 'world'"), SystemExit(3)):
            env = self.Broken([obs(1)], second)
            with self.assertWarnsRegex(UserWarning, f"environment x: close.* failed after it: {type(second).__name__}: {second}"):
                self.assertRaisesRegex(FileNotFoundError, "the data file is missing", adapt, "x", env)
            self.assertEqual(env.closes, 1)

    def test_nor_that_of_an_observation_function(self):
        made = []

        class Fine(Gym):
            def __init__(self):
                super().__init__([obs(1)])
                made.append(self)

            def close(self):
                super().close()
                raise AttributeError("no attribute 'world'")

        module = types.ModuleType("troupe_test_vain")
        module.Fine = Fine
        sys.modules["troupe_test_vain"] = module
        self.addCleanup(sys.modules.pop, "troupe_test_vain")
        with self.assertWarnsRegex(UserWarning, "close.* failed after it"):
            self.assertRaisesRegex(EnvAdapterError, "'nothing' is no attribute", make_adapter, "troupe_test_vain:Fine", {}, observation_function="troupe_test_vain:nothing")
        self.assertEqual([env.closes for env in made], [1])


if __name__ == "__main__":
    unittest.main()
