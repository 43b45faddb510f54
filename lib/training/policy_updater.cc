#include "lib/training/policy_updater.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/training/advantages.h"
#include "lib/training/moments.h"

namespace troupe::training {
namespace {

using learner::PolicyTrainBatch;
using learner::PolicyUpdateReport;
using learner::UpdateContext;

// Old returns count for at most so many batches in the value moments: they must follow a policy that gets better.
constexpr double kValueMomentBatches = 50;
// Observations drift less; a long memory keeps the networks' inputs still.
constexpr double kMaxObservationCount = 1e8;
// So many refused updates in a row are an error that a person should look at.
constexpr int64_t kSkipsForError = 5;

/// Fisher-Yates over `rows`, drawn from (iteration, epoch, policy slot) alone.
void Shuffle(const UpdateContext& context, int64_t epoch, policy::PolicySlot slot, std::vector<int32_t>* rows) {
  const base::PhiloxKey key = base::PhiloxKey::Make(context.seed, base::RandomStream::kShuffle);
  base::PhiloxSequence random(key, {.env_id = static_cast<uint32_t>(context.iteration),
                                    .episode = static_cast<uint32_t>(epoch),
                                    .slot = static_cast<uint32_t>(slot.value())});
  for (size_t i = rows->size(); i > 1; --i) std::swap((*rows)[i - 1], (*rows)[random.Below(static_cast<uint32_t>(i))]);
}

StepSettings SettingsAt(const PpoOptions& options, int64_t env_steps) {
  StepSettings settings;
  settings.learning_rate = options.learning_rate.At(env_steps);
  settings.critic_learning_rate =
      options.critic_learning_rate.initial > 0 ? options.critic_learning_rate.At(env_steps) : settings.learning_rate;
  settings.adam_beta1 = options.adam_beta1;
  settings.adam_beta2 = options.adam_beta2;
  settings.adam_epsilon = options.adam_epsilon;
  settings.clip_param = options.clip_param;
  settings.use_value_clip = options.use_value_clip;
  settings.value_clip_param = options.value_clip_param;
  settings.value_loss_coeff = options.value_loss_coeff;
  settings.huber_delta = options.huber_delta;
  settings.entropy_coeff = options.entropy_coeff.At(env_steps);
  settings.max_grad_norm = options.max_grad_norm;
  return settings;
}

}  // namespace

StepTotals& StepTotals::operator+=(const StepTotals& other) {
  steps += other.steps;
  skipped_steps += other.skipped_steps;
  rows += other.rows;
  policy_loss += other.policy_loss;
  value_loss += other.value_loss;
  entropy += other.entropy;
  kl += other.kl;
  clipped += other.clipped;
  actor_grad_norm += other.actor_grad_norm;
  critic_grad_norm += other.critic_grad_norm;
  return *this;
}

absl::StatusOr<PolicyUpdater::ValueReport> PolicyUpdater::PrepareTargets(const PolicyTrainBatch& batch,
                                                                         const PolicyAtWork& policy) {
  TROUPE_ASSIGN_OR_RETURN(const std::vector<float> table, policy.resident.backend->Values());
  double mean = 0;
  double deviation = 1;
  const auto read_moments = [&] {
    if (!policy.options.use_value_norm) return;
    mean = policy.resident.value_moments.mean[0];
    deviation = StandardDeviation(policy.resident.value_moments.variance[0]);
  };
  const auto denormalized = [&](absl::Span<const int32_t> index) {
    std::vector<float> values(index.size());
    for (size_t row = 0; row < index.size(); ++row)
      values[row] = static_cast<float>(table[index[row]] * deviation + mean);
    return values;
  };
  const auto normalized = [&](const std::vector<float>& values) {
    std::vector<float> result(values.size());
    for (size_t row = 0; row < values.size(); ++row) result[row] = static_cast<float>((values[row] - mean) / deviation);
    return result;
  };

  // The critic spoke in the units of the moments it was trained with; what it is trained on next is in the units of the
  // new ones.
  read_moments();
  const std::vector<float> values = denormalized(prepared_.critic_index());
  const std::vector<float> final_values = denormalized(prepared_.final_critic_index());
  Advantages advantages = ComputeGae(batch.segments, batch.rewards, values, final_values, policy.options.gamma,
                                     policy.options.use_gae ? policy.options.gae_lambda : 1.0);
  if (policy.options.use_value_norm) {
    const policy::RunningMoments moments = MomentsOf(advantages.returns, 1, prepared_.active());
    policy::RunningMoments merged = Merge(policy.resident.value_moments, moments, kValueMomentBatches * moments.count);
    if (IsFinite(merged)) policy.resident.value_moments = std::move(merged);
    read_moments();
  }
  prepared_.value_targets = normalized(advantages.returns);
  prepared_.old_values = normalized(values);
  ValueReport report;
  report.explained_variance = ExplainedVariance(advantages.returns, values, prepared_.active());
  prepared_.advantages = policy.options.use_advnorm
                             ? NormalizeAdvantages(std::move(advantages.advantages), prepared_.active())
                             : std::move(advantages.advantages);
  return report;
}

absl::StatusOr<PolicyUpdater::EpochsReport> PolicyUpdater::RunEpochs(const PolicyTrainBatch& batch,
                                                                     const UpdateContext& context,
                                                                     const StepSettings& settings,
                                                                     const PolicyAtWork& policy) {
  EpochsReport report;
  const int64_t rows = static_cast<int64_t>(prepared_.active().size());
  while (report.epochs < policy.options.num_epochs) {
    order_.assign(prepared_.active().begin(), prepared_.active().end());
    Shuffle(context, report.epochs, batch.policy, &order_);
    TROUPE_RETURN_IF_ERROR(policy.resident.backend->BeginEpoch(order_));
    for (int64_t first = 0; first < rows; first += policy.options.minibatch_size) {
      TROUPE_RETURN_IF_ERROR(
          policy.resident.backend->Step(first, std::min(policy.options.minibatch_size, rows - first), settings));
    }
    TROUPE_ASSIGN_OR_RETURN(const StepTotals totals, policy.resident.backend->TakeTotals());
    ++report.epochs;
    report.totals += totals;
    report.last_kl = totals.rows > 0 ? totals.kl / static_cast<double>(totals.rows) : 0;
    if (policy.options.target_kl > 0 && report.last_kl > policy.options.target_kl) break;
  }
  return report;
}

void PolicyUpdater::UpdateObservationMoments(const PolicyTrainBatch& batch, const PolicyAtWork& policy) const {
  if (!policy.spec.normalize_observations) return;
  const policy::RunningMoments moments = MomentsOf(batch.obs, policy.spec.observation_size(), prepared_.active());
  policy::RunningMoments merged = Merge(policy.resident.observation_moments, moments, kMaxObservationCount);
  if (IsFinite(merged)) policy.resident.observation_moments = std::move(merged);
}

void PolicyUpdater::BookSkips(const StepTotals& totals, const PolicyAtWork& policy) {
  // Logged when a count has doubled: a policy that is lost for good must not fill the log.
  const auto is_power_of_two = [](int64_t count) { return (count & (count - 1)) == 0; };
  int64_t& partly_skipped = *policy.partly_skipped_updates;
  if (totals.skipped_steps == 0 || totals.steps > 0) {
    policy.resident.consecutive_skips = 0;
    if (totals.skipped_steps > 0 && is_power_of_two(++partly_skipped)) {
      TROUPE_WARN(
          "minibatch steps skipped for a loss or gradient that is not finite policy={} skipped={} taken={} "
          "updates_so_far={}",
          policy.spec.id.value(), totals.skipped_steps, totals.steps, partly_skipped);
    }
    return;
  }
  ++policy.resident.skipped_updates;
  const int64_t in_a_row = ++policy.resident.consecutive_skips;
  if (in_a_row == kSkipsForError || (in_a_row > kSkipsForError && is_power_of_two(in_a_row))) {
    TROUPE_ERROR("updates skipped in a row for losses or gradients that are not finite policy={} updates={}",
                 policy.spec.id.value(), in_a_row);
  } else if (in_a_row < kSkipsForError && is_power_of_two(in_a_row)) {
    TROUPE_WARN("update skipped for losses or gradients that are not finite policy={} in_a_row={}",
                policy.spec.id.value(), in_a_row);
  }
}

absl::StatusOr<PolicyUpdateReport> PolicyUpdater::Update(const PolicyTrainBatch& batch, const UpdateContext& context,
                                                         const PolicyAtWork& policy, int thread) {
  ResidentPolicy& resident = policy.resident;
  PolicyUpdateReport report;
  report.policy = batch.policy;
  if (resident.backend == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("policy \"", policy.spec.id.value(), "\" is of class ",
                                                   policy.spec.policy_class.ToString(), ", which is not trained"));
  }
  ThreadTeam* const team = thread == PpoBackend::kWholeTeam ? team_ : nullptr;
  TROUPE_RETURN_IF_ERROR(prepared_.Prepare(policy.spec, resident.observation_moments, batch, team));
  if (prepared_.active().empty()) return report;

