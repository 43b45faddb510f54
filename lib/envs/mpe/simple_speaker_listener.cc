#include "lib/base/status_macros.h"
#include "lib/envs/mpe/particle_env.h"
#include "lib/envs/mpe/scenarios.h"

namespace troupe::envs {
namespace {

constexpr size_t kSpeaker = 0;
constexpr size_t kListener = 1;
constexpr size_t kAgents = 2;
constexpr size_t kLandmarks = 3;
constexpr size_t kChannels = 3;

ParticleLayout MakeLayout() {
  ParticleLayout layout;
  layout.name = "mpe/simple_speaker_listener";
  layout.agents = {{.id = "speaker_0",
                    .body = {.size = 0.075, .movable = false, .collide = false, .silent = false},
                    .observation_size = kLandmarks},
                   {.id = "listener_0",
                    .body = {.size = 0.075, .movable = true, .collide = false},
                    .observation_size = 2 + 2 * kLandmarks + kChannels}};
  layout.landmarks.assign(kLandmarks, EntityTraits{.size = 0.04, .collide = false});
  layout.channels = kChannels;
  layout.info_columns = {"benchmark_reward"};
  return layout;
}

class SimpleSpeakerListener final : public ParticleEnv {
 public:
  explicit SimpleSpeakerListener(const ParticleOptions& options) : ParticleEnv(MakeLayout(), options) {}

 private:
  void Begin(const env::EpisodeSeed& /*seed*/, base::PhiloxSequence& random) override {
    goal_ = random.Below(kLandmarks);
    world().Scatter(0, world().num_entities(), 1, random);
  }

  absl::Status BeginFrom(const WorldState& state) override {
    const WorldState::Entity& speaker = state.agents[kSpeaker];
    TROUPE_ASSIGN_OR_RETURN(goal_, GoalLandmark(state, speaker, speaker.goal_b));
    return absl::OkStatus();
  }

  double Reward() const { return -world().SquaredDistance(kListener, kAgents + goal_); }
  void Score(absl::Span<double> rewards) override {
    for (double& reward : rewards) reward = Reward();
  }
  void Benchmark(size_t /*agent*/, absl::Span<double> values) const override { values[0] = Reward(); }

  void Observe(size_t agent, ObservationRow& row) override {
    if (agent == kSpeaker) {
      for (size_t c = 0; c < kLandmarks; ++c) row.Value(c == goal_ ? 0.65 : 0.15);  // the goal's color
      return;
    }
    row.OwnVelocity();
    row.AllLandmarks();
    row.Said(kSpeaker);
  }

  size_t goal_ = 0;  ///< which landmark
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimpleSpeakerListener(env::EnvArgs args) {
  TROUPE_ASSIGN_OR_RETURN(const ParticleOptions options, ParticleOptions::Read(args));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("mpe/simple_speaker_listener"));
  return std::make_unique<SimpleSpeakerListener>(options);
}

}  // namespace troupe::envs
