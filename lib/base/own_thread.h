#pragma once

#include <memory>
#include <thread>
#include <utility>

namespace troupe::base {

/// Something with a loop, Run, and the thread that it runs on, until Stop, which may come from any thread. Not
/// thread-safe itself.
template <typename Loop>
class OwnThread {
 public:
  explicit OwnThread(std::unique_ptr<Loop> loop) : loop_(std::move(loop)), thread_([this] { loop_->Run(); }) {}
  ~OwnThread() {
    loop_->Stop();
    thread_.join();
  }
  Loop* get() const { return loop_.get(); }

 private:
  const std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace troupe::base
