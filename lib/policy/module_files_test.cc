#include "lib/policy/module_files.h"

#include <unistd.h>

#include <fstream>
#include <string>

#include "lib/base/sha256.h"
#include "lib/policy/module_spec.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

using testing::HasSubstr;

std::string Write(const std::string& name, const std::string& text) {
  std::string path = testing::TempDir() + "/module_files_test." + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(ModuleFilesTest, KeepsWhatItReadUnderItsHash) {
  ModuleFiles files;
  const std::string path = Write("pt", "the module");
  const std::string sha256 = base::Sha256("the module");
  EXPECT_EQ(*files.Add(path), sha256);
  Write("pt", "another one");
  EXPECT_EQ((*files.Find(sha256))->bytes, "the module");
  EXPECT_EQ((*files.Find(sha256))->path, path);
  EXPECT_EQ(*files.Add(path), base::Sha256("another one"));
}

TEST(ModuleFilesTest, AStrangersHashFindsNothing) {
  const ModuleFiles files;
  const absl::Status status = files.Find(std::string(64, '0')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected --allow-torchscript FILE"));
}

TEST(ModuleFilesTest, RefusesWhatIsNoFileOfItsSize) {
  ModuleFiles files;
  EXPECT_THAT(std::string(files.Add("/no/such.pt").status().message()), HasSubstr("got /no/such.pt, which cannot be"));
  EXPECT_THAT(std::string(files.Add(testing::TempDir()).status().message()), HasSubstr("which is no file"));
  EXPECT_THAT(std::string(files.Add(Write("empty", "")).status().message()),
              HasSubstr("of 0 bytes, expected a TorchScript file of 1 to 268435456"));
  // Of a hole, so that the test writes nothing.
  const std::string large = Write("large", "x");
  ASSERT_EQ(truncate(large.c_str(), kMaxModuleBytes + 1), 0);
  EXPECT_THAT(std::string(files.Add(large).status().message()),
              HasSubstr("of 268435457 bytes, expected a TorchScript file of 1 to 268435456"));
  ASSERT_EQ(unlink(large.c_str()), 0);
}

TEST(ModuleFilesTest, TheirHashesAreKnown) {
  const std::string hash = base::Sha256("abc");
  EXPECT_TRUE(IsSha256(hash));
  EXPECT_FALSE(IsSha256(hash.substr(1)));
  EXPECT_FALSE(IsSha256(hash + "0"));
  EXPECT_FALSE(IsSha256("B" + hash.substr(1)));
  EXPECT_FALSE(IsSha256("g" + hash.substr(1)));
}

}  // namespace
}  // namespace troupe::policy
