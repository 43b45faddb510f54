#include "lib/envs/mpe/replay.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/env/slot_buffers.h"
#include "lib/envs/mpe/mpe_env.h"
#include <nlohmann/json.hpp>

namespace troupe::envs {
namespace {

using nlohmann::json;

absl::StatusOr<env::EnvArgs> ReadArgs(const json& args) {
  env::ArgMap values;
  for (const auto& [name, value] : args.items()) {
    if (value.is_null()) {
      values.emplace_back(name, std::monostate());
    } else if (value.is_boolean()) {
      values.emplace_back(name, value.get<bool>());
    } else if (value.is_number_integer()) {
      values.emplace_back(name, value.get<int64_t>());
    } else if (value.is_number()) {
      values.emplace_back(name, value.get<double>());
    } else if (value.is_string()) {
      values.emplace_back(name, value.get<std::string>());
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("trace: argument ", base::LogSafe(name), " is a list or map, expected a plain value"));
    }
  }
  return env::EnvArgs(std::move(values));
}

WorldState::Entity ReadEntity(const json& entity) {
  WorldState::Entity result{.name = entity.at("name").get<std::string>()};
  for (size_t i = 0; i < 2; ++i) {
    result.position[i] = entity.at("p_pos").at(i).get<double>();
    result.velocity[i] = entity.at("p_vel").at(i).get<double>();
  }
  if (entity.contains("c")) result.said = entity.at("c").get<std::vector<double>>();
  if (entity.contains("key")) result.key = entity.at("key").get<std::vector<double>>();
  result.goal_a = entity.value("goal_a", std::string());
  result.goal_b = entity.value("goal_b", std::string());
  result.type = entity.value("type", 0);
  result.alive = entity.value("alive", true);
  result.holding = entity.value("holding", -1);
  return result;
}

WorldState ReadWorld(const json& trace) {
  WorldState state;
  for (const json& agent : trace.at("world").at("agents")) state.agents.push_back(ReadEntity(agent));
  for (const json& landmark : trace.at("world").at("landmarks")) state.landmarks.push_back(ReadEntity(landmark));
  state.curriculum_stage = trace.value("curriculum_stage", -1);
  if (trace.contains("respawns")) {
    for (const json& respawn : trace.at("respawns")) {
      state.respawns.push_back(
          {.position = {respawn.at(0).get<double>(), respawn.at(1).get<double>()}, .type = respawn.at(2).get<int>()});
    }
  }
  return state;
}

/// |a - b|; infinite when either is NaN, so that a maximum keeps it.
double Distance(double a, double b) {
  const double distance = std::abs(a - b);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

/// The environment under check, its arrays and the running comparison.
class Replay {
 public:
  Replay(std::unique_ptr<MpeEnv> env, std::string name) : buffers_(env->spec(), 1), env_(std::move(env)) {
    report_.env = std::move(name);
  }

  absl::StatusOr<ReplayReport> Run(const json& trace) {
    const env::EnvSpec& spec = env_->spec();
    std::vector<std::string> agents;
    for (const env::AgentSpec& agent : spec.possible_agents) agents.push_back(agent.id.value());
    if (trace.at("agents").get<std::vector<std::string>>() != agents) {
      return absl::InvalidArgumentError("trace: its agents are not those of the environment with its arguments");
    }
    TROUPE_RETURN_IF_ERROR(env_->ResetTo(ReadWorld(trace), buffers_.BeginStep(0)));
    CompareObservations(trace.at("reset_obs"));
    for (const json& step : trace.at("steps")) {
      if (buffers_.all_done(0)) {
        Unequal("the episode has ended, the trace goes on");
        break;
      }
      TROUPE_ASSIGN_OR_RETURN(const bool follows, Step(step));
      if (!follows) break;
      ++report_.steps;
    }
    report_.steps_left_out = static_cast<int64_t>(trace.at("steps").size()) - report_.steps;
    return report_;
  }

 private:
  /// False when random numbers made the step another one than the recorded one: nothing is compared then.
  absl::StatusOr<bool> Step(const json& step) {
    const env::EnvSpec& spec = env_->spec();
    std::vector<std::vector<space::ActionWord>> actions(spec.possible_agents.size());
    std::vector<const space::ActionWord*> rows(actions.size());
    for (size_t i = 0; i < actions.size(); ++i) {
      const json& recorded = step.at("actions").at(spec.possible_agents[i].id.value());
      const space::Space& action_space = spec.possible_agents[i].action_space;
      if (recorded.is_array()) {
        for (const json& element : recorded) actions[i].push_back({.f32 = element.get<float>()});
      } else {
        actions[i].push_back({.i32 = recorded.get<int32_t>()});
      }
      if (recorded.is_array() == (action_space.kind() == space::SpaceKind::kDiscrete)) {
        return absl::InvalidArgumentError(
            absl::StrCat("trace: an action is ", recorded.dump(), ", expected one of ", action_space.ToString()));
      }
      const absl::Status inside = action_space.ContainsAction(actions[i]);
      if (!inside.ok())
        return absl::InvalidArgumentError(
            absl::StrCat("trace: action of ", spec.possible_agents[i].id.value(), ": ", inside.message()));
      rows[i] = actions[i].data();
    }
    TROUPE_RETURN_IF_ERROR(env_->Step(rows, buffers_.BeginStep(0)));
    if (env_->has_drawn()) return false;
    CompareObservations(step.at("obs"));
    for (size_t i = 0; i < actions.size(); ++i) CompareRest(step, static_cast<int32_t>(i));
    return true;
  }

  void CompareObservations(const json& recorded) {
    const env::EnvSpec& spec = env_->spec();
    if (recorded.size() != spec.possible_agents.size()) Unequal("number of observed agents");
    for (int32_t slot = 0; slot < spec.num_agents(); ++slot) {
      const std::string& agent = Agent(slot);
      const json& row = recorded.at(agent);
      const absl::Span<const float> own = buffers_.observation(0, slot);
      if (row.size() != own.size() || !buffers_.observed(0, slot)) {
        Unequal(absl::StrCat("observation size of ", agent));
        continue;
      }
      for (size_t i = 0; i < own.size(); ++i) {
        Note(Distance(own[i], row.at(i).get<double>()), report_.max_obs_diff,
             absl::StrCat("observation element ", i, " of ", agent));
      }
    }
  }

  void CompareRest(const json& step, int32_t slot) {
    const std::string& agent = Agent(slot);
    // Rewards are float32 here, in the original float64.
    Note(Distance(buffers_.reward(0, slot), step.at("rewards").at(agent).get<double>()), report_.max_reward_diff,
         absl::StrCat("reward of ", agent));
    if (buffers_.terminated(0, slot) != step.at("terminations").at(agent).get<bool>())
      Unequal(absl::StrCat("termination of ", agent));
    if (buffers_.truncated(0, slot) != step.at("truncations").at(agent).get<bool>())
      Unequal(absl::StrCat("truncation of ", agent));
    if (!step.contains("benchmark_data")) return;
    const absl::Span<const double> infos = buffers_.infos(0, slot);
    const absl::Span<const int> columns = env_->benchmark_columns(env::AgentSlot(slot));
    const json& recorded = step.at("benchmark_data").at(agent);
    if (recorded.size() != columns.size()) {
      Unequal(absl::StrCat("benchmark data of ", agent));
      return;
    }
    for (size_t i = 0; i < columns.size(); ++i) {
      Note(Distance(infos[static_cast<size_t>(columns[i])], recorded.at(i).get<double>()), report_.max_info_diff,
           absl::StrCat("benchmark data ", i, " of ", agent));
    }
  }

  void Note(double difference, double& largest, const std::string& what) {
    largest = std::max(largest, difference);
    if (difference <= largest_) return;
    largest_ = difference;
    if (report_.flags_equal) report_.where = absl::StrCat("step ", report_.steps, ": ", what, " by ", difference);
  }

  void Unequal(const std::string& what) {
    if (report_.flags_equal) report_.where = absl::StrCat("step ", report_.steps, ": ", what);
    report_.flags_equal = false;
  }

  const std::string& Agent(int32_t slot) const {
    return env_->spec().possible_agents[static_cast<size_t>(slot)].id.value();
  }

  env::SlotBuffers buffers_;
  const std::unique_ptr<MpeEnv> env_;
  ReplayReport report_;
  double largest_ = 0;  ///< of all differences so far
};

}  // namespace

absl::StatusOr<ReplayReport> ReplayTrace(std::string_view json_line) {
  // The JSON library reports by exceptions what a file may hold; they end here.
  try {
    const json trace = json::parse(json_line);
    const std::string name = trace.at("env").get<std::string>();
    TROUPE_ASSIGN_OR_RETURN(env::EnvArgs args, ReadArgs(trace.at("args")));
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<MpeEnv> env, MakeMpeEnv(name, std::move(args)));
    return Replay(std::move(env), name).Run(trace);
  } catch (const json::exception& e) {
    return absl::InvalidArgumentError(
        absl::StrCat("trace: ", base::LogSafe(e.what()), ", expected a line of record_mpe.py's form"));
  }
}

}  // namespace troupe::envs
