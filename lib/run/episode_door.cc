#include "lib/run/episode_door.h"

#include <sys/stat.h>

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/clock.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/config/external.h"
#include "lib/env/wrappers.h"
#include "lib/policy/policy_table.h"
#include "lib/rpc/door/address.h"
#include "lib/rpc/transport/limits.h"

namespace troupe::run {
namespace {

constexpr absl::Duration kGoodbye = absl::Seconds(1);
/// Between two looks at the clients.
constexpr absl::Duration kTickInterval = absl::Milliseconds(100);
constexpr mode_t kPrivateFolder = 0700;
constexpr mode_t kPrivateSocket = 0600;

outside::EpisodeLimits LimitsOf(const config::ResolvedRun& run) {
  const config::ExternalOptions options = config::ExternalOptionsOf(run.config);
  outside::EpisodeLimits limits;
  limits.episodes = options.max_episodes;
  limits.idle = options.idle_timeout;
  // What the learner believes is said of scaled rewards, which are rounded.
  limits.max_abs_return = run.limits.max_abs_return / std::abs(run.env.wrappers.rewards.scale) * (1 - 1e-6);
  return limits;
}

/// "unix:RUN/external/episodes-2.sock"
std::string Numbered(const std::string& address, int number) {
  if (number == 1) return address;
  absl::string_view stem = address;
  const char* const ending = absl::ConsumeSuffix(&stem, ".sock") ? ".sock" : "";
  return absl::StrCat(stem, "-", number, ending);
}

/// The policies that clients may act as by themselves; FAILED_PRECONDITION where policies see something else than
/// clients do.
absl::StatusOr<policy::PolicyTablePtr> PoliciesOf(const config::ResolvedRun& run) {
  const env::WrapperOptions& wrappers = run.env.wrappers;
  const bool changes = !wrappers.crop.empty() || wrappers.grayscale || !wrappers.resize.empty() ||
                       wrappers.frame_stack > 1 || wrappers.previous_step.action || wrappers.previous_step.reward ||
                       !wrappers.observation_fn.empty();
  if (changes) {
    return absl::FailedPreconditionError(
        "a client cannot act by itself here: the worker changes what policies see (env.crop, grayscale, resize, "
        "frame_stack, previous_action, previous_reward, multi_agent.observation_fn); ask GetActions");
  }
  return run.FirstTable(std::vector<bool>(run.policy_ids().size(), false));
}

}  // namespace

EpisodeDoor::EpisodeDoor(const config::ResolvedRun& run)
    : book_(*run.env.external, LimitsOf(run), &base::Clock::Real()) {
  book_.acting().Begin(PoliciesOf(run));
}

absl::Status EpisodeDoor::Listen(const std::string& text, const rpc::TransportSecurity& security) {
  TROUPE_ASSIGN_OR_RETURN(const rpc::Address address, rpc::ParseAddress(text));
  const bool is_file = address.kind == rpc::Address::Kind::kUnix;
  const size_t slash = address.path.rfind('/');
  if (is_file && slash != std::string::npos) mkdir(address.path.substr(0, slash).c_str(), kPrivateFolder);
  for (int number = 1; number <= (is_file ? static_cast<int>(rpc::kMaxWorkers) : 1); ++number) {
    absl::StatusOr<std::unique_ptr<rpc::EpisodeServer>> server =
        rpc::EpisodeServer::Start(Numbered(text, number), security, &book_);
    if (server.ok()) {
      server_ = *std::move(server);
      // Whoever else may enter the folder is turned away by the server, too.
      if (is_file) chmod(Numbered(address.path, number).c_str(), kPrivateSocket);
      return absl::OkStatus();
    }
    if (!is_file || !absl::IsAlreadyExists(server.status())) return server.status();
  }
  return absl::AlreadyExistsError(absl::StrCat(text, " and ", rpc::kMaxWorkers - 1, " after it are in use"));
}

absl::StatusOr<std::unique_ptr<EpisodeDoor>> EpisodeDoor::Open(const config::ResolvedRun& run,
                                                               const std::string& address,
                                                               const rpc::TransportSecurity& security) {
  const std::string own = config::ExternalOptionsOf(run.config).address;
  if (own.empty() && address.empty()) {
    return absl::InvalidArgumentError(
        "env.external.address is empty, and this worker knows no run folder, expected where its clients come: give "
        "--set env.external.address=unix:PATH or HOST:PORT beside --config");
  }
  auto door = std::unique_ptr<EpisodeDoor>(new EpisodeDoor(run));
  if (const absl::Status listens = door->Listen(own.empty() ? address : own, security); !listens.ok()) {
    return absl::Status(listens.code(), absl::StrCat("env.external.address: ", std::string(listens.message())));
  }
  TROUPE_INFO("worlds outside come to address=\"{}\"", door->address());
  return door;
}

void EpisodeDoor::Close(outside::Closing why) {
  book_.Close(why);
  if (server_ == nullptr) return;
  book_.AwaitTold(kTellTime);
  server_->Shutdown(kGoodbye);
}

absl::Status TendedDoor::Open(const config::ResolvedRun& run, const rpc::TransportSecurity& security,
                              std::function<std::optional<outside::Closing>()> is_over) {
  if (run.env.external == nullptr) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<EpisodeDoor>> opened = EpisodeDoor::Open(run, /*address=*/"", security);
  if (!opened.ok()) return base::RefusedIfFinal(opened.status());
  door_ = *std::move(opened);
  is_over_ = std::move(is_over);
  loop_.emplace("episodes", [this] {
    door_->Tick();
    if (const std::optional<outside::Closing> why = is_over_()) door_->book()->Close(*why);
    return kTickInterval;
  });
  return absl::OkStatus();
}

void TendedDoor::Close() {
  loop_.reset();
  if (door_ == nullptr) return;
  const std::optional<outside::Closing> why = is_over_();
  door_->Close(why.value_or(outside::Closing::kWorkerEnds));
}

}  // namespace troupe::run
