"""Names of Python environments and their seeds: what is found, and what is said of what is not."""

import importlib.util
import os
import random
import sys
import tempfile
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
    from troupe.env_adapters.resolve import find_callable


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
            ("troupe_test_mine:Lent.reset", {}, "Lent of module troupe_test_mine is of fake_envs.Gym"),
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
                os.path.join(self.folder, "troupe_test_bad.py"),
                {},
                "importing .*troupe_test_bad.py failed: ZeroDivisionError",
            ),
        ]:
            with self.subTest(name=name, message=message):
                self.assertRaisesRegex(EnvAdapterError, message, make_adapter, name, args)


if __name__ == "__main__":
    unittest.main()
