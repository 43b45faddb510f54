#include "lib/training/core/on_policy_group.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/training/core/advantages.h"
#include "lib/training/core/frozen_parameters.h"
#include "lib/training/core/moments.h"
#include "lib/training/core/popart.h"
#include "lib/training/core/shuffle.h"
#include "lib/training/core/state_blocks.h"

namespace troupe::training {
namespace {

using learner::PolicyTrainBatch;
using learner::PolicyUpdateReport;
using learner::UpdateContext;

// Old returns count for at most so many batches in the value moments: they must follow a policy that gets better.
constexpr double kValueMomentBatches = 50;
// The most that a row of a policy older than the target weighs (Luo et al. 2020 call it rho, RLlib's APPO has 2).
constexpr double kMostTargetWeight = 2;

/// With a critic that shares the actor's encoder there is one rate.
absl::Status CheckCriticRate(const policy::PolicySpec& policy, const policy::AlgorithmSpec& spec) {
  const auto critic = spec.options.find("critic_lr");
  const auto actor = spec.options.find("lr");
  if (!policy.shares_encoder() || critic == spec.options.end()) return absl::OkStatus();
  if (actor != spec.options.end() && critic->second == actor->second) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("algorithm.critic_lr: got another rate than lr, but the critic of policy \"", policy.id.value(),
                   "\" shares the actor's encoder (model.critic_encoder), which one rate trains; expected auto"));
}

}  // namespace

StepTotals& StepTotals::operator+=(const StepTotals& other) {
  steps += other.steps;
  skipped_steps += other.skipped_steps;
  rows += other.rows;
  value_rows += other.value_rows;
  policy_loss += other.policy_loss;
  value_loss += other.value_loss;
  entropy += other.entropy;
  for (size_t i = 0; i < statistics.size(); ++i) statistics[i] += other.statistics[i];
  if (module_metrics.empty()) {
    module_metrics = other.module_metrics;
  } else {
    for (size_t i = 0; i < other.module_metrics.size(); ++i) module_metrics[i].second += other.module_metrics[i].second;
  }
  actor_grad_norm += other.actor_grad_norm;
  critic_grad_norm += other.critic_grad_norm;
  return *this;
}

int64_t OnPolicyGroup::MinibatchRows(int64_t rows) const {
  return plan_.minibatch_size > 0 ? std::min(plan_.minibatch_size, rows) : rows;
}

absl::Status OnPolicyGroup::Check(const policy::PolicySpec& policy, const policy::AlgorithmSpec& spec) {
  const auto is_on = [&spec](const char* key) {
    const auto option = spec.options.find(key);
    const bool* const value = option == spec.options.end() ? nullptr : std::get_if<bool>(&option->second);
    return value != nullptr && *value;
  };
  if (is_on("death_masking")) TROUPE_RETURN_IF_ERROR(CheckDeathMasking(policy));
  TROUPE_RETURN_IF_ERROR(CheckCriticRate(policy, spec));
  if (const auto gamma = spec.options.find("gamma"); policy.reward_discount != 1 && gamma != spec.options.end() &&
                                                     std::holds_alternative<policy::ScheduleValue>(gamma->second)) {
    return absl::InvalidArgumentError(
        "algorithm.gamma: got a schedule with discount_by: env_step, expected a number: workers discount by it, too");
  }
  if (is_on("use_popart") && policy.critic().encoder == policy::EncoderKind::kTorchScript) {
    return absl::InvalidArgumentError(
        absl::StrCat("algorithm.use_popart: got true, but the critic of policy \"", policy.id.value(),
                     "\" is a TorchScript module, of which no layer is known to be the last; expected false"));
  }
  const auto minibatch_by = spec.options.find("minibatch_by");
  if (minibatch_by != spec.options.end() && minibatch_by->second == policy::OptionValue(std::string("env_steps"))) {
    TROUPE_RETURN_IF_ERROR(CheckMinibatchBy(policy, MinibatchBy::kEnvSteps));
  }
  const auto frozen = spec.options.find("frozen_parameters");
  // The names of a module's tensors are known where there is LibTorch: whoever trains looks at them.
  if (frozen == spec.options.end() || policy::HasUnreadModule(policy)) return absl::OkStatus();
  const auto* const globs = std::get_if<std::vector<std::string>>(&frozen->second);
  if (globs == nullptr) return absl::OkStatus();
  TROUPE_ASSIGN_OR_RETURN(const std::vector<ParameterRange> ranges, FrozenRanges(policy, *globs));
  return ValuesAreFrozen(policy, ranges, is_on("use_popart")).status();
}

