#include "lib/policy/python_callable.h"

#include <string>

#include <gtest/gtest.h>

namespace troupe::policy {
namespace {

TEST(PythonNameTest, HasModuleAndAttribute) {
  for (const char* good : {"python:my_module:choose", "python:a.b:C.make", "python:folder/file.py:choose"}) {
    EXPECT_TRUE(ValidatePythonName(good).ok()) << good;
  }
  for (const char* bad :
       {"python:", "python:my_module", "python:my_module:", "python::choose", "my_module:choose", ""}) {
    const absl::Status status = ValidatePythonName(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(status.message(), "got \"" + std::string(bad) + "\", expected python:MODULE:NAME");
  }
}

TEST(PythonNameTest, HasALimit) {
  const std::string longest = "python:m:" + std::string(kMaxPythonNameLength - 9, 'x');
  EXPECT_TRUE(ValidatePythonName(longest).ok());
  EXPECT_EQ(ValidatePythonName(longest + "x").message(), "got a name of 1025 characters, expected at most 1024");
}

}  // namespace
}  // namespace troupe::policy
