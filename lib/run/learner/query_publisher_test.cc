#include "lib/run/learner/query_publisher.h"

#include "lib/serving/testing/query_builder.h"
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

using policy::PolicySlot;
using serving::MakeWeights;

TEST(QueryPublisherTest, PublishesWhoIsThere) {
  const policy::PolicySpec kept = serving::MakeSpec("kept", *space::Space::Box(-1, 1, {3}), *space::Space::Discrete(2));
  const policy::PolicySpec other =
      serving::MakeSpec("other", *space::Space::Box(-1, 1, {3}), *space::Space::Discrete(2));
  const auto engine = *serving::QueryEngine::Create({kept, other}, {});
  QueryPublisher publisher(engine.get());
  const auto version_of = [&](const policy::PolicySpec& spec) {
    const serving::OwnedRows rows = serving::MakeRows(spec, 1);
    const auto answer = engine->Compute(serving::Ask({&rows}, true));
    return answer.ok() ? (*answer)[0].version.n : -static_cast<int64_t>(answer.status().code());
  };
  constexpr auto kUnavailable = -static_cast<int64_t>(absl::StatusCode::kUnavailable);
  constexpr auto kNotFound = -static_cast<int64_t>(absl::StatusCode::kNotFound);
  publisher.Publish(PolicySlot(0), MakeWeights(kept, 1));
  publisher.Publish(PolicySlot(1), MakeWeights(other, 1));
  EXPECT_EQ(version_of(kept), 1) << "before any table";

  policy::PolicyTablePtr table =
      *policy::PolicyTable::Make({kept, other}, {true, true}, {{"*", {{kept.id, 1.0}}}}, {"agent"});
  table = *table->Replace(other);
  publisher.SetPolicies(table);
  // The replaced one still plays its last episodes and is published under the same id.
  publisher.Publish(PolicySlot(1), MakeWeights(other, 7));
  EXPECT_EQ(version_of(other), kUnavailable);
  publisher.Publish(PolicySlot(2), MakeWeights(other, 2));
  EXPECT_EQ(version_of(other), 2);
  publisher.Publish(PolicySlot(1), MakeWeights(other, 8));
  EXPECT_EQ(version_of(other), 2);

  publisher.SetPolicies(*table->Remove(other.id));
  publisher.Publish(PolicySlot(2), MakeWeights(other, 9));
  EXPECT_EQ(version_of(other), kNotFound);
  publisher.Publish(PolicySlot(0), MakeWeights(kept, 2));
  EXPECT_EQ(version_of(kept), 2);
}

}  // namespace
}  // namespace troupe::run
