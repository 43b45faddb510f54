#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "lib/base/token_bucket.h"
#include "lib/rpc/door/door_counts.h"
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
  int64_t max_unserved_calls = 2560;
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
  /// those of an address, or all there are, have used up theirs, those wait that have used up half of their own burst.
  base::Rate work = {50'000, 20'000};
  base::Rate work_of_address = {250'000, 100'000};
  base::Rate work_of_all = {500'000, 200'000};
};

/// The state that the connections of one server share. Confined to their thread.
struct FrameTotals {
  FrameTotals(const FrameLimits& limits, absl::Duration now)
      : resets(limits.resets_of_all, now), work(limits.work_of_all, now) {}

  int64_t silent_calls = 0;    ///< see FrameLimits
  int64_t unserved_calls = 0;  ///< see FrameLimits
  base::TokenBucket resets, work;
  struct Address {
    base::TokenBucket work;
    int64_t connections = 0;
  };
  std::map<std::string, Address> addresses;         ///< those that have connections, by Peer::host
  int64_t num_refused = 0;                          ///< calls
  DoorReason refused_for = DoorReason::kOpenCalls;  ///< the last one
  std::string last_refusal;                         ///< the same in words
};

/// Reads the frames of one HTTP/2 connection as they pass by in both directions. It says when the client has sent what
/// no honest client sends, holds back what would cost gRPC 1.51 too much, and refuses calls beyond the limits in gRPC's
/// words. It does no I/O. docs/adr/0056-what-a-client-costs.md says why.
///
/// The window of the connection, which gRPC renews though nobody reads, it withholds until it is told to grant it: what
/// the client may send, and what of it waits, is known. Frames without data need no window, so nothing stands still.
///
/// A refused call's headers go on under an even stream number. gRPC decodes them, so that its table of headers stays
/// the client's, and makes no call; the call's data it counts on the connection's window and drops.
///
/// Made by a ConnectionRelay, one for each connection; not thread-safe. It keeps some bytes for each open call, of
/// which there are at most max_open_calls. After a violation it permits nothing more.
class FrameGuard {
 public:
  /// A connection's window at its beginning, which HTTP/2 has fixed.
  static constexpr int64_t kFirstWindow = 65535;

  /// How far the client has come; never back.
  enum class Progress {
    kSilent,   ///< the connection preface is not complete
    kGreeted,  ///< it is
    kAsked,    ///< a call has begun
    kServed,   ///< the server has sent data in answer to a call: it was a valid one
  };
  struct Violation {
    std::string what;  ///< got and expected, in words
    DoorReason reason = DoorReason::kForm;
    uint32_t stream = 0;  ///< the call that has to be told; 0: none
    bool calm = false;    ///< nothing was wrong: the client may come again at once
  };
  struct Passed {
    size_t taken = 0;  ///< of the bytes; the rest waits for more bytes, or for the server (see waits())
    size_t kept = 0;   ///< so many bytes, now at their front, go on to the server
  };

  /// `totals` outlives the guard. `host`: the client's address.
  FrameGuard(const FrameLimits& limits, FrameTotals* totals, const std::string& host, absl::Duration now);
  ~FrameGuard();
  FrameGuard(const FrameGuard&) = delete;
  FrameGuard& operator=(const FrameGuard&) = delete;

  /// The next bytes of the client, those that were not taken the last time first. It changes them in place.
  Passed OnClientBytes(char* bytes, size_t size, absl::Duration now);
  /// Frames for the server that are none of the client's: send them where client_between_frames, and erase what was
  /// sent. While there are any, no frame of the client begins.
  std::string& for_server() { return for_server_; }
  bool client_between_frames() const { return client_.left == 0 && client_.block_frames == 0; }
  /// The next bytes of the server, as OnClientBytes; what is not taken waits for for_client(), or for more bytes.
  Passed OnServerBytes(char* bytes, size_t size, absl::Duration now);
  /// Answers to refused calls, and windows: send them where server_between_frames, and erase what was sent.
  std::string& for_client() { return for_client_; }
  /// Where a frame of ours may stand, once the server has begun: its first frame has to be the connection's.
  bool server_between_frames() const { return !server_.in_block && server_.left == 0; }
  bool server_began() const { return server_.began; }
  /// Held resets whose time has come join for_server().
  void ReleaseResets(absl::Duration now);
  bool holds_resets() const { return num_held_resets_ > 0; }

  const std::optional<Violation>& violation() const { return violation_; }
  /// The relay has found something: a violation as of the guard's own, or, where it is `calm`, none.
  void EndFor(DoorReason reason, std::string what, bool calm);
  /// Bytes of the messages that have begun and are not whole.
  uint64_t unfinished_bytes() const { return bytes_.unfinished; }
  /// Bytes that these lack.
  uint64_t missing_bytes() const;
  /// Bytes of whole requests that have no whole answer; at most twice that where many are under way in one call. The
  /// server has not read them, or its answers wait for the client.
  uint64_t waiting_bytes() const { return bytes_.waiting; }
  /// Bytes that the client may send, and those of the connection's window that gRPC has given and the client has not.
  uint64_t window() const { return static_cast<uint64_t>(window_.left); }
  uint64_t withheld() const { return window_.withheld; }
  /// The client may send so many bytes more, at most withheld().
  void Grant(uint64_t bytes);
  /// From now on the window that gRPC gives goes on at once.
  void GrantAll();
  /// True where a message has not become whole in `grace`, and so few bytes a second of all messages came since it
  /// began.
  bool IsSlow(absl::Duration now, absl::Duration grace, double bytes_per_second) const;
  /// Seconds that its unfinished bytes would take at the rate at which its messages come in, or, where that is longer,
  /// that its requests have waited without one of them being answered. 0: there are none; infinity: some bytes are of
  /// a call whose reset is held. The client has been without a window since `stopped`.
  double HoldingTime(absl::Duration now, absl::Duration stopped) const;
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
  /// The messages of one direction of a call: each is 1 byte (compressed), 4 bytes of size, and that many bytes.
  struct Messages {
    enum class Step { kPart, kBegun, kWhole };

