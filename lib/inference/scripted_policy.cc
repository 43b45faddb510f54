#include "lib/inference/scripted_policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/nearest_name.h"
#include "lib/policy/policy_spec.h"

namespace troupe::inference {
namespace {

using Leaf = space::ActionLeaf;

absl::Status CannotPlay(const policy::PolicySpec& spec, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("policy \"", spec.id.value(), "\": class ", spec.policy_class.ToString(), " ", why));
}

absl::Status CheckUniform(const policy::PolicySpec& spec) {
  for (const Leaf& leaf : space::ActionLeaves(spec.action_space)) {
    for (size_t i = 0; leaf.kind == Leaf::Kind::kContinuous && i < leaf.low.size(); ++i) {
      if (std::isfinite(leaf.low[i]) && std::isfinite(leaf.high[i])) continue;
      return CannotPlay(spec, absl::StrCat("needs a bounded Box; the action space is ", spec.action_space.ToString()));
    }
  }
  return absl::OkStatus();
}

void Uniform(ScriptedDecision& decision, absl::Span<space::ActionWord> action) {
  decision.spec.action_space.SampleAction(decision.random, decision.action_mask, action);
}

absl::Status CheckAlwaysSame(const policy::PolicySpec& spec) {
  for (const Leaf& leaf : space::ActionLeaves(spec.action_space)) {
    if (leaf.kind == Leaf::Kind::kCategorical) continue;
    return CannotPlay(spec, absl::StrCat("needs discrete actions; the action space is ", spec.action_space.ToString()));
  }
  return absl::OkStatus();
}

/// Lets `visit(word, first value, mask)` see every word of a discrete action row; the mask is empty without one.
template <typename Visit>
void ForEachWord(const space::Space& actions, absl::Span<const uint8_t> mask, Visit visit) {
  size_t word = 0;
  size_t place = 0;
  const auto next = [&](int64_t start, int64_t categories) {
    const auto count = static_cast<size_t>(categories);
    visit(word++, start, mask.empty() ? mask : mask.subspan(place, count));
    place += count;
  };
  const auto walk = [&next](const auto& self, const space::Space& part) -> void {
    switch (part.kind()) {
      case space::SpaceKind::kDiscrete:
        return next(part.start(), part.n());
      case space::SpaceKind::kMultiDiscrete:
        for (const int64_t n : part.nvec()) next(0, n);
        return;
      case space::SpaceKind::kMultiBinary:
        for (int64_t i = 0; i < part.n(); ++i) next(0, 2);
        return;
      default:
        for (const space::Space& child : part.children()) self(self, child);
    }
  };
  walk(walk, actions);
}

void AlwaysSame(ScriptedDecision& decision, absl::Span<space::ActionWord> action) {
  ForEachWord(decision.spec.action_space, decision.action_mask,
              [action](size_t word, int64_t start, absl::Span<const uint8_t> mask) {
                const auto allowed = std::find_if(mask.begin(), mask.end(), [](uint8_t bit) { return bit != 0; });
                action[word].i32 = static_cast<int32_t>(start + (allowed - mask.begin()));
              });
}

// Of rock_paper_scissors (docs/environments.md): own last hand, the other's, whether there was a last round.
constexpr int kHands = 3;
constexpr int kOtherHand = kHands;
constexpr int kHasLast = 2 * kHands;

absl::Status CheckBeatLast(const policy::PolicySpec& spec) {
  const std::string obs = spec.observation_space.ToString();
  const std::string actions = spec.action_space.ToString();
  if (obs == "Box(0, 1, [7])" && actions == "Discrete(3)") return absl::OkStatus();
  return CannotPlay(spec, absl::StrCat("plays rock_paper_scissors only, with observations Box(0, 1, [7]) and actions "
                                       "Discrete(3); these are ",
                                       obs, " and ", actions));
}

void BeatLast(ScriptedDecision& decision, absl::Span<space::ActionWord> action) {
  if (decision.obs[kHasLast] < 0.5f) {
    action[0].i32 = static_cast<int32_t>(decision.random.Below(kHands));
    return;
  }
  const absl::Span<const float> other = decision.obs.subspan(kOtherHand, kHands);
  const auto hand = std::max_element(other.begin(), other.end()) - other.begin();
  action[0].i32 = static_cast<int32_t>((hand + 1) % kHands);  // each hand is beaten by the next
}

// Of connect_four (docs/environments.md): rows from the top, and for each place the own piece, then the other's.
constexpr int32_t kBoardRows = 6;
constexpr int32_t kBoardColumns = 7;

absl::Status CheckOneMoveAhead(const policy::PolicySpec& spec) {
  const std::string obs = spec.observation_space.ToString();
  const std::string actions = spec.action_space.ToString();
  if (obs == "Box(0, 1, [6, 7, 2])" && actions == "Discrete(7)") return absl::OkStatus();
  return CannotPlay(spec, absl::StrCat("plays connect_four only, with observations Box(0, 1, [6, 7, 2]) and actions "
                                       "Discrete(7); these are ",
                                       obs, " and ", actions));
}

class Board {
 public:
  explicit Board(absl::Span<const float> obs) : obs_(obs) {}

