#include "lib/training/core/torch_backend.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/training/core/action_head.h"
#include "lib/training/core/adam.h"
#include "lib/training/core/torch_device.h"
#include "lib/training/core/torch_loss.h"
#include "lib/training/core/torch_networks.h"
#include "lib/training/core/torch_status.h"
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

namespace troupe::training {
namespace {

using torch::Tensor;

constexpr int64_t kTotals = 8;         // numbers of the device's totals before the loss's statistics
constexpr int64_t kValueRows = 65536;  // of one forward pass outside of minibatches: bounds its memory
const double kHalfLog2Pi = 0.5 * std::log(2.0 * M_PI);

/// A flat tensor and the named parameters inside it, as leaves whose gradients are views of a flat gradient.
struct Modules {
  Tensor values;
  Tensor gradients;
  Module actor;
  Module critic;
  Tensor log_std;  ///< undefined without a Gaussian head
};

Modules MakeModules(const policy::PolicySpec& spec, const policy::ParameterLayout& layout, const Tensor& values,
                    const Tensor& gradients) {
  Modules modules{.values = values, .gradients = gradients};
  const auto leaf = [&](const std::string& name) {
    const policy::ParameterEntry* entry = layout.Find(name);
    Tensor parameter = values.narrow(0, entry->offset, entry->count).view(entry->shape).detach().requires_grad_(true);
    parameter.mutable_grad() = gradients.narrow(0, entry->offset, entry->count).view(entry->shape);
    return parameter;
  };
  modules.actor = MakeModule(spec.actor, leaf);
  modules.critic = MakeModule(spec.critic(), leaf);
  if (layout.Find("actor.log_std") != nullptr) modules.log_std = leaf("actor.log_std");
  return modules;
}

/// One network's loss of a minibatch.
struct Loss {
  Tensor mean;  ///< what is differentiated
  Tensor sums;  ///< [n] over rows, in the order of StepTotals, without a graph
};

/// What a step reads of the batch.
struct Minibatch {
  Tensor rows;  ///< [rows that count], int64, of the batch
  // Of a policy with a core:
  Tensor run;        ///< [rows that are run], packed
  Tensor sequences;  ///< [sequences], int64, of the batch
  Tensor batch_sizes;
  Tensor kept;  ///< places in `run` of `rows`; undefined: all count
};

class TorchBackend final : public NetworkBackend {
 public:
  TorchBackend(const policy::PolicySpec& spec, const Device& device, TorchPath path, std::shared_ptr<ThreadTeam> team)
      : spec_(spec),
        head_(ActionHead::For(spec)),
        device_(ToTorch(device)),
        on_host_(path == TorchPath::kHost),
        team_(std::move(team)),
        name_(absl::StrCat("libtorch/", device.ToString())) {}

  /// On the CPU autograd runs in the thread that asks for it.
  bool can_run_alone() const override { return on_host_; }

