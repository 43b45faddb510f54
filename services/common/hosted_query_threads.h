#pragma once

#include <thread>
#include <vector>

#include "lib/serving/query_engine.h"

namespace troupe::services {

/// The threads on which an engine asks policies in other processes: at most so many of them can be busy, or hang, at a
/// time. Made by who serves, after the engine, which it borrows. The destructor closes the engine's hosted queries and
/// waits for its threads, which the actor host lets go; call it when no server asks the engine any more.
class HostedQueryThreads {
 public:
  explicit HostedQueryThreads(serving::QueryEngine* engine);
  ~HostedQueryThreads();
  HostedQueryThreads(const HostedQueryThreads&) = delete;
  HostedQueryThreads& operator=(const HostedQueryThreads&) = delete;

 private:
  serving::QueryEngine& engine_;
  std::vector<std::thread> threads_;
};

}  // namespace troupe::services
