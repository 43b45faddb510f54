#include "services/torch_launcher/find_libtorch.h"

#include "absl/strings/str_cat.h"
#include "lib/base/testing/made_up_folder.h"
#include <gmock/gmock.h>

namespace troupe::services {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kExpected[] = "2.11.0";

/// A folder torch/ as pip makes it, in site/.
void WriteTorch(const base::MadeUpFolder& folder, const std::string& version) {
  folder.Write("site/torch/lib/libtorch_cpu.so", "");
  folder.Write("site/torch/version.py",
               "from typing import Optional\n\n__all__ = ['__version__']\n__version__ = '" + version + "'\n");
}

LibTorchPlaces Variable(const std::string& folder) { return {folder, ""}; }

std::string Message(const absl::StatusOr<LibTorch>& found) { return std::string(found.status().message()); }

TEST(FindLibTorch, TheVariableNamesASitePackages) {
  const base::MadeUpFolder folder;
  WriteTorch(folder, "2.11.0");
  const absl::StatusOr<LibTorch> found = FindLibTorch(Variable(folder / "site"), kExpected);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->folder, folder / "site/torch");
  EXPECT_EQ(found->version, "2.11.0");
  // Or the package itself.
  EXPECT_EQ(FindLibTorch(Variable(folder / "site/torch"), kExpected)->folder, folder / "site/torch");
}

TEST(FindLibTorch, WhatFollowsTheVersionDoesNotMatter) {
  for (const std::string version : {"2.11.0+cu130", "2.11.0+cpu"}) {
    const base::MadeUpFolder folder;
    WriteTorch(folder, version);
    EXPECT_TRUE(FindLibTorch(Variable(folder / "site"), kExpected).ok()) << version;
  }
}

TEST(FindLibTorch, AnotherVersionIsOneSentence) {
  for (const std::string version : {"2.11.1", "2.10.0+cpu", "2.11.0a0+git1234", "2.11", "12.11.0", "2.11.00"}) {
    const base::MadeUpFolder folder;
    WriteTorch(folder, version);
    const absl::StatusOr<LibTorch> found = FindLibTorch(Variable(folder / "site"), kExpected);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition) << version;
    EXPECT_EQ(
        Message(found),
        absl::StrCat(
            "this build needs LibTorch 2.11.0, got ", version, " in ", folder / "site/torch",
            "; install it with pip install torch==2.11.0, or set TROUPE_LIBTORCH to the folder that holds torch/"));
  }
}

TEST(FindLibTorch, TheZipOfLibTorch) {
  const base::MadeUpFolder folder;
  folder.Write("libtorch/lib/libtorch_cpu.so", "");
  folder.Write("libtorch/build-version", "2.11.0+cpu\n");
  EXPECT_EQ(FindLibTorch(Variable(folder / "libtorch"), kExpected)->version, "2.11.0");
  folder.Write("libtorch/build-version", "2.9.1+cpu\n");
  EXPECT_THAT(Message(FindLibTorch(Variable(folder / "libtorch"), kExpected)), HasSubstr("got 2.9.1+cpu in "));
}

TEST(FindLibTorch, TheVersionOfAnUnpackedWheel) {
  const base::MadeUpFolder folder;
  folder.Write("site/torch/lib/libtorch_cpu.so", "");
  folder.Write("site/torch-2.11.0.dist-info/METADATA", "");
  folder.Write("site/torchvision-0.2.dist-info/METADATA", "");
  EXPECT_TRUE(FindLibTorch(Variable(folder / "site"), kExpected).ok());
  // What is imported says it better than what pip wrote beside it.
  WriteTorch(folder, "2.9.0");
  EXPECT_EQ(LibTorchVersion(folder / "site/torch"), "2.9.0");
  WriteTorch(folder, "");
  EXPECT_EQ(LibTorchVersion(folder / "site/torch"), "2.11.0");
  folder.Write("site/torch-2.10.0.dist-info/METADATA", "");
  EXPECT_THAT(Message(FindLibTorch(Variable(folder / "site"), kExpected)), HasSubstr("does not say its version"));
}

TEST(FindLibTorch, NoVersionIsSaid) {
  const base::MadeUpFolder folder;
  folder.Write("site/torch/lib/libtorch_cpu.so", "");
  for (const std::string text :
       {"", "__version__ = \n", "__version__ = '\n", "__version__ = ''\n", "version = '2.11.0'\n"}) {
    folder.Write("site/torch/version.py", text);
    const absl::StatusOr<LibTorch> found = FindLibTorch(Variable(folder / "site"), kExpected);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition) << text;
    EXPECT_THAT(Message(found), HasSubstr("needs LibTorch 2.11.0, got one that does not say its version")) << text;
  }
}

TEST(FindLibTorch, TheVariableIsWrong) {
  const base::MadeUpFolder folder;
  folder.Write("site/torch/__init__.py", "");
  WriteTorch(folder, "2.11.0");
  const std::string python = folder.Python("echo troupe-libtorch:" + folder / "site/torch");
  for (const std::string& wrong : {folder / "missing", folder / "bin", folder / "bin/python3"}) {
    // Who sets the variable means it: python3 is not asked.
    const absl::StatusOr<LibTorch> found = FindLibTorch({wrong, python}, kExpected);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(Message(found),
              absl::StrCat("TROUPE_LIBTORCH is ", wrong,
                           ", which holds no LibTorch; expected LibTorch 2.11.0, as torch/lib/libtorch_cpu.so",
                           " (a site-packages) or lib/libtorch_cpu.so (LibTorch's zip) in that folder"));
  }
}

