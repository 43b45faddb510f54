#include "lib/training/ppo_trainer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"

namespace troupe::training {
namespace {

using learner::PolicyTrainBatch;
using learner::PolicyUpdateReport;
using learner::UpdateContext;

// Up to so many rows, a team spends about as much of a minibatch on handing over as it saves.
constexpr int64_t kSmallMinibatchRows = 256;

absl::Status OptionError(const char* option, double got, const char* expected) {
  return absl::InvalidArgumentError(absl::StrCat("algorithm.", option, " is ", got, "; expected ", expected));
}

absl::Status CheckUnitInterval(const char* option, double value) {
  if (value >= 0 && value <= 1) return absl::OkStatus();
  return OptionError(option, value, "a number in [0, 1]");
}

absl::Status CheckNotNegative(const char* option, double value) {
  if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
  return OptionError(option, value, "a finite number of at least 0");
}

absl::Status CheckPositive(const char* option, double value) {
  if (value > 0 && std::isfinite(value)) return absl::OkStatus();
  return OptionError(option, value, "a finite number above 0");
}

absl::Status CheckSchedule(const char* option, const LinearSchedule& schedule) {
  TROUPE_RETURN_IF_ERROR(CheckNotNegative(option, schedule.initial));
  if (schedule.env_steps < 0)
    return OptionError(option, static_cast<double>(schedule.env_steps), "env_steps of at least 0");
  return schedule.env_steps == 0 ? absl::OkStatus() : CheckNotNegative(option, schedule.final);
}

}  // namespace

absl::Status ValidatePpoOptions(const PpoOptions& options) {
  TROUPE_RETURN_IF_ERROR(CheckSchedule("lr", options.learning_rate));
  TROUPE_RETURN_IF_ERROR(CheckSchedule("critic_lr", options.critic_learning_rate));
  TROUPE_RETURN_IF_ERROR(CheckSchedule("entropy_coeff", options.entropy_coeff));
  TROUPE_RETURN_IF_ERROR(CheckPositive("adam_epsilon", options.adam_epsilon));
  if (!(options.adam_beta1 >= 0 && options.adam_beta1 < 1))
    return OptionError("adam_beta1", options.adam_beta1, "a number in [0, 1)");
  if (!(options.adam_beta2 >= 0 && options.adam_beta2 < 1))
    return OptionError("adam_beta2", options.adam_beta2, "a number in [0, 1)");
  TROUPE_RETURN_IF_ERROR(CheckUnitInterval("gamma", options.gamma));
  TROUPE_RETURN_IF_ERROR(CheckUnitInterval("gae_lambda", options.gae_lambda));
  TROUPE_RETURN_IF_ERROR(CheckPositive("clip_param", options.clip_param));
  if (options.use_value_clip) TROUPE_RETURN_IF_ERROR(CheckPositive("value_clip_param", options.value_clip_param));
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("value_loss_coeff", options.value_loss_coeff));
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("huber_delta", options.huber_delta));
  TROUPE_RETURN_IF_ERROR(CheckNotNegative("target_kl", options.target_kl));
  if (std::isnan(options.max_grad_norm)) return OptionError("max_grad_norm", options.max_grad_norm, "a number");
  if (options.num_epochs < 1) return OptionError("num_epochs", static_cast<double>(options.num_epochs), "at least 1");
  if (options.minibatch_size < 1)
    return OptionError("minibatch_size", static_cast<double>(options.minibatch_size), "at least 1");
  return absl::OkStatus();
}

PpoTrainer::PpoTrainer(std::unique_ptr<PolicyStore> policies, tensor::TensorAllocator& allocator,
                       std::shared_ptr<ThreadTeam> team)
    : policies_(std::move(policies)), partly_skipped_updates_(policies_->size(), 0), team_(std::move(team)) {
  const int threads = team_ == nullptr ? 1 : team_->size();
  for (int thread = 0; thread < threads; ++thread) {
    updaters_.push_back(std::make_unique<PolicyUpdater>(allocator, team_.get()));
  }
}

absl::StatusOr<std::unique_ptr<PpoTrainer>> PpoTrainer::Make(
    std::vector<policy::PolicySpec> specs, std::vector<PpoOptions> options, uint64_t seed, BackendFactory make_backend,
    std::shared_ptr<ThreadTeam> team, tensor::TensorAllocator& allocator, const PolicyStoreOptions& store_options,
    PolicyStore::Deps store_deps) {
  for (size_t i = 0; i < std::min(specs.size(), options.size()); ++i) {
    const absl::Status valid = ValidatePpoOptions(options[i]);
    if (valid.ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat("policy \"", specs[i].id.value(), "\": ", valid.message()));
  }
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<PolicyStore> policies,
                          PolicyStore::Make(std::move(specs), std::move(options), seed, std::move(make_backend),
                                            store_options, std::move(store_deps)));
  return std::unique_ptr<PpoTrainer>(new PpoTrainer(std::move(policies), allocator, std::move(team)));
}

bool PpoTrainer::TrainsAlone(const Part& part, int64_t all_rows) const {
  const PpoBackend* backend = part.resident->backend.get();
  if (team_ == nullptr || backend == nullptr || !backend->can_run_alone()) return false;
  const int64_t minibatch_rows = std::min(policies_->ppo(part.slot).minibatch_size, part.rows);
  const int64_t shares = (minibatch_rows <= kSmallMinibatchRows ? 1 : 2) * int64_t{team_->size()};
  return part.rows * shares <= all_rows;
}

