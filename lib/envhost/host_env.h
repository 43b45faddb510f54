#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "lib/env/multi_agent_env.h"
#include "lib/envhost/host_pool.h"
#include "lib/envhost/host_process.h"

namespace troupe::envhost {

/// One Python environment in a process of its pool. Made by HostPool. Not thread-safe, like every environment.
///
/// Errors: INTERNAL: the environment raised an exception (with Python's error and traceback) or gave what does not fit
/// its spaces; it is closed and made anew at the next reset. UNAVAILABLE: its process ended; DEADLINE_EXCEEDED: its
/// process was killed because nothing came in time; both also strike the other environments of that process.
/// RESOURCE_EXHAUSTED: the restarts are used up. After each of them but the last, Reset works again.
///
/// The reset's seed is 31 bits of Philox over (run seed, env id, episode): environments and episodes differ by
/// construction.
class HostEnv final : public env::MultiAgentEnv {
 public:
  HostEnv(std::shared_ptr<HostPool> pool, std::shared_ptr<const HostPool::Kind> kind, int seat);
  ~HostEnv() override;

  const env::EnvSpec& spec() const override { return kind_->spec; }
  absl::Status Reset(const env::EpisodeSeed& seed, env::StepWriter& out) override;
  absl::Status Step(env::ActionRows actions, env::StepWriter& out) override;

  /// What the environment's render() answers. UNIMPLEMENTED unless HostOptions::draws; INTERNAL where it raises or
  /// answers something else; as Step where its process ends.
  absl::Status Draw(env::Canvas& canvas) const override;

  /// For callbacks beside the environment, where it was made with some. NoteEnd waits for those of the episode's end.
  void NoteDecision(env::AgentSlot slot, std::string_view policy, float log_prob) override;
  void NoteEnd() override;

  bool runs_elsewhere() const override { return true; }
  absl::Status StartReset(const env::EpisodeSeed& seed) override;
  absl::Status StartStep(env::ActionRows actions) override;
  absl::Status Finish(env::StepWriter& out) override;

  /// Whether Finish would return at once, so that a caller need not wait for a process that starts anew. Never waits.
  bool Settled() { return process_ == nullptr || process_->Settled(ticket_); }

 private:
  /// A place in a process that lives.
  absl::Status Attach();
  absl::Status Post(RequestKind kind);
  /// Leaves a process that is dead and counts what that cost. IsCallbackBlamed: a callback was the cause.
  absl::Status Lose(absl::Status status);
  /// The process has ended: callbacks are off if it was in one, of whichever environment. Whether it was.
  bool BlameCallbacks();
  absl::Status ReadError();
  void ReadAnswer(env::StepWriter& out) const;

  template <typename T>
  T* At(size_t offset) const {
    return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(slot_.block) + offset);
  }

  const std::shared_ptr<HostPool> pool_;
  const std::shared_ptr<const HostPool::Kind> kind_;
  const BlockLayout& layout_;
  const int seat_;
  std::shared_ptr<HostProcess> process_;  ///< null: none yet, or it was lost
  HostProcess::Slot slot_;
  HostProcess::Ticket ticket_ = 0;
  bool made_ = false;     ///< the environment exists in the process
  bool is_step_ = false;  ///< of the call in progress
};

}  // namespace troupe::envhost
