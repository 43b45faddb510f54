#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "lib/learner/train_batch.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/core/action_head.h"
#include "lib/training/core/net.h"
#include "lib/training/core/prepared_batch.h"
#include "lib/training/torch/device_memory.h"
#include "lib/training/torch/torch_inputs.h"
#include "lib/training/torch/torch_networks.h"
#include "lib/training/torch/torch_parameters.h"
#include <torch/torch.h>

namespace troupe::training {

/// The rows of a member that a minibatch has. Indices are int64 tensors where its networks compute. Plain value.
struct RowSelection {
  torch::Tensor rows;         ///< [n]
  torch::Tensor run;          ///< [at least n], rows that the network reads; of sequences packed, else `rows`
  torch::Tensor kept;         ///< [n], where `rows` stand in `run`; undefined: they are the same
  torch::Tensor sequences;    ///< [sequences], as packed; undefined of a policy that does not remember
  torch::Tensor batch_sizes;  ///< of the packed sequences, on the host
};

/// A member's rows where its networks compute. Its *places* are the rows, [rows], and behind them the final ones, which
/// episodes or their parts end with: a row's next place is the row that follows in its segment, or the segment's final
/// row. Plain value; undefined tensors are not there.
///
/// Those of a minibatch (Take) are some of the rows, without places behind them, and without what leads to these:
/// rewards, waits, next, continues. Nor have they what learner networks read. All of them count in losses.
struct TorchRows {
  int64_t rows = 0;
  int64_t places = 0;
  NetworkInputs actor;          ///< [places]
  NetworkInputs learner;        ///< what learner networks read, without actions: each distinct input once
  torch::Tensor learner_index;  ///< [places] int64, among `learner`; undefined: each place has its own
  torch::Tensor mask;           ///< [places, mask_size] uint8
  torch::Tensor actions;        ///< [rows, action_words] int32
  torch::Tensor rewards;        ///< [rows]
  torch::Tensor waits;          ///< [rows] env steps to the next place; of a policy whose rewards are discounted so
  torch::Tensor next;           ///< [rows] int64, place; of a row that ends its episode its own
  torch::Tensor continues;      ///< [rows] 0 where a row ends its episode, else 1
  torch::Tensor counts;         ///< [rows] 1 where a row counts in losses, else 0
  torch::Tensor targets;        ///< [rows, any], TorchGroup::RowTargets; of a minibatch
  torch::Tensor memory;         ///< [sequences, actor_state_size], what the actor remembered before each
  torch::Tensor packed;         ///< [places] int64, place of each packed row; undefined: inputs are packed
  torch::Tensor unpacked;       ///< [places] int64, the packed row of each place; of a minibatch of each row
  torch::Tensor sequences;      ///< [sequences] int64, as packed; undefined: memory is packed
  torch::Tensor batch_sizes;    ///< of the packed sequences, on the host: no input of a captured step but its key

  /// `prepared` is of `batch`, with final_observations.
  static TorchRows Load(const policy::PolicySpec& spec, const learner::PolicyTrainBatch& batch,
                        const PreparedBatch& prepared, const DeviceMemory& memory);
  /// The rows of a minibatch.
  TorchRows Take(const RowSelection& selection) const;
  /// Calls `use` with each tensor that a step reads and that is there.
  template <typename Use>
  void ForEach(Use&& use) {
    for (torch::Tensor* tensor : {&actor.floats, &actor.images, &actor.mask, &learner.floats, &learner.images,
                                  &learner.image_rows, &learner_index, &mask, &actions, &rewards, &waits, &next,
                                  &continues, &counts, &targets, &memory, &packed, &unpacked, &sequences}) {
      if (tensor->defined()) use(*tensor);
    }
  }
};

/// Where a network is run.
enum class At : uint8_t {
  kRows = 1,    ///< [rows]
  kPlaces = 2,  ///< [places]
};

/// A policy of a learn group in a step of a TorchGroup: its rows, and its networks. Its functions raise what LibTorch
/// raises.
class TorchMember {
 public:
  TorchMember(const policy::PolicySpec& spec, const DeviceMemory& memory, bool bfloat16);

