#include "lib/rollout/evaluator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/inference/make_policy_actor.h"
#include "lib/policy/policy_spec.h"

namespace troupe::rollout {
namespace {

uint64_t EvaluationSeed(uint64_t seed) {
  const base::PhiloxKey key = base::PhiloxKey::Make(seed, base::RandomStream::kEvaluation);
  return (static_cast<uint64_t>(key.k1) << 32) | key.k0;
}

MeanStd MeanAndStd(const std::vector<double>& values) {
  if (values.empty()) {
    return {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
  }
  double mean = 0;
  for (const double value : values) mean += value;
  mean /= static_cast<double>(values.size());
  double square = 0;
  for (const double value : values) square += (value - mean) * (value - mean);
  return {mean, std::sqrt(square / static_cast<double>(values.size()))};
}

}  // namespace

double EvaluatedEpisode::return_sum() const {
  double sum = 0;
  for (size_t slot = 0; slot < returns.size(); ++slot) {
    if (!std::isnan(returns[slot])) sum += trajectories.empty() ? returns[slot] : returns[slot] * trajectories[slot];
  }
  return sum;
}

double EvaluatedEpisode::return_mean() const {
  double sum = 0;
  int64_t appeared = 0;
  for (const double value : returns) {
    if (std::isnan(value)) continue;
    sum += value;
    ++appeared;
  }
  return appeared == 0 ? 0 : sum / static_cast<double>(appeared);
}

EvaluationResult Aggregate(const env::EnvSpec& spec, std::vector<EvaluatedEpisode> episodes) {
  EvaluationResult result;
  result.episodes = static_cast<int64_t>(episodes.size());
  result.info_columns = spec.info_columns;
  std::vector<double> sums, means, lengths;
  std::vector<std::vector<double>> by_agent(spec.possible_agents.size());
  std::vector<std::vector<double>> by_column(spec.info_columns.size());
  for (const EvaluatedEpisode& episode : episodes) {
    for (size_t column = 0; column < episode.infos.size(); ++column) {
      if (!std::isnan(episode.infos[column])) by_column[column].push_back(episode.infos[column]);
    }
    for (size_t slot = 0; slot < episode.returns.size(); ++slot) {
      if (!std::isnan(episode.returns[slot])) by_agent[slot].push_back(episode.returns[slot]);
    }
    sums.push_back(episode.return_sum());
    means.push_back(episode.return_mean());
    lengths.push_back(static_cast<double>(episode.length));
    result.cut += episode.cut ? 1 : 0;
  }
  result.return_sum = MeanAndStd(sums);
  result.return_mean = MeanAndStd(means);
  result.episode_length_mean = MeanAndStd(lengths).mean;
  for (size_t slot = 0; slot < by_agent.size(); ++slot) {
    result.agents.push_back({spec.possible_agents[slot].id.value(), MeanAndStd(by_agent[slot])});
  }
  for (size_t column = 0; column < by_column.size(); ++column) {
    if (by_column[column].empty()) continue;
    result.infos.push_back({spec.info_columns[column], MeanAndStd(by_column[column])});
  }
  result.each = std::move(episodes);
  return result;
}

struct Evaluator::Place {
  int64_t number = -1;  // of its episode; -1: idle
  int64_t step = 0;
  std::vector<policy::PolicySlot> policy;  // by agent slot; kNoPolicy: not seen yet
  std::vector<double> returns;             // of all trajectories
  std::vector<int32_t> trajectories;       // that have begun
  std::vector<uint8_t> ended;              // the last one of it has
  std::vector<double> info_sum;            // by info column
  std::vector<int64_t> info_count;
  std::vector<int64_t> row;  // of a ready agent, in the rows of its policy
  std::vector<const space::ActionWord*> actions;
  std::vector<float> memory;  // [agents, memory_size_], before an agent's next decision
  int tries = 0;              // of its episode that failed
  absl::Status status;        // of what was started in this round
};

struct Evaluator::Rows {
  std::unique_ptr<inference::PolicyActor> actor;
  size_t obs_bytes = 0;
  int64_t count = 0;
  std::vector<std::byte> obs;
  std::vector<uint8_t> mask;
  std::vector<inference::RowKey> keys;
  std::vector<float> memory;  // [count, memory_size]: before they decide, then after it
  size_t memory_size = 0;
  std::vector<space::ActionWord> actions;
  std::vector<float> logp;
};

Evaluator::Evaluator(RolloutConfig config, std::vector<std::unique_ptr<env::CheckedEnv>> envs)
    : config_(std::move(config)), envs_(std::move(envs)), buffers_(config_.env_spec, static_cast<int>(envs_.size())) {}

Evaluator::~Evaluator() = default;

absl::StatusOr<std::unique_ptr<Evaluator>> Evaluator::Create(RolloutConfig config, int num_envs) {
  TROUPE_RETURN_IF_ERROR(config.env_spec.Validate());
  if (num_envs < 1) return absl::InvalidArgumentError(absl::StrCat("num_envs is ", num_envs, ", expected at least 1"));
  if (config.policies.empty() || config.mapping == nullptr || config.env_factory == nullptr) {
    return absl::InvalidArgumentError("an evaluation needs policies, a policy mapping and an environment factory");
  }
  std::vector<std::unique_ptr<env::CheckedEnv>> envs;
  for (int i = 0; i < num_envs; ++i) {
    TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<env::MultiAgentEnv> env, config.env_factory());
    if (env->spec().ToString() != config.env_spec.ToString()) {
      return absl::InvalidArgumentError(absl::StrCat("the evaluation's environment is ", env->spec().ToString(),
                                                     ", expected ", config.env_spec.ToString()));
    }
    envs.push_back(std::make_unique<env::CheckedEnv>(std::move(env)));
  }
  auto evaluator = std::unique_ptr<Evaluator>(new Evaluator(std::move(config), std::move(envs)));
  const size_t num_agents = evaluator->config_.env_spec.possible_agents.size();
  for (const policy::PolicySpec& spec : evaluator->config_.policies) {
    evaluator->memory_size_ = std::max(evaluator->memory_size_, static_cast<size_t>(spec.actor_state_size()));
  }
  for (int i = 0; i < num_envs; ++i) {
    auto place = std::make_unique<Place>();
    place->policy.resize(num_agents);
    place->returns.resize(num_agents);
    place->trajectories.resize(num_agents);
    place->ended.resize(num_agents);
    place->info_sum.resize(evaluator->config_.env_spec.info_columns.size());
    place->info_count.resize(place->info_sum.size());
    place->row.resize(num_agents);
    place->actions.resize(num_agents);
    place->memory.resize(num_agents * evaluator->memory_size_);
    evaluator->places_.push_back(std::move(place));
  }
  for (const policy::PolicySpec& spec : evaluator->config_.policies) {
    evaluator->bounds_.push_back(inference::ActionBounds(spec));
    auto rows = std::make_unique<Rows>();
    rows->obs_bytes =
        static_cast<size_t>(spec.observation_size()) * tensor::ElementBytes(spec.observation_space.flat_dtype());
    rows->memory_size = static_cast<size_t>(spec.actor_state_size());
    evaluator->rows_.push_back(std::move(rows));
  }
  return evaluator;
}

absl::Status Evaluator::CheckCancelled() const {
  if (request_.cancelled == nullptr || !request_.cancelled->load(std::memory_order_relaxed)) return absl::OkStatus();
  return absl::CancelledError("the evaluation was cancelled");
}

absl::Status Evaluator::Show(size_t place, bool over) const {
  if (request_.watcher == nullptr) return absl::OkStatus();
  const Place& p = *places_[place];
  return request_.watcher->OnState({.episode = request_.first_episode + p.number,
                                    .step = p.step,
                                    .over = over,
                                    .env = *envs_[place],
                                    .returns = p.returns,
                                    .policies = p.policy});
}

absl::Status Evaluator::StartEpisode(size_t place, int64_t number, uint64_t seed) {
  Place& p = *places_[place];
  p.number = number;
  p.tries = 0;
  return BeginAgain(place, ResetPlace(place, seed), seed);
}

absl::Status Evaluator::ResetPlace(size_t place, uint64_t seed) {
  TROUPE_RETURN_IF_ERROR(CheckCancelled());
  Place& p = *places_[place];
  p.step = 0;
  std::fill(p.policy.begin(), p.policy.end(), policy::kNoPolicy);
  std::fill(p.returns.begin(), p.returns.end(), 0.0);
  std::fill(p.trajectories.begin(), p.trajectories.end(), 1);
  std::fill(p.ended.begin(), p.ended.end(), uint8_t{0});
  std::fill(p.info_sum.begin(), p.info_sum.end(), 0.0);
  std::fill(p.info_count.begin(), p.info_count.end(), 0);
  std::fill(p.memory.begin(), p.memory.end(), 0.0f);
  TROUPE_RETURN_IF_ERROR(
      envs_[place]->Reset({seed, EnvIdOf(p.number), 0}, buffers_.BeginStep(static_cast<int>(place))));
  CountInfos(place);
  return absl::OkStatus();
}

void Evaluator::CountInfos(size_t place) {
  Place& p = *places_[place];
  for (size_t slot = 0; slot < p.policy.size(); ++slot) {
    const absl::Span<const double> infos = buffers_.infos(static_cast<int>(place), static_cast<int32_t>(slot));
    for (size_t column = 0; column < infos.size(); ++column) {
      if (std::isnan(infos[column])) continue;
      p.info_sum[column] += infos[column];
      ++p.info_count[column];
    }
  }
}

absl::Status Evaluator::MapAgent(Place& p, size_t slot) {
  const env::AgentSpec& agent = config_.env_spec.possible_agents[slot];
  policy::EpisodeInfo episode = {config_.options.seed, EnvIdOf(p.number), 0, config_.options.worker,
                                 config_.options.env_args};
  mapped_.clear();
  for (size_t other = 0; other < p.policy.size(); ++other) {
    if (p.policy[other] == policy::kNoPolicy) continue;
    mapped_.push_back({base::AgentSlot(static_cast<int32_t>(other)), p.policy[other]});
  }
  episode.agents = mapped_;
  episode.host = config_.mapping_host.get();
  TROUPE_ASSIGN_OR_RETURN(const policy::PolicySlot policy,
                          config_.mapping->Map(agent.id, base::AgentSlot(static_cast<int32_t>(slot)), episode));
  if (!config_.policies.Contains(policy) || config_.policies[policy].observation_space != agent.observation_space ||
      config_.policies[policy].action_space != agent.action_space) {
    return absl::InvalidArgumentError(absl::StrCat("agent '", agent.id.value(), "' is mapped to policy slot ",
                                                   policy.value(), ", which does not fit its spaces"));
  }
  p.policy[slot] = policy;
  return absl::OkStatus();
}

void Evaluator::BeginTrajectory(Place& p, size_t slot) const {
  ++p.trajectories[slot];
  std::fill_n(p.memory.begin() + static_cast<int64_t>(slot * memory_size_), memory_size_, 0.0f);
}

absl::Status Evaluator::Gather(size_t place) {
  Place& p = *places_[place];
  const int env = static_cast<int>(place);
  bool any_ready = false;
  for (size_t slot = 0; slot < p.policy.size(); ++slot) {
    p.row[slot] = -1;
    p.actions[slot] = nullptr;
    const auto index = static_cast<int32_t>(slot);
    if (!buffers_.ready(env, index)) continue;
    any_ready = true;
    if (p.policy[slot] == policy::kNoPolicy) TROUPE_RETURN_IF_ERROR(MapAgent(p, slot));
    if (std::exchange(p.ended[slot], uint8_t{0}) != 0) BeginTrajectory(p, slot);
    const policy::PolicySlot policy = p.policy[slot];
    Rows& rows = *rows_[policy];
    p.row[slot] = rows.count++;
    const absl::Span<const std::byte> obs = buffers_.observation_bytes(env, index);
    rows.obs.insert(rows.obs.end(), obs.begin(), obs.end());
    const auto mask_size = static_cast<size_t>(config_.policies[policy].mask_size());
    const absl::Span<const uint8_t> mask = buffers_.action_mask(env, index);
    if (mask_size > 0 && mask.empty()) {
      rows.mask.insert(rows.mask.end(), mask_size, 1);
    } else if (mask_size > 0) {
      rows.mask.insert(rows.mask.end(), mask.begin(), mask.end());
    }
    if (rows.memory_size > 0) {
      const float* const memory = &p.memory[slot * memory_size_];
      rows.memory.insert(rows.memory.end(), memory, memory + rows.memory_size);
    }
    rows.keys.push_back({EnvIdOf(p.number), 0, base::AgentSlot(index), static_cast<uint32_t>(p.step)});
  }
  if (any_ready) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("environment ", config_.env_spec.name, ", evaluation episode ", p.number,
                                          ", step ", p.step, ": no agent is ready, but the episode goes on"));
}

