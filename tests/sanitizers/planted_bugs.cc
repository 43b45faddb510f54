// One bug by name, for the sanitizer presets to find; "none" is the same work done correctly. Not a GoogleTest: each
// bug ends or taints its process.
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace {

constexpr int kRounds = 1000;

void RunTwice(const std::function<void()>& work) {
  std::thread first(work);
  std::thread second(work);
  first.join();
  second.join();
}

int None() {
  int shared = 0;
  std::mutex mutex;
  RunTwice([&] {
    for (int i = 0; i < kRounds; ++i) {
      std::lock_guard lock(mutex);
      ++shared;
    }
  });
  return shared == 2 * kRounds ? 0 : 1;
}

int Race() {
  int shared = 0;
  RunTwice([&] {
    for (int i = 0; i < kRounds; ++i) ++shared;
  });
  return 0;
}

// The racing access happens in libc, called by us: it must not pass for a foreign module's own business.
int RaceInMemcpy() {
  std::string source(256, 'x');
  std::string target(256, 'y');
  RunTwice([&] {
    for (int i = 0; i < kRounds; ++i) std::memcpy(target.data(), source.data(), source.size());
  });
  return 0;
}

int LockOrderInversion() {
  std::mutex a;
  std::mutex b;
  std::thread([&] {
    std::lock_guard first(a);
    std::lock_guard second(b);
  }).join();
  std::thread([&] {
    std::lock_guard first(b);
    std::lock_guard second(a);
  }).join();
  return 0;
}

int UseAfterFree() {
  int* freed = new int(1);
  delete freed;
  return *freed;
}

int Leak() {
  static thread_local char* volatile leaked;
  leaked = new char[1000];
  leaked = nullptr;
  return 0;
}

int SignedOverflow() {
  volatile int big = std::numeric_limits<int>::max();
  return big + 1 == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int (*)()> bugs = {
      {"none", None},
      {"race", Race},
      {"race_in_memcpy", RaceInMemcpy},
      {"lock_order_inversion", LockOrderInversion},
      {"use_after_free", UseAfterFree},
      {"leak", Leak},
      {"signed_overflow", SignedOverflow},
  };
  const auto bug = bugs.find(argc == 2 ? argv[1] : "");
  if (bug == bugs.end()) {
    std::fprintf(stderr, "planted_bugs: expected one name of a bug\n");
    return 2;
  }
  return bug->second();
}
