// What a TCP client sends before gRPC sees it, against what a server answered: parts that are the client's and the
// server's in turn. However the client's bytes are cut, the same of them may go on, and nothing goes on after a
// violation.
//
// Input: a byte (how the client's parts are cut), then parts, each with its length before it: client, server, client, …

#include <algorithm>
#include <string>
#include <vector>

#include "lib/base/check.h"
#include "lib/rpc/door/frame_guard.h"
#include "tests/fuzz/fuzz_input.h"

namespace troupe {
namespace {

/// A connection through a guard.
struct Passed {
  rpc::FrameLimits limits{.max_message_bytes = 1000};
  rpc::FrameTotals totals{limits, absl::ZeroDuration()};
  rpc::FrameGuard guard;
  std::string held;  ///< of the client, not permitted yet
  size_t permitted = 0;

  Passed() : guard(limits, &totals, absl::ZeroDuration()) {}

  void Send(std::string_view bytes) {
    held.append(bytes);
    const bool over = guard.violation().has_value();
    const size_t taken = guard.OnClientBytes(held, absl::Seconds(1));
    TROUPE_CHECK(taken <= held.size());
    TROUPE_CHECK(!over || taken == 0);
    permitted += taken;
    held.erase(0, taken);
  }
};

}  // namespace
}  // namespace troupe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace troupe;
  fuzz::FuzzInput input(data, size);
  const size_t cut = 1 + (input.Byte() & 15);
  Passed whole, pieces;
  for (bool client = true; !input.empty(); client = !client) {
    const std::string_view part = input.Part();
    if (!client) {
      whole.guard.OnServerBytes(part);
      pieces.guard.OnServerBytes(part);
      continue;
    }
    whole.Send(part);
    for (size_t at = 0; at < part.size(); at += cut) pieces.Send(part.substr(at, cut));
    TROUPE_CHECK(whole.guard.violation().has_value() == pieces.guard.violation().has_value());
    if (!whole.guard.violation().has_value()) TROUPE_CHECK(whole.permitted == pieces.permitted);
  }
  return 0;
}
