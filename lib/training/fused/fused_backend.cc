#include "lib/training/fused/fused_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/training/core/fused_kernels.h"
#include "lib/training/core/optimizer.h"
#include "lib/training/fused/fused_calls.h"
#include "lib/training/fused/fused_crew.h"
#include "lib/training/fused/fused_critic_runs.h"
#include "lib/training/fused/fused_layers.h"
#include "lib/training/fused/fused_loss_numbers.h"
#include "lib/training/fused/fused_optimizer.h"
#include "lib/training/fused/fused_support.h"
#include "lib/training/fused/fused_workspace.h"

namespace troupe::training {
namespace {

using fused::Kernels;
using fused::kPanelVectors;

/// Finds a row of a matrix.
struct RowIn {
  const MatrixView& matrix;
  const float* operator()(int64_t row) const { return matrix.data + row * matrix.stride; }
};

class FusedBackend final : public NetworkBackend, private fused::Crew {
 public:
  FusedBackend(std::shared_ptr<fused::Workspace> space, const Kernels& kernels, std::shared_ptr<ThreadTeam> team)
      : Crew(std::move(space), kernels, std::move(team)), name_(absl::StrCat("fused/", kernels.name)) {}

  bool can_run_alone() const override { return true; }

  absl::Status Begin(const PreparedBatch& batch, FlatParameters* parameters, int thread) override {
    batch_ = &batch;
    parameters_ = parameters;
    SetThread(thread);
    totals_ = {};
    for (fused::Worker* worker : AtWork()) {
      worker->gradient = is_alone() ? parameters->gradients().data()  // which spares adding up
                                    : reinterpret_cast<float*>(worker->gradients.data());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<float>> Values() override {
    const MatrixView& input = batch_->critic_input();
    const fused::Network& critic = space_->critic;
    std::vector<float> values(static_cast<size_t>(input.rows));
    RunCrew([&](int thread) {
      fused::Worker& worker = WorkerOf(thread);
      const auto [first, end] = Share(input.rows, thread);
      for (int64_t row = first; row < end; row += panel_rows_) {
        const int rows = static_cast<int>(std::min<int64_t>(panel_rows_, end - row));
        const int vectors = Vectors(rows);
        for (int r = 0; r < rows; ++r) worker.pointers[r] = input.data + (row + r) * input.stride;
        Pad(rows, vectors, &worker);
        kernels_.gather(worker.pointers.data(), critic.inputs(), vectors, worker.critic.at(0));
        ForwardPanel(parameters_->values().data(), critic, &worker.critic, 0, vectors);
        std::copy_n(worker.critic.at(critic.layers.size()), rows, values.data() + row);
      }
    });
    return values;
  }

  absl::StatusOr<SequenceOutputs> SequenceValues(const SequenceCall& call) override {
    const MatrixView& input = batch_->critic_input();
    const auto state_size = static_cast<size_t>(space_->critic.state_size());
    SequenceOutputs outputs;
    outputs.values.resize(call.rows.size());
    outputs.states.resize(call.states.size());
    std::vector<fused::Piece> pieces;
    int64_t row = 0;
    for (const int32_t length : call.lengths) {
      pieces.push_back(
          {row, length, call.states.data() + pieces.size() * state_size, static_cast<int32_t>(pieces.size())});
      row += length;
    }
    fused::LongestFirst(&pieces);
    RunCrew([&](int thread) {
      fused::Worker& worker = WorkerOf(thread);
      fused::SequencePanel& panel = *worker.critic_sequences;
      ForSequencePanels(pieces, thread, &panel, [&](absl::Span<const fused::Piece> here) {
        for (int step = 0; step < panel.steps(); ++step) {
          for (int r = 0; r < panel.Alive(step); ++r) {
            worker.pointers[r] = input.data + int64_t{call.rows[here[r].first + step]} * input.stride;
          }
          panel.Forward(parameters_->values().data(), step, &worker.pointers);
          for (int r = 0; r < panel.Alive(step); ++r) outputs.values[here[r].first + step] = panel.output(step)[r];
        }
        for (size_t r = 0; r < here.size(); ++r) {
          panel.StateAfter(static_cast<int>(r),
                           outputs.states.data() + static_cast<size_t>(here[r].number) * state_size);
        }
      });
    });
    return outputs;
  }

  absl::StatusOr<std::vector<float>> LogProbabilities(Net net) override {
    const float* const values = parameters_->values().data() + (net == Net::kTarget ? space_->target : 0);
    log_std_.Take(*space_, values + space_->log_std);
    const fused::ActorLoss loss = fused::ActorLossFor(*space_, log_std_, /*count=*/1, StepSettings());
    const MatrixView& input = batch_->actor_input();
    std::vector<float> logp(static_cast<size_t>(input.rows));
    actor_columns_.clear();
    // These are the outputs of the rows in `worker.rows`.
    const auto compute = [&](int count, int vectors, const float* outputs, fused::Worker* worker) {
      GatherActorColumns(worker->rows.data(), count, vectors, worker);
      kernels_.log_probabilities(loss, PanelOf(worker), space_->plain_parts, vectors, outputs, worker->scratch.data(),
                                 worker->spoken.data());
      for (int r = 0; r < count; ++r) logp[static_cast<size_t>(worker->rows[r])] = worker->spoken[r];
    };
    if (space_->actor.remembers()) {
      TakeAllSequences();
      RunCrew([&](int thread) {
        fused::Worker& worker = WorkerOf(thread);
        RunSequences(
            thread, values, worker.actor_sequences.get(), &worker, RowIn{batch_->actor_input()},
            RowIn{batch_->actor_memory()},
            [&](int count, int vectors, const float* outputs) { compute(count, vectors, outputs, &worker); }, [] {});
      });
      return logp;
    }
    RunCrew([&](int thread) {
      fused::Worker& worker = WorkerOf(thread);
      const auto [first, end] = Share(input.rows, thread);
      for (int64_t row = first; row < end; row += panel_rows_) {
        const int rows = static_cast<int>(std::min<int64_t>(panel_rows_, end - row));
        const int vectors = Vectors(rows);
        for (int r = 0; r < rows; ++r) {
          worker.rows[r] = static_cast<int32_t>(row + r);
          worker.pointers[r] = input.data + (row + r) * input.stride;
        }
        Pad(rows, vectors, &worker);
        kernels_.gather(worker.pointers.data(), space_->actor.inputs(), vectors, worker.actor.at(0));
        ForwardPanel(values, space_->actor, &worker.actor, 0, vectors);
        compute(rows, vectors, worker.actor.at(space_->actor.layers.size()), &worker);
      }
    });
    return logp;
  }

  absl::Status BeginEpoch(absl::Span<const int32_t> order) override {
    order_ = order;
    return absl::OkStatus();
  }

  absl::Status Step(int64_t first, int64_t count, const StepSettings& settings) override {
    TROUPE_RETURN_IF_ERROR(FindLoss(settings.loss));
    absl::Span<const int32_t> rows = order_.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    if (!batch_->sequences().empty()) rows = TakeSequences(rows);
    if (!batch_->units().empty()) rows = TakeUnits(rows);
    const StepPlan plan = PlanOf(rows, settings);
    RunCrew([&](int thread) {
      fused::Worker& worker = WorkerOf(thread);
      std::memset(worker.gradient, 0, static_cast<size_t>(parameters_->size()) * sizeof(float));
      worker.sums = {};
      if (space_->actor.remembers()) {
        DifferentiateActorSequences(plan.actor, thread, &worker);
      } else {
        DifferentiateActor(ShareOf(plan.actor_rows, thread), plan.actor, &worker);
      }
      log_std_.ZeroBeyond(worker.gradient + space_->log_std);
      if (space_->critic.remembers()) {
        DifferentiateCriticSequences(plan.critic, thread, &worker);
      } else {
        DifferentiateCritic(plan.critic_rows, plan.critic, thread, &worker);
      }
    });
    RunCrew([&](int thread) { ReduceGradients(thread, settings.frozen); });
    ZeroFrozen(settings.frozen, parameters_->gradients());
    const StepOutcome outcome = Outcome();
    if (!outcome.finite) {
      ++totals_.skipped_steps;
      return absl::OkStatus();
    }
    RunCrew([&](int thread) { ApplyStep(thread, outcome, settings); });
    ++parameters_->adam_steps;
    ++totals_.steps;
    totals_.rows += static_cast<int64_t>(plan.actor_rows.size());
    totals_.value_rows += static_cast<int64_t>(plan.critic_rows.size());
    totals_.policy_loss += outcome.sums.policy_loss;
    totals_.value_loss += outcome.sums.value_loss;
    totals_.entropy += outcome.sums.entropy;
    for (int i = 0; i < fused::kLossStatistics; ++i) totals_.statistics[i] += outcome.sums.statistics[i];
    totals_.actor_grad_norm += outcome.actor_norm;
    totals_.critic_grad_norm += outcome.critic_norm;
    return absl::OkStatus();
  }

  absl::StatusOr<StepTotals> TakeTotals() override { return std::exchange(totals_, StepTotals{}); }
  absl::Status End() override { return absl::OkStatus(); }
  std::string_view name() const override { return name_; }

  absl::Status Serves(BackendLevel /*level*/) const override { return absl::OkStatus(); }

  absl::StatusOr<std::vector<float>> Forward(const NetworkCall& call) override {
    TROUPE_ASSIGN_OR_RETURN(const fused::NetworkInUse used, Use(call));
    const auto rows = static_cast<int64_t>(call.rows.size());
    const int outputs = used.network->outputs();
    std::vector<float> result(call.rows.size() * static_cast<size_t>(outputs));
    RunCrew([&](int thread) {
      fused::Worker& worker = WorkerOf(thread);
      fused::Activations& activations = worker.*used.activations;
      const auto [first, end] = Share(rows, thread);
      for (int64_t row = first; row < end; row += panel_rows_) {
        const int count = static_cast<int>(std::min<int64_t>(panel_rows_, end - row));
        ForwardRows(call, used, row, count, 0, &worker);
        const float* const from = activations.at(used.network->layers.size());
        for (int r = 0; r < count; ++r) {
          for (int o = 0; o < outputs; ++o) result[(row + r) * outputs + o] = from[o * panel_rows_ + r];
        }
      }
    });
    return result;
  }

  absl::Status Backward(const NetworkCall& call, absl::Span<const float> output_gradients, absl::Span<float> gradients,
                        absl::Span<float> input_gradients) override {
    TROUPE_ASSIGN_OR_RETURN(const fused::NetworkInUse used, Use(call));
    TROUPE_RETURN_IF_ERROR(
        fused::CheckGradients(call, *used.network, output_gradients.size(), gradients.size(), input_gradients.size()));
    RunCrew([&](int thread) {
      fused::Worker& worker = WorkerOf(thread);
      std::memset(reinterpret_cast<float*>(worker.gradients.data()) + used.first, 0,
                  static_cast<size_t>(used.end - used.first) * sizeof(float));
      const auto [first, end] = Share(static_cast<int64_t>(call.rows.size()), thread);
      BackwardRows(call, used, first, end, output_gradients, input_gradients, &worker);
    });
    RunCrew([&](int thread) {
      const auto [place, threads] = PlaceOf(thread);
      const int64_t size = used.end - used.first;
      for (int64_t i = used.first + size * place / threads; i < used.first + size * (place + 1) / threads; ++i) {
        for (const fused::Worker* worker : AtWork()) {
          gradients[i] += reinterpret_cast<const float*>(worker->gradients.data())[i];
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  struct StepPlan {
    absl::Span<const int32_t> actor_rows;  ///< those that count in its loss
    absl::Span<const int32_t> critic_rows;
    fused::ActorLoss actor;
    fused::CriticLoss critic;
  };
  struct StepOutcome {
    fused::LossSums sums{};
    double actor_norm = 0;
    double critic_norm = 0;
    bool finite = false;
  };

  /// The loss's code for this vector unit and its columns of the batch, where they are not those of the last step.
  absl::Status FindLoss(const RowLossCall& call) {
    const RowLoss& loss = *call.loss;
    loss_kernels_ = loss.kernels == nullptr ? nullptr : loss.kernels(kernels_.unit);
    if (loss_kernels_ == nullptr) {
      return absl::UnimplementedError(
          absl::StrCat("the loss of ", std::string(loss.name), " has no kernels for ", kernels_.name));
    }
    actor_columns_.clear();
    critic_columns_.clear();
    for (const RowColumn column : loss.actor_columns) actor_columns_.push_back(ColumnOf(*batch_, column).data());
    for (const RowColumn column : loss.critic_columns) critic_columns_.push_back(ColumnOf(*batch_, column).data());
    return absl::OkStatus();
  }

  /// What a step computes of the minibatch's rows.
  StepPlan PlanOf(absl::Span<const int32_t> rows, const StepSettings& settings) {
    StepPlan plan{rows, rows, {}, {}};
    if (const RowUses& uses = batch_->uses(); uses.differ()) {
      const auto keep = [rows](std::vector<int32_t>* kept, auto&& counts) {
        kept->clear();
        std::copy_if(rows.begin(), rows.end(), std::back_inserter(*kept), counts);
        return absl::MakeConstSpan(*kept);
      };
      plan.actor_rows = keep(&actor_rows_, [&uses](int32_t row) { return uses.IsInPolicy(row); });
      plan.critic_rows = keep(&critic_rows_, [&uses](int32_t row) { return uses.IsInValue(row); });
    }
    log_std_.Take(*space_, parameters_->values().data() + space_->log_std);
    plan.actor = fused::ActorLossFor(*space_, log_std_, static_cast<int64_t>(plan.actor_rows.size()), settings);
    plan.critic = fused::CriticLossFor(static_cast<int64_t>(plan.critic_rows.size()), settings);
    runs_.Clear();
    if (!batch_->units().empty()) runs_.Take(plan.critic_rows, batch_->critic_index());
    return plan;
  }

  /// The loss's code for what the policy's actions are drawn from.
  auto ActorKernel() const { return space_->plain_parts ? loss_kernels_->actor : loss_kernels_->actor_of_any_part; }

  /// The network that a call names, and the crew that is to compute.
  absl::StatusOr<fused::NetworkInUse> Use(const NetworkCall& call) {
    TROUPE_ASSIGN_OR_RETURN(const fused::NetworkInUse used, fused::FindNetworkInUse(*space_, call));
    SetThread(call.thread);
    return used;
  }

  /// Rows [first, first + count) of the call through its network, into a panel of the worker's.
  void ForwardRows(const NetworkCall& call, const fused::NetworkInUse& used, int64_t first, int count, int panel,
                   fused::Worker* worker) const {
    fused::Activations& activations = worker->*used.activations;
    const int vectors = Vectors(count);
    for (int r = 0; r < count; ++r) {
      worker->pointers[r] = call.inputs.data + int64_t{call.rows[first + r]} * call.inputs.stride;
    }
    Pad(count, vectors, worker);
    kernels_.gather(worker->pointers.data(), used.network->inputs(), vectors, activations.at(0, panel));
    ForwardPanel(call.parameters.data(), *used.network, &activations, panel, vectors);
  }

  void BackwardRows(const NetworkCall& call, const fused::NetworkInUse& used, int64_t begin, int64_t end,
                    absl::Span<const float> output_gradients, absl::Span<float> input_gradients,
                    fused::Worker* worker) const {
    fused::Activations& activations = worker->*used.activations;
    const fused::Network& network = *used.network;
    const int outputs = network.outputs();
    const int inputs = network.inputs();
    int64_t block_first = begin;
    ForBlocks(
        end - begin, activations.panels(),
        [&](int64_t first, int count, int vectors, int panel) {
          ForwardRows(call, used, begin + first, count, panel, worker);
          float* const dy = activations.at(network.layers.size(), panel);
          for (int o = 0; o < outputs; ++o) {
            for (int r = 0; r < vectors * kernels_.lanes; ++r) {
              dy[o * panel_rows_ + r] = r < count ? output_gradients[(begin + first + r) * outputs + o] : 0.0f;
            }
          }
        },
        [&](int vectors) {
          BackwardBlock(call.parameters.data(), network, &activations, vectors,
                        reinterpret_cast<float*>(worker->gradients.data()), !input_gradients.empty());
          const int64_t rows = std::min<int64_t>(end - block_first, int64_t{activations.panels()} * panel_rows_);
          for (int64_t r = 0; r < rows && !input_gradients.empty(); ++r) {
            const float* const dx = activations.at(0, r / panel_rows_) + r % panel_rows_;
            for (int i = 0; i < inputs; ++i) input_gradients[(block_first + r) * inputs + i] = dx[i * panel_rows_];
          }
          block_first += rows;
        });
  }

  void DifferentiateActor(absl::Span<const int32_t> rows, const fused::ActorLoss& loss, fused::Worker* worker) const {
    const MatrixView& input = batch_->actor_input();
    const fused::Network& actor = space_->actor;
    const fused::ActorPanel columns = PanelOf(worker);
    ForBlocks(
        static_cast<int64_t>(rows.size()), worker->actor.panels(),
        [&](int64_t first, int count, int vectors, int panel) {
          const int32_t* index = rows.data() + first;
          for (const int32_t row : NextPanel(rows, first + count)) {
            PrefetchRow(input, row);
            for (const float* const column : actor_columns_) Prefetch(column + row);
            Prefetch(&batch_->actions[row * space_->words]);
          }
          for (int r = 0; r < count; ++r) worker->pointers[r] = input.data + index[r] * input.stride;
          Pad(count, vectors, worker);
          kernels_.gather(worker->pointers.data(), actor.inputs(), vectors, worker->actor.at(0, panel));
          ForwardPanel(parameters_->values().data(), actor, &worker->actor, panel, vectors);
          GatherActorColumns(index, count, vectors, worker);
          worker->SetWeights(count, vectors * kernels_.lanes);
          ActorKernel()(loss, columns, vectors, worker->actor.at(actor.layers.size(), panel),
                        worker->gradient + space_->log_std, worker->scratch.data(), &worker->sums);
        },
        [&](int vectors) {
          BackwardBlock(parameters_->values().data(), actor, &worker->actor, vectors, worker->gradient);
        });
  }

  void AddSequence(int32_t unit) {
    const learner::TrainSequence& sequence = batch_->sequences()[static_cast<size_t>(unit)];
    sequences_.push_back({sequence.first_row, static_cast<int32_t>(sequence.rows), nullptr, unit});
  }
  void TakeAllSequences() {
    sequences_.clear();
    for (size_t unit = 0; unit < batch_->sequences().size(); ++unit) AddSequence(static_cast<int32_t>(unit));
    fused::LongestFirst(&sequences_);
  }
  /// The sequences of a minibatch become sequences_; returns their rows that count in a loss.
  absl::Span<const int32_t> TakeSequences(absl::Span<const int32_t> units) {
    sequences_.clear();
    counted_rows_.clear();
    for (const int32_t unit : units) {
      const learner::TrainSequence& sequence = batch_->sequences()[static_cast<size_t>(unit)];
      AddSequence(unit);
      for (int64_t row = sequence.first_row; row < sequence.first_row + sequence.rows; ++row) {
        if (batch_->uses().IsCounted(row)) counted_rows_.push_back(static_cast<int32_t>(row));
      }
    }
    fused::LongestFirst(&sequences_);
    return counted_rows_;
  }

  /// The rows of a minibatch's units, which become counted_rows_.
  absl::Span<const int32_t> TakeUnits(absl::Span<const int32_t> units) {
    counted_rows_.clear();
    for (const int32_t unit : units) {
      const absl::Span<const int32_t> rows = batch_->units().RowsOf(unit);
      counted_rows_.insert(counted_rows_.end(), rows.begin(), rows.end());
    }
    return counted_rows_;
  }

  /// The thread's part of sequences_ through one of the networks. `input_of` a row, `state_of` before a sequence;
  /// `step(rows, vectors, outputs)` of worker->rows after each step, `panel_done()` after each panel.
  template <typename InputOf, typename StateOf, typename Step, typename PanelDone>
  void RunSequences(int thread, const float* values, fused::SequencePanel* panel, fused::Worker* worker,
                    InputOf&& input_of, StateOf&& state_of, Step&& step_done, PanelDone&& panel_done) const {
    worker->pieces = sequences_;
    for (fused::Piece& piece : worker->pieces) piece.state = state_of(int64_t{piece.number});
    ForSequencePanels(worker->pieces, thread, panel, [&](absl::Span<const fused::Piece> pieces) {
      for (int step = 0; step < panel->steps(); ++step) {
        const int alive = panel->Alive(step);
        const int vectors = panel->Vectors(step);
        for (int r = 0; r < alive; ++r) {
          worker->rows[r] = static_cast<int32_t>(pieces[r].first + step);
          worker->pointers[r] = input_of(worker->rows[r]);
        }
        panel->Forward(values, step, &worker->pointers);
        step_done(alive, vectors, panel->output(step));
      }
      panel_done();
    });
  }

  /// Forward, loss and backward of the same. Whether a row `counts`; `loss` as `step`.
  template <typename InputOf, typename StateOf, typename Counts, typename Loss>
  void DifferentiateSequences(int thread, fused::SequencePanel* panel, fused::Worker* worker, InputOf&& input_of,
                              StateOf&& state_of, Counts&& counts, Loss&& loss) const {
    const float* const values = parameters_->values().data();
    RunSequences(
        thread, values, panel, worker, input_of, state_of,
        [&](int alive, int vectors, float* outputs) {
          for (int r = 0; r < vectors * kernels_.lanes; ++r) {
            worker->weight[r] = r < alive && counts(worker->rows[r]) ? 1.0f : 0.0f;
          }
          loss(alive, vectors, outputs);
        },
        [&] { panel->Backward(values, worker->gradient); });
  }

  /// The rows of one panel, which lie in the worker.
  fused::ActorPanel PanelOf(fused::Worker* worker) const {
    fused::ActorPanel panel = {
        worker->actions.data(), space_->mask_size > 0 ? worker->allowed.data() : nullptr, {}, worker->weight.data()};
    worker->PointAtColumns(panel.columns);
    return panel;
  }

  void DifferentiateActorSequences(const fused::ActorLoss& loss, int thread, fused::Worker* worker) const {
    const fused::ActorPanel columns = PanelOf(worker);
    DifferentiateSequences(
        thread, worker->actor_sequences.get(), worker, RowIn{batch_->actor_input()}, RowIn{batch_->actor_memory()},
        [&](int32_t row) { return batch_->uses().IsInPolicy(row); },
        [&](int rows, int vectors, float* output) {
          GatherActorColumns(worker->rows.data(), rows, vectors, worker);
          ActorKernel()(loss, columns, vectors, output, worker->gradient + space_->log_std, worker->scratch.data(),
                        &worker->sums);
        });
  }

  void DifferentiateCriticSequences(const fused::CriticLoss& loss, int thread, fused::Worker* worker) const {
    const MatrixView& input = batch_->critic_input();
    const absl::Span<const int32_t> table = batch_->critic_index();
    fused::CriticPanel columns = {{}, worker->weight.data()};
    worker->PointAtColumns(columns.columns);
    DifferentiateSequences(
        thread, worker->critic_sequences.get(), worker,
        [&](int32_t row) { return input.data + table[row] * input.stride; },
        [&](int64_t sequence) { return batch_->targets.critic_memory.data() + sequence * space_->critic.state_size(); },
        [&](int32_t row) { return batch_->uses().IsInValue(row); },
        [&](int rows, int vectors, float* output) {
          worker->GatherColumns(critic_columns_, worker->rows.data(), rows);
          loss_kernels_->critic(loss, columns, vectors, output, &worker->sums);
        });
  }

  void GatherActorColumns(const int32_t* index, int count, int vectors, fused::Worker* worker) const {
    const int64_t words = space_->words;
    const int64_t mask_size = space_->mask_size;
    const int padded = vectors * kernels_.lanes;
    worker->GatherColumns(actor_columns_, index, count);
    for (int64_t w = 0; w < words; ++w) {
      int32_t* to = worker->actions.data() + w * panel_rows_;
      for (int r = 0; r < count; ++r) to[r] = batch_->actions[index[r] * words + w].i32;
      // Padding rows have no weight, but nothing times NaN is NaN: another batch's actions must not stay there.
      for (int r = count; r < padded; ++r) to[r] = 0;
    }
    for (int64_t m = 0; m < mask_size; ++m) {
      float* to = worker->allowed.data() + m * panel_rows_;
      for (int r = 0; r < count; ++r) to[r] = batch_->action_mask[index[r] * mask_size + m] != 0 ? 1.0f : 0.0f;
    }
  }

  /// Of thread `thread`'s part of `rows`, or of the runs that they form.
  void DifferentiateCritic(absl::Span<const int32_t> rows, const fused::CriticLoss& loss, int thread,
                           fused::Worker* worker) const {
    const MatrixView& input = batch_->critic_input();
    const fused::Network& critic = space_->critic;
    const absl::Span<const int32_t> table = batch_->critic_index();
    const absl::Span<const int32_t> heads = runs_.empty() ? rows : runs_.heads();
    const int64_t begin = Share(static_cast<int64_t>(heads.size()), thread).first;
    const absl::Span<const int32_t> mine = ShareOf(heads, thread);
    const fused::CriticRuns::LossOfRows of_rows = {*loss_kernels_, loss, critic_columns_, kernels_.lanes};
    fused::CriticPanel columns = {{}, worker->weight.data()};
    worker->PointAtColumns(columns.columns);
    ForBlocks(
        static_cast<int64_t>(mine.size()), worker->critic.panels(),
        [&](int64_t first, int count, int vectors, int panel) {
          const int32_t* index = mine.data() + first;
          for (const int32_t row : NextPanel(mine, first + count)) {
            PrefetchRow(input, table[row]);
            for (const float* const column : critic_columns_) Prefetch(column + row);
          }
          for (int r = 0; r < count; ++r) worker->pointers[r] = input.data + table[index[r]] * input.stride;
          if (runs_.empty()) worker->GatherColumns(critic_columns_, index, count);
          Pad(count, vectors, worker);
          kernels_.gather(worker->pointers.data(), critic.inputs(), vectors, worker->critic.at(0, panel));
          ForwardPanel(parameters_->values().data(), critic, &worker->critic, panel, vectors);
          float* const values = worker->critic.at(critic.layers.size(), panel);
          if (!runs_.empty()) return runs_.Differentiate(of_rows, begin + first, count, values, worker);
          worker->SetWeights(count, vectors * kernels_.lanes);
          loss_kernels_->critic(loss, columns, vectors, values, &worker->sums);
        },
        [&](int vectors) {
          BackwardBlock(parameters_->values().data(), critic, &worker->critic, vectors, worker->gradient);
        });
  }

  /// Calls `part(first, end, is_actor)` for the actor's and the critic's pieces of a thread's share that are trained.
  template <typename Part>
  void ForNetworks(int thread, absl::Span<const ParameterRange> frozen, Part&& part) const {
    const auto [first, end] = ParameterShare(thread);
    const int64_t split = parameters_->acting_size();
    ForTrained(frozen, first, std::min(end, split), [&](int64_t from, int64_t to) { part(from, to, true); });
    ForTrained(frozen, std::max(first, split), end, [&](int64_t from, int64_t to) { part(from, to, false); });
  }

  void ReduceGradients(int thread, absl::Span<const ParameterRange> frozen) {
    fused::Worker& worker = WorkerOf(thread);
    const absl::Span<fused::Worker* const> crew = AtWork();
    worker.actor_squares = 0;
    worker.critic_squares = 0;
    ForNetworks(thread, frozen, [&](int64_t first, int64_t end, bool is_actor) {
      for (size_t i = 0; i < crew.size(); ++i) worker.parts[i] = crew[i]->gradient + first;
      const double squares = kernels_.reduce(worker.parts.data(), static_cast<int>(crew.size()), end - first,
                                             parameters_->gradients().data() + first);
      (is_actor ? worker.actor_squares : worker.critic_squares) += squares;
    });
  }

  StepOutcome Outcome() const {
    StepOutcome outcome;
    double actor_squares = 0;
    double critic_squares = 0;
    for (const fused::Worker* worker : AtWork()) {
      outcome.sums.policy_loss += worker->sums.policy_loss;
      outcome.sums.entropy += worker->sums.entropy;
      for (int i = 0; i < fused::kLossStatistics; ++i) outcome.sums.statistics[i] += worker->sums.statistics[i];
      outcome.sums.value_loss += worker->sums.value_loss;
      actor_squares += worker->actor_squares;
      critic_squares += worker->critic_squares;
    }
    outcome.actor_norm = std::sqrt(actor_squares);
    outcome.critic_norm = std::sqrt(critic_squares);
    // With the loss's own statistics (a KL, say): a ratio that overflowed makes autograd's gradient 0 x infinity, even
    // where the clipped loss is finite.
    double sum = outcome.sums.policy_loss + outcome.sums.entropy + outcome.sums.value_loss + outcome.actor_norm +
                 outcome.critic_norm;
    for (const double statistic : outcome.sums.statistics) sum += statistic;
    outcome.finite = std::isfinite(sum);
    return outcome;
  }

  void ApplyStep(int thread, const StepOutcome& outcome, const StepSettings& settings) {
    const int64_t step = parameters_->adam_steps + 1;
    const NetworkNorms norms = NetworkNorms{outcome.actor_norm, outcome.critic_norm}.ToClip(settings);
    ForNetworks(thread, settings.frozen, [&](int64_t first, int64_t end, bool is_actor) {
      fused::StepPart(kernels_, step, is_actor ? settings.learning_rate : settings.critic_learning_rate, settings,
                      is_actor ? norms.actor : norms.critic, parameters_->Part(first, end));
    });
  }

  const std::string name_;

  // From Begin to End.
  const PreparedBatch* batch_ = nullptr;
  FlatParameters* parameters_ = nullptr;
  absl::Span<const int32_t> order_;
  StepTotals totals_;
  // Of a step.
  const fused::LossKernels* loss_kernels_ = nullptr;
  fused::LogStd log_std_;
  absl::InlinedVector<const float*, fused::kMaxLossColumns> actor_columns_;
  absl::InlinedVector<const float*, fused::kMaxLossColumns> critic_columns_;
  std::vector<fused::Piece> sequences_;  // the longest first; without states
  std::vector<int32_t> counted_rows_, actor_rows_, critic_rows_;
  fused::CriticRuns runs_;  // of a batch with units
};

}  // namespace

absl::StatusOr<std::unique_ptr<NetworkBackend>> FusedBackends::Make(const policy::PolicySpec& spec) {
  const Kernels* kernels = fused::FindKernels(vector_unit_);
  if (kernels == nullptr) {
    return absl::UnimplementedError(vector_unit_ == VectorUnit::kAvx512 ? "the processor has no AVX-512"
                                                                        : "the processor has no AVX2 with FMA");
  }
  TROUPE_RETURN_IF_ERROR(fused::CheckServed(spec, *kernels));
  std::weak_ptr<fused::Workspace>& kept = workspaces_[policy::ShapeOf(spec)];
  std::shared_ptr<fused::Workspace> space = kept.lock();
  if (space == nullptr) {
    space = std::make_shared<fused::Workspace>(spec, *kernels, team_->size());
    kept = space;
  }
  return std::unique_ptr<NetworkBackend>(std::make_unique<FusedBackend>(std::move(space), *kernels, team_));
}

absl::StatusOr<std::unique_ptr<NetworkBackend>> MakeFusedBackend(const policy::PolicySpec& spec,
                                                                 std::shared_ptr<ThreadTeam> team,
                                                                 VectorUnit vector_unit) {
  return FusedBackends(std::move(team), vector_unit).Make(spec);
}

}  // namespace troupe::training
