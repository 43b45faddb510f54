#include "lib/rpc/door/frame_guard.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/rpc/door/frame.h"

namespace troupe::rpc {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kHeaderBytes = 9;
constexpr uint32_t kPrefixBytes = 5;

constexpr size_t kPriorityBytes = 5;

/// The price of a frame: microseconds of gRPC's time, as docs/adr/0056-what-a-client-costs.md has measured it.
constexpr double kPriceOfCall = 40, kPriceOfReset = 100, kPriceOfPing = 11, kPriceOfSettings = 2,
                 kPriceOfHeaderByte = 0.002, kPriceOfFrame = 0.5;
/// Data of so many bytes and more are what a connection is for.
constexpr size_t kPricelessBytes = 64;
/// Data from the server gives time back: the PING and the window updates that follow it, and, the first of a call, what
/// that call and its reset cost.
constexpr double kWorthOfData = kPriceOfPing + 4 * kPriceOfFrame, kWorthOfAnswer = kPriceOfCall + kPriceOfReset;

/// gRPC's RESOURCE_EXHAUSTED, in the digits of grpc-status.
constexpr std::string_view kResourceExhausted = "8";
/// The longest text that HPACK's one byte of length announces.
constexpr size_t kMaxTextBytes = 126;

void AppendText(std::string& out, std::string_view text) {
  out.push_back(static_cast<char>(text.size()));
  out.append(text);
}

/// The header block of a call that ends at once. Nothing in it enters the connection's table of headers, which gRPC
/// fills without knowing of this block (RFC 7541, section 6.2.2).
std::string RefusalBlock(std::string_view why) {
  std::string block = "\x88";           // ":status: 200", of the static table
  block += std::string("\x0f\x10", 2);  // its name "content-type"
  AppendText(block, "application/grpc");
  block.push_back('\0');
  AppendText(block, "grpc-status");
  AppendText(block, kResourceExhausted);
  block.push_back('\0');
  AppendText(block, "grpc-message");
  AppendText(block, why.substr(0, kMaxTextBytes));
  return block;
}

bool IsOfClient(uint32_t stream) { return (stream & 1) != 0; }

/// gRPC makes no call of headers on an even stream.
void MoveAside(char* header, uint32_t stream) {
  std::string even;
  AppendUint32(even, stream == 1 ? 2 : stream - 1);
  std::memcpy(header + kHeaderBytes - even.size(), even.data(), even.size());
}

}  // namespace

FrameGuard::FrameGuard(const FrameLimits& limits, FrameTotals* totals, const std::string& host, absl::Duration now)
    : limits_(limits),
      totals_(totals),
      address_(*totals->addresses.try_emplace(host, FrameTotals::Address{{limits.work_of_address, now}}).first),
      resets_(limits.resets, now),
      work_(limits.work, now) {
  ++address_.second.connections;
}

FrameGuard::~FrameGuard() {
  while (!calls_.empty()) Remove(&calls_.back());
  if (--address_.second.connections == 0) totals_->addresses.erase(address_.first);
}

FrameGuard::Frame FrameGuard::ParseHeader(const char* bytes) {
  const auto* header = reinterpret_cast<const unsigned char*>(bytes);
  Frame frame;
  frame.size = static_cast<size_t>(header[0]) << 16 | static_cast<size_t>(header[1]) << 8 | header[2];
  frame.type = header[3];
  frame.flags = header[4];
  frame.stream = (static_cast<uint32_t>(header[5]) << 24 | static_cast<uint32_t>(header[6]) << 16 |
                  static_cast<uint32_t>(header[7]) << 8 | header[8]) &
                 0x7fffffffu;
  return frame;
}

const FrameGuard::Call* FrameGuard::OldestMessage() const {
  const Call* oldest = nullptr;
  for (const Call& call : calls_) {
    // No more bytes come for a call that was reset.
    if (call.requests.left > 0 && !call.reset_held && (oldest == nullptr || call.since < oldest->since)) oldest = &call;
  }
  return oldest;
}

