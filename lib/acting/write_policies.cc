// write_policies TABLE FOLDER [POLICY]: a checkpoint of the policies of a table (TABLE: a file with a policy_table of
// JSON), with random weights, for tests of what reads checkpoints in Python. POLICY: normalizes observations with a
// mean that is not finite as a float.

#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/base/status_macros.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/policy_table.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/testing.h"

namespace troupe {
namespace {

constexpr int64_t kEnvSteps = 400;

policy::PolicyState RandomState(const policy::PolicySpec& spec, bool damaged, std::mt19937* random) {
  policy::PolicyState state = storage::StateForTesting(spec, kEnvSteps).policies[0];
  std::vector<float> parameters(state.parameters().begin(), state.parameters().end());
  for (float& each : parameters) each = each == 0 ? 0 : std::normal_distribution<float>(0, 0.4f)(*random);
  state.Set(policy::kParameters, std::move(parameters));
  if (!spec.normalize_observations) return state;
  policy::RunningMoments moments = {.count = 100};
  for (int64_t i = 0; i < spec.observation_size(); ++i) {
    moments.mean.push_back(std::normal_distribution<double>(0, 1)(*random));
    moments.variance.push_back(i == 0 ? 0 : std::uniform_real_distribution<double>(0.1, 2)(*random));
  }
  if (damaged) moments.mean[0] = 1e300;
  state.SetMoments(policy::kObservationMoments, std::move(moments));
  return state;
}

absl::Status Write(const std::string& table_path, const std::string& folder, const std::string& damaged) {
  std::ifstream file(table_path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  TROUPE_ASSIGN_OR_RETURN(const policy::PolicyTablePtr table, policy::PolicyTableFromJson(text));
  std::mt19937 random(7);
  std::vector<policy::PolicySpec> specs;
  std::vector<policy::PolicyState> states;
  for (const policy::PolicySlot slot : table->entries().ids()) {
    specs.push_back(table->Find(slot)->spec);
    states.push_back(RandomState(specs.back(), specs.back().id.value() == damaged, &random));
    if (!specs.back().policy_class.has_weights()) states.back() = {.id = specs.back().id};
  }
  if (specs.empty()) return absl::InvalidArgumentError("the table has no policies, expected one");
  learner::LearnerState state = storage::StateForTesting(specs[0], kEnvSteps);
  state.policies = std::move(states);
  state.table = table;
  return storage::WriteCheckpointFiles(storage::FileSystem::Posix(), folder, state, specs,
                                       {.spec_hash = 42, .config_yaml = "seed: 1\n"});
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: write_policies TABLE FOLDER [POLICY]\n");
    return 2;
  }
  const absl::Status status = troupe::Write(argv[1], argv[2], argc == 4 ? argv[3] : "");
  if (!status.ok()) std::fprintf(stderr, "write_policies: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
