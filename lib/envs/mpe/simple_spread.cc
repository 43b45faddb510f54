#include "lib/envs/mpe/simple_spread.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::envs {
namespace {

using env::AgentSlot;

constexpr int kMaxAgents = 512;
constexpr double kSensitivity = 5.0;    // control force of a full action
constexpr double kAgentSize = 0.15;     // radius
constexpr double kCaptureRadius = 0.1;  // a landmark with an agent nearer than this is covered
constexpr int kLastStage = 1;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Unit forces of the five discrete actions: none, left, right, down, up.
constexpr double kForceX[] = {0, -1, 1, 0, 0};
constexpr double kForceY[] = {0, 0, 0, -1, 1};

size_t ObservationSize(const SimpleSpread::Options& options) {
  const int agents = options.num_agent_neighbors >= 0 ? options.num_agent_neighbors : options.num_agents - 1;
  const int landmarks = options.num_landmark_neighbors >= 0 ? options.num_landmark_neighbors : options.num_agents;
  return static_cast<size_t>(4 + 2 * landmarks + 4 * agents);
}

env::EnvSpec MakeSpec(const SimpleSpread::Options& options) {
  const int64_t size = static_cast<int64_t>(ObservationSize(options));
  env::EnvSpec spec;
  spec.name = "mpe/simple_spread";
  const space::Space observation = *space::Space::Box(-kInfinity, kInfinity, {size});
  const space::Space action = options.continuous_actions ? *space::Space::Box(0, 1, {5}) : *space::Space::Discrete(5);
  for (int i = 0; i < options.num_agents; ++i) {
    spec.possible_agents.push_back(env::AgentSpec{
        .id = env::AgentId(absl::StrCat("agent_", i)), .observation_space = observation, .action_space = action});
  }
  spec.state_kind = env::StateKind::kPerEnv;
  spec.state_space = *space::Space::Box(-kInfinity, kInfinity, {size * options.num_agents});
  if (options.benchmark_data) spec.info_columns = {"benchmark_reward", "collisions", "min_dists", "occupied_landmarks"};
  spec.max_episode_steps = options.max_cycles;
  return spec;
}

}  // namespace

SimpleSpread::SimpleSpread(const Options& options)
    : options_(options),
      spec_(MakeSpec(options)),
      observation_size_(ObservationSize(options)),
      world_(std::vector<EntityTraits>(static_cast<size_t>(options.num_agents),
                                       EntityTraits{.size = kAgentSize, .movable = true, .collide = true}),
             std::vector<EntityTraits>(static_cast<size_t>(options.num_agents),
                                       EntityTraits{.movable = false, .collide = false})),
      touches_(static_cast<size_t>(options.num_agents)),
      nearest_(static_cast<size_t>(options.num_agents)),
      neighbours_(static_cast<size_t>(options.num_agents)) {
  SetCurriculumStage(options.curriculum_stage);
}

