"""Runs Python environments for a worker: `python -m troupe.env_host`, started by lib/envhost and by nobody else.

File descriptors it inherits: 3 the control channel (JSON lines), 4 the shared memory (_shm_host.py), 5 the lifeline, a pipe that closes
when the worker dies. What environments print goes to the worker's log.

The worker sends {"op": "start", name, args, path}; one environment is made and described. The worker answers with {"op": "layout"} and
then {"op": "map"} for every environment that the process is to hold. From then on requests come through the ring. An exception costs
its environment the episode: it is closed, and made anew at the next reset.
"""

import fcntl
import faulthandler
import json
import os
import random
import select
import signal
import struct
import sys
import traceback
from typing import Any, Callable, Dict, List, Optional

import numpy as np

from troupe import _shm_host as shm
from troupe._shm_host import (
    AGENT_INACTIVE,
    AGENT_INFO,
    AGENT_MASK,
    AGENT_OBSERVED,
    AGENT_STATE,
    AGENT_TERMINATED,
    AGENT_TRUNCATED,
)

CONTROL_FD, MEMORY_FD, LIFELINE_FD = 3, 4, 5


class Stop(BaseException):
    """SIGTERM: close everything and leave."""


class BadOutput(Exception):
    """What an environment gave does not fit what it declared."""


def describe_error(error: BaseException) -> str:
    """One line that says what happened and where, then the traceback without our own frames."""
    frames = traceback.extract_tb(error.__traceback__)
    own = os.path.dirname(os.path.abspath(__file__))
    theirs = [frame for frame in frames if not os.path.abspath(frame.filename).startswith(own + os.sep)] or list(frames)
    text = str(error).strip() or "no message"
    where = ""
    if theirs:
        last = theirs[-1]
        where = f" (at {last.filename}:{last.lineno} in {last.name})"
    # The end of a traceback says most; the worker's errors have room for some of it.
    calls = " < ".join(f"{os.path.basename(f.filename)}:{f.lineno} {f.name}: {f.line}" for f in reversed(theirs[-6:]))
    return f"{type(error).__name__}: {text[:1000]}{where}; traceback, innermost first: {calls}"


def _row_writer(memory: Any, offset: int, size: int, uint8: bool, space: dict, flatten_into: Callable) -> Callable[[Any], None]:
    """A function that writes a value of `space` into its row of the shared memory."""
    flat = np.frombuffer(memory, np.uint8 if uint8 else np.float32, size, offset)
    if space["type"] != "Box":
        return lambda value: flatten_into(space, value, flat)
    shape = tuple(space["shape"])
    row = flat.reshape(shape)
    dtype = np.dtype(space["dtype"])
    # A real number of either width is taken for a real Box: they are rounded to the row's float32 anyway.
    chars = "fd" if dtype.kind == "f" else dtype.char
    array = np.ndarray

    def write(value: Any) -> None:
        if type(value) is array and value.shape == shape and value.dtype.char in chars:
            row[...] = value
        else:
            flatten_into(space, value, flat)

    return write


def _action_reader(memory: Any, offset: int, words: int, space: dict, unflatten_action: Callable) -> Callable[[], Any]:
    """A function that gives the action in the space's own form."""
    if space["type"] == "Discrete":
        word = memoryview(memory)[offset : offset + 4].cast("i")
        return lambda: word[0]
    if space["type"] == "Box" and space["dtype"] == "float32":
        row = np.frombuffer(memory, np.float32, words, offset).reshape(tuple(space["shape"]))
        return row.copy
    row = np.frombuffer(memory, np.int32, words, offset)
    return lambda: unflatten_action(space, row.copy())


