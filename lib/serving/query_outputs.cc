#include "lib/serving/query_outputs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/policy/policy_spec.h"
#include "lib/space/space.h"

namespace troupe::serving {
namespace {

constexpr const char* kNames[kNumQueryOutputs] = {"action", "sampled_action", "log_prob", "state_out",
                                                  "logits", "mean",           "value"};

int64_t SizeOf(const policy::PolicySpec& spec, space::ActionLeaf::Kind kind) {
  if (!spec.policy_class.has_weights()) return 0;
  int64_t size = 0;
  for (const space::ActionLeaf& leaf : space::ActionLeaves(spec.action_space)) {
    if (leaf.kind == kind) size += kind == space::ActionLeaf::Kind::kCategorical ? leaf.categories : leaf.words;
  }
  return size;
}

bool Gives(const policy::PolicySpec& spec, bool has_values, QueryOutput output) {
  switch (output) {
    case QueryOutput::kStateOut:
      return spec.actor_state_size() > 0;
    case QueryOutput::kLogits:
      return LogitsSize(spec) > 0;
    case QueryOutput::kMean:
      return MeanSize(spec) > 0;
    case QueryOutput::kValue:
      return has_values;
    case QueryOutput::kAction:
    case QueryOutput::kSampledAction:
    case QueryOutput::kLogProb:
      return true;
  }
  return false;
}

}  // namespace

int64_t LogitsSize(const policy::PolicySpec& spec) { return SizeOf(spec, space::ActionLeaf::Kind::kCategorical); }
int64_t MeanSize(const policy::PolicySpec& spec) { return SizeOf(spec, space::ActionLeaf::Kind::kContinuous); }

std::vector<std::string> OutputNamesOf(const policy::PolicySpec& spec, bool has_values) {
  std::vector<std::string> names;
  for (size_t i = 0; i < kNumQueryOutputs; ++i) {
    if (Gives(spec, has_values, static_cast<QueryOutput>(i))) names.emplace_back(kNames[i]);
  }
  return names;
}

absl::StatusOr<QueryOutputs> ParseOutputs(const policy::PolicySpec& spec, bool has_values,
                                          absl::Span<const std::string> names) {
  if (names.empty()) return QueryOutputs::Usual();
  if (names.size() > std::size(kNames)) {
    return absl::InvalidArgumentError(
        absl::StrCat("outputs has ", names.size(), " names, expected at most ", std::size(kNames)));
  }
  QueryOutputs outputs;
  for (const std::string& name : names) {
    const auto* const found = std::find(std::begin(kNames), std::end(kNames), name);
    const auto output = static_cast<QueryOutput>(found - std::begin(kNames));
    if (found == std::end(kNames) || !Gives(spec, has_values, output)) {
      return absl::InvalidArgumentError(absl::StrCat("policy \"", spec.id.value(), "\": it has no output \"",
                                                     base::LogSafe(name, 64), "\", expected ",
                                                     absl::StrJoin(OutputNamesOf(spec, has_values), ", ")));
    }
    outputs.Add(output);
  }
  return outputs;
}

}  // namespace troupe::serving
