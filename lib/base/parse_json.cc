#include "lib/base/parse_json.h"

#include <stdexcept>

#include "absl/strings/str_cat.h"

namespace troupe::base {
namespace {

using Json = nlohmann::json;
using Event = Json::parse_event_t;

/// Thrown through the parser, which has no other way out.
struct LimitExceeded : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Watches a parse: leaves out what is not wanted and counts the rest.
class Watcher {
 public:
  explicit Watcher(const JsonLimits& limits) : limits_(limits) {}

  bool operator()(int depth, Event event, const Json& value) {
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (opens && depth >= limits_.max_depth) {
      throw LimitExceeded(absl::StrCat("is nested more than ", limits_.max_depth, " deep"));
    }
    if (left_out_ > 0) {
      // The end of a container that was left out is not told: the next key, or the end around it, is.
      if (depth > left_out_ || (depth == left_out_ && event != Event::key)) return true;
      left_out_ = 0;
    }
    if (event == Event::object_end || event == Event::array_end) return true;
    if (event == Event::key && limits_.keep && !limits_.keep(depth, value.get_ref<const std::string&>())) {
      left_out_ = depth;
      return false;
    }
    if (++values_ > limits_.max_values) {
      throw LimitExceeded(absl::StrCat("holds more than ", limits_.max_values, " values"));
    }
    return true;
  }

 private:
  const JsonLimits& limits_;
  size_t values_ = 0;
  int left_out_ = 0;  // depth of the key whose value is left out; 0: none
};

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("has ", text.size(), " bytes, expected at most ", limits.max_bytes));
  }
  Watcher watcher(limits);
  try {
    return Json::parse(text.begin(), text.end(),
                       [&watcher](int depth, Event event, Json& value) { return watcher(depth, event, value); });
  } catch (const LimitExceeded& error) {
    return absl::InvalidArgumentError(error.what());
  } catch (const Json::parse_error& error) {
    return absl::InvalidArgumentError(absl::StrCat("is not JSON from byte ", error.byte, " on"));
  } catch (const Json::exception&) {  // a number that no double holds
    return absl::InvalidArgumentError("is not JSON that can be read");
  }
}

int64_t JsonInteger(const Json& value) { return value.get_ref<const Json::number_integer_t&>(); }

}  // namespace troupe::base
