#include "services/policy_server/policy_server_process.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "lib/base/await.h"
#include "lib/base/clock.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/named_loop.h"
#include "lib/base/process_memory.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/serve/query_server.h"
#include "lib/run/hosted_query_threads.h"
#include "lib/run/watchdog.h"
#include "lib/serving/query_engine.h"
#include "services/common/signals.h"
#include "services/policy_server/served_policies.h"

namespace troupe::services {
namespace {

/// Between two looks at what the allocator keeps.
constexpr absl::Duration kTrimInterval = absl::Seconds(1);
// How long the watchdog waits for an answer: three times that and it is 15 s since the first.
constexpr absl::Duration kDialTimeout = absl::Seconds(4);

}  // namespace

absl::Status RunPolicyServer(const PolicyServerFlags& flags) {
  const absl::StatusOr<std::unique_ptr<ServedPolicies>> opened = OpenServedPolicies(flags);
  if (absl::IsCancelled(opened.status()) && DrainSignals::Received()) return absl::OkStatus();  // nothing to answer
  TROUPE_RETURN_IF_ERROR(opened.status());
  const std::unique_ptr<ServedPolicies>& served = *opened;
  serving::QueryEngine* const engine = served->engine();
  const std::string ready = served->Describe();
  const run::HostedQueryThreads threads(engine);
  const absl::StatusOr<std::unique_ptr<rpc::QueryServer>> started =
      rpc::QueryServer::Start(flags.listen, flags.security, engine, flags.streams);
  if (!started.ok()) return base::RefusedIfFinal(started.status());  // an address in use may be free at another try
  const std::unique_ptr<rpc::QueryServer>& server = *started;
  TROUPE_INFO("policy server ready {} listen=\"{}\"", ready, absl::StrJoin(server->addresses(), " "));
  base::HeapTrimmer heap_trimmer;
  run::Watchdog::Actions actions;
  actions.dial = [&server] { return server->DialSelf(kDialTimeout); };
  // There is nothing to save.
  actions.on_deaf = [](const std::string&) { run::EndDeafProcess(); };
  actions.end = &run::EndDeafProcess;
  run::Watchdog watchdog({}, std::move(actions));
  const base::NamedLoop dials(
      "watchdog", [&watchdog] { return watchdog.Step(); }, watchdog.interval());
  while (!AwaitDrainSignal(base::Deadline::After(kTrimInterval))) {
    heap_trimmer.MaybeTrim(base::Clock::Real().SteadyNow());
    server->Tick();
  }
  watchdog.StopDialing();
  TROUPE_INFO("signal received, answering what there is");
  server->Shutdown(flags.drain_timeout);
  const policy::PolicyMapStats stats = engine->MapStats();
  const serving::QueryEngine::BatchStats batches = engine->batch_stats();
  TROUPE_INFO("policy server drained map_hits={} map_misses={} map_evictions={} load_failures={} queries={} batches={}",
              stats.hits, stats.misses, stats.evictions, stats.load_failures, batches.queries, batches.batches);
  return absl::OkStatus();
}

}  // namespace troupe::services
