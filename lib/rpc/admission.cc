#include "lib/rpc/admission.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "lib/rpc/limits.h"

namespace troupe::rpc {
namespace {

constexpr int64_t kDescriptorsPerConnection = 3;  // the client's, our end towards gRPC, and gRPC's

}  // namespace

AdmissionLimits AdmissionLimitsFor(int64_t max_descriptors) {
  // A process with few descriptors keeps half of them for itself.
  const int64_t reserved = std::min(kReservedDescriptors, max_descriptors / 2);
  AdmissionLimits limits;
  limits.total = std::clamp<int64_t>((max_descriptors - reserved) / kDescriptorsPerConnection, 4, kMaxConnections);
  limits.kept = std::min(kKeptConnections, limits.total / 4);
  limits.per_host = std::max<int64_t>(1, limits.total / 2);
  limits.unserved = std::min(kMaxUnservedConnections, limits.per_host);
  return limits;
}

Admission::Decision Admission::Decide(const Newcomer& newcomer) const {
  Decision decision;
  const bool host_is_full = NumOf(newcomer.host) >= limits_.per_host;
  const bool full = size() >= limits_.total - limits_.kept;
  if (!host_is_full && !full) {
    decision.admit = true;
    if (num_unserved() >= limits_.unserved) decision.evict = FirstToGo(nullptr);
    return decision;
  }
  decision.evict = FirstToGo(host_is_full ? &newcomer.host : nullptr);
  decision.admit = decision.evict.has_value();
  if (!decision.admit && (newcomer.own || newcomer.host_of_worker)) {
    // The last of them is for the process itself: it must not take its own crowd for deafness.
    decision.admit = decision.kept = size() < limits_.total - (newcomer.own ? 0 : 1);
  }
  return decision;
}

void Admission::Add(int64_t id, const std::string& host) {
  connections_.emplace(id, host);
  unserved_.emplace(id, FrameGuard::Progress::kSilent);
  ++num_by_host_[host];
}

void Admission::SetProgress(int64_t id, FrameGuard::Progress progress) {
  const auto found = unserved_.find(id);
  if (found == unserved_.end()) return;
  found->second = progress;
  if (progress == FrameGuard::Progress::kServed) unserved_.erase(found);
}

void Admission::Remove(int64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const auto count = num_by_host_.find(found->second);
  if (--count->second == 0) num_by_host_.erase(count);
  unserved_.erase(id);
  connections_.erase(found);
}

int64_t Admission::NumOf(const std::string& host) const {
  const auto found = num_by_host_.find(host);
  return found == num_by_host_.end() ? 0 : found->second;
}

std::optional<int64_t> Admission::FirstToGo(const std::string* host) const {
  std::map<std::string, int64_t> unserved_by_host;
  for (const auto& [id, progress] : unserved_) ++unserved_by_host[connections_.at(id)];
  const auto rank = [&](int64_t id, FrameGuard::Progress progress) {
    const bool crowds = 2 * unserved_by_host[connections_.at(id)] > num_unserved();
    return std::make_tuple(!crowds, progress, id);
  };
  std::optional<int64_t> first;
  FrameGuard::Progress progress_of_first = FrameGuard::Progress::kSilent;
  for (const auto& [id, progress] : unserved_) {
    if (host != nullptr && connections_.at(id) != *host) continue;
    if (first && rank(*first, progress_of_first) <= rank(id, progress)) continue;
    first = id;
    progress_of_first = progress;
  }
  return first;
}

}  // namespace troupe::rpc
