#include "lib/envs/testing/signals.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::envs {
namespace {

using env::AgentSlot;
using space::Space;

constexpr int64_t kLength = 8;
constexpr int64_t kRows = 4;
constexpr int64_t kColumns = 6;

env::EnvSpec MakeSpec(bool dict, bool hybrid) {
  const Space image = *Space::Box(0, 255, {kRows, kColumns, 1}, tensor::DType::kUint8);
  const Space pick = *Space::Discrete(3);
  const Space action =
      hybrid ? *Space::Dict({{"aim", *Space::Box(-1, 1, {1})}, {"pick", pick}, {"switches", *Space::MultiBinary(2)}})
             : pick;
  env::EnvSpec spec;
  spec.name = "testing/signals";
  for (const char* id : {"agent_0", "agent_1"}) {
    const Space observation = dict ? *Space::Dict({{"action_mask", *Space::MultiBinary(action.mask_size())},
                                                   {"image", image},
                                                   {"state", *Space::Box(0, 2, {2})}})
                                   : image;
    spec.possible_agents.push_back(
        {.id = env::AgentId(id), .observation_space = observation, .action_space = action, .has_action_mask = !dict});
  }
  spec.max_episode_steps = kLength;
  return spec;
}

/// One byte or float for every category; returns the end.
template <typename T>
T* WriteMask(int32_t signal, bool hybrid, T* mask) {
  for (int32_t pick = 0; pick < 3; ++pick) *mask++ = pick == (signal + 1) % 3 ? T{0} : T{1};
  if (hybrid) {
    for (const int allowed : {1, 1, 1, 0}) *mask++ = static_cast<T>(allowed);
  }
  return mask;
}

template <typename T>
T* WriteImage(int32_t signal, T* image) {
  for (int64_t i = 0; i < kRows * kColumns; ++i) *image++ = (i % kColumns) / 2 == signal ? T{255} : T{0};
  return image;
}

}  // namespace

Signals::Signals(bool dict, bool hybrid)
    : spec_(MakeSpec(dict, hybrid)),
      dict_(dict),
      hybrid_(hybrid),
      random_(env::EpisodeSeed().Sequence(base::RandomStream::kDynamics)) {}

absl::StatusOr<std::unique_ptr<Signals>> Signals::Make(env::EnvArgs args) {
  TROUPE_ASSIGN_OR_RETURN(const bool dict, args.GetBool("dict", false));
  TROUPE_ASSIGN_OR_RETURN(const bool hybrid, args.GetBool("hybrid", false));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("testing/signals"));
  return std::make_unique<Signals>(dict, hybrid);
}

absl::Status Signals::Reset(const env::EpisodeSeed& seed, env::StepWriter& out) {
  random_ = seed.Sequence(base::RandomStream::kDynamics);
  t_ = 0;
  Write(out);
  return absl::OkStatus();
}

absl::Status Signals::Step(env::ActionRows actions, env::StepWriter& out) {
  ++t_;
  for (size_t i = 0; i < signal_.size(); ++i) {
    const space::ActionWord* const action = actions[i];
    const int32_t pick = action[hybrid_ ? 1 : 0].i32;
    if (pick == (signal_[i] + 1) % 3 || (hybrid_ && action[3].i32 != 0)) {
      return absl::InternalError(absl::StrCat("testing/signals: agent_", i, " did what its mask forbids in step ", t_));
    }
    float reward = pick == signal_[i] ? 1.0f : 0.0f;
    if (hybrid_) reward += 0.5f - 0.5f * std::abs(action[0].f32 - static_cast<float>(signal_[i] - 1));
    out.AddReward(AgentSlot(static_cast<int32_t>(i)), reward);
  }
  Write(out);
  if (t_ == kLength) out.TruncateAll();
  return absl::OkStatus();
}

void Signals::Write(env::StepWriter& out) {
  for (int32_t& signal : signal_) signal = static_cast<int32_t>(random_.Below(3));
  for (size_t i = 0; i < signal_.size(); ++i) {
    const AgentSlot slot(static_cast<int32_t>(i));
    if (dict_) {
      float* row = WriteImage(signal_[i], WriteMask(signal_[i], hybrid_, out.ObserveFloat(slot)));
      for (const int32_t signal : signal_) *row++ = static_cast<float>(signal);
    } else {
      WriteImage(signal_[i], static_cast<uint8_t*>(out.Observe(slot)));
      WriteMask(signal_[i], hybrid_, out.ActionMask(slot));
    }
  }
}

}  // namespace troupe::envs
