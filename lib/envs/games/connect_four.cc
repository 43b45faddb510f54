#include "lib/envs/games/connect_four.h"

#include <algorithm>

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"

namespace troupe::envs {
namespace {

constexpr int32_t kColumnBits = ConnectFour::kRows + 1;
constexpr int32_t kPlaces = ConnectFour::kRows * ConnectFour::kColumns;

/// Element of the observation row for each bit: of the own piece; the other's is the next one.
constexpr auto kElements = [] {
  std::array<int32_t, kColumnBits * ConnectFour::kColumns> elements{};
  for (int32_t column = 0; column < ConnectFour::kColumns; ++column) {
    for (int32_t height = 0; height < ConnectFour::kRows; ++height) {
      const int32_t row = ConnectFour::kRows - 1 - height;
      elements[static_cast<size_t>(column * kColumnBits + height)] = 2 * (row * ConnectFour::kColumns + column);
    }
  }
  return elements;
}();

bool HasFour(uint64_t pieces) {
  for (const int32_t step : {1, kColumnBits - 1, kColumnBits, kColumnBits + 1}) {  // up, and the three to the right
    const uint64_t pairs = pieces & (pieces >> step);
    if ((pairs & (pairs >> (2 * step))) != 0) return true;
  }
  return false;
}

void Mark(uint64_t pieces, int32_t plane, float* row) {
  for (; pieces != 0; pieces &= pieces - 1) {
    row[kElements[static_cast<size_t>(absl::countr_zero(pieces))] + plane] = 1.0f;
  }
}

env::EnvSpec MakeSpec() {
  env::EnvSpec spec;
  spec.name = "connect_four";
  for (int i = 0; i < 2; ++i) {
    spec.possible_agents.push_back(
        env::AgentSpec{.id = env::AgentId(absl::StrCat("player_", i)),
                       .observation_space = *space::Space::Box(0, 1, {ConnectFour::kRows, ConnectFour::kColumns, 2}),
                       .action_space = *space::Space::Discrete(ConnectFour::kColumns),
                       .has_action_mask = true});
  }
  spec.max_episode_steps = kPlaces;
  return spec;
}

}  // namespace

ConnectFour::ConnectFour() : TurnGame(MakeSpec()) {}

void ConnectFour::Start(const env::EpisodeSeed& /*seed*/) {
  pieces_ = {};
  heights_ = {};
}

bool ConnectFour::Allows(int32_t action) const { return heights_[static_cast<size_t>(action)] < kRows; }

TurnGame::Outcome ConnectFour::Play(int32_t player, int32_t action) {
  uint64_t& own = pieces_[static_cast<size_t>(player)];
  own |= uint64_t{1} << (action * kColumnBits + heights_[static_cast<size_t>(action)]++);
  if (HasFour(own)) return {.over = true, .first_return = player == 0 ? 1.0f : -1.0f};
  return {.over = std::all_of(heights_.begin(), heights_.end(), [](int32_t height) { return height == kRows; })};
}

absl::Status ConnectFour::Draw(env::Canvas& canvas) const {
  canvas.View(-0.2, -0.2, kColumns + 0.2, kRows + 0.2);
  canvas.Rectangle({0, 0}, {kColumns, kRows}, env::colors::kInk);
  for (int32_t column = 0; column < kColumns; ++column) {
    for (int32_t height = 0; height < kRows; ++height) {
      const uint64_t place = uint64_t{1} << (column * kColumnBits + height);
      env::Color color = env::colors::kBackground;
      for (size_t player = 0; player < 2; ++player) {
        if ((pieces_[player] & place) != 0) color = env::colors::Agent(static_cast<int64_t>(player));
      }
      canvas.Circle({column + 0.5, height + 0.5}, 0.42, color);
    }
  }
  return absl::OkStatus();
}

void ConnectFour::WriteObservation(int32_t player, float* row) const {
  std::fill(row, row + 2 * kPlaces, 0.0f);
  Mark(pieces_[static_cast<size_t>(player)], 0, row);
  Mark(pieces_[static_cast<size_t>(1 - player)], 1, row);
}

}  // namespace troupe::envs
