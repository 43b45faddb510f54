#include "lib/space/space.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/check.h"
#include "lib/base/status_macros.h"

namespace troupe::space {
namespace {

using tensor::DType;

/// The shortest text that reads back as the same number.
std::string NumberText(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const std::to_chars_result result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

std::string NumberList(const std::vector<double>& values) {
  return absl::StrCat("[", absl::StrJoin(values, ", ", [](std::string* out, double v) { out->append(NumberText(v)); }),
                      "]");
}

bool IsPlainKey(std::string_view key) {
  if (key.empty() || (key[0] >= '0' && key[0] <= '9')) return false;
  return std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::string KeyText(const std::string& key) {
  if (IsPlainKey(key)) return key;
  std::string quoted = "\"";
  for (const char c : key) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(c);
  }
  quoted.push_back('"');
  return quoted;
}

absl::Status TooLarge(std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(what), " is too large: expected at most ", Space::kMaxElements, " elements"));
}

bool IsBoxDType(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kInt32 || dtype == DType::kInt64 ||
         dtype == DType::kUint8;
}

/// The range of an integer dtype that a float row can hold exactly is enough for what environments give; bounds outside
/// the dtype's own range are refused.
absl::Status CheckIntegerBounds(DType dtype, double low, double high) {
  if (dtype == DType::kFloat32 || dtype == DType::kFloat64) return absl::OkStatus();
  const bool uint8 = dtype == DType::kUint8;
  const double least = uint8 ? 0.0 : dtype == DType::kInt32 ? -0x1p31 : -0x1p63;
  const double most = uint8 ? 255.0 : dtype == DType::kInt32 ? 0x1p31 - 1 : 0x1p63;
  const bool whole = std::floor(low) == low && std::floor(high) == high;
  if (low < least || high > most || !whole) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Box of ", std::string(tensor::DTypeName(dtype)), ": bounds are ", NumberText(low), " and ", NumberText(high),
        ", expected whole numbers in [", NumberText(least), ", ", NumberText(most), "]"));
  }
  return absl::OkStatus();
}

}  // namespace

struct Space::Node {
  SpaceKind kind = SpaceKind::kNone;
  std::vector<int64_t> shape;
  std::vector<double> low;
  std::vector<double> high;
  DType dtype = DType::kFloat32;
  bool bounded = true;
  int64_t n = 0;
  int64_t start = 0;
  std::vector<int64_t> nvec;
  std::vector<Space> children;
  std::vector<std::string> keys;
  int64_t flat_size = 0;
  int64_t action_words = 0;
  int64_t mask_size = 0;
  std::string text;
};

absl::StatusOr<Space> Space::Box(double low, double high, std::vector<int64_t> shape, DType dtype) {
  int64_t elements = 1;
  for (const int64_t dimension : shape) {
    if (dimension <= 0)
      return absl::InvalidArgumentError(absl::StrCat("Box shape has dimension ", dimension, ", expected at least 1"));
    if (dimension > kMaxElements / elements) return TooLarge("Box");
    elements *= dimension;
  }
  const size_t count = static_cast<size_t>(elements);
  return Box(std::vector<double>(count, low), std::vector<double>(count, high), std::move(shape), dtype);
}

absl::StatusOr<Space> Space::Box(std::vector<double> low, std::vector<double> high, std::vector<int64_t> shape,
                                 DType dtype) {
  if (shape.empty()) return absl::InvalidArgumentError("Box shape is empty, expected at least one dimension");
  if (!IsBoxDType(dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("Box dtype is ", std::string(tensor::DTypeName(dtype)),
                                                   ", expected float32, float64, int32, int64 or uint8"));
  }
  int64_t elements = 1;
  for (const int64_t dimension : shape) {
    if (dimension <= 0)
      return absl::InvalidArgumentError(absl::StrCat("Box shape has dimension ", dimension, ", expected at least 1"));
    if (dimension > kMaxElements / elements) return TooLarge("Box");
    elements *= dimension;
  }
  if (static_cast<int64_t>(low.size()) != elements || static_cast<int64_t>(high.size()) != elements) {
    return absl::InvalidArgumentError(absl::StrCat("Box has ", low.size(), " low and ", high.size(),
                                                   " high bounds, expected ", elements, " of each for its shape"));
  }
  auto node = std::make_shared<Node>();
  bool uniform = true;
  for (size_t i = 0; i < low.size(); ++i) {
    if (std::isnan(low[i]) || std::isnan(high[i]) || low[i] > high[i]) {
      return absl::InvalidArgumentError(absl::StrCat("Box bounds of element ", i, " are ", NumberText(low[i]), " and ",
                                                     NumberText(high[i]), ", expected numbers with low <= high"));
    }
    TROUPE_RETURN_IF_ERROR(CheckIntegerBounds(dtype, low[i], high[i]));
    node->bounded = node->bounded && std::isfinite(low[i]) && std::isfinite(high[i]);
    uniform = uniform && low[i] == low[0] && high[i] == high[0];
  }
  node->kind = SpaceKind::kBox;
  node->flat_size = elements;
  node->action_words = elements;
  node->dtype = dtype;
  node->text = absl::StrCat("Box(", uniform ? NumberText(low[0]) : NumberList(low), ", ",
                            uniform ? NumberText(high[0]) : NumberList(high), ", [", absl::StrJoin(shape, ", "), "]",
                            dtype == DType::kFloat32 ? "" : ", ",
                            dtype == DType::kFloat32 ? std::string() : std::string(tensor::DTypeName(dtype)), ")");
  node->shape = std::move(shape);
  node->low = std::move(low);
  node->high = std::move(high);
  return Space(std::move(node));
}

