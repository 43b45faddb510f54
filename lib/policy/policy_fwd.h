#pragma once

// For headers that only refer to these types: whoever includes policy_spec.h is compiled again with each change of it.

namespace troupe::policy {

struct NetworkSpec;
struct PolicyEntry;
struct PolicySpec;
class PolicyTable;

}  // namespace troupe::policy
