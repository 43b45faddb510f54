"""What a run leaves behind for people who look at curves: lines and events by time, returns and losses by name, the best by a return that says something."""

import json
import os
import re
import sys

import harness

# Leduc poker (Southey et al. 2005), zero-sum, in turn; who is to move may fold at once, so that the other one is never observed.
LEDUC = harness.MULTI_AGENT + '''
import random


class Leduc:
    """Actions: 0 folds, 1 checks or calls, 2 bets or raises (at most two a round; a third is a call)."""

    possible_agents = ["player_0", "player_1"]

    def __init__(self):
        self.agents = []

    def observation_space(self, agent):
        return Box(0, 20, (9,))

    def action_space(self, agent):
        return Discrete(3)

    def observe(self):
        row = np.zeros(9, np.float32)
        row[self.cards[self.turn]] = 1
        if self.round == 1:
            row[3 + self.public] = 1
        row[6:] = self.pot[self.turn], self.pot[1 - self.turn], self.round
        return {self.possible_agents[self.turn]: row}

    def reset(self, seed=None, options=None):
        deck = [0, 0, 1, 1, 2, 2]
        random.Random(seed).shuffle(deck)
        self.cards, self.public = deck[:2], deck[2]
        self.pot, self.turn, self.round, self.raises, self.checked = [1, 1], 0, 0, 0, False
        self.agents = list(self.possible_agents)
        return self.observe(), {}

    def step(self, actions):
        (action,) = actions.values()
        me, other = self.turn, 1 - self.turn
        if action == 0:
            return self.end(other)
        if action == 2 and self.raises < 2:
            self.raises += 1
            self.pot[me] = self.pot[other] + (2, 4)[self.round]
        elif self.pot[me] < self.pot[other] or self.checked:
            self.pot[me] = self.pot[other]
            if self.round == 1:
                return self.end(self.winner())
            self.round, self.raises, self.checked, self.turn = 1, 0, False, 0
            return self.go_on()
        else:
            self.checked = True
        self.turn = other
        return self.go_on()

    def winner(self):
        pairs = [card == self.public for card in self.cards]
        if any(pairs):
            return pairs.index(True)
        return None if self.cards[0] == self.cards[1] else int(self.cards[1] > self.cards[0])

    def go_on(self):
        no = {agent: False for agent in self.agents}
        return self.observe(), {}, no, dict(no), {}

    def end(self, winner):
        won = 0 if winner is None else self.pot[1 - winner]
        rewards = {agent: 0.0 if winner is None else float(won if i == winner else -won) for i, agent in enumerate(self.agents)}
        yes, no = {agent: True for agent in self.agents}, {agent: False for agent in self.agents}
        self.agents = []
        return {}, rewards, yes, no, {}
'''

RIVALS = """
env: {name: "python:leduc.py:Leduc"}
multi_agent: {policies: {hero: {}, rival: {class: random}}, policy_mapping: {player_0: hero, player_1: rival}}
algorithm: {name: ippo, train_batch_size: 400, minibatch_size: 200, num_epochs: 1}
num_workers: 1
num_envs_per_worker: 4
stop: {env_steps: 4000}
evaluation: {episodes: 100}
experiment: {write_interval: 400, checkpoint_interval: 800}
"""

CARTPOLES = """
env: {name: cartpole, args: {num_agents: 2}}
multi_agent: {policies: [left, right], policy_mapping: {agent_0: left, agent_1: right}}
algorithm: {name: ippo, train_batch_size: 800, minibatch_size: 400, num_epochs: 1}
num_workers: 1
num_envs_per_worker: 8
stop: {env_steps: 8000}
evaluation: {at_end: false}
experiment: {write_interval: 800, checkpoint_interval: 800}
"""


def scalars(folder):
    """Tag -> how many values the run's event files have of it. Records are TFRecord's; tags stand in them as they are."""
    found = {}
    for name in os.listdir(folder):
        if not name.startswith("events."):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read()
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at:at + 8], "little")
            event = data[at + 12:at + 12 + size]
            at += size + 16
            summary = event.find(b"\x0a", event.find(b"\x2a") + 2)
            value = event[summary + 2:] if summary > 0 else b""
            if value[:1] == b"\x0a":
                tag = value[2:2 + value[1]].decode()
                found[tag] = found.get(tag, 0) + 1
    return found


