"""One Python environment and its block of the memory that it shares with a worker: reads requests, writes answers."""

import os
import struct
import sys
import traceback
from typing import Any, Callable, List, Optional

import numpy as np

from troupe import _shm_host as shm
from troupe import usual_step
from troupe._shm_host import (
    AGENT_INACTIVE,
    AGENT_INFO,
    AGENT_MASK,
    AGENT_OBSERVED,
    AGENT_STATE,
    AGENT_TERMINATED,
    AGENT_TRUNCATED,
)
from troupe.env_adapters import EnvAdapterError
from troupe.env_adapters.agent_spaces import NO_STATE
from troupe.env_adapters.spaces import SpaceCodec


class Stop(BaseException):
    """SIGTERM: close everything and leave."""


class BadOutput(Exception):
    """What an environment gave does not fit what it declared."""


def _their_frames(error: BaseException) -> List[traceback.FrameSummary]:
    """The frames of its traceback without our own, all where there are no others."""
    frames = list(traceback.extract_tb(error.__traceback__))
    own = os.path.dirname(os.path.abspath(__file__))
    return [frame for frame in frames if not os.path.abspath(frame.filename).startswith(own + os.sep)] or frames


def _speaks_for_itself(error: BaseException) -> bool:
    """It says environment, agent and step already, and was raised by us."""
    return isinstance(error, (BadOutput, EnvAdapterError))


def headline(error: BaseException) -> str:
    """One line that says what happened and where."""
    if _speaks_for_itself(error):
        return str(error)[:3000].replace("\n", " | ")
    theirs = _their_frames(error)
    text = str(error).strip() or "no message"
    where = f" (at {theirs[-1].filename}:{theirs[-1].lineno} in {theirs[-1].name})" if theirs else ""
    return f"{type(error).__name__}: {text[:1000]}{where}".replace("\n", " | ")


def describe_error(error: BaseException) -> str:
    """The headline, and in the same line the calls of the traceback without our own frames."""
    if _speaks_for_itself(error):
        return headline(error)
    theirs = _their_frames(error)
    calls = " < ".join(f"{os.path.basename(f.filename)}:{f.lineno} {f.name}: {f.line}" for f in reversed(theirs[-6:]))
    return f"{headline(error)}; traceback, innermost first: {calls}"


def their_traceback(error: BaseException, room: int) -> str:
    """A traceback as Python writes it, without our own frames, in at most `room` bytes: its end says most."""
    if _speaks_for_itself(error):
        return ""
    lines = "".join(traceback.format_list(_their_frames(error))).splitlines()
    head = "Traceback (most recent call last):"
    while lines and len("\n".join([head, *lines]).encode("utf-8", "replace")) > room:
        del lines[0]
    return "\n".join([head, *lines]) if lines else ""


def _row_writer(memory: Any, offset: int, size: int, uint8: bool, space: dict) -> Callable[[Any], None]:
    """A function that writes a value of `space` into its row of the shared memory."""
    flat = np.frombuffer(memory, np.uint8 if uint8 else np.float32, size, offset)
    flatten_into = SpaceCodec(space).flatten_into
    if space["type"] != "Box":
        return lambda value: flatten_into(value, flat)
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
            flatten_into(value, flat)

    return write


def _action_reader(memory: Any, offset: int, words: int, space: dict) -> Callable[[], Any]:
    """A function that gives the action in the space's own form."""
    if space["type"] == "Discrete":
        word = memoryview(memory)[offset : offset + 4].cast("i")
        return lambda: word[0]
    if space["type"] == "Box" and space["dtype"] == "float32" and "python" not in space:
        row = np.frombuffer(memory, np.float32, words, offset).reshape(tuple(space["shape"]))
        return row.copy
    row = np.frombuffer(memory, np.int32, words, offset)
    unflatten_action = SpaceCodec(space).unflatten_action
    return lambda: unflatten_action(row.copy())


class Block:
    """The memory of one environment or function: a header, and what follows it."""

    def __init__(self, fd: int, offset: int, size: int) -> None:
        self.memory = shm.map_block(fd, offset, size)
        self.view = memoryview(self.memory)
        self.header = self.view[:64].cast("I")
        self._error = self.view[shm.BLOCK_ERROR : shm.BLOCK_ERROR + shm.BLOCK_ERROR_CAPACITY]

    def begin(self) -> None:
        """Before a request is answered."""
        self.header[shm.BLOCK_STATUS] = shm.STATUS_OK
        self.header[shm.BLOCK_FLAGS] = 0

    def fail(self, error: BaseException) -> None:
        """The answer is an error: its headline, then its traceback."""
        status = shm.STATUS_BAD_OUTPUT if _speaks_for_itself(error) else shm.STATUS_FAILED
        try:
            text = headline(error)
            text += "\n" + their_traceback(error, shm.BLOCK_ERROR_CAPACITY - len(text.encode("utf-8", "replace")) - 1)
        except Exception:  # an error whose own text fails
            text = f"{type(error).__name__} without a readable text"
        data = text.encode("utf-8", "replace")[: shm.BLOCK_ERROR_CAPACITY]
        self._error[: len(data)] = data
        self.header[shm.BLOCK_ERROR_BYTES] = len(data)
        self.header[shm.BLOCK_STATUS] = status