  absl::Status Begin(const PreparedBatch& batch, FlatParameters* parameters, int thread) override {
    alone_ = thread != kWholeTeam;
    return Guarded("loading a batch", [&] {
      batch_ = &batch;
      parameters_ = parameters;
      targets_loaded_ = false;
      LoadParameters();
      actor_input_ = Load(batch.actor_input());
      critic_input_ = Load(batch.critic_input());
      critic_index_ = Load(batch.critic_index().data(), {batch.rows()}, torch::kInt32).to(torch::kInt64);
      if (batch.actor_memory().columns > 0) memory_.actor = Load(batch.actor_memory()).contiguous();
      const int64_t words = spec_.action_words();
      actions_ = Load(batch.actions.data(), {batch.rows(), words}, torch::kInt32);
      old_logp_ = Load(batch.old_logp.data(), {batch.rows()}, torch::kFloat32);
      if (spec_.has_action_mask)
        mask_ = Load(batch.action_mask.data(), {batch.rows(), spec_.mask_size()}, torch::kUInt8);
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<float>> Values() override {
    std::vector<float> values;
    const absl::Status status = Guarded("computing values", [&] {
      const torch::NoGradGuard no_grad;
      const int64_t rows = critic_input_.size(0);
      std::vector<Tensor> parts;
      for (int64_t first = 0; first < rows; first += kValueRows) {
        const Tensor part = critic_input_.narrow(0, first, std::min(kValueRows, rows - first));
        parts.push_back(ToHost(RunNetwork(spec_.critic().activation, modules_.critic, part).squeeze(1)));
      }
      AwaitDevice();
      values.reserve(static_cast<size_t>(rows));
      for (const Tensor& value : parts) {
        values.insert(values.end(), value.data_ptr<float>(), value.data_ptr<float>() + value.numel());
      }
      return absl::OkStatus();
    });
    TROUPE_RETURN_IF_ERROR(status);
    return values;
  }

  absl::StatusOr<SequenceOutputs> SequenceValues(const SequenceCall& call) override {
    SequenceOutputs outputs;
    const absl::Status status = Guarded("computing values in sequence", [&] {
      const torch::NoGradGuard no_grad;
      outputs.values.resize(call.rows.size());
      outputs.states.resize(call.states.size());
      int64_t row = 0;
      for (size_t first = 0; first < call.lengths.size();) {
        std::vector<std::pair<int64_t, int64_t>> pieces;
        const size_t begin = first;
        for (int64_t taken = 0; first < call.lengths.size() && (taken == 0 || taken < kValueRows); ++first) {
          pieces.emplace_back(row, call.lengths[first]);
          row += call.lengths[first];
          taken += call.lengths[first];
        }
        RunPieces(call, pieces, begin, &outputs);
      }
      return absl::OkStatus();
    });
    TROUPE_RETURN_IF_ERROR(status);
    return outputs;
  }

  absl::Status BeginEpoch(absl::Span<const int32_t> order) override {
    return Guarded("beginning an epoch", [&] {
      if (!targets_loaded_) {
        const int64_t rows = batch_->rows();
        advantages_ = Load(batch_->advantages.data(), {rows}, torch::kFloat32);
        value_targets_ = Load(batch_->value_targets.data(), {rows}, torch::kFloat32);
        old_values_ = Load(batch_->old_values.data(), {rows}, torch::kFloat32);
        if (const int64_t size = spec_.critic().core.state_size(); size > 0) {
          const auto sequences = static_cast<int64_t>(batch_->sequences().size());
          memory_.critic = Load(batch_->critic_memory.data(), {sequences, size}, torch::kFloat32);
        }
        targets_loaded_ = true;
      }
      units_ = order;
      order_ = Load(order.data(), {static_cast<int64_t>(order.size())}, torch::kInt32).to(torch::kInt64);
      return absl::OkStatus();
    });
  }

  absl::Status Step(int64_t first, int64_t count, const StepSettings& settings) override {
    return Guarded("taking a minibatch step", [&]() -> absl::Status {
      RECORD_USER_SCOPE("troupe::minibatch_step");
      const Minibatch minibatch = TakeMinibatch(first, count);
      const int64_t rows = minibatch.rows.size(0);
      TROUPE_RETURN_IF_ERROR(FindLoss(*settings.loss.loss));
      modules_.gradients.zero_();
      if (!on_host_) {
        // Differentiated together: autograd is handed over to the device's thread once.
        const Loss actor = ActorLoss(minibatch, settings);
        const Loss critic = CriticLoss(minibatch, settings);
        torch::autograd::backward({actor.mean, critic.mean}, {});
        StepOnDevice(rows, actor, critic, settings);
        return absl::OkStatus();
      }
      Loss actor;
      Loss critic;
      TROUPE_RETURN_IF_ERROR(BothNetworks(
          [&] {
            actor = ActorLoss(minibatch, settings);
            torch::autograd::backward({actor.mean}, {});
          },
          [&] {
            critic = CriticLoss(minibatch, settings);
            torch::autograd::backward({critic.mean}, {});
          }));
      StepOnHost(rows, actor, critic, settings);
      return absl::OkStatus();
    });
  }

  absl::StatusOr<StepTotals> TakeTotals() override {
    if (!on_host_) {
      const absl::Status status = Guarded("reading losses", [&] {
        const Tensor host = ToHost(device_totals_);
        AwaitDevice();
        const double* t = host.data_ptr<double>();
        totals_ = {.steps = static_cast<int64_t>(t[0]),
                   .skipped_steps = static_cast<int64_t>(t[1]),
                   .rows = static_cast<int64_t>(t[2]),
                   .policy_loss = t[6],
                   .value_loss = t[3],
                   .entropy = t[7],
                   .statistics = {},
                   .actor_grad_norm = t[4],
                   .critic_grad_norm = t[5]};
        std::copy_n(t + kTotals, kLossStatistics, totals_.statistics.begin());
        device_totals_.zero_();
        return absl::OkStatus();
      });
      TROUPE_RETURN_IF_ERROR(status);
    }
    return std::exchange(totals_, StepTotals{});
  }

  absl::Status End() override {
    return Guarded("handing back parameters", [&] {
      if (!on_host_) Store();
      Release();
      return absl::OkStatus();
    });
  }

  std::string_view name() const override { return name_; }

  absl::Status Serves(BackendLevel level) const override {
    if (level == BackendLevel::kRowLoss || on_host_) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrCat(name_,
                     " computes losses of rows alone: on a device, Forward and Backward would copy each call's "
                     "parameters and inputs there"));
  }

  absl::StatusOr<std::vector<float>> Forward(const NetworkCall& call) override {
    TROUPE_RETURN_IF_ERROR(Serves(BackendLevel::kForwardBackward));
    std::vector<float> outputs;
    TROUPE_RETURN_IF_ERROR(CatchTorch("computing outputs", [&]() -> absl::Status {
      const torch::NoGradGuard no_grad;
      TROUPE_ASSIGN_OR_RETURN(const Module module, ModuleOf(call));
      const Tensor result = RunNetwork(spec_.actor.activation, module, RowsOf(call)).contiguous();
      outputs.assign(result.data_ptr<float>(), result.data_ptr<float>() + result.numel());
      return absl::OkStatus();
    }));
    return outputs;
  }

  absl::Status Backward(const NetworkCall& call, absl::Span<const float> output_gradients, absl::Span<float> gradients,
                        absl::Span<float> input_gradients) override {
    TROUPE_RETURN_IF_ERROR(Serves(BackendLevel::kForwardBackward));
    return CatchTorch("differentiating outputs", [&]() -> absl::Status {
      TROUPE_ASSIGN_OR_RETURN(const Module module, ModuleOf(call));
      std::vector<Tensor> leaves;
      for (const Layers* const layers : {&module.encoder, &module.head}) {
        for (const auto& [weight, bias] : *layers) {
          leaves.push_back(weight.requires_grad_(true));
          leaves.push_back(bias.requires_grad_(true));
        }
      }
      const size_t num_parameters = leaves.size();
      const Tensor inputs = RowsOf(call);
      if (!input_gradients.empty()) leaves.push_back(inputs.requires_grad_(true));
      const Tensor outputs = RunNetwork(spec_.actor.activation, module, inputs);
      if (static_cast<int64_t>(output_gradients.size()) != outputs.numel() ||
          gradients.size() != call.parameters.size() ||
          (!input_gradients.empty() && static_cast<int64_t>(input_gradients.size()) != inputs.numel())) {
        return absl::InvalidArgumentError(absl::StrCat(
            "gradients of the ", std::string(call.network), ": got ", output_gradients.size(), " of outputs, ",
            gradients.size(), " of parameters, ", input_gradients.size(), " of inputs; expected ", outputs.numel(),
            ", ", call.parameters.size(), ", ", inputs.numel(), " or none"));
      }
      const Tensor from = torch::from_blob(const_cast<float*>(output_gradients.data()), outputs.sizes());
      const std::vector<Tensor> found = torch::autograd::grad({outputs}, leaves, {from});
      const policy::ParameterLayout layout = policy::ParameterLayout::For(spec_);
      for (size_t i = 0; i < num_parameters; ++i) {
        const std::string name = absl::StrCat(std::string(call.network), ".", i / 2, i % 2 == 0 ? ".weight" : ".bias");
        const Tensor gradient = found[i].contiguous();
        const float* const values = gradient.data_ptr<float>();
        float* const to = gradients.data() + layout.Find(name)->offset;
        for (int64_t k = 0; k < gradient.numel(); ++k) to[k] += values[k];
      }
      if (input_gradients.empty()) return absl::OkStatus();
      const Tensor gradient = found.back().contiguous();
      std::copy_n(gradient.data_ptr<float>(), gradient.numel(), input_gradients.data());
      return absl::OkStatus();
    });
  }

 private:
  /// The network that a call names, as views of its parameters.
  absl::StatusOr<Module> ModuleOf(const NetworkCall& call) const {
    const policy::ParameterLayout layout = policy::ParameterLayout::For(spec_);
    if (static_cast<int64_t>(call.parameters.size()) != layout.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a block of ", call.parameters.size(), " parameters; expected ", layout.size()));
    }
    const policy::NetworkSpec* const network =
        call.network == policy::kActorRole ? &spec_.actor : spec_.FindLearnerNetwork(call.network);
    if (network == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("the policy has no network \"", std::string(call.network), "\"; expected actor or critic"));
    }
    if (network->core.remembers()) {
      return absl::UnimplementedError(
          absl::StrCat("rows alone do not say what the ", network->role, ", a network with a core, remembers"));
    }
    if (const int64_t columns = spec_.InputSize(*network); call.inputs.columns != columns) {
      return absl::InvalidArgumentError(
          absl::StrCat("inputs of the ", network->role, " have ", call.inputs.columns, " columns; expected ", columns));
    }
    return MakeModule(*network, [&](const std::string& name) {
      const policy::ParameterEntry* const entry = layout.Find(name);
      return torch::from_blob(const_cast<float*>(call.parameters.data()) + entry->offset, entry->shape);
    });
  }
  /// [rows, columns], a copy.
  static Tensor RowsOf(const NetworkCall& call) {
    const Tensor all = torch::from_blob(const_cast<float*>(call.inputs.data), {call.inputs.rows, call.inputs.columns},
                                        {call.inputs.stride, 1});
    const Tensor rows = torch::from_blob(const_cast<int32_t*>(call.rows.data()),
                                         {static_cast<int64_t>(call.rows.size())}, torch::kInt32);
    return all.index_select(0, rows.to(torch::kInt64));
  }

  /// CatchTorch with the device as the current one: pinned memory and streams belong to it. What fails ends the update,
  /// so that its memory is given back.
  template <typename Body>
  absl::Status Guarded(std::string_view doing, Body&& body) {
    absl::Status status = CatchTorch(doing, [&]() -> absl::Status {
      const c10::DeviceGuard guard(device_);
      return body();
    });
    if (!status.ok()) Release();
    return status;
  }

  /// The batch's memory is the caller's again, and the device's is free.
  void Release() {
    modules_ = {};
    for (Tensor* tensor : {&actor_input_, &critic_input_, &critic_index_, &memory_.actor, &memory_.critic, &actions_,
                           &old_logp_, &mask_, &advantages_, &value_targets_, &old_values_, &order_, &exp_avg_,
                           &exp_avg_sq_, &device_steps_, &device_totals_}) {
      tensor->reset();
    }
  }

  /// Host memory as a tensor: borrowed on the host's path, else a copy on the device. To a CUDA device all copies are
  /// out of pinned memory and none is waited for, so `data` stays as it is until the next AwaitDevice.
  Tensor Load(const void* data, torch::IntArrayRef sizes, torch::ScalarType dtype) const {
    const Tensor host = torch::from_blob(const_cast<void*>(data), sizes, dtype);
    if (on_host_) return host;
    if (!device_.is_cuda()) return host.clone();
    return (host.is_pinned() ? host : host.pin_memory()).to(device_, /*non_blocking=*/true);
  }
  Tensor Load(const MatrixView& matrix) const {
    return Load(matrix.data, {matrix.rows, matrix.stride}, torch::kFloat32).narrow(1, 0, matrix.columns);
  }
  Tensor Load(absl::Span<float> values) const {
    return Load(values.data(), {static_cast<int64_t>(values.size())}, torch::kFloat32);
  }
  /// A copy on the host; from a CUDA device it is there after AwaitDevice.
  Tensor ToHost(const Tensor& tensor) const {
    return tensor.contiguous().to(torch::kCPU, /*non_blocking=*/device_.is_cuda());
  }
  void AwaitDevice() const {
    if (device_.is_cuda()) c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).synchronize();
  }