    uint32_t prefix_have = 0;
    uint32_t size = 0;       ///< of the one under way
    uint32_t left = 0;       ///< of that
    uint32_t last_size = 0;  ///< of the last whole one
    int64_t num_whole = 0;

    /// Takes bytes up to the end of a prefix or of a message, which it says.
    Step Take(std::string_view& bytes);
    uint32_t unfinished() const { return left == 0 ? 0 : size - left; }
  };
  /// A call that neither side has ended.
  struct Call {
    uint32_t stream = 0;
    Messages requests, answers;
    absl::Duration since;   ///< the request has begun
    uint64_t received = 0;  ///< of the connection's messages before it began
    /// Bytes of whole requests: of those up to `asked`, and after them. Where so many are answered, so are the older.
    uint64_t waiting_older = 0, waiting_newer = 0;
    int64_t asked = 0;
    bool answered = false;
    bool reset_held = false;

    uint64_t waiting() const { return waiting_older + waiting_newer; }
  };
  struct Frame {
    size_t size = 0;
    uint8_t type = 0;
    uint8_t flags = 0;
    uint32_t stream = 0;
  };

  static Frame ParseHeader(const char* header);
  static void Pass(Passed& passed, char* bytes, size_t count, bool keep);
  /// False where the frame has to wait, or is a violation. May change the header, and set client_.drop.
  bool BeginClientFrame(char* header, absl::Duration now);
  bool BeginHeaders(const Frame& frame);
  bool BeginContinuation(const Frame& frame);
  void OnClientPayload(std::string_view bytes, absl::Duration now);
  void OnHeaderBytes(std::string_view bytes);
  void OnDataBytes(std::string_view bytes, absl::Duration now);
  void OnRequestBytes(Call& call, std::string_view bytes, absl::Duration now);
  void OnServerPayload(std::string_view bytes, absl::Duration now);
  void OnAnswerBytes(Call& call, std::string_view bytes, absl::Duration now);
  void OnReset(const Frame& frame, absl::Duration now);
  void OnServerFrame(const Frame& frame);
  struct Refusal {
    DoorReason reason;
    std::string why;
  };
  /// Why one more call may not be opened; nullopt: it may.
  std::optional<Refusal> WhyNoCall() const;
  void Open(uint32_t stream);
  bool AllowReset(absl::Duration now);
  bool HasWorkedTooMuch(absl::Duration now);
  bool OweReply();
  bool Wait();
  /// The unfinished message that began first; nullptr: there is none.
  const Call* OldestMessage() const;
  Call* Find(uint32_t stream);
  void Remove(const Call* call);
  bool Violate(std::string what, uint32_t stream = 0, DoorReason reason = DoorReason::kForm);

  const FrameLimits limits_;
  FrameTotals* const totals_;
  std::pair<const std::string, FrameTotals::Address>& address_;
  base::TokenBucket resets_, work_;
  std::vector<Call> calls_;
  struct MessageBytes {
    uint64_t received = 0;
    uint64_t unfinished = 0, waiting = 0;
    absl::Duration answered_at;  ///< the last request, or since when some wait
  };
  MessageBytes bytes_;
  struct Window {
    int64_t left = kFirstWindow;  ///< the client may send
    uint64_t withheld = 0;
    bool grants_all = false;
  };
  Window window_;
  uint32_t last_stream_ = 0;
  int64_t num_answered_ = 0;  ///< calls
  int num_held_resets_ = 0;
  int num_owed_replies_ = 0;
  uint64_t num_call_frames_ = 0;
  Progress progress_ = Progress::kSilent;
  bool waits_ = false;
  std::optional<Violation> violation_;
  std::string for_server_, for_client_;

  struct ClientSide {
    Frame frame;         ///< under way
    size_t left = 0;     ///< bytes of its payload
    size_t padding = 0;  ///< the last ones of these
    bool pad_length_due = false;
    bool drop = false;         ///< nobody needs it
    bool block_aside = false;  ///< the header block under way makes no call
    size_t block_bytes = 0;    ///< of the header block under way
    int block_frames = 0;
    size_t priority_left = 0;  ///< bytes before its fields
    HeaderFieldCounter fields;
  };
  ClientSide client_;
  struct ServerSide {
    Frame frame;      ///< under way
    size_t left = 0;  ///< bytes of its payload
    uint32_t increment = 0;
    bool began = false, in_block = false, drop = false;
  };
  ServerSide server_;
};

}  // namespace troupe::rpc
