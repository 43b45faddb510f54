#include "lib/telemetry/tensorboard_writer.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "lib/base/crc32c.h"
#include <gtest/gtest.h>

namespace troupe::telemetry {
namespace {

/// The payloads of a TFRecord file, with both checksums of every record checked.
std::vector<std::string> Records(const std::string& text) {
  const auto masked = [](const char* data, size_t size) {
    const uint32_t crc = base::Crc32cPortable(data, size);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  };
  std::vector<std::string> records;
  size_t at = 0;
  while (at < text.size()) {
    uint64_t length = 0;
    uint32_t length_crc = 0, data_crc = 0;
    std::memcpy(&length, text.data() + at, 8);
    std::memcpy(&length_crc, text.data() + at + 8, 4);
    EXPECT_EQ(length_crc, masked(text.data() + at, 8));
    records.push_back(text.substr(at + 12, length));
    std::memcpy(&data_crc, text.data() + at + 12 + length, 4);
    EXPECT_EQ(data_crc, masked(records.back().data(), length));
    at += 16 + length;
  }
  EXPECT_EQ(at, text.size());
  return records;
}

TEST(TensorBoardWriterTest, WritesTheBytesThatTensorBoardReads) {
  const std::string directory = ::testing::TempDir() + "/troupe_tb_test";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  base::FakeClock clock;
  clock.Advance(absl::Seconds(1700000000));
  {
    auto writer = TensorBoardWriter::Open(directory, clock);
    ASSERT_TRUE(writer.ok()) << writer.status();
    (*writer)->Scalar("Loss/Policy loss", 0.5, 300);
    (*writer)->Image("Videos_Test", 200, 250, "GIF89a", 300);
  }
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) path = entry.path().string();
  EXPECT_NE(path.find("events.out.tfevents.1700000000."), std::string::npos) << path;
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  const std::vector<std::string> records = Records(text.str());
  ASSERT_EQ(records.size(), 3u);

  std::string wall_time(9, '\x09');  // field 1, fixed64
  const double seconds = 1700000000.0;
  std::memcpy(wall_time.data() + 1, &seconds, 8);
  EXPECT_EQ(records[0], wall_time +
                            "\x1a\x0d"
                            "brain.Event:2");
  // step 300 = varint AC 02; summary{ value{ tag, simple_value 0.5f } }
  EXPECT_EQ(records[1], wall_time + "\x10\xac\x02" + "\x2a\x19\x0a\x17" +
                            "\x0a\x10"
                            "Loss/Policy loss" +
                            std::string("\x15\x00\x00\x00\x3f", 5));
  // summary{ value{ tag, image{ height 250, width 200, colorspace 3, encoded } } }
  EXPECT_EQ(records[2], wall_time + "\x10\xac\x02" + "\x2a\x21\x0a\x1f" + "\x0a\x0bVideos_Test" + "\x22\x10" +
                            "\x08\xfa\x01\x10\xc8\x01\x18\x03" + "\x22\x06GIF89a");
}

TEST(TensorBoardWriterTest, UnwritablePlaceIsAnError) { EXPECT_FALSE(TensorBoardWriter::Open("/nonexistent").ok()); }

}  // namespace
}  // namespace troupe::telemetry