  void LoadParameters() {
    const Tensor values = Load(parameters_->values());
    const Tensor gradients = on_host_ ? Load(parameters_->gradients()) : torch::zeros_like(values);
    modules_ = MakeModules(spec_, parameters_->layout(), values, gradients);
    totals_ = {};
    if (on_host_) return;
    exp_avg_ = Load(parameters_->exp_avg());
    exp_avg_sq_ = Load(parameters_->exp_avg_sq());
    const auto doubles = torch::TensorOptions().dtype(torch::kFloat64).device(device_);
    device_steps_ = torch::full({}, static_cast<double>(parameters_->adam_steps), doubles);
    device_totals_ = torch::zeros({kTotals + kLossStatistics}, doubles);
  }

  void Store() {
    const Tensor steps = ToHost(device_steps_);
    const std::pair<Tensor, absl::Span<float>> rows[] = {{ToHost(modules_.values), parameters_->values()},
                                                         {ToHost(exp_avg_), parameters_->exp_avg()},
                                                         {ToHost(exp_avg_sq_), parameters_->exp_avg_sq()}};
    AwaitDevice();
    parameters_->adam_steps = static_cast<int64_t>(*steps.data_ptr<double>());
    for (const auto& [from, to] : rows) std::copy_n(from.data_ptr<float>(), to.size(), to.data());
  }

