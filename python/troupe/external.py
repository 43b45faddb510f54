"""Trains a world of one's own: a simulator, a game server or a machine plays episodes and asks a run for its agents' actions (docs/external.md).

    import troupe

    with troupe.ExternalEnv("runs/my_run") as env:  # where `troupe train` has env.external
        episode = env.start_episode()
        observation = world.reset()
        while True:
            action = env.get_actions(episode, {"cart": observation})["cart"]
            observation, reward, terminated, truncated = world.step(action)
            env.log_returns(episode, {"cart": reward})
            if terminated or truncated:
                break
        env.end_episode(episode, {"cart": observation}, truncated=truncated)
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

try:
    import grpc
    import numpy as np
except ImportError as error:
    raise ImportError(f"troupe.external needs numpy and grpcio ({error}): python3 -m pip install numpy grpcio") from None

from troupe import episode_messages as messages
from troupe import query_calls
from troupe.env_adapters.spaces import SpaceCodec
from troupe.envs import spaces
from troupe.query_calls import QueryError

SOCKET = os.path.join("external", "episodes.sock")  # in a run's folder
_METHOD = "/troupe.v1.ExternalEpisodes/"


class EpisodeError(QueryError):
    """`code`: the status, as "INVALID_ARGUMENT" (what does not fit the spaces), "FAILED_PRECONDITION" (the episode is over, an agent is done),
    "ABORTED" (the worker gave the episode up: begin another), "UNAVAILABLE" (the worker is gone: begin another when it is back)."""


class _Agent:
    """One of the world's agents, as the run wants it."""

    def __init__(self, agent: messages.WorldAgent) -> None:
        self.observation_space = spaces.parse(agent.observation_space)
        self.action_space = spaces.parse(agent.action_space)
        self.has_action_mask = agent.has_action_mask
        self._observation, self._action = SpaceCodec(self.observation_space.description()), SpaceCodec(self.action_space.description())
        self._discrete = np.array(self.action_space.words_are_discrete())

    def observe(self, observation: Any) -> Dict[str, bytes]:
        row = np.empty(self._observation.flat_size, dtype=self._observation.flat_dtype)
        self._observation.flatten_into(observation, row)
        return {"image" if row.dtype == np.uint8 else "observation": row.tobytes()}

    def mask(self, mask: Any) -> bytes:
        return self._action.flatten_mask(mask).tobytes()

    def action(self, action: messages.AgentAction) -> Any:
        words = np.empty(self._discrete.size, dtype=np.int32)
        if len(action.discrete) != self._discrete.sum() or len(action.continuous) != (~self._discrete).sum():
            raise ValueError(f"the action of {action.agent_id} has not as many words as its space")
        words[self._discrete] = action.discrete
        words[~self._discrete] = np.array(action.continuous, dtype=np.float32).view(np.int32)
        return self._action.unflatten_action(words)

    def words(self, action: Any) -> List[int]:
        """Of a discrete action."""
        words = np.zeros(self._discrete.size, dtype=np.int32)
        self.action_space.encode(action, words, words.view(np.float32))
        return words[self._discrete].tolist()