class Environment:
    """One environment of the process and its block."""

    def __init__(self, host: "EnvHost", offset: int) -> None:
        from troupe.env_adapters import spaces

        self._host = host
        self._adapter: Any = None
        layout = host.layout
        agents = host.description["agents"]
        memory = shm.map_block(shm_fd(), offset, layout["block_bytes"])
        view = memoryview(memory)
        self._memory = memory
        self.header = view[:64].cast("I")
        self._error = view[shm.BLOCK_ERROR : shm.BLOCK_ERROR + shm.BLOCK_ERROR_CAPACITY]
        count = len(agents)
        self._ids = [agent["id"] for agent in agents]
        self._acts = view[layout["acts"] : layout["acts"] + count]
        self._all_act = bytes([1]) * count
        self._flags = view[layout["agent_flags"] : layout["agent_flags"] + count]
        self._pack_rewards = struct.Struct(f"={count}f").pack_into
        self._rewards_at = layout["rewards"]
        self._write = [
            _row_writer(
                memory,
                layout["observations"][i],
                layout["observation_sizes"][i],
                layout["observation_uint8"][i],
                agent["observation_space"],
                spaces.flatten_into,
            )
            for i, agent in enumerate(agents)
        ]
        self._read = [
            _action_reader(memory, layout["actions"][i], layout["action_words"][i], agent["action_space"], spaces.unflatten_action)
            for i, agent in enumerate(agents)
        ]
        self._words: Optional[memoryview] = None
        if all(agent["action_space"]["type"] == "Discrete" for agent in agents):
            start = layout["actions"][0]  # one word each, one after another
            self._words = view[start : start + 4 * count].cast("i")
        self._masks: Optional[List[Optional[memoryview]]] = None
        if any(agent["has_action_mask"] for agent in agents):
            self._masks = [
                view[layout["masks"][i] : layout["masks"][i] + layout["mask_sizes"][i]] if agent["has_action_mask"] else None
                for i, agent in enumerate(agents)
            ]
        self._has_agent_mask = bool(host.description["has_agent_mask"])
        self._state_kind = host.description["state_kind"]
        self._write_state = [
            _row_writer(memory, at, layout["state_size"], False, host.description["state_space"], spaces.flatten_into)
            for at in layout["states"]
        ]
        self._columns = host.description["info_columns"]
        self._infos = np.frombuffer(memory, np.float64, count * len(self._columns), layout["infos"]).reshape(count, -1)

    def serve(self, kind: int) -> None:
        """Answers a request of this kind."""
        header = self.header
        header[shm.BLOCK_STATUS] = shm.STATUS_OK
        header[shm.BLOCK_FLAGS] = 0
        try:
            if kind == shm.KIND_STEP:
                acts = self._acts
                if self._words is not None:
                    actions: List[Any] = self._words.tolist()
                    if acts != self._all_act:
                        actions = [action if act else None for action, act in zip(actions, acts)]
                else:
                    actions = [read() if act else None for read, act in zip(self._read, acts)]
                self._publish(self._adapter.step(actions))
            elif kind == shm.KIND_RESET:
                if self._adapter is None:
                    self._adapter = self._host.make_adapter()
                seed = header[shm.BLOCK_SEED]
                self._host.seed_globals(seed)
                self._publish(self._adapter.reset(seed))
            elif kind == shm.KIND_CLOSE:
                self.close()
            else:
                raise RuntimeError(f"request {kind} is unknown")
        except Stop:
            raise
        except BaseException as error:  # also SystemExit: an environment does not end its neighbours
            self._fail(error)

    def close(self) -> None:
        """Closes the environment, once, whatever it says to that."""
        adapter, self._adapter = self._adapter, None
        if adapter is not None:
            adapter.close()

    def _fail(self, error: BaseException) -> None:
        header = self.header
        status = shm.STATUS_BAD_OUTPUT if isinstance(error, BadOutput) else shm.STATUS_FAILED
        try:
            text = describe_error(error)
            sys.stderr.write("environment failed\n" + "".join(traceback.format_exception(type(error), error, error.__traceback__)))
        except Exception:  # an error whose own text fails
            text = f"{type(error).__name__} without a readable text"
        data = text.encode("utf-8", "replace")[: shm.BLOCK_ERROR_CAPACITY]
        self._error[: len(data)] = data
        header[shm.BLOCK_ERROR_BYTES] = len(data)
        header[shm.BLOCK_STATUS] = status
        try:
            self.close()
        except Stop:
            raise
        except BaseException:
            traceback.print_exc()

    def _publish(self, result: Any) -> None:
        """Writes what a call brought into the block."""
        observations = result.observations
        count = len(self._ids)
        if len(observations) != count:
            raise BadOutput(f"got observations of {len(observations)} agents, expected {count}")
        flags = bytearray(count)
        write = self._write
        index = -1
        try:
            for index, observation in enumerate(observations):
                if observation is not None:
                    write[index](observation)
                    flags[index] = AGENT_OBSERVED
        except (ValueError, TypeError) as error:
            raise BadOutput(f"agent {self._ids[index]}: observation: {error}") from error
        terminated, truncated = result.terminated, result.truncated
        if True in terminated or True in truncated:
            for index in range(count):
                if terminated[index]:
                    flags[index] |= AGENT_TERMINATED
                elif truncated[index]:
                    flags[index] |= AGENT_TRUNCATED
        if self._masks is not None:
            self._publish_masks(result.action_masks, flags)
        if self._has_agent_mask:
            for index, active in enumerate(result.agent_active):
                if not active:
                    flags[index] |= AGENT_INACTIVE
        all_flags = 0
        if result.all_terminated:
            all_flags = shm.FLAG_ALL_TERMINATED
        elif result.all_truncated:
            all_flags = shm.FLAG_ALL_TRUNCATED
        if self._write_state:
            all_flags |= self._publish_states(result.states, flags)
        if self._columns:
            self._publish_infos(result.infos, flags)
        try:
            self._pack_rewards(self._memory, self._rewards_at, *result.rewards)
        except (struct.error, OverflowError, TypeError, ValueError) as error:
            raise BadOutput(f"rewards {result.rewards!r}: {error}, expected a number an agent") from error
        self._flags[:] = flags
        self.header[shm.BLOCK_FLAGS] = all_flags

    def _publish_masks(self, masks: List[Any], flags: bytearray) -> None:
        for index, row in enumerate(self._masks or []):
            mask = masks[index]
            if row is None or mask is None:
                continue
            if len(mask) != len(row):
                raise BadOutput(f"agent {self._ids[index]}: action mask of {len(mask)} entries, expected {len(row)}")
            row[:] = np.ascontiguousarray(mask, dtype=np.uint8).data
            flags[index] |= AGENT_MASK

    def _publish_states(self, states: List[Any], flags: bytearray) -> int:
        try:
            if self._state_kind == "per_env":
                if not states or states[0] is None:
                    return 0
                self._write_state[0](states[0])
                return shm.FLAG_ENV_STATE
            for index, state in enumerate(states):
                if state is not None:
                    self._write_state[index](state)
                    flags[index] |= AGENT_STATE
        except (ValueError, TypeError) as error:
            raise BadOutput(f"global state: {error}") from error
        return 0

    def _publish_infos(self, infos: List[Any], flags: bytearray) -> None:
        for index, info in enumerate(infos):
            if not info:
                continue
            row = self._infos[index]
            for place, column in enumerate(self._columns):
                value = info.get(column)
                try:
                    row[place] = np.nan if value is None else value
                except (ValueError, TypeError) as error:
                    raise BadOutput(f"agent {self._ids[index]}: info {column}: {error}, expected a number") from error
            flags[index] |= AGENT_INFO


