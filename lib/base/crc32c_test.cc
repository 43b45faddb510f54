#include "lib/base/crc32c.h"

#include <cstring>
#include <vector>

#include "lib/base/philox.h"
#include <gtest/gtest.h>

namespace troupe::base {
namespace {

// RFC 3720, appendix B.4.
TEST(Crc32cTest, KnownAnswers) {
  std::vector<unsigned char> bytes(32, 0);
  EXPECT_EQ(Crc32c(bytes.data(), bytes.size()), 0x8A9136AAu);
  std::fill(bytes.begin(), bytes.end(), 0xFF);
  EXPECT_EQ(Crc32c(bytes.data(), bytes.size()), 0x62A8AB43u);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i);
  EXPECT_EQ(Crc32c(bytes.data(), bytes.size()), 0x46DD794Eu);
  EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283u);
}

TEST(Crc32cTest, HardwareAndTableAgreeAtEverySizeAndSplit) {
  PhiloxSequence random(PhiloxKey::Make(7, RandomStream::kTest), {});
  std::vector<unsigned char> bytes(40000);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  for (const size_t size : {0, 1, 7, 8, 9, 255, 4096, 12287, 12288, 12289, 24576, 39999}) {
    EXPECT_EQ(Crc32c(bytes.data(), size), Crc32cPortable(bytes.data(), size)) << size;
    const size_t split = size / 3;
    EXPECT_EQ(Crc32c(bytes.data() + split, size - split, Crc32c(bytes.data(), split)), Crc32c(bytes.data(), size));
  }
}

}  // namespace
}  // namespace troupe::base
