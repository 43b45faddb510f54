"""Plays cart-pole in plain Python and trains it through the service ExternalEpisodes, with nothing of Troupe's but its .proto:

    python3 examples/external_cartpole/play.py unix:runs/outside/external/episodes.sock

README.md beside it has the commands that make the stubs.
"""

import sys

import episodes_pb2 as pb
import episodes_pb2_grpc
import grpc
from cartpole import CartPole

PATIENCE_S = 60  # to connect


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
    channel = grpc.insecure_channel(address, options=[("grpc.max_reconnect_backoff_ms", 1000), ("grpc.enable_http_proxy", 0)])
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
            if ("troupe-run", "ended") in (error.trailing_metadata() or ()):
                print("the run has ended")
                return
            sys.exit(f"no more answers: {error.code().name}")
        if len(returns) % 20 == 0:
            print(f"{len(returns)} episodes, the last 20 with a return of {sum(returns[-20:]) / 20:.1f}", flush=True)


if __name__ == "__main__":
    main()