absl::Status Evaluator::StepAll(std::vector<EvaluatedEpisode>& episodes, uint64_t seed) {
  // Where environments compute elsewhere, all at the same time. What was started is finished, whatever happens.
  const bool elsewhere = envs_[0]->runs_elsewhere();
  absl::Status first = CheckCancelled();
  if (!first.ok()) return first;
  for (size_t place = 0; place < places_.size(); ++place) {
    Place& p = *places_[place];
    if (p.number < 0) continue;
    GatherActions(place);
    if (elsewhere && p.status.ok()) p.status = envs_[place]->StartStep(p.actions);
    if (!elsewhere) first.Update(StepPlace(place, episodes, seed));
    if (!first.ok()) return first;
  }
  for (size_t place = 0; elsewhere && place < places_.size(); ++place) {
    if (places_[place]->number >= 0) first.Update(StepPlace(place, episodes, seed));
  }
  return first;
}

absl::Status Evaluator::BeginAgain(size_t place, absl::Status status, uint64_t seed) {
  Place& p = *places_[place];
  while (!status.ok()) {
    TROUPE_RETURN_IF_ERROR(CheckCancelled());
    if (++p.tries >= kMaxTries) {
      return absl::Status(status.code(), absl::StrCat("evaluation episode ", p.number, " failed ", kMaxTries,
                                                      " times, the last time: ", std::string(status.message())));
    }
    if (incidents_.AddFailure(status)) {
      TROUPE_WARN("evaluation episode begins again, more of this kind are not said episode={} try={}: {}", p.number,
                  p.tries + 1, base::LogSafeLines(incidents_.Take()[0].text, sample::EnvIncident::kMaxTextBytes));
    }
    status = ResetPlace(place, seed);
  }
  return status;
}

