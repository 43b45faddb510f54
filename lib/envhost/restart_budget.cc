#include "lib/envhost/restart_budget.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/clock.h"

namespace troupe::envhost {

absl::Status RestartBudget::Spend(const absl::Status& death) {
  const absl::Duration now = base::Clock::Real().SteadyNow();
  while (!restarts_.empty() && now - restarts_.front() > window_) restarts_.pop_front();
  if (static_cast<int64_t>(restarts_.size()) >= max_restarts_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "its Python processes were restarted ", restarts_.size(), " times within ", absl::FormatDuration(window_),
        ", expected at most ", max_restarts_,
        " (env.python.max_restarts, restart_window_s); the last ended so: ", std::string(death.message())));
  }
  restarts_.push_back(now);
  return absl::OkStatus();
}

}  // namespace troupe::envhost
