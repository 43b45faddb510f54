"""troupe.external: what it sends and reads, and its forms of observations and actions."""

import os
import sys
import tempfile
import types
import unittest
from concurrent import futures

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import grpc  # noqa: E402
import numpy  # noqa: E402

from troupe import external  # noqa: E402
from troupe.v1 import episodes_pb2 as messages  # noqa: E402

AGENT = messages.WorldAgent(agent_id="a", observation_space="Box(-1, 1, [2])", has_action_mask=True,
                            action_space="Tuple(Discrete(3, start=5), Box(-1, 1, [1]))")
START_REPLY = messages.StartEpisodeReply(episode_id="e1", agents=[AGENT], state_size=2)
ACTION = messages.AgentAction(agent_id="a", discrete=[6], continuous=[0.5], log_prob=-0.25)


class FormsTest(unittest.TestCase):
    def setUp(self):
        self.env = external.ExternalEnv("unix:/nobody.sock")
        self.addCleanup(self.env.close)
        self.calls = []
        self.answers = {"StartEpisode": START_REPLY.SerializeToString(), "GetActions": messages.GetActionsReply(actions=[ACTION]).SerializeToString()}

        def method(path):
            def call(request, timeout, metadata):
                name = path.rpartition("/")[2]
                self.calls.append(getattr(messages, name + "Request").FromString(request))
                return self.answers.get(name, b"")
            return call
        self.env._channel.close()
        self.env._channel = types.SimpleNamespace(unary_unary=method, close=lambda: None)

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

    def test_actions_of_ones_own_bring_their_log_probability_where_there_is_one(self):
        self.answers["StartEpisode"] = messages.StartEpisodeReply(episode_id="e1", agents=[messages.WorldAgent(
            agent_id="a", observation_space="Box(-1, 1, [1])", action_space="Discrete(3, start=5)")]).SerializeToString()
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


if __name__ == "__main__":
    unittest.main()