void Evaluator::FailToAct(policy::PolicySlot policy, const absl::Status& status) {
  Rows& rows = *rows_[policy];
  std::fill(rows.actions.begin(), rows.actions.end(), space::ActionWord());
  for (const auto& place : places_) {
    for (size_t slot = 0; slot < place->policy.size(); ++slot) {
      if (place->number >= 0 && place->row[slot] >= 0 && place->policy[slot] == policy) place->status = status;
    }
  }
}

void Evaluator::GatherActions(size_t place) {
  Place& p = *places_[place];
  for (size_t slot = 0; slot < p.policy.size(); ++slot) {
    if (p.row[slot] < 0) continue;
    const policy::PolicySlot policy = p.policy[slot];
    const auto words = static_cast<size_t>(config_.policies[policy].action_words());
    const absl::Span<space::ActionWord> action =
        absl::MakeSpan(rows_[policy]->actions).subspan(static_cast<size_t>(p.row[slot]) * words, words);
    const Rows& rows = *rows_[policy];
    std::copy_n(rows.memory.begin() + p.row[slot] * static_cast<int64_t>(rows.memory_size), rows.memory_size,
                p.memory.begin() + static_cast<int64_t>(slot * memory_size_));
    if (config_.listener != nullptr && config_.listener->TellsEnvs()) {
      envs_[place]->NoteDecision(base::AgentSlot(static_cast<int32_t>(slot)), config_.policies[policy].id.value(),
                                 rows.logp[static_cast<size_t>(p.row[slot])]);
    }
    bounds_[policy].Apply(action, action);  // nobody records the unmapped ones here
    p.actions[slot] = action.data();
  }
}