  /// Both at once where there are threads for it.
  template <typename Actor, typename Critic>
  absl::Status BothNetworks(Actor&& actor, Critic&& critic) {
    if (alone_ || team_->size() < 2) {
      actor();
      critic();
      return absl::OkStatus();
    }
    absl::Status statuses[2];
    team_->Run([&](int thread) {
      if (thread > 1) return;
      statuses[thread] = CatchTorch("differentiating", [&] {
        if (thread == 0) {
          actor();
        } else {
          critic();
        }
        return absl::OkStatus();
      });
    });
    TROUPE_RETURN_IF_ERROR(statuses[0]);
    return statuses[1];
  }

  /// A host's numbers where the networks are.
  Tensor Indices(const std::vector<int64_t>& numbers) const {
    const Tensor host = torch::tensor(numbers, torch::kInt64);
    return on_host_ ? host : host.to(device_);
  }

  Minibatch TakeMinibatch(int64_t first, int64_t count) const {
    Minibatch minibatch;
    if (batch_->sequences().empty()) {
      minibatch.rows = order_.narrow(0, first, count);
      return minibatch;
    }
    std::vector<std::pair<int64_t, int64_t>> pieces;
    for (const int32_t unit : units_.subspan(static_cast<size_t>(first), static_cast<size_t>(count))) {
      const learner::TrainSequence& sequence = batch_->sequences()[static_cast<size_t>(unit)];
      pieces.emplace_back(sequence.first_row, sequence.rows);
    }
    const Packed packed = Pack(pieces);
    std::vector<int64_t> kept;
    for (size_t i = 0; i < packed.rows.size(); ++i) {
      if (batch_->is_active(packed.rows[i])) kept.push_back(static_cast<int64_t>(i));
    }
    minibatch.run = Indices(packed.rows);
    minibatch.sequences = order_.narrow(0, first, count).index_select(0, Indices(packed.sequences));
    minibatch.batch_sizes = packed.batch_sizes;
    minibatch.rows = minibatch.run;
    if (kept.size() < packed.rows.size()) {
      minibatch.kept = Indices(kept);
      minibatch.rows = minibatch.run.index_select(0, minibatch.kept);
    }
    return minibatch;
  }

