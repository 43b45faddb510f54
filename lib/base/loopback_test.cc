#include "lib/base/loopback.h"

#include <gtest/gtest.h>

namespace troupe::base {
namespace {

TEST(LoopbackTest, AddressesOfThisMachine) {
  for (const char* host : {"localhost", "127.0.0.1", "127.8.0.1", "127.255.255.255", "::1", "0:0:0:0:0:0:0:1",
                           "::ffff:127.0.0.1", "::ffff:7f00:1"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
}

// Plain text left the machine without its flag for a name that begins with "127.".
TEST(LoopbackTest, NamesThatOnlyLookLikeOne) {
  for (const char* host : {"127.evil.example", "127.0.0.1.evil.example", "localhost.", "localhost.evil.example",
                           "evil.localhost", "127.1", "127.0.0.1.", "127.0.0.256", "2130706433", "0x7f.0.0.1", "",
                           "::", "0.0.0.0", "::ffff:10.0.0.1", "::127.0.0.1", "[::1]", "10.0.0.1", "128.0.0.1"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

}  // namespace
}  // namespace troupe::base