absl::Status Evaluator::StepPlace(size_t place, std::vector<EvaluatedEpisode>& episodes, uint64_t seed) {
  Place& p = *places_[place];
  const int env = static_cast<int>(place);
  env::CheckedEnv& environment = *envs_[place];
  env::StepWriter& writer = buffers_.BeginStep(env);
  absl::Status status = p.status;
  if (status.ok()) {
    status = environment.runs_elsewhere() ? environment.Finish(writer) : environment.Step(p.actions, writer);
  }
  if (!status.ok()) return BeginAgain(place, std::move(status), seed);
  ++p.step;
  for (size_t slot = 0; slot < p.policy.size(); ++slot) {
    const double reward = buffers_.reward(env, static_cast<int32_t>(slot));
    // Rewarded before it was ever observed.
    if (reward != 0.0 && p.policy[slot] == policy::kNoPolicy) TROUPE_RETURN_IF_ERROR(MapAgent(p, slot));
    p.returns[slot] += reward;
    if (buffers_.done(env, static_cast<int32_t>(slot))) p.ended[slot] = 1;
  }
  CountInfos(place);
  const bool ended = buffers_.all_done(env);
  if (!ended && (request_.max_episode_steps == 0 || p.step < request_.max_episode_steps)) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(Show(place, /*over=*/true));
  if (config_.listener != nullptr && config_.listener->TellsEnvs()) environment.NoteEnd();
  EvaluatedEpisode& episode = episodes[static_cast<size_t>(p.number)];
  episode.length = p.step;
  episode.cut = !ended;
  episode.seed = env::EpisodeSeed{seed, EnvIdOf(p.number), 0}.ResetSeed();
  episode.policies = p.policy;
  episode.trajectories = p.trajectories;
  for (size_t slot = 0; slot < p.policy.size(); ++slot) {
    episode.returns.push_back(p.policy[slot] == policy::kNoPolicy ? std::numeric_limits<double>::quiet_NaN()
                                                                  : p.returns[slot] / p.trajectories[slot]);
  }
  for (size_t column = 0; column < p.info_sum.size(); ++column) {
    episode.infos.push_back(p.info_sum[column] / static_cast<double>(p.info_count[column]));  // 0 of 0 is NaN
  }
  p.number = -1;
  if (request_.ended != nullptr) request_.ended->fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::StatusOr<EvaluationResult> Evaluator::Run(const EvaluationRequest& request,
                                                absl::Span<const policy::WeightSnapshotPtr> weights) {
  if (request.episodes < 1 || request.episodes > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("episodes is ", request.episodes, ", expected at least 1"));
  }
  if (weights.size() != config_.policies.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("got weights of ", weights.size(), " policies, expected ", config_.policies.size()));
  }
  request_ = request;
  const uint64_t seed = EvaluationSeed(request.seed);
  for (const policy::PolicySlot slot : config_.policies.ids()) {
    const policy::PolicySpec& spec = config_.policies[slot];
    TROUPE_ASSIGN_OR_RETURN(rows_[slot]->actor,
                            inference::MakePolicyActor(spec, seed, config_.backend, config_.actor_host.get()));
    if (config_.unplayed.count(spec.id) == 0) TROUPE_RETURN_IF_ERROR(rows_[slot]->actor->Prepare());
    if (!spec.policy_class.has_weights()) continue;
    TROUPE_RETURN_IF_ERROR(rows_[slot]->actor->SetWeights(weights[static_cast<size_t>(slot.value())]));
  }
  std::vector<EvaluatedEpisode> episodes(static_cast<size_t>(request.episodes));
  for (const auto& place : places_) place->number = -1;
  int64_t started = 0;
  int64_t running = 0;
  do {
    running = 0;
    for (const auto& rows : rows_) {
      rows->count = 0;
      rows->obs.clear();
      rows->mask.clear();
      rows->keys.clear();
      rows->memory.clear();
    }
    for (size_t place = 0; place < places_.size(); ++place) {
      if (places_[place]->number < 0) {
        if (started == request.episodes) continue;
        TROUPE_RETURN_IF_ERROR(StartEpisode(place, started++, seed));
      }
      ++running;
      places_[place]->status = absl::OkStatus();
      TROUPE_RETURN_IF_ERROR(Gather(place));
      TROUPE_RETURN_IF_ERROR(Show(place, /*over=*/false));
    }
    for (const policy::PolicySlot slot : config_.policies.ids()) {
      Rows& rows = *rows_[slot];
      rows.actions.resize(static_cast<size_t>(rows.count * config_.policies[slot].action_words()));
      rows.logp.resize(static_cast<size_t>(rows.count));
      inference::ActInput input;
      input.rows = rows.count;
      input.obs = rows.obs.data();
      input.action_mask = config_.policies[slot].mask_size() > 0 ? rows.mask.data() : nullptr;
      input.keys = rows.keys.data();
      if (rows.memory_size > 0) input.state_in = input.state_out = rows.memory.data();
      input.deterministic = request.deterministic;
      const absl::Status acted = rows.actor->Act(input, rows.actions.data(), rows.logp.data());
      if (acted.ok()) continue;
      if (!rows.actor->runs_elsewhere() || absl::IsResourceExhausted(acted)) return acted;
      FailToAct(slot, acted);
    }
    TROUPE_RETURN_IF_ERROR(StepAll(episodes, seed));
  } while (running > 0);
  return Aggregate(config_.env_spec, std::move(episodes));
}

}  // namespace troupe::rollout