  /// The outputs of minibatch.rows. `inputs` has a row for each place of `index`, or where that is undefined for each
  /// of the batch's.
  Tensor Outputs(const policy::NetworkSpec& network, const Module& module, const Tensor& inputs, const Tensor& index,
                 const Tensor& memory, const Minibatch& minibatch) const {
    const auto of_rows = [&](const Tensor& rows) {
      return inputs.index_select(0, index.defined() ? index.index_select(0, rows) : rows);
    };
    if (!network.core.remembers()) return RunNetwork(network.activation, module, of_rows(minibatch.rows));
    Tensor output = RunCore(network.core, module.core, Encode(network.activation, module, of_rows(minibatch.run)),
                            minibatch.batch_sizes, memory.index_select(0, minibatch.sequences))
                        .first;
    if (minibatch.kept.defined()) output = output.index_select(0, minibatch.kept);
    return Decode(network.activation, module, output);
  }

  /// Sequences from number `begin` on, whose rows stand in call.rows at `pieces`.
  void RunPieces(const SequenceCall& call, const std::vector<std::pair<int64_t, int64_t>>& pieces, size_t begin,
                 SequenceOutputs* outputs) const {
    const policy::CoreSpec& core = spec_.critic().core;
    const int64_t size = core.state_size();
    const Packed packed = Pack(pieces);
    std::vector<int64_t> inputs;
    for (const int64_t row : packed.rows) inputs.push_back(call.rows[static_cast<size_t>(row)]);
    const auto states_at = static_cast<int64_t>(begin) * size;
    const auto count = static_cast<int64_t>(pieces.size());
    const Tensor states = Load(call.states.data() + states_at, {count, size}, torch::kFloat32);
    const auto [output, after] =
        RunCore(core, modules_.critic.core,
                Encode(spec_.critic().activation, modules_.critic, critic_input_.index_select(0, Indices(inputs))),
                packed.batch_sizes, states.index_select(0, Indices(packed.sequences)));
    const Tensor values = ToHost(Decode(spec_.critic().activation, modules_.critic, output).squeeze(1));
    const Tensor states_after = ToHost(after);
    AwaitDevice();
    for (size_t i = 0; i < packed.rows.size(); ++i) {
      outputs->values[static_cast<size_t>(packed.rows[i])] = values.data_ptr<float>()[i];
    }
    for (size_t i = 0; i < packed.sequences.size(); ++i) {
      std::copy_n(states_after.data_ptr<float>() + static_cast<int64_t>(i) * size, size,
                  outputs->states.data() + states_at + packed.sequences[i] * size);
    }
  }

