#include "lib/rpc/worker/learner_presence.h"

#include <optional>
#include <string>

#include "lib/base/clock.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

const LearnerPresence::Options kPresenceOptions = {
    .address = "host:1", .reconnect_timeout = absl::Seconds(60), .tell_after = absl::Seconds(5)};

TEST(LearnerPresenceTest, TellsOnceThatTheLearnerIsAwayAndOnceThatItIsBack) {
  base::FakeClock clock;
  LearnerPresence presence(kPresenceOptions, clock.SteadyNow());
  EXPECT_EQ(presence.UntilAway(clock.SteadyNow()), absl::Seconds(5));
  EXPECT_EQ(presence.TakeAway(clock.SteadyNow()), std::nullopt);
  clock.Advance(absl::Seconds(5));
  EXPECT_EQ(presence.UntilAway(clock.SteadyNow()), absl::ZeroDuration());
  EXPECT_EQ(presence.TakeAway(clock.SteadyNow()), "no learner, trying again learner=host:1 reason=\"no answer\"")
      << "before the first Welcome others decide how long";
  EXPECT_EQ(presence.TakeAway(clock.SteadyNow()), std::nullopt);
  EXPECT_EQ(presence.UntilAway(clock.SteadyNow()), absl::InfiniteDuration());
  presence.OnThere();
  EXPECT_TRUE(presence.there());
  EXPECT_TRUE(presence.TakeBack());
  EXPECT_FALSE(presence.TakeBack());

  presence.OnAway(clock.SteadyNow());
  presence.NoteError(absl::UnavailableError("refused\n"));
  clock.Advance(absl::Seconds(7));
  presence.OnAway(clock.SteadyNow());  // it was away already
  EXPECT_EQ(presence.TakeAway(clock.SteadyNow()),
            "no learner, trying again learner=host:1 reason=\"refused\\x0a\" for_s=53");
}

TEST(LearnerPresenceTest, ALearnerThatComesBackSoonIsNotSpokenOf) {
  base::FakeClock clock;
  LearnerPresence presence(kPresenceOptions, clock.SteadyNow());
  clock.Advance(absl::Seconds(4));
  EXPECT_EQ(presence.TakeAway(clock.SteadyNow()), std::nullopt);
  presence.OnThere();
  EXPECT_FALSE(presence.TakeBack());
  clock.Advance(absl::Hours(1));
  EXPECT_EQ(presence.TakeAway(clock.SteadyNow()), std::nullopt);
  EXPECT_EQ(presence.UntilAway(clock.SteadyNow()), absl::InfiniteDuration());
}

TEST(LearnerPresenceTest, IsGoneForGoodSoLongAfterItWasLost) {
  base::FakeClock clock;
  LearnerPresence presence(kPresenceOptions, clock.SteadyNow());
  EXPECT_EQ(presence.gone_at(), absl::Seconds(60));
  presence.NoteError(absl::UnavailableError("refused"));
  EXPECT_EQ(presence.Unavailable("is gone"), absl::UnavailableError("learner at host:1 is gone: refused"));
  presence.OnThere();
  EXPECT_EQ(presence.gone_at(), absl::InfiniteDuration());
  clock.Advance(absl::Seconds(100));
  presence.OnAway(clock.SteadyNow());
  EXPECT_EQ(presence.gone_at(), absl::Seconds(160));
  EXPECT_EQ(presence.Unavailable("is gone"), absl::UnavailableError("learner at host:1 is gone: no answer"))
      << "what kept it away before says nothing of now";
}

}  // namespace
}  // namespace troupe::rpc
