// What a TCP client sends before gRPC sees it, against what a server answered: parts that are the client's and the
// server's in turn. However the client's bytes are cut, the same goes on and the same is said, and nothing goes on
// after a violation. No frame of a call goes on for which there is no place: gRPC would end the connection.
//
// Input: a byte (how the client's parts are cut), then parts, each with its length before it: client, server, client, …

#include <string>
#include <string_view>
#include <utility>

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
  std::string held, answers;   ///< of the client and of the server, not taken yet
  std::string passed, served;  ///< to the server, and to the client
  std::string said;            ///< by the guard
  uint64_t granted = 0;

  Passed() : guard(limits, &totals, "10.0.0.1", absl::ZeroDuration()) {}

  void Send(std::string_view bytes) {
    held.append(bytes);
    Advance();
  }
  void Answer(std::string_view bytes) {
    answers.append(bytes);
    Advance();
    const uint64_t half = guard.withheld() / 2;
    if (half == 0 || half >= 1 << 30) return;
    guard.Grant(half);
    granted += half;
    Advance();
  }
  void Advance() {
    const bool over = guard.violation().has_value();
    for (bool more = true; more;) {
      said += std::exchange(guard.for_client(), "");
      if (guard.client_between_frames()) passed += std::exchange(guard.for_server(), "");
      const rpc::FrameGuard::Passed now = guard.OnClientBytes(held.data(), held.size(), absl::Seconds(1));
      TROUPE_CHECK(now.kept <= now.taken && now.taken <= held.size());
      TROUPE_CHECK(!over || now.taken == 0);
      passed.append(held, 0, now.kept);
      held.erase(0, now.taken);
      const rpc::FrameGuard::Passed back = guard.OnServerBytes(answers.data(), answers.size(), absl::Seconds(1));
      TROUPE_CHECK(back.kept <= back.taken && back.taken <= answers.size());
      served.append(answers, 0, back.kept);
      answers.erase(0, back.taken);
      more = now.taken > 0 || back.taken > 0;
    }
    const uint64_t given = rpc::FrameGuard::kFirstWindow + granted;
    TROUPE_CHECK(guard.violation().has_value() || guard.window() <= given);
    TROUPE_CHECK(guard.violation().has_value() || guard.unfinished_bytes() + guard.waiting_bytes() <= given);
    TROUPE_CHECK(totals.silent_calls >= 0 && totals.silent_calls <= limits.max_open_calls);
    TROUPE_CHECK(totals.unserved_calls >= 0 && totals.unserved_calls <= limits.max_open_calls);
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
      whole.Answer(part);
      pieces.Answer(part);
      continue;
    }
    whole.Send(part);
    for (size_t at = 0; at < part.size(); at += cut) pieces.Send(part.substr(at, cut));
    TROUPE_CHECK(whole.guard.violation().has_value() == pieces.guard.violation().has_value());
    if (whole.guard.violation().has_value()) return 0;
    TROUPE_CHECK(whole.passed == pieces.passed && whole.said == pieces.said);
  }
  return 0;
}