  /// Log-probability and entropy of each row, [n] each.
  std::pair<Tensor, Tensor> Distribution(const Tensor& output, const Tensor& rows) const {
    Tensor logp = torch::zeros({output.size(0)}, output.options().requires_grad(false));
    Tensor entropy = torch::zeros_like(logp);
    const Tensor actions = actions_.index_select(0, rows);
    for (const CategoricalPart& part : head_.categorical) {
      Tensor logits = output.narrow(1, part.output, part.categories);
      if (mask_.defined()) {
        const Tensor forbidden = mask_.index_select(0, rows).narrow(1, part.mask_offset, part.categories).eq(0);
        logits =
            logits.masked_fill(forbidden, kMaskedLogit);  // torch::where would copy the number to the device and wait
      }
      const Tensor all = torch::log_softmax(logits, 1);
      const Tensor category = (actions.narrow(1, part.word, 1) - part.start).to(torch::kInt64);
      logp = logp + all.gather(1, category).squeeze(1);
      entropy = entropy - (all.exp() * all).sum(1);
    }
    for (const GaussianPart& part : head_.gaussian) {
      const Tensor mean = output.narrow(1, part.output, part.words);
      const Tensor log_std = modules_.log_std.narrow(0, part.log_std, part.words);
      const Tensor action = actions.narrow(1, part.word, part.words).contiguous().view(torch::kFloat32);
      const Tensor z = (action - mean) * (-log_std).exp();
      logp = logp + (-0.5 * z.square() - log_std - kHalfLog2Pi).sum(1);
      entropy = entropy + (log_std + (0.5 + kHalfLog2Pi)).sum();
    }
    return {logp, entropy};
  }

