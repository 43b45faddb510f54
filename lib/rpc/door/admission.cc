#include "lib/rpc/door/admission.h"

#include <algorithm>
#include <utility>

namespace troupe::rpc {

AdmissionLimits AdmissionLimitsFor(int64_t max_descriptors) {
  // A process with few descriptors keeps half of them for itself.
  const int64_t reserved = std::min(kReservedDescriptors, max_descriptors / 2);
  AdmissionLimits limits;
  limits.total = std::clamp<int64_t>((max_descriptors - reserved) / kDescriptorsPerConnection, 4, kMaxConnections);
  limits.kept = std::min(kKeptConnections, limits.total / 4);
  limits.per_host = std::max<int64_t>(1, limits.total * 5 / 8);
  limits.newcomers = std::min(kMaxNewcomers, limits.per_host);
  limits.unserved = std::min(kMaxUnservedConnections, limits.per_host);
  return limits;
}

Admission::Decision Admission::Decide(const Newcomer& newcomer) const {
  Decision decision;
  const bool host_is_full = NumOf(newcomer.host) >= limits_.per_host;
  const bool full = size() >= limits_.total - limits_.kept;
  if (!host_is_full && !full) {
    decision.admit = true;
    if (num_newcomers() >= limits_.newcomers) decision.evict = newcomers_.FirstToGo(nullptr);
    return decision;
  }
  const std::string* const among = host_is_full ? &newcomer.host : nullptr;
  decision.evict = newcomers_.FirstToGo(among);
  if (!decision.evict.has_value()) decision.evict = unserved_.FirstToGo(among);
  decision.admit = decision.evict.has_value();
  if (!decision.admit && (newcomer.own || newcomer.host_of_worker)) {
    // The last of them is for the process itself: it must not take its own crowd for deafness.
    decision.admit = decision.kept = size() < limits_.total - (newcomer.own ? 0 : 1);
  }
  return decision;
}

std::optional<std::string> Admission::WhereNoPlaceIs(const std::string& host, int64_t many) const {
  if (NumOf(host) >= limits_.per_host) return host;
  if (size() < std::min(many, limits_.total - limits_.kept) || num_by_host_.empty()) return std::nullopt;
  return std::max_element(num_by_host_.begin(), num_by_host_.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

void Admission::Add(int64_t id, const std::string& host) {
  connections_.emplace(id, host);
  ++num_by_host_[host];
  newcomers_.Add(id, host, FrameGuard::Progress::kSilent, absl::ZeroDuration());
}

void Admission::HandedOver(int64_t id, absl::Duration now) {
  const std::optional<FrameGuard::Progress> progress = newcomers_.Remove(id);
  if (progress.has_value()) unserved_.Add(id, connections_.at(id), *progress, now);
}

void Admission::SetProgress(int64_t id, FrameGuard::Progress progress) {
  for (Crowd* crowd : {&newcomers_, &unserved_}) {
    if (progress == FrameGuard::Progress::kServed) {
      crowd->Remove(id);
    } else {
      crowd->SetProgress(id, progress);
    }
  }
}

void Admission::Remove(int64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const auto count = num_by_host_.find(found->second);
  if (--count->second == 0) num_by_host_.erase(count);
  newcomers_.Remove(id);
  unserved_.Remove(id);
  connections_.erase(found);
}

int64_t Admission::NumOf(const std::string& host) const {
  const auto found = num_by_host_.find(host);
  return found == num_by_host_.end() ? 0 : found->second;
}

void Admission::Crowd::Add(int64_t id, const std::string& host, FrameGuard::Progress progress, absl::Duration since) {
  members_[id] = {progress, host, since};
  ++num_by_host_[host];
}

std::optional<FrameGuard::Progress> Admission::Crowd::Remove(int64_t id) {
  const auto found = members_.find(id);
  if (found == members_.end()) return std::nullopt;
  const FrameGuard::Progress progress = found->second.progress;
  const auto count = num_by_host_.find(found->second.host);
  if (--count->second == 0) num_by_host_.erase(count);
  members_.erase(found);
  return progress;
}

void Admission::Crowd::SetProgress(int64_t id, FrameGuard::Progress progress) {
  const auto found = members_.find(id);
  if (found != members_.end()) found->second.progress = progress;
}

const std::string* Admission::Crowd::Crowding() const {
  for (const auto& [host, count] : num_by_host_) {
    if (2 * count > size()) return &host;
  }
  return nullptr;
}

std::optional<int64_t> Admission::Crowd::FirstToGo(const std::string* host, absl::Duration latest) const {
  const std::string* const among = host != nullptr ? host : Crowding();
  std::optional<int64_t> first, longest;
  FrameGuard::Progress least = FrameGuard::Progress::kServed;
  absl::Duration since = absl::InfiniteDuration();
  // The oldest come first. A flood of silent connections is at its aim at once.
  for (const auto& [id, member] : members_) {
    if (among != nullptr && member.host != *among) continue;
    if (member.since < since) {
      longest = id;
      since = member.since;
    }
    if (member.progress >= least || member.since > latest) continue;
    first = id;
    least = member.progress;
    if (least == FrameGuard::Progress::kSilent) break;
  }
  return first.has_value() ? first : longest;
}

}  // namespace troupe::rpc
