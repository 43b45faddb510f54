#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/envs/mpe/particle_env.h"
#include "lib/envs/mpe/scenarios.h"

namespace troupe::envs {
namespace {

constexpr size_t kEve = 0;
constexpr size_t kBob = 1;
constexpr size_t kAlice = 2;
constexpr size_t kChannels = 4;
constexpr uint32_t kWords = 2;  // of the four that can be said

using Word = std::array<double, kChannels>;

Word OneHot(size_t index) {
  Word word{};
  word[index] = 1;
  return word;
}

ParticleLayout MakeLayout() {
  const EntityTraits body{.movable = false, .collide = false, .silent = false};
  ParticleLayout layout;
  layout.name = "mpe/simple_crypto";
  layout.agents = {{.id = "eve_0", .body = body, .observation_size = kChannels},
                   {.id = "bob_0", .body = body, .observation_size = 2 * kChannels},
                   {.id = "alice_0", .body = body, .observation_size = 2 * kChannels}};
  layout.landmarks.assign(kWords, EntityTraits{.collide = false});
  layout.channels = kChannels;
  for (const char* column : {"said_", "word_"}) {
    for (size_t i = 0; i < kChannels; ++i) layout.info_columns.push_back(absl::StrCat(column, i));
  }
  return layout;
}

class SimpleCrypto final : public ParticleEnv {
 public:
  explicit SimpleCrypto(const ParticleOptions& options) : ParticleEnv(MakeLayout(), options) {}

 private:
  void Begin(const env::EpisodeSeed& /*seed*/, base::PhiloxSequence& random) override {
    word_ = OneHot(random.Below(kWords));
    key_ = OneHot(random.Below(kWords));
    world().Scatter(0, world().num_entities(), 1, random);
  }

  absl::Status BeginFrom(const WorldState& state) override {
    TROUPE_ASSIGN_OR_RETURN(const size_t goal, GoalLandmark(state, state.agents[0], state.agents[0].goal_a));
    word_ = OneHot(goal);
    const WorldState::Entity& alice = state.agents[kAlice];
    if (alice.key.size() != kChannels) {
      return absl::InvalidArgumentError(absl::StrCat("world: the key of ", base::LogSafe(alice.name), " has ",
                                                     alice.key.size(), " numbers, expected ", kChannels));
    }
    std::copy(alice.key.begin(), alice.key.end(), key_.begin());
    return absl::OkStatus();
  }

  /// How far from the word what the agent said is; 0 when it said nothing.
  double SquaredError(size_t agent) const {
    const double* said = world().said(agent);
    double error = 0;
    bool silent = true;
    for (size_t i = 0; i < kChannels; ++i) {
      error += (said[i] - word_[i]) * (said[i] - word_[i]);
      silent = silent && said[i] == 0;
    }
    return silent ? 0 : error;
  }

  void Score(absl::Span<double> rewards) override {
    const double eve = SquaredError(kEve);
    const double good = eve - SquaredError(kBob);
    rewards[kEve] = -eve;
    rewards[kBob] = good;
    rewards[kAlice] = good;
  }

  void Benchmark(size_t agent, absl::Span<double> values) const override {
    std::copy_n(world().said(agent), kChannels, values.begin());
    std::copy(word_.begin(), word_.end(), values.begin() + kChannels);
  }

  void Observe(size_t agent, ObservationRow& row) override {
    if (agent == kAlice) row.Values(word_);
    if (agent != kEve) row.Values(key_);
    if (agent != kAlice) row.Said(kAlice);
  }

  Word word_{};
  Word key_{};
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleCrypto(env::EnvArgs args) {
  TROUPE_ASSIGN_OR_RETURN(const ParticleOptions options, ParticleOptions::Read(args));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("mpe/simple_crypto"));
  return std::make_unique<SimpleCrypto>(options);
}

}  // namespace troupe::envs
