"""The Python half of lib/envhost without its C++ half: ring, rows and errors. The two together: lib/envhost/*_test.cc."""

import inspect
import os
import random
import sys
import threading
import time
import types
import unittest
from unittest import mock

try:
    import numpy as np
except ImportError:
    np = None

if np is not None:
    from troupe import _shm_env, _shm_host, env_host
    from troupe.env_adapters import EnvAdapterError


def make_page(version=None):
    """A control page and the shared memory's file descriptor."""
    fd = os.memfd_create("test")
    os.ftruncate(fd, 4 * _shm_host.WORD_RING + 4 * 16)
    words = memoryview(_shm_host.map_block(fd, 0, 4 * _shm_host.WORD_RING + 4 * 16)).cast("I")
    words[_shm_host.WORD_MAGIC] = _shm_host.MAGIC
    words[_shm_host.WORD_VERSION] = _shm_host.LAYOUT_VERSION if version is None else version
    words[_shm_host.WORD_CAPACITY] = 16
    return _shm_host.ControlPage(fd), words


@unittest.skipIf(np is None, "needs numpy")
class ControlPageTest(unittest.TestCase):
    """The ring."""

    def test_entries_come_in_order_and_wrap(self):
        page, words = make_page()
        words[_shm_host.WORD_HEAD] = words[_shm_host.WORD_DONE] = page.tail = 0xFFFFFFF8  # counters wrap, too
        for number in range(40):
            head = words[_shm_host.WORD_HEAD]
            words[_shm_host.WORD_RING + head % 16] = number
            words[_shm_host.WORD_HEAD] = (head + 1) & 0xFFFFFFFF
            self.assertEqual((page.await_entries(), page.entry(0)), (1, number))
            page.finish_entries(1)
            self.assertEqual(words[_shm_host.WORD_DONE], words[_shm_host.WORD_HEAD])

    def test_several_entries_are_answered_at_once(self):
        page, words = make_page()
        words[_shm_host.WORD_HEAD] = words[_shm_host.WORD_DONE] = page.tail = 0xFFFFFFFE
        for index in range(4):
            words[_shm_host.WORD_RING + (0xFFFFFFFE + index) % 2**32 % 16] = 10 + index
        words[_shm_host.WORD_HEAD] = 2
        self.assertEqual(page.await_entries(), 4)
        self.assertEqual([page.entry(index) for index in range(4)], [10, 11, 12, 13])
        words[_shm_host.WORD_WAITS], words[_shm_host.WORD_WAKE_AT] = 1, 1
        with mock.patch.object(page, "_syscall") as syscall:
            page.finish_entries(2)
            self.assertEqual((words[_shm_host.WORD_DONE], syscall.call_count), (0, 0))
            page.finish_entries(2)
            self.assertEqual((words[_shm_host.WORD_DONE], syscall.call_count), (2, 1), "past what it waits for")

    def test_the_worker_is_woken_once_and_when_it_wants(self):
        page, words = make_page()
        words[_shm_host.WORD_WAITS], words[_shm_host.WORD_WAKE_AT] = 1, 3
        woken = []
        with mock.patch.object(page, "_syscall", lambda *_: woken.append(words[_shm_host.WORD_DONE])):
            for _ in range(5):
                page.finish_entries(1)
            self.assertEqual(woken, [3])
            words[_shm_host.WORD_WAKE_AT] = 7
            for _ in range(3):
                page.finish_entries(1)
        self.assertEqual(woken, [3, 7])

    def test_it_sleeps_until_there_is_something(self):
        page, words = make_page()

        def post():
            while not words[_shm_host.WORD_SLEEPS]:
                time.sleep(0.001)
            words[_shm_host.WORD_RING] = 7
            words[_shm_host.WORD_HEAD] = 1

        thread = threading.Thread(target=post)
        thread.start()
        self.assertEqual(page.await_entries(), 1)
        self.assertEqual(page.entry(0), 7)
        thread.join()
        self.assertEqual(words[_shm_host.WORD_SLEEPS], 0)

    def test_another_version_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "layout version 99, expected"):
            make_page(version=99)

    def test_a_machine_with_another_order_of_stores_is_refused(self):
        with mock.patch("platform.machine", return_value="aarch64"):
            with self.assertRaisesRegex(RuntimeError, "this machine is aarch64, expected x86_64"):
                make_page()


