#include "services/torch_launcher/library_path.h"

#include <stdlib.h>

#include <cstdlib>

#include "lib/base/testing/made_up_folder.h"
#include <gmock/gmock.h>

namespace troupe::services {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class LibraryPathTest : public testing::Test {
 protected:
  void SetUp() override { TearDown(); }
  void TearDown() override {
    unsetenv("LD_LIBRARY_PATH");
    unsetenv("TROUPE_FORMER_LD_LIBRARY_PATH");
  }

  static std::string Path() {
    const char* path = std::getenv("LD_LIBRARY_PATH");
    return path == nullptr ? "not set" : path;
  }
};

TEST_F(LibraryPathTest, IsSetAndRestored) {
  setenv("LD_LIBRARY_PATH", "/mine:/other", 1);
  ASSERT_TRUE(SetLibraryPath({"/torch/lib", "/nvidia/lib"}, {"/stubs"}).ok());
  EXPECT_EQ(Path(), "/torch/lib:/nvidia/lib:/mine:/other:/stubs");
  RestoreLibraryPath();
  EXPECT_EQ(Path(), "/mine:/other");
  // A second program of the same process tree is none of the launcher's business.
  setenv("LD_LIBRARY_PATH", "/later", 1);
  RestoreLibraryPath();
  EXPECT_EQ(Path(), "/later");
}

TEST_F(LibraryPathTest, WhatWasNotSetIsNotSetAgain) {
  ASSERT_TRUE(SetLibraryPath({"/torch/lib"}, {}).ok());
  EXPECT_EQ(Path(), "/torch/lib");
  RestoreLibraryPath();
  EXPECT_EQ(Path(), "not set");
}

TEST_F(LibraryPathTest, NamesThatTheLoaderCannotRead) {
  for (const std::string folder : {"/a:b/lib", "/a;b/lib"}) {
    const absl::Status status = SetLibraryPath({"/torch/lib"}, {folder});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "got the folder " + folder +
                                    ", expected one without ':' and ';', which the loader takes for the end of a name");
    EXPECT_EQ(Path(), "not set");
  }
}

TEST_F(LibraryPathTest, StubsOnlyWhereNothingElseIs) {
  const base::MadeUpFolder folder;
  folder.Write("stubs/cudart/libtroupe_nowhere.so.13", "");
  folder.Write("stubs/cupti/libtroupe_beside.so.13", "");
  folder.Write("stubs/known/libm.so.6", "");  // the loader finds it by itself
  folder.Write("nvidia/lib/libtroupe_beside.so.13", "");
  EXPECT_THAT(NeededStubs(folder / "stubs", {folder / "torch", folder / "nvidia/lib"}),
              ElementsAre(folder / "stubs/cudart"));
  EXPECT_THAT(NeededStubs(folder / "stubs", {}), ElementsAre(folder / "stubs/cudart", folder / "stubs/cupti"));
  EXPECT_THAT(NeededStubs(folder / "missing", {}), IsEmpty());
}

}  // namespace
}  // namespace troupe::services