absl::StatusOr<Space> Space::Discrete(int64_t n, int64_t start) {
  if (n < 1) return absl::InvalidArgumentError(absl::StrCat("Discrete has n = ", n, ", expected at least 1"));
  if (n > kMaxElements) return TooLarge("Discrete");
  constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (start < kLeast || start > kMost - n + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("Discrete starts at ", start, ", expected all ", n, " values to be 32-bit integers"));
  }
  auto node = std::make_shared<Node>();
  node->kind = SpaceKind::kDiscrete;
  node->n = n;
  node->start = start;
  node->flat_size = n;
  node->action_words = 1;
  node->mask_size = n;
  node->text = start == 0 ? absl::StrCat("Discrete(", n, ")") : absl::StrCat("Discrete(", n, ", ", start, ")");
  return Space(std::move(node));
}

absl::StatusOr<Space> Space::MultiDiscrete(std::vector<int64_t> nvec) {
  if (nvec.empty()) return absl::InvalidArgumentError("MultiDiscrete is empty, expected at least one component");
  auto node = std::make_shared<Node>();
  for (const int64_t n : nvec) {
    if (n < 1)
      return absl::InvalidArgumentError(absl::StrCat("MultiDiscrete has a component of ", n, ", expected at least 1"));
    if (n > kMaxElements - node->flat_size) return TooLarge("MultiDiscrete");
    node->flat_size += n;
  }
  node->kind = SpaceKind::kMultiDiscrete;
  node->action_words = static_cast<int64_t>(nvec.size());
  node->mask_size = node->flat_size;
  node->text = absl::StrCat("MultiDiscrete([", absl::StrJoin(nvec, ", "), "])");
  node->nvec = std::move(nvec);
  return Space(std::move(node));
}

absl::StatusOr<Space> Space::MultiBinary(int64_t n) {
  if (n < 1) return absl::InvalidArgumentError(absl::StrCat("MultiBinary has n = ", n, ", expected at least 1"));
  if (n > kMaxElements / 2) return TooLarge("MultiBinary");
  auto node = std::make_shared<Node>();
  node->kind = SpaceKind::kMultiBinary;
  node->n = n;
  node->flat_size = n;
  node->action_words = n;
  node->mask_size = 2 * n;
  node->text = absl::StrCat("MultiBinary(", n, ")");
  return Space(std::move(node));
}

absl::StatusOr<Space> Space::Dict(std::vector<std::pair<std::string, Space>> items) {
  std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Space> children;
  std::vector<std::string> keys;
  for (auto& [key, child] : items) {
    if (!keys.empty() && keys.back() == key)
      return absl::InvalidArgumentError(absl::StrCat("Dict has the key '", key, "' twice"));
    keys.push_back(key);
    children.push_back(std::move(child));
  }
  TROUPE_ASSIGN_OR_RETURN(Space tuple, Tuple(std::move(children)));
  auto node = std::make_shared<Node>(*tuple.node_);
  node->kind = SpaceKind::kDict;
  node->text = "Dict{";
  for (size_t i = 0; i < keys.size(); ++i) {
    absl::StrAppend(&node->text, i == 0 ? "" : ", ", KeyText(keys[i]), ": ", node->children[i].ToString());
  }
  node->text.push_back('}');
  node->keys = std::move(keys);
  return Space(std::move(node));
}

