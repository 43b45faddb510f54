#include "lib/rpc/door/frame_guard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::rpc {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kHeaderBytes = 9;
constexpr uint32_t kPrefixBytes = 5;

// RFC 9113, section 6.
constexpr uint8_t kData = 0, kHeaders = 1, kRstStream = 3, kSettings = 4, kPing = 6, kWindowUpdate = 8,
                  kContinuation = 9;
constexpr uint8_t kEndStream = 0x1, kEndHeaders = 0x4, kPadded = 0x8, kPriority = 0x20;
constexpr size_t kPriorityBytes = 5;

const unsigned char* Unsigned(const char* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

}  // namespace

FrameGuard::FrameGuard(const FrameLimits& limits, FrameTotals* totals, absl::Duration now)
    : limits_(limits),
      totals_(totals),
      resets_(limits.resets, now),
      settings_(limits.settings, now),
      pings_(limits.pings, now),
      window_updates_(limits.window_updates, now),
      empty_data_(limits.empty_data, now),
      others_(limits.others, now) {}

FrameGuard::~FrameGuard() { totals_->open_calls -= static_cast<int64_t>(calls_.size()); }

FrameGuard::Frame FrameGuard::ParseHeader(const unsigned char* header) {
  Frame frame;
  frame.size = static_cast<size_t>(header[0]) << 16 | static_cast<size_t>(header[1]) << 8 | header[2];
  frame.type = header[3];
  frame.flags = header[4];
  frame.stream = (static_cast<uint32_t>(header[5]) << 24 | static_cast<uint32_t>(header[6]) << 16 |
                  static_cast<uint32_t>(header[7]) << 8 | header[8]) &
                 0x7fffffffu;
  return frame;
}

bool FrameGuard::IsSlow(absl::Duration now, absl::Duration grace, double bytes_per_second) const {
  return std::any_of(calls_.begin(), calls_.end(), [&](const Call& call) {
    const double seconds = absl::ToDoubleSeconds(now - call.since);
    return call.message_left > 0 && now - call.since > grace &&
           static_cast<double>(call.unfinished()) < bytes_per_second * seconds;
  });
}

void FrameGuard::RestartMessages(absl::Duration now) {
  for (Call& call : calls_) call.since = now;
}

bool FrameGuard::request_pending() const {
  return std::any_of(calls_.begin(), calls_.end(), [](const Call& call) { return call.request_whole; });
}

size_t FrameGuard::OnClientBytes(std::string_view bytes, absl::Duration now) {
  waits_ = false;
  size_t at = 0;
  if (progress_ == Progress::kSilent) {
    const size_t have = std::min(bytes.size(), kPreface.size());
    if (bytes.substr(0, have) != kPreface.substr(0, have)) Violate("no HTTP/2 connection preface");
    if (violation_.has_value() || have < kPreface.size()) return 0;
    progress_ = Progress::kGreeted;
    at = kPreface.size();
  }
  while (!violation_.has_value() && at < bytes.size()) {
    if (left_ > 0) {
      const std::string_view payload = bytes.substr(at, left_);
      OnClientPayload(payload, now);
      left_ -= payload.size();
      at += payload.size();
      continue;
    }
    if (bytes.size() - at < kHeaderBytes) break;
    if (!BeginClientFrame(ParseHeader(Unsigned(bytes.data() + at)), now)) break;
    at += kHeaderBytes;
  }
  return violation_.has_value() ? 0 : at;
}

bool FrameGuard::BeginClientFrame(const Frame& frame, absl::Duration now) {
  if (block_frames_ > 0 && frame.type != kContinuation) return Violate("a header block without its end");
  switch (frame.type) {
    case kData:
      if (frame.size == 0 && (frame.flags & kEndStream) == 0) Allow(empty_data_, now, "frames without data");
      break;
    case kHeaders:
      if (!BeginHeaders(frame, now)) return false;
      break;
    case kContinuation:
      if (!BeginContinuation(frame)) return false;
      break;
    case kRstStream:
      OnReset(frame, now);
      break;
    case kSettings:
      Allow(settings_, now, "SETTINGS");
      break;
    case kPing:
      Allow(pings_, now, "PING");
      break;
    case kWindowUpdate:
      Allow(window_updates_, now, "WINDOW_UPDATE");
      break;
    default:
      Allow(others_, now, "frames of other types");
      break;
  }
  if (violation_.has_value()) return false;
  if (frame.type == kData || frame.type == kHeaders) ++num_call_frames_;
  frame_ = frame;
  left_ = frame.size;
  padding_ = 0;
  pad_length_due_ = frame.type == kData && (frame.flags & kPadded) != 0;
  return true;
}

