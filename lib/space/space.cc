#include "lib/space/space.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/space/space_limits.h"

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

absl::Status TooManyParts(std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(what), " has too many parts: expected at most ", kMaxParts));
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

absl::StatusOr<int64_t> CheckBox(const std::vector<int64_t>& shape, DType dtype) {
  if (shape.empty()) return absl::InvalidArgumentError("Box shape is empty, expected at least one dimension");
  if (!IsBoxDType(dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("Box dtype is ", std::string(tensor::DTypeName(dtype)),
                                                   ", expected float32, float64, int32, int64 or uint8"));
  }
  int64_t elements = 1;
  for (const int64_t dimension : shape) {
    if (dimension <= 0)
      return absl::InvalidArgumentError(absl::StrCat("Box shape has dimension ", dimension, ", expected at least 1"));
    if (dimension > Space::kMaxElements / elements) return TooLarge("Box");
    elements *= dimension;
  }
  return elements;
}

absl::Status CheckBounds(DType dtype, size_t element, double low, double high) {
  if (std::isnan(low) || std::isnan(high) || low > high) {
    return absl::InvalidArgumentError(absl::StrCat("Box bounds of element ", element, " are ", NumberText(low), " and ",
                                                   NumberText(high), ", expected numbers with low <= high"));
  }
  return CheckIntegerBounds(dtype, low, high);
}

}  // namespace

struct Space::Node {
  /// The bounds of a Box. Those that all elements share are written out for each once somebody asks for that: a text of
  /// thirty characters may mean 16 million elements, and who only wants their number must not pay for them.
  class BoxBounds {
   public:
    BoxBounds(double low, double high, size_t elements)
        : elements_(elements), shared_({low, high}), low_{low}, high_{high} {}
    BoxBounds(std::vector<double> low, std::vector<double> high)
        : elements_(low.size()), low_(std::move(low)), high_(std::move(high)) {}

    const std::vector<double>& low() const { return Each().low_; }
    const std::vector<double>& high() const { return Each().high_; }
    const std::optional<std::pair<double, double>>& shared() const { return shared_; }

   private:
    const BoxBounds& Each() const {
      std::call_once(once_, [this] {
        if (low_.size() == elements_) return;
        low_.resize(elements_, low_[0]);
        high_.resize(elements_, high_[0]);
      });
      return *this;
    }

    const size_t elements_;
    const std::optional<std::pair<double, double>> shared_;
    mutable std::once_flag once_;
    mutable std::vector<double> low_, high_;  ///< one for all before the first question, one each after it
  };

  static std::shared_ptr<const Node> OfBox(std::unique_ptr<BoxBounds> bounds, bool bounded,
                                           const std::string& bounds_text, std::vector<int64_t> shape, DType dtype,
                                           int64_t elements) {
    auto node = std::make_shared<Node>();
    node->kind = SpaceKind::kBox;
    node->bounds = std::move(bounds);
    node->bounded = bounded;
    node->flat_size = node->action_words = elements;
    node->dtype = dtype;
    node->text =
        absl::StrCat("Box(", bounds_text, ", [", absl::StrJoin(shape, ", "), "]", dtype == DType::kFloat32 ? "" : ", ",
                     dtype == DType::kFloat32 ? std::string() : std::string(tensor::DTypeName(dtype)), ")");
    node->shape = std::move(shape);
    return node;
  }

  /// Texts of Dict and Tuple are put together here: kept in each of 32 levels they would take 32 times their size.
  void AppendTo(std::string* out) const {
    if (kind != SpaceKind::kDict && kind != SpaceKind::kTuple) {
      out->append(text);
      return;
    }
    out->append(kind == SpaceKind::kDict ? "Dict{" : "Tuple(");
    for (size_t i = 0; i < children.size(); ++i) {
      if (i > 0) out->append(", ");
      if (kind == SpaceKind::kDict) absl::StrAppend(out, KeyText(keys[i]), ": ");
      children[i].node_->AppendTo(out);
    }
    out->push_back(kind == SpaceKind::kDict ? '}' : ')');
  }

  SpaceKind kind = SpaceKind::kNone;
  std::vector<int64_t> shape;
  std::unique_ptr<BoxBounds> bounds;
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
  int64_t parts = 1;  ///< what kMaxParts counts
  std::string text;   ///< of all but Dict and Tuple
};

