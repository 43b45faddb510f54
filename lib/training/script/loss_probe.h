#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/policy/policy_fwd.h"
#include "lib/training/script/loss_script.h"

namespace troupe::training {

/// Runs the module on a few rows that the policy's shapes allow. INVALID_ARGUMENT, to stand behind the file's name,
/// where it fails, gives what LossScript::Run refuses, or a loss, a gradient or a metric that is not finite. Else the
/// columns that it names without a use for them: other numbers there change neither loss nor metrics nor gradients.
absl::StatusOr<std::vector<std::string>> TryLoss(const policy::PolicySpec& spec, const LossScript& script);

}  // namespace troupe::training