  TROUPE_RETURN_IF_ERROR(resident.backend->Begin(prepared_, &resident.parameters, thread));
  TROUPE_ASSIGN_OR_RETURN(const ValueReport values, PrepareTargets(batch, policy));
  const StepSettings settings = SettingsAt(policy.options, context.env_steps);
  TROUPE_ASSIGN_OR_RETURN(const EpochsReport epochs, RunEpochs(batch, context, settings, policy));
  TROUPE_RETURN_IF_ERROR(resident.backend->End());
  // Only now: the batch's log-probabilities were made with the moments of the snapshot that acted, so the ratios had to
  // be, too. The new moments are published with the new weights.
  UpdateObservationMoments(batch, policy);
  BookSkips(epochs.totals, policy);

  report.trained_rows = static_cast<int64_t>(prepared_.active().size());
  report.minibatch_steps = epochs.totals.steps;
  report.epochs = epochs.epochs;
  report.skipped_steps = epochs.totals.skipped_steps;
  resident.trained_rows += report.trained_rows;

  const StepTotals& totals = epochs.totals;
  const double rows = static_cast<double>(std::max<int64_t>(totals.rows, 1));
  const double steps = static_cast<double>(std::max<int64_t>(totals.steps, 1));
  report.metrics = {{"Policy/Learning rate", settings.learning_rate},
                    {"Policy/Critic learning rate", settings.critic_learning_rate},
                    {"Policy/Skipped steps", static_cast<double>(totals.skipped_steps)},
                    {"Policy/Consecutive skips", static_cast<double>(resident.consecutive_skips)}};
  if (totals.steps > 0) {
    report.metrics.insert(report.metrics.end(),
                          {{"Loss/Policy loss", totals.policy_loss / rows},
                           {"Loss/Value loss", settings.value_loss_coeff * totals.value_loss / rows},
                           {"Loss/Entropy loss", -settings.entropy_coeff * totals.entropy / rows},
                           {"Policy/Entropy", totals.entropy / rows},
                           {"Policy/KL", epochs.last_kl},
                           {"Policy/Clip fraction", totals.clipped / rows},
                           {"Policy/Explained variance", values.explained_variance},
                           {"Policy/Gradient norm", totals.actor_grad_norm / steps},
                           {"Policy/Critic gradient norm", totals.critic_grad_norm / steps}});
  }
  if (const policy::ParameterEntry* log_std = resident.parameters.layout().Find("actor.log_std")) {
    double sum = 0;
    for (const float value : resident.parameters.values().subspan(static_cast<size_t>(log_std->offset),
                                                                  static_cast<size_t>(log_std->count))) {
      sum += std::exp(value);
    }
    report.metrics.emplace_back("Policy/Standard deviation", sum / static_cast<double>(log_std->count));
  }
  return report;
}

}  // namespace troupe::training
