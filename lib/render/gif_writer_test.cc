#include "lib/render/gif_writer.h"

#include <gif_lib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace troupe::render {
namespace {

struct Reading {
  const std::string& bytes;
  size_t at = 0;
};

int Read(GifFileType* gif, GifByteType* to, int size) {
  auto& reading = *static_cast<Reading*>(gif->UserData);
  const size_t count = std::min(static_cast<size_t>(size), reading.bytes.size() - reading.at);
  std::memcpy(to, reading.bytes.data() + reading.at, count);
  reading.at += count;
  return static_cast<int>(count);
}

struct Closing {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};
using Gif = std::unique_ptr<GifFileType, Closing>;

Gif Decode(const std::string& bytes) {
  Reading reading{bytes};
  int error = 0;
  Gif gif(DGifOpen(&reading, Read, &error));
  EXPECT_TRUE(gif != nullptr && DGifSlurp(gif.get()) == GIF_OK) << error;
  return gif;
}

env::Color PixelOf(const GifFileType& gif, int image, int x, int y) {
  const SavedImage& saved = gif.SavedImages[image];
  const GifColorType& color = saved.ImageDesc.ColorMap->Colors[saved.RasterBits[y * saved.ImageDesc.Width + x]];
  return {color.Red, color.Green, color.Blue};
}

TEST(GifWriterTest, PicturesComeBackInOrderWithTheirDelay) {
  RasterCanvas canvas(60, 40, 40);
  canvas.View(0, 0, 60, 40);
  auto writer = *GifWriter::Create(60, 40, 120);
  canvas.Rectangle({0, 0}, {30, 40}, {200, 40, 40});
  ASSERT_TRUE(writer->Add(canvas.picture(), 1).ok());
  canvas.Rectangle({30, 0}, {60, 40}, {40, 40, 200});
  ASSERT_TRUE(writer->Add(canvas.picture(), 1).ok());
  const absl::StatusOr<std::string> bytes = writer->Finish();
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(bytes->substr(0, 6), "GIF89a");
  EXPECT_NE(bytes->find("NETSCAPE2.0"), std::string::npos) << "it is shown again and again";
  const Gif gif = Decode(*bytes);
  ASSERT_EQ(gif->ImageCount, 2);
  EXPECT_EQ(gif->SWidth, 60);
  EXPECT_EQ(gif->SHeight, 40);
  const auto is_near = [](env::Color got, env::Color expected) {  // palettes have 5 bits a color
    return std::abs(got.red - expected.red) <= 8 && std::abs(got.green - expected.green) <= 8 &&
           std::abs(got.blue - expected.blue) <= 8;
  };
  EXPECT_TRUE(is_near(PixelOf(*gif, 0, 10, 20), {200, 40, 40}));
  EXPECT_TRUE(is_near(PixelOf(*gif, 0, 50, 20), env::colors::kBackground));
  EXPECT_TRUE(is_near(PixelOf(*gif, 1, 10, 20), {200, 40, 40}));
  EXPECT_TRUE(is_near(PixelOf(*gif, 1, 50, 20), {40, 40, 200}));
  for (int image = 0; image < 2; ++image) {
    GraphicsControlBlock control;
    ASSERT_EQ(DGifSavedExtensionToGCB(gif.get(), image, &control), GIF_OK);
    EXPECT_EQ(control.DelayTime, 12);
  }
}

TEST(GifWriterTest, WhatDoesNotFitIsRefused) {
  auto writer = *GifWriter::Create(60, 40, 100);
  const RasterCanvas other(60, 41, 41);
  const absl::Status refused = writer->Add(other.picture(), 1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(), "a picture of 60x41, expected 60x40");
  auto small = *GifWriter::Create(60, 41, 100, /*most_bytes=*/2000);
  int added = 0;
  while (added < 100 && small->Add(other.picture(), 1).ok()) ++added;
  EXPECT_GT(added, 0);
  EXPECT_LT(added, 100);
  const absl::Status full = small->Add(other.picture(), 1);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(full.message(), "the GIF has more than 2000 bytes, expected a smaller picture");
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(writer->Finish().status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace troupe::render