absl::StatusOr<Space> Space::Box(double low, double high, std::vector<int64_t> shape, DType dtype) {
  TROUPE_ASSIGN_OR_RETURN(const int64_t elements, CheckBox(shape, dtype));
  TROUPE_RETURN_IF_ERROR(CheckBounds(dtype, 0, low, high));
  return Space(Node::OfBox(std::make_unique<Node::BoxBounds>(low, high, static_cast<size_t>(elements)),
                           std::isfinite(low) && std::isfinite(high),
                           absl::StrCat(NumberText(low), ", ", NumberText(high)), std::move(shape), dtype, elements));
}

absl::StatusOr<Space> Space::Box(std::vector<double> low, std::vector<double> high, std::vector<int64_t> shape,
                                 DType dtype) {
  TROUPE_ASSIGN_OR_RETURN(const int64_t elements, CheckBox(shape, dtype));
  if (static_cast<int64_t>(low.size()) != elements || static_cast<int64_t>(high.size()) != elements) {
    return absl::InvalidArgumentError(absl::StrCat("Box has ", low.size(), " low and ", high.size(),
                                                   " high bounds, expected ", elements, " of each for its shape"));
  }
  bool uniform = true, bounded = true;
  for (size_t i = 0; i < low.size(); ++i) {
    TROUPE_RETURN_IF_ERROR(CheckBounds(dtype, i, low[i], high[i]));
    bounded = bounded && std::isfinite(low[i]) && std::isfinite(high[i]);
    uniform = uniform && low[i] == low[0] && high[i] == high[0];
  }
  if (uniform) return Box(low[0], high[0], std::move(shape), dtype);
  const std::string text = absl::StrCat(NumberList(low), ", ", NumberList(high));
  return Space(Node::OfBox(std::make_unique<Node::BoxBounds>(std::move(low), std::move(high)), bounded, text,
                           std::move(shape), dtype, elements));
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
  if (static_cast<int64_t>(nvec.size()) > kMaxParts) return TooManyParts("MultiDiscrete");
  auto node = std::make_shared<Node>();
  for (const int64_t n : nvec) {
    if (n < 1)
      return absl::InvalidArgumentError(absl::StrCat("MultiDiscrete has a component of ", n, ", expected at least 1"));
    if (n > kMaxElements - node->flat_size) return TooLarge("MultiDiscrete");
    node->flat_size += n;
  }
  node->kind = SpaceKind::kMultiDiscrete;
  node->action_words = node->parts = static_cast<int64_t>(nvec.size());
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
      return absl::InvalidArgumentError(absl::StrCat("Dict has the key '", base::LogSafe(key), "' twice"));
    keys.push_back(key);
    children.push_back(std::move(child));
  }
  TROUPE_ASSIGN_OR_RETURN(Space tuple, Tuple(std::move(children)));
  auto node = std::make_shared<Node>();
  node->kind = SpaceKind::kDict;
  node->flat_size = tuple.node_->flat_size;
  node->action_words = tuple.node_->action_words;
  node->mask_size = tuple.node_->mask_size;
  node->parts = tuple.node_->parts;
  node->children = tuple.node_->children;
  node->keys = std::move(keys);
  return Space(std::move(node));
}

absl::StatusOr<Space> Space::Tuple(std::vector<Space> items) {
  if (items.empty()) return absl::InvalidArgumentError("Dict or Tuple is empty, expected at least one space");
  auto node = std::make_shared<Node>();
  node->kind = SpaceKind::kTuple;
  for (const Space& item : items) {
    if (!item.has_value()) return absl::InvalidArgumentError("Dict or Tuple holds a space that was never set");
    node->flat_size += item.flat_size();
    node->action_words += item.action_words();
    node->mask_size += item.mask_size();
    node->parts += item.node_->parts;
    if (node->flat_size > kMaxElements || node->mask_size > kMaxElements) return TooLarge("Dict or Tuple");
    if (node->parts > kMaxParts) return TooManyParts("Dict or Tuple");
  }
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
  return node_->bounds->low();
}
absl::Span<const double> Space::high() const {
  TROUPE_CHECK(kind() == SpaceKind::kBox);
  return node_->bounds->high();
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
std::optional<std::pair<double, double>> Space::shared_bounds() const {
  TROUPE_CHECK(kind() == SpaceKind::kBox);
  return node_->bounds->shared();
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
std::string Space::ToString() const {
  if (node_ == nullptr) return "None";
  std::string text;
  node_->AppendTo(&text);
  return text;
}

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