absl::StatusOr<std::unique_ptr<GroupTrainer>> OnPolicyGroup::Make(const GroupMember& member, PlanAt plan_at) {
  TROUPE_ASSIGN_OR_RETURN(OnPolicyPlan plan, plan_at(*member.spec, *member.algorithm, {}));
  return std::unique_ptr<GroupTrainer>(
      new OnPolicyGroup(std::move(plan), *member.algorithm, Moves(*member.algorithm) ? plan_at : nullptr));
}

StepSettings OnPolicyGroup::SettingsOf(ResidentPolicy* resident) const {
  const OnPolicyOptions& options = plan_.options;
  StepSettings settings;
  static_cast<OptimizerOptions&>(settings) = options;
  const double* const rate = resident->Number(kLearningRate);
  settings.learning_rate = rate != nullptr ? *rate : options.learning_rate;
  settings.critic_learning_rate = options.critic_learning_rate.value_or(settings.learning_rate);
  settings.value_loss_coeff = options.value_loss_coeff;
  settings.huber_delta = options.huber_delta;
  settings.entropy_coeff = options.entropy_coeff;
  settings.frozen = plan_.frozen;
  settings.loss = plan_.loss;
  if (plan_.loss_with != nullptr) {
    const double* const coeff = resident->Number(kKlCoeff);
    settings.loss = plan_.loss_with(coeff != nullptr ? *coeff : plan_.penalty.kl_coeff);
  }
  return settings;
}

void OnPolicyGroup::AdaptRate(double kl, ResidentPolicy* resident, StepSettings* settings) const {
  double* const rate = resident->Number(kLearningRate);
  if (rate == nullptr) return;
  *rate = plan_.rate.Next(*rate, kl);
  settings->learning_rate = *rate;
  if (!plan_.options.critic_learning_rate.has_value()) settings->critic_learning_rate = *rate;
}

absl::StatusOr<std::vector<float>> OnPolicyGroup::Ratios(const Work& work, ValueReport* report) const {
  const Net net = plan_.target.has_value() ? Net::kTarget : Net::kOnline;
  TROUPE_ASSIGN_OR_RETURN(const std::vector<float> logp, work.resident.backend->LogProbabilities(net));
  PreparedBatch& prepared = work.prepared;
  const absl::Span<const float> acted = work.batch.action_logp;
  std::vector<float> ratios(logp.size(), 1.0f);
  int64_t clipped = 0;
  for (const int32_t row : prepared.active()) {
    ratios[row] = std::exp(logp[row] - acted[row]);
    report->mean_ratio += ratios[row];
    clipped += ratios[row] > plan_.vtrace->rho ? 1 : 0;
  }
  const auto rows = static_cast<double>(std::max<size_t>(1, prepared.active().size()));
  report->mean_ratio /= rows;
  report->clipped_share = static_cast<double>(clipped) / rows;
  if (plan_.target.has_value()) {
    // The loss's ratio is min(mu / target, 2) pi / mu.
    std::vector<float>& old_logp = prepared.targets.old_logp;
    old_logp.resize(logp.size());
    for (size_t row = 0; row < logp.size(); ++row) {
      old_logp[row] = std::max(logp[row], acted[row] - static_cast<float>(std::log(kMostTargetWeight)));
    }
    prepared.old_logp = old_logp;
  }
  return ratios;
}

void OnPolicyGroup::MoveTarget(const Work& work) const {
  if (!plan_.target.has_value() || (work.context.iteration + 1) % plan_.target->interval != 0) return;
  const policy::ParameterLayout& layout = work.resident.parameters.layout();
  const absl::Span<float> values = work.resident.parameters.values();
  const policy::ParameterSection& actor = *layout.FindSection(policy::kActorRole);
  const policy::ParameterSection& target = *layout.FindSection(absl::StrCat(policy::kActorRole, policy::kTargetOf));
  const auto share = static_cast<float>(plan_.target->share);
  for (int64_t i = 0; i < actor.size; ++i) {
    float& to = values[static_cast<size_t>(target.offset + i)];
    const float from = values[static_cast<size_t>(actor.offset + i)];
    to = share == 1 ? from : to + share * (from - to);
  }
}

