#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include <c10/util/Exception.h>

namespace troupe::training {

/// The first sentences of what LibTorch threw: without the C++ backtrace and the advice on its allocator.
inline std::string FirstWords(const std::exception& error) {
  const std::string what = error.what();
  const std::string line = what.substr(0, what.find('\n'));
  return line.substr(0, line.find(" If reserved but unallocated memory is large"));
}

/// CUDA's own words, where it is not LibTorch's allocator that ran out: a kernel's or a library's first use.
inline bool SaysOutOfMemory(const std::exception& error) {
  const std::string_view what = error.what();
  return what.find("CUDA error: out of memory") != std::string_view::npos ||
         what.find("CUBLAS_STATUS_ALLOC_FAILED") != std::string_view::npos;
}

inline absl::Status OutOfDeviceMemory(std::string_view doing, const std::exception& error) {
  return absl::ResourceExhaustedError(absl::StrCat("no device memory left while ", std::string(doing), ": ",
                                                   FirstWords(error),
                                                   " Lower algorithm.minibatch_size, train_batch_size or the model."));
}

/// `body()`'s Status, or, in the first words of what LibTorch threw while `doing` something: RESOURCE_EXHAUSTED when
/// the device's memory is full, else INTERNAL.
template <typename Body>
absl::Status CatchTorch(std::string_view doing, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const c10::OutOfMemoryError& error) {
    return OutOfDeviceMemory(doing, error);
  } catch (const std::exception& error) {
    if (SaysOutOfMemory(error)) return OutOfDeviceMemory(doing, error);
    return absl::InternalError(absl::StrCat("LibTorch failed while ", std::string(doing), ": ", FirstWords(error)));
  } catch (...) {
    return absl::InternalError(absl::StrCat("LibTorch failed while ", std::string(doing)));
  }
}

}  // namespace troupe::training