  absl::Status FindLoss(const RowLoss& loss) {
    if (row_loss_ == &loss) return absl::OkStatus();
    loss_ = FindTorchLoss(loss.name);
    if (loss_ == nullptr) {
      return absl::UnimplementedError(
          absl::StrCat("the loss of ", std::string(loss.name), " is not there for LibTorch"));
    }
    row_loss_ = &loss;
    return absl::OkStatus();
  }

  /// What a loss reads of `rows`, which outlive it.
  TorchLoss::Columns ColumnsOf(const Tensor& rows) const {
    return [this, &rows](RowColumn column) {
      switch (column) {
        case RowColumn::kOldLogp:
          return old_logp_.index_select(0, rows);
        case RowColumn::kAdvantage:
          return advantages_.index_select(0, rows);
        case RowColumn::kValueTarget:
          return value_targets_.index_select(0, rows);
        case RowColumn::kOldValue:
          return old_values_.index_select(0, rows);
      }
      return Tensor();
    };
  }

  Loss ActorLoss(const Minibatch& minibatch, const StepSettings& settings) const {
    const Tensor& rows = minibatch.rows;
    const Tensor output = Outputs(spec_.actor, modules_.actor, actor_input_, Tensor(), memory_.actor, minibatch);
    const auto [logp, entropy] = Distribution(output, rows);
    const TorchLoss::ActorTerms terms = loss_->OfActor(logp, ColumnsOf(rows), settings.loss.numbers);
    const Tensor loss = terms.loss.mean() - settings.entropy_coeff * entropy.mean();
    const torch::NoGradGuard no_grad;
    std::vector<Tensor> sums = {terms.loss.sum(), entropy.sum()};
    sums.insert(sums.end(), terms.statistics.begin(), terms.statistics.end());
    return {loss, torch::stack(sums).detach()};
  }

  Loss CriticLoss(const Minibatch& minibatch, const StepSettings& settings) const {
    const Tensor value =
        Outputs(spec_.critic(), modules_.critic, critic_input_, critic_index_, memory_.critic, minibatch).squeeze(1);
    const Tensor loss = loss_->OfCritic(value, ColumnsOf(minibatch.rows), settings.loss.numbers, settings.huber_delta);
    const Tensor mean = settings.value_loss_coeff * loss.mean();
    const torch::NoGradGuard no_grad;
    return {mean, loss.sum().reshape({1})};
  }

  void StepOnHost(int64_t count, const Loss& actor, const Loss& critic, const StepSettings& settings) {
    const std::vector<ParameterBlock> blocks = parameters_->blocks();
    const ParameterBlock& actor_block = blocks.front();
    const ParameterBlock& critic_block = blocks.back();
    const double actor_norm = GradientNorm(actor_block);
    const double critic_norm = GradientNorm(critic_block);
    if (!std::isfinite(actor.mean.item<float>()) || !std::isfinite(critic.mean.item<float>()) ||
        !std::isfinite(actor_norm) || !std::isfinite(critic_norm)) {
      ++totals_.skipped_steps;
      return;
    }
    const int64_t step = ++parameters_->adam_steps;
    StepBlock(step, settings.learning_rate, settings, actor_norm, actor_block);
    StepBlock(step, settings.critic_learning_rate, settings, critic_norm, critic_block);
    ++totals_.steps;
    totals_.rows += count;
    const float* sums = actor.sums.data_ptr<float>();
    totals_.policy_loss += sums[0];
    totals_.entropy += sums[1];
    for (int64_t i = 2; i < actor.sums.numel(); ++i) totals_.statistics[static_cast<size_t>(i - 2)] += sums[i];
    totals_.value_loss += critic.sums.item<float>();
    totals_.actor_grad_norm += actor_norm;
    totals_.critic_grad_norm += critic_norm;
  }

