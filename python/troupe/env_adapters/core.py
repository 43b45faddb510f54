"""What all adapters share: the agents' bookkeeping, Dict observations with masks and states, infos, seeds, ends and
errors.
"""

from __future__ import annotations

import warnings
from typing import Any, Callable, Hashable, Iterable

import numpy as np

from troupe.env_adapters import spaces
from troupe.env_adapters.agent_spaces import NO_STATE, AgentSpaces
from troupe.env_adapters.base import (
    AgentDescription,
    EnvAdapterError,
    EnvDescription,
    StepResult,
)
from troupe.env_adapters.observation_view import MASK_KEY, STATE_KEY, ObservationView
from troupe.env_adapters.pools import AgentPools
from troupe.env_adapters.seeding import Seeding
from troupe.scalar import one_number

AGENT_MASK_KEY = "agent_mask"
TIME_LIMIT_KEY = "TimeLimit.truncated"
ALL = "__all__"
#: Keys of infos that stand for the whole environment.
COMMON_KEYS = ("__common__", ALL)


class AdapterCore(AgentSpaces):
    """Base of the adapters. A subclass finds agents and spaces, calls _set_agents and _probe, and fills the result in
    reset and receive.
    """

    #: How a person calls this form.
    kind = ""
    #: What the environment's step takes and returns, as usual_step.py knows it; "": nothing that it knows.
    usual_form = ""
    #: How one agent becomes several, where it may be meant as several.
    _several = ""

    def __init__(self, name: str, env: Any, global_state: bool):
        self.name = name
        self.dropped_rewards = 0  # nonzero rewards that came with a reset
        self.kept_infos: dict[int, Any] | None = None  # by agent index, of the last call; None: nobody asks for them
        self._env = env
        self._global_state = global_state
        self._closed = False
        self._steps = 0
        self._over = True
        self._warned: set[str] = set()
        self._last_state: Any = None
        self._seeding = Seeding(env)
        self.description: EnvDescription = None  # type: ignore[assignment]  # made by _probe

    @property
    def env(self) -> Any:
        """The environment itself."""
        return self._env

    def declared_space(self, i: int) -> Any:
        """The agent's observation space as the environment has it."""
        return self._raw_spaces[i][0]

    def keys(self) -> list:
        """The agents as the environment names them now, by index."""
        return self._keys

    def keep_infos(self) -> None:
        """What each call says of agents, as the environment gives it, is in kept_infos from now on."""
        self.kept_infos = {}

    # Errors.

    def error(self, what: str, agent_index: int | None = None) -> EnvAdapterError:
        agent = "" if agent_index is None else f", agent {self._ids[agent_index]}"
        return EnvAdapterError(f"environment {self.name}{agent}, step {self._steps}: {what}")

    def _unknown(self, key: Hashable, where: str) -> EnvAdapterError:
        known = ", ".join(self._ids[:8]) + (", ..." if len(self._ids) > 8 else "")
        hint = (
            ""
            if hasattr(self._env, "possible_agents")
            else "; an environment that generates agents needs possible_agents, which names all that may come ('car_*': a pool)"
        )
        return self.error(f"{where} hold the unknown agent {key!r}, expected one of {known}{hint}")

    def warn(self, topic: str, what: str) -> None:
        """Says `what` once for each topic."""
        if topic not in self._warned:
            self._warned.add(topic)
            warnings.warn(f"environment {self.name}: {what}", stacklevel=3)

    def picture(self) -> np.ndarray:
        render = getattr(self._env, "render", None)
        if not callable(render):
            raise self.error("it has no render(), expected one that answers an array of [height, width, 3] bytes")
        answer = render()
        if isinstance(answer, list) and answer:
            answer = answer[-1]  # Gymnasium's rgb_array_list: the newest
        picture = np.asarray(answer) if answer is not None else None
        if picture is None or picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] not in (3, 4):
            got = "None" if picture is None else f"an array of shape {list(picture.shape)} and type {picture.dtype}"
            raise self.error(
                f"render() answered {got}, expected one of [height, width, 3] bytes, as render_mode 'rgb_array' gives it"
            )
        if 0 in picture.shape:
            raise self.error(f"render() answered a picture of {picture.shape[0]} x {picture.shape[1]} pixels, expected some")
        return picture[:, :, :3]

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._over = True
        close = getattr(self._env, "close", None)
        if callable(close):
            close()

    # Making.

    def _set_agents(
        self, keys: Iterable[Hashable], space_of: Callable[[str, Hashable], Any], take_state: bool = True
    ) -> None:
        """`space_of` gives the "observation" or "action" space of one of `keys`, agents or pools of them; asked again at
        every reset, since they must not change.
        """
        self._pools = AgentPools(self.name, list(keys), getattr(self._env, "pool_sizes", None))
        self._declared = self._pools.declared
        self._keys = list(self._pools.names)  # as the environment names who has the slot now
        self._ids = [str(key) for key in self._keys]
        count = len(self._keys)
        if count == 0:
            raise EnvAdapterError(f"environment {self.name}: it has no agents, expected at least one")
        self._index = {key: i for i, key in enumerate(self._keys)}
        texts: dict[str, Hashable] = {}
        for key, text in zip(self._keys, self._ids):
            if text in texts:
                raise EnvAdapterError(
                    f"environment {self.name}: the agents {texts[text]!r} and {key!r} have the same text {text!r}, "
                    f"expected different ones"
                )
            texts[text] = key
        self._space_of = space_of
        self._observed_spaces: dict[Hashable, Any] = {}  # of agents that declare none
        self._take_state = take_state
        self._raw_spaces = self._first_spaces()
        self._views, self._action_spaces = [], []
        for i, (key, (observation, action)) in enumerate(zip(self._declared, self._raw_spaces)):
            if i > 0 and self._in_one_pool(i - 1, i):
                self._views.append(self._views[-1])
                self._action_spaces.append(self._action_spaces[-1])
                continue
            self._views.append(
                self._described(key, "observation", lambda space=observation: ObservationView(space, self._take_state))
            )
            self._action_spaces.append(self._described(key, "action", lambda space=action: spaces.describe(space)))
        self._action_codecs = [spaces.SpaceCodec(d) for d in self._action_spaces]
        self._plain = all(view.plain for view in self._views)
        self._nothing, self._zeros, self._false = [None] * count, [0.0] * count, [False] * count
        self._seen, self._acted, self._done = self._false[:], self._false[:], self._false[:]
        self._live = 0
        self._has_mask = [view.has_mask for view in self._views]
        self._has_agent_mask = False
        # "none", "observation", "infos" (those of an agent), "common" (infos of the environment) or
        # "environment".
        self._state_source = "none"
        self._columns = _info_columns(self._env)
        self._agents_ended = False  # the last call set flags of agents
        self._simple = False  # observations, rewards and flags are all there is
        self._returned: Any = None  # by the environment's step
        self._probing = False
        self._probed: dict[str, Any] = {}

    def _in_one_pool(self, i: int, other: int) -> bool:
        return bool(self._pools) and self._declared[i] == self._declared[other]

    def _admit(self, arrivals: list) -> None:
        """Agents that are there now, and do not stay only because their flags are true, get slots of their pools."""
        self._pools.admit(arrivals, self._index, self._keys, self._seen, self._done)

    def _has_left(self, key: Hashable) -> bool:
        """True if an unknown agent is one of a pool whose slot somebody else may have by now."""
        return bool(self._pools) and self._pools.pattern_of(key) is not None

    def _probe(self) -> None:
        """Plays one reset to see what infos hold (nothing else declares it), and makes the description."""
        self._result = StepResult(len(self._keys))
        self._probing = True
        self.reset(0)
        self._probing = False
        state_space = self._find_state()
        masks = [has or MASK_KEY in self._probed for has in self._has_mask]
        self._has_mask = [has and codec.mask_size > 0 for has, codec in zip(masks, self._action_codecs)]
        self._any_mask = any(self._has_mask)
        self._has_agent_mask = AGENT_MASK_KEY in self._probed
        state_kind = {"none": "none", "common": "per_env", "environment": "per_env"}.get(
            self._state_source, "per_agent"
        )
        agents = [
            AgentDescription(
                id=text, key=key, observation_space=view.description, action_space=action, has_action_mask=mask
            )
            for text, key, view, action, mask in zip(
                self._ids, self._declared, self._views, self._action_spaces, self._has_mask
            )
        ]
        self.description = EnvDescription(
            recognized_as=f"{self.kind}, {len(agents)} agent{'s' if len(agents) > 1 else ''}{self._pools.words()}{self._several and f' ({self._several})'}",
            agents=agents,
            state_kind=state_kind,
            state_space=state_space,
            has_agent_mask=self._has_agent_mask,
            info_columns=self._columns,
            max_episode_steps=self._max_episode_steps(),
        )
        self._result = StepResult(len(agents), state_kind)
        self._simple = not (self._any_mask or self._has_agent_mask or self._columns or self._result.states)
        self._over = True

    def _max_episode_steps(self) -> int:
        return 0

    # Reset and step.

    def reset(self, seed: int) -> StepResult:
        raise NotImplementedError

    def _begin_reset(self) -> StepResult:
        result = self._result
        if self._closed:
            raise EnvAdapterError(f"environment {self.name}: reset after close")
        self._steps = 0
        self._live = 0
        self._over = False
        if self.kept_infos is not None:
            self.kept_infos = {}
        self._seen[:] = self._acted[:] = self._done[:] = self._false
        if self._pools:
            self._pools.forget(self._index, self._keys)
        result.terminated[:] = result.truncated[:] = self._false
        result.all_terminated = result.all_truncated = False
        self._begin(result)
        return result

    def _begin(self, result: StepResult) -> None:
        """Empties what the last call left. The flags are false: they are set only in the call that ends an agent or the
        episode.
        """
        result.observations[:] = self._nothing
        result.rewards[:] = self._zeros
        if self._simple:
            return
        if self._probing or self._any_mask:
            result.action_masks[:] = self._nothing
        if self._has_agent_mask:
            result.agent_active[:] = [True] * len(self._keys)
        if self._columns:
            result.infos[:] = self._nothing
        if result.states:
            result.states[:] = [None] * len(result.states)

    def step(self, actions: list) -> StepResult:
        self.send(actions)
        return self.receive()

    def send(self, actions: list) -> None:
        raise NotImplementedError

    def receive(self) -> StepResult:
        raise NotImplementedError

    # The short way (usual_step.py), which steps the environment itself while nothing but observations and rewards comes.

    def usual_parts(self) -> tuple[str, Any, list] | None:
        """(usual_form, environment, the agents' keys); None where a step brings more."""
        usual = self.usual_form and self._simple and self._plain and self.kept_infos is None and not self._pools
        return (self.usual_form, self._env, self._keys) if usual else None

    def in_full_play(self) -> bool:
        """Whether all agents have acted and none has ended: then the short way may make the next steps."""
        return self._live == len(self._keys) and not self._over and False not in self._acted

    def resume(self, returned: Any, steps: int) -> None:
        """The short way has made so many steps; receive() shall take what the last one returned, if that is not None."""
        self._steps += steps
        self._returned = returned

    def _begin_send(self) -> None:
        if self._over:
            raise self.error("step after the end of the episode (or before reset), expected reset")
        self._steps += 1

    def _begin_receive(self) -> StepResult:
        result = self._result
        if self.kept_infos is not None:
            self.kept_infos = {}
        if self._agents_ended:
            self._agents_ended = False
            result.terminated[:] = result.truncated[:] = self._false
        if self._simple:  # as _begin
            result.observations[:] = self._nothing
            result.rewards[:] = self._zeros
        else:
            self._begin(result)
        return result

    def _observe(self, i: int, value: Any) -> None:
        """The agent is observed, one that had ended perhaps, which returns: takes mask and state out of a Dict
        observation.
        """
        if not self._seen[i]:
            self._seen[i] = True
            self._live += 1
        elif self._done[i]:
            self._return(i)
        view = self._views[i]
        if not view.plain:
            try:
                value, mask, state = view.split(value)
            except (KeyError, TypeError) as e:
                raise self.error(
                    f"the observation lacks the key {e}"
                    if isinstance(e, KeyError)
                    else f"the observation is no dict: {e}",
                    i,
                ) from None
            if view.has_mask:
                self._set_mask(i, mask)
            if self._state_source == "observation":
                self._result.states[i] = state
        if value is None:
            raise self.error("the observation is None", i)
        self._result.observations[i] = value

    def _return(self, i: int) -> None:
        """The agent had ended: another trajectory of it begins."""
        self._acted[i] = self._done[i] = False
        self._live += 1
        if self._pools.pattern_of(self._keys[i]) is None:
            self.warn(
                "returns",
                f"agent {self._ids[i]} is observed after its end, in the same episode, and its flag is no longer true: it returns, "
                f"and a new trajectory of it begins (an agent that stays in what a step returns keeps its flag true)",
            )

    def _set_mask(self, i: int, mask: Any) -> None:
        try:
            self._result.action_masks[i] = self._action_codecs[i].flatten_mask(mask)
        except spaces.SpaceError as e:
            raise self.error(str(e), i) from None

    def _number(self, i: int | None, reward: Any) -> float:
        """A reward as a number: None is 0, an array or tensor of one element is that."""
        if reward is None:
            return 0.0
        try:
            return one_number(reward)
        except ValueError as e:
            hint = self._hint_of_reward(reward)
            raise self.error(f"the reward is {e}, expected one number or None{hint and '; '}{hint}", i) from None

    def _hint_of_reward(self, reward: Any) -> str:
        """What may help where a reward is not one number."""
        if self._several or not getattr(reward, "shape", ()):
            return self._several
        return "make one number of a vector of objectives, as LinearizeReward of MOMAland does"

    def _reward(self, i: int, value: float) -> None:
        """Notes a reward that is not 0."""
        if value - value != 0.0:
            raise self.error(f"the reward is {value}, expected a finite number", i)
        if self._steps == 0:
            self.dropped_rewards += 1
            self.warn(
                "reward",
                f"agent {self._ids[i]} got the reward {value} from reset: it is left out, as all such ones",
            )
        elif self._done[i]:
            raise self.error(f"the reward {value} came after its end", i)
        else:
            self._result.rewards[i] += value

    def _end(self, i: int, truncated: bool) -> None:
        """The agent ends now; once. An agent that was never observed has no trajectory to end."""
        if self._done[i]:
            return
        self._done[i] = True
        if not self._seen[i]:
            return
        self._live -= 1
        self._agents_ended = True
        (self._result.truncated if truncated else self._result.terminated)[i] = True

    def _end_all(self, truncated: bool) -> None:
        self._over = True
        if truncated:
            self._result.all_truncated = True
        else:
            self._result.all_terminated = True

    def _info(self, i: int, info: Any) -> None:
        """An agent's info, which is not empty."""
        result = self._result
        if self.kept_infos is not None:
            self.kept_infos[i] = info
        if MASK_KEY in info and not self._views[i].has_mask:
            if self._probing:
                self._probed[MASK_KEY] = True
            elif self._has_mask[i]:
                self._set_mask(i, info[MASK_KEY])
            elif self._action_codecs[i].mask_size:
                raise self.error(
                    "infos hold an action_mask, but held none at the first reset: expected one with every observation",
                    i,
                )
        if AGENT_MASK_KEY in info:
            self._agent_mask(i, info[AGENT_MASK_KEY])
        if STATE_KEY in info:
            if self._probing:
                self._probed.setdefault(STATE_KEY, ("infos", []))[1].append(info[STATE_KEY])
            elif self._state_source == "infos":
                result.states[i] = self._state_of_info(info[STATE_KEY], i)
        if self._columns:
            self._info_values(i, info)

    def _info_values(self, i: int, info: Any) -> None:
        values = {}
        for column in self._columns:
            value = info.get(column)
            if value is None:
                continue
            try:
                values[column] = one_number(value)
            except ValueError as e:
                raise self.error(f"info {column} is {e}, expected a number", i) from None
        if values:
            self._result.infos[i] = {**(self._result.infos[i] or {}), **values}

    def _common_info(self, key: Hashable, info: Any) -> None:
        """An entry of infos that is no agent's: the state or agent masks of the whole environment; anything else is the
        environment's own affair.
        """
        if key == AGENT_MASK_KEY and isinstance(info, dict):
            for agent, active in info.items():
                if agent not in self._index:
                    raise self._unknown(agent, "the agent masks of infos")
                self._agent_mask(self._index[agent], active)
        elif key == STATE_KEY and not isinstance(info, dict):
            self._common_state(info)
        elif key in COMMON_KEYS and isinstance(info, dict):
            if info.get(STATE_KEY) is not None:
                self._common_state(info[STATE_KEY])
            if AGENT_MASK_KEY in info:
                self._common_info(AGENT_MASK_KEY, info[AGENT_MASK_KEY])

    def _common_state(self, state: Any) -> None:
        if self._probing:
            self._probed[STATE_KEY] = ("common", [state])
        elif self._state_source == "common":
            self._result.states[0] = self._state_of_info(state)

    def _agent_mask(self, i: int, active: Any) -> None:
        if self._probing:
            self._probed[AGENT_MASK_KEY] = True
        elif self._has_agent_mask:
            self._result.agent_active[i] = bool(active)
        elif not active:
            raise self.error("infos hold an agent_mask, but held none at the first reset", i)

    def _finish(self, result: StepResult) -> StepResult:
        """What can be said only when everything is in: masks that forbid everything, states."""
        if self._simple or self._probing:
            return result
        if self._any_mask:
            self._finish_masks(result)
        source = self._state_source
        if source == "none":
            return result
        if source == "environment":
            result.states[0] = self._last_state = self._state(result)
        elif source == "common":
            if result.states[0] is None:
                raise self.error(f"infos hold no state, but held one at the first reset ({NO_STATE})")
        else:
            for i, observation in enumerate(result.observations):
                if observation is not None and result.states[i] is None:
                    raise self.error(
                        f"the {'observation' if source == 'observation' else 'info'} holds no state, but held one at the first "
                        f"reset ({NO_STATE})",
                        i,
                    )
        return result

    def _state(self, result: StepResult) -> Any:
        """The environment's state. Nobody reads the one after an episode in which everybody left terminated, so it is not
        asked for then: the last one stands there. An agent that this step truncated is bootstrapped from it. The last one
        stands in, too, where state() fails once the agents of such an episode have gone.
        """
        if result.all_terminated and True not in result.truncated:
            return self._last_state
        try:
            return self._env.state()
        except Exception as e:
            if not self._over:
                raise
            self.warn(
                "state",
                f"state() fails after a truncation ({type(e).__name__}: {e}): the critic bootstraps from the last state before",
            )
            return self._last_state

    def _finish_masks(self, result: StepResult) -> None:
        for i, has in enumerate(self._has_mask):
            if not has or result.observations[i] is None:
                continue
            mask = result.action_masks[i]
            codec = self._action_codecs[i]
            if mask is None:  # from infos, which may say it only where something is forbidden
                result.action_masks[i] = np.ones(codec.mask_size, dtype=np.uint8)
                continue
            if self._over or self._done[i]:
                continue
            allowed = mask.tobytes()
            for begin, end in codec.mask_leaves:
                if 1 not in allowed[begin:end]:
                    raise self.error(
                        f"the action mask forbids everything in bytes {begin} to {end - 1}, expected a 1 there", i
                    )

    def _reset_env(self, seed: int) -> Any:
        return self._seeding.reset(self, self._env, seed)


def _info_columns(env: Any) -> list[str]:
    columns = getattr(env, "info_columns", None)
    if columns is None:
        metadata = getattr(env, "metadata", None)
        columns = metadata.get("info_columns", ()) if isinstance(metadata, dict) else ()
    return [str(column) for column in columns]
