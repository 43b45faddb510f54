#include "lib/envs/mpe/particle_env.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"

namespace troupe::envs {
namespace {

using env::AgentSlot;

constexpr uint32_t kMoves = 5;

// Of pictures: units of the world, half of what is seen; agents with names.
constexpr double kSmallestView = 1.2;
constexpr double kLargestView = 10;
constexpr size_t kMostNames = 12;

// Unit forces of the five moves: none, left, right, down, up.
constexpr double kForceX[kMoves] = {0, -1, 1, 0, 0};
constexpr double kForceY[kMoves] = {0, 0, 0, -1, 1};

env::EnvSpec MakeSpec(const ParticleLayout& layout, const ParticleOptions& options) {
  const auto unbounded = [](size_t size) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return *space::Space::Box(-kInfinity, kInfinity, {static_cast<int64_t>(size)});
  };
  env::EnvSpec spec;
  spec.name = layout.name;
  size_t state_size = 0;
  for (const ParticleLayout::Agent& agent : layout.agents) {
    const int64_t moves = agent.body.movable ? kMoves : 0;
    const int64_t words = agent.body.silent ? 0 : static_cast<int64_t>(layout.channels);
    const space::Space action =
        options.continuous_actions ? *space::Space::Box(0, 1, {moves + words})
                                   : *space::Space::Discrete(std::max<int64_t>(moves, 1) * std::max<int64_t>(words, 1));
    spec.possible_agents.push_back(env::AgentSpec{
        .id = env::AgentId(agent.id), .observation_space = unbounded(agent.observation_size), .action_space = action});
    state_size += agent.observation_size;
  }
  spec.state_kind = env::StateKind::kPerEnv;
  spec.state_space = unbounded(state_size);
  if (options.benchmark_data) spec.info_columns = layout.info_columns;
  spec.max_episode_steps = options.max_cycles;
  return spec;
}

std::vector<EntityTraits> Bodies(const ParticleLayout& layout) {
  std::vector<EntityTraits> bodies;
  for (const ParticleLayout::Agent& agent : layout.agents) bodies.push_back(agent.body);
  return bodies;
}

}  // namespace

