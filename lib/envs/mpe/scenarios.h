#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "lib/env/env_args.h"
#include "lib/envs/mpe/mpe_env.h"

namespace troupe::envs {

// The environments of mpe2 1.1.1, equal to the originals in dynamics, observations, rewards, ends and options.
// ParticleEnv says what they share: actions, truncation, global state. docs/environments.md gives arguments and
// observations. Each function reads mpe2's arguments; INVALID_ARGUMENT names the bad one.
//
// Positions in observations are relative to the observer unless they are its own; others are in the order of agents or
// landmarks. d is a distance, d2 its square.

/// `mpe/simple` (simple_v3): one agent goes to one landmark. Reward -d2.
absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimple(env::EnvArgs args);

/// `mpe/simple_adversary` (v3): N good agents know which of N landmarks is the goal, one adversary does not. Reward of
/// the good: the adversary's d to the goal minus the least d of a good agent; of the adversary: -d.
absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleAdversary(env::EnvArgs args);

/// `mpe/simple_crypto` (v3): Alice tells Bob one of two words over a public channel, with a key that Bob has and Eve
/// has not. Nobody moves. Reward of Eve: -|eve - word|^2; of Alice and Bob: |eve - word|^2 - |bob - word|^2; who says
/// nothing does not count.
absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleCrypto(env::EnvArgs args);

/// `mpe/simple_push` (v3): an agent goes to one of two landmarks, an adversary that does not know which pushes it away.
/// Reward of the agent: -d; of the adversary: the agent's d minus its own.
absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimplePush(env::EnvArgs args);

/// `mpe/simple_reference` (v3): each of two agents knows the other's goal among three landmarks and can tell on ten
/// channels. Reward: local_ratio * -(d of the other to its goal) + (1 - local_ratio) * -(mean d of both).
absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleReference(env::EnvArgs args);

/// `mpe/simple_speaker_listener` (v4): the speaker knows to which of three landmarks the listener shall go. Reward of
/// both: -d2.
absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleSpeakerListener(env::EnvArgs args);

/// `mpe/simple_spread` (v3; Lowe et al., "Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments",
/// 2017): N agents cover N landmarks and do not collide. Reward of an agent: (1 - local_ratio) * -(sum over landmarks
/// of the d to the nearest agent) + local_ratio * -(number of agents that it touches). Ends on success when each
/// landmark has an agent within 0.1. A curriculum stage counts from the next step on: 0, touching costs nothing; 1, it
/// does.
absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleSpread(env::EnvArgs args);

/// `mpe/simple_tag` (v3): slower adversaries chase good agents around obstacles. Reward of an adversary: 10 for each
/// good agent and adversary that touch; of a good agent: -10 for each adversary that touches it, and it pays for
/// leaving the arena. A curriculum stage counts from the next reset on.
absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleTag(env::EnvArgs args);

/// `mpe/simple_world_comm` (v3): simple_tag with food, forests that hide who is inside, and a leading adversary that
/// sees everybody and speaks on four channels.
absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleWorldComm(env::EnvArgs args);

/// `mpe/simple_formation` (v1): N agents form a circle of radius 0.5 around a landmark. Reward: minus the mean, over
/// the cheapest assignment of agents to places, of min(d, 2).
absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleFormation(env::EnvArgs args);

/// `mpe/simple_line` (v1): the same on a line between two landmarks.
absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleLine(env::EnvArgs args);

/// `mpe/collect_treasure` (v1): collectors carry treasures to the deposit of their type; treasures appear again
/// elsewhere in the step after they were picked up.
absl::StatusOr<std::unique_ptr<MpeEnv>> MakeCollectTreasure(env::EnvArgs args);

}  // namespace troupe::envs
