#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/philox.h"
#include "lib/tensor/dtype.h"

namespace troupe::space {

/// The kinds of Gymnasium's spaces that Troupe knows. Values are on the wire: never renumber.
enum class SpaceKind : uint8_t {
  kNone = 0,           ///< no space (an EnvSpec without global state)
  kBox = 1,            ///< real or integer arrays within bounds
  kDiscrete = 2,       ///< one of n integers from `start`
  kMultiDiscrete = 3,  ///< several Discrete of own sizes
  kMultiBinary = 4,    ///< n bits
  kDict = 5,           ///< named spaces, ordered by name
  kTuple = 6,          ///< spaces in order
};

/// An action as environments, workers and the wire hold it: one 4-byte word per number, i32 where the leaf is discrete
/// and f32 where it is continuous. `Space::action_words()` of them make a row.
union ActionWord {
  int32_t i32;
  float f32;
};
static_assert(sizeof(ActionWord) == 4);

/// An observation or action space. Immutable value with cheap copies (shared nodes); thread-safe.
///
/// Observation rows: the flattened form of `gymnasium.spaces.flatten`, `flat_size()` elements of `flat_dtype()`: a Box
/// as it is, Discrete and MultiDiscrete as one-hot, MultiBinary as 0/1, Dict (by sorted key) and Tuple concatenated.
/// flat_dtype is uint8 for a uint8 Box and float32 for everything else. Action rows: `action_words()` words: Discrete
/// 1, MultiDiscrete one per component, MultiBinary one per bit, Box one per element, composites concatenated. Action
/// masks: `mask_size()` bytes, one per category of every discrete leaf in order (MultiBinary: two per bit), 1 =
/// allowed.
/// Limits: kMaxElements elements in a flattened row; integers of Discrete within int32.
class Space {
 public:
  static constexpr int64_t kMaxElements = int64_t{1} << 24;

  Space() = default;  // kNone

  /// Scalar bounds for every element. Errors: INVALID_ARGUMENT for an empty or non-positive shape, low > high, NaN.
  static absl::StatusOr<Space> Box(double low, double high, std::vector<int64_t> shape,
                                   tensor::DType dtype = tensor::DType::kFloat32);
  static absl::StatusOr<Space> Box(std::vector<double> low, std::vector<double> high, std::vector<int64_t> shape,
                                   tensor::DType dtype = tensor::DType::kFloat32);
  static absl::StatusOr<Space> Discrete(int64_t n, int64_t start = 0);
  static absl::StatusOr<Space> MultiDiscrete(std::vector<int64_t> nvec);
  static absl::StatusOr<Space> MultiBinary(int64_t n);
  static absl::StatusOr<Space> Dict(std::vector<std::pair<std::string, Space>> items);
  static absl::StatusOr<Space> Tuple(std::vector<Space> items);

  SpaceKind kind() const;
  bool has_value() const { return node_ != nullptr; }

  // Of a Box.
  absl::Span<const int64_t> shape() const;
  absl::Span<const double> low() const;  ///< one per element, row-major
  absl::Span<const double> high() const;
  /// The bounds of every element, where they were given once for all; then nothing is written out for each.
  std::optional<std::pair<double, double>> shared_bounds() const;
  tensor::DType dtype() const;
  bool bounded() const;  ///< every bound is finite
  // Of a Discrete: n and start. Of MultiDiscrete: nvec. Of MultiBinary: n.
  int64_t n() const;
  int64_t start() const;
  absl::Span<const int64_t> nvec() const;
  // Of Dict (sorted by key) and Tuple (keys empty).
  absl::Span<const Space> children() const;
  absl::Span<const std::string> keys() const;

  int64_t flat_size() const;
  tensor::DType flat_dtype() const;
  int64_t action_words() const;
  int64_t mask_size() const;

  /// OK when the flattened observation row is inside; else INVALID_ARGUMENT naming the first bad element (index, value,
  /// range).
  absl::Status ContainsFlat(absl::Span<const float> row) const;
  absl::Status ContainsFlat(absl::Span<const uint8_t> row) const;
  /// The same for an action row. Discrete values include `start`.
  absl::Status ContainsAction(absl::Span<const ActionWord> row) const;
  /// A uniform action (unbounded Box elements: standard normal, half-bounded ones: exponential from the bound); `mask`
  /// is empty or mask_size() bytes. A leaf whose mask allows nothing is drawn as if it had none.
  void SampleAction(base::PhiloxSequence& random, absl::Span<const uint8_t> mask, absl::Span<ActionWord> row) const;
  /// A uniform flattened observation row, for tests and conformance checks.
  void SampleFlat(base::PhiloxSequence& random, absl::Span<float> row) const;

  /// Canonical text, as in YAML configuration: "Box(-1, 1, [3])", "Discrete(5)", "Dict{a: Discrete(2)}". Equal spaces
  /// give equal text.
  std::string ToString() const;
  friend bool operator==(const Space& a, const Space& b) { return a.ToString() == b.ToString(); }
  friend bool operator!=(const Space& a, const Space& b) { return !(a == b); }

 private:
  struct Node;
  explicit Space(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

/// One discrete or continuous part of an action row, in row order: what a distribution head is made from.
struct ActionLeaf {
  enum class Kind : uint8_t {
    kCategorical,  ///< one word in [start, start + categories)
    kContinuous,   ///< `words` real words
  };
  Kind kind = Kind::kCategorical;
  int64_t word = 0;         ///< first word in the row
  int64_t words = 1;        ///< words it takes
  int64_t categories = 0;   ///< of kCategorical
  int64_t start = 0;        ///< of kCategorical: value of category 0
  int64_t mask_offset = 0;  ///< of kCategorical: first byte in the mask row
  std::vector<float> low;   ///< of kContinuous, one per word, may be infinite
  std::vector<float> high;
};

/// The leaves of an action space, in order (MultiBinary: a two-category leaf per bit).
std::vector<ActionLeaf> ActionLeaves(const Space& space);

/// Reads the text that Space::ToString writes; used for spaces in YAML configuration. Also taken: any white space,
/// `Discrete(5, start=1)`, a Box without its shape when a list of bounds gives it. INVALID_ARGUMENT names what was
/// found, what was expected and the column.
absl::StatusOr<Space> ParseSpace(std::string_view text);

}  // namespace troupe::space
