"""Plays cart-pole in plain Python and trains it through the service ExternalEpisodes, with nothing of Troupe's but its .proto:

    python3 examples/external_cartpole/play.py unix:runs/outside/external/episodes.sock

README.md beside it has the commands that make the stubs.
"""

import math
import random
import sys

import episodes_pb2 as pb
import episodes_pb2_grpc
import grpc

PATIENCE_S = 60  # to connect
GRAVITY, CART, POLE, LENGTH, FORCE, TAU = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02


class CartPole:
    """Barto, Sutton and Anderson's, as Gymnasium has it: 1 a step while the pole stands, 500 steps at most."""

    def reset(self):
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0
        return self.state

    def step(self, action):
        """-> (observation, reward, terminated, truncated)"""
        x, x_dot, theta, theta_dot = self.state
        force = FORCE if action == 1 else -FORCE
        sine, cosine = math.sin(theta), math.cos(theta)
        total = CART + POLE
        pushed = (force + POLE * LENGTH * theta_dot**2 * sine) / total
        theta_acc = (GRAVITY * sine - cosine * pushed) / (LENGTH * (4.0 / 3.0 - POLE * cosine**2 / total))
        x_acc = pushed - POLE * LENGTH * theta_acc * cosine / total
        self.state = [x + TAU * x_dot, x_dot + TAU * x_acc, theta + TAU * theta_dot, theta_dot + TAU * theta_acc]
        self.steps += 1
        fell = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * math.pi / 180
        return self.state, 1.0, fell, self.steps >= 500 and not fell


def play(stub, world):
    """One episode; its return."""
    episode = stub.StartEpisode(pb.StartEpisodeRequest(), timeout=60).episode_id
    observation, reward, total = world.reset(), 0.0, 0.0
    while True:
        seen = pb.AgentStep(agent_id="cart", observation=observation, reward=reward)
        # Waits for the policy, and now and then for an update of the learner.
        reply = stub.GetActions(pb.GetActionsRequest(episode_id=episode, agents=[seen]), timeout=60)
        observation, reward, terminated, truncated = world.step(reply.actions[0].discrete[0])
        total += reward
        if terminated or truncated:
            end = pb.EPISODE_END_TERMINATED if terminated else pb.EPISODE_END_TRUNCATED
            last = pb.AgentStep(agent_id="cart", observation=observation, reward=reward)
            stub.EndEpisode(pb.EndEpisodeRequest(episode_id=episode, end=end, agents=[last]), timeout=60)
            return total


def connect(address):
    """A channel to where the run's clients come: it may not have begun yet."""
    channel = grpc.insecure_channel(address, options=[("grpc.max_reconnect_backoff_ms", 1000)])
    print(f"waiting for a run at {address}, {PATIENCE_S} s at most", flush=True)
    try:
        grpc.channel_ready_future(channel).result(timeout=PATIENCE_S)
    except grpc.FutureTimeoutError:
        sys.exit(f"no run answers at {address}: got nothing in {PATIENCE_S} s, expected the address that `troupe train` says")
    return channel


def main():
    stub, world = episodes_pb2_grpc.ExternalEpisodesStub(connect(sys.argv[1])), CartPole()
    returns = []
    while True:
        try:
            returns.append(play(stub, world))
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.ABORTED, grpc.StatusCode.DEADLINE_EXCEEDED):
                continue  # the episode is over without us: begin another
            print(f"the run is over: {error.code().name}")
            return
        if len(returns) % 20 == 0:
            print(f"{len(returns)} episodes, the last 20 with a return of {sum(returns[-20:]) / 20:.1f}", flush=True)


if __name__ == "__main__":
    main()