bool FrameGuard::IsSlow(absl::Duration now, absl::Duration grace, double bytes_per_second) const {
  const Call* const oldest = OldestMessage();
  if (oldest == nullptr || now - oldest->since <= grace) return false;
  const auto received = static_cast<double>(bytes_.received - oldest->received);
  return received < bytes_per_second * absl::ToDoubleSeconds(now - oldest->since);
}

uint64_t FrameGuard::missing_bytes() const {
  uint64_t missing = 0;
  for (const Call& call : calls_) missing += call.requests.left;
  return missing;
}

double FrameGuard::HoldingTime(absl::Duration now, absl::Duration stopped) const {
  for (const Call& call : calls_) {
    if (call.reset_held && call.requests.unfinished() > 0) return std::numeric_limits<double>::infinity();
  }
  const double unanswered = bytes_.waiting == 0 ? 0 : absl::ToDoubleSeconds(now - bytes_.answered_at);
  const Call* const oldest = OldestMessage();
  if (oldest == nullptr) return unanswered;
  const double seconds = std::max(1.0, absl::ToDoubleSeconds(std::min(now, stopped) - oldest->since));
  const auto received = static_cast<double>(std::max<uint64_t>(1, bytes_.received - oldest->received));
  return std::max(unanswered, static_cast<double>(bytes_.unfinished) * seconds / received);
}

void FrameGuard::RestartMessages(absl::Duration now) {
  for (Call& call : calls_) {
    call.since = now;
    call.received = bytes_.received;
  }
}

bool FrameGuard::request_pending() const {
  return std::any_of(calls_.begin(), calls_.end(), [](const Call& call) { return call.requests.num_whole > 0; });
}

void FrameGuard::EndFor(DoorReason reason, std::string what, bool calm) {
  if (!violation_.has_value()) violation_ = Violation{.what = std::move(what), .reason = reason, .calm = calm};
}

void FrameGuard::Pass(Passed& passed, char* bytes, size_t count, bool keep) {
  if (keep && passed.kept != passed.taken) std::memmove(bytes + passed.kept, bytes + passed.taken, count);
  if (keep) passed.kept += count;
  passed.taken += count;
}

FrameGuard::Passed FrameGuard::OnClientBytes(char* bytes, size_t size, absl::Duration now) {
  waits_ = false;
  Passed passed;
  if (progress_ == Progress::kSilent) {
    const size_t have = std::min(size, kPreface.size());
    if (std::string_view(bytes, have) != kPreface.substr(0, have)) Violate("no HTTP/2 connection preface");
    if (violation_.has_value() || have < kPreface.size()) return {};
    progress_ = Progress::kGreeted;
    Pass(passed, bytes, kPreface.size(), true);
  }
  while (!violation_.has_value() && passed.taken < size) {
    if (client_.left > 0) {
      const std::string_view payload(bytes + passed.taken, std::min(client_.left, size - passed.taken));
      OnClientPayload(payload, now);
      client_.left -= payload.size();
      Pass(passed, bytes, payload.size(), !client_.drop);
      continue;
    }
    if (size - passed.taken < kHeaderBytes || (client_.block_frames == 0 && !for_server_.empty())) break;
    if (!BeginClientFrame(bytes + passed.taken, now)) break;
    Pass(passed, bytes, kHeaderBytes, !client_.drop);
  }
  if (violation_.has_value()) return {};
  return passed;
}

