"""What skips.py counts and what it refuses."""

import contextlib
import io
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import skips  # noqa: E402  beside this file

GTEST = """[ RUN      ] All/FusedParityTest.OneStep/3
tests/parity/fused_parity_test.cc:29: Skipped
the processor has no AVX-512

[  SKIPPED ] All/FusedParityTest.OneStep/3 (0 ms)
[ RUN      ] HostTest.Steps
[       OK ] HostTest.Steps (5 ms)
[ RUN      ] HostTest.Old
lib/envhost/host_pool_test.cc:101: Skipped
python3 is older than the short way

[  SKIPPED ] HostTest.Old (1 ms)
[==========] 3 tests from 2 test suites ran. (6 ms total)
[  PASSED  ] 1 test.
[  SKIPPED ] 2 tests, listed below:
[  SKIPPED ] All/FusedParityTest.OneStep/3
[  SKIPPED ] HostTest.Old
"""
UNITTEST = """test_plain (test_query.QueryTest.test_plain) ... ok
test_bare (test_query.QueryTest.test_bare) ... skipped 'grpcio is not installed'
test_told (test_query.QueryTest.test_told)
What it is about. ... skipped "it's Tuesday"

----------------------------------------------------------------------
Ran 3 tests in 0.1s

OK (skipped=2)
"""
TERSE = "ss.\n----\nRan 3 tests in 0.1s\n\nOK (skipped=2)\n"


class SkipsTest(unittest.TestCase):
    def judge(self, text, cache=""):
        """(exit status, what is printed) for a build folder with that log."""
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "Testing", "Temporary"))
            for name, content in (("Testing/Temporary/LastTest.log", text), ("CMakeCache.txt", cache)):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(content)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                status = skips.main([folder])
        return status, printed.getvalue()

    def test_reasons_are_found(self):
        self.assertEqual(skips.skips(GTEST), [("All/FusedParityTest.OneStep/3", "the processor has no AVX-512"),
                                              ("HostTest.Old", "python3 is older than the short way")])
        self.assertEqual(skips.skips(UNITTEST), [("test_bare (test_query.QueryTest.test_bare)", "grpcio is not installed"),
                                                 ("test_told (test_query.QueryTest.test_told)", "it's Tuesday")])
        self.assertEqual(len(skips.skips(TERSE)), 2, "where no reason was printed they are counted all the same")
        self.assertEqual(len(skips.skips(UNITTEST + TERSE + GTEST)), 6)
        self.assertEqual(skips.skips("[       OK ] A.B (0 ms)\nOK\n"), [])

    def test_a_processors_lack_is_allowed_and_a_librarys_is_not(self):
        of_processor = GTEST[:GTEST.index("[ RUN      ] HostTest.Steps")]
        self.assertEqual(self.judge(of_processor), (0, "1 skipped\n  1 times: the processor has no AVX-512\n"))
        self.assertEqual(self.judge(""), (0, "0 skipped\n"))
        for text, name in ((GTEST, "HostTest.Old: python3 is older"), (UNITTEST, "test_bare"), (TERSE, "no reason given")):
            status, printed = self.judge(text)
            self.assertEqual(status, 1)
            self.assertIn("may not skip", printed)
            self.assertIn(name, printed)

    def test_compilers_of_other_languages_may_be_missing(self):
        text = "test_go (a.B.test_go) ... skipped 'no compiler of Go with grpc-go: ...'\nOK (skipped=1)\n"
        self.assertEqual(self.judge(text), (0, "1 skipped\n  1 times: no compiler of Go with grpc-go: ...\n"))

    def test_a_sanitizer_excuses_only_its_own_build(self):
        text = "x.cc:1: Skipped\na sanitizer's allocator\n\n[  SKIPPED ] A.B (0 ms)\n"
        self.assertEqual(self.judge(text, "TROUPE_SANITIZE:STRING=address\n")[0], 0)
        self.assertEqual(self.judge(text, "TROUPE_SANITIZE:STRING=\n")[0], 1)


if __name__ == "__main__":
    unittest.main()
