// The worker process of `troupe worker`, without its command line.
//
//   fault_worker ADDRESS

#include <cstdio>

#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/envs/register_all.h"
#include "services/common/signals.h"
#include "services/worker/worker_process.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  troupe::base::InitLogging("fault_worker", "warn");
  troupe::services::DrainSignals::Install();
  troupe::env::EnvRegistry registry;
  troupe::envs::RegisterAllEnvs(registry);
  troupe::services::WorkerFlags flags;
  flags.learner = argv[1];
  flags.connect_timeout = absl::Seconds(3);
  const absl::Status status = troupe::services::RunWorker(flags, registry);
  if (status.ok()) return static_cast<int>(troupe::services::DrainSignals::CodeInOrder());
  std::fprintf(stderr, "fault_worker: %s\n", status.ToString().c_str());
  return static_cast<int>(troupe::base::ExitCodeOf(status));
}