bool FrameGuard::BeginClientFrame(char* header, absl::Duration now) {
  const Frame frame = ParseHeader(header);
  if (client_.block_frames > 0 && frame.type != kContinuationFrame) return Violate("a header block without its end");
  if (client_.block_frames == 0 && HasWorkedTooMuch(now)) return Wait();
  double price = kPriceOfFrame;
  client_.drop = false;
  switch (frame.type) {
    case kDataFrame:
      if (frame.size >= kPricelessBytes) price = 0;
      window_.left -= static_cast<int64_t>(frame.size);
      if (window_.left < 0) return Violate("more data than the connection's window");
      break;
    case kHeadersFrame:
      if (!BeginHeaders(frame)) return false;
      if (client_.block_aside) MoveAside(header, frame.stream);
      price = kPriceOfCall + kPriceOfHeaderByte * static_cast<double>(frame.size);
      break;
    case kContinuationFrame:
      if (!BeginContinuation(frame)) return false;
      if (client_.block_aside) MoveAside(header, frame.stream);
      price += kPriceOfHeaderByte * static_cast<double>(frame.size);
      break;
    case kRstStreamFrame:
      OnReset(frame, now);
      if (!client_.drop) price = kPriceOfReset;
      break;
    case kSettingsFrame:
      price = kPriceOfSettings;
      if ((frame.flags & kAck) == 0 && !OweReply()) return false;
      break;
    case kPingFrame:
      price = kPriceOfPing;
      if ((frame.flags & kAck) == 0 && !OweReply()) return false;
      break;
    case kWindowUpdateFrame:
      client_.drop = frame.stream != 0 && Find(frame.stream) == nullptr;
      break;
    default:
      break;
  }
  work_.Spend(price, now);
  address_.second.work.Spend(price, now);
  totals_->work.Spend(price, now);
  if (frame.type == kDataFrame || frame.type == kHeadersFrame) ++num_call_frames_;
  client_.frame = frame;
  client_.left = frame.size;
  client_.padding = 0;
  client_.pad_length_due = frame.type == kDataFrame && (frame.flags & kPadded) != 0;
  return true;
}

bool FrameGuard::BeginHeaders(const Frame& frame) {
  // gRPC takes the padding for fields.
  if ((frame.flags & kPadded) != 0) return Violate("headers with padding");
  if (frame.size > limits_.max_header_bytes) {
    return Violate(absl::StrCat("headers of ", frame.size, " bytes, at most ", limits_.max_header_bytes));
  }
  if (for_client_.size() >= limits_.max_refusal_bytes) return Wait();
  client_.block_aside = IsOfClient(frame.stream) && Find(frame.stream) == nullptr;
  if (client_.block_aside && frame.stream > last_stream_) {
    last_stream_ = frame.stream;
    if (std::optional<Refusal> refusal = WhyNoCall(); refusal.has_value()) {
      AppendFrame(for_client_, kHeadersFrame, kEndHeaders | kEndStream, frame.stream, RefusalBlock(refusal->why));
      ++totals_->num_refused;
      totals_->refused_for = refusal->reason;
      totals_->last_refusal = std::move(refusal->why);
    } else {
      Open(frame.stream);
      client_.block_aside = false;
    }
  }
  client_.priority_left = (frame.flags & kPriority) != 0 ? kPriorityBytes : 0;
  client_.fields.BeginBlock();
  client_.block_bytes = frame.size;
  client_.block_frames = (frame.flags & kEndHeaders) != 0 ? 0 : 1;
  return true;
}

std::optional<FrameGuard::Refusal> FrameGuard::WhyNoCall() const {
  const auto open = static_cast<int>(calls_.size());
  if (open >= limits_.max_open_calls) {
    return Refusal{DoorReason::kOpenCalls,
                   absl::StrCat("this connection has ", open, " open calls, at most ", limits_.max_open_calls)};
  }
  if (open < limits_.few_calls) return std::nullopt;
  if (totals_->silent_calls >= limits_.max_silent_calls) {
    return Refusal{DoorReason::kSilentCalls,
                   absl::StrCat("all connections have ", totals_->silent_calls, " calls without a request, at most ",
                                limits_.max_silent_calls)};
  }
  if (progress_ != Progress::kServed && totals_->unserved_calls >= limits_.max_unserved_calls) {
    return Refusal{DoorReason::kNewCalls, absl::StrCat("new connections have ", totals_->unserved_calls,
                                                       " open calls, at most ", limits_.max_unserved_calls)};
  }
  return std::nullopt;
}