absl::StatusOr<OnPolicyGroup::ValueReport> OnPolicyGroup::PrepareTargets(const Work& work) {
  const OnPolicyOptions& options = plan_.options;
  policy::RunningMoments& value_moments = work.resident.value_moments;
  PreparedBatch& prepared = work.prepared;
  TROUPE_ASSIGN_OR_RETURN(const CriticValues spoken,
                          ValuesOf(work.spec, work.batch, work.resident.backend.get(), &prepared, &carry_));
  double mean = 0;
  double deviation = 1;
  const auto read_moments = [&] {
    if (!options.normalizes_values()) return;
    mean = value_moments.mean[0];
    deviation = StandardDeviation(value_moments.variance[0]);
  };
  const auto denormalized = [&](const std::vector<float>& values) {
    std::vector<float> result(values.size());
    for (size_t row = 0; row < values.size(); ++row) result[row] = static_cast<float>(values[row] * deviation + mean);
    return result;
  };
  const auto normalized = [&](const std::vector<float>& values) {
    std::vector<float> result(values.size());
    for (size_t row = 0; row < values.size(); ++row) result[row] = static_cast<float>((values[row] - mean) / deviation);
    return result;
  };

  // The critic spoke in the units of the moments it was trained with; what it is trained on next is in the units of the
  // new ones.
  read_moments();
  const std::vector<float> values = denormalized(spoken.rows);
  const std::vector<float> final_values = denormalized(spoken.finals);
  const bool by_env_step = options.discount_by == DiscountBy::kEnvStep;
  const double lambda = options.use_gae ? options.gae_lambda : 1.0;
  const auto waits = by_env_step ? absl::MakeConstSpan(work.batch.waits) : absl::Span<const int32_t>();
  ValueReport report;
  Advantages advantages;
  if (plan_.vtrace.has_value()) {
    TROUPE_ASSIGN_OR_RETURN(const std::vector<float> ratios, Ratios(work, &report));
    advantages = ComputeVtrace(work.batch.segments, work.batch.rewards, values, final_values, ratios, options.gamma,
                               lambda, *plan_.vtrace, options.time_limit_bootstrap, waits);
  } else {
    advantages = ComputeGae(work.batch.segments, work.batch.rewards, values, final_values, options.gamma, lambda,
                            options.time_limit_bootstrap, waits);
  }
  if (options.normalizes_values() && !plan_.values_are_frozen) {
    const policy::RunningMoments moments = MomentsOf(advantages.returns, 1, prepared.uses().in_value());
    policy::RunningMoments merged = Merge(value_moments, moments, kValueMomentBatches * moments.count);
    if (IsFinite(merged)) {
      if (options.use_popart) {
        PreserveValues(work.spec, value_moments, merged, &work.resident.parameters);
        TROUPE_RETURN_IF_ERROR(work.resident.backend->ParametersChanged());
      }
      value_moments = std::move(merged);
    }
    read_moments();
  }
  prepared.targets.value_targets = normalized(advantages.returns);
  prepared.targets.old_values = normalized(values);
  report.broken_streams = spoken.broken_streams;
  report.explained_variance = ExplainedVariance(advantages.returns, values, prepared.uses().in_value());
  prepared.targets.advantages =
      options.use_advnorm ? NormalizeAdvantages(advantages.advantages, prepared.active(), prepared.uses().counted())
                          : std::move(advantages.advantages);
  return report;
}

void OnPolicyGroup::TakeUnits(const PreparedBatch& prepared, std::vector<int32_t>* units) {
  if (!prepared.units().empty()) {
    units->resize(static_cast<size_t>(prepared.units().size()));
    std::iota(units->begin(), units->end(), 0);
    return;
  }
  if (prepared.sequences().empty()) {
    units->assign(prepared.uses().counted().begin(), prepared.uses().counted().end());
    return;
  }
  units->clear();
  const absl::Span<const int32_t> counted = prepared.uses().counted();
  size_t next = 0;
  for (size_t s = 0; s < prepared.sequences().size(); ++s) {
    const learner::TrainSequence& sequence = prepared.sequences()[s];
    const size_t before = next;
    while (next < counted.size() && counted[next] < sequence.first_row + sequence.rows) ++next;
    if (next > before) units->push_back(static_cast<int32_t>(s));
  }
}

std::vector<int64_t> OnPolicyGroup::MinibatchEnds(const PreparedBatch& prepared, absl::Span<const int32_t> units,
                                                  int64_t minibatch) {
  const bool by_units = !prepared.units().empty();
  const auto rows_of = [&](int32_t unit) -> int64_t {
    if (by_units) return static_cast<int64_t>(prepared.units().RowsOf(unit).size());
    if (prepared.sequences().empty()) return 1;
    const learner::TrainSequence& sequence = prepared.sequences()[static_cast<size_t>(unit)];
    int64_t rows = 0;
    for (int64_t r = 0; r < sequence.rows; ++r) rows += prepared.uses().IsCounted(sequence.first_row + r) ? 1 : 0;
    return rows;
  };
  std::vector<int64_t> ends;
  int64_t rows = 0;  // of the epoch
  int64_t goal = minibatch;
  for (size_t i = 0; i < units.size(); ++i) {
    rows += rows_of(units[i]);
    if (rows < goal && i + 1 < units.size()) continue;
    ends.push_back(static_cast<int64_t>(i) + 1);
    goal = (by_units ? rows / minibatch * minibatch : rows) + minibatch;
  }
  return ends;
}

