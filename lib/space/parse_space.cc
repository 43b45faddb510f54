// ParseSpace: a recursive-descent reader of the text that Space::ToString writes. The text comes from configuration, so
// depth and sizes are bounded.

#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/space/space.h"
#include "lib/space/space_limits.h"

namespace troupe::space {
namespace {

constexpr int kMaxDepth = 32;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  absl::StatusOr<Space> ParseAll() {
    TROUPE_ASSIGN_OR_RETURN(Space space, ParseOne(0));
    SkipBlanks();
    if (position_ != text_.size()) return Error("the end");
    return space;
  }

 private:
  absl::StatusOr<Space> ParseOne(int depth) {
    if (depth > kMaxDepth)
      return absl::InvalidArgumentError(absl::StrCat("space is nested deeper than ", kMaxDepth, " levels"));
    // Space counts with more care, and too late: each of them takes some 200 bytes.
    if (++num_spaces_ > kMaxParts) {
      return absl::InvalidArgumentError(absl::StrCat("space holds too many others: expected at most ", kMaxParts));
    }
    SkipBlanks();
    const size_t begin = position_;
    while (position_ < text_.size() && IsLetter(text_[position_])) ++position_;
    const std::string_view name = text_.substr(begin, position_ - begin);
    if (name == "Box") return ParseBox();
    if (name == "Discrete") return ParseDiscrete();
    if (name == "MultiDiscrete") return ParseMultiDiscrete();
    if (name == "MultiBinary") return ParseMultiBinary();
    if (name == "Dict") return ParseDict(depth);
    if (name == "Tuple") return ParseTuple(depth);
    position_ = begin;
    return Error("Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple");
  }

  absl::StatusOr<Space> ParseBox() {
    TROUPE_RETURN_IF_ERROR(Expect('('));
    TROUPE_ASSIGN_OR_RETURN(std::vector<double> low, ParseBounds());
    TROUPE_RETURN_IF_ERROR(Expect(','));
    TROUPE_ASSIGN_OR_RETURN(std::vector<double> high, ParseBounds());
    std::vector<int64_t> shape;
    tensor::DType dtype = tensor::DType::kFloat32;
    if (TryTake(',')) {
      SkipBlanks();
      if (Peek() == '[' || Peek() == '(') {
        TROUPE_ASSIGN_OR_RETURN(shape, Peek() == '(' ? ParseTupleOfIntegers() : ParseIntegers());
        if (TryTake(',')) {
          TROUPE_ASSIGN_OR_RETURN(dtype, ParseDType());
        }
      } else {
        TROUPE_ASSIGN_OR_RETURN(dtype, ParseDType());
      }
    }
    TROUPE_RETURN_IF_ERROR(Expect(')'));
    if (shape.empty()) {
      if (low_was_list_) {
        shape = {static_cast<int64_t>(low.size())};
      } else {
        return absl::InvalidArgumentError("Box has no shape, expected one like Box(-1, 1, [3])");
      }
    }
    if (low.size() == 1 && high.size() == 1) return Space::Box(low[0], high[0], std::move(shape), dtype);
    return Space::Box(std::move(low), std::move(high), std::move(shape), dtype);
  }

  absl::StatusOr<Space> ParseDiscrete() {
    TROUPE_RETURN_IF_ERROR(Expect('('));
    TROUPE_ASSIGN_OR_RETURN(const int64_t n, ParseInteger());
    int64_t start = 0;
    if (TryTake(',')) {
      SkipBlanks();
      if (text_.substr(position_, 5) == "start") {
        position_ += 5;
        TROUPE_RETURN_IF_ERROR(Expect('='));
      }
      TROUPE_ASSIGN_OR_RETURN(start, ParseInteger());
    }
    TROUPE_RETURN_IF_ERROR(Expect(')'));
    return Space::Discrete(n, start);
  }

  absl::StatusOr<Space> ParseMultiDiscrete() {
    TROUPE_RETURN_IF_ERROR(Expect('('));
    TROUPE_ASSIGN_OR_RETURN(std::vector<int64_t> nvec, ParseIntegers());
    TROUPE_RETURN_IF_ERROR(Expect(')'));
    return Space::MultiDiscrete(std::move(nvec));
  }

  absl::StatusOr<Space> ParseMultiBinary() {
    TROUPE_RETURN_IF_ERROR(Expect('('));
    TROUPE_ASSIGN_OR_RETURN(const int64_t n, ParseInteger());
    TROUPE_RETURN_IF_ERROR(Expect(')'));
    return Space::MultiBinary(n);
  }

  absl::StatusOr<Space> ParseDict(int depth) {
    TROUPE_RETURN_IF_ERROR(Expect('{'));
    std::vector<std::pair<std::string, Space>> items;
    do {
      TROUPE_ASSIGN_OR_RETURN(std::string key, ParseKey());
      TROUPE_RETURN_IF_ERROR(Expect(':'));
      TROUPE_ASSIGN_OR_RETURN(Space child, ParseOne(depth + 1));
      items.emplace_back(std::move(key), std::move(child));
    } while (TryTake(','));
    TROUPE_RETURN_IF_ERROR(Expect('}'));
    return Space::Dict(std::move(items));
  }

