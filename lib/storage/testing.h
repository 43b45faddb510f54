#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/learner/checkpoint.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_spec.h"
#include "lib/storage/file_system.h"

namespace troupe::storage {

/// Passes everything on, but fails the changing operation number `fail_at` (from 0) and, when `crash` is set, all after
/// it, as a process that died there.
class FaultyFileSystem : public FileSystem {
 public:
  explicit FaultyFileSystem(int fail_at, bool crash) : fail_at_(fail_at), crash_(crash) {}

  int operations() const { return operations_; }

  absl::Status WriteNewFile(const std::string& path, absl::Span<const absl::Span<const std::byte>> pieces) override {
    const absl::Status fault = Fault();
    if (fault.ok()) return Posix().WriteNewFile(path, pieces);
    // A torn write: half of the first piece reaches the disk.
    const absl::Span<const std::byte> half = pieces[0].subspan(0, pieces[0].size() / 2);
    if (crash_) Posix().WriteNewFile(path, {half}).IgnoreError();
    return fault;
  }
  absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) override {
    return Posix().ReadFile(path, max_bytes);
  }
  absl::StatusOr<std::unique_ptr<OpenFile>> Open(const std::string& path) override { return Posix().Open(path); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    const absl::Status fault = Fault();
    return fault.ok() ? Posix().Rename(from, to) : fault;
  }
  absl::Status SyncFile(const std::string& path) override {
    const absl::Status fault = Fault();
    return fault.ok() ? Posix().SyncFile(path) : fault;
  }
  absl::Status SyncDirectory(const std::string& path) override {
    const absl::Status fault = Fault();
    return fault.ok() ? Posix().SyncDirectory(path) : fault;
  }
  absl::Status MakeDirectories(const std::string& path) override {
    const absl::Status fault = Fault();
    return fault.ok() ? Posix().MakeDirectories(path) : fault;
  }
  absl::Status RemoveTree(const std::string& path) override {
    const absl::Status fault = Fault();
    return fault.ok() ? Posix().RemoveTree(path) : fault;
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override { return Posix().List(path); }
  bool Exists(const std::string& path) override { return Posix().Exists(path); }
  absl::Status ReplaceLink(const std::string& target, const std::string& link) override {
    const absl::Status fault = Fault();
    return fault.ok() ? Posix().ReplaceLink(target, link) : fault;
  }
  absl::StatusOr<std::string> ReadLink(const std::string& link) override { return Posix().ReadLink(link); }

 private:
  absl::Status Fault() {
    const int now = operations_++;
    const bool fails = crash_ ? now >= fail_at_ : now == fail_at_;
    return fails ? absl::ResourceExhaustedError("injected: no space left") : absl::OkStatus();
  }

  const int fail_at_;
  const bool crash_;
  int operations_ = 0;
};

/// A full state of one small policy; `env_steps` also colours the weights, so that checkpoints differ.
inline learner::LearnerState StateForTesting(const policy::PolicySpec& spec, int64_t env_steps) {
  learner::LearnerState state;
  state.iteration = env_steps / 100;
  state.env_steps = env_steps;
  state.agent_steps = 3 * env_steps;
  state.episodes = 7;
  state.wall_clock_s = 1.25;
  state.learner_epoch = 1;
  state.rows = {10, 9, 1, 0, 0, 8, 1, 0, 0};
  state.lanes = {{base::EnvId(0), 4}, {base::EnvId(1), 5}};
  state.watermarks = {{1, 17}};
  state.recent_return_sums = {-1.5, 2.25};
  state.recent_lengths = {25, 25};
  state.recent_agent_returns = {{-1.0, 0.1 + 0.2}};
  state.recent_agent_policies = {{-1, 0}};
  state.rewards_differ = true;
  state.best_by = "policy:hunter";
  state.best_window = 0.1 + 0.7;
  policy::PolicyState policy;
  policy.id = spec.id;
  policy.version = {1, state.iteration};
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  std::vector<float> parameters(static_cast<size_t>(layout.size()), 0.0f);
  for (const policy::ParameterEntry& entry : layout.entries()) {
    for (int64_t i = 0; i < entry.count; ++i) {
      parameters[static_cast<size_t>(entry.offset + i)] = 0.001f * static_cast<float>(env_steps + i);
    }
  }
  policy.Set("adam.exp_avg", std::vector<float>(parameters.size(), 0.5f));
  policy.Set("adam.exp_avg_sq", std::vector<float>(parameters.size(), 0.25f));
  policy.SetInteger("adam.steps", 120);
  policy.Set(policy::kParameters, std::move(parameters));
  policy.SetMoments("value_moments", {100.0, {0.3}, {1.7}});
  policy.SetInteger("trained_rows", 12);
  state.policies.push_back(std::move(policy));
  return state;
}

}  // namespace troupe::storage