absl::StatusOr<OnPolicyGroup::EpochsReport> OnPolicyGroup::RunEpochs(const Work& work, StepSettings* settings) const {
  EpochsReport report;
  std::vector<int32_t>& order = work.memory.order;
  NetworkBackend& backend = *work.resident.backend;
  const int64_t minibatch = MinibatchRows(static_cast<int64_t>(work.prepared.uses().counted().size()));
  double* const coeff = work.resident.Number(kKlCoeff);
  report.kl_coeff = coeff != nullptr ? *coeff : plan_.penalty.kl_coeff;
  while (report.epochs < plan_.num_epochs) {
    TakeUnits(work.prepared, &order);
    Shuffle(work.context, report.epochs, work.batch.policy, &order);
    TROUPE_RETURN_IF_ERROR(backend.BeginEpoch(order));
    int64_t first = 0;
    for (const int64_t end : MinibatchEnds(work.prepared, order, minibatch)) {
      TROUPE_RETURN_IF_ERROR(backend.Step(first, end - first, *settings));
      first = end;
    }
    TROUPE_ASSIGN_OR_RETURN(const StepTotals totals, backend.TakeTotals());
    ++report.epochs;
    report.totals += totals;
    report.last_rows = totals.rows;
    for (size_t i = 0; i < totals.statistics.size(); ++i) {
      report.last_statistics[i] = totals.rows > 0 ? totals.statistics[i] / static_cast<double>(totals.rows) : 0;
    }
    if (totals.rows > 0) AdaptRate(report.last_statistics[0], &work.resident, settings);
    if (plan_.stop_above > 0 && report.last_statistics[0] > plan_.stop_above) break;
  }
  if (coeff != nullptr && report.last_rows > 0) *coeff = plan_.penalty.Next(*coeff, report.last_statistics[0]);
  return report;
}

void OnPolicyGroup::AddMetrics(const EpochsReport& epochs, const ValueReport& values, const StepSettings& settings,
                               const Work& work, PolicyUpdateReport* report) const {
  const StepTotals& totals = epochs.totals;
  const double rows = static_cast<double>(std::max<int64_t>(totals.rows, 1));
  const double value_rows = static_cast<double>(std::max<int64_t>(totals.value_rows, 1));
  const double steps = static_cast<double>(std::max<int64_t>(totals.steps, 1));
  auto& metrics = report->metrics;
  metrics = {{"Policy/Learning rate", settings.learning_rate},
             {"Policy/Critic learning rate", settings.critic_learning_rate},
             {"Policy/Skipped steps", static_cast<double>(totals.skipped_steps)},
             {"Policy/Consecutive skips", static_cast<double>(work.resident.consecutive_skips)}};
  if (work.spec.critic().remembers()) {
    metrics.emplace_back("Policy/Broken critic streams", static_cast<double>(values.broken_streams));
  }
  if (totals.steps > 0) {
    for (const auto& [name, sum] : totals.module_metrics) metrics.emplace_back("Loss/" + name, sum / steps);
    if (plan_.loss.module.empty()) {
      metrics.insert(metrics.end(), {{"Loss/Policy loss", totals.policy_loss / rows},
                                     {"Loss/Value loss", settings.value_loss_coeff * totals.value_loss / value_rows},
                                     {"Loss/Entropy loss", -settings.entropy_coeff * totals.entropy / rows}});
    }
    metrics.emplace_back("Policy/Entropy", totals.entropy / rows);
    for (size_t i = 0; i < plan_.statistics.size(); ++i) {
      const OnPolicyPlan::Statistic& statistic = plan_.statistics[i];
      metrics.emplace_back(statistic.tag,
                           statistic.last_epoch ? epochs.last_statistics[i] : totals.statistics[i] / rows);
    }
    if (plan_.penalty.use_kl_loss) {
      metrics.insert(metrics.end(), {{"Loss/KL loss", epochs.kl_coeff * totals.statistics[0] / rows},
                                     {"Policy/KL coefficient", epochs.kl_coeff}});
    }
    if (plan_.options.use_popart) {
      const policy::RunningMoments& moments = work.resident.value_moments;
      metrics.insert(metrics.end(), {{"Policy/Return mean", moments.mean[0]},
                                     {"Policy/Return deviation", StandardDeviation(moments.variance[0])}});
    }
    if (plan_.vtrace.has_value()) {
      metrics.insert(metrics.end(), {{"Policy/Importance ratio", values.mean_ratio},
                                     {"Policy/Clipped importance ratios", values.clipped_share}});
    }
    metrics.insert(metrics.end(), {{"Policy/Explained variance", values.explained_variance},
                                   {"Policy/Gradient norm", totals.actor_grad_norm / steps},
                                   {"Policy/Critic gradient norm", totals.critic_grad_norm / steps}});
  }
  const FlatParameters& parameters = work.resident.parameters;
  if (const policy::ParameterEntry* log_std = parameters.layout().Find("actor.log_std")) {
    double sum = 0;
    for (const float value :
         parameters.values().subspan(static_cast<size_t>(log_std->offset), static_cast<size_t>(log_std->count))) {
      sum += std::exp(
          std::clamp(value, static_cast<float>(work.spec.min_log_std), static_cast<float>(work.spec.max_log_std)));
    }
    metrics.emplace_back("Policy/Standard deviation", sum / static_cast<double>(log_std->count));
  }
}