absl::StatusOr<std::unique_ptr<SimpleSpread>> SimpleSpread::Make(env::EnvArgs args) {
  Options options;
  TROUPE_ASSIGN_OR_RETURN(const int64_t num_agents, args.GetInt("N", 3, 1, kMaxAgents));
  options.num_agents = static_cast<int>(num_agents);
  TROUPE_ASSIGN_OR_RETURN(options.local_ratio, args.GetDouble("local_ratio", 0.5, 0, 1));
  TROUPE_ASSIGN_OR_RETURN(options.max_cycles, args.GetInt("max_cycles", 25, 1, 1'000'000'000));
  TROUPE_ASSIGN_OR_RETURN(options.continuous_actions, args.GetBool("continuous_actions", false));
  TROUPE_ASSIGN_OR_RETURN(options.benchmark_data, args.GetBool("benchmark_data", false));
  TROUPE_ASSIGN_OR_RETURN(options.curriculum, args.GetBool("curriculum", false));
  TROUPE_ASSIGN_OR_RETURN(const int64_t stage, args.GetInt("curriculum_stage", 0, 0, kLastStage));
  options.curriculum_stage = static_cast<int>(stage);
  TROUPE_ASSIGN_OR_RETURN(options.terminate_on_success, args.GetBool("terminate_on_success", false));
  TROUPE_ASSIGN_OR_RETURN(const int64_t agent_neighbors, args.GetOptionalInt("num_agent_neighbors", 1, kMaxAgents));
  options.num_agent_neighbors = static_cast<int>(agent_neighbors);
  TROUPE_ASSIGN_OR_RETURN(const int64_t landmark_neighbors,
                          args.GetOptionalInt("num_landmark_neighbors", 1, kMaxAgents));
  options.num_landmark_neighbors = static_cast<int>(landmark_neighbors);
  // Of use only to a picture, which is not drawn here.
  TROUPE_RETURN_IF_ERROR(args.GetBool("dynamic_rescaling", true).status());
  const auto render_mode = args.values().find("render_mode");
  if (render_mode != args.values().end() && !std::holds_alternative<std::monostate>(render_mode->second)) {
    return absl::InvalidArgumentError("argument render_mode is given, expected null: native environments do not draw");
  }
  TROUPE_RETURN_IF_ERROR(args.GetOptionalInt("render_mode", 0, 0).status());
  TROUPE_RETURN_IF_ERROR(args.CheckAllKnown("mpe/simple_spread"));
  if (options.curriculum_stage != 0 && !options.curriculum) {
    return absl::InvalidArgumentError("argument curriculum_stage is given without curriculum: true");
  }
  return std::make_unique<SimpleSpread>(options);
}

void SimpleSpread::SetCurriculumStage(int stage) { curriculum_stage_ = std::clamp(stage, 0, kLastStage); }

absl::Status SimpleSpread::Reset(const env::EpisodeSeed& seed, env::StepWriter& out) {
  base::PhiloxSequence random = seed.Sequence(base::RandomStream::kReset);
  world_.ResetUniform(random);
  cycle_ = 0;
  WriteObservations(out);
  return absl::OkStatus();
}

absl::Status SimpleSpread::ResetTo(const WorldState& state, env::StepWriter& out) {
  const size_t expected = static_cast<size_t>(options_.num_agents);
  if (state.agents.size() != expected || state.landmarks.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat("world has ", state.agents.size(), " agents and ",
                                                   state.landmarks.size(), " landmarks, expected ", expected,
                                                   " of each"));
  }
  world_.Set(state);
  if (state.curriculum_stage >= 0) SetCurriculumStage(state.curriculum_stage);
  cycle_ = 0;
  WriteObservations(out);
  return absl::OkStatus();
}

absl::Status SimpleSpread::Step(env::ActionRows actions, env::StepWriter& out) {
  TROUPE_RETURN_IF_ERROR(ApplyActions(actions));
  world_.Step();
  ++cycle_;
  CountTouches();
  MeasureLandmarks();
  WriteRewards(out);
  WriteObservations(out);
  if (cycle_ >= options_.max_cycles) {
    for (int i = 0; i < options_.num_agents; ++i) out.TruncateAgent(AgentSlot(i));
    out.TruncateAll();
  } else if (options_.terminate_on_success &&
             std::all_of(nearest_.begin(), nearest_.end(), [](double distance) { return distance < kCaptureRadius; })) {
    for (int i = 0; i < options_.num_agents; ++i) out.TerminateAgent(AgentSlot(i));
    out.TerminateAll();
  }
  return absl::OkStatus();
}

absl::Status SimpleSpread::ApplyActions(env::ActionRows actions) {
  for (int i = 0; i < options_.num_agents; ++i) {
    const size_t a = static_cast<size_t>(i);
    const space::ActionWord* action = actions[a];
    if (action == nullptr) return absl::FailedPreconditionError(absl::StrCat("agent_", i, " did not act"));
    if (options_.continuous_actions) {
      const auto clipped = [&](size_t k) { return std::clamp(action[k].f32, 0.0f, 1.0f); };
      // The differences are taken in float32, as numpy does with a float32 action.
      world_.fx[a] = static_cast<double>(clipped(2) - clipped(1)) * kSensitivity;
      world_.fy[a] = static_cast<double>(clipped(4) - clipped(3)) * kSensitivity;
    } else {
      const uint32_t choice = static_cast<uint32_t>(action->i32);
      if (choice >= 5)
        return absl::InvalidArgumentError(
            absl::StrCat("agent_", i, ": action is ", action->i32, ", expected one in [0, 4]"));
      world_.fx[a] = kForceX[choice] * kSensitivity;
      world_.fy[a] = kForceY[choice] * kSensitivity;
    }
  }
  return absl::OkStatus();
}

void SimpleSpread::CountTouches() {
  constexpr double kTouch = kAgentSize + kAgentSize;
  std::fill(touches_.begin(), touches_.end(), 0);
  const size_t agents = touches_.size();
  for (size_t a = 0; a < agents; ++a) {
    for (size_t b = a + 1; b < agents; ++b) {
      const double dx = world_.x[a] - world_.x[b];
      const double dy = world_.y[a] - world_.y[b];
      const double squared = dx * dx + dy * dy;
      // The square first, since it is far almost always; the root decides, as in the original.
      if (squared < kTouch * kTouch * 1.001 && std::sqrt(squared) < kTouch) {
        ++touches_[a];
        ++touches_[b];
      }
    }
  }
}

void SimpleSpread::MeasureLandmarks() {
  const size_t agents = touches_.size();
  for (size_t l = 0; l < nearest_.size(); ++l) {
    double squared = kInfinity;
    for (size_t a = 0; a < agents; ++a) {
      const double dx = world_.x[a] - world_.x[agents + l];
      const double dy = world_.y[a] - world_.y[agents + l];
      squared = std::min(squared, dx * dx + dy * dy);
    }
    nearest_[l] = std::sqrt(squared);  // the root is monotone: the least of the roots
  }
}

void SimpleSpread::WriteRewards(env::StepWriter& out) {
  double global = 0;
  for (const double distance : nearest_) global -= distance;
  const bool penalty = !options_.curriculum || curriculum_stage_ > 0;
  for (int i = 0; i < options_.num_agents; ++i) {
    const double local = penalty ? -static_cast<double>(touches_[static_cast<size_t>(i)]) : 0.0;
    out.AddReward(AgentSlot(i), static_cast<float>(global * (1 - options_.local_ratio) + local * options_.local_ratio));
  }
  if (!options_.benchmark_data) return;
  const auto occupied =
      std::count_if(nearest_.begin(), nearest_.end(), [](double distance) { return distance < kCaptureRadius; });
  for (int i = 0; i < options_.num_agents; ++i) {
    const double collisions = touches_[static_cast<size_t>(i)];
    out.SetInfo(AgentSlot(i), 0, global - collisions);
    out.SetInfo(AgentSlot(i), 1, collisions);
    out.SetInfo(AgentSlot(i), 2, -global);
    out.SetInfo(AgentSlot(i), 3, static_cast<double>(occupied));
  }
}

void SimpleSpread::WriteObservations(env::StepWriter& out) {
  const int agents = options_.num_agents;
  float* state = out.State(AgentSlot(0));
  for (int i = 0; i < agents; ++i) {
    const size_t a = static_cast<size_t>(i);
    float* const row = out.ObserveFloat(AgentSlot(i));
    row[0] = static_cast<float>(world_.vx[a]);
    row[1] = static_cast<float>(world_.vy[a]);
    row[2] = static_cast<float>(world_.x[a]);
    row[3] = static_cast<float>(world_.y[a]);
    float* next = WriteRelative(i, agents, agents, options_.num_landmark_neighbors, row + 4);
    next = WriteRelative(i, 0, agents, options_.num_agent_neighbors, next);
    std::fill(next, row + observation_size_, 0.0f);  // agents are silent
    std::memcpy(state, row, observation_size_ * sizeof(float));
    state += observation_size_;
  }
}

float* SimpleSpread::WriteRelative(int self, int first, int count, int limit, float* row) {
  const double x = world_.x[static_cast<size_t>(self)];
  const double y = world_.y[static_cast<size_t>(self)];
  const auto write = [&](int entity, float* to) {
    to[0] = static_cast<float>(world_.x[static_cast<size_t>(entity)] - x);
    to[1] = static_cast<float>(world_.y[static_cast<size_t>(entity)] - y);
  };
  if (limit < 0) {
    for (int entity = first; entity < first + count; ++entity) {
      if (entity == self) continue;
      write(entity, row);
      row += 2;
    }
    return row;
  }
  int seen = 0;
  for (int entity = first; entity < first + count; ++entity) {
    if (entity == self) continue;
    const double dx = world_.x[static_cast<size_t>(entity)] - x;
    const double dy = world_.y[static_cast<size_t>(entity)] - y;
    // Insertion keeps equal distances in order, as numpy's argsort of few elements does.
    const double distance = std::sqrt(dx * dx + dy * dy);
    int place = seen++;
    for (; place > 0 && neighbours_[static_cast<size_t>(place) - 1].distance > distance; --place) {
      neighbours_[static_cast<size_t>(place)] = neighbours_[static_cast<size_t>(place) - 1];
    }
    neighbours_[static_cast<size_t>(place)] = Neighbour{distance, entity};
  }
  for (int i = 0; i < limit; ++i, row += 2) {
    if (i < seen) {
      write(neighbours_[static_cast<size_t>(i)].entity, row);
    } else {
      row[0] = 0;
      row[1] = 0;
    }
  }
  return row;
}

}  // namespace troupe::envs
