"""Plays cart-pole in plain Python and trains it through the service ExternalEpisodes, with nothing of Troupe's but its .proto:

    pip install grpcio protobuf grpcio-tools
    python3 -m grpc_tools.protoc -I proto/troupe/v1 --python_out=. --grpc_python_out=. episodes.proto
    python3 play.py unix:runs/outside/external/episodes.sock
"""

import sys
import time

import episodes_pb2 as pb
import episodes_pb2_grpc
import grpc
from cartpole import CartPole


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


def main():
    stub, world = episodes_pb2_grpc.ExternalEpisodesStub(grpc.insecure_channel(sys.argv[1])), CartPole()
    returns = []
    while True:
        try:
            returns.append(play(stub, world))
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.ABORTED, grpc.StatusCode.DEADLINE_EXCEEDED):
                continue  # the episode is over without us: begin another
            if error.code() == grpc.StatusCode.UNAVAILABLE and not returns:
                time.sleep(0.5)  # the run has not begun yet
                continue
            print(f"the run is over: {error.code().name}")
            return
        if len(returns) % 20 == 0:
            print(f"{len(returns)} episodes, the last 20 with a return of {sum(returns[-20:]) / 20:.1f}", flush=True)


if __name__ == "__main__":
    main()