bool FrameGuard::BeginHeaders(const Frame& frame, absl::Duration now) {
  // gRPC takes the padding for fields.
  if ((frame.flags & kPadded) != 0) return Violate("headers with padding");
  if (frame.size > limits_.max_header_bytes) {
    return Violate(absl::StrCat("headers of ", frame.size, " bytes, at most ", limits_.max_header_bytes));
  }
  if (frame.stream > last_stream_) {
    const bool crowded = totals_->open_calls >= limits_.crowd;
    const int limit = progress_ != Progress::kServed ? limits_.max_open_calls_unproven
                      : crowded                      ? limits_.max_open_calls_in_crowd
                                                     : limits_.max_open_calls;
    if (static_cast<int>(calls_.size()) >= limit) {
      waits_ = true;
      return false;
    }
    last_stream_ = frame.stream;
    calls_.push_back({.stream = frame.stream});
    ++totals_->open_calls;
    if (progress_ == Progress::kGreeted) progress_ = Progress::kAsked;
  } else if (!Allow(others_, now, "headers of calls that have begun")) {
    return false;
  }
  priority_left_ = (frame.flags & kPriority) != 0 ? kPriorityBytes : 0;
  fields_.BeginBlock();
  block_bytes_ = frame.size;
  block_frames_ = (frame.flags & kEndHeaders) != 0 ? 0 : 1;
  return true;
}

bool FrameGuard::BeginContinuation(const Frame& frame) {
  block_bytes_ += frame.size;
  ++block_frames_;
  if (block_bytes_ > limits_.max_header_bytes) {
    return Violate(absl::StrCat("headers of more than ", limits_.max_header_bytes, " bytes"));
  }
  if (block_frames_ > limits_.max_continuations) {
    return Violate(absl::StrCat("headers in more than ", limits_.max_continuations, " frames"));
  }
  if ((frame.flags & kEndHeaders) != 0) block_frames_ = 0;
  return true;
}

void FrameGuard::OnReset(const Frame& frame, absl::Duration now) {
  const Call* const call = Find(frame.stream);
  // Who resets what has just been answered was too late, not rude.
  if (call == nullptr) {
    Allow(others_, now, "resets of calls that are over");
    return;
  }
  if (AllowReset(now)) Remove(call);
}

void FrameGuard::OnClientPayload(std::string_view bytes, absl::Duration now) {
  if (frame_.type == kHeaders || frame_.type == kContinuation) {
    OnHeaderBytes(bytes);
  } else if (frame_.type == kData) {
    OnDataBytes(bytes, now);
  }
}

void FrameGuard::OnHeaderBytes(std::string_view bytes) {
  const size_t priority = std::min(priority_left_, bytes.size());
  priority_left_ -= priority;
  bytes.remove_prefix(priority);
  fields_.Add(bytes);
  if (fields_.malformed()) Violate("headers that are not HPACK");
  if (fields_.num_fields() > limits_.max_header_fields) {
    Violate(absl::StrCat("headers of more than ", limits_.max_header_fields, " fields"));
  }
}

void FrameGuard::OnDataBytes(std::string_view bytes, absl::Duration now) {
  if (pad_length_due_) {
    pad_length_due_ = false;
    padding_ = static_cast<unsigned char>(bytes[0]);
    if (padding_ >= left_) {
      Violate("a frame of data with more padding than bytes");
      return;
    }
    bytes.remove_prefix(1);
    // What is left of the frame behind this byte; left_ still counts it.
    if (bytes.size() > left_ - 1 - padding_) bytes = bytes.substr(0, left_ - 1 - padding_);
  } else if (bytes.size() + padding_ > left_) {
    bytes = bytes.substr(0, left_ > padding_ ? left_ - padding_ : 0);
  }
  Call* const call = Find(frame_.stream);
  if (call == nullptr) return;
  unfinished_ -= call->unfinished();
  OnMessageBytes(*call, bytes, now);
  unfinished_ += call->unfinished();
  if (unfinished_ > limits_.max_unfinished_bytes) {
    Violate(absl::StrCat(unfinished_, " bytes of messages that are not whole, at most ", limits_.max_unfinished_bytes),
            call->stream);
  }
}

