#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lib/base/await.h"
#include "lib/base/mutex.h"
#include "lib/rpc/worker/learner_endpoint.h"

namespace troupe::rpc {

/// A learner for tests of the streams: takes every worker, writes down what arrives, and acknowledges when told to.
/// Thread-safe.
class FakeEndpoint final : public LearnerEndpoint, public ControlHandler, public MonitorHandler {
 public:
  struct Arrival {
    learner::WorkerTicket ticket;
    uint64_t sequence = 0;
    sample::MultiAgentBatchPtr batch;  ///< nullptr: could not be decoded
    absl::Status why;
  };
  struct Worker {
    JoinRequest request;
    learner::WorkerTicket ticket;
    std::shared_ptr<learner::WorkerPort> port;
    int joins = 0;
    int leaves = 0;
    std::string left_because;
    int heartbeats = 0;
    sample::EnvCounters env_counters;  ///< as it said last
    sample::RecentEpisodes recent_episodes;
    bool fails_from_the_start = false;
    std::vector<sample::EnvIncident> incidents;  ///< all it ever told
    uint64_t watermark = 0;
    bool given_up = false;
  };

  explicit FakeEndpoint(uint64_t learner_epoch = 1) : learner_epoch_(learner_epoch) {}

  void set_auto_ack(bool on) {
    base::MutexLock lock(&mutex_);
    auto_ack_ = on;
  }
  void set_join_status(absl::Status status) {
    base::MutexLock lock(&mutex_);
    join_status_ = std::move(status);
  }
  void set_watermark(uint64_t worker, uint64_t watermark) {
    base::MutexLock lock(&mutex_);
    workers_[worker].watermark = watermark;
  }

  absl::StatusOr<JoinReply> Join(const JoinRequest& request, std::shared_ptr<learner::WorkerPort> port) override {
    base::MutexLock lock(&mutex_);
    if (!join_status_.ok()) return join_status_;
    const uint64_t id = request.worker_id.value() != 0 ? request.worker_id.value() : next_id_++;
    Worker& worker = workers_[id];
    worker.request = request;
    worker.ticket = {sample::WorkerId(id), sample::WorkerEpoch(worker.ticket.worker_epoch.value() + 1), learner_epoch_};
    worker.port = std::move(port);
    ++worker.joins;
    worker.given_up = false;
    changed_.NotifyAll();
    return JoinReply{worker.ticket, worker.watermark};
  }
  void Leave(const learner::WorkerTicket& ticket, const std::string& why) override {
    base::MutexLock lock(&mutex_);
    Worker& worker = workers_[ticket.worker_id.value()];
    ++worker.leaves;
    worker.left_because = why;
    changed_.NotifyAll();
  }
  absl::Status Heartbeat(const learner::WorkerTicket& ticket, const std::optional<sample::EnvReport>& report) override {
    base::MutexLock lock(&mutex_);
    Worker& worker = workers_[ticket.worker_id.value()];
    if (worker.given_up || ticket.worker_epoch != worker.ticket.worker_epoch)
      return absl::FailedPreconditionError("superseded");
    ++worker.heartbeats;
    if (report.has_value()) {
      worker.env_counters = report->counters;
      worker.recent_episodes = report->recent;
      worker.fails_from_the_start = report->fails_from_the_start;
      worker.incidents.insert(worker.incidents.end(), report->incidents.begin(), report->incidents.end());
    }
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  /// As a learner that has not heard of a worker for too long.
  void GiveUp(uint64_t worker) {
    base::MutexLock lock(&mutex_);
    workers_[worker].given_up = true;
  }
  absl::Status Submit(const learner::WorkerTicket& ticket, uint64_t sequence, sample::MultiAgentBatchPtr batch,
                      learner::WorkerPort& port) override {
    return Arrived({ticket, sequence, std::move(batch), absl::OkStatus()}, sample::Disposition::kAccepted, port);
  }
  absl::Status SubmitUndecodable(const learner::WorkerTicket& ticket, uint64_t sequence, const absl::Status& why,
                                 learner::WorkerPort& port) override {
    return Arrived({ticket, sequence, nullptr, why}, sample::Disposition::kInvalid, port);
  }

  RunStatus GetStatus(const base::Caller& caller) override {
    base::MutexLock lock(&mutex_);
    callers_.push_back(caller);
    return status_;
  }
  void SetStatus(RunStatus status) {
    base::MutexLock lock(&mutex_);
    status_ = std::move(status);
  }
  /// Who asked the Monitor or Control, in order.
  std::vector<base::Caller> callers() const {
    base::MutexLock lock(&mutex_);
    return callers_;
  }
  /// Answers with 456, and with ALREADY_EXISTS for the path /there.
  void RequestCheckpoint(const base::Caller& caller, const std::string& to,
                         std::function<void(absl::StatusOr<int64_t>)> done) override {
    {
      base::MutexLock lock(&mutex_);
      callers_.push_back(caller);
      checkpoint_to_ = to;
    }
    if (to == "/there") return done(absl::AlreadyExistsError("/there is no checkpoint"));
    done(456);
  }
  std::string checkpoint_to() const {
    base::MutexLock lock(&mutex_);
    return checkpoint_to_;
  }
  /// Answers with `keep`.
  void RequestPrune(const base::Caller& caller, int keep, std::function<void(absl::StatusOr<int64_t>)> done) override {
    {
      base::MutexLock lock(&mutex_);
      callers_.push_back(caller);
    }
    done(keep);
  }
  void RequestDrain(const base::Caller& caller, const std::string& reason) override {
    base::MutexLock lock(&mutex_);
    callers_.push_back(caller);
    drain_reason_ = reason;
  }

  policy::PolicyTablePtr Policies(const base::Caller& caller) override {
    base::MutexLock lock(&mutex_);
    callers_.push_back(caller);
    return policies_;
  }
  /// Answers with what SetChangeResult said, 1 before.
  void ChangePolicies(const base::Caller& caller, policy::PolicyChange change,
                      std::function<void(absl::StatusOr<int64_t>)> done) override {
    absl::StatusOr<int64_t> result;
    {
      base::MutexLock lock(&mutex_);
      callers_.push_back(caller);
      changes_.push_back(std::move(change));
      result = change_result_;
    }
    done(result);
  }
  void SetPolicies(policy::PolicyTablePtr policies) {
    base::MutexLock lock(&mutex_);
    policies_ = std::move(policies);
  }
  void SetChangeResult(absl::StatusOr<int64_t> result) {
    base::MutexLock lock(&mutex_);
    change_result_ = std::move(result);
  }
  std::vector<policy::PolicyChange> changes() const {
    base::MutexLock lock(&mutex_);
    return changes_;
  }

  /// Blocks until `condition(*this state)` holds, or gives up after ten seconds: false.
  template <typename Condition>
  bool Await(Condition condition) {
    base::MutexLock lock(&mutex_);
    return base::Await(changed_, &mutex_, base::Deadline::After(absl::Seconds(10)),
                       [this, &condition]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return condition(workers_, arrivals_); });
  }
  bool AwaitArrivals(size_t count) {
    return Await([count](const auto&, const auto& arrivals) { return arrivals.size() >= count; });
  }
  bool AwaitJoins(uint64_t worker, int joins) {
    return Await([&](const auto& workers, const auto&) {
      const auto it = workers.find(worker);
      return it != workers.end() && it->second.joins >= joins;
    });
  }
  std::vector<Arrival> arrivals() const {
    base::MutexLock lock(&mutex_);
    return arrivals_;
  }
  Worker worker(uint64_t id) const {
    base::MutexLock lock(&mutex_);
    const auto it = workers_.find(id);
    return it == workers_.end() ? Worker{} : it->second;
  }
  std::string drain_reason() const {
    base::MutexLock lock(&mutex_);
    return drain_reason_;
  }

