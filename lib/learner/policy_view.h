#pragma once

#include <memory>

#include "lib/policy/policy_table.h"
#include "lib/sample/batch_schema.h"

namespace troupe::learner {

/// The policies as of one revision, and the form that fragments have by them. Immutable and shared by pointer, so that
/// any thread checks a fragment without the learner's lock.
struct PolicyView {
  policy::PolicyTablePtr table;
  sample::BatchSchema schema;  ///< a free slot has an empty one of its `policies`
};
using PolicyViewPtr = std::shared_ptr<const PolicyView>;

/// `schema`, which is that of the view before or of the run's start, with the policies of `table`.
inline PolicyViewPtr MakePolicyView(policy::PolicyTablePtr table, sample::BatchSchema schema) {
  schema.SetPolicies(*table);
  return std::make_shared<const PolicyView>(PolicyView{std::move(table), std::move(schema)});
}

}  // namespace troupe::learner
