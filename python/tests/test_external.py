"""troupe.external: what it sends and reads, and its forms of observations and actions."""

import ctypes
import os
import stat
import sys
import tempfile
import types
import unittest
from concurrent import futures
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import grpc  # noqa: E402
import numpy  # noqa: E402
from google.protobuf import message  # noqa: E402

from troupe import TroupeError, external, local_inference  # noqa: E402
from troupe.v1 import episodes_pb2 as messages  # noqa: E402

AGENT = messages.WorldAgent(agent_id="a", observation_space="Box(-1, 1, [2])", has_action_mask=True,
                            action_space="Tuple(Discrete(3, start=5), Box(-1, 1, [1]))")
START_REPLY = messages.StartEpisodeReply(episode_id="e1", agents=[AGENT], state_size=2)
ACTION = messages.AgentAction(agent_id="a", discrete=[6], continuous=[0.5], log_prob=-0.25)


class Failed(grpc.RpcError):
    def __init__(self, code, details):
        super().__init__()
        self.code, self.details, self.trailing_metadata = lambda: code, lambda: details, lambda: ()


def serve(env, answers):
    """Puts a server in the place of the connection. -> (the requests that come, {name: answer, its bytes, an error to be raised, or what gives one})"""
    calls = []

    def method(path):
        def call(request, timeout, metadata):
            name = path.rpartition("/")[2]
            calls.append(getattr(messages, name + "Request").FromString(request))
            answer = answers.get(name, b"")
            answer = answer(calls[-1]) if callable(answer) and not isinstance(answer, message.Message) else answer
            if isinstance(answer, Exception):
                raise answer
            return answer.SerializeToString() if isinstance(answer, message.Message) else answer

        def future(request, **how):
            try:
                answer = call(request, **how)
            except Failed as error:
                return types.SimpleNamespace(result=mock.Mock(side_effect=error))
            return types.SimpleNamespace(result=lambda: answer)
        call.future = future
        return call
    env._channel.close()
    env._channel = types.SimpleNamespace(unary_unary=method, close=lambda: None)
    return calls, answers


