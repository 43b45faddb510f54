// Of contact_sheet.h and ffmpeg_writer.h. ffmpeg is a script here: what is told it and what it says is ours to check.

#include <sys/stat.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "lib/render/contact_sheet.h"
#include "lib/render/ffmpeg_writer.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::render {
namespace {

using ::testing::HasSubstr;

uint32_t BigEndian(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

/// Pixels of a PNG as EncodePng makes it.
struct Png {
  uint32_t width = 0, height = 0;
  std::string rows;
  uint8_t At(uint32_t x, uint32_t y) const { return static_cast<uint8_t>(rows[y * (3 * width + 1) + 1 + 3 * x]); }
};
Png DecodePng(const std::string& bytes) {
  Png png;
  EXPECT_EQ(bytes.substr(0, 8), "\x89PNG\r\n\x1a\n");
  for (size_t at = 8; at < bytes.size();) {
    const uint32_t size = BigEndian(bytes, at);
    const std::string body = bytes.substr(at + 4, 4 + size);
    EXPECT_EQ(BigEndian(bytes, at + 8 + size),
              crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())));
    if (body.substr(0, 4) == "IHDR") {
      png.width = BigEndian(body, 4);
      png.height = BigEndian(body, 8);
    } else if (body.substr(0, 4) == "IDAT") {
      png.rows.resize((3 * png.width + 1) * png.height);
      uLongf length = png.rows.size();
      EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(png.rows.data()), &length,
                           reinterpret_cast<const Bytef*>(body.data() + 4), size),
                Z_OK);
      EXPECT_EQ(length, png.rows.size());
    }
    at += 12 + size;
  }
  return png;
}

std::vector<uint8_t> Gray(int width, int height, int value) {
  return std::vector<uint8_t>(static_cast<size_t>(3 * width * height), static_cast<uint8_t>(value));
}

/// What is seen of `count` pictures of which the i-th is of the gray i.
std::vector<int> Shown(int count) {
  ContactSheet sheet(5, 3);
  for (int i = 0; i < count; ++i) {
    const std::vector<uint8_t> pixels = Gray(5, 3, i);
    EXPECT_TRUE(sheet.Add({5, 3, pixels}, 1).ok());
  }
  const Png png = DecodePng(*sheet.Finish());
  std::vector<int> shown;
  for (uint32_t y = 1; y < png.height; y += 3) {
    for (uint32_t x = 2; x < png.width; x += 5) shown.push_back(png.At(x, y));
  }
  return shown;
}