void FrameGuard::OnMessageBytes(Call& call, std::string_view bytes, absl::Duration now) {
  while (!bytes.empty()) {
    if (call.prefix_have < kPrefixBytes) {
      if (call.prefix_have > 0) call.size = call.size << 8 | static_cast<unsigned char>(bytes[0]);
      ++call.prefix_have;
      bytes.remove_prefix(1);
      if (call.prefix_have < kPrefixBytes) continue;
      if (call.size > limits_.max_message_bytes) {
        Violate(absl::StrCat("a message of ", call.size, " bytes, at most ", limits_.max_message_bytes), call.stream);
        return;
      }
      call.message_left = call.size;
      call.since = now;
    } else {
      const size_t taken = static_cast<size_t>(std::min<uint64_t>(call.message_left, bytes.size()));
      call.message_left -= taken;
      bytes.remove_prefix(taken);
    }
    if (call.message_left == 0) {
      call.request_whole = true;
      call.prefix_have = 0;
      call.size = 0;
    }
  }
}

void FrameGuard::OnServerBytes(std::string_view bytes) {
  while (!bytes.empty()) {
    if (server_left_ > 0) {
      const size_t taken = std::min(server_left_, bytes.size());
      server_left_ -= taken;
      bytes.remove_prefix(taken);
      continue;
    }
    const size_t taken = std::min(kHeaderBytes - server_header_have_, bytes.size());
    std::memcpy(server_header_ + server_header_have_, bytes.data(), taken);
    server_header_have_ += taken;
    bytes.remove_prefix(taken);
    if (server_header_have_ < kHeaderBytes) return;
    server_header_have_ = 0;
    const Frame frame = ParseHeader(server_header_);
    server_left_ = frame.size;
    OnServerFrame(frame);
  }
}

void FrameGuard::OnServerFrame(const Frame& frame) {
  Call* const call = Find(frame.stream);
  if (frame.type == kData || frame.type == kHeaders) ++num_call_frames_;
  if (frame.type == kData && frame.size > 0) {
    window_updates_.Give(2);
    progress_ = Progress::kServed;
    if (call != nullptr) call->answered = true;
  }
  const bool ends =
      frame.type == kRstStream || ((frame.type == kData || frame.type == kHeaders) && (frame.flags & kEndStream) != 0);
  if (!ends || call == nullptr) return;
  if (call->answered) {
    resets_.Give(1);
    ++num_answered_;
  }
  Remove(call);
}

bool FrameGuard::AllowReset(absl::Duration now) {
  // Who has had no answer yet must not use up what the others share.
  const bool crowded = progress_ != Progress::kServed || !totals_->resets.Take(now);
  const auto few = static_cast<double>(std::max<int64_t>(limits_.max_resets_in_crowd, num_answered_));
  if (crowded && limits_.resets.burst - resets_.Level(now) >= few) return Violate("too many reset calls");
  return Allow(resets_, now, "reset calls");
}

bool FrameGuard::Allow(base::TokenBucket& bucket, absl::Duration now, const char* what) {
  return bucket.Take(now) || Violate(absl::StrCat("too many ", what));
}

FrameGuard::Call* FrameGuard::Find(uint32_t stream) {
  for (Call& call : calls_) {
    if (call.stream == stream) return &call;
  }
  return nullptr;
}

void FrameGuard::Remove(const Call* call) {
  unfinished_ -= call->unfinished();
  calls_[static_cast<size_t>(call - calls_.data())] = calls_.back();
  calls_.pop_back();
  --totals_->open_calls;
}

bool FrameGuard::Violate(std::string what, uint32_t stream) {
  if (!violation_.has_value()) violation_ = Violation{.what = std::move(what), .stream = stream};
  return false;
}

}  // namespace troupe::rpc
