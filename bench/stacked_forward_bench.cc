// One forward of 256 rows (actor 18-64-64-5, tanh; sampled actions and log-probabilities) over 64 policies with 4 rows
// each, beside 256 rows of one policy. Both interleaved in one run on one core, medians.
//
//   taskset -c 0 build/release/bench/stacked_forward_bench [--repetitions N] [--policies N] [--rows N]
//       [--back_end auto|eigen|avx2|avx512]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/forward_options.h"
#include "bench/random_policy.h"
#include "lib/base/philox.h"
#include "lib/inference/actor.h"

namespace troupe::inference {
namespace {

constexpr char kProgram[] = "stacked_forward_bench";

void Check(const absl::Status& status) { bench::Check(kProgram, status); }

policy::PolicySpec Spec(int index) { return SpreadSpec(policy::PolicyId(absl::StrCat("p", index))); }

struct Leg {
  const char* name;
  std::function<void()> call;
  std::vector<double> microseconds = {};
  double median() const { return bench::MedianOf(microseconds); }
};

int Main(int argc, char** argv) {
  int repetitions = 200;
  int policies = 64;
  int64_t rows = 256;
  Backend back_end = Backend::kAuto;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    const int number = std::max(1, std::atoi(value.c_str()));
    if (flag == "--repetitions") repetitions = number;
    if (flag == "--policies") policies = number;
    if (flag == "--rows") rows = number;
    if (flag == "--back_end") back_end = bench::BackendOrExit(kProgram, value);
  }
  rows = std::max<int64_t>(1, rows / policies) * policies;
  std::vector<std::unique_ptr<Actor>> actors;
  for (int p = 0; p < policies; ++p) {
    auto actor = Actor::Create(Spec(p), 1, back_end);
    Check(actor.status());
    Check((*actor)->SetWeights(RandomWeights(Spec(p), static_cast<uint32_t>(p))));
    actors.push_back(*std::move(actor));
  }
  const int64_t obs_size = Spec(0).observation_size();
  std::vector<float> obs(static_cast<size_t>(rows * obs_size));
  base::PhiloxSequence random(base::PhiloxKey::Make(2, base::RandomStream::kTest), {});
  for (float& x : obs) x = static_cast<float>(random.Uniform(-1.5, 1.5));
  std::vector<RowKey> keys(static_cast<size_t>(rows));
  for (size_t r = 0; r < keys.size(); ++r) keys[r] = {base::EnvId(static_cast<uint32_t>(r))};
  std::vector<space::ActionWord> actions(keys.size());
  std::vector<float> logp(keys.size());
  const int64_t each = rows / policies;
  const auto act = [&](size_t actor, int64_t first, int64_t count) {
    Check(actors[actor]->Act({count, obs.data() + first * obs_size, nullptr, keys.data() + first},
                             actions.data() + first, logp.data() + first));
  };
  std::vector<Leg> legs = {
      {"one policy", [&] { act(0, 0, rows); }},
      {"many policies",
       [&] {
         for (size_t p = 0; p < actors.size(); ++p) act(p, static_cast<int64_t>(p) * each, each);
       }},
  };
  constexpr int kCalls = 20;
  for (int repetition = -5; repetition < repetitions; ++repetition) {
    for (Leg& leg : legs) {
      leg.call();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; ++i) leg.call();
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
      if (repetition >= 0) leg.microseconds.push_back(took.count() / kCalls);
    }
  }
  std::printf("%ld rows, %d policies, actor 18-64-64-5 tanh, back end %s, one thread, median of %d\n",
              static_cast<long>(rows), policies, std::string(actors[0]->backend_name()).c_str(), repetitions);
  for (Leg& leg : legs) {
    std::printf("%-40s %10.1f us %8.2f x\n", leg.name, leg.median(), leg.median() / legs[0].median());
  }
  return 0;
}

}  // namespace
}  // namespace troupe::inference

int main(int argc, char** argv) { return troupe::inference::Main(argc, argv); }
