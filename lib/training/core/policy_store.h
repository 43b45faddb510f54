#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/policy/policy_fwd.h"
#include "lib/policy/policy_map.h"
#include "lib/policy/policy_state_tier.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/weight_snapshot.h"
#include "lib/training/core/network_backend.h"
#include "lib/training/core/parameters.h"
#include "lib/training/core/state_form.h"
#include "lib/training/core/state_moments.h"
#include "lib/training/policy_store_options.h"

namespace troupe::training {

/// A policy that is ready to be trained.
struct ResidentPolicy {
  FlatParameters parameters;
  std::unique_ptr<NetworkBackend> backend;  ///< nullptr for a class that is not trained, and with LossOver::kTensors
  std::vector<int64_t> block_steps = {};    ///< of each trained section, with LossOver::kTensors
  policy::RunningMoments observation_moments;
  policy::RunningMoments value_moments;
  ColumnMoments state_moments;  ///< of what the critic reads, with normalize_state
  int64_t trained_rows = 0;
  int64_t skipped_updates = 0;
  int64_t consecutive_skips = 0;
  std::vector<std::pair<std::string, double>> numbers = {};  ///< StateForm::numbers as they are

  /// nullptr where the policy's form has no such number.
  double* Number(std::string_view name) {
    for (auto& [known, value] : numbers) {
      if (known == name) return &value;
    }
    return nullptr;
  }
};

/// The state that a policy starts with: InitialParameters and AddModuleValues, an optimizer that has taken no step,
/// moments of nothing.
absl::StatusOr<policy::PolicyState> InitialState(const policy::PolicySpec& spec, const StateForm& form, uint64_t seed);

/// INVALID_ARGUMENT, naming the first two policies and in what they differ, unless all that train can hold each other's
/// states. By slot.
absl::Status CheckSwappable(const std::vector<policy::PolicySpec>& specs, const std::vector<StateForm>& forms);

/// The policies of a trainer: the `capacity` least long unused ones resident, behind a PolicyMap; the others as
/// PolicyStates in a PolicyStateTier. Where all of them fit they are all resident from the start and never leave.
///
/// Made by TrainerHost; confined to the update thread, which also writes back what leaves the map: nothing waits for
/// another thread. Acquire may block on the BlobStore.
/// Invariants: 1. A policy that was evicted and loaded goes on with the same bits. 2. Versions and published snapshots
/// stand beside the map: reading them touches no policy. 3. What cannot be written stays resident, beyond the capacity.
class PolicyStore final : private policy::ResidentForm {
 public:
  /// Makes a policy's back end; INVALID_ARGUMENT or UNAVAILABLE when it cannot.
  using BackendFactory = std::function<absl::StatusOr<std::unique_ptr<NetworkBackend>>(const policy::PolicySpec&)>;

  /// What a store needs of the process around it. Both outlive it.
  struct Deps {
    policy::BlobStore* blobs = nullptr;        ///< nullptr: evicted states all stay in host memory
    policy::PolicyStateTier::Source fallback;  ///< a lost policy's state in the last checkpoint; may be absent
    /// LibTorch's back end, for LossOver::kModule; absent: the program is without LibTorch.
    BackendFactory make_module_backend;
  };

  /// Policies with fresh weights of version (0, 0); a spec without an id: the slot is free. `forms` by slot.
  /// INVALID_ARGUMENT for an option out of range, and for policies that differ in shape or form though their states are
  /// to be swappable; what `make_backend` says of any of them.
  static absl::StatusOr<std::unique_ptr<PolicyStore>> Make(std::vector<policy::PolicySpec> specs,
                                                           std::vector<StateForm> forms, uint64_t seed,
                                                           BackendFactory make_backend,
                                                           const PolicyStoreOptions& options, Deps deps);
  ~PolicyStore() override;

  /// Another policy in a free slot (of the policy::PolicyTable::kMaxPolicies that there may be), which begins with
  /// `state`; resident. INVALID_ARGUMENT: out of range, or spec and state do not fit each other, or, with swappable
  /// states, the other policies; ALREADY_EXISTS: the slot is taken; else what `make_backend` says. Nothing has changed
  /// then.
  absl::Status Add(policy::PolicySlot slot, const policy::PolicySpec& spec, const StateForm& form,
                   policy::PolicyState state);
  /// Frees the slot, and what the policy takes in memory and in the BlobStore. Nobody holds it.
  absl::Status Remove(policy::PolicySlot slot);

  /// Slots, free ones too.
  size_t size() const;
  const policy::PolicySpec& spec(policy::PolicySlot slot) const;
  const StateForm& form(policy::PolicySlot slot) const { return forms_[static_cast<size_t>(slot.value())]; }
  /// NOT_FOUND for a slot that is none.
  absl::Status CheckSlot(policy::PolicySlot slot) const;

  /// The numbers of `groups` (of slots, no slot in two) in turns whose policies may be resident together, each group
  /// whole, resident ones first: so they cost the fewest loads. None is larger than the capacity.
  std::vector<std::vector<size_t>> InTurns(absl::Span<const std::vector<policy::PolicySlot>> groups) const;
  /// Makes the policy resident for a change, until the batch goes. At most `capacity` at a time. DATA_LOSS when its
  /// state is lost and there is no older one.
  absl::StatusOr<policy::PolicyMap<ResidentPolicy>::Batch> Acquire(policy::PolicySlot slot);

