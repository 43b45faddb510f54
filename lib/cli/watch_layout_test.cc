#include "lib/cli/watch_layout.h"

#include <string>

#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

namespace troupe::cli {
namespace {

/// "PICTURE title AGENTS rest".
std::string Of(int screen_rows, size_t agents) {
  const WatchLayout layout = LayOutWatch(screen_rows, agents);
  return absl::StrCat(layout.picture_rows, layout.has_title ? " title " : " ", layout.agents_told,
                      layout.tells_rest ? " rest" : "");
}

TEST(WatchLayoutTest, SixAgentsAreToldAndHowManyMoreThereAre) {
  EXPECT_EQ(Of(24, 2), "20 title 2");
  EXPECT_EQ(Of(24, 6), "16 title 6");
  EXPECT_EQ(Of(24, 7), "15 title 6 rest");
  EXPECT_EQ(Of(24, 1000), "15 title 6 rest");
  EXPECT_EQ(Of(1000, 2), "80 title 2") << "no picture is larger";
}

TEST(WatchLayoutTest, CaptionsGiveWayBeforeThePicture) {
  EXPECT_EQ(Of(12, 6), "4 title 6");
  EXPECT_EQ(Of(12, 7), "4 title 5 rest");
  EXPECT_EQ(Of(11, 6), "4 title 4 rest");
  EXPECT_EQ(Of(10, 8), "4 title 3 rest") << "there were four rows and eight captions, which piled up";
  EXPECT_EQ(Of(7, 8), "4 title 0 rest");
  EXPECT_EQ(Of(7, 1), "4 title 1");
  EXPECT_EQ(Of(6, 8), "4 title 0");
  EXPECT_EQ(Of(5, 8), "4 0");
  EXPECT_EQ(Of(3, 8), "2 0");
  EXPECT_EQ(Of(1, 8), "1 0");
}

TEST(WatchLayoutTest, AllLinesFitAboveTheCursor) {
  for (int rows = 2; rows < 120; ++rows) {
    for (size_t agents = 1; agents < 12; ++agents) {
      const WatchLayout layout = LayOutWatch(rows, agents);
      const int captions =
          static_cast<int>(layout.agents_told) + (layout.has_title ? 1 : 0) + (layout.tells_rest ? 1 : 0);
      EXPECT_LT(layout.picture_rows + captions, rows) << agents;
      EXPECT_GT(layout.picture_rows, 0) << agents;
      if (captions > 0) {
        EXPECT_GE(layout.picture_rows, 4) << agents;
      }
    }
  }
}

}  // namespace
}  // namespace troupe::cli
