"""learns.py: which seeds fail, without training."""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import learns  # noqa: E402


class FailsTest(unittest.TestCase):
    def tried(self, seed, own, bad):
        """(whether the seed fails, the seeds that were trained), where those of `bad` miss."""
        trained = []

        def misses(each):
            trained.append(each)
            return each in bad
        return learns.fails(misses, seed, own), trained

    def test_one_that_passes_is_tried_once(self):
        self.assertEqual(self.tried(7, 7, ()), (False, [7]))

    def test_a_seed_that_is_always_tried_fails_by_itself(self):
        self.assertEqual(self.tried(1, 7, (1,)), (True, [1]))
        self.assertEqual(self.tried(7, None, (7,)), (True, [7]))

    def test_the_commits_own_fails_with_one_of_the_next_two(self):
        self.assertEqual(self.tried(7, 7, (7,)), (False, [7, 8, 9]))
        self.assertEqual(self.tried(7, 7, (7, 8)), (True, [7, 8, 9]))
        self.assertEqual(self.tried(7, 7, (7, 9)), (True, [7, 8, 9]))


if __name__ == "__main__":
    unittest.main()
