#include "lib/cli/run_selection.h"

#include <filesystem>
#include <string>
#include <vector>

#include "lib/storage/testing/scratch_directory.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

class RunSelectionTest : public testing::Test {
 protected:
  /// As ReadRun names it. The folder is made where there is none.
  RunRecord Make(const std::string& name, const std::string& state = "finished") {
    RunRecord run;
    run.name = name;
    run.path = folder_.path() + "/" + name;
    run.state = state;
    if (!fs::exists(run.path)) fs::create_directory(run.path);
    return run;
  }

  /// "NAME: WHY" each.
  static std::vector<std::string> Words(const std::vector<LeftOut>& all) {
    std::vector<std::string> words;
    words.reserve(all.size());
    for (const LeftOut& each : all) words.push_back(each.name + ": " + each.why);
    return words;
  }
  static std::vector<std::string> Names(const RunSelection& selection) {
    std::vector<std::string> names;
    names.reserve(selection.runs.size());
    for (const RunRecord& run : selection.runs) names.push_back(run.name);
    return names;
  }

  const storage::ScratchDirectory folder_;
};

TEST_F(RunSelectionTest, AFolderCountsOnceUnderItsOwnName) {
  const RunRecord run = Make("run_3");
  for (const char* const link : {"latest", "zlatest"}) fs::create_symlink("run_3", folder_.path() + "/" + link);
  RunRecord slash = run;
  slash.path += "/";
  const RunSelection selection =
      SelectRuns({Make("zlatest"), Make("latest"), Make("run_4"), run, slash, Make("run_1")});
  EXPECT_THAT(Names(selection), ElementsAre("run_1", "run_3", "run_4"));
  EXPECT_THAT(Words(selection.left_out), ElementsAre("run_3: the folder of \"run_3\", which counts once",
                                                     "zlatest: the folder of \"run_3\", which counts once",
                                                     "latest: the folder of \"run_3\", which counts once"));
  EXPECT_THAT(Names(SelectRuns({Make("latest")})), ElementsAre("latest")) << "the only name that was given";
  RunRecord gone = Make("gone");
  RunRecord away = Make("away");
  fs::remove(gone.path);
  fs::remove(away.path);
  EXPECT_THAT(Names(SelectRuns({gone, away})), ElementsAre("away", "gone"))
      << "what cannot be told apart is told later";
}

TEST_F(RunSelectionTest, AnEvaluationIsNoRunThatTrained) {
  const RunSelection selection = SelectRuns({Make("played", "evaluation"), Make("a", "stopped")});
  EXPECT_THAT(Names(selection), ElementsAre("a"));
  EXPECT_THAT(Words(selection.left_out), ElementsAre("played: an evaluation, expected a run that trained"));
}

TEST_F(RunSelectionTest, WhatAListingDoesNotHaveIsSaid) {
  RunListing listing;
  EXPECT_THAT(NotListed(listing, "runs"), IsEmpty());
  listing.left_out = 3;
  EXPECT_THAT(Words(NotListed(listing, "runs")), ElementsAre("runs: 3 runs that were written before the newest 1000"));
  listing.is_cut = true;
  EXPECT_THAT(Words(NotListed(listing, "runs")),
              ElementsAre("runs: 3 runs that were written before the newest 1000",
                          "runs: what comes after the folder's first 20000 entries"));
  listing.left_out = 0;
  EXPECT_THAT(Words(NotListed(listing, "runs")),
              ElementsAre("runs: what comes after the folder's first 20000 entries"));
}

TEST_F(RunSelectionTest, RunsOfOneSeedAreNoSamplesOfTheirOwn) {
  std::vector<RunRecord> runs;
  for (const char* const seed : {"1", "2", "1", "3", "1", "1", "2"}) {
    runs.push_back(Make(std::string(1, static_cast<char>('a' + runs.size()))));
    runs.back().keys["seed"] = seed;
  }
  const RunGroup all{.label = "", .runs = {0, 1, 2, 3, 4, 5, 6}};
  EXPECT_THAT(
      SharedSeeds(all, runs),
      ElementsAre(
          "a, c, e and 1 more: runs of one seed, 1, expected a seed each: the interval takes them for independent",
          "b, g: runs of one seed, 2, expected a seed each: the interval takes them for independent"));
  const RunGroup apart{.label = "", .runs = {0, 1, 3}};
  EXPECT_THAT(SharedSeeds(apart, runs), IsEmpty());
  const std::vector<RunRecord> unread = {Make("x"), Make("y")};
  EXPECT_THAT(SharedSeeds(RunGroup{.label = "", .runs = {0, 1}}, unread), IsEmpty());
}

}  // namespace
}  // namespace troupe::cli
