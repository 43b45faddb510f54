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

Play on until RunEnded. With local_inference=True the same loop acts in this process.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

try:
    import grpc
    import numpy as np
    from google.protobuf.message import Message
except ImportError as error:
    raise ImportError(f"troupe.external needs numpy, grpcio and protobuf ({error}): python3 -m pip install numpy grpcio protobuf") from None

from troupe import query_calls
from troupe.env_adapters.spaces import SpaceCodec
from troupe.envs import spaces
from troupe.local_inference import Decided, LocalInference
from troupe.query_calls import QueryError
from troupe.scalar import one_number
from troupe.v1 import episodes_pb2 as messages

SOCKET = os.path.join("external", "episodes.sock")  # in a run's folder
_METHOD = "/troupe.v1.ExternalEpisodes/"
# After which a worker knows an episode no more.
_OVER = ("ABORTED", "NOT_FOUND", "UNAVAILABLE", "DEADLINE_EXCEEDED")
# What CANCELLED is, by nobody here: the call came to a server that is going down; or that, or one that has waited for its client.
_ENDING = "UNAVAILABLE", "the worker is ending"
_RUN_ENDED = "troupe-run", "ended"  # goes with the status
_UNREAD = "CANCELLED", "the worker is ending, or a piece of the policies was not read in time"


class EpisodeError(QueryError):
    """`code`: the status, as "INVALID_ARGUMENT" (what does not fit the spaces), "FAILED_PRECONDITION" (the episode is over, an agent is done),
    "ABORTED" (the worker gave the episode up: begin another), "UNAVAILABLE" (the worker is gone: begin another when it is back)."""


class RunEnded(EpisodeError):
    """The run has ended in order, so that no more episodes are wanted: no error, and nothing to try again. Raised by any call, also by one that waited
    for actions. `code` is "UNAVAILABLE", as of a worker that is gone, for clients that do not tell the two apart."""


