#include "lib/envs/testing/faulty.h"

#include <limits>
#include <map>
#include <stdexcept>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"

namespace troupe::envs {
namespace {

using env::AgentSlot;

constexpr int64_t kLength = 10;

env::EnvSpec MakeSpec() {
  env::EnvSpec spec;
  spec.name = "testing/faulty";
  for (const char* id : {"agent_0", "agent_1"}) {
    spec.possible_agents.push_back({.id = env::AgentId(id),
                                    .observation_space = *space::Space::Box(-1, 1, {2}),
                                    .action_space = *space::Space::Discrete(2)});
  }
  spec.max_episode_steps = kLength;
  return spec;
}

}  // namespace

Faulty::Faulty(Fault fault, int64_t at_step, bool every_episode)
    : spec_(MakeSpec()), fault_(fault), at_step_(at_step), every_episode_(every_episode) {}

absl::StatusOr<std::unique_ptr<Faulty>> Faulty::Make(env::EnvArgs args) {
  static const std::map<std::string, Fault>& faults =
      *new std::map<std::string, Fault>{{"none", Fault::kNone},
                                        {"throw", Fault::kThrow},
                                        {"nan_obs", Fault::kNanObs},
                                        {"wrong_agent", Fault::kWrongAgent},
                                        {"out_of_space", Fault::kOutOfSpace},
                                        {"missing_all", Fault::kMissingAll},
                                        {"bad_status", Fault::kBadStatus}};
  TROUPE_ASSIGN_OR_RETURN(const std::string name, args.GetString("fault", "none"));
  TROUPE_ASSIGN_OR_RETURN(const int64_t at_step, args.GetInt("at_step", 5, 0, kLength));
  TROUPE_ASSIGN_OR_RETURN(const bool every_episode, args.GetBool("every_episode", true));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("testing/faulty"));
  const auto fault = faults.find(name);
  if (fault == faults.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("argument fault is '", base::LogSafe(name),
                     "', expected none, throw, nan_obs, wrong_agent, out_of_space, missing_all or bad_status"));
  }
  return std::make_unique<Faulty>(fault->second, at_step, every_episode);
}

absl::Status Faulty::Reset(const env::EpisodeSeed&, env::StepWriter& out) {
  ++episodes_;
  t_ = 0;
  return Write(out);
}

absl::Status Faulty::Step(env::ActionRows, env::StepWriter& out) {
  ++t_;
  for (int32_t slot = 0; slot < 2; ++slot) out.AddReward(AgentSlot(slot), 1.0f);
  return Write(out);
}

absl::Status Faulty::Write(env::StepWriter& out) {
  const bool armed = every_episode_ || episodes_ == 1;
  const bool now = armed && t_ == at_step_;
  if (now && fault_ == Fault::kThrow) throw std::runtime_error("a fault on order");
  if (now && fault_ == Fault::kBadStatus) return absl::UnavailableError("a fault on order");
  for (int32_t slot = 0; slot < 2; ++slot) {
    float* row = out.ObserveFloat(AgentSlot(slot));
    row[0] = static_cast<float>(slot);
    row[1] = static_cast<float>(t_) / kLength;
    if (now && slot == 1 && fault_ == Fault::kNanObs) row[1] = std::numeric_limits<float>::quiet_NaN();
    if (now && slot == 1 && fault_ == Fault::kOutOfSpace) row[0] = 5;
  }
  if (now && fault_ == Fault::kWrongAgent) out.Observe(AgentSlot(2));
  if (t_ < kLength) return absl::OkStatus();
  if (armed && fault_ == Fault::kMissingAll) {
    for (int32_t slot = 0; slot < 2; ++slot) out.TerminateAgent(AgentSlot(slot));
  } else {
    out.TruncateAll();
  }
  return absl::OkStatus();
}

}  // namespace troupe::envs
