#include "lib/rpc/admission.h"

#include <algorithm>
#include <utility>

#include "lib/rpc/limits.h"

namespace troupe::rpc {

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
  ++num_by_host_[host];
  unserved_[id].host = host;
  ++num_unserved_by_host_[host];
}

void Admission::SetProgress(int64_t id, FrameGuard::Progress progress) {
  const auto found = unserved_.find(id);
  if (found == unserved_.end()) return;
  found->second.progress = progress;
  if (progress == FrameGuard::Progress::kServed) NoLongerUnserved(id);
}

void Admission::Remove(int64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const auto count = num_by_host_.find(found->second);
  if (--count->second == 0) num_by_host_.erase(count);
  NoLongerUnserved(id);
  connections_.erase(found);
}

void Admission::NoLongerUnserved(int64_t id) {
  const auto found = unserved_.find(id);
  if (found == unserved_.end()) return;
  const auto count = num_unserved_by_host_.find(found->second.host);
  if (--count->second == 0) num_unserved_by_host_.erase(count);
  unserved_.erase(found);
}

int64_t Admission::NumOf(const std::string& host) const {
  const auto found = num_by_host_.find(host);
  return found == num_by_host_.end() ? 0 : found->second;
}

const std::string* Admission::Crowding() const {
  for (const auto& [host, count] : num_unserved_by_host_) {
    if (2 * count > num_unserved()) return &host;
  }
  return nullptr;
}

std::optional<int64_t> Admission::FirstToGo(const std::string* host) const {
  const std::string* const among = host != nullptr ? host : Crowding();
  std::optional<int64_t> first;
  FrameGuard::Progress least = FrameGuard::Progress::kServed;
  // The oldest come first. A flood of silent connections is at its aim at once.
  for (const auto& [id, unserved] : unserved_) {
    if (unserved.progress >= least || (among != nullptr && unserved.host != *among)) continue;
    first = id;
    least = unserved.progress;
    if (least == FrameGuard::Progress::kSilent) break;
  }
  return first;
}

}  // namespace troupe::rpc
