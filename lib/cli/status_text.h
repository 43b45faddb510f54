#pragma once

#include <cstddef>
#include <string>

#include "lib/rpc/worker/run_status.h"
#include <nlohmann/json_fwd.hpp>

namespace troupe::cli {

/// Of a learner's texts, whoever answers at its address: what is longer is cut.
inline constexpr size_t kMaxStatusTextBytes = 4096;

/// How a learner does, for programs (docs/cli.md, `status`).
nlohmann::ordered_json StatusJson(const rpc::RunStatus& status);
/// The same for people. Where agents' rewards differ a line for each policy stands in place of their returns' sum, of
/// at most run::kFewPolicies; the others are told as one.
std::string StatusText(const rpc::RunStatus& status);
/// A line of progress.jsonl, an object, for people, likewise.
std::string LineText(const nlohmann::ordered_json& line);

}  // namespace troupe::cli
