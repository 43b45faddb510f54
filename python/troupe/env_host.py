"""Runs Python environments and functions for a worker: the program of a process that is started by lib/envhost and by nobody else.

File descriptors it inherits: 3 the control channel (JSON lines), 4 the shared memory (_shm_host.py), 5 the lifeline, a
pipe that closes when the worker dies. What environments print goes to the worker's log.

The worker sends {"op": "start", name, args, path, global_state, draws, observation_function, callbacks, step_timeout_s,
usual_step}; one environment is made and described. (A process of functions, function_host.py, is told {"functions":
true} instead, and describes nothing.) The worker answers with {"op": "layout"}. From then on requests come through the ring; the first one of a slot makes its environment or function, whose
block lies where the control page says. An exception costs its environment the episode: it is closed, and made anew at
the next reset. {"op": "exit"} ends the process, instead of the layout or when the ring says that there is a line.
"""

import copy
import faulthandler
import json
import os
import random
import signal
import sys
import time
import traceback
from typing import Any, Dict, List, Tuple, Union

try:
    import numpy as np
except ImportError as error:
    if __name__ != "__main__":
        raise
    refusal = (
        f"{sys.executable} has no numpy, which environments and functions in Python need ({error}): install it there, "
        f"{sys.executable} -m pip install numpy, or name another Python, a program or a virtual environment's folder, as "
        f"env.python.interpreter in the configuration (--python of train, learner and envs)"
    )
    os.write(3, json.dumps({"op": "failed", "error": refusal}).encode() + b"\n")
    sys.exit(1)

from troupe import _shm_host as shm
from troupe import usual_step
from troupe._shm_env import BadOutput, Environment, Stop, describe_error
from troupe.control_channel import CONTROL_FD, LIFELINE_FD, MEMORY_FD, ControlChannel, die_with_worker
from troupe.env_adapters import make_adapter
from troupe.env_adapters.base import close_after_error
from troupe.env_adapters.resolve import Place
from troupe.function_host import Function


# Steps that are made before the first of them is answered: so many, with so many bytes of rows, within so much time.
MAX_STEPS_AT_ONCE = 16
MAX_BYTES_AT_ONCE = 1 << 17
MAX_SECONDS_AT_ONCE = 0.002


