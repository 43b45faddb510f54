#include "lib/base/status_macros.h"
#include "lib/envs/mpe/particle_env.h"
#include "lib/envs/mpe/scenarios.h"

namespace troupe::envs {
namespace {

constexpr size_t kAgent = 0;
constexpr size_t kLandmark = 1;

ParticleLayout MakeLayout() {
  ParticleLayout layout;
  layout.name = "mpe/simple";
  layout.agents = {{.id = "agent_0", .body = {.movable = true, .collide = false}, .observation_size = 4}};
  layout.landmarks = {{.collide = false}};
  return layout;
}

class Simple final : public ParticleEnv {
 public:
  explicit Simple(const ParticleOptions& options) : ParticleEnv(MakeLayout(), options) {}

 private:
  void Begin(const env::EpisodeSeed& /*seed*/, base::PhiloxSequence& random) override {
    world().Scatter(0, world().num_entities(), 1, random);
  }
  void Score(absl::Span<double> rewards) override { rewards[0] = -world().SquaredDistance(kAgent, kLandmark); }
  void Observe(size_t /*agent*/, ObservationRow& row) override {
    row.OwnVelocity();
    row.AllLandmarks();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<MpeEnv>> MakeSimple(env::EnvArgs args) {
  TROUPE_ASSIGN_OR_RETURN(const ParticleOptions options, ParticleOptions::Read(args));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("mpe/simple"));
  return std::make_unique<Simple>(options);
}

}  // namespace troupe::envs