void FrameGuard::Open(uint32_t stream) {
  calls_.push_back({.stream = stream});
  ++totals_->silent_calls;
  if (progress_ != Progress::kServed) ++totals_->unserved_calls;
  if (progress_ == Progress::kGreeted) progress_ = Progress::kAsked;
}

bool FrameGuard::BeginContinuation(const Frame& frame) {
  client_.block_bytes += frame.size;
  ++client_.block_frames;
  if (client_.block_bytes > limits_.max_header_bytes) {
    return Violate(absl::StrCat("headers of more than ", limits_.max_header_bytes, " bytes"));
  }
  if (client_.block_frames > limits_.max_continuations) {
    return Violate(absl::StrCat("headers in more than ", limits_.max_continuations, " frames"));
  }
  if ((frame.flags & kEndHeaders) != 0) client_.block_frames = 0;
  return true;
}

void FrameGuard::OnReset(const Frame& frame, absl::Duration now) {
  Call* const call = Find(frame.stream);
  client_.drop = true;
  if (call == nullptr || call->reset_held) return;
  if (AllowReset(now)) {
    client_.drop = false;
    Remove(call);
  } else {
    call->reset_held = true;
    ++num_held_resets_;
  }
}

void FrameGuard::ReleaseResets(absl::Duration now) {
  for (size_t i = 0; num_held_resets_ > 0 && i < calls_.size();) {
    if (!calls_[i].reset_held) {
      ++i;
      continue;
    }
    if (!AllowReset(now)) return;
    std::string reason;
    AppendUint32(reason, static_cast<uint32_t>(Http2Error::kCancel));
    AppendFrame(for_server_, kRstStreamFrame, 0, calls_[i].stream, reason);
    Remove(&calls_[i]);
  }
}

void FrameGuard::OnClientPayload(std::string_view bytes, absl::Duration now) {
  if (client_.frame.type == kHeadersFrame || client_.frame.type == kContinuationFrame) {
    OnHeaderBytes(bytes);
  } else if (client_.frame.type == kDataFrame) {
    OnDataBytes(bytes, now);
  }
}

void FrameGuard::OnHeaderBytes(std::string_view bytes) {
  const size_t priority = std::min(client_.priority_left, bytes.size());
  client_.priority_left -= priority;
  bytes.remove_prefix(priority);
  client_.fields.Add(bytes);
  if (client_.fields.malformed()) Violate("headers that are not HPACK");
  if (client_.fields.num_fields() > limits_.max_header_fields) {
    Violate(absl::StrCat("headers of more than ", limits_.max_header_fields, " fields"));
  }
}

void FrameGuard::OnDataBytes(std::string_view bytes, absl::Duration now) {
  if (client_.pad_length_due) {
    client_.pad_length_due = false;
    client_.padding = static_cast<unsigned char>(bytes[0]);
    if (client_.padding >= client_.left) {
      Violate("a frame of data with more padding than bytes");
      return;
    }
    bytes.remove_prefix(1);
    // client_.left still counts this byte.
    if (bytes.size() > client_.left - 1 - client_.padding) bytes = bytes.substr(0, client_.left - 1 - client_.padding);
  } else if (bytes.size() + client_.padding > client_.left) {
    bytes = bytes.substr(0, client_.left > client_.padding ? client_.left - client_.padding : 0);
  }
  Call* const call = Find(client_.frame.stream);
  if (call == nullptr) return;
  bytes_.received += bytes.size();
  bytes_.unfinished -= call->requests.unfinished();
  OnRequestBytes(*call, bytes, now);
  bytes_.unfinished += call->requests.unfinished();
  if (bytes_.unfinished > limits_.max_unfinished_bytes) {
    Violate(absl::StrCat(bytes_.unfinished, " bytes of messages that are not whole, at most ",
                         limits_.max_unfinished_bytes),
            call->stream, DoorReason::kMessages);
  }
}