@unittest.skipIf(np is None, "needs numpy")
class StepsAtOnceTest(unittest.TestCase):
    """Which steps are made before the first is answered."""

    class Fake:
        """An environment that notes what it is told, and takes time of a clock of its own."""

        now = 0.0

        def __init__(self, notes, slot, fails=False, seconds=0.0, publish_seconds=0.0):
            self.notes, self.slot, self.fails = notes, slot, fails
            self.seconds, self.publish_seconds = seconds, publish_seconds

        def send(self):
            """Notes it, and takes its time."""
            self.notes.append(f"step {self.slot}")
            type(self).now += self.seconds
            return not self.fails

        def publish(self):
            """Notes it."""
            self.notes.append(f"answer {self.slot}")
            type(self).now += self.publish_seconds

    def steps(self, entries, most=16, **fakes):
        """What happens with these entries in the ring."""
        page, words = make_page()
        host = env_host.EnvHost(None, page)
        notes = []
        for index, entry in enumerate(entries):
            words[_shm_host.WORD_RING + index] = entry
            slot = entry & _shm_host.SLOT_MASK
            host._environments[slot] = self.Fake(notes, slot, **fakes.get(f"slot{slot}", {}))
        words[_shm_host.WORD_HEAD] = len(entries)
        finish = page.finish_entries
        with mock.patch.object(page, "finish_entries", lambda count: (notes.append(f"done {count}"), finish(count))):
            with mock.patch.object(env_host.time, "perf_counter", lambda: self.Fake.now):
                host._step(min(page.await_entries(), most))
        return notes

    STEP = 2 << 24

    def test_answers_follow_all_steps(self):
        notes = self.steps([self.STEP | 5, self.STEP | 7, self.STEP | 6])
        self.assertEqual(notes, ["step 5", "step 7", "step 6", "answer 5", "answer 7", "answer 6", "done 3"])

    def test_at_most_so_many(self):
        notes = self.steps([self.STEP | 5, self.STEP | 7, self.STEP | 6], most=2)
        self.assertEqual(notes, ["step 5", "step 7", "answer 5", "answer 7", "done 2"])

    def test_the_next_batch_and_other_requests_wait(self):
        for other in (self.STEP | _shm_host.BATCH_BEGINS | 7, 1 << 24 | 7, _shm_host.CONTROL_ENTRY):
            notes = self.steps([self.STEP | _shm_host.BATCH_BEGINS | 5, other, self.STEP | 6])
            self.assertEqual(notes, ["step 5", "answer 5", "done 1"])

    def test_who_failed_has_answered(self):
        notes = self.steps([self.STEP | 5, self.STEP | 7], slot5={"fails": True})
        self.assertEqual(notes, ["step 5", "step 7", "answer 7", "done 2"])

    def test_a_long_step_is_answered_at_once(self):
        notes = self.steps([self.STEP | 5, self.STEP | 7], slot5={"seconds": 2 * env_host.MAX_SECONDS_AT_ONCE})
        self.assertEqual(notes, ["step 5", "answer 5", "done 1"])

    def test_a_long_answer_is_given_at_once(self):
        slow = {"publish_seconds": 2 * env_host.MAX_SECONDS_AT_ONCE}
        notes = self.steps([self.STEP | 5, self.STEP | 7, self.STEP | 6], slot5=slow)
        self.assertEqual(notes[3:], ["answer 5", "done 1", "answer 7", "answer 6", "done 2"])

    def test_rows_that_fill_a_cache_are_answered_one_by_one(self):
        host = env_host.EnvHost(None, make_page()[0])
        for block_bytes, most in ((8192, 16), (4096 + (1 << 14), 8), (1 << 20, 1)):
            host.layout = {"block_bytes": block_bytes}
            self.assertEqual(host._steps_at_once(), most)


