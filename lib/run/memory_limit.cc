#include "lib/run/memory_limit.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/base/process_memory.h"

namespace troupe::run {
namespace {

constexpr int kArenas = 2;
constexpr int64_t kStackBytes = int64_t{2} << 20;  // what glibc gives where `ulimit -s` is "unlimited"

const char* g_program = "troupe";

std::optional<int64_t> MemoryLimitBytes() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<int64_t>(limit.rlim_cur);
}

/// ", of which a process may have 400 MiB here (ulimit -v)"; empty without a limit.
std::string LimitWords() {
  const std::optional<int64_t> limit = MemoryLimitBytes();
  return limit ? absl::StrCat(", of which a process may have ", *limit >> 20, " MiB here (ulimit -v)") : "";
}

std::string Words(const std::bad_alloc& /*error*/) { return absl::StrCat("out of memory", LimitWords()); }

std::string Words(const std::system_error& error) {
  return absl::StrCat("a thread could not be started (", error.what(), "): out of memory or of processes (ulimit -u)",
                      LimitWords());
}

/// Whether a std::system_error is that of a thread that could not be started.
bool IsOutOfThreads(const std::system_error& error) {
  return error.code() == std::errc::resource_unavailable_try_again;
}

[[noreturn]] void End(const std::string& words) {
  std::fprintf(stderr, "%s: error: %s\n", g_program, words.c_str());
  std::fflush(nullptr);
  _exit(static_cast<int>(base::ExitCode::kFailed));
}

[[noreturn]] void OnTerminate() {
  const std::exception_ptr thrown = std::current_exception();
  try {
    if (thrown != nullptr) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc& error) {
    End(Words(error));
  } catch (const std::system_error& error) {
    if (IsOutOfThreads(error)) End(Words(error));
    std::fprintf(stderr, "%s: uncaught exception: %s\n", g_program, error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: uncaught exception: %s\n", g_program, error.what());
  } catch (...) {
    std::fprintf(stderr, "%s: uncaught exception\n", g_program);
  }
  std::abort();
}

}  // namespace

absl::Status FitIntoMemoryLimit(int64_t needed_bytes) {
  if (!MemoryLimitBytes()) return absl::OkStatus();
  base::LimitHeapArenas(kArenas);
  base::LimitThreadStacks(kStackBytes);
  const size_t bytes = static_cast<size_t>(needed_bytes);
  void* const there = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (there == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("too little memory", LimitWords(), ": expected at least ",
                                                     needed_bytes >> 20, " MiB beyond the program itself"));
  }
  munmap(there, bytes);
  return absl::OkStatus();
}

absl::Status CatchOutOfMemory(const std::function<absl::Status()>& body) {
  try {
    return body();
  } catch (const std::bad_alloc& error) {
    return absl::ResourceExhaustedError(Words(error));
  } catch (const std::system_error& error) {
    if (!IsOutOfThreads(error)) throw;
    return absl::ResourceExhaustedError(Words(error));
  }
}

void EndInWordsWhenOutOfMemory(const char* program) {
  g_program = program;
  std::set_terminate(OnTerminate);
}

}  // namespace troupe::run
