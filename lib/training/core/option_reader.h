#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

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
  /// Numbers that are schedules have their values at `now`.
  explicit OptionReader(const policy::AlgorithmSpec& spec, const ScheduleTime& now = {}) : spec_(spec), now_(now) {}

  void Read(std::string_view key, bool* member) { ReadAs(key, "a bool", member); }
  void Read(std::string_view key, int64_t* member) { ReadAs(key, "an integer", member); }
  void Read(std::string_view key, double* member);
  void Read(std::string_view key, std::string* member) { ReadAs(key, "a text", member); }
  void Read(std::string_view key, std::vector<std::string>* member) { ReadAs(key, "a list", member); }
  void Read(std::string_view key, std::optional<double>* member);
  /// A text that is one of `words`, pairs of value and word.
  template <typename Words, typename Member>
  void ReadWord(std::string_view key, const Words& words, Member* member) {
    std::string text;
    Read(key, &text);
    if (!Has(key) || !status_.ok()) return;
    std::string known;
    for (const auto& [value, word] : words) {
      if (text == word) {
        *member = value;
        return;
      }
      known += (known.empty() ? "" : ", ") + std::string(word);
    }
    Complain(key, "is \"" + text + "\"", "one of " + known);
  }
  template <typename Member>
  void Require(std::string_view key, Member* member) {
    if (!Has(key)) Complain(key, "is absent", "a value");
    Read(key, member);
  }
  absl::Status Finish() const;

 private:
  bool Has(std::string_view key) const { return spec_.options.find(key) != spec_.options.end(); }
  template <typename Member>
  void ReadAs(std::string_view key, std::string_view expected, Member* member);
  void Complain(std::string_view key, std::string_view got, std::string_view expected);

  const policy::AlgorithmSpec& spec_;
  const ScheduleTime now_;
  std::set<std::string, std::less<>> known_;
  absl::Status status_;
};

/// The word that stands for a value among `words`, pairs of value and word; "" where none does.
template <typename Words, typename Value>
std::string_view WordOf(const Words& words, const Value& value) {
  for (const auto& [known, word] : words) {
    if (known == value) return word;
  }
  return "";
}

/// INVALID_ARGUMENT: `algorithm.OPTION is GOT; expected EXPECTED`.
absl::Status OptionError(std::string_view option, double got, std::string_view expected);
/// The same unless the value is what the name says; a number has to be finite.
absl::Status CheckUnitInterval(std::string_view option, double value);
absl::Status CheckNotNegative(std::string_view option, double value);
absl::Status CheckPositive(std::string_view option, double value);

}  // namespace troupe::training
