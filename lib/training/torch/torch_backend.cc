#include "lib/training/torch/torch_backend.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/training/core/action_head.h"
#include "lib/training/core/optimizer.h"
#include "lib/training/script/loss_script.h"
#include "lib/training/torch/captured_steps.h"
#include "lib/training/torch/cuda_graph.h"
#include "lib/training/torch/device_memory.h"
#include "lib/training/torch/loss_rows.h"
#include "lib/training/torch/policy_modules.h"
#include "lib/training/torch/torch_batch.h"
#include "lib/training/torch/torch_device.h"
#include "lib/training/torch/torch_distributions.h"
#include "lib/training/torch/torch_inputs.h"
#include "lib/training/torch/torch_log_probabilities.h"
#include "lib/training/torch/torch_minibatches.h"
#include "lib/training/torch/torch_network_calls.h"
#include "lib/training/torch/torch_networks.h"
#include "lib/training/torch/torch_optimizer.h"
#include "lib/training/torch/torch_parts.h"
#include "lib/training/torch/torch_precision.h"
#include "lib/training/torch/torch_status.h"
#include "lib/training/torch/torch_totals.h"
#include <ATen/record_function.h>
#include <torch/torch.h>

namespace troupe::training {
namespace {

using torch::Tensor;

constexpr int64_t kValueRows = 65536;  // of one forward pass outside of minibatches: bounds its memory

class TorchBackend final : public NetworkBackend {
 public:
  TorchBackend(const policy::PolicySpec& spec, Scripts scripts, const Device& device, TorchPath path,
               std::shared_ptr<ThreadTeam> team, Precision precision)
      : spec_(spec),
        scripts_(std::move(scripts)),
        head_(ActionHead::For(spec)),
        memory_(ToTorch(device), path),
        bfloat16_(!memory_.borrows() && precision == Precision::kBfloat16 && scripts_.actor == nullptr &&
                  scripts_.critic == nullptr),
        team_(std::move(team)),
        name_(absl::StrCat("libtorch/", device.ToString())),
        minibatches_([this](absl::Span<const int32_t> numbers) { return memory_.LoadIndex(numbers); }),
        steps_(memory_.device()) {}

  /// On the CPU autograd runs in the thread that asks for it.
  bool can_run_alone() const override { return memory_.borrows(); }

