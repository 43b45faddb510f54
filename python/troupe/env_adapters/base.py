"""What every adapter gives: an environment's agents and spaces, and the result of a reset or step by agent index."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Hashable, Protocol


class EnvAdapterError(Exception):
    """An environment that cannot be used, or did what an environment must not. The message names environment, agent and
    step.
    """


def close_after_error(name: str, env: Any) -> None:
    """Calls close(), where there is one, of an environment that an error made useless. That error is the one to see: what
    close() raises is a warning.
    """
    close = getattr(env, "close", None)
    if not callable(close):
        return
    try:
        close()
    except (Exception, SystemExit) as error:
        warnings.warn(f"environment {name}: close() failed after it: {type(error).__name__}: {error}", stacklevel=2)


@dataclass(frozen=True)
class AgentDescription:
    """An agent that may take part. Its index is its place in EnvDescription.agents."""

    id: str  # str(key)
    key: Hashable  # as the environment names it, or the pattern of its pool
    observation_space: dict  # spaces.describe(): what the actor sees, without action mask and state
    action_space: dict
    has_action_mask: bool


@dataclass(frozen=True)
class EnvDescription:
    """What an environment promises; fixed for its life."""

    recognized_as: str  # its form and how many agents it has, in words for people
    agents: list[AgentDescription]
    state_kind: str  # "none", "per_env" or "per_agent"
    state_space: dict | None
    has_agent_mask: bool
    info_columns: list[str]
    max_episode_steps: int  # 0: not known


class StepResult:
    """What a reset or step brought, by agent index. Used again by the next call: read it before.

    observations: the value in the space's own form, None when the agent is not observed now. Who is observed and has
    not ended acts next.
    action_masks: one-dimensional uint8, 1 allowed; None where there is no observation or no mask.
    rewards: 0.0 when there is none; also for agents that are not observed now, then for their last action.
    terminated, truncated: true only in the call in which the agent ends. all_terminated, all_truncated: the episode
    ends for everybody left.
    agent_active: False keeps the agent's next action out of losses.
    states: per_env: [state]; per_agent: by agent; none: [].
    infos: the numbers of EnvDescription.info_columns by name, or None.
    """

    __slots__ = (
        "observations",
        "action_masks",
        "rewards",
        "terminated",
        "truncated",
        "all_terminated",
        "all_truncated",
        "agent_active",
        "states",
        "infos",
    )

    def __init__(self, agents: int, state_kind: str = "none"):
        self.observations: list[Any] = [None] * agents
        self.action_masks: list[Any] = [None] * agents
        self.rewards: list[float] = [0.0] * agents
        self.terminated: list[bool] = [False] * agents
        self.truncated: list[bool] = [False] * agents
        self.all_terminated = False
        self.all_truncated = False
        self.agent_active: list[bool] = [True] * agents
        self.states: list[Any] = [None] * {"none": 0, "per_env": 1, "per_agent": agents}[state_kind]
        self.infos: list[dict[str, float] | None] = [None] * agents


class EnvAdapter(Protocol):
    """An environment of any kind. Not thread-safe. After an error only close() may follow."""

    description: EnvDescription
    env: Any  # the environment itself
    kept_infos: dict[int, Any] | None  # by agent index, as the last call gave them; None unless keep_infos() was called

    def keep_infos(self) -> None:
        """Infos are kept from now on."""

    def keys(self) -> list:
        """The agents as the environment names them now, by index: of a pool those who have its slots."""

    def declared_space(self, i: int) -> Any:
        """The agent's observation space as the environment has it."""

    def reset(self, seed: int) -> StepResult:
        """Starts an episode, also in mid-episode. 0 <= seed < 2**32."""

    def step(self, actions: list) -> StepResult:
        """`actions` by agent index: the action in its space's own form for every agent that is ready, None for the
        others. In two halves, send and receive, for callers that send to several environments first.
        """

    def send(self, actions: list) -> None:
        """The environment's own step. The result of the call before stays as it is."""

    def receive(self) -> StepResult:
        """What it brought, for which the environment may be asked (its state, an AEC environment's last). Once after
        each send, before anything else.
        """

    def picture(self) -> Any:
        """What the environment's render() answers of its state: a numpy array of uint8, [height, width, 3]. Raises
        EnvAdapterError when there is none, or it answers something else.
        """

    def close(self) -> None:
        """The environment's own close(), once however often this is called."""

    def error(self, what: str, agent_index: int | None = None) -> EnvAdapterError:
        """An error to raise, with environment, agent and step before `what`."""
