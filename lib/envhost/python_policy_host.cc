#include "lib/envhost/python_policy_host.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "lib/policy/policy_spec.h"

namespace troupe::envhost {

PythonPolicyHost::PythonPolicyHost(HostOptions options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<inference::PolicyActor>> PythonPolicyHost::MakeActor(const policy::PolicySpec& spec,
                                                                                    uint64_t seed) {
  const std::shared_ptr<PythonFunctions> functions = PythonFunctions::Create(options_);
  {
    base::MutexLock lock(&mutex_);
    if (stopped_) return absl::CancelledError("policies in Python are made no more: it ends");
    made_.erase(std::remove_if(made_.begin(), made_.end(), [](const auto& it) { return it.expired(); }), made_.end());
    made_.push_back(functions);
  }
  return functions->MakeActor(spec, seed);
}

void PythonPolicyHost::Stop() {
  std::vector<std::weak_ptr<PythonFunctions>> made;
  {
    base::MutexLock lock(&mutex_);
    stopped_ = true;
    made.swap(made_);
  }
  for (const std::weak_ptr<PythonFunctions>& each : made) {
    if (const std::shared_ptr<PythonFunctions> functions = each.lock()) functions->Stop();
  }
}

}  // namespace troupe::envhost
