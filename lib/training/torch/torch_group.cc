#include "lib/training/torch/torch_group.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lib/base/check.h"
#include "lib/base/clock.h"
#include "lib/base/status_macros.h"
#include "lib/policy/state_block.h"
#include "lib/training/core/shuffle.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/torch/torch_device.h"

namespace troupe::training {

using learner::PolicyUpdateReport;
using torch::Tensor;

namespace {

constexpr int64_t kTaken = 0;
constexpr int64_t kSkipped = 1;
constexpr int64_t kFirstReport = 2;
constexpr auto kFirstCount = kFirstReport + static_cast<int64_t>(TorchStep::kMostReports);

TorchPath PathOf(const TrainingContext& context) {
  return context.device.is_cuda() ? TorchPath::kDevice : TorchPath::kHost;
}

size_t TrainedSections(const policy::ParameterLayout& layout) {
  const auto& sections = layout.sections();
  return static_cast<size_t>(std::count_if(sections.begin(), sections.end(), [](const auto& s) { return s.trained; }));
}

}  // namespace

Tensor TorchStep::Minimize(const Tensor& loss, const std::vector<std::string>& sections, const Tensor& learning_rate) {
  std::vector<std::pair<TorchParameters*, size_t>> blocks;
  std::vector<Tensor> leaves;
  for (TorchParameters* const parameters : parameters_) {
    for (const std::string& section : sections) {
      const int64_t block = parameters->FindBlock(section);
      if (block < 0) continue;
      blocks.emplace_back(parameters, static_cast<size_t>(block));
      parameters->ZeroGradients(blocks.back().second);
      const std::vector<Tensor>& of_block = parameters->Leaves(blocks.back().second);
      leaves.insert(leaves.end(), of_block.begin(), of_block.end());
    }
  }
  TROUPE_CHECK(!leaves.empty());
  torch::autograd::backward({loss}, {}, /*retain_graph=*/std::nullopt, /*create_graph=*/false, leaves);
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> squares;
  for (const auto& [parameters, block] : blocks) squares.push_back(parameters->SquaredNorm(block));
  const Tensor norm = (squares.size() == 1 ? squares[0] : torch::stack(squares).sum()).sqrt();
  const Tensor ok = torch::isfinite(loss.detach() + norm);
  for (const auto& [parameters, block] : blocks) parameters->Step(block, optimizer_, learning_rate, norm, ok);
  const Tensor taken = ok.to(torch::kFloat64);
  numbers_.narrow(0, kTaken, 2).add_(torch::stack({taken, 1 - taken}));
  return norm;
}

Tensor TorchStep::AtJointSteps(std::vector<Tensor> of_rows) const {
  of_rows.push_back(torch::zeros({1}, of_rows.front().options()));
  return torch::cat(of_rows).index_select(0, joint_.flatten()).view(joint_.sizes());
}

void TorchStep::Report(std::string_view tag, const Tensor& value) {
  TROUPE_CHECK(reports_.size() < kMostReports);
  reports_.push_back(value.detach().to(torch::kFloat64));
  tags_->emplace_back(tag);
}

void TorchStep::AddReports() {
  if (reports_.empty()) return;
  const auto count = static_cast<int64_t>(reports_.size());
  const Tensor values = torch::stack(reports_);
  const Tensor finite = torch::isfinite(values);
  numbers_.narrow(0, kFirstReport, count).add_(values.masked_fill(finite.logical_not(), 0));
  numbers_.narrow(0, kFirstCount, count).add_(finite);
}

TorchGroup::TorchGroup(absl::Span<const GroupMember> members, const TrainingContext& context)
    : TorchGroup(members, context, PathOf(context)) {}

TorchGroup::TorchGroup(absl::Span<const GroupMember> members, const TrainingContext& context, TorchPath path)
    : place_(context.device), memory_(ToTorch(context.device), path), steps_(memory_.device()) {
  const bool bfloat16 = path == TorchPath::kDevice && context.precision == Precision::kBfloat16;
  for (const GroupMember& member : members) {
    members_.push_back(std::unique_ptr<Member>(
        new Member{member.slot, TorchMember(*member.spec, memory_, bfloat16), TorchParameters(memory_)}));
  }
}

absl::StatusOr<std::unique_ptr<GroupTrainer>> TorchGroup::Make(std::unique_ptr<TorchGroup> group) {
  for (const std::unique_ptr<Member>& member : group->members_) {
    TROUPE_RETURN_IF_ERROR(member->networks.LoadScripts(group->place_));
    group->has_scripts_ = group->has_scripts_ || member->networks.has_scripts();
  }
  return std::unique_ptr<GroupTrainer>(std::move(group));
}

void TorchGroup::SetOwn(FlatParameters own) {
  own_ = std::make_unique<FlatParameters>(std::move(own));
  own_steps_.assign(TrainedSections(own_->layout()), 0);
  own_on_device_ = std::make_unique<TorchParameters>(memory_);
}

std::vector<policy::StateBlock> TorchGroup::Export() const {
  if (own_ == nullptr) return {};
  const auto floats = [](const char* name, absl::Span<const float> values) {
    return policy::StateBlock{
        name, {static_cast<int64_t>(values.size())}, std::vector<float>(values.begin(), values.end())};
  };
  const FlatParameters& own = *own_;
  return {floats(policy::kParameters, own.values()),
          floats(kAdamExpAvg, own.exp_avg()),
          floats(kAdamExpAvgSq, own.exp_avg_sq()),
          {kBlockSteps, {static_cast<int64_t>(own_steps_.size())}, own_steps_}};
}

absl::Status TorchGroup::Import(const std::vector<policy::StateBlock>& blocks) {
  if (own_ == nullptr) return GroupTrainer::Import(blocks);
  std::vector<policy::BlockSpec> known;
  for (const policy::StateBlock& block : Export()) known.push_back({block.name, block.type(), block.shape});
  TROUPE_RETURN_IF_ERROR(policy::CheckKnownBlocks("the group", blocks, known));
  const auto take = [&blocks](const char* name, absl::Span<float> to) {
    const std::vector<float>& from = policy::BlockValues<float>(blocks, name);
    std::copy(from.begin(), from.end(), to.begin());
  };
  take(policy::kParameters, own_->values());
  take(kAdamExpAvg, own_->exp_avg());
  take(kAdamExpAvgSq, own_->exp_avg_sq());
  own_steps_ = policy::BlockValues<int64_t>(blocks, kBlockSteps);
  return absl::OkStatus();
}

TorchGroup::Member& TorchGroup::MemberOf(policy::PolicySlot slot) {
  const auto found = std::find_if(members_.begin(), members_.end(), [slot](const auto& m) { return m->slot == slot; });
  TROUPE_CHECK(found != members_.end());
  return **found;
}

absl::Status TorchGroup::LoadBatch(const GroupUpdate& update) {
  at_work_.clear();
  ThreadTeam* const team = update.thread == NetworkBackend::kWholeTeam ? update.memory.team() : nullptr;
  for (size_t i = 0; i < update.batches.size(); ++i) {
    const learner::PolicyTrainBatch& batch = *update.batches[i];
    const MemberAtWork& member = update.MemberOf(batch);
    PreparedBatch& prepared = update.memory.prepared(i);
    PrepareOptions options;
    options.state_moments = &member.resident.state_moments;
    options.final_observations = true;
    options.use_policy_active_masks = options.use_value_active_masks = !counts_dead_rows();
    TROUPE_RETURN_IF_ERROR(prepared.Prepare(member.spec, member.resident.observation_moments, batch, team, options));
    if (prepared.uses().counted().empty()) continue;
    at_work_.push_back(&MemberOf(batch.policy));
    at_work_.back()->batch = {&batch, &prepared.uses()};
    at_work_.back()->networks.SetRows(TorchRows::Load(member.spec, batch, prepared, memory_));
  }
  return absl::OkStatus();
}

void TorchGroup::LoadParameters(const GroupUpdate& update) {
  bool changed = false;
  for (const MemberAtWork& at_work : update.members) {
    Member& member = MemberOf(at_work.slot);
    if (!member.parameters.Load(&at_work.resident.parameters, absl::MakeSpan(at_work.resident.block_steps))) continue;
    member.networks.Bind(member.parameters);
    changed = true;
  }
  if (own_ != nullptr) changed = own_on_device_->Load(own_.get(), absl::MakeSpan(own_steps_)) || changed;
  if (!numbers_.defined()) {
    numbers_ = torch::zeros({kFirstCount + static_cast<int64_t>(TorchStep::kMostReports)},
                            torch::TensorOptions().dtype(torch::kFloat64).device(memory_.device()));
  }
  numbers_.zero_();
  if (changed) steps_.Release();
}

absl::Status TorchGroup::RunSteps(const GroupUpdate& update) {
  TROUPE_ASSIGN_OR_RETURN(inputs_, Inputs(update));
  for (Tensor& input : inputs_) input = memory_.Load(input);
  optimizer_ = Optimizer();
  variant_ = Variant(update.members.front().resident.parameters.adam_steps);
  const std::optional<MinibatchPlan> plan = Minibatches();
  epochs_ = plan.has_value() ? plan->num_epochs : 1;
  if (plan.has_value()) return RunEpochs(update, *plan);
  RunStep(at_work_, /*joint=*/{});
  return absl::OkStatus();
}

void TorchGroup::RunStep(const std::vector<Member*>& members, const Tensor& joint) {
  TorchStep step;
  StepKey key;
  std::vector<Tensor> inputs;
  for (Member* const member : members) {
    step.members_.push_back(&member->networks);
    step.parameters_.push_back(&member->parameters);
    key.members.push_back(member->slot);
    TorchRows& rows = member->networks.mutable_rows();
    rows.ForEach([&inputs](const Tensor& tensor) { inputs.push_back(tensor); });
    if (!rows.batch_sizes.defined()) continue;
    const int64_t* const lengths = rows.batch_sizes.data_ptr<int64_t>();
    key.lengths.insert(key.lengths.end(), lengths, lengths + rows.batch_sizes.size(0));
  }
  step.own_ = own_on_device_.get();
  if (own_ != nullptr) step.parameters_.push_back(step.own_);
  if (joint.defined()) inputs.push_back(joint);
  inputs.insert(inputs.end(), inputs_.begin(), inputs_.end());
  key.optimizer = step.optimizer_ = optimizer_;
  key.variant = step.variant_ = variant_;
  step.numbers_ = numbers_;
  const auto work = [&](const std::vector<Tensor>& given) {
    size_t next = 0;
    for (Member* const member : members) {
      member->networks.mutable_rows().ForEach([&](Tensor& tensor) { tensor = given[next++]; });
    }
    if (joint.defined()) step.joint_ = given[next++];
    step.inputs_.assign(given.begin() + static_cast<ptrdiff_t>(next), given.end());
    step.tags_ = &tags_[variant_];
    step.tags_->clear();
    step.reports_.clear();
    Train(&step);
    step.AddReports();
  };
  if (memory_.borrows() || has_scripts_) {
    work(inputs);
  } else {
    steps_.Run(inputs, std::move(key), work);
  }
}

absl::Status TorchGroup::RunEpochs(const GroupUpdate& update, const MinibatchPlan& plan) {
  std::vector<TorchGroupRows> all;
  std::vector<MemberRows> batches;
  for (const Member* const member : at_work_) {
    all.push_back({member->networks, *member->batch.batch, *member->batch.uses});
    batches.push_back(member->batch);
  }
  std::vector<TorchRows> whole;
  {
    const torch::NoGradGuard no_grad;
    TROUPE_ASSIGN_OR_RETURN(const std::vector<Tensor> targets, RowTargets(update, all));
    for (size_t m = 0; m < at_work_.size(); ++m) {
      whole.push_back(std::move(at_work_[m]->networks.mutable_rows()));
      if (!targets.empty()) whole.back().targets = memory_.Load(targets[m]);
    }
  }
  units_.Take(batches, plan.joins_steps);
  std::vector<int32_t> order(static_cast<size_t>(units_.size()));
  for (int64_t epoch = 0; epoch < plan.num_epochs; ++epoch) {
    std::iota(order.begin(), order.end(), 0);
    Shuffle(update.context, epoch, members_.front()->slot, &order);
    const TorchEpoch minibatches(units_, batches, order, units_.Minibatches(order, plan.minibatch_size), memory_);
    for (int64_t i = 0; i < minibatches.size(); ++i) {
      const GroupMinibatch minibatch = minibatches.Take(i);
      std::vector<Member*> members;
      for (size_t m = 0; m < at_work_.size(); ++m) {
        if (!minibatch.members[m].rows.defined()) continue;
        members.push_back(at_work_[m]);
        members.back()->networks.SetRows(whole[m].Take(minibatch.members[m]));
      }
      RunStep(members, minibatch.joint);
    }
  }
  return absl::OkStatus();
}

Tensor TorchGroup::ToHost(const Tensor& tensor) const {
  Tensor host = memory_.ToHost(tensor);
  memory_.Await();
  return host;
}

void TorchGroup::MoveTargets(int64_t updates) {
  for (const TargetRule& rule : Targets()) {
    if (updates % rule.interval != 0) continue;
    for (const std::unique_ptr<Member>& member : members_) {
      const policy::ParameterLayout& layout = member->parameters.layout();
      if (layout.FindSection(rule.role) != nullptr) member->parameters.MoveTarget(rule.role, rule.share);
    }
    const bool is_own = own_ != nullptr && own_->layout().FindSection(rule.role) != nullptr;
    if (is_own) own_on_device_->MoveTarget(rule.role, rule.share);
  }
}

std::vector<PolicyUpdateReport> TorchGroup::Finish(const GroupUpdate& update) {
  const Tensor numbers = memory_.ToHost(numbers_);
  for (const std::unique_ptr<Member>& member : members_) member->parameters.Store();
  if (own_ != nullptr) own_on_device_->Store();
  memory_.Await();
  for (const std::unique_ptr<Member>& member : members_) member->parameters.Finish();
  if (own_ != nullptr) own_on_device_->Finish();
  const double* const values = numbers.data_ptr<double>();
  const auto taken = static_cast<int64_t>(values[kTaken]);
  const auto skipped = static_cast<int64_t>(values[kSkipped]);
  std::vector<PolicyUpdateReport> reports;
  for (size_t i = 0; i < update.batches.size(); ++i) {
    const MemberAtWork& member = update.MemberOf(*update.batches[i]);
    const PreparedBatch& prepared = update.memory.prepared(i);
    PolicyUpdateReport& report = reports.emplace_back();
    report.policy = member.slot;
    if (prepared.uses().counted().empty()) continue;
    MergeObserved(member.spec, prepared, &member.resident);
    BookSkips(member.spec, taken, skipped, &member.resident, &partly_skipped_);
    report.trained_rows = static_cast<int64_t>(prepared.uses().active().size());
    report.minibatch_steps = taken;
    report.skipped_steps = skipped;
    report.epochs = epochs_;
    member.resident.trained_rows += report.trained_rows;
    report.metrics = {{"Policy/Skipped steps", static_cast<double>(skipped)},
                      {"Policy/Consecutive skips", static_cast<double>(member.resident.consecutive_skips)}};
    if (taken == 0) continue;
    const std::vector<std::string>& tags = tags_[variant_];
    for (size_t t = 0; t < tags.size(); ++t) {
      report.metrics.emplace_back(tags[t], values[kFirstReport + t] / values[kFirstCount + t]);
    }
  }
  return reports;
}

absl::StatusOr<std::vector<PolicyUpdateReport>> TorchGroup::Update(const GroupUpdate& update) {
  const absl::Duration begin = base::Clock::Real().SteadyNow();
  std::vector<PolicyUpdateReport> reports;
  TROUPE_RETURN_IF_ERROR(memory_.Guarded("training a group", [&]() -> absl::Status {
    TROUPE_RETURN_IF_ERROR(LoadBatch(update));
    LoadParameters(update);
    if (!at_work_.empty()) {
      TROUPE_RETURN_IF_ERROR(RunSteps(update));
      for (const MemberAtWork& member : update.members) ++member.resident.parameters.adam_steps;
      MoveTargets(update.members.front().resident.parameters.adam_steps);
    }
    reports = Finish(update);
    return absl::OkStatus();
  }));
  for (PolicyUpdateReport& report : reports) {
    report.train_time_s = absl::ToDoubleSeconds(base::Clock::Real().SteadyNow() - begin);
  }
  return reports;
}

}  // namespace troupe::training
