#include "lib/run/memory_limit.h"

#include <sys/resource.h>

#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "lib/base/exit_code.h"
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

constexpr rlim_t kLimit = rlim_t{1} << 48;  // of address space: more than a sanitizer reserves (TSan above 64 TiB)

void Limit(rlim_t bytes) {
  const rlimit limit{bytes, RLIM_INFINITY};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

TEST(MemoryLimitTest, WithoutALimitAnythingFits) { EXPECT_TRUE(FitIntoMemoryLimit(int64_t{1} << 50).ok()); }

TEST(MemoryLimitTest, WhatDoesNotFitIsRefusedWithTheLimit) {
  Limit(kLimit);
  const absl::Status refused = FitIntoMemoryLimit(kLimit);
  EXPECT_TRUE(FitIntoMemoryLimit(1 << 20).ok());
  Limit(RLIM_INFINITY);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(
      refused.message(),
      "too little memory, of which a process may have 268435456 MiB here (ulimit -v): expected at least 268435456 MiB "
      "beyond the program itself");
}

TEST(MemoryLimitTest, MemoryAndThreadsThatAreNotToBeHadAreStatuses) {
  EXPECT_EQ(CatchOutOfMemory([]() -> absl::Status { throw std::bad_alloc(); }).message(), "out of memory");
  const auto no_thread = []() -> absl::Status {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  };
  EXPECT_EQ(CatchOutOfMemory(no_thread).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THROW(CatchOutOfMemory([]() -> absl::Status { throw std::runtime_error("another"); }).IgnoreError(),
               std::runtime_error);
  EXPECT_TRUE(CatchOutOfMemory([] { return absl::OkStatus(); }).ok());
}

TEST(MemoryLimitDeathTest, WhatNobodyCatchesEndsInWordsAndOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto in_a_thread = [](auto thrown) {
    EndInWordsWhenOutOfMemory("troupe-test");
    std::thread([&] { throw thrown; }).join();
  };
  EXPECT_EXIT(in_a_thread(std::bad_alloc()), testing::ExitedWithCode(1), "troupe-test: error: out of memory");
  EXPECT_EXIT(in_a_thread(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))),
              testing::ExitedWithCode(1), "troupe-test: error: a thread could not be started");
  EXPECT_EXIT(in_a_thread(std::runtime_error("another")), testing::KilledBySignal(SIGABRT), "another");
}

}  // namespace
}  // namespace troupe::run
