#include "lib/run/learner/start_watch.h"

#include <memory>
#include <utility>

#include "lib/policy/policy_spec.h"
#include "lib/storage/file_system.h"
#include "lib/storage/testing/scratch_directory.h"
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

TEST(StartWatchTest, AStartThatDoesNotNoticeTheSignalIsEndedWithTheNewRun) {
  const storage::ScratchDirectory scratch;
  storage::RunFolder::Options options;
  options.directory = scratch.path() + "/run";
  options.config_yaml = "seed: 1\n";
  const auto folder = storage::RunFolder::Open(std::move(options));
  ASSERT_TRUE(folder.ok()) << folder.status();
  base::FakeClock clock;
  bool interrupted = false;
  int ends = 0;
  StartWatch watch([&] { return interrupted; }, [&] { ++ends; }, &clock);
  watch.SetFolder(folder->get());
  clock.Advance(absl::Hours(1));
  watch.Step();
  interrupted = true;
  watch.Step();
  clock.Advance(StartWatch::kGrace - absl::Milliseconds(1));
  EXPECT_LT(watch.Step(), absl::InfiniteDuration());
  EXPECT_EQ(ends, 0) << "it may notice by itself";
  EXPECT_TRUE(storage::FileSystem::Posix().Exists(scratch.path() + "/run/config.yaml"));
  clock.Advance(absl::Milliseconds(1));
  EXPECT_EQ(watch.Step(), absl::InfiniteDuration());
  EXPECT_EQ(ends, 1);
  EXPECT_FALSE(storage::FileSystem::Posix().Exists(scratch.path() + "/run")) << "the next try finds its place";
}

TEST(StartWatchTest, WhatCanBeStoppedIsStoppedAtTheSignal) {
  base::FakeClock clock;
  bool interrupted = false;
  int stops = 0, ends = 0;
  StartWatch watch([&] { return interrupted; }, [&] { ++ends; }, &clock);
  watch.SetStop([&] { ++stops; });
  watch.Step();
  EXPECT_EQ(stops, 0);
  interrupted = true;
  watch.Step();
  EXPECT_EQ(stops, 1);
  watch.SetStop(nullptr);
  watch.Step();
  EXPECT_EQ(stops, 1);
  EXPECT_EQ(ends, 0);
}

}  // namespace
}  // namespace troupe::run
