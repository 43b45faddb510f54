#include "lib/storage/safetensors.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include <gtest/gtest.h>

namespace troupe::storage {
namespace {

std::string FileOf(const std::vector<float>& a, const std::vector<double>& b) {
  const auto bytes = [](const auto& v) {
    return absl::Span<const std::byte>(reinterpret_cast<const std::byte*>(v.data()), v.size() * sizeof(v[0]));
  };
  const std::vector<TensorToWrite> tensors = {
      {"p/actor.0.weight", tensor::DType::kFloat32, {2, static_cast<int64_t>(a.size()) / 2}, bytes(a)},
      {"p/value.mean", tensor::DType::kFloat64, {static_cast<int64_t>(b.size())}, bytes(b)}};
  std::string text = SafetensorsHeader(tensors, {{"format", "pt"}});
  for (const TensorToWrite& tensor : tensors) {
    text.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  return text;
}

std::string WithHeader(const std::string& json, const std::string& data) {
  std::string text(8, '\0');
  const uint64_t length = json.size();
  std::memcpy(text.data(), &length, 8);
  return text + json + data;
}

TEST(SafetensorsTest, RoundTrip) {
  const std::string text = FileOf({1, 2, 3, 4}, {0.5});
  EXPECT_EQ((8 + *reinterpret_cast<const uint64_t*>(text.data())) % 8, 0u) << "data must be aligned";
  const auto file = SafetensorsFile::Parse(text);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_EQ((*file->Find("p/actor.0.weight"))->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(*(*file->Find("p/actor.0.weight"))->ToFloats(4), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(*(*file->Find("p/value.mean"))->ToDoubles(1), (std::vector<double>{0.5}));
  EXPECT_FALSE((*file->Find("p/value.mean"))->ToFloats(1).ok());
  EXPECT_FALSE((*file->Find("p/actor.0.weight"))->ToFloats(5).ok());
  EXPECT_EQ(file->Find("q").status().code(), absl::StatusCode::kNotFound);
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  const std::string text = FileOf({1, 2, 3, 4}, {0.5});
  for (size_t size = 0; size < text.size(); ++size) {
    const std::string cut = text.substr(0, size);
    EXPECT_FALSE(SafetensorsFile::Parse(cut).ok()) << size;
  }
}

TEST(SafetensorsTest, HostileHeadersAreRefused) {
  const std::string data(16, 'x');
  for (
      const char* json : {
          "[]",
          "{",
          "{\"a\": 1}",
          R"({"a": {"dtype": "F32", "shape": [4]}})",
          R"({"a": {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]}})",
          R"({"a": {"dtype": "F32", "shape": [5], "data_offsets": [0, 16]}})",
          R"({"a": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}})",
          R"({"a": {"dtype": "F32", "shape": [4611686018427387905, 4], "data_offsets": [0, 16]}})",
          R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 17]}})",
          R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [16, 0]}})",
          R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [-1, 15]}})",
          R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})",
          R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "b": {"dtype": "F32", "shape": [3], "data_offsets": [4, 16]}})",
          R"({"__metadata__": {"k": 1}, "a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}})",
      }) {
    const std::string text = WithHeader(json, data);
    EXPECT_EQ(SafetensorsFile::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << json;
  }
}

