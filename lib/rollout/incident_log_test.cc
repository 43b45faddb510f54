#include "lib/rollout/incident_log.h"

#include "absl/strings/str_cat.h"
#include "lib/base/traceback.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rollout {
namespace {

using sample::EnvIncident;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(KindOfTest, NumbersMakeNoDifference) {
  EXPECT_EQ(KindOf("env 3, episode 17), step 7: got -0.25 at 0x7ff3a, agent_12 x1"),
            "env #, episode #), step #: got # at #, agent_# x#");
  EXPECT_EQ(KindOf("got 1. Then 2"), "got #. Then #");
  EXPECT_EQ(KindOf("a-b - c"), "a-b - c");
  EXPECT_LE(KindOf(std::string(10000, 'x')).size(), EnvIncident::kMaxKindBytes);
}

TEST(IncidentLogTest, TellsTheFirstOfEachKindWithItsTraceback) {
  IncidentLog log;
  EXPECT_TRUE(log.AddFailure(base::WithTraceback(absl::InternalError("episode 1: it broke"), "File \"a\"\n  f()")));
  EXPECT_FALSE(log.AddFailure(absl::InternalError("episode 2: it broke")));
  EXPECT_TRUE(log.AddFailure(absl::InternalError("episode 2: it\x1b[31m burned")));
  EXPECT_TRUE(log.AddOutsideSpace("left", "step 3: element 1 is 2"));
  EXPECT_FALSE(log.AddOutsideSpace("left", "step 4: another text"));
  EXPECT_TRUE(log.AddOutsideSpace("right", "step 3: element 1 is 2"));
  const std::vector<EnvIncident> news = log.Take();
  ASSERT_THAT(news, SizeIs(4));
  EXPECT_EQ(news[0], (EnvIncident{EnvIncident::What::kFailure, "episode #: it broke",
                                  "episode 1: it broke\nFile \"a\"\n  f()"}));
  EXPECT_EQ(news[1].text, "episode 2: it\\x1b[31m burned");
  EXPECT_EQ(news[2], (EnvIncident{EnvIncident::What::kOutsideSpace, "left", "step 3: element 1 is 2"}));
  EXPECT_THAT(log.Take(), IsEmpty());
}

TEST(IncidentLogTest, IsBounded) {
  IncidentLog log;
  int told = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string name(static_cast<size_t>(i + 1), 'x');
    told += static_cast<int>(log.AddFailure(absl::InternalError(absl::StrCat(name, std::string(100'000, '\x1b')))));
  }
  EXPECT_EQ(told, static_cast<int>(EnvIncident::kMostKinds));
  for (const EnvIncident& incident : log.Take()) {
    EXPECT_LE(incident.text.size(), EnvIncident::kMaxTextBytes);
    EXPECT_LE(incident.kind.size(), EnvIncident::kMaxKindBytes);
  }
}

}  // namespace
}  // namespace troupe::rollout
