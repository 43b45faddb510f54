"""Agents that end and return, and agents by pattern: cars that come and go, RLlib's hierarchy, as many as there may be."""

import json
import os
import re

import harness

# The light earns 1 for action 1. A car sees whether it has just come, earns 1 each for going first and then waiting twice, and leaves: 3 in all for
# who remembers. New cars have new names.
ROAD = harness.MULTI_AGENT + '''

class Road(MultiAgentEnv):
    def __init__(self, steps=12, lanes=2, slots=4):
        self.steps, self.lanes = steps, lanes
        self.possible_agents = ["light", "car_*"]
        self.pool_sizes = {"car_*": slots}
        self.observation_spaces = {"light": Box(0, 1, (1,)), "car_*": Box(0, 1, (1,))}
        self.action_spaces = {"light": Discrete(2), "car_*": Discrete(2)}

    def reset(self, *, seed=None, options=None):
        self.t, self.cars, self.age = 0, 0, {}
        self.come()
        return self.observe(), {}

    def come(self):
        while len(self.age) < self.lanes:
            self.cars += 1
            self.age[f"car_{self.cars * 1000}"] = 0

    def observe(self):
        cars = {car: np.float32([age == 0]) for car, age in self.age.items()}
        return {"light": np.zeros(1, np.float32), **cars}

    def step(self, actions):
        self.t += 1
        rewards = {"light": float(actions["light"])}
        for car, age in self.age.items():
            rewards[car] = float(actions[car] == (age == 0))
        gone = [car for car, age in self.age.items() if age == 2]
        self.age = {car: age + 1 for car, age in self.age.items() if car not in gone}
        if self.t % 3 != 2:
            self.come()  # at once, or a step later
        last = self.t >= self.steps
        return self.observe(), rewards, {**{car: True for car in gone}, "__all__": last}, {"__all__": False}, {}
'''

# RLlib's hierarchical form (rllib/examples, windy maze): a high-level agent sets a goal, and a low-level agent with a name of its own, low_level_1,
# low_level_2, ..., acts until it has reached it or its time is over. Here the maze is a line of `size` cells.
HIERARCHY = harness.MULTI_AGENT + '''

class Hierarchy(MultiAgentEnv):
    possible_agents = ["high_level_agent", "low_level_*"]

    def __init__(self, config=None):
        self.size = (config or {}).get("size", 6)
        self.observation_spaces = {"high_level_agent": Box(0, 1, (1,)), "low_level_*": Box(-1, 1, (2,))}
        self.action_spaces = {"high_level_agent": Discrete(self.size), "low_level_*": Discrete(2)}

    def reset(self, *, seed=None, options=None):
        self.place, self.goals, self.low = 0, 0, None
        return {"high_level_agent": self.see()}, {"high_level_agent": {}}

    def see(self):
        return np.float32([self.place / (self.size - 1)])

    def see_goal(self):
        return np.float32([self.place / (self.size - 1), np.sign(self.goal - self.place)])

    def step(self, actions):
        never = {"__all__": False}
        if "high_level_agent" in actions:
            self.goal, self.left = int(actions["high_level_agent"]), 4
            self.goals += 1
            self.low = f"low_level_{self.goals}"
            return {self.low: self.see_goal()}, {self.low: 0.0}, never, never, {}
        before = abs(self.goal - self.place)
        self.place = min(max(self.place + (1 if actions[self.low] else -1), 0), self.size - 1)
        self.left -= 1
        closer = abs(self.goal - self.place) < before
        observations, rewards = {self.low: self.see_goal()}, {self.low: 1.0 if closer else -1.0}
        home = self.place == self.size - 1
        if home or self.goals == 20:
            observations["high_level_agent"] = self.see()
            rewards["high_level_agent"] = 10.0 if home else 0.0
            return observations, rewards, {"__all__": home}, {"__all__": not home}, {}
        if self.left == 0 or self.place == self.goal:
            observations["high_level_agent"], rewards["high_level_agent"] = self.see(), -1.0
            return observations, rewards, {self.low: True, **never}, never, {}
        return observations, rewards, never, never, {}
'''