  /// Reads the files of users' modules. Errors are LoadScript's.
  absl::Status LoadScripts(const Device& device);
  /// True if a network is a user's module: a step then may ask the device for numbers.
  bool has_scripts() const { return !scripts_.empty(); }
  /// Makes the networks of parameters that were loaded.
  void Bind(const TorchParameters& parameters);
  void SetRows(TorchRows rows) { rows_ = std::move(rows); }
  TorchRows& mutable_rows() { return rows_; }

  const policy::PolicySpec& spec() const { return spec_; }
  const TorchRows& rows() const { return rows_; }

  /// The outputs of the network of that role, [rows or places, PolicySpec::OutputSize]. `actions` of as many rows, for
  /// one that reads actions: ActionInputs() of the own one, all agents' side by side of the joint one. A learner
  /// network with a core of its own begins each sequence with zeros.
  torch::Tensor Run(std::string_view role, Net net = Net::kOnline, At at = At::kRows,
                    const torch::Tensor& actions = {}) const;
  /// The one parameter of a learner number, [1].
  torch::Tensor Number(std::string_view name) const { return numbers_.at(std::string(name)); }

  // Parts of tensors by place, [places, ...]:
  /// Those of the rows.
  torch::Tensor AtRows(const torch::Tensor& of_places) const { return of_places.narrow(0, 0, rows_.rows); }
  /// Those of the rows' next places.
  torch::Tensor AtNext(const torch::Tensor& of_places) const { return of_places.index_select(0, rows_.next); }

  /// Action values [rows, outputs] of the actions that were taken, [rows, discrete leaves].
  torch::Tensor Chosen(const torch::Tensor& values) const;
  /// Action values [places, outputs], of forbidden actions the lowest number that there is; where a mask forbids all of
  /// a leaf, as at the end of an episode that nobody acts in any more, as they are.
  torch::Tensor Allowed(const torch::Tensor& values) const;
  /// 1 for each allowed action, as Allowed has it, else 0: [places, outputs].
  torch::Tensor IsAllowed(const torch::Tensor& values) const;
  /// The greatest action value of each discrete leaf, [n, leaves]; and which it is, as `Taken` wants it.
  torch::Tensor Greatest(const torch::Tensor& values) const;
  torch::Tensor GreatestAt(const torch::Tensor& values) const;
  /// From action values [n, outputs] those at `index` [n, leaves].
  static torch::Tensor Taken(const torch::Tensor& values, const torch::Tensor& index) {
    return values.gather(1, index);
  }
  /// The values of each discrete leaf, [n, its categories].
  std::vector<torch::Tensor> ByLeaf(const torch::Tensor& values) const { return values.split_with_sizes(leaves_, 1); }
  /// The actions that were taken as networks read them, [rows, PolicySpec::action_size].
  torch::Tensor ActionInputs() const;

  /// The factor of the value of a row's next place, [rows]: 0 at the end of an episode, else `gamma` to the power of
  /// the env steps between.
  torch::Tensor Discounts(double gamma) const;
  /// The same of a gamma that moves, a scalar.
  torch::Tensor Discounts(const torch::Tensor& gamma) const;
  /// The mean over the rows that count of a number for each, [rows].
  torch::Tensor Mean(const torch::Tensor& of_rows) const;

 private:
  const policy::NetworkSpec& NetworkOf(std::string_view role) const;
  torch::Tensor Compute(const policy::NetworkSpec& network, Net net, const torch::Tensor& inputs) const;
  const Module& ModuleOf(const policy::NetworkSpec& network, Net net) const;

  const policy::PolicySpec spec_;
  const DeviceMemory& memory_;
  const bool bfloat16_;
  const ActionHead head_;
  std::vector<int64_t> leaves_;  ///< categories of each discrete leaf
  TorchRows rows_;
  std::map<std::string, std::shared_ptr<ScriptNetwork>, std::less<>> scripts_;  ///< by section
  std::map<std::string, Module, std::less<>> modules_;                          ///< by section
  std::map<std::string, torch::Tensor, std::less<>> numbers_;
};

}  // namespace troupe::training
