#include "lib/rpc/transport/reconnecting_link.h"

#include <memory>

#include "lib/base/clock.h"
#include "lib/rpc/testing/said.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

class ReconnectingLinkTest : public testing::Test {
 protected:
  absl::Duration now() const { return clock_.SteadyNow(); }
  /// A try that fails at once; the delay until the next one.
  absl::Duration DelayAfterATry() {
    link_.Open(links_.Make());
    link_.Close(now());
    return link_.UntilTry(now());
  }

  base::FakeClock clock_;
  IdleLinks links_;
  ReconnectingLink link_{
      nullptr, "/a/B", {.initial = absl::Milliseconds(10), .max = absl::Milliseconds(40)}, /*seed=*/7};
};

TEST_F(ReconnectingLinkTest, TriesAtOnceAndThenAfterDelaysThatGrow) {
  EXPECT_EQ(link_.UntilTry(now()), absl::ZeroDuration());
  for (const int bound_ms : {10, 20, 40, 40, 40}) {
    const absl::Duration delay = DelayAfterATry();
    EXPECT_GE(delay, absl::Milliseconds(bound_ms) / 2);
    EXPECT_LE(delay, absl::Milliseconds(bound_ms));
    clock_.Advance(delay / 2);
    EXPECT_GT(link_.UntilTry(now()), absl::ZeroDuration());
    clock_.Advance(delay);
    EXPECT_EQ(link_.UntilTry(now()), absl::ZeroDuration());
  }
  DelayAfterATry();
  link_.Succeeded();
  EXPECT_EQ(link_.UntilTry(now()), absl::ZeroDuration()) << "who was there a moment ago";
  EXPECT_LE(DelayAfterATry(), absl::Milliseconds(10));
}

TEST_F(ReconnectingLinkTest, OnlyTheFirstTryFailsWithItsFirstConnection) {
  for (const bool again : {false, true}) {
    EXPECT_FALSE(link_.Open(links_.Make()).wait_for_ready) << again;
    link_.Close(now());
    EXPECT_TRUE(link_.Open(links_.Make()).wait_for_ready) << again;
    link_.Close(now());
    link_.Succeeded();
  }
}

TEST_F(ReconnectingLinkTest, IsOpenWithTheLinkOfTheTry) {
  EXPECT_FALSE(link_.open());
  EXPECT_EQ(link_.link(), nullptr);
  const std::shared_ptr<ClientLink> made = links_.Make();
  const ReconnectingLink::Try begun = link_.Open(made);
  EXPECT_EQ(begun.link, made);
  EXPECT_STREQ(begun.method, "/a/B");
  EXPECT_TRUE(link_.open());
  EXPECT_TRUE(link_.Is(made.get()));
  EXPECT_FALSE(link_.Is(links_.Make().get()));
  EXPECT_EQ(link_.Close(now()), made);
  EXPECT_FALSE(link_.open());
  EXPECT_FALSE(link_.Is(made.get()));
  ReconnectingLink::Try().Start();  // none
}

TEST_F(ReconnectingLinkTest, ATryThatTakesTooLongIsGivenUpOnceUnlessItSucceeded) {
  link_.Open(links_.Make(), now() + absl::Seconds(10));
  clock_.Advance(absl::Seconds(4));
  EXPECT_EQ(link_.UntilGivenUp(now()), absl::Seconds(6));
  clock_.Advance(absl::Seconds(7));
  EXPECT_EQ(link_.UntilGivenUp(now()), absl::ZeroDuration());
  EXPECT_EQ(link_.GiveUp(), link_.link());
  EXPECT_EQ(link_.UntilGivenUp(now()), absl::InfiniteDuration());
  EXPECT_TRUE(link_.open()) << "until it is done";
  link_.Close(now());
  link_.Open(links_.Make(), now() + absl::Seconds(10));
  link_.Succeeded();
  EXPECT_EQ(link_.UntilGivenUp(now()), absl::InfiniteDuration());
}

}  // namespace
}  // namespace troupe::rpc
