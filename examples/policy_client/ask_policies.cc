// Asks one or more policy servers for actions of every agent, in turns, and by a stream:
//
//   ask_policies CALLS ADDRESS...
//
// It prints what there is, the actions for observations of zeros, and how many calls failed.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <troupe/policy_client.h>

namespace {

/// A row for each agent of the policy, with observations of zeros.
troupe::PolicyQuery QueryOf(const troupe::PolicyDescription& policy) {
  troupe::PolicyQuery query;
  query.seed = 7;
  for (const std::string& agent : policy.agents) {
    troupe::PolicyRows& rows = query.policies.emplace_back();
    rows.agent_ids = {agent};
    rows.policy_id = policy.policy_id;
    if (policy.has_byte_obs) {
      rows.byte_obs.resize(static_cast<size_t>(policy.obs_size));
    } else {
      rows.obs.resize(static_cast<size_t>(policy.obs_size));
    }
  }
  return query;
}

void Print(const troupe::PolicyActions& actions) {
  std::printf("%s version %lld:", actions.policy_id.c_str(), static_cast<long long>(actions.version.updates));
  for (size_t word = 0; word < actions.is_float.size(); ++word) {
    if (actions.is_float[word]) {
      std::printf(" %.4g", static_cast<double>(actions.actions[word].f32));
    } else {
      std::printf(" %d", actions.actions[word].i32);
    }
  }
  std::printf(" log_prob %.4f\n", static_cast<double>(actions.log_prob[0]));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "ask_policies CALLS ADDRESS...\n");
    return 2;
  }
  auto client = troupe::PolicyClient::Create(std::vector<std::string>(argv + 2, argv + argc));
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
    return 1;
  }
  const auto policies = (*client)->DescribePolicies({});
  if (!policies.ok() || policies->empty()) {
    std::fprintf(stderr, "%s\n", policies.status().ToString().c_str());
    return 1;
  }
  for (const troupe::PolicyDescription& policy : *policies) {
    std::printf("%s: %s -> %s, %s\n", policy.policy_id.c_str(), policy.observation_space.c_str(),
                policy.action_space.c_str(), policy.network.c_str());
  }
  const troupe::PolicyQuery query = QueryOf(policies->front());
  const auto stream = (*client)->OpenStream();
  const int calls = std::atoi(argv[1]);
  int failed = 0;
  for (int call = 0; call < calls; ++call) {
    if (call > 0 && call == calls / 2) {
      std::printf("half of the calls are made\n");
      std::fflush(stdout);
    }
    // A call and a stream in turns.
    const auto answer = call % 2 == 0 ? (*client)->ComputeActions(query) : stream->ComputeActions(query);
    if (!answer.ok()) {
      ++failed;
      std::fprintf(stderr, "%s\n", answer.status().ToString().c_str());
    } else if (call < 2) {
      for (const troupe::PolicyActions& actions : *answer) Print(actions);
    }
  }
  std::printf("%d of %d calls failed\n", failed, calls);
  return failed == 0 ? 0 : 1;
}
