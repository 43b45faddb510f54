#include "lib/run/hosted_query_threads.h"

namespace troupe::run {

HostedQueryThreads::HostedQueryThreads(serving::QueryEngine* engine) : engine_(*engine) {
  for (int i = 0; i < serving::QueryEngine::kHostedActors; ++i) {
    threads_.emplace_back([this] {
      while (engine_.AwaitHosted()) engine_.StepHosted();
    });
  }
}

HostedQueryThreads::~HostedQueryThreads() {
  engine_.CloseHosted();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace troupe::run
