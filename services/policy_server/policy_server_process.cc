#include "services/policy_server/policy_server_process.h"

#include <memory>
#include <string>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/process_memory.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/query_server.h"
#include "lib/serving/query_engine.h"
#include "services/common/hosted_query_threads.h"
#include "services/common/signals.h"
#include "services/common/watchdog.h"

namespace troupe::services {
namespace {

// How often a signal is looked for: it bounds the start of a drain.
constexpr absl::Duration kSignalInterval = absl::Milliseconds(50);
// How long the watchdog waits for an answer: three times that and it is 15 s since the first.
constexpr absl::Duration kDialTimeout = absl::Seconds(4);

}  // namespace

absl::Status RunPolicyServer(const PolicyServerFlags& flags) {
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointEngine> served, CheckpointEngine::Open(flags.asked));
  serving::QueryEngine* const engine = served->engine();
  const HostedQueryThreads threads(engine);
  rpc::TransportSecurity security;
  security.insecure_plaintext_network = flags.insecure_plaintext_network;
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::QueryServer> server,
                          rpc::QueryServer::Start(flags.listen, security, engine));
  TROUPE_INFO("policy server ready checkpoint={} policies={} policy_map_capacity={} listen=\"{}\"",
              served->checkpoint(), served->num_policies(), served->capacity(),
              absl::StrJoin(server->addresses(), " "));
  base::HeapTrimmer heap_trimmer;
  Watchdog::Actions actions;
  actions.dial = [&server] { return server->DialSelf(kDialTimeout); };
  // There is nothing to save.
  actions.on_deaf = [](const std::string&) { EndDeafProcess(); };
  actions.end = &EndDeafProcess;
  Watchdog watchdog({}, std::move(actions));
  while (!DrainSignals::Received()) {
    absl::SleepFor(kSignalInterval);
    heap_trimmer.MaybeTrim(base::Clock::Real().SteadyNow());
  }
  watchdog.StopDialing();
  TROUPE_INFO("signal received, answering what there is");
  server->Shutdown(flags.drain_timeout);
  const policy::PolicyMapStats stats = engine->MapStats();
  TROUPE_INFO("policy server drained map_hits={} map_misses={} map_evictions={} load_failures={}", stats.hits,
              stats.misses, stats.evictions, stats.load_failures);
  return absl::OkStatus();
}

}  // namespace troupe::services
