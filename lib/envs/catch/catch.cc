#include "lib/envs/catch/catch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"

namespace troupe::envs {
namespace {

using env::AgentSlot;

constexpr uint8_t kBall = 255;
constexpr uint8_t kPaddle = 128;
constexpr int32_t kActions = 3;
constexpr size_t kMostBoards = 4;  // of a picture

env::EnvSpec MakeSpec(const Catch::Options& options) {
  env::EnvSpec spec;
  spec.name = "catch";
  const space::Space image = *space::Space::Box(0, 255, {options.size, options.size, 1}, tensor::DType::kUint8);
  for (int i = 0; i < options.num_agents; ++i) {
    spec.possible_agents.push_back(env::AgentSpec{.id = env::AgentId(absl::StrCat("agent_", i)),
                                                  .observation_space = image,
                                                  .action_space = *space::Space::Discrete(kActions)});
  }
  spec.max_episode_steps = options.cells - 1;
  return spec;
}

}  // namespace

Catch::Catch(const Options& options)
    : options_(options),
      spec_(MakeSpec(options)),
      balls_(static_cast<size_t>(options.num_agents)),
      paddles_(static_cast<size_t>(options.num_agents)) {}

absl::StatusOr<std::unique_ptr<Catch>> Catch::Make(env::EnvArgs args) {
  Options options;
  TROUPE_ASSIGN_OR_RETURN(const int64_t num_agents, args.GetInt("num_agents", 2, 1, 1024));
  options.num_agents = static_cast<int>(num_agents);
  TROUPE_ASSIGN_OR_RETURN(options.size, args.GetInt("size", 42, 2, 1024));
  TROUPE_ASSIGN_OR_RETURN(options.cells, args.GetInt("cells", 14, 2, 1024));
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("catch"));
  if (options.size % options.cells != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("argument size is ", options.size, ", expected a multiple of cells, ", options.cells));
  }
  return std::make_unique<Catch>(options);
}

absl::Status Catch::Reset(const env::EpisodeSeed& seed, env::StepWriter& out) {
  row_ = 0;
  const base::PhiloxKey key = base::PhiloxKey::Make(seed.seed, base::RandomStream::kReset);
  for (size_t i = 0; i < balls_.size(); ++i) {
    // A sequence an agent: its ball is the same however many others there are.
    base::PhiloxSequence random(key, {seed.env_id.value(), seed.episode, static_cast<uint32_t>(i), 0});
    balls_[i] = random.Below(static_cast<uint32_t>(options_.cells));
    paddles_[i] = options_.cells / 2;
  }
  WriteObservations(out);
  return absl::OkStatus();
}

absl::Status Catch::Step(env::ActionRows actions, env::StepWriter& out) {
  ++row_;
  const bool done = row_ == options_.cells - 1;
  for (int32_t i = 0; i < options_.num_agents; ++i) {
    const auto a = static_cast<size_t>(i);
    if (actions[a] == nullptr) return absl::FailedPreconditionError(absl::StrCat("agent_", i, " did not act"));
    const int32_t action = actions[a]->i32;
    if (action < 0 || action >= kActions) {
      return absl::InvalidArgumentError(
          absl::StrCat("agent_", i, ": action is ", action, ", expected 0 to ", kActions - 1));
    }
    paddles_[a] = std::clamp<int64_t>(paddles_[a] + action - 1, 0, options_.cells - 1);
    if (done) out.AddReward(AgentSlot(i), paddles_[a] == balls_[a] ? 1.0f : -1.0f);
  }
  WriteObservations(out);
  if (done) out.TerminateAll();
  return absl::OkStatus();
}

absl::Status Catch::Draw(env::Canvas& canvas) const {
  // A board an agent, side by side; of many the first ones.
  const auto boards = static_cast<int64_t>(std::min<size_t>(balls_.size(), kMostBoards));
  const auto cells = static_cast<double>(options_.cells);
  canvas.View(0, -0.2 * cells, static_cast<double>(boards) * 1.1 * cells, 1.05 * cells);
  for (int64_t i = 0; i < boards; ++i) {
    const auto a = static_cast<size_t>(i);
    const double left = static_cast<double>(i) * 1.1 * cells;
    const auto cell = [&](int64_t row, int64_t column, env::Color color) {
      const env::Point low{left + static_cast<double>(column), cells - 1 - static_cast<double>(row)};
      canvas.Rectangle(low, {low.x + 1, low.y + 1}, color);
    };
    canvas.Rectangle({left, 0}, {left + cells, cells}, env::colors::kInk);
    cell(options_.cells - 1, paddles_[a], env::colors::Agent(i));
    cell(row_, balls_[a], env::colors::kBackground);
    canvas.Text({left, -0.1 * cells}, spec_.possible_agents[a].id.value(), env::colors::Agent(i));
  }
  return absl::OkStatus();
}

void Catch::WriteObservations(env::StepWriter& out) const {
  for (int32_t i = 0; i < options_.num_agents; ++i) {
    auto* const image = static_cast<uint8_t*>(out.Observe(AgentSlot(i)));
    std::fill_n(image, options_.size * options_.size, uint8_t{0});
    const auto a = static_cast<size_t>(i);
    Fill(options_.cells - 1, paddles_[a], kPaddle, image);
    Fill(row_, balls_[a], kBall, image);
  }
}

void Catch::Fill(int64_t row, int64_t column, uint8_t value, uint8_t* image) const {
  const int64_t cell = options_.size / options_.cells;
  for (int64_t y = row * cell; y < (row + 1) * cell; ++y) {
    std::fill_n(image + y * options_.size + column * cell, cell, value);
  }
}

void RegisterCatch(env::EnvRegistry& registry) {
  registry.Register({.name = "catch",
                     .description = "K agents, each with a paddle under a falling ball of its own, seen as an image",
                     .factory = [](env::EnvArgs args) -> absl::StatusOr<std::unique_ptr<env::MultiAgentEnv>> {
                       return Catch::Make(std::move(args));
                     },
                     .draws = true});
}

}  // namespace troupe::envs