absl::StatusOr<ParticleOptions> ParticleOptions::Read(env::EnvArgs& args) {
  ParticleOptions options;
  TROUPE_ASSIGN_OR_RETURN(options.max_cycles, args.GetInt("max_cycles", 25, 1, 1'000'000'000));
  TROUPE_ASSIGN_OR_RETURN(options.continuous_actions, args.GetBool("continuous_actions", false));
  TROUPE_ASSIGN_OR_RETURN(options.benchmark_data, args.GetBool("benchmark_data", false));
  // Of use only to mpe2's pictures.
  TROUPE_RETURN_IF_ERROR(args.GetBool("dynamic_rescaling", true).status());
  const env::ArgValue* const render_mode = env::FindArg(args.values(), "render_mode");
  if (render_mode != nullptr && !std::holds_alternative<std::monostate>(*render_mode)) {
    return absl::InvalidArgumentError(
        "argument render_mode is given, expected null: `troupe evaluate --video` makes pictures");
  }
  TROUPE_RETURN_IF_ERROR(args.GetOptionalInt("render_mode", 0, 0).status());
  return options;
}

absl::StatusOr<NeighbourLimits> NeighbourLimits::Read(env::EnvArgs& args) {
  TROUPE_ASSIGN_OR_RETURN(const int64_t agents, args.GetOptionalInt("num_agent_neighbors", 1, kMaxParticles));
  TROUPE_ASSIGN_OR_RETURN(const int64_t landmarks, args.GetOptionalInt("num_landmark_neighbors", 1, kMaxParticles));
  return NeighbourLimits{static_cast<int>(agents), static_cast<int>(landmarks)};
}

absl::StatusOr<Curriculum> Curriculum::Read(env::EnvArgs& args, int last_stage) {
  Curriculum curriculum;
  TROUPE_ASSIGN_OR_RETURN(curriculum.on, args.GetBool("curriculum", false));
  TROUPE_ASSIGN_OR_RETURN(const int64_t stage, args.GetInt("curriculum_stage", 0, 0, last_stage));
  curriculum.stage = static_cast<int>(stage);
  if (stage != 0 && !curriculum.on) {
    return absl::InvalidArgumentError("argument curriculum_stage is given without curriculum: true");
  }
  return curriculum;
}

ParticleEnv::ParticleEnv(const ParticleLayout& layout, const ParticleOptions& options)
    : options_(options),
      spec_(MakeSpec(layout, options)),
      last_curriculum_stage_(layout.last_curriculum_stage),
      world_(Bodies(layout), layout.landmarks, layout.channels),
      rewards_(layout.agents.size()),
      infos_(layout.info_columns.size()) {
  for (size_t i = 0; i < layout.agents.size(); ++i) {
    const ParticleLayout::Agent& agent = layout.agents[i];
    Control control{
        .moves = agent.body.movable,
        .speaks = !agent.body.silent,
        .choices = options.continuous_actions ? 1 : static_cast<uint32_t>(spec_.possible_agents[i].action_space.n()),
        .observation_size = agent.observation_size};
    if (!spec_.info_columns.empty()) {
      control.benchmark_columns = agent.benchmark_columns;
      if (control.benchmark_columns.empty()) {
        control.benchmark_columns.resize(spec_.info_columns.size());
        std::iota(control.benchmark_columns.begin(), control.benchmark_columns.end(), 0);
      }
    }
    controls_.push_back(std::move(control));
  }
}

void ParticleEnv::SetCurriculumStage(int stage) { curriculum_stage_ = std::clamp(stage, 0, last_curriculum_stage_); }

absl::Status ParticleEnv::Reset(const env::EpisodeSeed& seed, env::StepWriter& out) {
  base::PhiloxSequence random = seed.Sequence(base::RandomStream::kReset);
  world_.Rest();
  Begin(seed, random);
  cycle_ = 0;
  WriteObservations(out);
  return absl::OkStatus();
}

absl::Status ParticleEnv::ResetTo(const WorldState& state, env::StepWriter& out) {
  if (state.agents.size() != world_.num_agents() || state.landmarks.size() != world_.num_landmarks()) {
    return absl::InvalidArgumentError(absl::StrCat("world has ", state.agents.size(), " agents and ",
                                                   state.landmarks.size(), " landmarks, expected ", world_.num_agents(),
                                                   " and ", world_.num_landmarks()));
  }
  world_.Set(state);
  if (state.curriculum_stage >= 0) SetCurriculumStage(state.curriculum_stage);
  TROUPE_RETURN_IF_ERROR(BeginFrom(state));
  cycle_ = 0;
  WriteObservations(out);
  return absl::OkStatus();
}

absl::Status ParticleEnv::Step(env::ActionRows actions, env::StepWriter& out) {
  TROUPE_RETURN_IF_ERROR(ApplyActions(actions));
  world_.Step();
  ++cycle_;
  Score(absl::MakeSpan(rewards_));
  const int32_t agents = static_cast<int32_t>(rewards_.size());
  for (int32_t i = 0; i < agents; ++i) {
    out.AddReward(AgentSlot(i), static_cast<float>(rewards_[static_cast<size_t>(i)]));
  }
  if (!spec_.info_columns.empty()) WriteInfos(out);
  WriteObservations(out);
  if (cycle_ >= options_.max_cycles) {
    for (int32_t i = 0; i < agents; ++i) out.TruncateAgent(AgentSlot(i));
    out.TruncateAll();
  } else if (Succeeded()) {
    for (int32_t i = 0; i < agents; ++i) out.TerminateAgent(AgentSlot(i));
    out.TerminateAll();
  }
  return absl::OkStatus();
}

absl::Status ParticleEnv::Draw(env::Canvas& canvas) const {
  // As mpe2's camera: everything is seen, but what a scenario has put far away.
  double bound = kSmallestView;
  for (size_t e = 0; e < world_.num_entities(); ++e) {
    const double far = std::max(std::abs(world_.x[e]), std::abs(world_.y[e])) + world_.traits(e).size;
    if (far < kLargestView) bound = std::max(bound, far);
  }
  canvas.View(-bound, -bound, bound, bound);
  for (size_t e = num_agents(); e < world_.num_entities(); ++e) {
    const env::Point at{world_.x[e], world_.y[e]};
    canvas.Circle(at, world_.traits(e).size, env::colors::kLandmark);
    canvas.Text({at.x - 0.02 * bound, at.y - 0.02 * bound}, absl::StrCat(e - num_agents()), env::colors::kBackground);
  }
  for (size_t a = 0; a < num_agents(); ++a) {
    const std::string& id = spec_.possible_agents[a].id.value();
    const env::Color color =
        absl::StartsWith(id, "adversary") ? env::colors::kAdversary : env::colors::Agent(static_cast<int64_t>(a));
    const double size = world_.traits(a).size;
    canvas.Circle({world_.x[a], world_.y[a]}, size, color);
    if (num_agents() > kMostNames) continue;
    std::string label = id;
    for (size_t k = 0; controls_[a].speaks && k < world_.channels(); ++k) {
      if (world_.said(a)[k] > 0.5) absl::StrAppend(&label, label == id ? " says " : ",", k);
    }
    canvas.Text({world_.x[a] + size, world_.y[a] + size}, label, color);
  }
  return absl::OkStatus();
}

absl::Status ParticleEnv::ApplyActions(env::ActionRows actions) {
  for (size_t i = 0; i < controls_.size(); ++i) {
    const Control& control = controls_[i];
    const space::ActionWord* action = actions[i];
    if (action == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(spec_.possible_agents[i].id.value(), " did not act"));
    }
    const double accel = world_.traits(i).accel;
    if (options_.continuous_actions) {
      const auto clipped = [&](size_t k) { return std::clamp(action[k].f32, 0.0f, 1.0f); };
      if (control.moves) {
        // The differences are taken in float32, as numpy does with a float32 action.
        world_.fx[i] = static_cast<double>(clipped(2) - clipped(1)) * accel;
        world_.fy[i] = static_cast<double>(clipped(4) - clipped(3)) * accel;
        action += kMoves;
      }
      if (control.speaks) {
        for (size_t k = 0; k < world_.channels(); ++k) world_.said(i)[k] = static_cast<double>(clipped(k));
      }
      continue;
    }
    const uint32_t choice = static_cast<uint32_t>(action->i32);
    if (choice >= control.choices) {
      return absl::InvalidArgumentError(absl::StrCat(spec_.possible_agents[i].id.value(), ": action is ", action->i32,
                                                     ", expected one in [0, ", control.choices - 1, "]"));
    }
    uint32_t word = choice;
    if (control.moves) {
      const uint32_t move = choice % kMoves;
      world_.fx[i] = kForceX[move] * accel;
      world_.fy[i] = kForceY[move] * accel;
      word = choice / kMoves;
    }
    if (control.speaks) {
      std::fill_n(world_.said(i), world_.channels(), 0.0);
      world_.said(i)[word] = 1;
    }
  }
  return absl::OkStatus();
}

void ParticleEnv::WriteInfos(env::StepWriter& out) {
  for (size_t i = 0; i < controls_.size(); ++i) {
    const std::vector<int>& columns = controls_[i].benchmark_columns;
    Benchmark(i, absl::MakeSpan(infos_.data(), columns.size()));
    for (size_t k = 0; k < columns.size(); ++k) out.SetInfo(AgentSlot(static_cast<int32_t>(i)), columns[k], infos_[k]);
  }
}

void ParticleEnv::WriteObservations(env::StepWriter& out) {
  BeforeObservations();
  float* state = out.State(AgentSlot(0));
  for (size_t i = 0; i < controls_.size(); ++i) {
    const size_t size = controls_[i].observation_size;
    float* const begin = out.ObserveFloat(AgentSlot(static_cast<int32_t>(i)));
    ObservationRow row(world_, i, begin);
    Observe(i, row);
    TROUPE_CHECK(row.next() == begin + size);
    std::memcpy(state, begin, size * sizeof(float));
    state += size;
  }
}

absl::StatusOr<size_t> GoalLandmark(const WorldState& state, const WorldState::Entity& agent, const std::string& goal) {
  for (size_t i = 0; i < state.landmarks.size(); ++i) {
    if (!goal.empty() && state.landmarks[i].name == goal) return i;
  }
  return absl::InvalidArgumentError(absl::StrCat("world: the goal of ", base::LogSafe(agent.name), " is '",
                                                 base::LogSafe(goal), "', expected the name of a landmark"));
}

}  // namespace troupe::envs