class CurvesTest(harness.RunningTestCase):
    def checkpoints(self, run):
        return json.loads(self.troupe("checkpoint", "ls", run, "--json").stdout.splitlines()[-1])

    def test_a_zero_sum_game_has_returns_by_policy_and_no_best(self):
        self.write("leduc.py", LEDUC)
        done = self.troupe("train", self.write("run.yaml", RIVALS), "--name", "run", "--python", sys.executable)
        lines = self.progress("run")
        self.assertGreaterEqual(len(lines), 10)
        for line in lines:
            self.assertEqual((line["return_sum"], line["return_sum_min"], line["return_sum_max"]), (0, 0, 0), "zero-sum: what is won before an agent's first action, too")
            self.assertEqual(line["policy/hero/return_mean"], -line["policy/rival/return_mean"])
            self.assertEqual(line["policy/hero/return_min"], -line["policy/rival/return_max"])
            self.assertEqual(line["agent/player_1/return_mean"], line["policy/rival/return_mean"])
            self.assertTrue(line["rewards_differ"])
            self.assertIsNone(line["best_return"])
            self.assertIn("policy/hero/Loss/Value loss", line)
            self.assertNotIn("policy/rival/Loss/Value loss", line, "a random one has none")
        self.assertEqual(min(line["episode_length_min"] for line in lines), 1, "somebody folds at once")
        tags = scalars(self.path("runs", "run"))
        for tag in ("policy/hero/Episode-Rewards", "policy/rival/Episode-Rewards/Min", "agent/player_0/Episode-Rewards", "policy/hero/Loss/Value loss",
                    "Train-Results/Episode-Steps/Max"):
            self.assertGreaterEqual(tags.get(tag, 0), 10, (tag, tags))
        self.assertGreaterEqual(tags.get("Test-Results/policy/hero/Episode-Rewards", 0), 1, tags)
        self.assertFalse(any(entry["best"] for entry in self.checkpoints("run")))
        self.assertEqual(done.stdout.count("there is no checkpoint"), 1, done.stdout)
        end = done.stdout[done.stdout.index("training, last 100 episodes: return of an agent, by policy"):]
        self.assertRegex(end, r"by policy \(least to largest\)\n  hero  -?\d+\.\d\d \(.* to .*\)\n  rival  .*\nevaluation, 100 episodes: return of an agent, by policy .*\n  hero ")
        self.assertNotIn("sum over agents", end)
        self.assertRegex(done.stdout, r"/s  hero return -?\d")
        summary = self.summary("run")
        self.assertEqual(summary["policies"]["hero"]["return_mean"], -summary["policies"]["rival"]["return_mean"])
        self.assertEqual(summary["evaluation"]["policies"]["hero"]["mean"], -summary["evaluation"]["policies"]["rival"]["mean"])
        self.assertIsNone(summary["best_by"])
        # What is asked of it speaks of policies, too.
        status = self.troupe("status", "run").stdout
        self.assertRegex(status, r"return of an agent, by policy \(least to largest\)\n  hero  -?\d+\.\d\d \(.* to .*\)\n  rival  ")
        self.assertNotIn("return_sum", status)
        told = self.troupe("evaluate", "run", "--episodes", "50").stdout
        self.assertRegex(told, r"50 episodes, sampled actions\nreturn of an agent, by policy \(least to largest\)\n  hero  -?\d+\.\d\d \(.* to .*\)\n  rival  ")
        # Random against random.
        done = self.troupe("evaluate", "run", "--policy", "hero=random", "--episodes", "300", "--json")
        result = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual({episode["return_sum"] for episode in result["per_episode"]}, {0})
        self.assertEqual(result["return_sum"], {"mean": 0, "std": 0})
        self.assertEqual(len({len(episode["agents"]) for episode in result["per_episode"]}), 1, "who is never observed, and wins, took part")

    def test_a_run_that_is_planned_long_leaves_a_curve(self):
        config = self.write("run.yaml", "env: {name: cartpole, args: {num_agents: 1}}\nnum_workers: 1\nevaluation: {at_end: false}\n"
                            "algorithm: {name: ippo, train_batch_size: 400, minibatch_size: 400, num_epochs: 1}\n"
                            "stop: {env_steps: 100000000, wall_clock: 12}\n")
        done = self.troupe("train", config, "--name", "run")
        lines = self.progress("run")
        self.assertGreaterEqual(len(lines), 3, "two of five seconds each, and the last")
        self.assertLess(lines[0]["wall_clock_s"], 10)
        self.assertGreaterEqual(scalars(self.path("runs", "run")).get("Train-Results/Episode-Rewards", 0), 2)
        self.assertRegex(done.stdout, r"ETA 0:0\d", "by the time that is left, not by the env steps")

    def test_the_best_by_a_policys_return(self):
        config = self.write("run.yaml", CARTPOLES)
        self.troupe("train", config, "--name", "run", "--set", "experiment.best_by=policy:left")
        summary = self.summary("run")
        self.assertTrue(summary["rewards_differ"])
        self.assertEqual(summary["best_by"], "policy:left")
        self.assertEqual(summary["best_return"], max(line["best_return"] for line in self.progress("run") if line["best_return"] is not None))
        self.assertEqual(sum(entry["best"] for entry in self.checkpoints("run")), 1)
        self.troupe("train", "--resume", "run", "--set", "stop.env_steps=8800")
        resumed = self.summary("run")
        self.assertEqual((resumed["best_by"], resumed["rewards_differ"], resumed["env_steps"]), ("policy:left", True, 8800))
        self.assertGreaterEqual(resumed["best_return"], summary["best_return"])
        # Asked by nothing any more, it has no best.
        done = self.troupe("train", "--resume", "run", "--set", "stop.env_steps=9600", "--set", "experiment.best_by=auto")
        self.assertIsNone(self.summary("run")["best_return"])
        self.assertEqual(sum(entry["best"] for entry in self.checkpoints("run")), 0)
        self.assertIn("there is no checkpoint", done.stdout)

    def test_a_run_ends_at_the_returns_of_policies(self):
        config = self.write("run.yaml", CARTPOLES)
        self.troupe("train", config, "--name", "run", "--set", "stop={env_steps: 400000, episode_return: {policy:left: 21, agent:agent_1: 21}}")
        summary = self.summary("run")
        self.assertRegex(summary["reason"], r"stop\.episode_return reached: policy:left [\d.]+ of 21, agent:agent_1 [\d.]+ of 21")
        for policy in ("left", "right"):
            self.assertGreaterEqual(summary["policies"][policy]["return_mean"], 21)
        self.assertLess(summary["env_steps"], 400000)
        # A finished run that is resumed says so and stays as it is.
        before = self.hashes_below("runs", "run", "checkpoints")
        for more in ((), ("--set", "stop.env_steps=500000"), ("--workers", "0"), ("--set", "stop.episode_return=20")):
            done = self.troupe("train", "--resume", "run", *more)
            # 20 is the sum's.
            raised = "stop.episode_return=N" if "stop.episode_return=20" in more else "'stop.episode_return={policy:left: N, agent:agent_1: N}'"
            self.assertRegex(done.stdout, r"^run: nothing is left to do: stop\.episode_return reached: .*; to go on raise it "
                                          rf"\(--set {re.escape(raised)}\)\nresults in runs/run\n(  .*\n){{4}}$")
            self.assertEqual((self.summary("run"), self.hashes_below("runs", "run", "checkpoints")), (summary, before))
        self.troupe("learner", "--resume", "run", "--listen", f"unix:{self.path('run.sock')}", "--linger", "0.2")
        self.assertEqual((self.summary("run"), self.hashes_below("runs", "run", "checkpoints")), (summary, before))
        # One that was killed before its last words says them now.
        os.unlink(self.path("runs", "run", "summary.json"))
        self.troupe("train", "--resume", "run", "--set", "stop.episode_return={policy:left: 21, agent:agent_1: 21}")
        self.assertEqual([self.summary("run")[key] for key in ("env_steps", "reason")], [summary[key] for key in ("env_steps", "reason")])
        # Another return goes on, and so does none.
        higher = summary["policies"]["left"]["return_mean"] + 1
        self.troupe("train", "--resume", "run", "--set", f"stop.episode_return={{policy:left: {higher}}}")
        self.assertGreater(self.summary("run")["env_steps"], summary["env_steps"])
        more = self.summary("run")["env_steps"] + 800
        self.troupe("train", "--resume", "run", "--set", f"stop={{episode_return: none, env_steps: {more}}}")
        self.assertEqual(self.summary("run")["env_steps"], more)


if __name__ == "__main__":
    harness.main()
