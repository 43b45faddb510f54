#include "lib/training/device_options.h"

#include <gtest/gtest.h>

namespace troupe::training {
namespace {

TEST(DeviceOptionsTest, NamesOfDevices) {
  EXPECT_EQ(ParseDevice("auto")->ToString(), "auto");
  EXPECT_EQ(ParseDevice("cpu")->ToString(), "cpu");
  EXPECT_EQ(ParseDevice("cuda")->ToString(), "cuda:0");
  EXPECT_EQ(*ParseDevice("cuda:1"), (Device{DeviceKind::kCuda, 1}));
  EXPECT_EQ(ParseDevice("cuda:127")->index, kMaxDeviceIndex);
}

TEST(DeviceOptionsTest, OtherNamesAreRefused) {
  for (const char* name : {"", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda: 1", "cuda:1 ", "cuda:128",
                           "cuda:99999999999", "cpu:0"}) {
    const absl::Status status = ParseDevice(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(
        status.message(),
        absl::StrCat("got \"", name,
                     "\", expected auto, cpu, cuda or cuda:N (N from 0 to 127); auto takes a GPU where there is one"));
  }
}

}  // namespace
}  // namespace troupe::training
