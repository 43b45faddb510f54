#include "lib/training/core/trainer_host.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"

namespace troupe::training {
namespace {

using learner::PolicyTrainBatch;
using learner::PolicyUpdateReport;
using learner::UpdateContext;

// Up to so many rows, a team spends about as much of a minibatch on handing over as it saves.
constexpr int64_t kSmallMinibatchRows = 256;

absl::Status PolicyError(const policy::PolicySpec& spec, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("policy \"", spec.id.value(), "\": ", status.message()));
}

}  // namespace

TrainerHost::TrainerHost(std::unique_ptr<PolicyStore> policies, std::vector<policy::AlgorithmSpec> algorithms,
                         TrainingContext context, AlgorithmFinder find, tensor::TensorAllocator& allocator)
    : policies_(std::move(policies)),
      algorithms_(std::move(algorithms)),
      context_(std::move(context)),
      find_(std::move(find)),
      group_of_(policies_->size(), -1) {
  const int threads = context_.team == nullptr ? 1 : context_.team->size();
  for (int thread = 0; thread < threads; ++thread) {
    memories_.push_back(std::make_unique<TrainingMemory>(allocator, context_.team.get()));
  }
}

absl::StatusOr<std::unique_ptr<TrainerHost>> TrainerHost::Make(
    std::vector<policy::PolicySpec> specs, std::vector<policy::AlgorithmSpec> algorithms, TrainingContext context,
    AlgorithmFinder find, BackendFactory make_backend, tensor::TensorAllocator& allocator,
    const PolicyStoreOptions& store_options, PolicyStore::Deps store_deps) {
  if (algorithms.size() != specs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("got options for ", algorithms.size(), " policies; expected ", specs.size()));
  }
  std::vector<StateForm> forms(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    if (algorithms[i].name.empty()) continue;
    const absl::StatusOr<const Algorithm*> algorithm = find(algorithms[i].name);
    if (!algorithm.ok()) return PolicyError(specs[i], algorithm.status());
    const absl::StatusOr<StateForm> form = (*algorithm)->FormOf(algorithms[i]);
    if (!form.ok()) return PolicyError(specs[i], form.status());
    forms[i] = *form;
  }
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<PolicyStore> policies,
                          PolicyStore::Make(std::move(specs), std::move(forms), context.seed, std::move(make_backend),
                                            store_options, std::move(store_deps)));
  auto host = std::unique_ptr<TrainerHost>(
      new TrainerHost(std::move(policies), std::move(algorithms), std::move(context), std::move(find), allocator));
  TROUPE_RETURN_IF_ERROR(host->MakeAllGroups(store_options.capacity));
  return host;
}

bool TrainerHost::TrainsAlone(const Part& part, int64_t all_rows) const {
  if (context_.team == nullptr) return false;
  for (const ResidentPolicy* resident : part.residents) {
    if (resident->backend == nullptr || !resident->backend->can_run_alone()) return false;
  }
  const int64_t minibatch_rows = part.group->trainer->MinibatchRows(part.rows);
  const int64_t shares = (minibatch_rows <= kSmallMinibatchRows ? 1 : 2) * int64_t{context_.team->size()};
  return part.rows * shares <= all_rows;
}

void TrainerHost::TrainPart(const learner::TrainBatch& batch, const UpdateContext& context, int thread, Part* part,
                            std::vector<PolicyUpdateReport>* reports) {
  const Group& group = *part->group;
  GroupUpdate update{.members = {},
                     .batches = {},
                     .batch = batch,
                     .context = context,
                     .thread = thread,
                     .memory = *memories_[static_cast<size_t>(std::max(thread, 0))]};
  part->former_blocks = group.trainer->Export();
  for (size_t i = 0; i < part->residents.size(); ++i) {
    const policy::PolicySlot slot = group.told.members[i];
    part->former.push_back(std::move(part->spares[i]));
    policies_->WriteState(slot, *part->residents[i], &part->former.back());
    update.members.push_back({slot, policies_->spec(slot), *part->residents[i]});
  }
  for (const size_t i : part->entries) update.batches.push_back(&batch.policies[i]);
  absl::StatusOr<std::vector<PolicyUpdateReport>> trained = group.trainer->Update(update);
  part->status = trained.status();
  if (!trained.ok()) return;
  part->group->now = {context.env_steps + batch.env_steps, context.iteration + 1};
  for (size_t i = 0; i < part->entries.size(); ++i) {
    PolicyUpdateReport& report = (*reports)[part->entries[i]] = std::move((*trained)[i]);
    for (const auto& [name, value] : group.trainer->Exploration(report.policy, group.now)) {
      report.metrics.emplace_back(learner::kExplorationTag + name, value);
    }
  }
}