  absl::Status Begin(const PreparedBatch& batch, FlatParameters* parameters, int thread) override {
    alone_ = thread != kWholeTeam;
    return Guarded("loading a batch", [&] {
      steps_.Release();  // what they read is replaced
      batch_ = &batch;
      parameters_ = parameters;
      LoadParameters();
      loaded_ = TorchBatch::Load(spec_, batch, scripts_.actor != nullptr, memory_);
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::vector<float>> Values() override {
    std::vector<float> values;
    const absl::Status status = Guarded("computing values", [&] {
      const torch::NoGradGuard no_grad;
      const int64_t rows = loaded_.critic.rows();
      const int64_t most = RowsOfPass(spec_, spec_.EncodingNetwork(spec_.critic()), kValueRows);
      std::vector<Tensor> parts;
      for (int64_t first = 0; first < rows; first += most) {
        const Tensor part = loaded_.critic.Range(first, std::min(most, rows - first));
        parts.push_back(memory_.ToHost(RunCritic(part).squeeze(1)));
      }
      memory_.Await();
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
      const int64_t most = RowsOfPass(spec_, spec_.EncodingNetwork(spec_.critic()), kValueRows);
      for (size_t first = 0; first < call.lengths.size();) {
        std::vector<std::pair<int64_t, int64_t>> pieces;
        const size_t begin = first;
        for (int64_t taken = 0; first < call.lengths.size() && (taken == 0 || taken < most); ++first) {
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

  absl::StatusOr<std::vector<float>> LogProbabilities(Net net) override {
    std::vector<float> logp;
    TROUPE_RETURN_IF_ERROR(Guarded("computing log-probabilities", [&] {
      const Modules actor =
          net == Net::kOnline ? modules_ : MakeTargetActor(spec_, parameters_->layout(), scripts_, modules_.values);
      logp = LogProbabilitiesOf(spec_, head_, actor, *batch_, loaded_, memory_, bfloat16_, kValueRows);
      return absl::OkStatus();
    }));
    return logp;
  }

  absl::Status ParametersChanged() override {
    if (memory_.borrows()) return absl::OkStatus();
    return Guarded("loading parameters", [&] {
      const torch::NoGradGuard no_grad;
      modules_.values.copy_(memory_.Load(parameters_->values()));
      return absl::OkStatus();
    });
  }

  absl::Status BeginEpoch(absl::Span<const int32_t> order) override {
    return Guarded("beginning an epoch", [&] {
      loaded_.LoadTargets(spec_, *batch_, memory_);
      minibatches_.Begin(*batch_, order);
      return absl::OkStatus();
    });
  }

  absl::Status Step(int64_t first, int64_t count, const StepSettings& settings) override {
    return Guarded("taking a minibatch step", [&]() -> absl::Status {
      RECORD_USER_SCOPE("troupe::minibatch_step");
      if (memory_.borrows()) modules_.gradients.zero_();
      if (!settings.loss.module.empty()) return StepModule(first, count, settings);
      TROUPE_RETURN_IF_ERROR(FindLoss(*settings.loss.loss));
      if (spec_.shares_encoder() && memory_.borrows()) return StepShared(first, count, settings);
      const Minibatches minibatch = minibatches_.Take(first, count);
      if (!memory_.borrows()) {
        const auto step = [&](const Minibatches& rows) { StepOnDevice(rows, settings); };
        if (CanBeCaptured()) {
          RunCaptured(minibatch, settings, &steps_, step);
        } else {
          step(minibatch);
        }
        return absl::OkStatus();
      }
      NetworkLoss actor;
      NetworkLoss critic;
      TROUPE_RETURN_IF_ERROR(BothAtOnce(
          [&] {
            actor = ActorLoss(minibatch.actor, settings);
            torch::autograd::backward({actor.mean}, {});
          },
          [&] {
            critic = CriticLoss(minibatch.critic, settings);
            torch::autograd::backward({critic.mean}, {});
          }));
      StepOnHost(actor, critic, settings);
      return absl::OkStatus();
    });
  }

  absl::StatusOr<StepTotals> TakeTotals() override {
    const absl::Status status = Guarded("reading losses", [&] {
      if (!memory_.borrows()) {
        const Tensor host = memory_.ToHost(device_totals_.numbers());
        memory_.Await();
        totals_ = DeviceTotals::Read(host);
        device_totals_.Clear();
      }
      totals_.module_metrics = module_metrics_.Take(memory_);
      return absl::OkStatus();
    });
    TROUPE_RETURN_IF_ERROR(status);
    return std::exchange(totals_, StepTotals{});
  }

  absl::Status End() override {
    return Guarded("handing back parameters", [&] {
      if (!memory_.borrows()) Store();
      Release();
      return absl::OkStatus();
    });
  }

  std::string_view name() const override { return name_; }

  absl::Status Serves(BackendLevel level) const override {
    if (level == BackendLevel::kRowLoss || memory_.borrows()) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrCat(name_,
                     " computes losses of rows alone: on a device, Forward and Backward would copy each call's "
                     "parameters and inputs there"));
  }

  absl::StatusOr<std::vector<float>> Forward(const NetworkCall& call) override {
    TROUPE_RETURN_IF_ERROR(Serves(BackendLevel::kForwardBackward));
    return ForwardOf(spec_, call);
  }

  absl::Status Backward(const NetworkCall& call, absl::Span<const float> output_gradients, absl::Span<float> gradients,
                        absl::Span<float> input_gradients) override {
    TROUPE_RETURN_IF_ERROR(Serves(BackendLevel::kForwardBackward));
    return BackwardOf(spec_, call, output_gradients, gradients, input_gradients);
  }

 private:
  /// DeviceMemory::Guarded. An error ends the update, so that its memory is given back.
  template <typename Body>
  absl::Status Guarded(std::string_view doing, Body&& body) {
    absl::Status status = memory_.Guarded(doing, std::forward<Body>(body));
    if (!status.ok()) Release();
    return status;
  }

  /// The batch's memory is the caller's again, and the device's is free.
  void Release() {
    steps_.Release();
    modules_ = {};
    second_half_ = {};
    loaded_ = {};
    moments_ = {};
    device_steps_.reset();
    device_totals_.Release();
    module_metrics_.Release();
    minibatches_.Release();
  }

  void LoadParameters() {
    const Tensor values = memory_.Load(parameters_->values());
    const Tensor gradients = memory_.borrows() ? memory_.Load(parameters_->gradients()) : torch::zeros_like(values);
    modules_ = MakeModules(spec_, parameters_->layout(), scripts_, values, gradients);
    totals_ = {};
    if (spec_.shares_encoder() && memory_.borrows() && Halves()) {
      second_half_ = MakeModules(spec_, parameters_->layout(), scripts_, values, torch::zeros_like(values));
    }
    if (memory_.borrows()) return;
    moments_.exp_avg = memory_.Load(parameters_->exp_avg());
    moments_.exp_avg_sq = memory_.Load(parameters_->exp_avg_sq());
    const auto doubles = torch::TensorOptions().dtype(torch::kFloat64).device(memory_.device());
    device_steps_ = torch::full({}, static_cast<double>(parameters_->adam_steps), doubles);
    device_totals_.Begin(memory_.device());
  }

  void Store() {
    const Tensor steps = memory_.ToHost(device_steps_);
    const std::pair<Tensor, absl::Span<float>> rows[] = {
        {memory_.ToHost(modules_.values), parameters_->values()},
        {memory_.ToHost(moments_.exp_avg), parameters_->exp_avg()},
        {memory_.ToHost(moments_.exp_avg_sq), parameters_->exp_avg_sq()}};
    memory_.Await();
    parameters_->adam_steps = static_cast<int64_t>(*steps.data_ptr<double>());
    for (const auto& [from, to] : rows) std::copy_n(from.data_ptr<float>(), to.size(), to.data());
  }

  /// Whether there are threads for two things at once.
  bool HasTwoThreads() const { return !alone_ && team_->size() >= 2; }
  /// Whether networks that share an encoder have a minibatch in two halves.
  bool Halves() const { return HasTwoThreads() && Convolves(spec_.actor); }

  template <typename One, typename Other>
  absl::Status BothAtOnce(One&& one, Other&& other) {
    if (!HasTwoThreads()) {
      one();
      other();
      return absl::OkStatus();
    }
    absl::Status statuses[2];
    team_->Run([&](int thread) {
      if (thread > 1) return;
      statuses[thread] = CatchTorch("differentiating", [&] {
        if (thread == 0) {
          one();
        } else {
          other();
        }
        return absl::OkStatus();
      });
    });
    TROUPE_RETURN_IF_ERROR(statuses[0]);
    return statuses[1];
  }

  /// What `run`, some layers of a network that remembers nothing, gives.
  template <typename Run>
  Tensor InPrecision(Run&& run) const {
    if (!bfloat16_) return run();
    const Bfloat16Products products(memory_.device().type());
    return run().to(torch::kFloat32);
  }

  /// The critic's values of inputs, [rows, 1]; where nothing remembers.
  Tensor RunCritic(const Tensor& x) const {
    return InPrecision([&] {
      if (!spec_.shares_encoder()) return RunNetwork(spec_.critic().activation, modules_.critic, x);
      return Decode(spec_.critic().activation, modules_.critic, Encode(spec_.actor.activation, modules_.actor, x));
    });
  }

  /// The same of one whose rows are sequences, as RunSequences.
  std::pair<Tensor, Tensor> RunCriticSequences(const Tensor& x, const Tensor& batch_sizes, const Tensor& states) const {
    const policy::NetworkSpec& critic = spec_.critic();
    if (!spec_.shares_encoder()) {
      return RunSequences(critic, modules_.critic, x, batch_sizes, states, /*kept=*/Tensor());
    }
    const auto [output, after] = EncodeSequences(spec_.actor, modules_.actor, x, batch_sizes, states);
    return {Decode(critic.activation, modules_.critic, output), after};
  }

  /// The critic's values of minibatch.rows, from one pass over the inputs that they read. Each row takes a number of
  /// its own, so that autograd adds up rows in one order: adding to one number by index has none on a GPU.
  Tensor ValuesOfUnits(const Minibatch& minibatch) const {
    const Tensor values = RunCritic(loaded_.critic.Take(minibatch.inputs));
    return values.expand({-1, minibatch.width}).flatten().index_select(0, minibatch.places);
  }

  /// The outputs of minibatch.rows. `inputs` has a row for each place of `index`, or where that is undefined for each
  /// of the batch's.
  Tensor Outputs(const policy::NetworkSpec& network, const Module& module, const NetworkInputs& inputs,
                 const Tensor& index, const Tensor& memory, const Minibatch& minibatch) const {
    const auto of_rows = [&](const Tensor& rows) {
      return inputs.Take(index.defined() ? index.index_select(0, rows) : rows);
    };
    if (!network.remembers()) {
      return InPrecision([&] { return RunNetwork(network.activation, module, of_rows(minibatch.rows)); });
    }
    return RunSequences(network, module, of_rows(minibatch.run), minibatch.batch_sizes,
                        memory.index_select(0, minibatch.sequences), minibatch.kept)
        .first;
  }

  /// Sequences from number `begin` on, whose rows stand in call.rows at `pieces`.
  void RunPieces(const SequenceCall& call, const std::vector<std::pair<int64_t, int64_t>>& pieces, size_t begin,
                 SequenceOutputs* outputs) const {
    const int64_t size = spec_.EncodingNetwork(spec_.critic()).state_size();
    const Packed packed = Pack(pieces);
    std::vector<int64_t> inputs;
    for (const int64_t row : packed.rows) inputs.push_back(call.rows[static_cast<size_t>(row)]);
    const auto states_at = static_cast<int64_t>(begin) * size;
    const auto count = static_cast<int64_t>(pieces.size());
    const Tensor states = memory_.Load(call.states.data() + states_at, {count, size}, torch::kFloat32);
    const auto [output, after] = RunCriticSequences(loaded_.critic.Take(memory_.LoadIndex(inputs)), packed.batch_sizes,
                                                    states.index_select(0, memory_.LoadIndex(packed.sequences)));
    const Tensor values = memory_.ToHost(output.squeeze(1));
    const Tensor states_after = memory_.ToHost(after);
    memory_.Await();
    for (size_t i = 0; i < packed.rows.size(); ++i) {
      outputs->values[static_cast<size_t>(packed.rows[i])] = values.data_ptr<float>()[i];
    }
    for (size_t i = 0; i < packed.sequences.size(); ++i) {
      std::copy_n(states_after.data_ptr<float>() + static_cast<int64_t>(i) * size, size,
                  outputs->states.data() + states_at + packed.sequences[i] * size);
    }
  }

  ActionTerms Distribution(const Modules& modules, const Tensor& output, const Tensor& rows) const {
    return TermsOf(head_, output, modules.log_std, loaded_.actions.index_select(0, rows),
                   loaded_.mask.defined() ? loaded_.mask.index_select(0, rows) : Tensor());
  }

  absl::Status FindLoss(const RowLoss& loss) {
    if (row_loss_ == &loss) return absl::OkStatus();
    loss_ = FindTorchParts(loss.name).row_loss;
    if (loss_ == nullptr) {
      return absl::UnimplementedError(
          absl::StrCat("the loss of ", std::string(loss.name), " is not there for LibTorch"));
    }
    row_loss_ = &loss;
    return absl::OkStatus();
  }

  /// What a loss reads of `rows`, which outlive it.
  TorchLoss::Columns ColumnsOf(const Tensor& rows) const {
    return [this, &rows](RowColumn column) { return loaded_.Column(column).index_select(0, rows); };
  }

  Tensor ActorOutput(const Minibatch& minibatch) const {
    return Outputs(spec_.actor, modules_.actor, loaded_.actor, Tensor(), loaded_.actor_memory, minibatch);
  }

  NetworkLoss ActorLoss(const Minibatch& minibatch, const StepSettings& settings) const {
    return ActorLossOf(modules_, ActorOutput(minibatch), minibatch.rows, settings);
  }

  NetworkLoss ActorLossOf(const Modules& modules, const Tensor& output, const Tensor& rows,
                          const StepSettings& settings) const {
    const auto [logp, entropy] = Distribution(modules, output, rows);
    const TorchLoss::ActorTerms terms = loss_->OfActor(logp, ColumnsOf(rows), settings.loss.numbers);
    Tensor loss = MeanOf(terms.loss) - settings.entropy_coeff * MeanOf(entropy);
    if (terms.penalty.defined()) loss = loss + MeanOf(terms.penalty);
    const torch::NoGradGuard no_grad;
    std::vector<Tensor> sums = {terms.loss.sum(), entropy.sum()};
    sums.insert(sums.end(), terms.statistics.begin(), terms.statistics.end());
    return {loss, torch::stack(sums).detach(), rows.size(0)};
  }

  Tensor ValuesOf(const Minibatch& minibatch) const {
    if (minibatch.inputs.defined()) return ValuesOfUnits(minibatch);
    return Outputs(spec_.critic(), modules_.critic, loaded_.critic, loaded_.critic_index, loaded_.critic_memory,
                   minibatch)
        .squeeze(1);
  }

  NetworkLoss CriticLoss(const Minibatch& minibatch, const StepSettings& settings) const {
    return CriticLossOf(ValuesOf(minibatch), minibatch.rows, settings);
  }

  NetworkLoss CriticLossOf(const Tensor& value, const Tensor& rows, const StepSettings& settings) const {
    const Tensor loss = loss_->OfCritic(value, ColumnsOf(rows), settings.loss.numbers, settings.huber_delta);
    const Tensor mean = settings.value_loss_coeff * MeanOf(loss);
    const torch::NoGradGuard no_grad;
    return {mean, loss.sum().reshape({1}), loss.numel()};
  }

  /// Losses of networks that share nothing, computed side by side where the device can.
  Losses BothLosses(const Minibatches& minibatches, const StepSettings& settings) const {
    const SideBranch beside(memory_.device());
    Losses losses;
    {
      const auto on_it = beside.Enter();
      losses.critic = CriticLoss(minibatches.critic, settings);
    }
    losses.actor = ActorLoss(minibatches.actor, settings);
    beside.End();
    return losses;
  }

  /// The actor's outputs and the critic's values where they share an encoder, which is run once for both.
  std::pair<Tensor, Tensor> SharedOutputs(const Modules& modules, const Minibatches& minibatches) const {
    const Tensor inputs = loaded_.actor.Take(minibatches.actor.run);
    const Tensor shared = spec_.actor.core.remembers()
                              ? EncodeSequences(spec_.actor, modules.actor, inputs, minibatches.actor.batch_sizes,
                                                loaded_.actor_memory.index_select(0, minibatches.actor.sequences))
                                    .first
                              : InPrecision([&] { return Encode(spec_.actor.activation, modules.actor, inputs); });
    const auto head = [&](const policy::NetworkSpec& network, const Module& module, const Tensor& kept) {
      const Tensor rows = kept.defined() ? shared.index_select(0, kept) : shared;
      if (spec_.actor.core.remembers()) return Decode(network.activation, module, rows);
      return InPrecision([&] { return Decode(network.activation, module, rows); });
    };
    return {head(spec_.actor, modules.actor, minibatches.actor.kept),
            head(spec_.critic(), modules.critic, minibatches.critic.kept).squeeze(1)};
  }

  Losses SharedLosses(const Modules& modules, const Minibatches& minibatches, const StepSettings& settings) const {
    const auto [output, values] = SharedOutputs(modules, minibatches);
    return {ActorLossOf(modules, output, minibatches.actor.rows, settings),
            CriticLossOf(values, minibatches.critic.rows, settings)};
  }

  /// A step whose loss is a user's module: of all rows that count for a network, with weights that say for which.
  absl::Status StepModule(int64_t first, int64_t count, const StepSettings& settings) {
    if (settings.loss.module != loss_module_) {
      TROUPE_ASSIGN_OR_RETURN(loss_script_, LossScript::Find(settings.loss.module, memory_.device()));
      loss_module_ = settings.loss.module;
    }
    loaded_.LoadWeights(*batch_, memory_);
    if (!memory_.borrows()) modules_.gradients.zero_();
    const Minibatches each = minibatches_.Take(first, count);
    const Minibatch& all = each.critic.rows.size(0) > each.actor.rows.size(0) ? each.critic : each.actor;
    const auto [output, values] =
        spec_.shares_encoder() ? SharedOutputs(modules_, {all, all}) : std::pair(ActorOutput(all), ValuesOf(all));
    const ActionTerms terms = Distribution(modules_, output, all.rows);
    const ModuleLoss made = loss_script_->Run(LossOutputs(output, modules_.log_std, values.unsqueeze(1), terms),
                                              LossColumns(loss_script_->columns(), head_, loaded_, all.rows));
    torch::autograd::backward({made.loss}, {});
    const torch::NoGradGuard no_grad;
    const Tensor entropy = (terms.entropy * loaded_.policy_weights.index_select(0, all.rows)).sum();
    const Losses totals = OfBoth(made.loss.detach(), entropy, each.actor.rows.size(0), each.critic.rows.size(0));
    const Tensor ok = memory_.borrows() ? torch::tensor(StepOnHost(totals.actor, totals.critic, settings))
                                        : StepParametersOnDevice(totals.actor, totals.critic, settings);
    module_metrics_.Add(made.metrics, ok);
    return absl::OkStatus();
  }

  /// A step of networks that share an encoder. Where it has convolutions, and there are threads for it, two take half
  /// of the minibatch each, the second one's gradient into memory of its own.
  absl::Status StepShared(int64_t first, int64_t count, const StepSettings& settings) {
    if (!Halves() || count < 2) {
      const Losses losses = SharedLosses(modules_, minibatches_.Take(first, count), settings);
      torch::autograd::backward({losses.actor.mean, losses.critic.mean}, {});
      StepOnHost(losses.actor, losses.critic, settings);
      return absl::OkStatus();
    }
    const int64_t half = count / 2;
    const Minibatches parts[] = {minibatches_.Take(first, half), minibatches_.Take(first + half, count - half)};
    Losses losses[2];
    second_half_.gradients.zero_();
    const auto differentiate = [&](const Modules& modules, int part) {
      Losses& own = losses[part];
      own = SharedLosses(modules, parts[part], settings);
      // Means of this part's rows as its share of the means of all.
      own.actor.mean = own.actor.mean * ShareOf(parts[part].actor, parts[1 - part].actor);
      own.critic.mean = own.critic.mean * ShareOf(parts[part].critic, parts[1 - part].critic);
      torch::autograd::backward({own.actor.mean, own.critic.mean}, {});
    };
    TROUPE_RETURN_IF_ERROR(BothAtOnce([&] { differentiate(modules_, 0); }, [&] { differentiate(second_half_, 1); }));
    modules_.gradients.add_(second_half_.gradients);
    StepOnHost(Together(losses[0].actor, losses[1].actor), Together(losses[0].critic, losses[1].critic), settings);
    return absl::OkStatus();
  }

  /// False: not finite, and skipped.
  bool StepOnHost(const NetworkLoss& actor, const NetworkLoss& critic, const StepSettings& settings) {
    ZeroFrozen(settings.frozen, parameters_->gradients());
    const std::vector<ParameterBlock> blocks = parameters_->blocks();
    const NetworkNorms norms = {GradientNorm(blocks.front()), GradientNorm(blocks.back())};
    if (!std::isfinite(actor.mean.item<float>()) || !std::isfinite(critic.mean.item<float>()) ||
        !std::isfinite(norms.actor) || !std::isfinite(norms.critic)) {
      ++totals_.skipped_steps;
      return false;
    }
    StepNetworks(settings, norms, parameters_);
    ++totals_.steps;
    totals_.rows += actor.rows;
    totals_.value_rows += critic.rows;
    const float* sums = actor.sums.data_ptr<float>();
    totals_.policy_loss += sums[0];
    totals_.entropy += sums[1];
    for (int64_t i = 2; i < actor.sums.numel(); ++i) totals_.statistics[static_cast<size_t>(i - 2)] += sums[i];
    totals_.value_loss += critic.sums.item<float>();
    totals_.actor_grad_norm += norms.actor;
    totals_.critic_grad_norm += norms.critic;
    return true;
  }

  /// Whether a step is the same work whatever it reads: a user's module may ask the device for numbers.
  bool CanBeCaptured() const { return scripts_.actor == nullptr && scripts_.critic == nullptr; }

  /// A step without ever asking the device for a number. Both networks are differentiated together: autograd is handed
  /// over to the device's thread once.
  void StepOnDevice(const Minibatches& minibatches, const StepSettings& settings) {
    modules_.gradients.zero_();
    const Losses losses =
        spec_.shares_encoder() ? SharedLosses(modules_, minibatches, settings) : BothLosses(minibatches, settings);
    torch::autograd::backward({losses.actor.mean, losses.critic.mean}, {});
    StepParametersOnDevice(losses.actor, losses.critic, settings);
  }

  /// A bool, as StepOnHost.
  Tensor StepParametersOnDevice(const NetworkLoss& actor, const NetworkLoss& critic, const StepSettings& settings) {
    const torch::NoGradGuard no_grad;
    const int64_t split = parameters_->acting_size();
    const int64_t rest = parameters_->size() - split;
    ZeroFrozenOnDevice(settings, modules_.gradients);
    const Tensor actor_norm = modules_.gradients.narrow(0, 0, split).norm();
    const Tensor critic_norm = modules_.gradients.narrow(0, split, rest).norm();
    const Tensor ok = torch::isfinite(torch::stack({actor.mean, critic.mean, actor_norm, critic_norm})).all();
    training::StepOnDevice(
        settings, actor_norm, critic_norm, ok,
        {modules_.values, modules_.gradients, moments_.exp_avg, moments_.exp_avg_sq, device_steps_, split});
    device_totals_.Add(actor, critic, actor_norm, critic_norm, ok);
    return ok;
  }

  const policy::PolicySpec spec_;
  const Scripts scripts_;
  const ActionHead head_;
  const DeviceMemory memory_;
  const bool bfloat16_;
  const std::shared_ptr<ThreadTeam> team_;
  const std::string name_;

  // From Begin to End.
  const PreparedBatch* batch_ = nullptr;
  FlatParameters* parameters_ = nullptr;
  bool alone_ = false;
  Modules modules_;
  Modules second_half_;  // of networks that share an encoder: the same values, a gradient of its own
  struct {
    Tensor exp_avg, exp_avg_sq;
  } moments_;  // on the device's path
  TorchBatch loaded_;
  EpochMinibatches minibatches_;
  CapturedSteps<MinibatchKey> steps_;

  const RowLoss* row_loss_ = nullptr;  // of the last step
  const TorchLoss* loss_ = nullptr;    // its code
  std::string loss_module_;            // of the last step that a user's module gave the loss of
  std::unique_ptr<LossScript> loss_script_;

  StepTotals totals_;
  Tensor device_steps_;  // scalar float64
  DeviceTotals device_totals_;
  MetricSums module_metrics_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NetworkBackend>> MakeTorchBackend(const policy::PolicySpec& spec, const Device& device,
                                                                 TorchPath path, std::shared_ptr<ThreadTeam> team,
                                                                 Precision precision) {
  if (device.is_cuda() && path == TorchPath::kHost) {
    return absl::InvalidArgumentError(absl::StrCat(device.ToString(), " cannot compute on the host's memory"));
  }
  TROUPE_ASSIGN_OR_RETURN(Scripts scripts, LoadScripts(spec, device));
  return std::unique_ptr<NetworkBackend>(
      std::make_unique<TorchBackend>(spec, std::move(scripts), device, path, std::move(team), precision));
}

}  // namespace troupe::training