CONFIG = """
env: {name: "python:envs:NAME", args: ARGS, python: {interpreter: PYTHON, path: PATH}}
algorithm: {name: ippo, train_batch_size: 800, minibatch_size: 256, num_epochs: 4, lr: 0.005}
model: {actor_hidden_sizes: [16], critic_hidden_sizes: [16]MODEL}
multi_agent: {policies: POLICIES, policy_mapping: MAPPING}
num_workers: WORKERS
num_envs_per_worker: 8
learner_threads: 1
seed: 1
experiment: {write_interval: 800}
evaluation: {episodes: 20, deterministic: true}
stop: {env_steps: STEPS}
"""


class ReturningAgentsTest(harness.TroupeTestCase):
    def config(self, source, name, policies, mapping, steps, args="{}", model="", workers=0):
        self.write("envs.py", source)
        text = CONFIG
        for key, value in {"NAME": name, "ARGS": args, "PYTHON": os.environ["TROUPE_TEST_PYTHON"], "PATH": self.folder, "POLICIES": policies, "MAPPING": mapping,
                           "STEPS": str(steps), "MODEL": model, "WORKERS": str(workers)}.items():
            text = text.replace(key, value, 1)
        return self.write("run.yaml", text)

    def test_cars_that_come_and_go_are_trained_each_from_its_coming(self):
        config = self.config(ROAD, "Road", "[light, car]", '{light: light, "car_*": car}', 16000, model=", actor_core: gru, core_size: 8")
        self.troupe("train", config, "--name", "run")
        done = json.loads(self.troupe("evaluate", "runs/run", "--episodes", "3", "--deterministic", "--json").stdout)
        self.assertEqual(sorted(done["agents"]), ["car_0", "car_1", "car_2", "car_3", "light"])
        self.assertEqual(done["agents"]["light"]["mean"], 12)
        for car in range(4):
            mean = done["agents"][f"car_{car}"]["mean"]
            self.assertTrue(2 <= mean <= 3, f"car {car}: the return of a car, not of all that had its slot: {done['agents']}")
        self.assertGreater(done["return_sum"]["mean"], 12 + 18, "all cars together")
        last = self.progress("run")[-1]
        self.assertLessEqual(last["policy/car/return_max"], 3)
        self.assertGreater(last["policy/car/return_mean"], 2)

    def test_rllibs_hierarchy_runs(self):
        config = self.config(HIERARCHY, "Hierarchy", "[high, low]", '{high_level_agent: high, "low_level_*": low}', 16000)
        self.troupe("train", config, "--name", "run")
        done = json.loads(self.troupe("evaluate", "runs/run", "--episodes", "5", "--deterministic", "--json").stdout)
        self.assertEqual(sorted(done["agents"])[:2], ["high_level_agent", "low_level_0"])
        self.assertGreater(done["agents"]["high_level_agent"]["mean"], 5, done)

    def test_as_many_as_there_may_be_at_once(self):
        heaps = {}
        for lanes in (1, 1023):
            args = f"{{lanes: {lanes}, slots: {lanes}, steps: 2}}"
            config = self.config(ROAD, "Road", "[light, car]", '{light: light, "car_*": car}', 3200, args=args, workers=1)
            done = self.troupe("train", config, "--name", f"run{lanes}", "--log-level", "debug", "--set", "num_envs_per_worker=1", "--set", "stop.wall_clock=6",
                               "--set", "stop.env_steps=1000000", "--set", "algorithm.train_batch_size=64", "--set", "algorithm.minibatch_size=64", "--set", "evaluation.at_end=false")
            heaps[lanes] = [int(match) for match in re.findall(r"memory pid=\d+ rss_bytes=(\d+)", done.stdout + done.stderr)]
            self.assertGreater(len(heaps[lanes]), 2, done.stderr[-2000:])
        self.assertLess(max(heaps[1023]) - max(heaps[1]), 50 * 2**20)

    def test_too_many_are_refused_in_words(self):
        config = self.config(ROAD, "Road", "[light, car]", '{light: light, "car_*": car}', 800, args="{lanes: 3, slots: 2}")
        done = self.troupe("train", config, "--name", "run", ok=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("all 2 slots of 'car_*' are taken", done.stderr)
        config = self.config(ROAD, "Road", "[light, car]", '{light: light, "car_*": car}', 800, args="{lanes: 3, slots: 1024}")
        done = self.troupe("train", config, "--name", "more", ok=False)
        self.assertIn("has 1025 agents, expected at most 1024", done.stderr)


if __name__ == "__main__":
    harness.main()
