#include "lib/cli/death_words.h"

#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace troupe::cli {
namespace {

TEST(ChildExitTest, SaysHowItEnded) {
  EXPECT_EQ((ChildExit{.code = 3}).ToString(), "exited with 3");
  EXPECT_EQ((ChildExit{.signal = 9}).ToString(), "was killed by signal 9 (Killed)");
  EXPECT_EQ((ChildExit{.signal = 9}).ShellCode(), 137);
  EXPECT_EQ((ChildExit{.code = 3}).ShellCode(), 3);
}

TEST(ChildExitTest, WhatASignalAsksForIsInOrder) {
  EXPECT_TRUE((ChildExit{}).in_order());
  EXPECT_TRUE((ChildExit{.code = 130}).in_order());
  EXPECT_FALSE((ChildExit{.code = 1}).in_order());
  EXPECT_FALSE((ChildExit{.signal = 2}).in_order());
}

TEST(DeathWordsTest, SayWhatIsKnownOfTheKernelAndNoMore) {
  const ChildExit killed{.signal = 9};
  EXPECT_EQ(DeathWords(killed, {}), "was killed by signal 9 (Killed), perhaps by the kernel for lack of memory");
  EXPECT_EQ(DeathWords(killed, {.memory_kills = 0}),
            "was killed by signal 9 (Killed) by another process: the kernel has killed nobody for lack of memory "
            "meanwhile");
  EXPECT_EQ(DeathWords(killed, {.memory_kills = 1}),
            "was killed by signal 9 (Killed), perhaps by the kernel for lack of memory, which has killed 1 process of "
            "this machine for that meanwhile");
}

TEST(DeathWordsTest, ALimitOnMemoryIsNamedWhereALibraryMayHaveMetIt) {
  const DeathContext limited{.memory_kills = 0, .memory_limit_bytes = 400 << 20};
  EXPECT_EQ(DeathWords({.signal = 6}, limited),
            "was killed by signal 6 (Aborted); it may have run out of memory, of which a process may have 400 MiB here "
            "(ulimit -v)");
  EXPECT_EQ(DeathWords({.signal = 6}, {.memory_kills = 3}), "was killed by signal 6 (Aborted)");
  EXPECT_EQ(DeathWords({.code = 1}, limited), "exited with 1");
}

TEST(DeathWordsTest, TheKernelsCountCanBeRead) {
  std::ifstream counters("/proc/vmstat");
  const std::string text((std::istreambuf_iterator<char>(counters)), std::istreambuf_iterator<char>());
  const std::optional<int64_t> kills = KernelMemoryKills();
  EXPECT_EQ(kills.has_value(), text.find("\noom_kill ") != std::string::npos);
  EXPECT_GE(kills.value_or(0), 0);
  // Where the kernel keeps no count nothing is said of it.
  EXPECT_EQ(DeathContextSince(kills).memory_kills.has_value(), kills.has_value());
  EXPECT_GE(DeathContextSince(kills).memory_kills.value_or(0), 0);
}

}  // namespace
}  // namespace troupe::cli
