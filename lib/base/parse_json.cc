#include "lib/base/parse_json.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace troupe::base {
namespace {

using Json = nlohmann::json;

/// Makes a tree of a parse's events: leaves out what is not wanted and counts the rest. Not nlohmann's own tree with a
/// callback: that looks at every member of an object again after each container in it, which is quadratic.
class TreeMaker final : public nlohmann::json_sax<Json> {
 public:
  explicit TreeMaker(const JsonLimits& limits) : limits_(limits) {}

  Json TakeTree() { return std::move(root_); }
  /// Why the parse ended before the text did.
  const std::string& error() const { return error_; }

  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t&) override { return Put(value); }
  bool string(string_t& value) override { return Put(std::move(value)); }
  bool binary(binary_t&) override { return Fail("holds bytes, which JSON has not"); }
  bool start_object(std::size_t) override { return Open(Json::value_t::object); }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(Json::value_t::array); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    if (left_out_ > 0) return true;
    if (limits_.keep && !limits_.keep(depth_, name)) {
      left_out_ = depth_;
      return true;
    }
    member_ = &(*open_.back())[name];
    return Count();
  }

  bool parse_error(std::size_t byte, const std::string&, const nlohmann::detail::exception& error) override {
    constexpr int kNumberNoDoubleHolds = 406;
    if (error.id == kNumberNoDoubleHolds) return Fail("is not JSON that can be read");
    return Fail(absl::StrCat("is not JSON from byte ", byte, " on"));
  }

 private:
  bool Fail(std::string error) {
    error_ = std::move(error);
    return false;
  }
  bool Count() {
    if (++values_ <= limits_.max_values) return true;
    return Fail(absl::StrCat("holds more than ", limits_.max_values, " values"));
  }
  /// Where the next value of the innermost container goes.
  template <typename Value>
  Json* Add(Value&& value) {
    if (open_.empty()) {
      root_ = Json(std::forward<Value>(value));
      return &root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(Json(std::forward<Value>(value)));
      return &open_.back()->back();
    }
    *member_ = Json(std::forward<Value>(value));
    return member_;
  }
  template <typename Value>
  bool Put(Value&& value) {
    if (left_out_ > 0) {
      if (depth_ == left_out_) left_out_ = 0;
      return true;
    }
    if (!Count()) return false;
    Add(std::forward<Value>(value));
    return true;
  }
  bool Open(Json::value_t kind) {
    if (depth_ >= limits_.max_depth) return Fail(absl::StrCat("is nested more than ", limits_.max_depth, " deep"));
    ++depth_;
    if (left_out_ > 0) return true;
    if (!Count()) return false;
    open_.push_back(Add(kind));
    return true;
  }
  bool Close() {
    --depth_;
    if (left_out_ == 0) {
      open_.pop_back();
    } else if (depth_ == left_out_) {
      left_out_ = 0;
    }
    return true;
  }

  const JsonLimits& limits_;
  Json root_;
  std::vector<Json*> open_;  ///< containers that are kept, from the outermost one
  Json* member_ = nullptr;   ///< of the innermost object: whose key came last
  std::string error_;
  size_t values_ = 0;
  int depth_ = 0;     ///< containers that are open, kept or not
  int left_out_ = 0;  ///< depth of the key whose value is left out; 0: none
};

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("has ", text.size(), " bytes, expected at most ", limits.max_bytes));
  }
  TreeMaker tree(limits);
  try {
    if (Json::sax_parse(text.begin(), text.end(), &tree)) return tree.TakeTree();
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError("is not JSON that can be read");
  }
  return absl::InvalidArgumentError(tree.error());
}

int64_t JsonInteger(const Json& value) { return value.get_ref<const Json::number_integer_t&>(); }

}  // namespace troupe::base