class Environment:
    """One environment of a process and its block. `host` is the EnvHost."""

    def __init__(self, host: Any, offset: int) -> None:
        self._host = host
        self._adapter: Any = None
        self._short_way: Any = None  # of the adapter's environment
        self._usual: Any = None  # the short way while all agents are in play
        layout = host.layout
        agents = host.description["agents"]
        self._block = Block(host.memory_fd, offset, layout["block_bytes"])
        memory, view = self._block.memory, self._block.view
        self._memory = memory
        self.header = self._block.header
        count = len(agents)
        self._ids = [agent["id"] for agent in agents]
        self._acts = view[layout["acts"] : layout["acts"] + count]
        self._all_act = bytes([1]) * count
        self._picture = layout["picture"], layout["picture_bytes"]
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
            )
            for i, agent in enumerate(agents)
        ]
        self._read = [
            _action_reader(memory, layout["actions"][i], layout["action_words"][i], agent["action_space"])
            for i, agent in enumerate(agents)
        ]
        self._words: Optional[memoryview] = None
        if all(agent["action_space"]["type"] == "Discrete" for agent in agents):
            start = layout["actions"][0]  # one word each, one after another
            self._words = view[start : start + 4 * count].cast("i")
        self._masks: Optional[List[Optional[memoryview]]] = None
        if any(agent["has_action_mask"] for agent in agents):
            self._masks = [
                (
                    view[layout["masks"][i] : layout["masks"][i] + layout["mask_sizes"][i]]
                    if agent["has_action_mask"]
                    else None
                )
                for i, agent in enumerate(agents)
            ]
        self._has_agent_mask = bool(host.description["has_agent_mask"])
        self._state_kind = host.description["state_kind"]
        self._write_state = [
            _row_writer(memory, at, layout["state_size"], False, host.description["state_space"])
            for at in layout["states"]
        ]
        self._columns = host.description["info_columns"]
        self._watch = host.watch_of(self._ids, self.header, view)
        self._infos = np.frombuffer(memory, np.float64, count * len(self._columns), layout["infos"]).reshape(count, -1)

    def send(self) -> bool:
        """Makes the step that the block asks for, whose result publish() writes. False: it failed, which is written."""
        try:
            if self._usual is not None:
                if self._usual.step():
                    return True
                self._leave_short_way()
            acts = self._acts
            if self._words is not None:
                actions: List[Any] = self._words.tolist()
                if acts != self._all_act:
                    actions = [action if act else None for action, act in zip(actions, acts)]
            else:
                actions = [read() if act else None for read, act in zip(self._read, acts)]
            if self._watch is not None:
                self._watch.acting(acts, actions)
            self._adapter.send(actions)
            return True
        except Stop:
            raise
        except BaseException as error:  # also SystemExit: an environment does not end its neighbours
            self._fail(error)
            return False

    def publish(self) -> None:
        """Writes what the step brought into the block."""
        try:
            if self._usual is not None:
                if self._usual.take():
                    return
                self._leave_short_way()
            self._block.begin()
            result = self._adapter.receive()
            self._publish(result)
            if self._watch is not None:
                self._watch.stepped(self._adapter, result)
            if self._short_way is not None and self._adapter.in_full_play():
                self._usual = self._short_way
        except Stop:
            raise
        except BaseException as error:
            self._fail(error)

    def serve(self, kind: int) -> None:
        """Answers a request of this kind, which is no step."""
        if self._usual is not None:
            self._leave_short_way()
        self._block.begin()
        try:
            if kind == shm.KIND_RESET:
                if self._adapter is None:
                    self._adapter = self._host.make_adapter(self._host.first_env_index + self.header[shm.BLOCK_ENV_INDEX])
                    self._short_way = self._make_short_way()
                seed = self.header[shm.BLOCK_SEED]
                self._host.seed_globals(seed)
                result = self._adapter.reset(seed)
                self._publish(result)
                if self._watch is not None:
                    self._watch.begin(self._adapter, result)
            elif kind == shm.KIND_EPISODE_END:
                if self._watch is not None:
                    self._watch.end()
            elif kind == shm.KIND_PICTURE:
                if self._adapter is None:
                    raise BadOutput("render() before a reset, expected an episode")
                self._write_picture(self._adapter.picture())
            elif kind == shm.KIND_CLOSE:
                self.close()
            else:
                raise RuntimeError(f"request {kind} is unknown")
        except Stop:
            raise
        except BaseException as error:
            self._fail(error)

    def _write_picture(self, picture: np.ndarray) -> None:
        at, most = self._picture
        if picture.nbytes > most:
            raise BadOutput(f"render() answered a picture of shape {picture.shape}, expected at most {most} bytes")
        np.frombuffer(self._memory, np.uint32, 2, at)[:] = picture.shape[:2]
        np.frombuffer(self._memory, np.uint8, picture.size, at + shm.PICTURE_HEAD)[:] = picture.reshape(-1)

    def close(self) -> None:
        """Closes the environment, once, whatever it says to that."""
        adapter, self._adapter = self._adapter, None
        self._short_way = self._usual = None
        if adapter is not None:
            adapter.close()

    def _make_short_way(self) -> Any:
        agents = self._host.description["agents"]
        words = self._words is not None
        return usual_step.make(
            self._host.usual_step, self._adapter, agents, self._host.layout, self._memory, self._read, words
        )

    def _leave_short_way(self) -> None:
        """The adapter goes on."""
        usual, self._usual = self._usual, None
        self._adapter.resume(*usual.leave())

    def _fail(self, error: BaseException) -> None:
        self._block.fail(error)
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
            raise BadOutput(f"global state: {error} ({NO_STATE})") from error
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