  /// The same without ever asking the device for a number: LibTorch's fused Adam leaves everything as it is where
  /// `refused` is 1.
  void StepOnDevice(int64_t count, const Loss& actor, const Loss& critic, const StepSettings& settings) {
    const torch::NoGradGuard no_grad;
    const int64_t split = parameters_->acting_size();
    const int64_t rest = parameters_->size() - split;
    const Tensor actor_norm = modules_.gradients.narrow(0, 0, split).norm();
    const Tensor critic_norm = modules_.gradients.narrow(0, split, rest).norm();
    const Tensor ok = torch::isfinite(torch::stack({actor.mean, critic.mean, actor_norm, critic_norm})).all();
    const Tensor taken = ok.to(torch::kFloat64);
    const Tensor refused = ok.logical_not().to(torch::kFloat32);
    device_steps_.add_(taken);
    const Tensor step = device_steps_.to(torch::kFloat32);
    const auto apply = [&](int64_t first, int64_t length, double learning_rate, const Tensor& norm) {
      // What the gradient is divided by: clipped as torch.nn.utils.clip_grad_norm_ does.
      std::optional<Tensor> scale;
      if (settings.max_grad_norm > 0) scale = ((norm + 1e-6) / settings.max_grad_norm).clamp_min(1.0);
      const auto part = [&](const Tensor& flat) { return flat.narrow(0, first, length); };
      at::_fused_adam_({part(modules_.values)}, {part(modules_.gradients)}, {part(exp_avg_)}, {part(exp_avg_sq_)}, {},
                       {step}, learning_rate, settings.adam_beta1, settings.adam_beta2, /*weight_decay=*/0,
                       settings.adam_epsilon, /*amsgrad=*/false, /*maximize=*/false, scale, refused);
    };
    apply(0, split, settings.learning_rate, actor_norm);
    apply(split, rest, settings.critic_learning_rate, critic_norm);
    const Tensor sums =
        torch::cat({critic.sums, actor_norm.reshape({1}), critic_norm.reshape({1}), actor.sums}).to(torch::kFloat64);
    const Tensor counts = torch::stack({taken, 1.0 - taken, taken * static_cast<double>(count)});
    device_totals_.narrow(0, 0, counts.numel() + sums.numel())
        .add_(torch::cat({counts, torch::where(ok, sums, torch::zeros_like(sums))}));
  }

  const policy::PolicySpec spec_;
  const ActionHead head_;
  const torch::Device device_;
  const bool on_host_;
  const std::shared_ptr<ThreadTeam> team_;
  const std::string name_;

  // From Begin to End.
  const PreparedBatch* batch_ = nullptr;
  FlatParameters* parameters_ = nullptr;
  bool alone_ = false;
  Modules modules_;
  Tensor exp_avg_, exp_avg_sq_;  // on the device's path
  Tensor actor_input_, critic_input_, critic_index_, actions_, old_logp_, mask_;
  struct {
    Tensor actor, critic;
  } memory_;
  absl::Span<const int32_t> units_;  // order_, on the host
  Tensor advantages_, value_targets_, old_values_, order_;
  bool targets_loaded_ = false;

  const RowLoss* row_loss_ = nullptr;  // of the last step
  const TorchLoss* loss_ = nullptr;    // its code

  StepTotals totals_;
  Tensor device_steps_;  // scalar float64
  // [steps, skipped, rows, value loss, actor norm, critic norm, policy loss, entropy, the loss's statistics]
  Tensor device_totals_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NetworkBackend>> MakeTorchBackend(const policy::PolicySpec& spec, const Device& device,
                                                                 TorchPath path, std::shared_ptr<ThreadTeam> team) {
  if (device.is_cuda() && path == TorchPath::kHost) {
    return absl::InvalidArgumentError(absl::StrCat(device.ToString(), " cannot compute on the host's memory"));
  }
  for (const policy::NetworkSpec* const network : {&spec.actor, &spec.critic()}) {
    TROUPE_RETURN_IF_ERROR(policy::CheckEncoderIsMlp("LibTorch's back end", *network));
  }
  return std::unique_ptr<NetworkBackend>(std::make_unique<TorchBackend>(spec, device, path, std::move(team)));
}

}  // namespace troupe::training