void FrameGuard::OnRequestBytes(Call& call, std::string_view bytes, absl::Duration now) {
  while (!bytes.empty()) {
    const Messages::Step step = call.requests.Take(bytes);
    if (step == Messages::Step::kBegun) {
      if (call.requests.size > limits_.max_message_bytes) {
        Violate(absl::StrCat("a message of ", call.requests.size, " bytes, at most ", limits_.max_message_bytes),
                call.stream);
        return;
      }
      call.since = now;
      call.received = bytes_.received - bytes.size();
    } else if (step == Messages::Step::kWhole) {
      if (call.requests.num_whole == 1) --totals_->silent_calls;
      if (bytes_.waiting == 0) bytes_.answered_at = now;
      call.waiting_newer += call.requests.last_size;
      bytes_.waiting += call.requests.last_size;
    }
  }
}

FrameGuard::Messages::Step FrameGuard::Messages::Take(std::string_view& bytes) {
  if (prefix_have < kPrefixBytes) {
    if (prefix_have > 0) size = size << 8 | static_cast<unsigned char>(bytes[0]);
    bytes.remove_prefix(1);
    if (++prefix_have < kPrefixBytes) return Step::kPart;
    left = size;
    if (left > 0) return Step::kBegun;
  } else {
    const auto taken = static_cast<uint32_t>(std::min<size_t>(left, bytes.size()));
    left -= taken;
    bytes.remove_prefix(taken);
    if (left > 0) return Step::kPart;
  }
  last_size = std::exchange(size, 0);
  prefix_have = 0;
  ++num_whole;
  return Step::kWhole;
}

FrameGuard::Passed FrameGuard::OnServerBytes(char* bytes, size_t size, absl::Duration now) {
  Passed passed;
  while (passed.taken < size) {
    if (server_.left > 0) {
      const std::string_view payload(bytes + passed.taken, std::min(server_.left, size - passed.taken));
      OnServerPayload(payload, now);
      server_.left -= payload.size();
      Pass(passed, bytes, payload.size(), !server_.drop);
      continue;
    }
    const bool ours_first = !for_client_.empty() && server_.began && server_between_frames();
    if (ours_first || size - passed.taken < kHeaderBytes) break;
    server_.frame = ParseHeader(bytes + passed.taken);
    server_.left = server_.frame.size;
    server_.began = true;
    OnServerFrame(server_.frame);
    Pass(passed, bytes, kHeaderBytes, !server_.drop);
  }
  return passed;
}

void FrameGuard::OnServerFrame(const Frame& frame) {
  Call* const call = Find(frame.stream);
  if (frame.type == kHeadersFrame || frame.type == kContinuationFrame)
    server_.in_block = (frame.flags & kEndHeaders) == 0;
  if (frame.type == kDataFrame || frame.type == kHeadersFrame) ++num_call_frames_;
  if ((frame.type == kPingFrame || frame.type == kSettingsFrame) && (frame.flags & kAck) != 0) {
    num_owed_replies_ = std::max(0, num_owed_replies_ - 1);
  }
  server_.increment = 0;
  server_.drop = frame.type == kWindowUpdateFrame && frame.stream == 0 && !window_.grants_all;
  if (frame.type == kDataFrame && frame.size > 0) {
    const bool first = call != nullptr && !std::exchange(call->answered, true);
    const double worth = kWorthOfData + (first ? kWorthOfAnswer : 0);
    work_.Give(worth);
    address_.second.work.Give(worth);
    totals_->work.Give(worth);
    if (progress_ != Progress::kServed) totals_->unserved_calls -= static_cast<int64_t>(calls_.size());
    progress_ = Progress::kServed;
    // It was an honest call, and permits a reset, its own among them.
    if (first) {
      resets_.Give(1);
      ++num_answered_;
    }
  }
  const bool ends = frame.type == kRstStreamFrame ||
                    ((frame.type == kDataFrame || frame.type == kHeadersFrame) && (frame.flags & kEndStream) != 0);
  if (ends && call != nullptr) Remove(call);
}