void PpoTrainer::TrainPart(const learner::TrainBatch& batch, const UpdateContext& context, int thread, Part* part,
                           std::vector<PolicyUpdateReport>* reports) {
  ResidentPolicy& resident = *part->resident;
  part->former = policies_->StateOf(part->slot, resident);
  const PolicyAtWork policy{part->slot, policies_->spec(part->slot), policies_->ppo(part->slot), resident,
                            &partly_skipped_updates_[static_cast<size_t>(part->slot.value())]};
  PolicyUpdater& updater = *updaters_[static_cast<size_t>(std::max(thread, 0))];
  for (const size_t i : part->entries) {
    const absl::Duration begin = base::Clock::Real().SteadyNow();
    absl::StatusOr<PolicyUpdateReport> report = updater.Update(batch.policies[i], context, policy, thread);
    part->status = report.status();
    if (!report.ok()) return;
    report->train_time_s = absl::ToDoubleSeconds(base::Clock::Real().SteadyNow() - begin);
    (*reports)[i] = *std::move(report);
  }
}

absl::Status PpoTrainer::TrainTurn(const learner::TrainBatch& batch, const UpdateContext& context, int64_t all_rows,
                                   absl::Span<Part* const> turn, std::vector<PolicyUpdateReport>* reports) {
  std::vector<policy::PolicyMap<ResidentPolicy>::Batch> pins;
  std::vector<Part*> alone, together;
  for (Part* part : turn) {
    auto pinned = policies_->Acquire(part->slot);
    // Lost, which was logged: the others train on.
    if (pinned.status().code() == absl::StatusCode::kDataLoss) continue;
    TROUPE_RETURN_IF_ERROR(pinned.status());
    part->resident = &(*pinned)[0];
    pins.push_back(*std::move(pinned));
    (TrainsAlone(*part, all_rows) ? alone : together).push_back(part);
  }
  // The largest first: the threads are done at about the same time.
  std::stable_sort(alone.begin(), alone.end(), [](const Part* a, const Part* b) { return a->rows > b->rows; });
  if (!alone.empty()) {
    std::atomic<size_t> next{0};
    team_->Run([&](int thread) {
      for (size_t i = 0; (i = next.fetch_add(1, std::memory_order_relaxed)) < alone.size();) {
        TrainPart(batch, context, thread, alone[i], reports);
      }
    });
  }
  for (Part* part : together) {
    TrainPart(batch, context, PpoBackend::kWholeTeam, part, reports);
    if (!part->status.ok()) break;
  }
  for (const Part* part : turn) TROUPE_RETURN_IF_ERROR(part->status);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PolicyUpdateReport>> PpoTrainer::Update(const learner::TrainBatch& batch,
                                                                   const UpdateContext& context) {
  std::vector<PolicyUpdateReport> reports(batch.policies.size());
  std::vector<policy::PolicySlot> training;
  std::map<int32_t, Part> parts;  // by slot
  int64_t all_rows = 0;
  for (size_t i = 0; i < batch.policies.size(); ++i) {
    const PolicyTrainBatch& policy_batch = batch.policies[i];
    TROUPE_RETURN_IF_ERROR(policies_->CheckSlot(policy_batch.policy));
    reports[i].policy = policy_batch.policy;
    if (!policy_batch.train) continue;
    training.push_back(policy_batch.policy);
    Part& part = parts[policy_batch.policy.value()];
    part.slot = policy_batch.policy;
    part.entries.push_back(i);
    part.rows += policy_batch.rows;
    all_rows += policy_batch.rows;
  }
  for (const std::vector<policy::PolicySlot>& slots : policies_->InTurns(training)) {
    std::vector<Part*> turn;
    for (const policy::PolicySlot slot : slots) turn.push_back(&parts[slot.value()]);
    const absl::Status trained = TrainTurn(batch, context, all_rows, turn, &reports);
    if (trained.ok()) continue;
    for (auto& [_, part] : parts) {
      if (!part.former) continue;
      const absl::Status restored = policies_->Restore(part.slot, *std::move(part.former));
      if (!restored.ok()) {
        TROUPE_ERROR("a policy keeps the weights of an update that failed policy={} error=\"{}\"",
                     policies_->spec(part.slot).id.value(), std::string(restored.message()));
      }
    }
    return trained;
  }
  policies_->SetVersions(context.next_version);
  return reports;
}

absl::StatusOr<policy::WeightSnapshotPtr> PpoTrainer::Snapshot(policy::PolicySlot slot) {
  return policies_->Snapshot(slot);
}

absl::StatusOr<policy::PolicyState> PpoTrainer::ExportState(policy::PolicySlot slot) { return policies_->Export(slot); }

absl::Status PpoTrainer::ImportState(const policy::PolicyState& state, policy::PolicySlot slot) {
  TROUPE_RETURN_IF_ERROR(policies_->CheckSlot(slot));
  TROUPE_RETURN_IF_ERROR(state.Validate(policies_->spec(slot)));
  return policies_->Import(slot, state);
}

absl::Status PpoTrainer::AddPolicy(policy::PolicySlot slot, const policy::PolicySpec& spec, policy::PolicyState state,
                                   policy::PolicySlot like) {
  TROUPE_RETURN_IF_ERROR(policies_->CheckSlot(like));
  const PpoOptions options = policies_->ppo(like);
  TROUPE_RETURN_IF_ERROR(policies_->Add(slot, spec, options, std::move(state)));
  partly_skipped_updates_.resize(policies_->size());
  partly_skipped_updates_[static_cast<size_t>(slot.value())] = 0;
  return absl::OkStatus();
}

}  // namespace troupe::training