TEST(ContactSheetTest, PicturesAreEvenlyApartFromTheFirstToTheLast) {
  EXPECT_THAT(Shown(1), ::testing::ElementsAre(0));
  EXPECT_THAT(Shown(3), ::testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(Shown(5), ::testing::ElementsAre(0, 1, 2, 3, 4, 255, 255, 255)) << "places that are left are white";
  EXPECT_THAT(Shown(8), ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(Shown(15), ::testing::ElementsAre(0, 2, 4, 6, 8, 10, 12, 14));
  const std::vector<int> many = Shown(211);
  EXPECT_EQ(many.front(), 0);
  EXPECT_EQ(many.back(), 210);
  for (size_t i = 1; i < many.size(); ++i) EXPECT_NEAR(many[i] - many[i - 1], 30, 16);
}

TEST(ContactSheetTest, WhatDoesNotFitIsRefused) {
  ContactSheet sheet(5, 3);
  EXPECT_EQ(sheet.Finish().status().code(), absl::StatusCode::kFailedPrecondition);
  const std::vector<uint8_t> pixels = Gray(3, 5, 0);
  EXPECT_EQ(sheet.Add({3, 5, pixels}, 1).message(), "a picture of 3x5, expected 5x3");
}

class FfmpegWriterTest : public testing::Test {
 protected:
  FfmpegWriterTest() {
    std::string pattern = testing::TempDir() + "/ffmpeg_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~FfmpegWriterTest() override { std::filesystem::remove_all(folder_); }

  /// A program that does that.
  std::string Script(const std::string& text) {
    const std::string path = folder_ + "/ffmpeg";
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    chmod(path.c_str(), 0700);
    return path;
  }
  absl::StatusOr<std::string> Encode(const std::string& script, int pictures, absl::Duration patience) {
    FfmpegWriter::Options options{
        .width = 200, .height = 100, .frames_per_second = 7, .patience = patience, .most_bytes = 1 << 20};
    auto writer = FfmpegWriter::Start(Script(script), options);
    if (!writer.ok()) return writer.status();
    const std::vector<uint8_t> pixels = Gray(200, 100, 9);
    for (int i = 0; i < pictures; ++i) {
      const absl::Status added = (*writer)->Add({200, 100, pixels}, i + 1 == pictures ? 3 : 1);
      if (!added.ok()) return added;
    }
    return (*writer)->Finish();
  }

  std::string folder_;
};

TEST_F(FfmpegWriterTest, ItGetsPicturesAsTheyAreAndGivesAFile) {
  const auto file = Encode("echo \"$@\" >/proc/self/fd/3; wc -c >>/proc/self/fd/3", 2, absl::Seconds(30));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(*file, HasSubstr("-f rawvideo -pixel_format rgb24 -video_size 200x100 -framerate 7 -i pipe:0"));
  EXPECT_THAT(*file, HasSubstr("-pix_fmt yuv420p"));
  EXPECT_THAT(*file, HasSubstr(std::to_string(4 * 200 * 100 * 3))) << "the last one three times";
}

TEST_F(FfmpegWriterTest, WhatItSaysOfAFailureIsTold) {
  EXPECT_EQ(Encode("cat >/dev/null; echo first >&2; echo 'no such codec' >&2; exit 7", 2, absl::Seconds(30)).status(),
            absl::InternalError("ffmpeg failed with exit code 7: no such codec"));
  EXPECT_EQ(Encode("exec 0<&-; echo 'I read nothing' >&2; exit 1", 50, absl::Seconds(30)).status(),
            absl::InternalError("ffmpeg failed with exit code 1: I read nothing"));
  EXPECT_EQ(Encode("cat >/dev/null; kill -9 $$", 1, absl::Seconds(30)).status(),
            absl::InternalError("ffmpeg failed with signal 9"));
  EXPECT_EQ(Encode("cat >/dev/null", 1, absl::Seconds(30)).status(),
            absl::InternalError("ffmpeg wrote nothing, expected an MP4"));
  EXPECT_EQ(Encode("cat >/dev/null; head -c 1048577 /dev/zero >/proc/self/fd/3", 1, absl::Seconds(30)).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(FfmpegWriterTest, OneThatStandsStillIsKilled) {
  const absl::Status reads_nothing = Encode("exec sleep 600", 100, absl::Milliseconds(200)).status();
  EXPECT_EQ(reads_nothing.code(), absl::StatusCode::kDeadlineExceeded);
  const absl::Status never_ends = Encode("cat >/dev/null; exec sleep 600", 1, absl::Milliseconds(200)).status();
  EXPECT_EQ(never_ends.message(), "ffmpeg stood still for 200ms and was killed");
  EXPECT_FALSE(FfmpegWriter::Start(folder_ + "/nothing", {.width = 2, .height = 2}).ok());
}

TEST_F(FfmpegWriterTest, ItIsLookedForInWholeFoldersOfThePath) {
  const std::string path = std::getenv("PATH");
  const std::string program = Script("exit 0");
  setenv("PATH", (".::/nowhere:" + folder_).c_str(), 1);
  EXPECT_EQ(*FindOnPath("ffmpeg"), program);
  chmod(program.c_str(), 0600);
  setenv("PATH", ".", 1);
  EXPECT_EQ(FindOnPath("ffmpeg").status().code(), absl::StatusCode::kNotFound);
  setenv("PATH", path.c_str(), 1);
}

}  // namespace
}  // namespace troupe::render
