#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace troupe::base {

/// A folder of the test's own, with files as the test writes them; gone with the object.
class MadeUpFolder {
 public:
  MadeUpFolder() {
    std::string path = testing::TempDir() + "/made_up_folder_XXXXXX";
    root_ = std::filesystem::canonical(mkdtemp(path.data())).string();
  }
  ~MadeUpFolder() { std::filesystem::remove_all(root_); }

  const std::string& root() const { return root_; }
  std::string operator/(const std::string& name) const { return root_ + "/" + name; }

  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(root_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  /// A program bin/python3 that does what the shell script says; the folder to give as PATH.
  std::string Python(const std::string& script) const {
    Write("bin/python3", "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(root_ + "/bin/python3", std::filesystem::perms::owner_all);
    return root_ + "/bin";
  }

 private:
  std::string root_;
};

}  // namespace troupe::base
