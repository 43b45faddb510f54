"""The memory that a worker and its Python environments share, as lib/envhost/shared_layout.h describes it.

One control page with a ring of requests per process, and one block per environment: what it is asked (seed, actions)
and what it answers (observations, masks, rewards, flags, states, infos), each at an offset that the worker gives. Nobody
makes a system call while both sides are awake; who finds nothing to do waits on a word of the control page (futex).
"""

import ctypes
import mmap
import os
import platform
import threading
from typing import Any

LAYOUT_VERSION = 6
MAGIC = 0x54524548

# Words of the control page; each group has a cache line of its own.
WORD_MAGIC, WORD_VERSION, WORD_CAPACITY = 0, 1, 2
WORD_HEAD = 16  # requests posted; the child waits on it. Written by the worker.
WORD_DONE = 32  # requests answered; the worker waits on it. Written by the child.
WORD_SLEEPS = 48  # the child waits on WORD_HEAD. Set by the child, cleared by the worker.
WORD_WAITS, WORD_WAKE_AT = 64, 65  # the worker waits, and for this many requests. Written by the worker.
WORD_RING = 1024
WORD_BLOCK_PAGES = 5120  # by slot: where its block begins, in pages of PAGE_BYTES. Written by the worker.
PAGE_BYTES = 4096

# An entry of the ring: read a line from the control channel. Others are a kind << 24, perhaps BATCH_BEGINS (answers to
# those before it are waited for by themselves), and an environment's slot.
CONTROL_ENTRY = 0xFFFFFFFF
BATCH_BEGINS, SLOT_MASK = 1 << 23, (1 << 23) - 1

# Words of a block's header.
BLOCK_SEED, BLOCK_STATUS, BLOCK_FLAGS, BLOCK_ERROR_BYTES = 0, 1, 2, 3
BLOCK_CALL_SEED_LOW, BLOCK_CALL_SEED_HIGH, BLOCK_CALL_COUNT, BLOCK_CALL_DETERMINISTIC = 4, 5, 6, 7
BLOCK_BYTES_LOW, BLOCK_BYTES_HIGH = 8, 9
BLOCK_CALLBACKS, BLOCK_IN_CALLBACK, BLOCK_CALLBACK_BYTES, BLOCK_ENV_INDEX = 10, 11, 12, 13
BLOCK_ERROR, BLOCK_ERROR_CAPACITY = 64, 4032  # bytes
KIND_RESET, KIND_STEP, KIND_CLOSE, KIND_MAKE, KIND_CALL, KIND_PICTURE, KIND_EPISODE_END = 1, 2, 3, 4, 5, 6, 7
TRACKED_BYTES = 1 << 15
PLAYER_BYTES = 76  # of an agent's last decision: the log-probability of its action (float), the length of its policy's id, the id
PICTURE_HEAD = 64  # bytes of a picture's place before its pixels
STATUS_OK, STATUS_FAILED, STATUS_BAD_OUTPUT = 0, 1, 2
FLAG_ALL_TERMINATED, FLAG_ALL_TRUNCATED, FLAG_ENV_STATE = 1, 2, 4
AGENT_OBSERVED, AGENT_TERMINATED, AGENT_TRUNCATED, AGENT_INACTIVE = 1, 2, 4, 8
AGENT_MASK, AGENT_STATE, AGENT_INFO = 16, 32, 64

# What a plain store in this language may rely on: other processors see stores in the order they were made. Elsewhere an
# answer could be seen before the row that it is about.
MACHINE = "x86_64"
_SYS_FUTEX, _FUTEX_WAIT, _FUTEX_WAKE = 202, 0, 1


class Timespec(ctypes.Structure):
    """struct timespec."""

    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


class ControlPage:
    """The ring and the two places to wait. Used by the process's main thread alone."""

    def __init__(self, fd: int) -> None:
        if platform.machine() != MACHINE:
            raise RuntimeError(
                f"Python environments: this machine is {platform.machine()}, expected {MACHINE}, whose order of stores "
                "the memory that they share with the worker relies on"
            )
        size = os.fstat(fd).st_size
        self._memory = mmap.mmap(fd, size)
        self.words = memoryview(self._memory).cast("I")
        if self.words[WORD_MAGIC] != MAGIC or self.words[WORD_VERSION] != LAYOUT_VERSION:
            raise RuntimeError(
                f"the shared memory has layout version {self.words[WORD_VERSION]}, expected {LAYOUT_VERSION}: "
                "the program and its Python package are of different versions"
            )
        self.capacity = self.words[WORD_CAPACITY]
        self.ring = self.words[WORD_RING : WORD_RING + self.capacity]
        self.tail = 0
        self._woken_for = -1
        self._spins = 64
        libc = ctypes.CDLL(None, use_errno=True)
        self._syscall = libc.syscall
        number = ctypes.c_long(_SYS_FUTEX)
        base = ctypes.addressof(ctypes.c_uint32.from_buffer(self._memory))
        null = ctypes.c_void_p(None)
        self._second = Timespec(1, 0)
        self._wake_call = (
            number,
            ctypes.c_void_p(base + 4 * WORD_DONE),
            ctypes.c_int(_FUTEX_WAKE),
            ctypes.c_int(1 << 30),
        )
        self._wait_head = (number, ctypes.c_void_p(base + 4 * WORD_HEAD), ctypes.c_int(_FUTEX_WAIT))
        self._wait_rest = (ctypes.byref(self._second), null, ctypes.c_int(0))
        # A lock taken and given back is the fence that the language has: what was written before it is visible to the
        # worker before what is read after it.
        lock = threading.Lock()
        self._acquire, self._release = lock.acquire, lock.release

    def await_entries(self) -> int:
        """How many entries are there, at least one; waits for it, at first without a system call."""
        words, tail = self.words, self.tail
        if words[WORD_HEAD] == tail:
            for _ in range(self._spins):
                if words[WORD_HEAD] != tail:
                    self._spins = min(512, 2 * self._spins)
                    break
            else:
                # Looking longer did not help; look less long next time.
                self._spins = max(16, self._spins // 2)
                while words[WORD_HEAD] == tail:
                    words[WORD_SLEEPS] = 1
                    self._acquire()
                    self._release()
                    self._syscall(*self._wait_head, ctypes.c_uint32(tail), *self._wait_rest)
                words[WORD_SLEEPS] = 0
        return (words[WORD_HEAD] - tail) & 0xFFFFFFFF

    def entry(self, index: int) -> int:
        """One of those that await_entries has found."""
        return self.ring[((self.tail + index) & 0xFFFFFFFF) % self.capacity]

    def finish_entries(self, count: int) -> None:
        """So many entries are answered; wakes the worker when that is what it waits for."""
        words = self.words
        self.tail = tail = (self.tail + count) & 0xFFFFFFFF
        words[WORD_DONE] = tail
        self._acquire()
        self._release()
        if words[WORD_WAITS]:
            wake_at = words[WORD_WAKE_AT]
            if ((tail - wake_at) & 0xFFFFFFFF) < 0x80000000 and wake_at != self._woken_for:
                self._woken_for = wake_at
                self._syscall(*self._wake_call)

    def block_offset(self, slot: int) -> int:
        """Where the slot's block begins in the memory, in bytes. For a slot that an entry has named."""
        return PAGE_BYTES * int(self.words[WORD_BLOCK_PAGES + slot])


def map_block(fd: int, offset: int, size: int) -> Any:
    """The block of one environment."""
    return mmap.mmap(fd, size, offset=offset)
