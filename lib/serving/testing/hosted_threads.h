#pragma once

#include <thread>
#include <vector>

#include "lib/serving/query_engine.h"

namespace troupe::serving {

/// As many threads as an engine wants for policies in other processes; closes it at the end.
class HostedThreads {
 public:
  explicit HostedThreads(QueryEngine* engine, int count = QueryEngine::kHostedActors) : engine_(*engine) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this] {
        while (engine_.AwaitHosted()) engine_.StepHosted();
      });
    }
  }
  ~HostedThreads() {
    engine_.CloseHosted();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  QueryEngine& engine_;
  std::vector<std::thread> threads_;
};

}  // namespace troupe::serving