 private:
  static RunStatus FakeStatus() {
    RunStatus status;
    status.run_name = "fake";
    status.learner.progress.env_steps = 123;
    return status;
  }
  absl::Status Arrived(Arrival arrival, sample::Disposition disposition, learner::WorkerPort& port) {
    const sample::FragmentAck ack{arrival.sequence, arrival.sequence, disposition, std::string(arrival.why.message())};
    {
      base::MutexLock lock(&mutex_);
      Worker& worker = workers_[arrival.ticket.worker_id.value()];
      if (worker.given_up || arrival.ticket.worker_epoch != worker.ticket.worker_epoch) {
        return absl::FailedPreconditionError("superseded");
      }
      arrivals_.push_back(std::move(arrival));
      changed_.NotifyAll();
      if (!auto_ack_) return absl::OkStatus();
      worker.watermark = ack.watermark;
    }
    port.SendAck(ack);
    return absl::OkStatus();
  }

  const uint64_t learner_epoch_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  bool auto_ack_ ABSL_GUARDED_BY(mutex_) = true;
  absl::Status join_status_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  std::vector<Arrival> arrivals_ ABSL_GUARDED_BY(mutex_);
  RunStatus status_ ABSL_GUARDED_BY(mutex_) = FakeStatus();
  std::vector<base::Caller> callers_ ABSL_GUARDED_BY(mutex_);
  std::string drain_reason_ ABSL_GUARDED_BY(mutex_);
  std::string checkpoint_to_ ABSL_GUARDED_BY(mutex_);
  policy::PolicyTablePtr policies_ ABSL_GUARDED_BY(mutex_);
  std::vector<policy::PolicyChange> changes_ ABSL_GUARDED_BY(mutex_);
  absl::StatusOr<int64_t> change_result_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace troupe::rpc
