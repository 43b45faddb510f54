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

/// What one connection may send. A client that only does calls stays far below every number.
struct FrameLimits {
  size_t max_message_bytes = 0;
  size_t max_header_bytes = 32 << 10;  ///< of one block, CONTINUATION frames and all
  int max_continuations = 32;          ///< frames of one block
  int64_t max_header_fields = 128;     ///< of one block; a client that only does calls sends a dozen
  /// Calls open at once; before the first answer; and of each connection while all connections have `crowd` open.
  int max_open_calls = 128;
  int max_open_calls_unproven = 8;
  int max_open_calls_in_crowd = 4;
  int64_t crowd = 2048;
  /// Of messages that have begun and are not whole: gRPC keeps those bytes.
  uint64_t max_unfinished_bytes = uint64_t{8} << 20;
  /// RST_STREAM of calls that were open; each answered call permits one more. So many of each connection before its
  /// first answer, and, or as many as it has had answers, while all connections together have used up `resets_of_all`.
  base::Rate resets = {64, 8};
  int max_resets_in_crowd = 8;
  base::Rate resets_of_all = {1024, 256};
  base::Rate settings = {100, 10};
  base::Rate pings = {500, 100};            ///< and their answers
  base::Rate window_updates = {2000, 500};  ///< and two for each frame of data that the server sent
  base::Rate empty_data = {100, 10};
  base::Rate others = {100, 10};
};

/// What the connections of one server have in common. Confined to their thread.
struct FrameTotals {
  FrameTotals(const FrameLimits& limits, absl::Duration now) : resets(limits.resets_of_all, now) {}

  int64_t open_calls = 0;
  base::TokenBucket resets;
};

/// Reads the frames of one HTTP/2 connection as they pass by in both directions, and says when its client has sent what
/// no honest client sends: gRPC 1.51 takes memory for each reset call, for each answer to SETTINGS that nobody reads,
/// and for a message of 256 MiB before it refuses it. It changes no byte and does no I/O.
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
  };

  /// `totals` outlives the guard.
  FrameGuard(const FrameLimits& limits, FrameTotals* totals, absl::Duration now);
  ~FrameGuard();
  FrameGuard(const FrameGuard&) = delete;
  FrameGuard& operator=(const FrameGuard&) = delete;

  /// The next bytes of the client, those that were not permitted the last time first. Returns how many of them may go
  /// on now; the rest waits for more bytes, or for the server (see waits()).
  size_t OnClientBytes(std::string_view bytes, absl::Duration now);
  /// All bytes of the server, in order. They may always go on.
  void OnServerBytes(std::string_view bytes);

  const std::optional<Violation>& violation() const { return violation_; }
  /// The relay has found something: a violation as of the guard's own.
  void EndFor(std::string what) { Violate(std::move(what)); }
  /// Bytes of the messages that have begun and are not whole.
  uint64_t unfinished_bytes() const { return unfinished_; }
  /// Whether a message has not become whole in `grace`, and then came in more slowly than so many bytes a second.
  bool IsSlow(absl::Duration now, absl::Duration grace, double bytes_per_second) const;
  /// The client was kept waiting: for IsSlow all messages begin now.
  void RestartMessages(absl::Duration now);
  Progress progress() const { return progress_; }
  /// The client's next call has to wait until one of its calls is answered, or until there is less of a crowd.
  bool waits() const { return waits_; }
  bool has_open_calls() const { return !calls_.empty(); }
  /// Frames of calls so far, of both sides: it changes where something happens that is no housekeeping.
  uint64_t num_call_frames() const { return num_call_frames_; }
  /// A whole request lies with the server, which has neither answered nor refused it so far.
  bool request_pending() const;
  /// Between two frames of the server: where a frame of our own may stand.
  bool server_between_frames() const { return server_header_have_ == 0 && server_left_ == 0; }

 private:
  /// A call that neither side has ended. Its messages are 1 byte (compressed), 4 bytes of size, and that many bytes.
  struct Call {
    uint32_t stream = 0;
    uint32_t prefix_have = 0;
    uint32_t size = 0;
    uint64_t message_left = 0;
    absl::Duration since;  ///< the message has begun
    bool request_whole = false;
    bool answered = false;

    uint64_t unfinished() const { return message_left == 0 ? 0 : size - message_left; }
  };
  struct Frame {
    size_t size = 0;
    uint8_t type = 0;
    uint8_t flags = 0;
    uint32_t stream = 0;
  };

  static Frame ParseHeader(const unsigned char* header);
  /// False where the frame has to wait, or is a violation.
  bool BeginClientFrame(const Frame& frame, absl::Duration now);
  bool BeginHeaders(const Frame& frame, absl::Duration now);
  bool BeginContinuation(const Frame& frame);
  void OnClientPayload(std::string_view bytes, absl::Duration now);
  void OnHeaderBytes(std::string_view bytes);
  void OnDataBytes(std::string_view bytes, absl::Duration now);
  void OnMessageBytes(Call& call, std::string_view bytes, absl::Duration now);
  void OnReset(const Frame& frame, absl::Duration now);
  void OnServerFrame(const Frame& frame);
  bool AllowReset(absl::Duration now);
  bool Allow(base::TokenBucket& bucket, absl::Duration now, const char* what);
  Call* Find(uint32_t stream);
  void Remove(const Call* call);
  bool Violate(std::string what, uint32_t stream = 0);

  const FrameLimits limits_;
  FrameTotals* const totals_;
  base::TokenBucket resets_, settings_, pings_, window_updates_, empty_data_, others_;
  std::vector<Call> calls_;
  uint64_t unfinished_ = 0;
  uint32_t last_stream_ = 0;
  int64_t num_answered_ = 0;  ///< calls
  uint64_t num_call_frames_ = 0;
  Progress progress_ = Progress::kSilent;
  bool waits_ = false;
  std::optional<Violation> violation_;

  // The client's frame under way.
  Frame frame_;
  size_t left_ = 0;     // bytes of its payload
  size_t padding_ = 0;  // the last ones of these
  bool pad_length_due_ = false;
  size_t block_bytes_ = 0;  // of the header block under way
  int block_frames_ = 0;
  size_t priority_left_ = 0;  // bytes before its fields
  HeaderFieldCounter fields_;

  // The server's.
  unsigned char server_header_[9] = {};
  size_t server_header_have_ = 0;
  size_t server_left_ = 0;
};

}  // namespace troupe::rpc