TEST(FindLibTorch, ThePackageOfPython) {
  const base::MadeUpFolder folder;
  WriteTorch(folder, "2.11.0+cu130");
  const LibTorchPlaces places = {"", folder.Python("echo troupe-libtorch:" + folder / "site/torch")};
  EXPECT_EQ(FindLibTorch(places, kExpected)->folder, folder / "site/torch");
  EXPECT_THAT(Message(FindLibTorch(places, "2.12.0")),
              HasSubstr("needs LibTorch 2.12.0, got 2.11.0+cu130 in " + folder / "site/torch"));
  std::filesystem::remove_all(folder / "site/torch/lib");
  EXPECT_THAT(
      Message(FindLibTorch(places, kExpected)),
      HasSubstr("python3's package torch in " + folder / "site/torch" + " holds no lib/libtorch_cpu.so; install"));
}

TEST(FindLibTorch, NoneAtAllIsOneSentence) {
  const base::MadeUpFolder folder;
  const absl::StatusOr<LibTorch> found = FindLibTorch({"", folder.Python("echo troupe-libtorch:")}, kExpected);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(
      Message(found),
      absl::StrCat("this build needs LibTorch 2.11.0, but there is none: TROUPE_LIBTORCH is not set and python3 (",
                   folder / "bin/python3",
                   ") has no package torch; install it with pip install torch==2.11.0, or set TROUPE_LIBTORCH to the "
                   "folder that holds torch/"));
  EXPECT_THAT(Message(FindLibTorch({"", folder / "empty"}, kExpected)),
              HasSubstr("is not set and there is no python3 on the PATH; install it with"));
  LibTorchPlaces hanging = {"", folder.Python("exec sleep 1000")};
  hanging.python_timeout = absl::Milliseconds(200);
  EXPECT_THAT(Message(FindLibTorch(hanging, kExpected)),
              HasSubstr("did not say within 200ms where its package torch is; install it with"));
}

TEST(FindLibTorch, BesideTheProgramOfAWheel) {
  const base::MadeUpFolder folder;
  const auto write = [&](const std::string& package, const std::string& version) {
    folder.Write("site/" + package + "/lib/libtorch_cpu.so", "");
    folder.Write("site/" + package + "/version.py", "__version__ = '" + version + "'\n");
  };
  LibTorchPlaces places = {"", folder.Python("echo troupe-libtorch:"), folder / "site"};
  constexpr char kRemedy[] =
      "; install it with pip install '" TROUPE_DISTRIBUTION "[cpu]' (for an NVIDIA GPU '" TROUPE_DISTRIBUTION
      "[cuda]'), or set TROUPE_LIBTORCH to the folder that holds torch/";
  EXPECT_THAT(Message(FindLibTorch(places, kExpected)), HasSubstr(std::string("has no package torch") + kRemedy));
  write("torch", "2.10.0+cpu");
  EXPECT_EQ(Message(FindLibTorch(places, kExpected)),
            "this build needs LibTorch 2.11.0, got 2.10.0+cpu in " + folder / "site/torch" + kRemedy);
  // A torch that the user needs for other things is not in the way.
  write("troupe_libtorch", "2.11.0");
  EXPECT_EQ(FindLibTorch(places, kExpected)->folder, folder / "site/troupe_libtorch");
  // One that will do may have CUDA.
  write("torch", "2.11.0+cu130");
  EXPECT_EQ(FindLibTorch(places, kExpected)->folder, folder / "site/torch");
  places.variable = folder / "site/troupe_libtorch";
  EXPECT_EQ(FindLibTorch(places, kExpected)->folder, folder / "site/troupe_libtorch");
}

TEST(FindLibTorch, PackagesThatAWheelIsInstalledAmong) {
  const base::MadeUpFolder folder;
  folder.Write("site/troupe/__init__.py", "");
  folder.Write("bundle/bin/troupe", "");
  EXPECT_EQ(SitePackagesOf(folder / "site/troupe/bin/troupe-learner"), folder / "site");
  EXPECT_EQ(SitePackagesOf(folder / "bundle/bin/troupe"), "");
  EXPECT_EQ(SitePackagesOf("/troupe/bin/troupe"), "");
  EXPECT_EQ(SitePackagesOf(""), "");
}

TEST(FindLibTorch, LibrariesOfCudaBesideIt) {
  const base::MadeUpFolder folder;
  WriteTorch(folder, "2.11.0");
  folder.Write("site/nvidia/cudnn/lib/libcudnn.so.9", "");
  folder.Write("site/nvidia/cu13/lib/libcudart.so.13", "");
  folder.Write("site/nvidia/cu13/include/cuda.h", "");
  folder.Write("site/nvidia/__init__.py", "");
  folder.Write("site/nvidia/nvtx/include/nvtx.h", "");
  EXPECT_THAT(
      LibraryFolders(*FindLibTorch(Variable(folder / "site"), kExpected)),
      ElementsAre(folder / "site/torch/lib", folder / "site/nvidia/cu13/lib", folder / "site/nvidia/cudnn/lib"));
}

TEST(FindLibTorch, AProcessWithoutItHasLoadedNone) {
  EXPECT_EQ(LoadedLibTorch().folder, "");
  EXPECT_EQ(LoadedLibTorch().version, "");
}

}  // namespace
}  // namespace troupe::services
