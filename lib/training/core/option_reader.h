#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "lib/policy/algorithm_spec.h"
#include "lib/training/core/schedule.h"

namespace troupe::training {

/// Reads the options of an AlgorithmSpec into the members of an algorithm's struct:
///   OptionReader reader(spec);
///   reader.Read("gamma", &options.gamma);           // absent: the member keeps its default
///   reader.Require("minibatch_size", &options.minibatch_size);
///   TROUPE_RETURN_IF_ERROR(reader.Finish());
/// Finish says what was wrong first, INVALID_ARGUMENT: a value of another type, a required key that is absent, a key
/// that nobody read. Ranges are the schema's; what arithmetic cannot bear is checked by the algorithm (the functions
/// below). Lives for one parse; `spec` outlives it.
class OptionReader {
 public:
  explicit OptionReader(const policy::AlgorithmSpec& spec) : spec_(spec) {}

  void Read(std::string_view key, bool* member) { ReadAs(key, "a bool", member); }
  void Read(std::string_view key, int64_t* member) { ReadAs(key, "an integer", member); }
  void Read(std::string_view key, double* member) { ReadAs(key, "a number", member); }
  void Read(std::string_view key, std::string* member) { ReadAs(key, "a text", member); }
  void Read(std::string_view key, LinearSchedule* member);
  template <typename Member>
  void Require(std::string_view key, Member* member) {
    if (spec_.options.find(key) == spec_.options.end()) Complain(key, "is absent", "a value");
    Read(key, member);
  }
  absl::Status Finish() const;

 private:
  template <typename Member>
  void ReadAs(std::string_view key, std::string_view expected, Member* member);
  void Complain(std::string_view key, std::string_view got, std::string_view expected);

  const policy::AlgorithmSpec& spec_;
  std::set<std::string, std::less<>> known_;
  absl::Status status_;
};

/// INVALID_ARGUMENT: `algorithm.OPTION is GOT; expected EXPECTED`.
absl::Status OptionError(std::string_view option, double got, std::string_view expected);
/// The same unless the value is what the name says; a number has to be finite.
absl::Status CheckUnitInterval(std::string_view option, double value);
absl::Status CheckNotNegative(std::string_view option, double value);
absl::Status CheckPositive(std::string_view option, double value);
absl::Status CheckSchedule(std::string_view option, const LinearSchedule& schedule);

}  // namespace troupe::training
