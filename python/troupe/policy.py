"""Policies of a checkpoint that act in this process, by the code and with the bits of a worker's actor (lib/acting). Needs numpy."""

from __future__ import annotations

import ctypes
import functools
import os
import secrets
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from troupe import acting
from troupe.env_adapters.observation_view import MASK_KEY, STATE_KEY
from troupe.env_adapters.spaces import SpaceCodec, SpaceError
from troupe.envs import spaces
from troupe.networks import ActorOutputs, Network, read_network

if TYPE_CHECKING:
    from troupe.export import Exported
    from troupe.torch_policy import PolicyModule

Array = NDArray[Any]
# Environments whose decisions are drawn apart: that of Agents, and behind it one for each Policy of a checkpoint.
_OF_AGENTS, _OF_POLICIES = 0, 1


class _Slots(Dict[str, int]):
    """Of a checkpoint's agents by their ids."""

    def __init__(self, checkpoint: acting.Checkpoint) -> None:
        super().__init__((agent, slot) for slot, agent in enumerate(checkpoint.description["agents"]))

    def __missing__(self, agent: str) -> int:
        raise ValueError(f"there is no agent {agent!r}, expected one of {', '.join(list(self)[:8])}")


class _Buffers:
    """Arrays of so many rows, and the call that points to them."""

    def __init__(self, policy: Dict[str, Any], place: int, rows: int) -> None:
        self.observations = np.zeros((rows, policy["obs_size"]), np.uint8 if policy["obs_dtype"] == "uint8" else np.float32)
        self.masks = np.ones((rows, policy["mask_size"]), np.uint8)
        self.keys = np.zeros((rows, 4), np.uint32)
        self.states = np.zeros((rows, policy["state_size"]), np.float32)
        self.actions = np.zeros((rows, len(policy["word_dtypes"])), np.int32)
        self.logp = np.zeros(rows, np.float32)
        states = self.states.ctypes.data if policy["state_size"] else None
        self.call = acting.Rows(place, 0, rows, self.observations.ctypes.data, None, self.keys.ctypes.data, states, states, self.actions.ctypes.data,
                                self.logp.ctypes.data)
        self.call_ref = ctypes.byref(self.call)


