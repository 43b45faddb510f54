#include "lib/base/exit_code.h"

#include "absl/status/statusor.h"
#include "lib/base/status_macros.h"
#include <gtest/gtest.h>

namespace troupe::base {
namespace {

absl::StatusOr<int> Refused() { return WithExitCode(absl::FailedPreconditionError("no"), ExitCode::kRefused); }

absl::Status PassedOn() {
  TROUPE_ASSIGN_OR_RETURN(const int value, Refused());
  return value == 0 ? absl::OkStatus() : absl::InternalError("");
}

TEST(ExitCodeTest, IsThatOfTheStatusHoweverFarItTravels) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), ExitCode::kDone);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), ExitCode::kFailed);
  EXPECT_EQ(ExitCodeOf(PassedOn()), ExitCode::kRefused);
  EXPECT_EQ(PassedOn().message(), "no");
  EXPECT_EQ(ExitCodeOf(WithExitCode(absl::OkStatus(), ExitCode::kDeaf)), ExitCode::kDone);
}

TEST(ExitCodeTest, AStartThatCannotSucceedIsRefused) {
  EXPECT_EQ(ExitCodeOf(RefusedIfFinal(absl::OkStatus())), ExitCode::kDone);
  EXPECT_EQ(*RefusedIfFinal(absl::StatusOr<int>(7)), 7);
  for (const absl::Status& final : {absl::InvalidArgumentError(""), absl::NotFoundError(""),
                                    absl::FailedPreconditionError(""), absl::PermissionDeniedError("")}) {
    EXPECT_EQ(ExitCodeOf(RefusedIfFinal(final)), ExitCode::kRefused) << final;
    EXPECT_EQ(ExitCodeOf(RefusedIfFinal(absl::StatusOr<int>(final)).status()), ExitCode::kRefused) << final;
    EXPECT_EQ(ExitCodeOf(RefusedIfFinal(WithExitCode(final, ExitCode::kFailed))), ExitCode::kFailed);
  }
  for (const absl::Status& passing : {absl::UnavailableError(""), absl::ResourceExhaustedError(""),
                                      absl::DeadlineExceededError(""), absl::InternalError("")}) {
    EXPECT_EQ(ExitCodeOf(RefusedIfFinal(passing)), ExitCode::kFailed) << passing;
  }
}

}  // namespace
}  // namespace troupe::base
