// A subscription to a learner's policies and weights, over a Unix socket.

#include "lib/rpc/worker/weight_follower.h"

#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/await.h"
#include "lib/base/clock.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/rpc/testing/fake_endpoint.h"
#include "lib/sample/testing/batch_maker.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/testing/query_builder.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(20);

/// What came, in order: "table 0: a b", "a 3".
class Diary final : public serving::WeightSink {
 public:
  absl::Status OnPolicies(const policy::PolicyTablePtr& policies) override {
    std::string line = absl::StrCat("table ", policies->revision(), ":");
    for (const policy::PolicyId& id : policies->ActiveIds()) absl::StrAppend(&line, " ", id.value());
    return Note(line);
  }
  absl::Status OnWeights(policy::WeightSnapshotPtr weights) override {
    return Note(absl::StrCat(weights->id.value(), " ", weights->version.n));
  }
  std::vector<std::string> Await(size_t count) {
    base::MutexLock lock(&mutex_);
    base::Await(changed_, &mutex_, base::Deadline::After(kLimit),
                [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return lines_.size() >= count; });
    return lines_;
  }
  /// Whoever brings the next line waits until Release.
  void Hold() {
    base::MutexLock lock(&mutex_);
    held_ = true;
  }
  void Release() {
    base::MutexLock lock(&mutex_);
    held_ = false;
    changed_.NotifyAll();
  }
  /// What it says to the next line.
  void FailNext(absl::Status status) {
    base::MutexLock lock(&mutex_);
    next_ = std::move(status);
  }

 private:
  absl::Status Note(const std::string& line) {
    base::MutexLock lock(&mutex_);
    lines_.push_back(line);
    changed_.NotifyAll();
    base::Await(changed_, &mutex_, base::Deadline::After(kLimit),
                [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !held_; });
    return std::exchange(next_, absl::OkStatus());
  }
  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status next_ ABSL_GUARDED_BY(mutex_);
};

class WeightFollowerTest : public testing::Test {
 protected:
  WeightFollowerTest() {
    LearnerServerOptions options;
    options.addresses = {address_};
    options.schema = sample::SimpleSchema();
    schema_ = options.schema;
    server_ = *LearnerServer::Start(std::move(options), &endpoint_, &endpoint_, &clock_);
    std::vector<policy::PolicySpec> specs;
    for (const policy::PolicySpec& spec : schema_.policies) specs.push_back(spec);
    table_ = *policy::PolicyTable::Make(specs, std::vector<bool>(specs.size(), false), {{"*", {{specs[0].id, 1.0}}}},
                                        {"agent"});
    server_->weights().SetPolicies(table_);
    follower_ = *WeightFollower::Create(address_, {});
  }
  ~WeightFollowerTest() override {
    follower_->Stop();
    if (thread_.joinable()) thread_.join();
    server_->Shutdown(absl::Seconds(1));
  }
  void Begin() {
    thread_ = std::thread([this] { ended_ = follower_->Follow(&diary_); });
  }
  absl::Status End() {
    thread_.join();
    return ended_;
  }
  const policy::PolicySpec& spec(int slot) const { return schema_.policies[policy::PolicySlot(slot)]; }

  const std::string address_ = absl::StrCat("unix-abstract:troupe-follow-", getpid(), "-",
                                            testing::UnitTest::GetInstance()->current_test_info()->name());
  FakeEndpoint endpoint_;
  base::FakeClock clock_;
  sample::BatchSchema schema_;
  policy::PolicyTablePtr table_;
  std::unique_ptr<LearnerServer> server_;
  std::unique_ptr<WeightFollower> follower_;
  Diary diary_;
  std::thread thread_;
  absl::Status ended_;
};

TEST_F(WeightFollowerTest, GetsThePoliciesThenTheirWeightsAndWhatComesLater) {
  const std::string first = spec(0).id.value();
  server_->weights().Publish(policy::PolicySlot(0), serving::MakeWeights(spec(0), 3));
  Begin();
  std::vector<std::string> lines = diary_.Await(2);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].substr(0, 8), "table 0:");
  EXPECT_EQ(lines[1], first + " 3");
  server_->weights().Publish(policy::PolicySlot(0), serving::MakeWeights(spec(0), 4));
  EXPECT_EQ(diary_.Await(3).back(), first + " 4");

  policy::PolicySpec late = spec(0);
  late.id = policy::PolicyId("late");
  const policy::PolicyTablePtr more = *table_->Add(late, false);
  server_->weights().SetPolicies(more);
  server_->weights().Publish(*more->FindSlot(late.id), serving::MakeWeights(late, 5));
  lines = diary_.Await(5);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[3].substr(0, 8), "table 1:");
  EXPECT_NE(lines[3].find(" late"), std::string::npos);
  EXPECT_EQ(lines[4], "late 5");
  follower_->Stop();
  EXPECT_EQ(End().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(follower_->Follow(&diary_).code(), absl::StatusCode::kCancelled) << "for good";
}

TEST_F(WeightFollowerTest, OfTablesThatComeFasterThanTheyAreReadOneWaits) {
  // Some MiB of JSON each, so that what lies between the two ends holds a few.
  std::vector<std::pair<std::string, space::Space>> parts;
  for (int i = 0; i < 500; ++i) {
    parts.emplace_back(absl::StrCat("a part of the observation with the number ", i), *space::Space::Box(-1, 1, {3}));
  }
  const policy::PolicySpec wide =
      serving::MakeSpec("wide", *space::Space::Dict(std::move(parts)), *space::Space::Discrete(2));
  const auto add = [&wide](const policy::PolicyTablePtr& table, int number) {
    policy::PolicySpec spec = wide;
    spec.id = policy::PolicyId(absl::StrCat("wide_", number));
    return *table->Add(spec, false);
  };
  diary_.Hold();
  Begin();
  ASSERT_EQ(diary_.Await(1).size(), 1u);
  policy::PolicyTablePtr table = table_;
  for (int i = 0; i < 40; ++i) table = add(table, i);
  constexpr size_t kTables = 24;
  for (size_t i = 0; i < kTables; ++i) {
    table = add(table, 40 + static_cast<int>(i));
    server_->weights().SetPolicies(table);
  }
  diary_.Release();
  const std::string last = absl::StrCat("table ", table->revision(), ":");
  std::vector<std::string> lines;
  for (size_t count = 2; lines.empty() || lines.back().substr(0, last.size()) != last; ++count) {
    lines = diary_.Await(count);
    ASSERT_GE(lines.size(), count) << "the last table has not come";
  }
  // The one that it had, those on their way, the one that was begun, and the newest.
  EXPECT_LE(lines.size(), kTables / 2);
}

TEST_F(WeightFollowerTest, EndsWithWhatItsSinkSays) {
  diary_.FailNext(absl::PermissionDeniedError("not that"));
  Begin();
  const absl::Status ended = End();
  EXPECT_EQ(ended.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ended.message(), absl::StrCat("learner at ", address_, ": not that"));
}

TEST_F(WeightFollowerTest, EndsWithTheLearnerAndMayFollowAnother) {
  Begin();
  diary_.Await(1);
  server_->Shutdown(absl::Seconds(1));
  EXPECT_EQ(End().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(follower_->Follow(&diary_).code(), absl::StatusCode::kUnavailable) << "nobody is there";
}

}  // namespace
}  // namespace troupe::rpc