TEST(SafetensorsTest, AHeaderAloneSaysWhereEverythingIs) {
  const std::string text = FileOf({1, 2, 3, 4}, {0.5});
  const auto header_bytes = SafetensorsHeaderBytes(text.substr(0, 8), text.size());
  ASSERT_TRUE(header_bytes.ok());
  const auto index = ParseSafetensorsHeader(std::string_view(text).substr(0, *header_bytes), text.size());
  ASSERT_TRUE(index.ok()) << index.status();
  const auto whole = SafetensorsFile::Parse(text);
  ASSERT_EQ(index->tensors.size(), whole->tensors().size());
  for (const auto& [name, entry] : index->tensors) {
    const std::string bytes = text.substr(*header_bytes + entry.begin, entry.end - entry.begin);
    const SafetensorsFile part = SafetensorsFile::Part(*index, entry.begin, bytes);
    EXPECT_EQ(part.tensors().size(), 1u);
    const TensorRead* const read = *part.Find(name);
    EXPECT_EQ(read->shape, (*whole->Find(name))->shape);
    EXPECT_TRUE(read->bytes == (*whole->Find(name))->bytes) << name;
  }
  const auto code = [&](uint64_t size, uint64_t file_bytes) {
    return ParseSafetensorsHeader(std::string_view(text).substr(0, size), file_bytes).status().code();
  };
  EXPECT_EQ(code(7, text.size()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(*header_bytes, *header_bytes - 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(*header_bytes, text.size() + 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(*header_bytes - 1, text.size()), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(SafetensorsHeaderBytes(text.substr(0, 7), text.size()).ok());
  EXPECT_FALSE(SafetensorsHeaderBytes(text.substr(0, 8), *header_bytes - 1).ok());
}

/// A header of `count` arrays of no bytes, as anybody may write one.
std::string ManyArrays(int count) {
  std::string json = "{";
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&json, i == 0 ? "" : ",", "\"", i, R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})");
  }
  return WithHeader(json + "}", "");
}

// The reader went through all arrays again for each of them: minutes for a header of 3 MB.
TEST(SafetensorsTest, AsManyArraysAsAHeaderMayHoldAreReadInOneGo) {
  constexpr int kValuesOfAnArray = 11;
  constexpr int kMost = ((1 << 19) - 1) / kValuesOfAnArray;
  const auto most = SafetensorsFile::Parse(ManyArrays(kMost));
  ASSERT_TRUE(most.ok()) << most.status();
  EXPECT_EQ(most->tensors().size(), static_cast<size_t>(kMost));
  const auto more = SafetensorsFile::Parse(ManyArrays(kMost + 1));
  EXPECT_EQ(more.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(more.status().message().find("holds more than 524288 values"), std::string::npos) << more.status();
}

TEST(SafetensorsTest, APartLooksAtItsOwnArraysAlone) {
  constexpr int kArrays = 47000;
  std::string json = "{";
  for (int i = 0; i < kArrays; ++i) {
    absl::StrAppend(&json, i == 0 ? "" : ",", "\"", i, R"(":{"dtype":"U8","shape":[1],"data_offsets":[)", i, ",", i + 1,
                    "]}");
  }
  const std::string text = WithHeader(json + "}", std::string(kArrays, 'x'));
  const auto header_bytes = SafetensorsHeaderBytes(text.substr(0, 8), text.size());
  ASSERT_TRUE(header_bytes.ok());
  const auto index = ParseSafetensorsHeader(std::string_view(text).substr(0, *header_bytes), text.size());
  ASSERT_TRUE(index.ok()) << index.status();
  const std::string byte = "x";
  constexpr size_t kTimes = 20;
  size_t found = 0;
  for (size_t i = 0; i < kTimes; ++i) {
    for (uint64_t begin = 0; begin < kArrays; ++begin) {
      found += SafetensorsFile::Part(*index, begin, byte).tensors().size();
    }
  }
  EXPECT_EQ(found, kTimes * kArrays) << "44 billion looks, were each part to go through all arrays";
}

TEST(SafetensorsTest, RandomBytesNeverCrash) {
  base::PhiloxSequence random(base::PhiloxKey::Make(11, base::RandomStream::kTest), {});
  const std::string good = FileOf({1, 2, 3, 4}, {0.5});
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string text = good;
    for (uint32_t flips = 1 + random.Below(4); flips > 0; --flips) {
      text[random.Below(static_cast<uint32_t>(text.size()))] = static_cast<char>(random());
    }
    refused += SafetensorsFile::Parse(text).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace troupe::storage
