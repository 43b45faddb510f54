#include "lib/serving/weight_source.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/policy/policy_spec.h"

namespace troupe::serving {

absl::StatusOr<policy::WeightSnapshotPtr> WeightSource::LoadValues(const policy::PolicySpec& spec) {
  return absl::UnimplementedError(absl::StrCat("policy \"", spec.id.value(), "\": there is no critic here"));
}

}  // namespace troupe::serving
