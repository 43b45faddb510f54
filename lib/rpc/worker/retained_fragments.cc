#include "lib/rpc/worker/retained_fragments.h"

#include <algorithm>
#include <cstddef>

#include "lib/base/log.h"
#include "lib/rpc/transport/limits.h"

namespace troupe::rpc {

void RetainedFragments::SetCredit(uint64_t credit_bytes) {
  credit_bytes_ = static_cast<int64_t>(std::min<uint64_t>(credit_bytes, kMaxUnackedBytes));
}

bool RetainedFragments::Fits(const EncodedFragment& encoded) const {
  if (held_.empty()) return true;
  // Until the first welcome there is no credit, and nothing that could be sampled for.
  if (unacked_bytes_ + static_cast<int64_t>(encoded.payload_bytes) > credit_bytes_) return false;
  return held_.size() < kMaxUnackedFragments &&
         held_bytes_ + static_cast<int64_t>(encoded.message.Length()) <= kMaxUnackedBytes;
}

void RetainedFragments::Add(const EncodedFragment& encoded) {
  unacked_bytes_ += static_cast<int64_t>(encoded.payload_bytes);
  held_bytes_ += static_cast<int64_t>(encoded.message.Length());
  held_.push_back({next_sequence_++, encoded});
}

void RetainedFragments::Forget(size_t place) {
  const auto it = held_.begin() + static_cast<std::ptrdiff_t>(place);
  unacked_bytes_ -= static_cast<int64_t>(it->encoded.payload_bytes);
  held_bytes_ -= static_cast<int64_t>(it->encoded.message.Length());
  if (place < next_to_send_) --next_to_send_;
  held_.erase(it);
}

RetainedFragments::Freed RetainedFragments::FreeUpTo(uint64_t watermark) {
  Freed freed;
  while (!held_.empty() && held_.front().sequence <= watermark) {
    freed.push_back(held_.front().encoded);  // shares the slices: a ByteBuffer cannot be moved
    Forget(0);
  }
  return freed;
}

RetainedFragments::Freed RetainedFragments::OnAck(const sample::FragmentAck& ack) {
  switch (ack.disposition) {
    case sample::Disposition::kAccepted:
      ++acks_.accepted;
      break;
    case sample::Disposition::kDuplicate:
      ++acks_.duplicate;
      break;
    case sample::Disposition::kStale:
      ++acks_.stale;
      break;
    case sample::Disposition::kInvalid:
      ++acks_.invalid;
      break;
  }
  if (ack.disposition != sample::Disposition::kAccepted) acks_.last_reason = base::LogSafe(ack.reason);
  Freed freed = FreeUpTo(ack.watermark);
  // A fragment with a disposition needs no watermark to be over.
  const auto it =
      std::find_if(held_.begin(), held_.end(), [&ack](const Held& held) { return held.sequence == ack.sequence; });
  if (it == held_.end()) return freed;
  freed.push_back(it->encoded);
  Forget(static_cast<size_t>(it - held_.begin()));
  return freed;
}

}  // namespace troupe::rpc
