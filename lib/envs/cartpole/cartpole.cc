#include "lib/envs/cartpole/cartpole.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::envs {
namespace {

using env::AgentSlot;

constexpr double kGravity = 9.8;
constexpr double kPoleMass = 0.1;
constexpr double kTotalMass = kPoleMass + 1.0;
constexpr double kHalfLength = 0.5;
constexpr double kPoleMassLength = kPoleMass * kHalfLength;
constexpr double kForce = 10.0;
constexpr double kTimeStep = 0.02;  // seconds
constexpr double kMaxPosition = 2.4;
constexpr double kMaxAngle = 12 * 2 * 3.141592653589793 / 360;  // 12 degrees

// Of pictures.
constexpr size_t kMostTracks = 6;
constexpr double kTrackHeight = 1.8;

/// One Euler step, in the original's order of operations.
void Advance(Cartpole::CartState& state, double force) {
  auto& [x, x_dot, theta, theta_dot] = state;
  const double cosine = std::cos(theta);
  const double sine = std::sin(theta);
  const double push = (force + kPoleMassLength * (theta_dot * theta_dot) * sine) / kTotalMass;
  const double theta_acceleration =
      (kGravity * sine - cosine * push) / (kHalfLength * (4.0 / 3.0 - kPoleMass * (cosine * cosine) / kTotalMass));
  const double x_acceleration = push - kPoleMassLength * theta_acceleration * cosine / kTotalMass;
  x = x + kTimeStep * x_dot;
  x_dot = x_dot + kTimeStep * x_acceleration;
  theta = theta + kTimeStep * theta_dot;
  theta_dot = theta_dot + kTimeStep * theta_acceleration;
}

bool HasFallen(const Cartpole::CartState& state) {
  return !(std::abs(state[0]) <= kMaxPosition && std::abs(state[2]) <= kMaxAngle);
}

env::EnvSpec MakeSpec(const Cartpole::Options& options) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const space::Space observation =
      options.velocities
          ? *space::Space::Box({-2 * kMaxPosition, -kInfinity, -2 * kMaxAngle, -kInfinity},
                               {2 * kMaxPosition, kInfinity, 2 * kMaxAngle, kInfinity}, {4})
          : *space::Space::Box({-2 * kMaxPosition, -2 * kMaxAngle}, {2 * kMaxPosition, 2 * kMaxAngle}, {2});
  env::EnvSpec spec;
  spec.name = "cartpole";
  for (int i = 0; i < options.num_agents; ++i) {
    spec.possible_agents.push_back(env::AgentSpec{.id = env::AgentId(absl::StrCat("agent_", i)),
                                                  .observation_space = observation,
                                                  .action_space = *space::Space::Discrete(2)});
  }
  spec.max_episode_steps = options.max_episode_steps;
  return spec;
}

}  // namespace

Cartpole::Cartpole(const Options& options)
    : options_(options),
      spec_(MakeSpec(options)),
      states_(static_cast<size_t>(options.num_agents)),
      done_(static_cast<size_t>(options.num_agents)) {}

absl::StatusOr<std::unique_ptr<Cartpole>> Cartpole::Make(env::EnvArgs args) {
  Options options;
  TROUPE_ASSIGN_OR_RETURN(const int64_t num_agents, args.GetInt("num_agents", 2, 1, 1024));
  options.num_agents = static_cast<int>(num_agents);
  TROUPE_ASSIGN_OR_RETURN(options.max_episode_steps, args.GetInt("max_episode_steps", 500, 1, 1'000'000'000));
  TROUPE_ASSIGN_OR_RETURN(options.sutton_barto_reward, args.GetBool("sutton_barto_reward", false));
  TROUPE_ASSIGN_OR_RETURN(options.velocities, args.GetBool("velocities", true));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("cartpole"));
  return std::make_unique<Cartpole>(options);
}

absl::Status Cartpole::Reset(const env::EpisodeSeed& seed, env::StepWriter& out) {
  const base::PhiloxKey key = base::PhiloxKey::Make(seed.seed, base::RandomStream::kReset);
  for (size_t i = 0; i < states_.size(); ++i) {
    // A sequence an agent: a cart starts the same however many others there are.
    base::PhiloxSequence random(key, {seed.env_id.value(), seed.episode, static_cast<uint32_t>(i), 0});
    for (double& element : states_[i]) element = random.Uniform(-0.05, 0.05);
  }
  Start(out);
  return absl::OkStatus();
}

absl::Status Cartpole::ResetTo(absl::Span<const CartState> states, env::StepWriter& out) {
  if (states.size() != states_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("got ", states.size(), " cart states, expected ", states_.size()));
  }
  std::copy(states.begin(), states.end(), states_.begin());
  Start(out);
  return absl::OkStatus();
}