class Policy:
    """A policy with the weights of a checkpoint. Made by `Run.policies` and `Agents`. One thread uses it.

    observation_space, action_space: troupe.envs.spaces.Space, whose `gymnasium()` is Gymnasium's; as checkpoints have them, which of an environment
    in Python keep no `start` of MultiDiscrete, no second dimension of MultiDiscrete and MultiBinary, no dtype but the nearest of Troupe's, and [1] for
    a Box of shape (). version: of the weights; agents: ids of those that may play it; state_size: numbers that it remembers of an agent, 0: nothing.
    """

    def __init__(self, checkpoint: acting.Checkpoint, place: int) -> None:
        description = checkpoint.description["policies"][place]
        self.id: str = description["id"]
        self.version: int = description["version"]
        self.observation_space = spaces.parse(description["observation_space"])
        self.action_space = spaces.parse(description["action_space"])
        self.agents: List[str] = [checkpoint.description["agents"][slot] for slot in description["agents"]]
        self.state_size: int = description["state_size"]
        self.source = f"checkpoint:{checkpoint.path}#{self.id}"  # as multi_agent.policies names it
        self._description = description
        self._place = place
        self._checkpoint = checkpoint  # the handle lives as long as this
        self._handle, self._act = checkpoint.handle, checkpoint.act
        self._slots = _Slots(checkpoint)
        self._observation, self._action = SpaceCodec(self.observation_space.description()), SpaceCodec(self.action_space.description())
        self._many: Optional[_Buffers] = None
        self._error = acting.ErrorText()
        self._error_ref = ctypes.byref(self._error)
        self._drawn = 0

    def __repr__(self) -> str:
        return f"Policy({self.id!r}, version {self.version}, {self._description['observation_space']} -> {self._description['action_space']})"

    @functools.cached_property
    def _one(self) -> _Buffers:
        """Of one row, made when the policy is asked: most of a league are never."""
        return _Buffers(self._description, self._place, 1)

    def act(self, obs: Any, *, agent: Optional[str] = None, action_mask: Any = None, deterministic: bool = False) -> Any:
        """The action for one observation, in the forms of `action_space` and `observation_space`: sampled, or with `deterministic` the most probable
        one. agent: the id of who acts, for a policy that sees which agent it plays. action_mask: flat, or as Gymnasium's `sample` takes it; None:
        everything is allowed. ValueError for what does not fit, and for a policy that remembers, which `predict` asks; TroupeError."""
        if self.state_size:
            raise ValueError(f"policy {self.id} remembers (model.actor_core): ask predict(obs, state), which gives the state for the next decision")
        return self._decide(obs, self._slot(agent), action_mask, deterministic, _OF_POLICIES + self._place, *self._next_key())

    def predict(self, obs: Any, state: Optional[Array] = None, episode_start: Any = None, deterministic: bool = False, *,
                agent: Union[str, Sequence[str], None] = None, action_mask: Any = None) -> Tuple[Any, Optional[Array]]:
        """As Stable-Baselines3: (action, state) for one observation, or, for an array with one more dimension or a list of Dicts or Tuples, a list
        with an action a row. state: [rows, state_size] of the decisions before, None: the first ones; episode_start: a truth value a row, which
        forgets; the state is None for a policy that remembers nothing. agent, action_mask: as for `act`, of batches one a row."""
        many = self._is_many(obs)
        rows = _checked_rows(len(obs) if many else 1)
        if self._many is None or self._many.observations.shape[0] != rows:
            self._many = _Buffers(self._description, self._place, rows)
        buffers = self._many
        agents = [agent] * rows if agent is None or isinstance(agent, str) else list(agent)
        if len(agents) != rows:
            raise ValueError(f"got {len(agents)} agents, expected one, or {rows}")
        episode, step = self._next_key()
        for row in range(rows):
            self._write(buffers.observations[row], obs[row] if many else obs)
            buffers.keys[row] = (_OF_POLICIES + self._place, episode, self._slot(agents[row]), step)
            step += 1
        self._drawn += rows - 1
        if action_mask is not None:
            if many and len(action_mask) != rows:
                raise ValueError(f"got {len(action_mask)} action masks, expected {rows}")
            for row in range(rows):
                buffers.masks[row] = self._mask(action_mask[row] if many else action_mask)
        if self.state_size:
            self._write_states(buffers.states, state, episode_start, many)
        self._call(buffers, action_mask is not None, deterministic)
        actions = [self._action.unflatten_action(words) for words in buffers.actions]
        return (actions if many else actions[0]), (buffers.states.copy() if self.state_size else None)

    def decide(self, obs: Any, slot: int, action_mask: Any, state: Optional[Array]) -> Tuple[Any, float, Optional[Array]]:
        """(action, log-probability, state) for one observation of the agent in `slot`: `predict`, sampled, with what training records of it. Of a
        continuous action the log-probability is of what was sampled before it was brought into its space. state: [state_size], None: nothing is
        remembered. ValueError, TroupeError."""
        one = self._one
        if self.state_size:
            one.states[0] = 0 if state is None else _exact("a state", state, (self.state_size,))
        mask = action_mask if self._description["mask_size"] else None
        action = self._decide(obs, slot, mask, False, _OF_POLICIES + self._place, *self._next_key())
        return action, float(one.logp[0]), (one.states[0].copy() if self.state_size else None)

    @functools.cached_property
    def network(self) -> Network:
        """Its tensors, and what its last layer is. TroupeError for a policy without networks."""
        return read_network(self._checkpoint, self._place)

    def outputs(self, observations: Array, agent_slots: Optional[Array] = None, states: Optional[Array] = None,
                action_masks: Optional[Array] = None) -> ActorOutputs:
        """What a worker's actor computes of flattened rows [rows, obs_size]: for who holds another program's numbers
        against it. agent_slots: [rows]; states: [rows, state_size], zeros without; action_masks: [rows, mask_size], of
        the actions alone. ValueError for another shape or dtype; TroupeError, also for a user's network, which needs
        LibTorch."""
        buffers = _Buffers(self._description, self._place, _checked_rows(len(observations)))
        most = 255 if buffers.observations.dtype == np.uint8 else None
        buffers.observations[:] = _exact("observations", observations, buffers.observations.shape, most)
        if agent_slots is not None:
            buffers.keys[:, 2] = _exact("agent_slots", agent_slots, (len(observations),), len(self._slots) - 1)
        if action_masks is not None:
            buffers.masks[:] = _exact("action_masks", action_masks, buffers.masks.shape, 1)
        before = 0 if states is None else _exact("states", states, buffers.states.shape)
        buffers.states[:] = before
        outputs = np.zeros((len(observations), self.network.outputs), np.float32)
        self._checkpoint.outputs(buffers.call, outputs.ctypes.data)
        buffers.states[:] = before
        self._call(buffers, action_masks is not None, deterministic=True)
        actions = buffers.actions.astype(np.float64)
        for word, dtype in enumerate(self._description["word_dtypes"]):
            if dtype == "float32":
                actions[:, word] = buffers.actions.view(np.float32)[:, word]
        return ActorOutputs(outputs, buffers.states, actions, buffers.logp)

    def torch_module(self, *, torchscript: Optional[str] = None) -> "PolicyModule":
        """The actor as a torch.nn.Module in eval mode, with the weights of the checkpoint: all that it does with an
        observation but sampling. Eight rows of its outputs are compared with a worker's, to 1e-4 of a row's largest
        number where that is above 1 (not of a user's network). Needs PyTorch. torchscript: the file of a user's network
        (`model.torchscript`), which is a program and is run where it is named here alone, as the run keeps it in
        RUN/torchscript. TroupeError, also for a policy without networks."""
        from troupe.export import torch_module

        return torch_module(self.network, self.outputs, torchscript)

    def export(self, path: Union[str, "os.PathLike[str]"], format: Optional[str] = None, *, overwrite: bool = False,
               torchscript: Optional[str] = None) -> "Exported":
        """Writes the actor to a file, and golden rows to PATH.golden.npz: inputs, and the outputs of a worker's actor
        (of a user's network, of its module). format: "safetensors" (numpy alone; of a user's network PyTorch, too),
        "torchscript" (needs PyTorch from 2.5 on) or "onnx" (PyTorch from 2.5 on, and onnx); None: by the ending of the
        path, .safetensors, .pt or .onnx. A known ending of another format is an error. A file of TorchScript, and of ONNX where onnxruntime
        is installed, is run on these inputs: outputs differ by 1e-4 at most, of a row's largest number where that is
        above 1. Both files are there and whole, or neither is; those that are there are left unless `overwrite`.
        torchscript: as for `torch_module`. TroupeError."""
        from troupe.export import export

        return export(self.network, self.outputs, os.fspath(path), format, overwrite=overwrite, torchscript=torchscript)

    def _write_states(self, states: Array, state: Optional[Array], episode_start: Any, many: bool) -> None:
        if state is None:
            states.fill(0)
            return
        given = np.asarray(state)
        states[:] = _exact("a state", given if many or given.ndim != 1 else given[np.newaxis], states.shape)
        if episode_start is not None:
            starts = np.asarray(episode_start, bool)
            if starts.shape not in ((), (len(states),)):
                raise ValueError(f"got episode_start of shape {starts.shape}, expected a truth value, or {len(states)}")
            states[np.broadcast_to(starts, len(states))] = 0

    def _decide(self, obs: Any, slot: int, mask: Any, deterministic: bool, env_id: int, episode: int, step: int) -> Any:
        """One row; what the policy remembers is in and out of `_one.states`."""
        one = self._one
        self._write(one.observations[0], obs)
        one.keys[0] = (env_id, episode, slot, step)
        if mask is not None:
            one.masks[0] = self._mask(mask)
        self._call(one, mask is not None, deterministic)
        return self._action.unflatten_action(one.actions[0])

    def _call(self, buffers: _Buffers, masked: bool, deterministic: bool) -> None:
        buffers.call.deterministic = deterministic
        buffers.call.action_masks = buffers.masks.ctypes.data if masked else None
        code = self._act(self._handle, buffers.call_ref, self._error_ref)
        if code != 0:
            acting.Checkpoint.check(code, self._error)

    def _write(self, row: Array, obs: Any) -> None:
        try:
            self._observation.flatten_into(obs, row)
        except SpaceError as error:
            raise ValueError(f"policy {self.id}: observation: {error}") from None

    def _mask(self, mask: Any) -> Array:
        if not self._description["mask_size"]:
            raise ValueError(f"policy {self.id} has no action masks (algorithm.use_actions_mask), got one")
        try:
            return self._action.flatten_mask(mask)
        except SpaceError as error:
            raise ValueError(f"policy {self.id}: {error}") from None

    def _slot(self, agent: Optional[str]) -> int:
        if agent is None:
            if self._description["needs_agent"]:
                raise ValueError(f"policy {self.id} sees which agent it plays (algorithm.use_agent_id): give agent, one of {', '.join(self.agents[:8])}")
            return 0
        return self._slots[agent]

    def _next_key(self) -> Tuple[int, int]:
        """(episode, env step) of a decision that is nobody else's: the number of decisions so far."""
        self._drawn += 1
        return self._drawn >> 32, self._drawn & 0xFFFFFFFF

    def _is_many(self, obs: Any) -> bool:
        space = self.observation_space
        if space.kind in ("Dict", "Tuple"):
            return isinstance(obs, list)
        return np.ndim(obs) > {"Box": len(space.shape), "Discrete": 0}.get(space.kind, 1)


