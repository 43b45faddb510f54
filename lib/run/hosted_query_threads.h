#pragma once

#include <thread>
#include <vector>

#include "lib/serving/query_engine.h"

namespace troupe::run {

/// The threads on which an engine asks policies in other processes. Their number bounds how many of these policies can
/// be busy, or hang, at a time. Made by the process that serves, after the engine, which it borrows. The destructor
/// closes the engine's hosted queries and waits for its threads, which the actor host lets go; call it when no server
/// asks the engine any more.
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

}  // namespace troupe::run
