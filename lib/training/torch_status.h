#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace troupe::training {

/// `body()`'s Status, or INTERNAL with the first line of what LibTorch threw while `doing` something (the lines after
/// it are a C++ backtrace).
template <typename Body>
absl::Status CatchTorch(std::string_view doing, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return absl::InternalError(
        absl::StrCat("LibTorch failed while ", std::string(doing), ": ", what.substr(0, what.find('\n'))));
  } catch (...) {
    return absl::InternalError(absl::StrCat("LibTorch failed while ", std::string(doing)));
  }
}

}  // namespace troupe::training
