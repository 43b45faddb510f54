#include "lib/base/sha256.h"

#include <string>

#include <gtest/gtest.h>

namespace troupe::base {
namespace {

// The examples of FIPS 180-4 (NIST's "SHA-256 examples"): no byte, one block, two blocks.
TEST(Sha256Test, IsTheStandards) {
  EXPECT_EQ(Sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_NE(Sha256(std::string("a\0b", 3)), Sha256(std::string("a\0c", 3)));
}

}  // namespace
}  // namespace troupe::base
