#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "lib/base/token_bucket.h"
#include "lib/rpc/door/header_field_counter.h"

namespace troupe::rpc {

/// The costs that a connection may cause. Above a limit of form it is closed; above any other one its next frame waits,
/// or its next call is refused in words. Honest clients stay below, or are slowed down.
struct FrameLimits {
  // Form.
  size_t max_message_bytes = 0;
  size_t max_header_bytes = 32 << 10;  ///< of one block, CONTINUATION frames and all
  int max_continuations = 32;          ///< frames of one block
  int64_t max_header_fields = 128;     ///< of one block; a client that only does calls sends a dozen

  // Calls, some 20 KiB of gRPC's memory each. gRPC ends a connection with more than so many open.
  int max_open_calls = 64;
  /// Beyond `few_calls` of each connection: those of all connections whose first message is not whole, and those of all
  /// connections without an answer so far.
  int64_t max_silent_calls = 2048;
  int64_t max_unserved_calls = 1024;
  int few_calls = 4;

  /// RST_STREAM of open calls that gRPC hears of; each call with an answer permits one more. The others are held, and
  /// their calls count as open, until the server ends them or their time comes. So many of each connection before its
  /// first answer, and, or as many as it has had answers, while all connections together have used up `resets_of_all`.
  base::Rate resets = {64, 8};
  int few_resets = 8;
  base::Rate resets_of_all = {1024, 256};

  /// Bytes of messages that have begun and are not whole: gRPC keeps them.
  uint64_t max_unfinished_bytes = uint64_t{28} << 20;
  /// Answers to PING and SETTINGS that gRPC owes the client, who may not read them; and our refusals.
  int max_unread_replies = 256;
  size_t max_refusal_bytes = 16 << 10;

  /// Microseconds of gRPC's time for frames that lead to no answer; what the server sends gives time back. Where all
  /// have used up theirs, those wait that have used up half of their own burst.
  base::Rate work = {50'000, 20'000};
  base::Rate work_of_all = {500'000, 200'000};
};

/// The state that the connections of one server share. Confined to their thread.
struct FrameTotals {
  FrameTotals(const FrameLimits& limits, absl::Duration now)
      : resets(limits.resets_of_all, now), work(limits.work_of_all, now) {}

  int64_t silent_calls = 0;    ///< see FrameLimits
  int64_t unserved_calls = 0;  ///< see FrameLimits
  base::TokenBucket resets, work;
  int64_t num_refused = 0;   ///< calls
  std::string last_refusal;  ///< why the last one was
};

/// Reads the frames of one HTTP/2 connection as they pass by in both directions. It says when the client has sent what
/// no honest client sends, holds back what would cost gRPC 1.51 too much, and refuses calls beyond the limits in gRPC's
/// words. It does no I/O. docs/adr/0056-what-a-client-costs.md says why.
///
/// A refused call's headers go on under an even stream number. gRPC decodes them, so that its table of headers stays
/// the client's, and makes no call; the call's data it counts on the connection's window and drops.
///
/// Made by a ConnectionRelay, one for each connection; not thread-safe. It keeps some bytes for each open call, of
/// which there are at most max_open_calls. After a violation it permits nothing more.
class FrameGuard {
 public:
  /// How far the client has come; never back.
  enum class Progress {
    kSilent,   ///< the connection preface is not complete
    kGreeted,  ///< it is
    kAsked,    ///< a call has begun
    kServed,   ///< the server has sent data in answer to a call: it was a valid one
  };
  struct Violation {
    std::string what;     ///< got and expected, in words
    uint32_t stream = 0;  ///< the call that has to be told; 0: none
    bool calm = false;    ///< nothing was wrong: the client may come again at once
  };
  struct Passed {
    size_t taken = 0;  ///< of the bytes; the rest waits for more bytes, or for the server (see waits())
    size_t kept = 0;   ///< so many bytes, now at their front, go on to the server
  };

  /// `totals` outlives the guard.
  FrameGuard(const FrameLimits& limits, FrameTotals* totals, absl::Duration now);
  ~FrameGuard();
  FrameGuard(const FrameGuard&) = delete;
  FrameGuard& operator=(const FrameGuard&) = delete;

  /// The next bytes of the client, those that were not taken the last time first. It changes them in place.
  Passed OnClientBytes(char* bytes, size_t size, absl::Duration now);
  /// Frames for the server that are none of the client's: send them where client_between_frames, and erase what was
  /// sent. While there are any, no frame of the client begins.
  std::string& for_server() { return for_server_; }
  bool client_between_frames() const { return left_ == 0 && block_frames_ == 0; }
  /// The next bytes of the server. Returns how many of them may go on; the rest waits for for_client().
  size_t OnServerBytes(std::string_view bytes);
  /// Answers to refused calls: send them where server_between_frames, and erase what was sent.
  std::string& for_client() { return for_client_; }
  /// Where a frame of ours may stand, once the server has begun: its first frame has to be the connection's.
  bool server_between_frames() const { return !server_.in_block && server_.header_have == 0 && server_.left == 0; }
  bool server_began() const { return server_.began; }
  /// Held resets whose time has come join for_server().
  void ReleaseResets(absl::Duration now);
  bool holds_resets() const { return num_held_resets_ > 0; }