@unittest.skipIf(np is None, "needs numpy")
class MadeTest(unittest.TestCase):
    """Environments that are made one after another, as described once."""

    def make(self, **described):
        """An adapter that has nothing but a description."""
        description = types.SimpleNamespace(
            recognized_as="x", agents=[], state_kind="none", state_space=None, has_agent_mask=False, info_columns=[], max_episode_steps=0
        )
        vars(description).update(described)
        return mock.Mock(description=description)

    def host(self, made, with_place=False):
        """A host whose environments are `made`: by the arguments that each gets, and which of the run it is."""
        host = env_host.EnvHost(None, make_page()[0])
        host._name, host._args = "x", {"sizes": [1, 2]}
        patch = mock.patch.object(env_host, "make_adapter", lambda name, args, *more: made(args, more[-1]) if with_place else made(args))
        patch.start()
        self.addCleanup(patch.stop)
        return host

    def test_what_one_does_to_its_arguments_is_its_own_affair(self):
        seen = []

        def made(args):
            seen.append(list(args["sizes"]))
            args["sizes"].clear()
            return self.make()
        host = self.host(made)
        for _ in range(2):
            host.make_adapter()
        self.assertEqual(seen, [[1, 2], [1, 2]])

    def test_the_one_that_was_described_is_none_of_those_that_ask_which_they_are(self):
        for asks in (False, True):
            adapters = [self.make(), self.make()]
            made, places = iter(adapters), []

            def make(args, place):
                places.append(place.wanted_by([inspect.Parameter("env_index", inspect.Parameter.KEYWORD_ONLY)], args) if asks else {})
                return next(made)
            host = self.host(make, with_place=True)
            host._spare = host.make_adapter()
            got = host.make_adapter(5)
            self.assertEqual(places, [{"env_index": -1}, {"env_index": 5}] if asks else [{}])
            self.assertIs(got, adapters[asks])
            self.assertEqual(adapters[0].close.call_count, int(asks))

    def test_one_whose_spaces_changed_is_closed_and_refused(self):
        adapters = [self.make(), self.make(), self.make(max_episode_steps=7)]
        made = iter(adapters)
        host = self.host(lambda args: next(made))
        host.description = host._describe(host.make_adapter())
        self.assertIs(host.make_adapter(), adapters[1])
        with self.assertRaisesRegex(_shm_env.BadOutput, "its spaces changed"):
            host.make_adapter()
        self.assertEqual((adapters[1].close.call_count, adapters[2].close.call_count), (0, 1))

    def test_a_process_is_seeded_once(self):
        state = random.getstate(), np.random.get_state()
        self.addCleanup(lambda: (random.setstate(state[0]), np.random.set_state(state[1])))
        host = self.host(lambda args: self.make())
        host.seed_globals(5)
        first = random.random(), np.random.rand()
        host.seed_globals(5)
        self.assertNotEqual((random.random(), np.random.rand()), first, "a reset does not draw the same again")
        random.seed(5)
        np.random.seed(5)
        self.assertEqual((random.random(), np.random.rand()), first)


