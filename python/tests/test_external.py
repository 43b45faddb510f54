"""troupe.external beside bytes that protoc makes of the same messages, and its forms of observations and actions."""

import os
import struct
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy  # noqa: E402

from troupe import episode_messages as messages  # noqa: E402
from troupe import external  # noqa: E402

# protoc --encode of the text in each test.
GET = bytes.fromhex("0a026531122a0a016112080000003f000080bf2202010029000000000000044030023a0c0a01611202060325000080be12070a01621a0278791a080000803f00000040")
END = bytes.fromhex("0a02653110011a0c0a016129000000000000f03f")
RETURNS = bytes.fromhex("0a026531120c0a016111000000000000f03f120c0a016211000000000000e0bf")
START_REPLY = bytes.fromhex("0a02653112480a0161120f426f78282d312c20312c205b325d291a2c5475706c6528446973637265746528332c2073746172743d35292c20426f78282d312c20312c"
                            "205b315d29292001280230031802")
ACTIONS = bytes.fromhex("0a110a016112010c1a040000003f25000080be0a030a0162")


class MessagesTest(unittest.TestCase):
    def test_requests_are_what_protoc_makes(self):
        step = messages.encode_step("a", struct.pack("<ff", 0.5, -1), action_mask=b"\1\0", reward=2.5, end=messages.TRUNCATED,
                                    action=messages.encode_action("a", [3, -2], -0.25))
        self.assertEqual(messages.encode_get_actions("e1", [step, messages.encode_step("b", image=b"xy")], struct.pack("<ff", 1, 2)), GET)
        self.assertEqual(messages.encode_end("e1", messages.TERMINATED, [messages.encode_step("a", reward=1)]), END)
        self.assertEqual(messages.encode_log_returns("e1", {"a": 1, "b": -0.5}), RETURNS)
        self.assertEqual(messages.encode_start("e1"), b"\x0a\x02e1")

    def test_answers_are_read(self):
        self.assertEqual(messages.decode_actions(ACTIONS), [messages.AgentAction("a", [6], [0.5], -0.25), messages.AgentAction("b", [], [], None)])
        episode, agents, state_size = messages.decode_start(START_REPLY)
        self.assertEqual((episode, state_size), ("e1", 2))
        self.assertEqual(agents, [messages.WorldAgent("a", "Box(-1, 1, [2])", "Tuple(Discrete(3, start=5), Box(-1, 1, [1]))", True)])

    def test_what_is_no_answer_is_an_error(self):
        for data in (ACTIONS[:5], b"\x0a\x03\x25\0\0", b"\x08\x05" * 3 + b"\x0a\x02\x20\x05", b"\x0a\x02\x12\xff", b"\x0a\x05\x1a\x03abc"):
            with self.assertRaises((TypeError, ValueError)):
                messages.decode_actions(data)
        with self.assertRaisesRegex(ValueError, "1025 agents"):
            messages.decode_actions(b"\x0a\x00" * 1025)


class FormsTest(unittest.TestCase):
    def setUp(self):
        self.env = external.ExternalEnv("unix:/nobody.sock")
        self.addCleanup(self.env.close)
        self.calls = []
        self.answers = {"StartEpisode": START_REPLY, "GetActions": ACTIONS[:19]}

        def call(name, request, read):
            self.calls.append((name, request))
            return read(self.answers.get(name, b""))
        self.env._call = call

    def test_actions_have_their_spaces_form(self):
        episode = self.env.start_episode()
        actions = self.env.get_actions(episode, {"a": numpy.array([0.5, -1])}, action_masks={"a": [1, 1, 0]}, state=[1, 2])
        self.assertEqual(list(actions), ["a"])
        self.assertEqual(int(actions["a"][0]), 6)
        self.assertEqual(actions["a"][1].tolist(), [0.5])
        self.assertEqual(self.env.log_probs, {"a": -0.25})
        step = messages.encode_step("a", struct.pack("<ff", 0.5, -1), action_mask=b"\1\1\0")
        self.assertEqual(self.calls[-1], ("GetActions", messages.encode_get_actions("e1", [step], struct.pack("<ff", 1, 2))))

    def test_agents_that_leave_come_with_an_end(self):
        episode = self.env.start_episode()
        self.env.end_episode(episode, rewards={"a": 3}, truncated=True)
        self.assertEqual(self.calls[-1], ("EndEpisode", messages.encode_end("e1", messages.TRUNCATED, [messages.encode_step("a", reward=3.0)])))
        self.env.get_actions(episode, {"a": [0, 0]}, terminateds=["a"])
        self.assertIn(messages.encode_step("a", bytes(8), action_mask=b"\1\1\1", end=messages.TERMINATED), self.calls[-1][1])

    def test_what_does_not_fit_is_said_here(self):
        episode = self.env.start_episode()
        with self.assertRaisesRegex(ValueError, "there is no agent 'b', expected a"):
            self.env.get_actions(episode, {"b": [0, 0]})
        with self.assertRaises(ValueError):
            self.env.get_actions(episode, {"a": [0, 0, 0]})
        with self.assertRaisesRegex(ValueError, "on another machine"):
            external.ExternalEnv("10.0.0.7:1234")

    def test_a_run_is_found_by_its_folder(self):
        self.assertEqual(external.SOCKET, os.path.join("external", "episodes.sock"))
        with self.assertRaises(external.EpisodeError) as caught:
            with external.ExternalEnv(os.path.dirname(os.path.abspath(__file__)), timeout=5) as env:
                env.start_episode()
        self.assertEqual(caught.exception.code, "UNAVAILABLE")


if __name__ == "__main__":
    unittest.main()
