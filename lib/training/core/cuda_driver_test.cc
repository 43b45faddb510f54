#include "lib/training/core/cuda_driver.h"

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string ErrorOf(int index, const char* library = TROUPE_FAKE_CUDA_DRIVER,
                    absl::StatusCode code = absl::StatusCode::kUnavailable) {
  const absl::Status status = AskCudaDriver(index, library).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

class CudaDriverTest : public testing::Test {
 protected:
  void TearDown() override {
    unsetenv("FAKE_CUDA_INIT");
    unsetenv("FAKE_CUDA_DEVICES");
  }
};

TEST_F(CudaDriverTest, SaysWhatTheDeviceIs) {
  const absl::StatusOr<CudaDevice> device = AskCudaDriver(1, TROUPE_FAKE_CUDA_DRIVER);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->ToString(), "Fake K81 (compute capability 3.7, 12.0 GiB, driver for CUDA 12.4)");
}

TEST_F(CudaDriverTest, NoDriver) {
  EXPECT_THAT(ErrorOf(0, "libno_such_driver.so.1", absl::StatusCode::kNotFound),
              StartsWith("there is no NVIDIA driver (libno_such_driver.so.1: "));
}

TEST_F(CudaDriverTest, ALibraryThatIsNoDriver) {
  EXPECT_EQ(ErrorOf(0, "libm.so.6"), "the NVIDIA driver is too old: its library has no cuInit");
}

TEST_F(CudaDriverTest, ADriverThatDoesNotStart) {
  setenv("FAKE_CUDA_INIT", "803", 1);
  EXPECT_EQ(ErrorOf(0),
            "the NVIDIA driver's cuInit failed with code 803: system has unsupported display driver / cuda driver "
            "combination");
  setenv("FAKE_CUDA_INIT", "999", 1);
  EXPECT_EQ(ErrorOf(0), "the NVIDIA driver's cuInit failed with code 999");
}

TEST_F(CudaDriverTest, NoDeviceOrNotThatOne) {
  EXPECT_EQ(ErrorOf(2), "the NVIDIA driver shows this process cuda:0 to cuda:1");
  setenv("FAKE_CUDA_DEVICES", "1", 1);
  EXPECT_EQ(ErrorOf(1), "the NVIDIA driver shows this process cuda:0 alone");
  setenv("FAKE_CUDA_DEVICES", "0", 1);
  EXPECT_EQ(ErrorOf(0), "the NVIDIA driver shows this process no device");
  setenv("FAKE_CUDA_INIT", "100", 1);
  EXPECT_EQ(ErrorOf(0), "the NVIDIA driver shows this process no device");
}

TEST_F(CudaDriverTest, FirstUseInWordsThatSayWhatToDo) {
  const CudaDevice device = *AskCudaDriver(0, TROUPE_FAKE_CUDA_DRIVER);
  const auto explain = [&](const char* words) {
    return std::string(ExplainFirstUse(device, absl::InternalError(words)).message());
  };
  EXPECT_THAT(
      explain("CUDA error: no kernel image is available for execution on the device"),
      AllOf(HasSubstr("Fake K80 (compute capability 3.7"), HasSubstr("is too old, or too new, for this LibTorch: ")));
  EXPECT_EQ(explain("CUDA driver version is insufficient for CUDA runtime version"),
            "the NVIDIA driver runs CUDA up to 12.4, too old for this LibTorch: update it (CUDA driver version is "
            "insufficient for CUDA runtime version)");
  EXPECT_THAT(explain("out of memory"), HasSubstr(" cannot be used: out of memory"));
}

}  // namespace
}  // namespace troupe::training
