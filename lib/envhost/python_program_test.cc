#include "lib/envhost/python_program.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::envhost {
namespace {

namespace fs = std::filesystem;

/// A variable of the environment, as it was before at the end.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = getenv(name); before != nullptr) before_ = before;
    had_ = getenv(name) != nullptr;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { had_ ? setenv(name_, before_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* const name_;
  std::string before_;
  bool had_ = false;
};

class PythonProgramTest : public testing::Test {
 protected:
  PythonProgramTest() {
    std::string path = testing::TempDir() + "/python_program_XXXXXX";
    root_ = fs::path(mkdtemp(path.data())).lexically_normal().string();
  }
  ~PythonProgramTest() override { fs::remove_all(root_); }

  std::string Program(const std::string& name) {
    const fs::path path = fs::path(root_) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "#!/bin/sh\n";
    fs::permissions(path, fs::perms::owner_all);
    return path.string();
  }

  std::string root_;
};

TEST_F(PythonProgramTest, TheDefaultIsTheVirtualEnvironments) {
  const std::string in_venv = Program("venv/bin/python");
  const std::string on_path = Program("bin/python3");
  const Variable path("PATH", root_ + "/bin");
  {
    const Variable venv("VIRTUAL_ENV", root_ + "/venv");
    EXPECT_EQ(*FindInterpreter(""), in_venv);
    EXPECT_EQ(*FindInterpreter("python3"), on_path) << "what is named counts";
  }
  {
    const Variable gone("VIRTUAL_ENV", root_ + "/removed");
    EXPECT_EQ(*FindInterpreter(""), on_path);
  }
  const Variable none("VIRTUAL_ENV", "");
  EXPECT_EQ(*FindInterpreter(""), on_path);
  EXPECT_EQ(*FindInterpreter(root_ + "/venv"), in_venv);
}

TEST_F(PythonProgramTest, AModuleRunsAsMainWithItsArguments) {
  const std::vector<std::string> words = ModuleCommand("python3", "troupe.env_host", {"one", "two words"});
  EXPECT_THAT(words, testing::ElementsAre("python3", "-c", testing::HasSubstr("run_module"), "troupe.env_host", "one",
                                          "two words"));
}

TEST_F(PythonProgramTest, ThePathIsThePackagesFolderAndOursWithoutTheWorkingDirectory) {
  {
    const Variable path("PYTHONPATH", ":/a::relative/b:");
    EXPECT_EQ(PythonPath("/package"), "/package:/a:relative/b");
    EXPECT_EQ(PythonPath(""), "/a:relative/b");
  }
  const Variable path("PYTHONPATH", "");
  EXPECT_EQ(PythonPath("/package"), "/package");
  EXPECT_EQ(PythonPath(""), "");
}

TEST_F(PythonProgramTest, FilesAreLookedForInTheFolderFirst) {
  Program("my env.py");
  Program("sub/env.py");
  EXPECT_EQ(ModuleName("python:my env.py:Env", root_), root_ + "/my env.py:Env");
  EXPECT_EQ(ModuleName("python:sub/env.py", root_), root_ + "/sub/env.py");
  EXPECT_EQ(ModuleName("python:sub/../sub/env.py:a.b", root_), root_ + "/sub/env.py:a.b");
  EXPECT_EQ(ModuleName("python:other.py:Env", root_), "other.py:Env") << "not there: in the working folder";
  EXPECT_EQ(ModuleName("python:/abs/env.py:Env", root_), "/abs/env.py:Env");
  EXPECT_EQ(ModuleName("python:my_env:Env", root_), "my_env:Env");
  EXPECT_EQ(ModuleName("python:sub/env.py", ""), "sub/env.py");
}

}  // namespace
}  // namespace troupe::envhost
