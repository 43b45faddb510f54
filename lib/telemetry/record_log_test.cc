#include "lib/telemetry/record_log.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/telemetry/testing.h"
#include <gtest/gtest.h>

namespace troupe::telemetry {
namespace {

class RecordLogTest : public testing::Test {
 protected:
  std::unique_ptr<RecordLog> Log(RecordLog::Limits limits = {}) {
    return std::make_unique<RecordLog>("progress.jsonl", "lines", std::make_unique<FakeAppendFile>(&disk_), limits);
  }
  static void Write(RecordLog& log, const std::string& record) {
    log.Append(record);
    log.Flush();
  }
  FakeDisk disk_;
};

TEST_F(RecordLogTest, AFullDiskLeavesNoHalfRecordAndLosesNone) {
  const auto log = Log();
  Write(*log, "one\n");
  EXPECT_EQ(log->Degraded(), "");
  disk_.capacity = 6;  // "two" is cut in its middle
  Write(*log, "two\n");
  EXPECT_EQ(disk_.contents, "one\n");
  Write(*log, "three\n");
  EXPECT_EQ(disk_.contents, "one\n");
  EXPECT_EQ(log->Degraded(), "progress.jsonl cannot be written: No space left on device; 2 lines wait");
  disk_.capacity = 1000;
  log->Flush();
  EXPECT_EQ(disk_.contents, "one\ntwo\nthree\n");
  EXPECT_EQ(log->Degraded(), "");
  EXPECT_EQ(log->dropped(), 0);
}

TEST_F(RecordLogTest, RoomForSomeOfThemIsUsed) {
  const auto log = Log();
  disk_.capacity = 0;
  for (const char* record : {"one\n", "two\n", "three\n"}) Write(*log, record);
  disk_.capacity = 9;
  log->Flush();
  EXPECT_EQ(disk_.contents, "one\ntwo\n");
  EXPECT_EQ(log->Degraded(), "progress.jsonl cannot be written: No space left on device; 1 lines wait");
}

TEST_F(RecordLogTest, WhereACutFailsTheHalfRecordIsCutBeforeTheNextWrite) {
  const auto log = Log();
  disk_.capacity = 2;
  disk_.can_truncate = false;
  Write(*log, "one\n");
  EXPECT_EQ(disk_.contents, "on");
  disk_.capacity = 1000;
  log->Flush();
  EXPECT_EQ(disk_.contents, "on") << "behind a half record nothing is written";
  EXPECT_EQ(log->Degraded(), "progress.jsonl cannot be written: Input/output error; 1 lines wait");
  disk_.can_truncate = true;
  log->Flush();
  EXPECT_EQ(disk_.contents, "one\n");
}

TEST_F(RecordLogTest, TheOldestMakeRoomAndAreCounted) {
  const auto by_number = Log({.max_records = 2});
  disk_.capacity = 0;
  for (const char* record : {"one\n", "two\n", "three\n", "four\n"}) Write(*by_number, record);
  EXPECT_EQ(by_number->Degraded(),
            "progress.jsonl cannot be written: No space left on device; 2 lines wait, 2 older ones are lost");
  disk_.capacity = 1000;
  by_number->Flush();
  EXPECT_EQ(disk_.contents, "three\nfour\n");
  EXPECT_EQ(by_number->dropped(), 2);
  disk_ = {};
  disk_.capacity = 0;
  const auto by_bytes = Log({.max_bytes = 10});
  for (const char* record : {"one\n", "two\n", "three\n"}) Write(*by_bytes, record);
  EXPECT_EQ(by_bytes->dropped(), 1) << "14 bytes, of which 10 may wait";
}

TEST_F(RecordLogTest, ALongOutageIsBounded) {
  const auto log = Log();
  disk_.capacity = 0;
  const std::string record(1000, 'x');
  for (int i = 0; i < 20'000; ++i) Write(*log, record);
  EXPECT_EQ(log->dropped(), 20'000 - (8 << 20) / 1000);
}

TEST_F(RecordLogTest, ManySmallRecordsAreOneWrite) {
  const auto log = Log();
  for (int i = 0; i < 100; ++i) log->Append("a record\n");
  EXPECT_EQ(disk_.appends, 0);
  log->Flush();
  EXPECT_EQ(disk_.appends, 1);
  log->Append(std::string(64 << 10, 'x'));
  EXPECT_EQ(disk_.appends, 2) << "a full buffer does not wait for Flush";
}

TEST_F(RecordLogTest, AtAnyMomentTheFileHoldsAPrefixOfWhatWasGiven) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  const auto log = Log();
  std::string given;
  for (int i = 0; i < 2000; ++i) {
    disk_.capacity = random() % 3 == 0 ? disk_.contents.size() + random() % 40 : static_cast<size_t>(-1);
    const std::string record = absl::StrCat(i, std::string(random() % 30, '.'), "\n");
    given += record;
    log->Append(record);
    if (random() % 2 == 0) log->Flush();
    ASSERT_EQ(disk_.contents, given.substr(0, disk_.contents.size()));
    ASSERT_TRUE(disk_.contents.empty() || disk_.contents.back() == '\n');
  }
  disk_.capacity = static_cast<size_t>(-1);
  log->Flush();
  EXPECT_EQ(disk_.contents, given);
}

TEST(AppendFileTest, ADeviceThatIsFull) {
  auto file = AppendFile::Open("/dev/full");
  ASSERT_TRUE(file.ok()) << file.status();
  RecordLog log("progress.jsonl", "lines", *std::move(file));
  log.Append("one\n");
  log.Flush();
  EXPECT_EQ(log.Degraded(), "progress.jsonl cannot be written: No space left on device; 1 lines wait");
}

TEST(AppendFileTest, APlaceThatCannotBeWrittenIsAnErrorWithoutItsPath) {
  const absl::Status status = AppendFile::Open("/nonexistent/file").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "No such file or directory");
}

}  // namespace
}  // namespace troupe::telemetry