absl::Status TrainerHost::TrainTurn(const learner::TrainBatch& batch, const UpdateContext& context, int64_t all_rows,
                                    absl::Span<Part* const> turn, std::vector<PolicyUpdateReport>* reports) {
  std::vector<policy::PolicyMap<ResidentPolicy>::Batch> pins;
  std::vector<Part*> alone, together;
  for (Part* part : turn) {
    absl::Status acquired;
    for (const policy::PolicySlot slot : part->group->told.members) {
      auto pinned = policies_->Acquire(slot);
      acquired = pinned.status();
      if (!acquired.ok()) break;
      part->residents.push_back(&(*pinned)[0]);
      part->spares.push_back(spares_.Take());
      pins.push_back(*std::move(pinned));
    }
    // Lost, which was logged: the others train on.
    if (acquired.code() == absl::StatusCode::kDataLoss) continue;
    TROUPE_RETURN_IF_ERROR(acquired);
    (TrainsAlone(*part, all_rows) ? alone : together).push_back(part);
  }
  // The largest first: the threads are done at about the same time.
  std::stable_sort(alone.begin(), alone.end(), [](const Part* a, const Part* b) { return a->rows > b->rows; });
  if (!alone.empty()) {
    std::atomic<size_t> next{0};
    context_.team->Run([&](int thread) {
      for (size_t i = 0; (i = next.fetch_add(1, std::memory_order_relaxed)) < alone.size();) {
        TrainPart(batch, context, thread, alone[i], reports);
      }
    });
  }
  for (Part* part : together) {
    TrainPart(batch, context, NetworkBackend::kWholeTeam, part, reports);
    if (!part->status.ok()) break;
  }
  for (const Part* part : turn) TROUPE_RETURN_IF_ERROR(part->status);
  return absl::OkStatus();
}

void TrainerHost::Restore(Part* part) {
  if (part->former.empty()) return;
  const policy::LearnGroup& group = part->group->told;
  for (size_t i = 0; i < part->former.size(); ++i) {
    const policy::PolicySlot slot = group.members[i];
    const absl::Status restored = policies_->Restore(slot, std::move(part->former[i]));
    if (restored.ok()) continue;
    TROUPE_ERROR("a policy keeps the weights of an update that failed policy={} error=\"{}\"",
                 policies_->spec(slot).id.value(), std::string(restored.message()));
  }
  const absl::Status restored = part->group->trainer->Import(part->former_blocks);
  if (!restored.ok()) {
    TROUPE_ERROR("a learn group keeps what an update that failed made of it group={} error=\"{}\"", group.id.value(),
                 std::string(restored.message()));
  }
}

absl::StatusOr<std::vector<PolicyUpdateReport>> TrainerHost::Update(const learner::TrainBatch& batch,
                                                                    const UpdateContext& context) {
  std::vector<PolicyUpdateReport> reports(batch.policies.size());
  std::map<int32_t, Part> parts;  // by the group's first member
  int64_t all_rows = 0;
  for (size_t i = 0; i < batch.policies.size(); ++i) {
    const PolicyTrainBatch& policy_batch = batch.policies[i];
    const policy::PolicySlot slot = policy_batch.policy;
    TROUPE_RETURN_IF_ERROR(policies_->CheckSlot(slot));
    reports[i].policy = slot;
    if (!policy_batch.train) continue;
    Group* group = GroupOf(slot);
    if (group == nullptr) {
      const policy::PolicySpec& spec = policies_->spec(slot);
      if (spec.policy_class.trainable()) {
        return absl::InvalidArgumentError(
            absl::StrCat("policy \"", spec.id.value(), "\" has no algorithm: it is not trained"));
      }
      return absl::InvalidArgumentError(absl::StrCat("policy \"", spec.id.value(), "\" is of class ",
                                                     spec.policy_class.ToString(), ", which is not trained"));
    }
    Part& part = parts[group->told.members.front().value()];
    part.group = group;
    part.entries.push_back(i);
    part.rows += policy_batch.rows;
    all_rows += policy_batch.rows;
  }
  std::vector<std::vector<policy::PolicySlot>> training;
  for (const auto& [_, part] : parts) training.push_back(part.group->told.members);
  for (const std::vector<size_t>& numbers : policies_->InTurns(training)) {
    std::vector<Part*> turn;
    for (const size_t number : numbers) turn.push_back(&parts[training[number].front().value()]);
    const absl::Status trained = TrainTurn(batch, context, all_rows, turn, &reports);
    if (trained.ok()) continue;
    for (auto& [_, part] : parts) Restore(&part);
    return trained;
  }
  for (auto& [_, part] : parts) {
    if (!part.former.empty()) part.group->trainer->Commit();
    for (policy::PolicyState& state : part.former) spares_.Give(std::move(state));
  }
  policies_->SetVersions(context.next_version);
  return reports;
}

void TrainerHost::SetTime(int64_t env_steps, int64_t updates) {
  for (auto& [_, group] : groups_) group.now = {env_steps, updates};
}

absl::StatusOr<policy::WeightSnapshotPtr> TrainerHost::Snapshot(policy::PolicySlot slot) {
  TROUPE_ASSIGN_OR_RETURN(policy::WeightSnapshotPtr snapshot, policies_->Snapshot(slot));
  const Group* const group = GroupOf(slot);
  auto exploration =
      group == nullptr ? decltype(snapshot->exploration)() : group->trainer->Exploration(slot, group->now);
  if (exploration.empty()) return snapshot;
  auto exploring = std::make_shared<policy::WeightSnapshot>(*snapshot);
  exploring->exploration = std::move(exploration);
  return policy::WeightSnapshotPtr(std::move(exploring));
}

absl::StatusOr<policy::PolicyState> TrainerHost::ExportState(policy::PolicySlot slot) {
  return policies_->Export(slot);
}

absl::Status TrainerHost::ImportState(const policy::PolicyState& state, policy::PolicySlot slot) {
  TROUPE_RETURN_IF_ERROR(policies_->CheckSlot(slot));
  TROUPE_RETURN_IF_ERROR(state.Validate(policies_->spec(slot)));
  return policies_->Import(slot, state);
}

}  // namespace troupe::training
