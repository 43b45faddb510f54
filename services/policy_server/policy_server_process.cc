#include "services/policy_server/policy_server_process.h"

#include <memory>
#include <random>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/query_server.h"
#include "lib/serving/query_engine.h"
#include "services/common/run_policies.h"
#include "services/common/signals.h"

namespace troupe::services {
namespace {

// How often a signal is looked for: it bounds the start of a drain.
constexpr absl::Duration kSignalInterval = absl::Milliseconds(50);

uint64_t DrawSeed() {
  // Two servers of one run must not sample the same actions, nor one after a restart.
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace

absl::Status RunPolicyServer(const PolicyServerFlags& flags, const env::EnvRegistry& registry) {
  TROUPE_ASSIGN_OR_RETURN(const RunPolicies loaded, LoadRunPolicies(flags.run_folder, flags.checkpoint, registry));
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<serving::QueryEngine> engine,
                          serving::QueryEngine::Create(loaded.run.policies, {.seed = flags.seed.value_or(DrawSeed())}));
  for (const policy::WeightSnapshotPtr& weights : loaded.weights) {
    if (weights != nullptr) TROUPE_RETURN_IF_ERROR(engine->SetWeights(weights));
  }
  rpc::TransportSecurity security;
  security.insecure_plaintext_network = flags.insecure_plaintext_network;
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::QueryServer> server,
                          rpc::QueryServer::Start(flags.listen, security, engine.get()));
  TROUPE_INFO("policy server ready checkpoint={} policies={} listen=\"{}\"", loaded.checkpoint, loaded.weights.size(),
              absl::StrJoin(server->addresses(), " "));
  while (!DrainSignals::Received()) absl::SleepFor(kSignalInterval);
  TROUPE_INFO("signal received, answering what there is");
  server->Shutdown(flags.drain_timeout);
  return absl::OkStatus();
}

}  // namespace troupe::services
