#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lib/envhost/child_process.h"

namespace troupe::envhost {

/// Starts a module (ModuleCommand) with the package's folder first on PYTHONPATH and one thread for libraries that have
/// pools of their own, where the user says nothing else: there is a process a core already. Starts no thread and does
/// not wait. INTERNAL: the system refuses.
///
/// Where this process ignores SIGCHLD, the kernel reaps the child and nobody knows how it ended; what it left behind is
/// not killed then.
absl::StatusOr<std::unique_ptr<ChildProcess>> SpawnPython(const std::string& interpreter,
                                                          const std::string& package_folder, const std::string& module,
                                                          const ChildFds& fds);

}  // namespace troupe::envhost
