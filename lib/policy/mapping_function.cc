#include "lib/policy/mapping_function.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "lib/base/nearest_name.h"
#include "lib/base/philox.h"
#include "lib/policy/python_callable.h"

namespace troupe::policy {
namespace {

absl::StatusOr<PolicyId> RoundRobin(const MappingQuestion& question) {
  const uint64_t turn = uint64_t{question.episode.env_id.value()} + question.episode.episode +
                        static_cast<uint64_t>(question.agent_slot.value());
  return question.policies[turn % question.policies.size()];
}

absl::StatusOr<PolicyId> SelfPlay(const MappingQuestion& question) {
  // Without the agent in the counter all of the rule's draw the same; no agent's slot has the highest bit.
  constexpr uint32_t kRules = uint32_t{1} << 31;
  base::PhiloxSequence random(base::PhiloxKey::Make(question.episode.seed, base::RandomStream::kMapping),
                              {.env_id = question.episode.env_id.value(),
                               .episode = question.episode.episode,
                               .slot = kRules | static_cast<uint32_t>(question.rule)});
  return question.policies[random.Below(static_cast<uint32_t>(question.policies.size()))];
}

absl::StatusOr<PolicyId> ByWorker(const MappingQuestion& question) {
  return question.policies[static_cast<size_t>(question.worker) % question.policies.size()];
}

// For tests: functions that fail in every other episode.
constexpr char kTesting[] = "testing/";
bool Fails(const EpisodeInfo& episode) { return (episode.env_id.value() + episode.episode) % 2 != 0; }

absl::StatusOr<PolicyId> Raises(const MappingQuestion& question) {
  if (!Fails(question.episode)) return question.policies[0];
  return absl::InternalError("there is nobody to play");
}

absl::StatusOr<PolicyId> UnknownPolicy(const MappingQuestion& question) {
  return Fails(question.episode) ? PolicyId("../x") : question.policies[0];
}

constexpr MappingFunction kFunctions[] = {
    {"round_robin", RoundRobin},
    {"self_play", SelfPlay},
    {"by_worker", ByWorker},
    {"testing/raises", Raises},
    {"testing/unknown_policy", UnknownPolicy},
};

}  // namespace

absl::StatusOr<const MappingFunction*> FindMappingFunction(std::string_view name) {
  std::vector<std::string> names;
  for (const MappingFunction& function : kFunctions) {
    if (function.name == name) return &function;
    const std::string known(function.name);
    if (!absl::StartsWith(known, kTesting)) names.push_back(known);
  }
  return base::NoSuchName("mapping function", name, names);
}

absl::Status CheckMappingFunction(std::string_view name) {
  return IsPythonName(name) ? ValidatePythonName(name) : FindMappingFunction(name).status();
}

}  // namespace troupe::policy