void Cartpole::Start(env::StepWriter& out) {
  step_ = 0;
  num_left_ = options_.num_agents;
  std::fill(done_.begin(), done_.end(), uint8_t{0});
  for (int32_t i = 0; i < options_.num_agents; ++i) WriteObservation(i, out);
}

absl::Status Cartpole::Step(env::ActionRows actions, env::StepWriter& out) {
  ++step_;
  bool truncated = false;
  for (int32_t i = 0; i < options_.num_agents; ++i) {
    const size_t a = static_cast<size_t>(i);
    if (done_[a] != 0) continue;
    if (actions[a] == nullptr) return absl::FailedPreconditionError(absl::StrCat("agent_", i, " did not act"));
    const uint32_t choice = static_cast<uint32_t>(actions[a]->i32);
    if (choice > 1)
      return absl::InvalidArgumentError(
          absl::StrCat("agent_", i, ": action is ", actions[a]->i32, ", expected 0 or 1"));
    Advance(states_[a], choice == 1 ? kForce : -kForce);
    const bool fallen = HasFallen(states_[a]);
    out.AddReward(AgentSlot(i), !options_.sutton_barto_reward ? 1.0f : fallen ? -1.0f : 0.0f);
    WriteObservation(i, out);
    truncated = !fallen && step_ >= options_.max_episode_steps;
    if (fallen) out.TerminateAgent(AgentSlot(i));
    if (truncated) out.TruncateAgent(AgentSlot(i));
    if (fallen || truncated) {
      done_[a] = 1;
      --num_left_;
    }
  }
  if (num_left_ > 0) return absl::OkStatus();
  // Everybody is done already; whether the episode counts as cut says the last agent.
  if (truncated) {
    out.TruncateAll();
  } else {
    out.TerminateAll();
  }
  return absl::OkStatus();
}

absl::Status Cartpole::Draw(env::Canvas& canvas) const {
  // A track an agent, one below the other; of many the first ones.
  const auto tracks = static_cast<int32_t>(std::min<size_t>(states_.size(), kMostTracks));
  canvas.View(-kMaxPosition - 0.4, -kTrackHeight * tracks + 1.2, kMaxPosition + 0.4, 1.2);
  for (int32_t i = 0; i < tracks; ++i) {
    const auto a = static_cast<size_t>(i);
    const double ground = -kTrackHeight * i;
    const env::Point cart{states_[a][0], ground};
    const env::Point tip{cart.x + 2 * kHalfLength * std::sin(states_[a][2]),
                         ground + 2 * kHalfLength * std::cos(states_[a][2])};
    const bool fallen = HasFallen(states_[a]);  // not every cart that is done: at the limit of steps it stands
    const env::Color color = fallen ? env::colors::kLandmark : env::colors::Agent(i);
    canvas.Line({-kMaxPosition, ground}, {kMaxPosition, ground}, 0.02, env::colors::kInk);
    canvas.Rectangle({cart.x - 0.25, ground - 0.1}, {cart.x + 0.25, ground + 0.1}, color);
    canvas.Line(cart, tip, 0.08, env::colors::kInk);
    canvas.Text({-kMaxPosition, ground - 0.35},
                absl::StrCat(spec_.possible_agents[a].id.value(), fallen ? " fell" : ""), color);
  }
  return absl::OkStatus();
}

void Cartpole::WriteObservation(int32_t agent, env::StepWriter& out) const {
  float* row = out.ObserveFloat(AgentSlot(agent));
  const CartState& state = states_[static_cast<size_t>(agent)];
  const size_t stride = options_.velocities ? 1 : 2;  // each velocity stands behind what it changes
  for (size_t i = 0; i < state.size(); i += stride) *row++ = static_cast<float>(state[i]);
}

void RegisterCartpole(env::EnvRegistry& registry) {
  registry.Register(
      {.name = "cartpole",
       .description =
           "K agents, each with a cart and pole of its own (Gymnasium's CartPole-v1, RLlib's MultiAgentCartPole)",
       .factory = [](env::EnvArgs args) -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
         return Cartpole::Make(std::move(args));
       },
       .draws = true});
}

}  // namespace troupe::envs