class ExternalEnv:
    """A connection to where a run's clients come, for any number of episodes. Thread-safe but for `log_probs`; one call of an episode at a time.

    agents: {agent id: its observation_space and action_space}, known from the first start_episode on. Observations and actions are in the forms of
    these. log_probs: {agent id: log-probability} of the last get_actions' actions."""

    def __init__(self, address: str, timeout: float = 60.0, insecure_plaintext_network: bool = False, credentials: Any = None,
                 metadata: Iterable[Tuple[str, str]] = ()) -> None:
        """`address`: env.external.address (unix:PATH or HOST:PORT), or a run's folder. `timeout`: seconds for each call; it has to last for an update of
        the learner, since actions wait for that. `insecure_plaintext_network`, `credentials`, `metadata`: as troupe.query.PolicyClient."""
        if os.path.isdir(address):
            address = "unix:" + os.path.abspath(os.path.join(address, SOCKET))
        query_calls.check_address(address, insecure_plaintext_network, credentials)
        self._timeout = timeout
        self._metadata = tuple(metadata)
        self._channel = query_calls.open_channel(grpc, address, credentials)
        self.agents: Dict[str, _Agent] = {}
        self.log_probs: Dict[str, float] = {}

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> "ExternalEnv":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def start_episode(self, episode_id: str = "") -> str:
        """Begins an episode; its id is `episode_id`, or one that the worker draws. EpisodeError."""
        episode, agents, _ = self._call("StartEpisode", messages.encode_start(episode_id), messages.decode_start)
        if not self.agents:
            self.agents = {agent.agent_id: _Agent(agent) for agent in agents}
        return episode

    def get_actions(self, episode: str, observations: Mapping[str, Any], *, action_masks: Optional[Mapping[str, Any]] = None,
                    rewards: Optional[Mapping[str, float]] = None, terminateds: Sequence[str] = (), truncateds: Sequence[str] = (),
                    state: Any = None) -> Dict[str, Any]:
        """-> {agent id: action} of the agents that are observed and go on: one step of the episode. action_masks: flat, or as Gymnasium's `sample`
        takes them; rewards: since the agents' last actions, besides what log_returns said; terminateds, truncateds: ids of agents that leave, with their
        last observations where they have any; state: the global state, flattened. A call that fails with UNAVAILABLE or DEADLINE_EXCEEDED has lost the
        episode. EpisodeError; ValueError for what does not fit the spaces."""
        steps = self._steps(observations, action_masks, rewards, terminateds, truncateds)
        request = messages.encode_get_actions(episode, steps, _state(state))
        actions = self._call("GetActions", request, lambda reply: {action.agent_id: action for action in messages.decode_actions(reply)})
        self.log_probs = {agent: action.log_prob for agent, action in actions.items()}
        return {agent: self._agent(agent).action(action) for agent, action in actions.items()}

    def log_actions(self, episode: str, observations: Mapping[str, Any], actions: Mapping[str, Any], log_probs: Mapping[str, float], *,
                    action_masks: Optional[Mapping[str, Any]] = None, rewards: Optional[Mapping[str, float]] = None, terminateds: Sequence[str] = (),
                    truncateds: Sequence[str] = (), state: Any = None) -> None:
        """The same for actions that were decided here: discrete ones, each with the log-probability of the policy that drew it."""
        logged = {agent: messages.encode_action(agent, self._agent(agent).words(action), log_probs.get(agent)) for agent, action in actions.items()}
        steps = self._steps(observations, action_masks, rewards, terminateds, truncateds, logged)
        self._call("LogActions", messages.encode_get_actions(episode, steps, _state(state)), bytes)

    def log_returns(self, episode: str, rewards: Mapping[str, float]) -> None:
        """Adds to the agents' rewards since their last actions: of all of them, or of none. EpisodeError."""
        self._call("LogReturns", messages.encode_log_returns(episode, rewards), bytes)

    def end_episode(self, episode: str, observations: Optional[Mapping[str, Any]] = None, *, truncated: bool = False,
                    rewards: Optional[Mapping[str, float]] = None, state: Any = None) -> None:
        """Ends the episode: by the task, or with `truncated` by a limit, where the value of the last observations counts. EpisodeError."""
        steps = self._steps(observations or {}, None, rewards, (), ())
        end = messages.TRUNCATED if truncated else messages.TERMINATED
        self._call("EndEpisode", messages.encode_end(episode, end, steps, _state(state)), bytes)

    def _agent(self, agent: str) -> _Agent:
        if agent not in self.agents:
            known = ", ".join(list(self.agents)[:8]) or "start_episode, which tells the agents"
            raise ValueError(f"there is no agent {agent!r}, expected {known}")
        return self.agents[agent]

    def _steps(self, observations: Mapping[str, Any], masks: Optional[Mapping[str, Any]], rewards: Optional[Mapping[str, float]],
               terminateds: Sequence[str], truncateds: Sequence[str], actions: Optional[Mapping[str, bytes]] = None) -> List[bytes]:
        masks, rewards, actions = masks or {}, rewards or {}, actions or {}
        steps = []
        for agent in dict.fromkeys((*observations, *rewards, *terminateds, *truncateds)):
            known = self._agent(agent)
            seen = known.observe(observations[agent]) if agent in observations else {}
            end = messages.TERMINATED if agent in terminateds else messages.TRUNCATED if agent in truncateds else messages.NONE
            # Without one everything is allowed.
            mask = known.mask(masks.get(agent)) if (known.has_action_mask and seen) or agent in masks else b""
            steps.append(messages.encode_step(agent, **seen, action_mask=mask, reward=float(rewards.get(agent, 0.0)), end=end, action=actions.get(agent)))
        return steps

    def _call(self, name: str, request: bytes, read: Any) -> Any:
        try:
            reply = self._channel.unary_unary(_METHOD + name)(request, timeout=self._timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.CANCELLED:  # by nobody here: the call came to a server that is going down
                raise EpisodeError("UNAVAILABLE", "the worker is ending") from None
            raise EpisodeError(error.code().name, error.details()) from None
        try:
            return read(reply)
        except (TypeError, ValueError) as error:
            raise EpisodeError("INTERNAL", str(error)) from None


def _state(state: Any) -> bytes:
    return b"" if state is None else np.asarray(state, dtype="<f4").reshape(-1).tobytes()
