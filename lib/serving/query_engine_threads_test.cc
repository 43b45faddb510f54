// Queries from several threads while weights are swapped: every answer is of one version, whole.

#include <atomic>
#include <map>
#include <thread>

#include "lib/serving/query_engine.h"
#include "lib/serving/testing/query_builder.h"
#include <gtest/gtest.h>

namespace troupe::serving {
namespace {

constexpr int64_t kVersions = 40;
constexpr int kThreads = 4;

TEST(QueryEngineThreadsTest, AnswersAreOfOneVersionWhileWeightsAreSwapped) {
  const policy::PolicySpec specs[] = {MakeSpec("a", *space::Space::Box(-1, 1, {3}), *space::Space::Box(-9, 9, {2})),
                                      MakeSpec("b", *space::Space::Box(-1, 1, {3}), *space::Space::Box(-9, 9, {2}))};
  const OwnedRows rows[] = {MakeRows(specs[0], 3), MakeRows(specs[1], 3)};
  // What each version answers, one after the other.
  std::map<int64_t, std::vector<float>> expected[2];
  auto reference = *QueryEngine::Create(specs, {});
  for (int64_t n = 1; n <= kVersions; ++n) {
    for (int p = 0; p < 2; ++p) {
      ASSERT_EQ(reference->SetWeights(MakeWeights(specs[p], n)), absl::OkStatus());
      const auto answer = reference->Compute(Ask({&rows[p]}, true));
      ASSERT_TRUE(answer.ok()) << answer.status();
      expected[p][n] = Values((*answer)[0]);
    }
  }
  auto engine = *QueryEngine::Create(specs, {});
  for (const policy::PolicySpec& spec : specs) ASSERT_EQ(engine->SetWeights(MakeWeights(spec, 1)), absl::OkStatus());
  std::atomic<bool> published{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      int64_t seen[2] = {1, 1};
      bool last = false;
      while (!last) {
        last = published.load();
        const auto answer = engine->Compute(Ask({&rows[0], &rows[1]}, true));
        for (size_t p = 0; p < 2 && answer.ok(); ++p) {
          const PolicyActions& got = (*answer)[p];
          if (Values(got) != expected[p].at(got.version.n) || got.version.n < seen[p]) ++wrong;
          seen[p] = got.version.n;
        }
        if (!answer.ok()) ++wrong;
      }
      if (seen[0] != kVersions || seen[1] != kVersions) ++wrong;
    });
  }
  for (int64_t n = 2; n <= kVersions; ++n) {
    for (const policy::PolicySpec& spec : specs) {
      EXPECT_EQ(engine->SetWeights(MakeWeights(spec, n)), absl::OkStatus());
    }
  }
  published.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace troupe::serving