  const std::optional<Violation>& violation() const { return violation_; }
  /// The relay has found something: a violation as of the guard's own, or, where it is `calm`, none.
  void EndFor(std::string what, bool calm);
  /// Bytes of the messages that have begun and are not whole.
  uint64_t unfinished_bytes() const { return unfinished_; }
  /// True where a message has not become whole in `grace`, and so few bytes a second of all messages came since it
  /// began.
  bool IsSlow(absl::Duration now, absl::Duration grace, double bytes_per_second) const;
  /// Seconds that its unfinished bytes would take at the rate at which its messages come in; 0: it has none;
  /// infinity: some are of a call whose reset is held.
  double HoldingTime(absl::Duration now) const;
  /// The client was kept waiting: for IsSlow all messages begin now.
  void RestartMessages(absl::Duration now);
  Progress progress() const { return progress_; }
  /// The client's next frame has to wait: until the client has read its answers, or for some milliseconds.
  bool waits() const { return waits_; }
  bool has_open_calls() const { return !calls_.empty(); }
  /// Frames of calls so far, of both sides: it changes where something happens that is no housekeeping.
  uint64_t num_call_frames() const { return num_call_frames_; }
  /// A whole request lies with the server, which has neither answered nor refused it so far.
  bool request_pending() const;

 private:
  /// A call that neither side has ended. Its messages are 1 byte (compressed), 4 bytes of size, and that many bytes.
  struct Call {
    uint32_t stream = 0;
    uint32_t prefix_have = 0;
    uint32_t size = 0;
    uint64_t message_left = 0;
    absl::Duration since;   ///< the message has begun
    uint64_t received = 0;  ///< of the connection's messages before it began
    bool request_whole = false;
    bool answered = false;
    bool reset_held = false;

    uint64_t unfinished() const { return message_left == 0 ? 0 : size - message_left; }
  };
  struct Frame {
    size_t size = 0;
    uint8_t type = 0;
    uint8_t flags = 0;
    uint32_t stream = 0;
  };

  static Frame ParseHeader(const char* header);
  /// False where the frame has to wait, or is a violation. May change the header, and set drop_.
  bool BeginClientFrame(char* header, absl::Duration now);
  bool BeginHeaders(const Frame& frame);
  bool BeginContinuation(const Frame& frame);
  void OnClientPayload(std::string_view bytes, absl::Duration now);
  void OnHeaderBytes(std::string_view bytes);
  void OnDataBytes(std::string_view bytes, absl::Duration now);
  void OnMessageBytes(Call& call, std::string_view bytes, absl::Duration now);
  void OnReset(const Frame& frame, absl::Duration now);
  void OnServerFrame(const Frame& frame);
  /// Why one more call may not be opened; empty: it may.
  std::string WhyNoCall() const;
  void Open(uint32_t stream);
  bool AllowReset(absl::Duration now);
  bool HasWorkedTooMuch(absl::Duration now);
  bool OweReply();
  bool Wait();
  /// The unfinished message that began first; nullptr: there is none.
  const Call* OldestMessage() const;
  Call* Find(uint32_t stream);
  void Remove(const Call* call);
  bool Violate(std::string what, uint32_t stream = 0);

  const FrameLimits limits_;
  FrameTotals* const totals_;
  base::TokenBucket resets_, work_;
  std::vector<Call> calls_;
  uint64_t unfinished_ = 0;
  uint32_t last_stream_ = 0;
  int64_t num_answered_ = 0;  ///< calls
  int num_held_resets_ = 0;
  int num_owed_replies_ = 0;
  uint64_t received_ = 0;  ///< bytes of messages
  uint64_t num_call_frames_ = 0;
  Progress progress_ = Progress::kSilent;
  bool waits_ = false;
  std::optional<Violation> violation_;
  std::string for_server_, for_client_;

  // The client's frame under way.
  Frame frame_;
  size_t left_ = 0;     // bytes of its payload
  size_t padding_ = 0;  // the last ones of these
  bool pad_length_due_ = false;
  bool drop_ = false;         // nobody needs it
  bool block_aside_ = false;  // the header block under way makes no call
  size_t block_bytes_ = 0;    // of the header block under way
  int block_frames_ = 0;
  size_t priority_left_ = 0;  // bytes before its fields
  HeaderFieldCounter fields_;

  struct ServerSide {
    char header[9] = {};
    size_t header_have = 0;
    size_t left = 0;  ///< bytes of the frame under way
    bool began = false, in_block = false;
  };
  ServerSide server_;
};

}  // namespace troupe::rpc