  absl::StatusOr<Space> ParseTuple(int depth) {
    TROUPE_RETURN_IF_ERROR(Expect('('));
    std::vector<Space> items;
    do {
      TROUPE_ASSIGN_OR_RETURN(Space child, ParseOne(depth + 1));
      items.push_back(std::move(child));
    } while (TryTake(','));
    TROUPE_RETURN_IF_ERROR(Expect(')'));
    return Space::Tuple(std::move(items));
  }

  absl::StatusOr<std::string> ParseKey() {
    SkipBlanks();
    std::string key;
    if (Peek() == '"') {
      ++position_;
      while (position_ < text_.size() && text_[position_] != '"') {
        if (text_[position_] == '\\' && position_ + 1 < text_.size()) ++position_;
        key.push_back(text_[position_++]);
      }
      if (position_ == text_.size()) return Error("a closing quote");
      ++position_;
      return key;
    }
    while (position_ < text_.size() &&
           (IsLetter(text_[position_]) || IsDigit(text_[position_]) || text_[position_] == '_')) {
      key.push_back(text_[position_++]);
    }
    if (key.empty()) return Error("a key");
    return key;
  }

  absl::StatusOr<tensor::DType> ParseDType() {
    using tensor::DType;
    SkipBlanks();
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64, DType::kUint8}) {
      const std::string_view name = tensor::DTypeName(dtype);
      if (text_.substr(position_, name.size()) == name) {
        position_ += name.size();
        return dtype;
      }
    }
    return Error("a shape, or one of float32, float64, int32, int64, uint8");
  }

  /// One number, or a list of them.
  absl::StatusOr<std::vector<double>> ParseBounds() {
    SkipBlanks();
    std::vector<double> bounds;
    low_was_list_ = Peek() == '[';
    if (!low_was_list_) {
      TROUPE_ASSIGN_OR_RETURN(const double bound, ParseDouble());
      bounds.push_back(bound);
      return bounds;
    }
    TROUPE_RETURN_IF_ERROR(Expect('['));
    do {
      TROUPE_ASSIGN_OR_RETURN(const double bound, ParseDouble());
      bounds.push_back(bound);
    } while (TryTake(','));
    TROUPE_RETURN_IF_ERROR(Expect(']'));
    return bounds;
  }

  absl::StatusOr<std::vector<int64_t>> ParseIntegers() {
    TROUPE_RETURN_IF_ERROR(Expect('['));
    std::vector<int64_t> values;
    do {
      TROUPE_ASSIGN_OR_RETURN(const int64_t value, ParseInteger());
      values.push_back(value);
    } while (TryTake(','));
    TROUPE_RETURN_IF_ERROR(Expect(']'));
    return values;
  }

  /// As Python writes a shape: (2, 3), or (4,).
  absl::StatusOr<std::vector<int64_t>> ParseTupleOfIntegers() {
    TROUPE_RETURN_IF_ERROR(Expect('('));
    std::vector<int64_t> values;
    do {
      SkipBlanks();
      if (!values.empty() && Peek() == ')') break;
      TROUPE_ASSIGN_OR_RETURN(const int64_t value, ParseInteger());
      values.push_back(value);
    } while (TryTake(','));
    TROUPE_RETURN_IF_ERROR(Expect(')'));
    return values;
  }

  absl::StatusOr<int64_t> ParseInteger() {
    SkipBlanks();
    int64_t value = 0;
    const std::from_chars_result result = std::from_chars(text_.data() + position_, text_.data() + text_.size(), value);
    if (result.ec != std::errc()) return Error("a 64-bit integer");
    position_ = static_cast<size_t>(result.ptr - text_.data());
    return value;
  }

  absl::StatusOr<double> ParseDouble() {
    SkipBlanks();
    double value = 0;
    // from_chars also takes "inf" and "nan"; the latter has no place in a bound and Space refuses it.
    const std::from_chars_result result = std::from_chars(text_.data() + position_, text_.data() + text_.size(), value);
    if (result.ec != std::errc()) return Error("a number");
    position_ = static_cast<size_t>(result.ptr - text_.data());
    return value;
  }

  absl::Status Expect(char c) {
    if (TryTake(c)) return absl::OkStatus();
    return Error(absl::StrCat("'", std::string(1, c), "'"));
  }

  bool TryTake(char c) {
    SkipBlanks();
    if (Peek() != c) return false;
    ++position_;
    return true;
  }

  void SkipBlanks() {
    while (position_ < text_.size() &&
           (text_[position_] == ' ' || text_[position_] == '\t' || text_[position_] == '\n'))
      ++position_;
  }

  char Peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  static bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
  static bool IsDigit(char c) { return c >= '0' && c <= '9'; }

  absl::Status Error(std::string_view expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat("space '", base::LogSafe(text_), "', column ", position_ + 1, ": got ",
                     position_ < text_.size() ? base::LogSafe(text_.substr(position_, 12)) : "the end", ", expected ",
                     std::string(expected)));
  }

  const std::string_view text_;
  size_t position_ = 0;
  int64_t num_spaces_ = 0;
  bool low_was_list_ = false;  ///< of the bounds read last
};

}  // namespace

absl::StatusOr<Space> ParseSpace(std::string_view text) { return Parser(text).ParseAll(); }

}  // namespace troupe::space