  bool Has(int32_t player, int32_t row, int32_t column) const {
    return row >= 0 && row < kBoardRows && column >= 0 && column < kBoardColumns &&
           obs_[static_cast<size_t>(2 * (row * kBoardColumns + column) + player)] > 0.5f;
  }
  /// Where a piece comes to lie; -1 in a full column.
  int32_t LowestFree(int32_t column) const {
    int32_t row = kBoardRows - 1;
    while (row >= 0 && (Has(0, row, column) || Has(1, row, column))) --row;
    return row;
  }
  /// Whether a piece dropped into the column would be the fourth in a line of `player`'s.
  bool MakesFour(int32_t player, int32_t column) const {
    const int32_t row = LowestFree(column);
    if (row < 0) return false;
    constexpr std::array<std::array<int32_t, 2>, 4> kSteps = {{{0, 1}, {1, 0}, {1, 1}, {1, -1}}};
    return std::any_of(kSteps.begin(), kSteps.end(), [&](const std::array<int32_t, 2>& step) {
      int32_t pieces = 1;
      for (const int32_t way : {1, -1}) {
        for (int32_t i = 1; Has(player, row + way * i * step[0], column + way * i * step[1]); ++i) ++pieces;
      }
      return pieces >= 4;
    });
  }

 private:
  const absl::Span<const float> obs_;
};

void OneMoveAhead(ScriptedDecision& decision, absl::Span<space::ActionWord> action) {
  const Board board(decision.obs);
  std::array<int32_t, kBoardColumns> open{};
  uint32_t count = 0;
  for (int32_t column = 0; column < kBoardColumns; ++column) {
    const auto place = static_cast<size_t>(column);
    const bool allowed =
        decision.action_mask.empty() ? board.LowestFree(column) >= 0 : decision.action_mask[place] != 0;
    if (allowed) open[count++] = column;
  }
  const auto end = open.begin() + count;
  for (const int32_t player : {0, 1}) {  // the own four before the other's
    const auto four = std::find_if(open.begin(), end, [&](int32_t column) { return board.MakesFour(player, column); });
    if (four == end) continue;
    action[0].i32 = *four;
    return;
  }
  action[0].i32 = count == 0 ? 0 : open[decision.random.Below(count)];  // 0: without a mask nothing keeps a full board
}

constexpr ScriptedPolicy kUniform = {"random", CheckUniform, Uniform};
constexpr ScriptedPolicy kScripted[] = {
    {"always_same", CheckAlwaysSame, AlwaysSame},
    {"beat_last", CheckBeatLast, BeatLast},
    {"one_move_ahead", CheckOneMoveAhead, OneMoveAhead},
};

}  // namespace

absl::StatusOr<const ScriptedPolicy*> FindScriptedPolicy(std::string_view name) {
  std::vector<std::string> names;
  for (const ScriptedPolicy& policy : kScripted) {
    if (policy.name == name) return &policy;
    names.emplace_back(policy.name);
  }
  return base::NoSuchName("scripted policy", name, names);
}

const ScriptedPolicy& UniformPolicy() { return kUniform; }

}  // namespace troupe::inference
