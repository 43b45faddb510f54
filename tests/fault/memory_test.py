"""What learner and worker have in use does not grow while policies come and go: a minute of the job that bench/soak.py runs for an hour.

In a minute a leak of 1 MiB in 20 s is seen, be it of one process or the other; what grows more slowly is the hour's to find.
"""

import os
import random
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
import harness
import soak

SECONDS = 60
# Caches of the allocator's and of gRPC's threads fill: they are no leak.
ALLOWANCE_BYTES = soak.MIB


def growth(samples):
    """Bytes by which the lower quartile of the last third of the time exceeds that of the middle third.

    A worker says what it has once a second. One low moment among its twenty values must not count.
    """
    end = samples[-1][0]
    thirds = [[value for at, value in samples if part * end / 3 < at <= (part + 1) * end / 3] for part in (1, 2)]
    middle, last = (statistics.quantiles(third, n=4)[0] for third in thirds)
    return last - middle


def thinned(samples):
    """(second, MiB) of some hundred samples, to be read where the test fails."""
    return [(at, round(value / soak.MIB, 2)) for at, value in soak.thinned(samples, 100)]


class MemoryTest(harness.TroupeTestCase):
    def test_what_is_in_use_stays_flat_while_policies_come_and_go(self):
        job = soak.Job(self.program, self.folder, SECONDS, policies=200, capacity=4)
        job.run(interval=0.5)
        self.assertGreater(job.updates, 30, "too few to say anything")
        for name, kinds in job.samples.items():
            self.assertGreater(len(kinds["heap"]), 20, name)
            self.assertGreater(min(value for _, value in kinds["heap"]), soak.MIB, name)
            grown = growth(kinds["heap"])
            print(f"{name}: {grown / soak.MIB:+.2f} MiB, allowed {ALLOWANCE_BYTES / soak.MIB:g}, after {job.updates} updates", flush=True)
            self.assertLess(grown, ALLOWANCE_BYTES, f"{name} has more in use than before: {thinned(kinds['heap'])}")

    def test_a_leak_of_64_kib_a_second_would_be_seen(self):
        noise = random.Random(3)
        flat = [(i / 2, (90 + 20 * noise.random() ** 2) * soak.MIB) for i in range(2 * SECONDS)]
        self.assertLess(growth(flat), ALLOWANCE_BYTES)
        self.assertGreater(growth([(at, value + at * 65536) for at, value in flat]), ALLOWANCE_BYTES / 2)
        leaks = [(at, 90 * soak.MIB + at * 65536) for at, _ in flat]
        self.assertGreater(growth(leaks), ALLOWANCE_BYTES)
        idle = [(at, value - (11 * soak.MIB if at == SECONDS // 2 else 0)) for at, value in flat]
        self.assertLess(growth(idle), ALLOWANCE_BYTES, "one low moment is no growth afterwards")

    def test_slopes_are_in_units_an_hour(self):
        line = [(10.0 * i, 5 + 2 * i) for i in range(50)]
        self.assertAlmostEqual(soak.theil_sen(line), 720)
        self.assertAlmostEqual(soak.theil_sen([*line, (500.0, 1e9)]), 720, msg="one outlier does not count")
        self.assertEqual(soak.theil_sen(line[:1]), 0)
        self.assertEqual(soak.least([(0.1, 5), (0.2, 3), (1.5, 9), (1.7, 8)], 1.0), [(0.2, 3), (1.7, 8)])


if __name__ == "__main__":
    harness.main()
