#include "lib/storage/run_address.h"

#include <gtest/gtest.h>

namespace troupe::storage {
namespace {

TEST(RunAddressTest, ReadsWhatItWrites) {
  const RunAddress address = {
      {"0.0.0.0:50051", "unix:/tmp/with space/x.sock"}, "/run/user/1000/troupe-a b/control.sock", "box"};
  const std::string text = ToText(address);
  EXPECT_EQ(text,
            "0.0.0.0:50051\nunix:/tmp/with space/x.sock\ncontrol /run/user/1000/troupe-a b/control.sock\nhost box\n");
  const RunAddress read = ParseRunAddress(text);
  EXPECT_EQ(read.listen, address.listen);
  EXPECT_EQ(read.control, address.control);
  EXPECT_EQ(read.host, address.host);
}

TEST(RunAddressTest, ALearnerThatListensNowhereHasItsControlSocket) {
  const RunAddress read = ParseRunAddress(ToText({{}, "control/control.sock", "box"}));
  EXPECT_TRUE(read.listen.empty());
  EXPECT_EQ(read.control, "control/control.sock");
}

TEST(RunAddressTest, AnyTextIsRead) {
  for (const char* text : {"", "\n\n", "control", "host", "control \n"}) {
    EXPECT_EQ(ParseRunAddress(text).control, "") << text;
  }
  EXPECT_EQ(ParseRunAddress("unix:/tmp/x.sock").listen.size(), 1u) << "cut in the middle";
}

}  // namespace
}  // namespace troupe::storage