class FormsTest(unittest.TestCase):
    def setUp(self):
        self.env = external.ExternalEnv("unix:/nobody.sock")
        self.addCleanup(self.env.close)
        self.calls, self.answers = serve(self.env, {"StartEpisode": START_REPLY, "GetActions": messages.GetActionsReply(actions=[ACTION])})

    def test_actions_have_their_spaces_form(self):
        episode = self.env.start_episode()
        actions = self.env.get_actions(episode, {"a": numpy.array([0.5, -1])}, action_masks={"a": [1, 1, 0]}, state=[1, 2])
        self.assertEqual(list(actions), ["a"])
        self.assertEqual(int(actions["a"][0]), 6)
        self.assertEqual(actions["a"][1].tolist(), [0.5])
        self.assertEqual(self.env.log_probs, {"a": -0.25})
        step = messages.AgentStep(agent_id="a", observation=[0.5, -1], action_mask=b"\1\1\0")
        self.assertEqual(self.calls[-1], messages.GetActionsRequest(episode_id="e1", agents=[step], state=[1, 2]))

    def test_agents_that_leave_come_with_an_end(self):
        episode = self.env.start_episode()
        for truncated, end in ((True, messages.EPISODE_END_TRUNCATED), (False, messages.EPISODE_END_TERMINATED)):
            self.env.end_episode(episode, rewards={"a": 3}, truncated=truncated)
            self.assertEqual(self.calls[-1], messages.EndEpisodeRequest(episode_id="e1", end=end, agents=[messages.AgentStep(agent_id="a", reward=3)]))
        self.answers["GetActions"] = b""
        for leaving, end in ((dict(terminateds=["a"]), messages.EPISODE_END_TERMINATED), (dict(truncateds=["a"]), messages.EPISODE_END_TRUNCATED)):
            self.assertEqual(self.env.get_actions(episode, {"a": [0, 0]}, **leaving), {})
            step = messages.AgentStep(agent_id="a", observation=[0, 0], action_mask=b"\1\1\1", end=end)
            self.assertEqual(list(self.calls[-1].agents), [step])
            self.env.get_actions(episode, {}, rewards={"a": 2}, **leaving)
            self.assertEqual(list(self.calls[-1].agents), [messages.AgentStep(agent_id="a", reward=2, end=end)], "without a last observation")

    def test_rewards_may_be_arrays_of_one_element(self):
        episode = self.env.start_episode()
        self.answers["GetActions"] = b""
        self.env.get_actions(episode, {}, rewards={"a": numpy.array([2.0])}, terminateds=["a"])
        self.assertEqual(self.calls[-1].agents[0].reward, 2)
        self.env.log_returns(episode, {"a": numpy.array([[3]])})
        self.assertEqual(self.calls[-1].returns[0].reward, 3)
        for give in (lambda reward: self.env.log_returns(episode, {"a": reward}), lambda reward: self.env.get_actions(episode, {}, rewards={"a": reward})):
            for reward, words in ((numpy.zeros(2), r"an array of shape \(2,\)"), (None, "None"), ("much", "'much'")):
                self.assertRaisesRegex(ValueError, f"^agent a: the reward is {words}, expected one number$", give, reward)

    def test_actions_of_ones_own_bring_their_log_probability_where_there_is_one(self):
        self.answers["StartEpisode"] = messages.StartEpisodeReply(episode_id="e1", agents=[messages.WorldAgent(
            agent_id="a", observation_space="Box(-1, 1, [1])", action_space="Discrete(3, start=5)")])
        episode = self.env.start_episode()
        for log_probs in ({"a": -0.5}, {}):
            self.env.log_actions(episode, {"a": [0.5]}, {"a": 6}, log_probs)
            action = messages.AgentAction(agent_id="a", discrete=[6], log_prob=log_probs.get("a"))
            self.assertEqual(list(self.calls[-1].agents), [messages.AgentStep(agent_id="a", observation=[0.5], action=action)])
        self.assertFalse(self.calls[-1].agents[0].action.HasField("log_prob"))
        self.env.log_returns(episode, {"a": 1, "b": -0.5})
        self.assertEqual(self.calls[-1].returns[1], messages.AgentReturn(agent_id="b", reward=-0.5))

    def test_what_is_no_answer_is_an_error(self):
        for name, answer in (("StartEpisode", b"\x0a\x05ab"), ("StartEpisode", b"\x12\x00" * 1025)):
            self.answers[name] = answer
            with self.assertRaises(external.EpisodeError) as caught:
                self.env.start_episode()
            self.assertEqual(caught.exception.code, "INTERNAL")
        self.assertIn("1025 agents, expected at most 1024", str(caught.exception))

    def test_what_does_not_fit_is_said_here(self):
        episode = self.env.start_episode()
        with self.assertRaisesRegex(ValueError, "there is no agent 'b', expected a"):
            self.env.get_actions(episode, {"b": [0, 0]})
        with self.assertRaises(ValueError):
            self.env.get_actions(episode, {"a": [0, 0, 0]})
        with self.assertRaisesRegex(ValueError, "on another machine"):
            external.ExternalEnv("10.0.0.7:1234")

    def test_what_is_said_of_an_agent_that_is_not_observed_is_an_error(self):
        agents = [messages.WorldAgent(agent_id=agent, observation_space="Box(-1, 1, [1])", action_space="Discrete(3)", has_action_mask=True) for agent in "ab"]
        self.answers["StartEpisode"] = messages.StartEpisodeReply(episode_id="e1", agents=agents).SerializeToString()
        episode = self.env.start_episode()
        asked, seen, mask = len(self.calls), {"a": [0]}, [1, 1, 0]
        for what, beside, call in (
                ("an action mask", "an observation", lambda: self.env.get_actions(episode, seen, action_masks={"a": mask, "b": mask})),
                ("an action mask", "an observation", lambda: self.env.get_actions(episode, seen, action_masks={"b": mask}, terminateds=["b"])),
                ("an action mask", "an observation", lambda: self.env.log_actions(episode, seen, {"a": 1}, {"a": -1}, action_masks={"b": mask})),
                ("an action", "an observation", lambda: self.env.log_actions(episode, seen, {"a": 1, "b": 2}, {"a": -1}, rewards={"b": 1})),
                ("a log-probability", "an action", lambda: self.env.log_actions(episode, seen, {"a": 1}, {"a": -1, "b": -1}))):
            with self.assertRaisesRegex(ValueError, f"^got {what} of agent 'b', expected it of agents with {beside} alone: a$"):
                call()
        self.assertEqual(len(self.calls), asked, "nothing was sent")

    def test_a_run_is_found_by_its_folder(self):
        start = grpc.method_handlers_generic_handler("troupe.v1.ExternalEpisodes", {
            "StartEpisode": grpc.unary_unary_rpc_method_handler(lambda request, context: START_REPLY.SerializeToString())})
        with tempfile.TemporaryDirectory() as run:
            os.mkdir(os.path.join(run, "external"))
            server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[start])
            self.addCleanup(server.stop, None)
            server.add_insecure_port(f"unix:{run}/external/episodes.sock")
            server.start()
            for folder in (run, os.path.relpath(run)):
                with external.ExternalEnv(folder, timeout=30) as env:
                    self.assertEqual((env.start_episode(), list(env.agents)), ("e1", ["a"]))
            server.stop(None).wait()
            with external.ExternalEnv(run, timeout=5) as env, self.assertRaises(external.EpisodeError) as caught:
                env.start_episode()
            self.assertEqual(caught.exception.code, "UNAVAILABLE", "nobody is there")

    def test_the_end_of_the_run_is_told_from_that_of_a_worker(self):
        ended = []

        def refuse(request, context):
            if ended:
                context.set_trailing_metadata((("troupe-run", "ended"),))
            context.abort(grpc.StatusCode.UNAVAILABLE, "the run has ended")
        methods = {name: grpc.unary_unary_rpc_method_handler(refuse) for name in ("StartEpisode", "GetPolicies")}
        server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[grpc.method_handlers_generic_handler("troupe.v1.ExternalEpisodes", methods)])
        self.addCleanup(server.stop, None)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        with external.ExternalEnv(address, timeout=30) as env:
            with self.assertRaises(external.EpisodeError) as caught:
                env.start_episode()
            self.assertNotIsInstance(caught.exception, external.RunEnded)
            ended.append(True)
            with self.assertRaises(external.RunEnded) as caught:
                env.start_episode()
            self.assertEqual((caught.exception.code, str(caught.exception)), ("UNAVAILABLE", "UNAVAILABLE: the run has ended"))
            # A client that acts by itself asks for policies first.
            with self.assertRaises(external.RunEnded):
                env._act_here(lambda: env._get_policies(0, 0))

    def test_a_mistyped_run_is_not_taken_for_another_machine(self):
        with self.assertRaisesRegex(ValueError, "^there is no folder 'runs/my_rum', expected a run's folder or its env.external.address"):
            external.ExternalEnv("runs/my_rum")
        with self.assertRaisesRegex(ValueError, "on another machine"):
            external.ExternalEnv("127.evil.example:80")

    def test_the_proxy_of_the_environment_is_ignored_unless_asked_for(self):
        start = grpc.method_handlers_generic_handler("troupe.v1.ExternalEpisodes", {
            "StartEpisode": grpc.unary_unary_rpc_method_handler(lambda request, context: START_REPLY.SerializeToString())})
        server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[start])
        self.addCleanup(server.stop, None)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        with mock.patch.dict(os.environ, {"http_proxy": "http://127.0.0.1:9", "grpc_proxy": "http://127.0.0.1:9"}):
            os.environ.pop("no_proxy", None)
            os.environ.pop("no_grpc_proxy", None)
            with external.ExternalEnv(address, timeout=30) as env:
                self.assertEqual(env.start_episode(), "e1")
            with external.ExternalEnv(address, timeout=30, use_http_proxy=True) as env, self.assertRaises(external.EpisodeError) as caught:
                env.start_episode()
            self.assertEqual(caught.exception.code, "UNAVAILABLE", "nobody is at the proxy's port")