class Agents:
    """The agents of a run, each with its policy by the run's mapping and what that remembers: for a loop of PettingZoo. Made by `Run.agents`. One thread
    uses it.

        observations, infos = env.reset()
        agents.reset()
        while env.agents:
            seen = {agent: observations[agent] for agent in env.agents}
            observations, rewards, terminations, truncations, infos = env.step(agents.act(seen, infos))
    """

    def __init__(self, checkpoint: acting.Checkpoint, deterministic: bool) -> None:
        self.policies = [Policy(checkpoint, place) for place in range(len(checkpoint.description["policies"]))]
        self._checkpoint, self._deterministic = checkpoint, deterministic
        self._slots = _Slots(checkpoint)
        self._episode = -1
        self.reset()

    def reset(self) -> None:
        """A new episode: the mapping is drawn, and nothing is remembered. TroupeError."""
        self._episode += 1
        self._step = 0
        self._places = self._checkpoint.map(_OF_AGENTS, self._episode)
        self._states: Dict[str, Array] = {}

    def policy_of(self, agent: str) -> Policy:
        """That plays the agent in this episode."""
        return self.policies[self._places[self._slots[agent]]]

    def act(self, observations: Mapping[str, Any], infos: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        """An action for each agent that observed. Action masks are those of `infos` or of Dict observations, under `action_mask`. ValueError,
        TroupeError."""
        actions = {}
        for agent, obs in observations.items():
            policy = self.policy_of(agent)
            mask = None
            if policy._description["mask_size"]:
                info = (infos or {}).get(agent)
                mask = info.get(MASK_KEY) if isinstance(info, Mapping) else None
            obs, own_mask = _split(obs, policy.observation_space)
            remembers = policy.state_size > 0
            if remembers:
                policy._one.states[0] = self._states.get(agent, 0)
            actions[agent] = policy._decide(obs, self._slots[agent], own_mask if own_mask is not None and policy._description["mask_size"] else mask,
                                            self._deterministic, _OF_AGENTS, self._episode, self._step)
            if remembers:
                self._states[agent] = policy._one.states[0].copy()
        self._step += 1
        return actions


def _split(obs: Any, space: spaces.Space) -> Tuple[Any, Any]:
    """An environment's observation as the policy reads it, and its mask: a Dict's `action_mask` and `state` are no input of the actor, as
    env_adapters/observation_view.py has it."""
    if not isinstance(obs, Mapping):
        return obs, None
    if space.kind == "Dict":
        return {key: obs[key] for key in space.keys if key in obs}, None if MASK_KEY in space.keys else obs.get(MASK_KEY)
    left = [key for key in obs if key not in (MASK_KEY, STATE_KEY)]
    return obs[left[0]] if len(left) == 1 else obs, obs.get(MASK_KEY)


def open_policies(checkpoint: str, seed: Optional[int]) -> Dict[str, Policy]:
    """By id."""
    opened = acting.Checkpoint(checkpoint, _seed(seed))
    return {policy["id"]: Policy(opened, place) for place, policy in enumerate(opened.description["policies"])}


def open_agents(checkpoint: str, deterministic: bool, seed: Optional[int]) -> Agents:
    """As Run.agents."""
    return Agents(acting.Checkpoint(checkpoint, _seed(seed)), deterministic)


def _checked_rows(rows: int) -> int:
    if not 1 <= rows <= acting.MAX_ROWS:
        raise ValueError(f"got {rows} observations, expected 1 to {acting.MAX_ROWS}")
    return rows


def _exact(name: str, values: Any, shape: Tuple[int, ...], most: Optional[int] = None) -> Array:
    """`values` as an array: real numbers, or with `most` whole ones in [0, most]. ValueError for others and for another
    shape; NumPy would repeat rows, and wrap numbers."""
    given = np.asarray(values)
    if given.shape != shape:
        raise ValueError(f"got {name} of shape {given.shape}, expected {shape}")
    if given.dtype.kind not in ("uibf" if most is None else "uib"):
        raise ValueError(f"got {name} of dtype {given.dtype.name}, expected {'real' if most is None else 'whole'} numbers")
    if most is not None and given.size and not (0 <= given.min() and given.max() <= most):
        raise ValueError(f"got {name} from {given.min()} to {given.max()}, expected whole numbers in [0, {most}]")
    return given


def _seed(seed: Optional[int]) -> int:
    if seed is None:
        return secrets.randbits(64)
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"got seed {seed}, expected a number in [0, 2**64)")
    return seed
