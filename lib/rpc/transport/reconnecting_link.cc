#include "lib/rpc/transport/reconnecting_link.h"

#include <algorithm>
#include <utility>

namespace troupe::rpc {

ReconnectingLink::ReconnectingLink(std::shared_ptr<grpc::Channel> channel, const char* method,
                                   const base::Backoff::Options& backoff, uint64_t seed)
    : channel_(std::move(channel)), method_(method), max_delay_(backoff.max), backoff_(backoff, seed) {}

absl::Duration ReconnectingLink::UntilTry(absl::Duration now) const {
  return std::max(absl::ZeroDuration(), retry_at_ - now);
}

ReconnectingLink::Try ReconnectingLink::Open(std::shared_ptr<ClientLink> link, absl::Duration give_up_at) {
  link_ = std::move(link);
  give_up_at_ = give_up_at;
  // The first try says quickly what is wrong. Later ones stay with the channel while it connects: gRPC 1.51 drives a
  // connection only while a call waits for it, and fails calls at once until it stands.
  return {link_, channel_, method_, /*wait_for_ready=*/tries_++ > 0};
}

absl::Duration ReconnectingLink::UntilGivenUp(absl::Duration now) const {
  return std::max(absl::ZeroDuration(), give_up_at_ - now);
}

std::shared_ptr<ClientLink> ReconnectingLink::GiveUp() {
  give_up_at_ = absl::InfiniteDuration();
  return link_;
}

void ReconnectingLink::Succeeded() {
  tries_ = 0;
  backoff_.Reset();
  retry_at_ = absl::ZeroDuration();
  give_up_at_ = absl::InfiniteDuration();
}

std::shared_ptr<ClientLink> ReconnectingLink::Close(absl::Duration now) {
  // Without a budget of its own it always has a delay.
  retry_at_ = now + backoff_.NextDelay().value_or(max_delay_);
  return std::exchange(link_, nullptr);
}

}  // namespace troupe::rpc