absl::StatusOr<PolicyUpdateReport> OnPolicyGroup::UpdateFrom(const Work& work) {
  ResidentPolicy& resident = work.resident;
  PolicyUpdateReport report;
  report.policy = work.batch.policy;
  ThreadTeam* const team = work.thread == NetworkBackend::kWholeTeam ? work.memory.team() : nullptr;
  const PrepareOptions prepare = {plan_.options.use_policy_active_masks, plan_.options.use_value_active_masks,
                                  plan_.options.death_masking, &resident.state_moments, plan_.options.minibatch_by};
  TROUPE_RETURN_IF_ERROR(work.prepared.Prepare(work.spec, resident.observation_moments, work.batch, team, prepare));
  // Trajectories of which no row counts go on all the same in what a critic remembers.
  const bool remembers = work.spec.critic().remembers() && work.batch.rows > 0;
  const bool counts = !work.prepared.uses().counted().empty();
  if (!counts && !remembers) return report;

  TROUPE_RETURN_IF_ERROR(resident.backend->Begin(work.prepared, &resident.parameters, work.thread));
  if (!counts) {
    TROUPE_RETURN_IF_ERROR(ValuesOf(work.spec, work.batch, resident.backend.get(), &work.prepared, &carry_).status());
    TROUPE_RETURN_IF_ERROR(resident.backend->End());
    return report;
  }
  TROUPE_ASSIGN_OR_RETURN(const ValueReport values, PrepareTargets(work));
  StepSettings settings = SettingsOf(&resident);
  TROUPE_ASSIGN_OR_RETURN(const EpochsReport epochs, RunEpochs(work, &settings));
  TROUPE_RETURN_IF_ERROR(resident.backend->End());
  MoveTarget(work);
  MergeObserved(work.spec, work.prepared, &work.resident);
  BookSkips(work.spec, epochs.totals.steps, epochs.totals.skipped_steps, &work.resident, &partly_skipped_updates_);

  report.trained_rows = static_cast<int64_t>(work.prepared.active().size());
  report.minibatch_steps = epochs.totals.steps;
  report.epochs = epochs.epochs;
  report.skipped_steps = epochs.totals.skipped_steps;
  resident.trained_rows += report.trained_rows;
  AddMetrics(epochs, values, settings, work, &report);
  return report;
}

void OnPolicyGroup::Follow(GroupTrainer& before) {
  if (auto* const group = dynamic_cast<OnPolicyGroup*>(&before)) carry_ = std::move(group->carry_);
}

absl::StatusOr<std::vector<PolicyUpdateReport>> OnPolicyGroup::Update(const GroupUpdate& update) {
  carry_.Rollback();
  if (plan_at_ != nullptr) {
    const ScheduleTime now{update.context.env_steps, update.context.iteration};
    TROUPE_ASSIGN_OR_RETURN(plan_, plan_at_(update.members.front().spec, algorithm_, now));
  }
  std::vector<PolicyUpdateReport> reports;
  for (const PolicyTrainBatch* batch : update.batches) {
    const MemberAtWork& member = update.MemberOf(*batch);
    const absl::Duration begin = base::Clock::Real().SteadyNow();
    TROUPE_ASSIGN_OR_RETURN(PolicyUpdateReport report,
                            UpdateFrom({*batch, update.context, member.spec, member.resident, update.memory.prepared(),
                                        update.memory, update.thread}));
    report.train_time_s = absl::ToDoubleSeconds(base::Clock::Real().SteadyNow() - begin);
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace troupe::training
