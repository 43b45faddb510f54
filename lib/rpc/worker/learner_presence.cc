#include "lib/rpc/worker/learner_presence.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"

namespace troupe::rpc {

LearnerPresence::LearnerPresence(Options options, absl::Duration now)
    : options_(std::move(options)), away_since_(now) {}

void LearnerPresence::OnThere() {
  away_since_.reset();
  last_error_ = absl::OkStatus();
  was_there_ = true;
  tell_there_ = std::exchange(told_away_, false);
}

void LearnerPresence::OnAway(absl::Duration now) {
  if (there()) away_since_ = now;
}

absl::Duration LearnerPresence::gone_at() const {
  return there() ? absl::InfiniteDuration() : *away_since_ + options_.reconnect_timeout;
}

std::string LearnerPresence::why() const { return last_error_.ok() ? "no answer" : std::string(last_error_.message()); }

absl::Status LearnerPresence::Unavailable(const std::string& what) const {
  return absl::UnavailableError(absl::StrCat("learner at ", options_.address, " ", what, ": ", why()));
}

absl::Duration LearnerPresence::UntilAway(absl::Duration now) const {
  if (there() || told_away_) return absl::InfiniteDuration();
  return std::max(absl::ZeroDuration(), *away_since_ + options_.tell_after - now);
}

std::optional<std::string> LearnerPresence::TakeAway(absl::Duration now) {
  if (UntilAway(now) > absl::ZeroDuration()) return std::nullopt;
  told_away_ = true;
  std::string line =
      absl::StrCat("no learner, trying again learner=", options_.address, " reason=\"", base::LogSafe(why()), "\"");
  // Who makes a client decides how long it waits for the first Welcome.
  if (was_there_) {
    absl::StrAppend(&line, " for_s=", absl::ToInt64Seconds(std::max(absl::ZeroDuration(), gone_at() - now)));
  }
  return line;
}

bool LearnerPresence::TakeBack() { return std::exchange(tell_there_, false); }

}  // namespace troupe::rpc
