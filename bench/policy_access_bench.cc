// One access after another to policies of which few are resident, each made ready to act and to train: the learner's
// PolicyStore (networks, optimizer, normalizers; evicted states in host memory) and a PolicyMap of packed actors, as
// workers and servers hold them. The order is uniform, or comes in lines of policy numbers from standard input
// (bench/peers/policy_map.py sends the same ones to another library's policy map). A line of JSON for each line.
//
//   policy_access_bench [--policies 100] [--capacity 10] [--swappable 0] [--passes 20] [--stdin 0]
//
// Policies: simple_spread's, an actor and a critic of two layers of 64 each.

#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/inference/make_policy_actor.h"
#include "lib/policy/policy_map.h"
#include "lib/policy/policy_spec.h"
#include "lib/training/core/policy_store.h"
#include "lib/training/fused/fused_backend.h"

namespace troupe::bench {
namespace {

using policy::PolicyMap;
using policy::PolicySlot;
using policy::PolicySpec;
using Access = policy::PolicyMapCore::Access;

constexpr uint64_t kSeed = 1;

std::vector<PolicySpec> Specs(int policies) {
  std::vector<PolicySpec> specs(static_cast<size_t>(policies));
  for (size_t i = 0; i < specs.size(); ++i) {
    PolicySpec& spec = specs[i];
    spec.id = policy::PolicyId(absl::StrCat("policy_", i));
    spec.observation_space = *space::Space::Box(-100, 100, {18});
    spec.action_space = *space::Space::Discrete(5);
    spec.actor.hidden_sizes = {64, 64};
    spec.mutable_critic()->hidden_sizes = {64, 64};
  }
  return specs;
}

/// An actor, with the weights that the store has then. As in a worker, one that was dropped is used again.
class ActorTier final : public policy::PolicyTier {
 public:
  explicit ActorTier(training::PolicyStore* store) : store_(*store) {}
  absl::StatusOr<Value> Load(PolicySlot slot) override {
    std::unique_ptr<inference::PolicyActor> actor;
    if (!spares_.empty() && spares_.back()->TakeOver(store_.spec(slot))) {
      actor = std::move(spares_.back());
      spares_.pop_back();
    } else {
      TROUPE_ASSIGN_OR_RETURN(actor, inference::MakePolicyActor(store_.spec(slot), kSeed));
    }
    TROUPE_ASSIGN_OR_RETURN(auto weights, store_.Snapshot(slot));
    TROUPE_RETURN_IF_ERROR(actor->SetWeights(std::move(weights)));
    return Value(std::shared_ptr<inference::PolicyActor>(
        actor.release(), [this](inference::PolicyActor* dropped) { spares_.emplace_back(dropped); }));
  }
  absl::Status Store(PolicySlot /*slot*/, const Value& /*value*/) override { return absl::OkStatus(); }
  int64_t Bytes(const Value& /*value*/) const override { return 0; }

 private:
  training::PolicyStore& store_;
  std::vector<std::unique_ptr<inference::PolicyActor>> spares_;
};

/// The policies of a learner and the actors of a worker, and what an access to both takes.
class Subject {
 public:
  Subject(int policies, int capacity, bool swappable) {
    training::PolicyStoreOptions store_options;
    store_options.capacity = capacity;
    store_options.states_are_swappable = swappable;
    store_ = *training::PolicyStore::Make(
        Specs(policies), std::vector<training::StateForm>(static_cast<size_t>(policies), {.value_moments = true}),
        kSeed, [this](const PolicySpec& spec) { return backends_.Make(spec); }, store_options, {});
    tier_ = std::make_unique<ActorTier>(store_.get());
    policy::PolicyMapCore::Options map_options;
    map_options.capacity = capacity;
    map_options.max_slots = policies;
    actors_ = *PolicyMap<inference::PolicyActor>::Make(map_options, tier_.get(), &base::Clock::Real());
    reader_ = std::make_unique<PolicyMap<inference::PolicyActor>::Reader>(actors_.get());
    for (int p = 0; p < policies; ++p) {
      TROUPE_CHECK(actors_->core().Add(PolicySlot(p)).ok());
      // What must come back later; every state is one that was stored.
      (*store_->Acquire(PolicySlot(p)))[0].parameters.values()[0] = static_cast<float>(p);
    }
  }

  void Run(const std::vector<PolicySlot>& slots, int passes) {
    const int64_t misses_before = store_->map_stats().misses;
    const absl::Duration begin = base::Clock::Real().SteadyNow();
    for (int pass = 0; pass < passes; ++pass) {
      for (const PolicySlot slot : slots) {
        const auto trained = store_->Acquire(slot);
        TROUPE_CHECK(trained.ok() && (*trained)[0].parameters.values()[0] == static_cast<float>(slot.value()));
        TROUPE_CHECK(reader_->Acquire({slot}, Access::kRead).ok());
      }
    }
    const double seconds = absl::ToDoubleSeconds(base::Clock::Real().SteadyNow() - begin);
    const double accesses = static_cast<double>(slots.size()) * passes;
    std::printf("{\"us_per_access\": %.3f, \"miss_share\": %.3f}\n", seconds * 1e6 / accesses,
                static_cast<double>(store_->map_stats().misses - misses_before) / accesses);
    std::fflush(stdout);
  }

 private:
  /// As a trainer makes them: what policies of one shape compute in is there once.
  training::FusedBackends backends_{std::make_shared<training::ThreadTeam>(1)};
  std::unique_ptr<training::PolicyStore> store_;
  std::unique_ptr<ActorTier> tier_;
  std::unique_ptr<PolicyMap<inference::PolicyActor>> actors_;
  std::unique_ptr<PolicyMap<inference::PolicyActor>::Reader> reader_;
};

int Main(int argc, char** argv) {
  base::InitLogging("policy_access_bench", "warn");
  std::map<std::string, int> options = {
      {"--policies", 100}, {"--capacity", 10}, {"--swappable", 0}, {"--passes", 20}, {"--stdin", 0}};
  for (int i = 1; i < argc; i += 2) {
    const auto option = options.find(argv[i]);
    const int least = option == options.end() || option->second > 0 ? 1 : 0;
    if (option == options.end() || i + 1 == argc || !absl::SimpleAtoi(argv[i + 1], &option->second) ||
        option->second < least) {
      std::fprintf(stderr,
                   "policy_access_bench [--policies 100] [--capacity 10] [--swappable 0] [--passes 20] [--stdin 0]\n");
      return 2;
    }
  }
  const int policies = options["--policies"];
  Subject subject(policies, options["--capacity"], options["--swappable"] != 0);
  std::vector<PolicySlot> slots;
  if (options["--stdin"] == 0) {
    base::PhiloxSequence random(base::PhiloxKey::Make(kSeed, base::RandomStream::kTest), {});
    for (int i = 0; i < 1000; ++i) {
      slots.emplace_back(static_cast<int32_t>(random.Below(static_cast<uint32_t>(policies))));
    }
    subject.Run(slots, options["--passes"]);
    return 0;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream numbers(line);
    slots.clear();
    for (int number = 0; numbers >> number;) slots.emplace_back(number);
    subject.Run(slots, options["--passes"]);
  }
  return 0;
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) { return troupe::bench::Main(argc, argv); }