class _Agent:
    """One of the world's agents, as the run wants it."""

    def __init__(self, agent: messages.WorldAgent) -> None:
        self.observation_space = spaces.parse(agent.observation_space)
        self.action_space = spaces.parse(agent.action_space)
        self.has_action_mask = agent.has_action_mask
        self._observation, self._action = SpaceCodec(self.observation_space.description()), SpaceCodec(self.action_space.description())
        self._discrete = np.array(self.action_space.words_are_discrete())

    def observe(self, observation: Any) -> Dict[str, Any]:
        row = np.empty(self._observation.flat_size, dtype=self._observation.flat_dtype)
        self._observation.flatten_into(observation, row)
        return {"image": row.tobytes()} if row.dtype == np.uint8 else {"observation": row.tolist()}

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
                 metadata: Iterable[Tuple[str, str]] = (), local_inference: bool = False, use_http_proxy: bool = False) -> None:
        """`address`: env.external.address (unix:PATH or HOST:PORT), or a run's folder. `timeout`: seconds for each call; it has to last for an update of
        the learner, since actions wait for that. `insecure_plaintext_network`, `credentials`, `metadata`, `use_http_proxy`: as
        troupe.query.PolicyClient.
        `local_inference`: get_actions acts in this process, with the newest weights of the run, and answers without waiting for the worker, which
        hears of the actions meanwhile. Policies need networks of Troupe's, discrete actions, and agents whose policy is always the same; TroupeError
        without libtroupe_acting.so."""
        if os.path.isdir(address):
            address = "unix:" + os.path.abspath(os.path.join(address, SOCKET))
        elif ":" not in address:
            raise ValueError(f"there is no folder {address!r}, expected a run's folder or its env.external.address: unix:PATH, HOST:PORT or [IPV6]:PORT")
        query_calls.check_address(address, insecure_plaintext_network, credentials)
        self._timeout = timeout
        self._metadata = tuple(metadata)
        self._channel = query_calls.open_channel(grpc, address, credentials, use_http_proxy)
        self.agents: Dict[str, _Agent] = {}
        self.log_probs: Dict[str, float] = {}
        self._local = LocalInference(self._get_policies, timeout) if local_inference else None

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> "ExternalEnv":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def start_episode(self, episode_id: str = "") -> str:
        """Begins an episode; its id is `episode_id`, or one that the worker draws. EpisodeError; with local_inference FAILED_PRECONDITION where this
        run's policies cannot act here."""
        fetches = 0 if self._local is None else self._act_here(self._local.refresh)
        episode, agents, weights = self._call("StartEpisode", messages.StartEpisodeRequest(episode_id=episode_id), messages.StartEpisodeReply,
                                              lambda reply: (reply.episode_id, _of_agents(reply.agents), reply.weights))
        if self._local is not None:
            self._local.hear(weights, fetches)
            self._local.begin(episode)
        if not self.agents:
            self.agents = {agent.agent_id: _Agent(agent) for agent in agents}
        return episode

    def get_actions(self, episode: str, observations: Mapping[str, Any], *, action_masks: Optional[Mapping[str, Any]] = None,
                    rewards: Optional[Mapping[str, float]] = None, terminateds: Sequence[str] = (), truncateds: Sequence[str] = (),
                    state: Any = None) -> Dict[str, Any]:
        """-> {agent id: action} of the agents that are observed and go on: one step of the episode. action_masks: flat, or as Gymnasium's `sample`
        takes them; rewards: since the agents' last actions, besides what log_returns said; terminateds, truncateds: ids of agents that leave, with their
        last observations where they have any; state: the global state, flattened. A call that fails with UNAVAILABLE or DEADLINE_EXCEEDED has lost the
        episode. EpisodeError; ValueError for what does not fit the spaces. With local_inference the error of a step is raised by the next call of the
        episode, which has done nothing else then; the episode is lost, and later calls of it are ABORTED."""
        if self._local is not None:
            return self._get_local_actions(self._local, episode, observations, action_masks or {}, rewards, terminateds, truncateds, state)
        steps = self._steps(observations, action_masks, rewards, terminateds, truncateds)
        request = messages.GetActionsRequest(episode_id=episode, agents=steps, state=_state(state))
        actions = self._call("GetActions", request, messages.GetActionsReply, lambda reply: _of_agents(reply.actions))
        self.log_probs = {action.agent_id: action.log_prob for action in actions}
        return {action.agent_id: self._agent(action.agent_id).action(action) for action in actions}

    def _get_local_actions(self, local: LocalInference, episode: str, observations: Mapping[str, Any], masks: Mapping[str, Any],
                           rewards: Optional[Mapping[str, float]], terminateds: Sequence[str], truncateds: Sequence[str], state: Any) -> Dict[str, Any]:
        self._settle(episode)
        # What does not fit is said before anybody acts.
        steps = self._steps(observations, masks, rewards, terminateds, truncateds)
        request = messages.LogActionsRequest(episode_id=episode, agents=steps, state=_state(state))
        seen = {agent: obs for agent, obs in observations.items() if agent not in terminateds and agent not in truncateds}
        decided: Decided = self._act_here(lambda: local.act(episode, seen, masks))
        logged = self._logged(decided.actions, decided.log_probs)
        for step in request.agents:
            if step.agent_id in logged:
                step.action.CopyFrom(logged[step.agent_id])
        request.weights = decided.weights
        call = self._channel.unary_unary(_METHOD + "LogActions")
        local.note_call(episode, decided, call.future(request.SerializeToString(), timeout=self._timeout, metadata=self._metadata))
        self.log_probs = decided.log_probs
        return decided.actions

    def log_actions(self, episode: str, observations: Mapping[str, Any], actions: Mapping[str, Any], log_probs: Mapping[str, float], *,
                    action_masks: Optional[Mapping[str, Any]] = None, rewards: Optional[Mapping[str, float]] = None, terminateds: Sequence[str] = (),
                    truncateds: Sequence[str] = (), state: Any = None) -> None:
        """The same for actions that were decided here: discrete ones, each with the log-probability of the policy that drew it."""
        _expect_within("a log-probability", log_probs, "an action", actions)
        self._settle(episode)
        steps = self._steps(observations, action_masks, rewards, terminateds, truncateds, self._logged(actions, log_probs))
        self._call_of(episode, "LogActions", messages.LogActionsRequest(episode_id=episode, agents=steps, state=_state(state)), messages.LogActionsReply)

    def log_returns(self, episode: str, rewards: Mapping[str, float]) -> None:
        """Adds to the agents' rewards since their last actions: of all of them, or of none. EpisodeError."""
        self._settle(episode)
        returns = [messages.AgentReturn(agent_id=agent, reward=_reward(agent, reward)) for agent, reward in rewards.items()]
        self._call_of(episode, "LogReturns", messages.LogReturnsRequest(episode_id=episode, returns=returns), messages.LogReturnsReply)

    def end_episode(self, episode: str, observations: Optional[Mapping[str, Any]] = None, *, truncated: bool = False,
                    rewards: Optional[Mapping[str, float]] = None, state: Any = None) -> None:
        """Ends the episode: by the task, or with `truncated` by a limit, where the value of the last observations counts. EpisodeError."""
        self._settle(episode)
        steps = self._steps(observations or {}, None, rewards, (), ())
        end = messages.EPISODE_END_TRUNCATED if truncated else messages.EPISODE_END_TERMINATED
        request = messages.EndEpisodeRequest(episode_id=episode, end=end, agents=steps, state=_state(state))
        self._call_of(episode, "EndEpisode", request, messages.EndEpisodeReply)
        if self._local is not None:
            self._local.forget(episode)

    def _agent(self, agent: str) -> _Agent:
        if agent not in self.agents:
            known = ", ".join(list(self.agents)[:8]) or "start_episode, which tells the agents"
            raise ValueError(f"there is no agent {agent!r}, expected {known}")
        return self.agents[agent]

    def _logged(self, actions: Mapping[str, Any], log_probs: Mapping[str, float]) -> Dict[str, messages.AgentAction]:
        return {agent: messages.AgentAction(agent_id=agent, discrete=self._agent(agent).words(action), log_prob=log_probs.get(agent))
                for agent, action in actions.items()}

    def _get_policies(self, weights: int, offset: int) -> messages.GetPoliciesReply:
        return self._call("GetPolicies", messages.GetPoliciesRequest(weights=weights, offset=offset), messages.GetPoliciesReply, lambda reply: reply,
                          _UNREAD)

    def _settle(self, episode: str) -> None:
        """Waits until the worker knows what was done here in the episode's last step. EpisodeError where it does not take it, and from then on: the
        world has taken the step, so that the worker would take what comes of it for the outcome of the step before. No call ends an episode without an
        outcome, so the worker keeps it until env.external.idle_timeout_s."""
        local = self._local
        if local is None:
            return
        unanswered = self._act_here(lambda: local.take_call(episode))
        if unanswered is None:
            return
        call, fetches = unanswered
        try:
            weights = self._read(call.result, messages.LogActionsReply, lambda reply: reply.weights)
        except EpisodeError:
            local.lose(episode)
            raise
        local.hear(weights, fetches)

    def _steps(self, observations: Mapping[str, Any], masks: Optional[Mapping[str, Any]], rewards: Optional[Mapping[str, float]],
               terminateds: Sequence[str], truncateds: Sequence[str],
               actions: Optional[Mapping[str, messages.AgentAction]] = None) -> List[messages.AgentStep]:
        masks, rewards, actions = masks or {}, rewards or {}, actions or {}
        _expect_within("an action mask", masks, "an observation", observations)
        _expect_within("an action", actions, "an observation", observations)
        steps = []
        for agent in dict.fromkeys((*observations, *rewards, *terminateds, *truncateds)):
            known = self._agent(agent)
            seen = known.observe(observations[agent]) if agent in observations else {}
            end = (messages.EPISODE_END_TERMINATED if agent in terminateds else
                   messages.EPISODE_END_TRUNCATED if agent in truncateds else messages.EPISODE_END_NONE)
            # Without one everything is allowed.
            mask = known.mask(masks.get(agent)) if (known.has_action_mask and seen) or agent in masks else b""
            steps.append(messages.AgentStep(agent_id=agent, **seen, action_mask=mask, reward=_reward(agent, rewards.get(agent, 0.0)), end=end,
                                            action=actions.get(agent)))
        return steps

    def _call_of(self, episode: str, name: str, request: Message, kind: Any) -> None:
        """One of an episode whose answer says nothing."""
        try:
            self._call(name, request, kind)
        except EpisodeError as error:
            if self._local is not None and error.code in _OVER:
                self._local.forget(episode)
            raise

    def _call(self, name: str, request: Message, kind: Any, read: Callable[[Any], Any] = lambda reply: None,
              cancelled: Tuple[str, str] = _ENDING) -> Any:
        call = self._channel.unary_unary(_METHOD + name)
        return self._read(lambda: call(request.SerializeToString(), timeout=self._timeout, metadata=self._metadata), kind, read, cancelled)

    @staticmethod
    def _act_here(decide: Callable[[], Any]) -> Any:
        try:
            return decide()
        except RunEnded:
            raise
        except QueryError as error:
            raise EpisodeError(error.code, str(error).partition(": ")[2]) from None

    @staticmethod
    def _read(answer: Callable[[], bytes], kind: Any, read: Callable[[Any], Any], cancelled: Tuple[str, str] = _ENDING) -> Any:
        try:
            reply = answer()
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.CANCELLED:
                raise EpisodeError(*cancelled) from None
            kind = RunEnded if _RUN_ENDED in (error.trailing_metadata() or ()) else EpisodeError
            raise kind(error.code().name, error.details()) from None
        try:
            return read(query_calls.parse(kind, reply))
        except QueryError as error:
            raise EpisodeError(error.code, str(error).partition(": ")[2]) from None


def _expect_within(what: str, given: Mapping[str, Any], beside: str, agents: Mapping[str, Any]) -> None:
    """`given` is of agents among `agents`, which have `beside`: of others it would be lost. ValueError."""
    for agent in given:
        if agent not in agents:
            raise ValueError(f"got {what} of agent {agent!r}, expected it of agents with {beside} alone: {', '.join(list(agents)[:8]) or 'none'}")


def _reward(agent: str, reward: Any) -> float:
    try:
        return one_number(reward)
    except ValueError as error:
        raise ValueError(f"agent {agent}: the reward is {error}, expected one number") from None


def _of_agents(parts: Any) -> Any:
    return query_calls.bounded(parts, query_calls.MAX_AGENTS, "agents")


def _state(state: Any) -> Any:
    return () if state is None else np.asarray(state, dtype=np.float32).reshape(-1).tolist()
