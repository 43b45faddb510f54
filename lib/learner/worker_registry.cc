#include "lib/learner/worker_registry.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::learner {

using sample::WorkerEpoch;
using sample::WorkerId;

WorkerRegistry::WorkerRegistry(uint64_t learner_epoch)
    : learner_epoch_(learner_epoch),
      // A worker that joined after the checkpoint is not in it: ids carry the epoch, so that nobody gets its id again.
      next_id_((learner_epoch << 32) + 1) {}

void WorkerRegistry::Restore(const std::map<uint64_t, uint64_t>& watermarks) {
  for (const auto& [id, watermark] : watermarks) {
    Worker& worker = workers_[id];
    worker.id = WorkerId(id);
    worker.sequences = SequenceTracker(watermark);
  }
}

bool WorkerRegistry::MayBeOurs(uint64_t id) const {
  if (workers_.count(id) > 0) return true;
  const uint64_t epoch = id >> 32;
  return epoch >= 1 && id < next_id_;
}

absl::Status WorkerRegistry::Check(const WorkerHello& hello) const {
  const uint64_t id = hello.worker_id.value();
  if (id == 0 || !MayBeOurs(id)) return absl::OkStatus();
  const auto found = workers_.find(id);
  const bool restarted = found == workers_.end() || found->second.epoch.value() == 0;
  const uint64_t known = found == workers_.end() ? 0 : found->second.sequences.watermark();
  const uint64_t most = known + 1 + (restarted ? kMostRolledBack : SequenceTracker::kMaxGap);
  if (hello.next_sequence <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("worker ", sample::WorkerText(WorkerId(id)), ": first_unacked is ",
                                                 hello.next_sequence, ", but what came up to ", known,
                                                 " is known here, expected at most ", most));
}

WorkerRegistry::Joined WorkerRegistry::Join(const WorkerHello& hello, std::shared_ptr<WorkerPort> port,
                                            absl::Duration now) {
  Joined joined;
  while (workers_.count(next_id_) > 0) ++next_id_;
  const bool has_id = hello.worker_id.value() != 0 && MayBeOurs(hello.worker_id.value());
  const uint64_t id = has_id ? hello.worker_id.value() : next_id_++;
  const auto [it, is_new] = workers_.try_emplace(id);
  Worker& worker = it->second;
  // One from an earlier learner epoch, or forgotten: what it sent before is not lost by it, but by the learner.
  joined.restarted = is_new || worker.epoch.value() == 0;
  joined.was_connected = worker.connected;
  joined.old_port = std::move(worker.port);
  worker.id = WorkerId(id);
  worker.epoch = WorkerEpoch(next_epoch_++);
  worker.connected = true;
  worker.own = hello.own;
  worker.port = std::move(port);
  worker.last_seen = now;
  if (is_new || worker.first_joined == absl::ZeroDuration()) worker.first_joined = now;
  worker.counted_before = worker.counted_before || (has_id && joined.restarted);
  const uint64_t gap = worker.sequences.SkipTo(std::max<uint64_t>(1, hello.next_sequence));
  // What a worker without an id of ours sent, nobody here knows.
  joined.gap = has_id ? gap : 0;
  joined.ticket = WorkerTicket{worker.id, worker.epoch, learner_epoch_};
  return joined;
}

absl::StatusOr<WorkerRegistry::Worker*> WorkerRegistry::Find(const WorkerTicket& ticket) {
  if (ticket.learner_epoch != learner_epoch_) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", sample::WorkerText(ticket.worker_id),
                                                      " registered in learner epoch ", ticket.learner_epoch,
                                                      ", this is epoch ", learner_epoch_, ": register again"));
  }
  const auto it = workers_.find(ticket.worker_id.value());
  if (it == workers_.end() || !it->second.connected || it->second.epoch != ticket.worker_epoch) {
    return absl::FailedPreconditionError(absl::StrCat(
        "registration ", ticket.worker_epoch.value(), " of worker ", sample::WorkerText(ticket.worker_id),
        " is over: the worker registered again, left, or gave no sign of life for too long; register again"));
  }
  return &it->second;
}

std::shared_ptr<WorkerPort> WorkerRegistry::Leave(Worker& worker) {
  std::shared_ptr<WorkerPort> port = std::move(worker.port);
  worker.connected = false;
  ForgetSurplus();
  return port;
}

std::vector<WorkerRegistry::Worker*> WorkerRegistry::SilentSince(absl::Duration before) {
  std::vector<Worker*> silent;
  for (auto& [id, worker] : workers_) {
    if (worker.connected && worker.last_seen < before) silent.push_back(&worker);
  }
  return silent;
}

absl::Status WorkerRegistry::Count(Worker& worker, const sample::EnvCounters& counters, absl::Duration now) {
  const int64_t seconds = absl::ToInt64Seconds(now - worker.first_joined);
  const int64_t most = (1 + seconds) * kMostErrorsPerSecond + (worker.counted_before ? kMostErrorsBefore : 0);
  const auto added = [&](const sample::EnvCounterField& field) {
    const int64_t last = worker.env_counters.*field.value;
    const int64_t said = counters.*field.value;
    return said >= last ? said - last : said;
  };
  for (const sample::EnvCounterField& field : sample::kEnvCounterFields) {
    if (added(field) <= most - worker.counted.*field.value) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "environment counters: ", field.key, " went from ", worker.env_counters.*field.value, " to ",
        counters.*field.value, ", expected at most ", most, " in all of a worker that joined ", seconds, " s ago"));
  }
  for (const sample::EnvCounterField& field : sample::kEnvCounterFields) {
    const int64_t more = added(field);
    worker.counted.*field.value += more;
    env_counters_.*field.value += std::min(more, std::numeric_limits<int64_t>::max() - env_counters_.*field.value);
  }
  worker.env_counters = counters;
  return absl::OkStatus();
}

std::map<uint64_t, uint64_t> WorkerRegistry::Watermarks() const {
  std::map<uint64_t, uint64_t> watermarks;
  for (const auto& [id, worker] : workers_) watermarks[id] = worker.sequences.watermark();
  return watermarks;
}

int32_t WorkerRegistry::num_connected() const {
  return static_cast<int32_t>(
      std::count_if(workers_.begin(), workers_.end(), [](const auto& entry) { return entry.second.connected; }));
}

void WorkerRegistry::ForgetSurplus() {
  const size_t departed = workers_.size() - static_cast<size_t>(num_connected());
  if (departed <= kMaxDeparted) return;
  auto oldest = workers_.end();
  for (auto it = workers_.begin(); it != workers_.end(); ++it) {
    if (it->second.connected) continue;
    if (oldest == workers_.end() || it->second.epoch < oldest->second.epoch) oldest = it;
  }
  workers_.erase(oldest);
}

}  // namespace troupe::learner