void FrameGuard::OnServerPayload(std::string_view bytes, absl::Duration now) {
  const Frame& frame = server_.frame;
  if (frame.type == kDataFrame) {
    if (Call* const call = Find(frame.stream); call != nullptr) OnAnswerBytes(*call, bytes, now);
  } else if (frame.type == kWindowUpdateFrame && frame.stream == 0) {
    for (const char byte : bytes) server_.increment = server_.increment << 8 | static_cast<unsigned char>(byte);
    if (bytes.size() < server_.left) return;
    if (window_.grants_all) {
      window_.left += server_.increment;
    } else {
      window_.withheld += server_.increment;
    }
  }
}

void FrameGuard::OnAnswerBytes(Call& call, std::string_view bytes, absl::Duration now) {
  while (!bytes.empty()) {
    if (call.answers.Take(bytes) != Messages::Step::kWhole) continue;
    bytes_.answered_at = now;
    bytes_.waiting -= call.waiting();
    if (call.answers.num_whole >= call.requests.num_whole) {
      call.waiting_older = call.waiting_newer = 0;
    } else if (call.answers.num_whole >= call.asked) {
      call.waiting_older = std::exchange(call.waiting_newer, 0);
      call.asked = call.requests.num_whole;
    }
    bytes_.waiting += call.waiting();
  }
}

void FrameGuard::Grant(uint64_t bytes) {
  window_.withheld -= bytes;
  window_.left += static_cast<int64_t>(bytes);
  std::string increment;
  AppendUint32(increment, static_cast<uint32_t>(bytes));
  AppendFrame(for_client_, kWindowUpdateFrame, 0, 0, increment);
}

void FrameGuard::GrantAll() {
  if (window_.withheld > 0) Grant(window_.withheld);
  window_.grants_all = true;
}

bool FrameGuard::AllowReset(absl::Duration now) {
  if (resets_.Level(now) < 1) return false;
  // A connection without an answer so far must not use up the share of the others.
  const bool crowded = progress_ != Progress::kServed || !totals_->resets.Take(now);
  const auto few = static_cast<double>(std::max<int64_t>(limits_.few_resets, num_answered_));
  if (crowded && limits_.resets.burst - resets_.Level(now) >= few) return false;
  return resets_.Take(now);
}

bool FrameGuard::HasWorkedTooMuch(absl::Duration now) {
  const double level = work_.Level(now);
  // A connection with more than half of its own left is none of those that use up what all have.
  const double shared = std::min(address_.second.work.Level(now), totals_->work.Level(now));
  return level < 0 || (level < limits_.work.burst / 2 && shared < 0);
}

bool FrameGuard::OweReply() {
  if (num_owed_replies_ >= limits_.max_unread_replies) return Wait();
  ++num_owed_replies_;
  return true;
}

bool FrameGuard::Wait() {
  waits_ = true;
  return false;
}

FrameGuard::Call* FrameGuard::Find(uint32_t stream) {
  for (Call& call : calls_) {
    if (call.stream == stream) return &call;
  }
  return nullptr;
}

void FrameGuard::Remove(const Call* call) {
  bytes_.unfinished -= call->requests.unfinished();
  bytes_.waiting -= call->waiting();
  if (call->requests.num_whole == 0) --totals_->silent_calls;
  if (progress_ != Progress::kServed) --totals_->unserved_calls;
  if (call->reset_held) --num_held_resets_;
  calls_[static_cast<size_t>(call - calls_.data())] = calls_.back();
  calls_.pop_back();
}

bool FrameGuard::Violate(std::string what, uint32_t stream, DoorReason reason) {
  if (!violation_.has_value()) violation_ = Violation{.what = std::move(what), .reason = reason, .stream = stream};
  return false;
}

}  // namespace troupe::rpc