absl::StatusOr<Space> Space::Tuple(std::vector<Space> items) {
  if (items.empty()) return absl::InvalidArgumentError("Dict or Tuple is empty, expected at least one space");
  auto node = std::make_shared<Node>();
  node->kind = SpaceKind::kTuple;
  node->text = "Tuple(";
  for (const Space& item : items) {
    if (!item.has_value()) return absl::InvalidArgumentError("Dict or Tuple holds a space that was never set");
    node->flat_size += item.flat_size();
    node->action_words += item.action_words();
    node->mask_size += item.mask_size();
    if (node->flat_size > kMaxElements || node->mask_size > kMaxElements) return TooLarge("Dict or Tuple");
    absl::StrAppend(&node->text, &item == items.data() ? "" : ", ", item.ToString());
  }
  node->text.push_back(')');
  node->children = std::move(items);
  return Space(std::move(node));
}

SpaceKind Space::kind() const { return node_ == nullptr ? SpaceKind::kNone : node_->kind; }

absl::Span<const int64_t> Space::shape() const {
  TROUPE_CHECK(kind() == SpaceKind::kBox);
  return node_->shape;
}
absl::Span<const double> Space::low() const {
  TROUPE_CHECK(kind() == SpaceKind::kBox);
  return node_->low;
}
absl::Span<const double> Space::high() const {
  TROUPE_CHECK(kind() == SpaceKind::kBox);
  return node_->high;
}
DType Space::dtype() const {
  TROUPE_CHECK(kind() == SpaceKind::kBox);
  return node_->dtype;
}
bool Space::bounded() const {
  TROUPE_CHECK(kind() == SpaceKind::kBox);
  return node_->bounded;
}
int64_t Space::n() const {
  TROUPE_CHECK(kind() == SpaceKind::kDiscrete || kind() == SpaceKind::kMultiBinary);
  return node_->n;
}
int64_t Space::start() const {
  TROUPE_CHECK(kind() == SpaceKind::kDiscrete);
  return node_->start;
}
absl::Span<const int64_t> Space::nvec() const {
  TROUPE_CHECK(kind() == SpaceKind::kMultiDiscrete);
  return node_->nvec;
}
absl::Span<const Space> Space::children() const {
  if (node_ == nullptr) return {};
  return node_->children;
}
absl::Span<const std::string> Space::keys() const {
  if (node_ == nullptr) return {};
  return node_->keys;
}

int64_t Space::flat_size() const { return node_ == nullptr ? 0 : node_->flat_size; }
DType Space::flat_dtype() const {
  return kind() == SpaceKind::kBox && node_->dtype == DType::kUint8 ? DType::kUint8 : DType::kFloat32;
}
int64_t Space::action_words() const { return node_ == nullptr ? 0 : node_->action_words; }
int64_t Space::mask_size() const { return node_ == nullptr ? 0 : node_->mask_size; }
std::string Space::ToString() const { return node_ == nullptr ? "None" : node_->text; }

namespace {

void AppendLeaves(const Space& space, std::vector<ActionLeaf>* leaves, int64_t* word, int64_t* mask_offset) {
  const auto add_categorical = [&](int64_t categories, int64_t start) {
    leaves->push_back(ActionLeaf{.kind = ActionLeaf::Kind::kCategorical,
                                 .word = *word,
                                 .categories = categories,
                                 .start = start,
                                 .mask_offset = *mask_offset});
    *word += 1;
    *mask_offset += categories;
  };
  switch (space.kind()) {
    case SpaceKind::kNone:
      return;
    case SpaceKind::kBox: {
      ActionLeaf leaf{.kind = ActionLeaf::Kind::kContinuous, .word = *word, .words = space.action_words()};
      for (const double low : space.low()) leaf.low.push_back(static_cast<float>(low));
      for (const double high : space.high()) leaf.high.push_back(static_cast<float>(high));
      *word += leaf.words;
      leaves->push_back(std::move(leaf));
      return;
    }
    case SpaceKind::kDiscrete:
      add_categorical(space.n(), space.start());
      return;
    case SpaceKind::kMultiDiscrete:
      for (const int64_t n : space.nvec()) add_categorical(n, 0);
      return;
    case SpaceKind::kMultiBinary:
      for (int64_t i = 0; i < space.n(); ++i) add_categorical(2, 0);
      return;
    case SpaceKind::kDict:
    case SpaceKind::kTuple:
      for (const Space& child : space.children()) AppendLeaves(child, leaves, word, mask_offset);
      return;
  }
}

}  // namespace

std::vector<ActionLeaf> ActionLeaves(const Space& space) {
  std::vector<ActionLeaf> leaves;
  int64_t word = 0;
  int64_t mask_offset = 0;
  AppendLeaves(space, &leaves, &word, &mask_offset);
  return leaves;
}

}  // namespace troupe::space