  /// All of the policy, wherever it is; nothing is made resident for it. DATA_LOSS as above, here and below.
  absl::StatusOr<policy::PolicyState> Export(policy::PolicySlot slot);
  policy::PolicyState StateOf(policy::PolicySlot slot, const ResidentPolicy& policy) const;
  /// StateOf in the memory of another state, of whichever policy.
  void WriteState(policy::PolicySlot slot, const ResidentPolicy& policy, policy::PolicyState* state) const;
  /// `state` fits the spec (PolicyState::Validate). A policy that is not resident stays so. INVALID_ARGUMENT for a
  /// block that is not known, or known in another form.
  absl::Status Import(policy::PolicySlot slot, policy::PolicyState state);
  /// Import without the version: undoes a change.
  absl::Status Restore(policy::PolicySlot slot, policy::PolicyState state);
  /// The actor with the policy's version.
  absl::StatusOr<policy::WeightSnapshotPtr> Snapshot(policy::PolicySlot slot);
  /// Gives every policy this version.
  void SetVersions(const policy::WeightVersion& version);

  /// By tag (docs/metrics.md); empty where all policies fit.
  std::vector<std::pair<std::string, double>> Metrics() const;
  policy::PolicyMapStats map_stats() const { return map_->core().Stats(); }
  policy::PolicyStateTierStats tier_stats() const { return tier_->Stats(); }
  /// Policies' memory that no policy has, kept for the next ones: at most SparesOf the capacity.
  int64_t num_spares() const { return static_cast<int64_t>(shells_.size()); }

 private:
  /// What is known of a policy wherever it is.
  struct Book {
    policy::WeightVersion version;
    policy::WeightSnapshotPtr snapshot;      ///< of its weights as they are, with an older version perhaps; or nullptr
    std::weak_ptr<ResidentPolicy> resident;  ///< alive while it is in memory
    int32_t shape = -1;                      ///< number of the policy's shape; -1: not asked for yet
  };
  /// Memory of an evicted trainable policy, for the next one of its shape: numbers that Fill replaces, and a back end
  /// where states are swappable.
  struct Shell {
    int32_t shape = -1;
    std::unique_ptr<ResidentPolicy> policy;
  };

  PolicyStore(std::vector<policy::PolicySpec> specs, std::vector<StateForm> forms, uint64_t seed,
              BackendFactory make_backend, const PolicyStoreOptions& options);

  // policy::ResidentForm
  absl::StatusOr<policy::PolicyTier::Value> FromState(policy::PolicySlot slot,
                                                      const policy::PolicyState& state) override;
  policy::PolicyState ToState(policy::PolicySlot slot, const policy::PolicyTier::Value& value) override;
  int64_t Bytes(const policy::PolicyTier::Value& value) const override;

  /// INVALID_ARGUMENT for networks that are not trained so.
  static absl::Status CheckNetworks(const policy::PolicySpec& spec, const StateForm& form);
  /// INVALID_ARGUMENT for blocks that are not a trained policy's, of another form, or one without the other.
  static absl::Status CheckBlocks(const policy::PolicySpec& spec, const policy::PolicyState& state);
  /// Makes what all policies need at the start, so that what cannot be served is said then.
  absl::Status MakeFirst();
  /// An optimizer's moments for a state without, value moments as its form has them; neither where the policy's
  /// class has none.
  policy::PolicyState Completed(policy::PolicySlot slot, policy::PolicyState state) const;
  /// An optimizer's moments, if they are of the one that the policy is trained with, else zeros, with a line in the
  /// log.
  void CompleteOptimizer(policy::PolicySlot slot, policy::PolicyState* state) const;
  static void Fill(const policy::PolicyState& state, ResidentPolicy* policy);
  int32_t ShapeNumber(policy::PolicySlot slot);
  /// True if a NetworkBackend trains it.
  bool HasBackend(policy::PolicySlot slot) const;
  absl::StatusOr<std::unique_ptr<NetworkBackend>> MakeBackend(policy::PolicySlot slot) const;
  /// nullptr when there is none.
  std::unique_ptr<ResidentPolicy> TakeShell(int32_t shape);
  void KeepShell(int32_t shape, std::unique_ptr<ResidentPolicy> evicted);
  Book& book(policy::PolicySlot slot) { return books_[static_cast<size_t>(slot.value())]; }

  /// Policies that there are.
  int64_t num_policies() const;

  std::vector<policy::PolicySpec> specs_;  ///< by slot; a free one has no id
  std::vector<StateForm> forms_;           ///< by slot
  const uint64_t seed_;
  const BackendFactory make_backend_;
  BackendFactory make_module_backend_;
  const PolicyStoreOptions options_;
  std::vector<Book> books_;                          ///< by slot
  std::unordered_map<std::string, int32_t> shapes_;  ///< their numbers
  std::vector<Shell> shells_;                        ///< at most SparesOf(capacity); the last one was evicted last
  // Each uses what stands above it.
  std::unique_ptr<policy::PolicyStateTier> tier_;
  std::unique_ptr<policy::PolicyMap<ResidentPolicy>> map_;
  std::unique_ptr<policy::PolicyMap<ResidentPolicy>::Reader> reader_;
};

}  // namespace troupe::training
