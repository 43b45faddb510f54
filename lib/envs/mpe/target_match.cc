#include "lib/envs/mpe/target_match.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::envs {
namespace {

constexpr double kReached = 0.05;
constexpr double kFarthest = 2;  // beyond it the reward does not fall

ParticleLayout MakeLayout(const std::string& name, const EntityTraits& body, std::vector<EntityTraits> landmarks,
                          size_t agents) {
  ParticleLayout layout;
  layout.name = name;
  for (size_t i = 0; i < agents; ++i) {
    layout.agents.push_back(
        {.id = absl::StrCat("agent_", i), .body = body, .observation_size = 4 + 2 * landmarks.size()});
  }
  layout.landmarks = std::move(landmarks);
  return layout;
}

}  // namespace

double TargetMatch::Score(const World& world) {
  const size_t count = target_x.size();
  for (size_t a = 0; a < count; ++a) {
    for (size_t t = 0; t < count; ++t) {
      const double dx = world.x[a] - target_x[t];
      const double dy = world.y[a] - target_y[t];
      cost_[a * count + t] = std::sqrt(dx * dx + dy * dy);
    }
  }
  const absl::Span<const size_t> places = assignment_.Solve(cost_.data());
  double sum = 0;
  for (size_t a = 0; a < count; ++a) {
    distances_[a] = cost_[a * count + places[a]];
    sum += std::min(distances_[a], kFarthest);
  }
  return -sum / static_cast<double>(count);
}

bool TargetMatch::Reached() const {
  return std::all_of(distances_.begin(), distances_.end(), [](double distance) { return distance < kReached; });
}

absl::StatusOr<TargetOptions> TargetOptions::Read(env::EnvArgs& args, const std::string& name) {
  TargetOptions options;
  TROUPE_ASSIGN_OR_RETURN(const int64_t agents, args.GetInt("N", 4, 1, kMaxParticles));
  options.agents = static_cast<size_t>(agents);
  TROUPE_ASSIGN_OR_RETURN(options.common, ParticleOptions::Read(args));
  TROUPE_ASSIGN_OR_RETURN(options.terminate_on_success, args.GetBool("terminate_on_success", false));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown(name));
  return options;
}

TargetEnv::TargetEnv(const std::string& name, const EntityTraits& body, std::vector<EntityTraits> landmarks,
                     const TargetOptions& options)
    : ParticleEnv(MakeLayout(name, body, std::move(landmarks), options.agents), options.common),
      terminate_on_success_(options.terminate_on_success),
      match_(options.agents) {}

void TargetEnv::Score(absl::Span<double> rewards) {
  PlaceTargets(match_);
  std::fill(rewards.begin(), rewards.end(), match_.Score(world()));
}

void TargetEnv::Observe(size_t /*agent*/, ObservationRow& row) {
  row.OwnVelocity();
  row.OwnPosition();
  row.AllLandmarks();
}

}  // namespace troupe::envs