def shm_fd() -> int:
    """The shared memory's file descriptor."""
    return MEMORY_FD


class ControlChannel:
    """Lines over the control socket."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""

    def readline(self) -> bytes:
        while b"\n" not in self._buffer:
            data = os.read(self._fd, 1 << 16)
            if not data:
                return b""
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]


class EnvHost:
    """The environments of one process."""

    def __init__(self, control: ControlChannel, page: shm.ControlPage) -> None:
        self._control = control
        self._page = page
        self._environments: Dict[int, Environment] = {}
        self._spare: Any = None  # made to be described, and given to the first environment
        self._seeded = False
        self._name = ""
        self._args: Dict[str, Any] = {}
        self.description: Dict[str, Any] = {}
        self.layout: Dict[str, Any] = {}

    def start(self) -> None:
        """Makes an environment and tells the worker what it is like."""
        message = self._receive("start")
        if message["version"] != shm.LAYOUT_VERSION:
            raise RuntimeError(f"the worker speaks version {message['version']}, expected {shm.LAYOUT_VERSION}")
        sys.path[:0] = message["path"]
        self._name, self._args = message["name"], message["args"]
        try:
            self._spare = self.make_adapter()
            self.description = self._describe(self._spare)
        except Stop:
            raise
        except BaseException as error:
            traceback.print_exc()
            self._send({"op": "failed", "error": describe_error(error)})
            raise SystemExit(1) from error
        self._send({"op": "described", "version": shm.LAYOUT_VERSION, **self.description})
        self.layout = self._receive("layout")

    def make_adapter(self) -> Any:
        """A new environment, or the one that was made to be described."""
        if self._spare is not None:
            adapter, self._spare = self._spare, None
            return adapter
        from troupe.env_adapters import make_adapter

        adapter = make_adapter(self._name, dict(self._args))
        if self.description and self._describe(adapter) != self.description:
            text = f"its spaces changed: got {self._describe(adapter)}, expected {self.description}"
            adapter.close()
            raise BadOutput(text)
        return adapter

    def seed_globals(self, seed: int) -> None:
        """Seeds `random` and numpy's global generator, once, for environments that draw from them."""
        if not self._seeded:
            self._seeded = True
            random.seed(seed)
            np.random.seed(seed)

    def run(self) -> None:
        """Answers requests until the worker says that it is enough."""
        page, environments = self._page, self._environments
        await_entry, finish_entry = page.await_entry, page.finish_entry
        while True:
            entry = await_entry()
            if entry != shm.CONTROL_ENTRY:
                environments[entry & 0xFFFFFF].serve(entry >> 24)
            elif not self._obey():
                return
            finish_entry()

    def close(self) -> None:
        """Closes every environment that is open."""
        spare, self._spare = self._spare, None
        for close in [environment.close for environment in self._environments.values()] + ([spare.close] if spare is not None else []):
            try:
                close()
            except BaseException:
                traceback.print_exc()

    def _obey(self) -> bool:
        message = self._receive("")
        if message["op"] == "map":
            self._environments[message["slot"]] = Environment(self, message["offset"])
            return True
        if message["op"] == "exit":
            return False
        raise RuntimeError(f"the worker said {message['op']}, expected map or exit")

    @staticmethod
    def _describe(adapter: Any) -> Dict[str, Any]:
        description = adapter.description
        return {
            "agents": [
                {
                    "id": agent.id,
                    "observation_space": agent.observation_space,
                    "action_space": agent.action_space,
                    "has_action_mask": bool(agent.has_action_mask),
                }
                for agent in description.agents
            ],
            "state_kind": description.state_kind,
            "state_space": description.state_space,
            "has_agent_mask": bool(description.has_agent_mask),
            "info_columns": list(description.info_columns),
            "max_episode_steps": int(description.max_episode_steps),
        }

    def _receive(self, op: str) -> Dict[str, Any]:
        line = self._control.readline()
        if not line:
            raise SystemExit(0)  # the worker is gone
        message = json.loads(line)
        if op and message["op"] != op:
            raise RuntimeError(f"the worker said {message['op']}, expected {op}")
        return message

    def _send(self, message: Dict[str, Any]) -> None:
        self._control.write(json.dumps(message, allow_nan=False).encode() + b"\n")


def die_with_worker() -> None:
    """Has the kernel end this process when the worker dies, also in mid-step: the lifeline's end is a signal."""
    fcntl.fcntl(LIFELINE_FD, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(LIFELINE_FD, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(LIFELINE_FD, fcntl.F_SETFL, fcntl.fcntl(LIFELINE_FD, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(LIFELINE_FD, select.POLLIN)
    if poll.poll(0):
        raise SystemExit(0)  # it died before


def _on_sigterm(_signal: int, _frame: Any) -> None:
    raise Stop()


def main() -> int:
    """The process."""
    die_with_worker()
    faulthandler.enable()
    signal.signal(signal.SIGTERM, _on_sigterm)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host = EnvHost(ControlChannel(CONTROL_FD), shm.ControlPage(MEMORY_FD))
    code = 0
    try:
        host.start()
        host.run()
    except Stop:
        pass
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    host.close()
    sys.stdout.flush()
    sys.stderr.flush()
    # Environments may have left threads behind, for which an interpreter that ends by itself would wait.
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