@unittest.skipIf(np is None, "needs numpy")
class RowsTest(unittest.TestCase):
    """Rows of the shared memory."""

    @staticmethod
    def writer(space, size, uint8=False):
        """A row and its writer."""
        memory = bytearray(256)
        write = _shm_env._row_writer(memory, 64, size, uint8, space)
        return np.frombuffer(memory, np.uint8 if uint8 else np.float32, size, 64), write

    def test_boxes(self):
        row, write = self.writer({"type": "Box", "shape": [2, 2], "dtype": "float32", "low": 0, "high": 1}, 4)
        write(np.array([[1, 2], [3, 4]], np.float32))
        self.assertEqual(row.tolist(), [1, 2, 3, 4])
        write(np.array([[5, 6], [7, 8]], np.float64))
        self.assertEqual(row.tolist(), [5, 6, 7, 8])
        write([[1, 1], [2, 2]])
        self.assertEqual(row.tolist(), [1, 1, 2, 2])
        for wrong in (np.zeros(4, np.float32), np.zeros((2, 1), np.float32), np.float32(3), "text", None):
            with self.assertRaises((ValueError, TypeError)):
                write(wrong)

    def test_other_spaces(self):
        row, write = self.writer({"type": "Discrete", "n": 3, "start": 1}, 3)
        write(2)
        self.assertEqual(row.tolist(), [0, 1, 0])
        image = {"type": "Box", "shape": [3], "dtype": "uint8", "low": 0, "high": 255}
        row, write = self.writer(image, 3, uint8=True)
        write(np.array([1, 2, 255], np.uint8))
        self.assertEqual(row.tolist(), [1, 2, 255])
        with self.assertRaises((ValueError, TypeError)):
            write(np.array([0.5, 0.5, 0.5]))

    def test_actions(self):
        memory = bytearray(64)
        words = np.frombuffer(memory, np.int32)
        read = _shm_env._action_reader(memory, 4, 1, {"type": "Discrete", "n": 5, "start": -2})
        words[1] = -2
        self.assertEqual(read(), -2)
        box = {"type": "Box", "shape": [2, 1], "dtype": "float32", "low": 0, "high": 1}
        read = _shm_env._action_reader(memory, 8, 2, box)
        words[2:4].view(np.float32)[:] = [0.25, 0.5]
        action = read()
        self.assertEqual(action.tolist(), [[0.25], [0.5]])
        read = _shm_env._action_reader(memory, 8, 1, {**box, "shape": [1], "python": {"shape": (), "dtype": "float16"}})
        self.assertEqual((read().shape, read().dtype), ((), np.float16), "the space's own form")
        words[2] = 0
        self.assertEqual(action.tolist(), [[0.25], [0.5]], "the environment may keep its action")


@unittest.skipIf(np is None, "needs numpy")
class DescribeErrorTest(unittest.TestCase):
    """What the worker is told."""

    def test_says_what_and_where(self):
        try:
            os.stat("/no/such/file")
        except OSError as error:
            text = _shm_env.describe_error(error)
        self.assertRegex(text, r"^FileNotFoundError: .*no/such/file.* \(at .*test_env_host.py:\d+ in test_says")
        self.assertIn('os.stat("/no/such/file")', text)

    def test_a_traceback_fits_its_room_and_keeps_its_end(self):
        def ping(depth):
            return pong(depth - 1) if depth else os.stat("/no/such/file")

        def pong(depth):
            return ping(depth)

        try:
            ping(50)
        except OSError as error:
            whole = _shm_env.their_traceback(error, 1 << 20)
            cut = _shm_env.their_traceback(error, 1000)
            self.assertEqual(_shm_env.their_traceback(error, 10), "")
        self.assertRegex(whole, r"^Traceback \(most recent call last\):\n  File .*test_env_host.py")
        self.assertIn('os.stat("/no/such/file")', whole)
        self.assertGreater(len(whole), 2000)
        self.assertLessEqual(len(cut.encode()), 1000)
        self.assertEqual(cut.splitlines()[-1], whole.splitlines()[-1])

    def test_a_headline_is_one_line(self):
        self.assertEqual(_shm_env.headline(ValueError("one\ntwo")), "ValueError: one | two")
        self.assertEqual(_shm_env.headline(EnvAdapterError("one\ntwo")), "one | two")

    def test_an_environments_error_speaks_for_itself(self):
        self.assertEqual(_shm_env.describe_error(EnvAdapterError("agent a: wrong")), "agent a: wrong")

    def test_no_text(self):
        try:
            sys.exit()
        except SystemExit as error:
            self.assertRegex(_shm_env.describe_error(error), r"^SystemExit: no message \(at ")


if __name__ == "__main__":
    unittest.main()
