#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/inference/backend.h"

namespace troupe::bench {

/// Ends the program with exit status 1 and the message where `status` is an error.
inline void Check(const char* program, const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", program, status.ToString().c_str());
  std::exit(1);
}

/// The back end that the value of --back_end names; INVALID_ARGUMENT with all names where there is none, so that nobody
/// takes the figures of another one for those of what was asked for.
inline absl::StatusOr<inference::Backend> BackendNamed(const std::string& name) {
  using inference::Backend;
  const std::vector<std::pair<std::string, Backend>> known = {
      {"auto", Backend::kAuto}, {"eigen", Backend::kEigen}, {"avx2", Backend::kAvx2}, {"avx512", Backend::kAvx512}};
  for (const auto& [known_name, back_end] : known) {
    if (known_name == name) return back_end;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--back_end: got \"", name, "\", expected one of ",
                   absl::StrJoin(known, ", ", [](std::string* out, const auto& entry) { *out += entry.first; })));
}

/// The same of a program's arguments; ends the program where there is none.
inline inference::Backend BackendOrExit(const char* program, const std::string& name) {
  const absl::StatusOr<inference::Backend> found = BackendNamed(name);
  Check(program, found.status());
  return *found;
}

/// The upper one of the two in the middle of an even number. `values` has one at least.
inline double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace troupe::bench