class EnvHost:
    """The environments of one process."""

    def __init__(self, control: ControlChannel, page: shm.ControlPage) -> None:
        self._control = control
        self._page = page
        self._environments: Dict[int, Union[Environment, Function]] = {}
        self._spare: Any = None  # made to be described, and given to the first environment
        self._seeded = False
        self._functions = False  # instead of environments
        self._name = ""
        self._args: Dict[str, Any] = {}
        self._global_state = True
        self._draws = False
        self._worker_index = 0
        self.first_env_index = 0  # of the environment that the worker calls 0
        self._counts = False  # environments are told which of the run they are
        self._observation_function = ""
        self._callbacks: Any = None  # of episodes; None: none
        self.memory_fd = MEMORY_FD
        self.usual_step: Any = None  # the module of short ways, if there is one
        self.description: Dict[str, Any] = {}
        self.layout: Dict[str, Any] = {}

    def start(self) -> None:
        """Makes an environment and tells the worker what it is like."""
        message = self._receive("start")
        if message["version"] != shm.LAYOUT_VERSION:
            raise RuntimeError(f"the worker speaks version {message['version']}, expected {shm.LAYOUT_VERSION}")
        sys.path[:0] = message["path"]
        self._functions = bool(message.get("functions"))
        if not self._functions:
            self.usual_step = usual_step.load(message.get("usual_step", ""))
            self._name, self._args, self._global_state = message["name"], message["args"], message["global_state"]
            self._draws = message["draws"]
            self._worker_index, self.first_env_index = message.get("worker_index", 0), message.get("first_env_index", 0)
            self._observation_function = message.get("observation_function", "")
            if message.get("callbacks"):
                from troupe.episode_callbacks import EpisodeCallbacks

                self._callbacks = EpisodeCallbacks(message["callbacks"], message["step_timeout_s"], message["evaluating"])
            self._make_first()
        self._control.send({"op": "described", "version": shm.LAYOUT_VERSION, **self.description})
        message = self._receive("layout", "exit")
        if message["op"] == "exit":
            raise SystemExit(0)  # nobody needed it
        self.layout = message

    def _make_first(self) -> None:
        try:
            self._spare = self.make_adapter()
            self.description = self._describe(self._spare)
        except Stop:
            raise
        except BaseException as error:
            self._control.send({"op": "failed", "error": describe_error(error)})
            raise SystemExit(1) from error

    def make_adapter(self, env_index: int = -1) -> Any:
        """A new environment, the `env_index`-th of the run; or the one that was made to be described, where it is all one."""
        if self._spare is not None:
            adapter, self._spare = self._spare, None
            if not self._counts:
                return adapter
            adapter.close()
        place = Place(self._worker_index, env_index)
        adapter = make_adapter(self._name, copy.deepcopy(self._args), self._global_state, self._draws, self._observation_function, place)
        self._counts = place.asked_for
        if self._callbacks is not None:
            adapter.keep_infos()
        if self.description and self._describe(adapter) != self.description:
            text = f"its spaces changed: got {self._describe(adapter)}, expected {self.description}"
            close_after_error(self._name, adapter)
            raise BadOutput(text)
        return adapter

    def watch_of(self, ids: List[str], header: Any, view: Any) -> Any:
        """Who watches the episodes of an environment whose block `view` is; None where nobody does."""
        if self._callbacks is None or not self.layout["watched"]:
            return None
        from troupe.episode_callbacks import EpisodeWatch

        players, tracked = self.layout["players"], self.layout["tracked"]
        return EpisodeWatch(
            self._callbacks, ids, header, view[players : players + len(ids) * shm.PLAYER_BYTES], view[tracked : tracked + shm.TRACKED_BYTES]
        )

    def seed_globals(self, seed: int) -> None:
        """Seeds `random` and numpy's global generator, once, for environments that draw from them."""
        if not self._seeded:
            self._seeded = True
            random.seed(seed)
            np.random.seed(seed)

    def run(self) -> None:
        """Answers requests until the worker says that it is enough."""
        page = self._page
        most = self._steps_at_once()
        while True:
            available = page.await_entries()
            entry = page.entry(0)
            if entry == shm.CONTROL_ENTRY:
                self._receive("exit")
                return
            if entry >> 24 == shm.KIND_STEP:
                self._step(min(available, most))
            else:
                self._at(entry & shm.SLOT_MASK).serve(entry >> 24)
                page.finish_entries(1)

    def _steps_at_once(self) -> int:
        """How many steps are made before the first is answered; one where rows fill a cache."""
        row_bytes = self.layout.get("block_bytes", 0) - shm.BLOCK_ERROR - shm.BLOCK_ERROR_CAPACITY
        return max(1, min(MAX_STEPS_AT_ONCE, MAX_BYTES_AT_ONCE // max(1, row_bytes)))

    def _step(self, most: int) -> None:
        """Makes the steps of a batch one after another, and answers then: an environment's step leaves little of our
        code and data in the processor's caches, so that what we do for several at once takes less time. What takes long
        all the same is answered in between.
        """
        sent: List[Tuple[Environment, bool]] = []
        entry_at, environments, now = self._page.entry, self._environments, time.perf_counter
        deadline = now() + MAX_SECONDS_AT_ONCE
        for index in range(most):
            entry = entry_at(index)
            if entry >> 24 != shm.KIND_STEP or (sent and entry & shm.BATCH_BEGINS):
                break
            environment = environments[entry & shm.SLOT_MASK]  # made by its reset
            sent.append((environment, environment.send()))
            if now() > deadline:
                break
        answered = 0
        deadline = now() + MAX_SECONDS_AT_ONCE
        for index, (environment, ok) in enumerate(sent, 1):
            if ok:
                environment.publish()
            if index == len(sent) or now() > deadline:
                self._page.finish_entries(index - answered)
                answered, deadline = index, now() + MAX_SECONDS_AT_ONCE

    def _at(self, slot: int) -> Any:
        found = self._environments.get(slot)
        if found is None:
            made = Function if self._functions else Environment
            found = self._environments[slot] = made(self, self._page.block_offset(slot))
        return found

    def close(self) -> None:
        """Closes every environment that is open."""
        spare, self._spare = self._spare, None
        for close in [environment.close for environment in self._environments.values()] + (
            [spare.close] if spare is not None else []
        ):
            try:
                close()
            except BaseException:
                traceback.print_exc()

    @staticmethod
    def _describe(adapter: Any) -> Dict[str, Any]:
        description = adapter.description
        return {
            "recognized_as": description.recognized_as,
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

    def _receive(self, *ops: str) -> Dict[str, Any]:
        line = self._control.readline()
        if not line:
            raise SystemExit(0)  # the worker is gone
        message = json.loads(line)
        if message["op"] not in ops:
            raise RuntimeError(f"the worker said {message['op']}, expected {' or '.join(ops)}")
        return message


def _on_sigterm(_signal: int, _frame: Any) -> None:
    raise Stop()


def main() -> int:
    """The process."""
    die_with_worker()
    faulthandler.enable()
    signal.signal(signal.SIGTERM, _on_sigterm)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = ControlChannel(CONTROL_FD)
    try:
        page = shm.ControlPage(MEMORY_FD)
    except RuntimeError as error:
        control.send({"op": "failed", "error": str(error)})
        return 1
    host = EnvHost(control, page)
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