class FakePolicies:
    """In the place of local_inference.LocalPolicies: plays 1 where the mask has it, else 0, with what it remembers counted."""

    made = []

    def __init__(self, number, files):
        self.number, self.files, self.seen = number, files, []
        FakePolicies.made.append(self)

    def act(self, agent, observation, mask, state):
        if len(observation) != 1:
            raise ValueError("the observation does not fit")
        self.seen.append((agent, list(observation), mask, None if state is None else state.tolist()))
        return 1, -0.5 * self.number, numpy.zeros(1) if state is None else state + 1


def bytes_of(path):
    with open(path, "rb") as file:
        return file.read()


def policies_reply(number, manifest=b"{}", tensors=b"abcd"):
    return messages.GetPoliciesReply(weights=number, data=manifest + tensors, files=[
        messages.PolicyFile(name="manifest.json", size=len(manifest)), messages.PolicyFile(name="policies.safetensors", size=len(tensors))])


class LocalInferenceTest(unittest.TestCase):
    def setUp(self):
        for replaced in (mock.patch.object(local_inference.acting, "load"), mock.patch.object(local_inference, "LocalPolicies", FakePolicies),
                         mock.patch.object(local_inference.LocalInference, "_LOOK_S", 0.001)):
            replaced.start()
            self.addCleanup(replaced.stop)
        FakePolicies.made = []
        self.env = external.ExternalEnv("unix:/nobody.sock", timeout=5, local_inference=True)
        self.addCleanup(self.env.close)
        agents = [messages.WorldAgent(agent_id=agent, observation_space="Box(-1, 1, [1])", action_space="Discrete(2)", has_action_mask=agent == "a")
                  for agent in ("a", "b")]
        self.calls, self.answers = serve(self.env, {
            "StartEpisode": lambda request: messages.StartEpisodeReply(episode_id=request.episode_id or "e1", agents=agents, weights=7),
            "GetPolicies": policies_reply(7), "LogActions": messages.LogActionsReply(weights=7)})

    def names(self):
        return [type(call).__name__.replace("Request", "") for call in self.calls]

    def test_it_acts_here_and_reports_what_it_did(self):
        episode = self.env.start_episode()
        actions = self.env.get_actions(episode, {"a": [0.5], "b": [1]}, action_masks={"a": [1, 1]}, rewards={"b": 2})
        self.assertEqual(actions, {"a": 1, "b": 1})
        self.assertEqual(self.env.log_probs, {"a": -3.5, "b": -3.5})
        action = [messages.AgentAction(agent_id=agent, discrete=[1], log_prob=-3.5) for agent in ("a", "b")]
        self.assertEqual(self.calls[-1], messages.LogActionsRequest(episode_id="e1", weights=7, agents=[
            messages.AgentStep(agent_id="a", observation=[0.5], action_mask=b"\1\1", action=action[0]),
            messages.AgentStep(agent_id="b", observation=[1], reward=2, action=action[1])]))
        self.assertEqual(self.names(), ["GetPolicies", "StartEpisode", "LogActions"])
        self.assertEqual(FakePolicies.made[0].files, {"manifest.json": b"{}", "policies.safetensors": b"abcd"})

    def test_what_policies_remember_is_of_an_agent_and_its_episode(self):
        first, second = self.env.start_episode("e1"), self.env.start_episode("e2")
        for episode, agent in ((first, "a"), (first, "a"), (second, "a"), (first, "b"), (first, "a")):
            self.env.get_actions(episode, {agent: [0]})
        self.assertEqual([state for _, _, _, state in FakePolicies.made[0].seen], [None, [0], None, None, [1]])
        self.env.end_episode(first)
        with self.assertRaisesRegex(ValueError, "episode 'e1' was not begun by start_episode of this ExternalEnv, or is over"):
            self.env.get_actions(first, {"a": [0]})
        self.env.start_episode("e1")
        self.env.get_actions("e1", {"a": [0]})
        self.assertIsNone(FakePolicies.made[0].seen[-1][-1])

    def test_newer_weights_are_fetched_once_the_worker_says_so(self):
        episode = self.env.start_episode()
        self.answers["LogActions"] = messages.LogActionsReply(weights=8)
        self.answers["GetPolicies"] = policies_reply(9)  # another update came meanwhile
        self.env.get_actions(episode, {"a": [0]})
        self.assertEqual(self.names().count("GetPolicies"), 1, "the answer is read with the next call")
        self.answers["LogActions"] = messages.LogActionsReply(weights=9)
        self.env.get_actions(episode, {"a": [0]})
        self.env.get_actions(episode, {"a": [0]})
        self.assertEqual(self.names().count("GetPolicies"), 2)
        self.assertEqual([call.weights for call in self.calls if isinstance(call, messages.LogActionsRequest)], [7, 9, 9])
        self.assertEqual(FakePolicies.made[1].seen[0][-1], [0], "what was remembered stays")

    def test_an_answer_that_comes_late_fetches_nothing(self):
        self.env.start_episode("e1")
        self.env.start_episode("e2")
        self.answers["LogActions"] = lambda request: messages.LogActionsReply(weights=8 if request.episode_id == "e1" else 7)  # e2's came first
        for episode in ("e1", "e2"):
            self.env.get_actions(episode, {"a": [0]})
        self.answers["LogActions"] = messages.LogActionsReply(weights=8)
        self.answers["GetPolicies"] = policies_reply(8)
        for episode in ("e1", "e2", "e1"):
            self.env.get_actions(episode, {"a": [0]})
        self.assertEqual(self.names().count("GetPolicies"), 2)
        self.assertEqual([call.weights for call in self.calls if isinstance(call, messages.LogActionsRequest)], [7, 7, 8, 8, 8])

    def test_the_first_weights_are_awaited_and_later_ones_are_not(self):
        replies = [messages.GetPoliciesReply(), Failed(grpc.StatusCode.RESOURCE_EXHAUSTED, "ask again"),
                   Failed(grpc.StatusCode.CANCELLED, "call is cancelled"), policies_reply(7)]
        self.answers["GetPolicies"] = lambda request: replies.pop(0)
        episode = self.env.start_episode()
        self.assertEqual(replies, [])
        replies[:] = [messages.GetPoliciesReply(), messages.GetPoliciesReply()]
        self.answers["LogActions"] = messages.LogActionsReply(weights=8)
        for _ in range(3):
            self.env.get_actions(episode, {"a": [0]})
        self.assertEqual([call.weights for call in self.calls if isinstance(call, messages.LogActionsRequest)], [7, 7, 7])

    def test_policies_that_do_not_come_leave_those_before(self):
        episode = self.env.start_episode()
        self.answers["LogActions"] = messages.LogActionsReply(weights=8)
        self.env.get_actions(episode, {"a": [0]})
        for code in ("CANCELLED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "OUT_OF_RANGE", "ABORTED", "RESOURCE_EXHAUSTED"):
            self.answers["GetPolicies"] = Failed(grpc.StatusCode[code], "not now")
            self.env.get_actions(episode, {"a": [0]})
            self.assertEqual((self.names()[-2:], self.calls[-1].weights), (["GetPolicies", "LogActions"], 7), code)
        for code in ("FAILED_PRECONDITION", "INTERNAL"):
            self.answers["GetPolicies"] = Failed(grpc.StatusCode[code], "who plays agent a is drawn")
            with self.assertRaisesRegex(external.EpisodeError, f"^{code}: who plays agent a is drawn$"):
                self.env.get_actions(episode, {"a": [0]})

    def test_policies_that_never_come_are_said_with_the_reason(self):
        for answer, said in ((messages.GetPoliciesReply(), "the worker has none yet"), (Failed(grpc.StatusCode.ABORTED, "not kept"), "ABORTED: not kept"),
                             (Failed(grpc.StatusCode.CANCELLED, "x"), "CANCELLED: the worker is ending, or a piece of the policies was not read in time")):
            self.answers["GetPolicies"] = answer
            self.env._local._timeout = 0.01
            with self.assertRaisesRegex(external.EpisodeError, f"^DEADLINE_EXCEEDED: got no policies from the worker in 0.01 s, at last: {said}$"):
                self.env.start_episode()
        self.answers["GetPolicies"] = Failed(grpc.StatusCode.UNAVAILABLE, "nobody is there")
        self.env._local._timeout = 60
        with self.assertRaisesRegex(external.EpisodeError, "^UNAVAILABLE: nobody is there$"):
            self.env.start_episode()

    def test_another_worker_begins_with_no_weights(self):
        self.env.start_episode()
        self.answers["StartEpisode"] = messages.StartEpisodeReply(episode_id="e2", weights=0)
        replies = [messages.GetPoliciesReply(), policies_reply(100)]
        self.answers["GetPolicies"] = lambda request: replies.pop(0)
        self.env.get_actions(self.env.start_episode(), {"a": [0]})
        self.assertEqual(self.calls[-1].weights, 100)

    def test_a_refusal_is_said_at_the_start_and_that_of_a_step_by_the_next_call(self):
        self.answers["GetPolicies"] = Failed(grpc.StatusCode.FAILED_PRECONDITION, "who plays agent a is drawn")
        with self.assertRaisesRegex(external.EpisodeError, "FAILED_PRECONDITION: who plays agent a is drawn"):
            self.env.start_episode()
        self.assertEqual(self.names(), ["GetPolicies"])
        self.answers["GetPolicies"] = policies_reply(7)
        for call in (lambda: self.env.get_actions("e1", {"a": [0]}), lambda: self.env.log_returns("e1", {"a": 1}), lambda: self.env.end_episode("e1")):
            self.answers["LogActions"] = Failed(grpc.StatusCode.ABORTED, "is over")
            self.env.start_episode("e1")
            self.env.get_actions("e1", {"a": [0]})
            before = len(self.calls)
            with self.assertRaisesRegex(external.EpisodeError, "ABORTED: is over"):
                call()
            self.assertEqual(len(self.calls), before, "it has done nothing else")
            self.assertEqual(self.env._local._episodes, {}, "nothing is remembered of what is over")

    def test_an_episode_whose_step_was_refused_is_lost(self):
        def calls_of(episode):
            return (lambda: self.env.get_actions(episode, {"a": [0]}), lambda: self.env.log_returns(episode, {"a": 1}),
                    lambda: self.env.log_actions(episode, {"a": [0]}, {"a": 1}, {"a": -1}), lambda: self.env.end_episode(episode))
        for code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNAVAILABLE"):
            self.env.start_episode("e1")
            self.env.get_actions("e1", {"a": [0]})
            self.answers["LogActions"] = Failed(grpc.StatusCode[code], "not this")
            self.env.get_actions("e1", {"a": [0]})
            self.answers["LogActions"] = messages.LogActionsReply(weights=7)
            before = len(self.calls)
            with self.assertRaisesRegex(external.EpisodeError, f"^{code}: not this$"):
                self.env.log_returns("e1", {"a": 1})
            for call in calls_of("e1"):
                with self.assertRaisesRegex(external.EpisodeError, "^ABORTED: the worker did not take a step of episode 'e1', .*: begin another$"):
                    call()
            self.assertEqual(len(self.calls), before, "a reward would be that of the step before")
            self.env.start_episode("e1")
            for call in calls_of("e1"):
                call()

    def test_who_hears_that_its_episode_is_over_forgets_it(self):
        for name, call in (("EndEpisode", lambda: self.env.end_episode("e1")), ("LogReturns", lambda: self.env.log_returns("e1", {"a": 1})),
                           ("LogActions", lambda: self.env.log_actions("e1", {"a": [0]}, {"a": 1}, {"a": -1}))):
            for code, kept in (("ABORTED", []), ("NOT_FOUND", []), ("UNAVAILABLE", []), ("DEADLINE_EXCEEDED", []), ("INVALID_ARGUMENT", ["e1"])):
                self.env.start_episode("e1")
                with mock.patch.dict(self.answers, {name: Failed(grpc.StatusCode[code], "is over")}), self.assertRaises(external.EpisodeError):
                    call()
                self.assertEqual(list(self.env._local._episodes), kept, (name, code))

    def test_who_was_not_sent_has_not_acted(self):
        episode = self.env.start_episode()
        self.env.get_actions(episode, {"a": [0]})
        log_probs, asked = self.env.log_probs, len(FakePolicies.made[0].seen)
        for wrong in (dict(observations={"a": [0], "b": [0, 0]}), dict(observations={"a": [0]}, action_masks={"a": [1]}),
                      dict(observations={"a": [0]}, rewards={"c": 1}), dict(observations={"a": [0]}, state=["x"])):
            with self.assertRaises(ValueError, msg=str(wrong)):
                self.env.get_actions(episode, **wrong)
            self.assertEqual(len(FakePolicies.made[0].seen), asked, wrong)
        method = self.env._channel.unary_unary
        with mock.patch.object(self.env._channel, "unary_unary", side_effect=ValueError("Cannot invoke RPC on closed channel!")):
            with self.assertRaisesRegex(ValueError, "closed channel"):
                self.env.get_actions(episode, {"a": [0]})
        self.env._channel.unary_unary = method
        self.assertIs(self.env.log_probs, log_probs)
        self.env.get_actions(episode, {"a": [0]})
        self.assertEqual(FakePolicies.made[0].seen[-1][-1], [0], "as after one step")

    def test_an_episode_may_be_forgotten_while_it_acts(self):
        episode = self.env.start_episode()
        act = self.env._local.act

        def act_and_forget(*arguments):
            decided = act(*arguments)
            self.env._local.forget(episode)
            return decided
        with mock.patch.object(self.env._local, "act", act_and_forget):
            self.assertEqual(self.env.get_actions(episode, {"a": [0]}), {"a": 1})
        self.assertEqual(self.names()[-1], "LogActions")

    def test_pieces_are_joined_and_what_makes_no_sense_is_an_error(self):
        whole = policies_reply(7, b"{}", bytes(range(100)))

        def piece(request):
            self.assertEqual(request.weights, 7 if request.offset else 0)
            return messages.GetPoliciesReply(weights=7, files=whole.files, data=whole.data[request.offset:request.offset + 40])
        self.answers["GetPolicies"] = piece
        self.env.start_episode()
        self.assertEqual(FakePolicies.made[0].files["policies.safetensors"], bytes(range(100)))
        files = [messages.PolicyFile(name="manifest.json", size=2), messages.PolicyFile(name="policies.safetensors", size=64 << 20)]
        for reply, words in ((messages.GetPoliciesReply(weights=8, files=files, data=b"a"), "expected manifest.json and policies.safetensors of at most"),
                             (messages.GetPoliciesReply(weights=8, files=[files[0], messages.PolicyFile(name="../x", size=2)], data=b"a"), "expected manifest"),
                             (messages.GetPoliciesReply(weights=8, files=[files[0]] * 3), "3 files, expected at most 2"),
                             (messages.GetPoliciesReply(weights=8, files=[files[0], messages.PolicyFile(name="policies.safetensors", size=9)], data=b"a" * 12),
                              "12 bytes of weights 8, expected 11 of 8"),
                             (messages.GetPoliciesReply(weights=8, files=[files[0], messages.PolicyFile(name="policies.safetensors", size=9)]),
                              "0 bytes of weights 8, expected 11 of 8")):
            self.answers["GetPolicies"] = reply
            self.env._local.hear(0, self.env._local._fetches)
            with self.assertRaisesRegex(external.EpisodeError, f"INTERNAL: .*{words}"):
                self.env.start_episode()

    def test_episodes_that_nobody_ends_are_forgotten(self):
        with mock.patch.object(local_inference.LocalInference, "MAX_EPISODES", 2):
            for episode in ("e1", "e2", "e3"):
                self.env.start_episode(episode)
            for episode in ("e1", "e2", "e3"):
                self.env._local.lose(episode)
        self.assertEqual((list(self.env._local._episodes), list(self.env._local._lost)), ([], ["e2", "e3"]))


class LocalPoliciesTest(unittest.TestCase):
    """Against a library that only writes down what it is asked."""

    def checkpoint(self, players, **state_sizes):
        """A class in the place of acting.Checkpoint: policies of these names and sizes of what they remember, to which they add 1; players: places of
        those that play the agents."""
        case = self

        class Checkpoint:
            def __init__(self, path, seed):
                self.path, self.handle = path, None
                case.opened.update({name: bytes_of(os.path.join(path, name)) for name in os.listdir(path)})
                case.opened.update(folder=path, mode=stat.S_IMODE(os.stat(path).st_mode))
                self.description = {"agents": ["a", "b"], "policies": [dict(
                    id=each, version=3, observation_space="Box(-1, 1, [1])", action_space="Discrete(2)", obs_dtype="float32", obs_size=1, mask_size=0,
                    state_size=size, word_dtypes=["int32"], needs_agent=False, agents=[0]) for each, size in state_sizes.items()]}

            def map(self, env_id, episode):
                return players

            def act(self, handle, call, error):
                rows = call._obj
                size = list(state_sizes.values())[rows.policy]
                states = (ctypes.c_float * size).from_address(rows.state_in) if size else []
                case.states.append(list(states))
                for place in range(size):
                    states[place] += 1
                return 0
        return Checkpoint

    def setUp(self):
        self.opened, self.states = {}, []

    def policies(self, *players, **state_sizes):
        with mock.patch.object(local_inference.acting, "Checkpoint", self.checkpoint(players, **state_sizes)):
            return local_inference.LocalPolicies(7, {"manifest.json": b"{}", "policies.safetensors": b"abcd"})

    def test_files_lie_in_a_private_folder_until_they_are_open(self):
        policies = self.policies(1, 0, first=0, second=0)
        self.assertEqual((self.opened["manifest.json"], self.opened["policies.safetensors"], self.opened["mode"]), (b"{}", b"abcd", 0o700))
        self.assertFalse(os.path.exists(self.opened["folder"]))
        self.assertEqual({agent: (policy.id, slot) for agent, (policy, slot) in policies._players.items()}, {"a": ("second", 0), "b": ("first", 1)})
        with self.assertRaisesRegex(ValueError, "there is no agent 'c', expected one of a, b"):
            policies.act("c", [0], None, None)

    def test_what_one_policy_remembers_is_not_given_to_another(self):
        remembered = None
        for policies in (self.policies(0, 0, small=1, large=3), self.policies(0, 0, small=1, large=3),  # newer weights
                         self.policies(1, 0, small=1, large=3),                                         # another one plays, which remembers more
                         self.policies(0, 1, large=3, other=3), self.policies(1, 0, large=3, other=3),
                         self.policies(0, 0, other=1),                                                  # the same name, another network
                         self.policies(0, 0, plain=0)):
            remembered = policies.act("a", [0], None, remembered)[2]
        self.assertEqual(self.states, [[0], [1], [0, 0, 0], [1, 1, 1], [0, 0, 0], [0], []])
        self.assertIsNone(remembered)

    def test_what_a_policy_did_not_remember_is_refused(self):
        policy, slot = self.policies(0, 0, large=3)._players["a"]
        with self.assertRaisesRegex(ValueError, r"got a state of shape \(1,\), expected \(3,\)"):
            policy.decide([0], slot, None, numpy.zeros(1, numpy.float32))

    def test_without_the_library_it_is_said_at_once(self):
        local_inference.acting.load.cache_clear()
        with mock.patch.dict(os.environ, {"TROUPE_ACTING_LIBRARY": "/nowhere/lib.so"}):
            with self.assertRaisesRegex(TroupeError, "found no libtroupe_acting.so at /nowhere/lib.so"):
                external.ExternalEnv("unix:/nobody.sock", local_inference=True)
        local_inference.acting.load.cache_clear()


if __name__ == "__main__":
    unittest.main()
