#include "lib/run/learner/policy_changer.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::run {
namespace {

using policy::AddPolicy;
using policy::PolicyId;
using policy::PolicyState;

/// A changer whose disk answers when the test says so.
class PolicyChangerTest : public testing::Test {
 protected:
  /// What the threads that are left behind share with the test.
  struct Disk {
    absl::Notification answers, stopped;
    absl::Status status;
  };

  PolicyChangerTest() { Make(); }
  ~PolicyChangerTest() override {
    if (!disk_->answers.HasBeenNotified()) disk_->answers.Notify();
    changer_ = nullptr;
  }

  void Make() {
    PolicyChanger::Deps deps;
    deps.prepare = [disk = disk_](const policy::PolicyChange& change) -> absl::StatusOr<PolicyChanger::Preparation> {
      const auto* add = std::get_if<AddPolicy>(&change);
      PolicyChanger::Preparation preparation;
      if (add == nullptr) return preparation;
      if (add->id == PolicyId("bad")) return absl::InvalidArgumentError("bad");
      if (add->import_from.empty()) return preparation;
      preparation.run = [disk, path = add->import_from]() -> absl::StatusOr<std::optional<PolicyState>> {
        if (path == "slow") disk->answers.WaitForNotification();
        if (path == "tried") return std::nullopt;
        if (path == "hangs until stopped") {
          disk->stopped.WaitForNotification();
          return absl::CancelledError("stopped");
        }
        if (path == "damaged") return absl::DataLossError("damaged");
        PolicyState state;
        state.id = PolicyId("from_" + path);
        return state;
      };
      if (add->import_from == "hangs until stopped") preparation.stop = [disk] { disk->stopped.Notify(); };
      return preparation;
    };
    deps.make = [this](const policy::PolicyChange& change, const PolicyState* imported) -> absl::StatusOr<int64_t> {
      const auto* add = std::get_if<AddPolicy>(&change);
      made_.push_back((add == nullptr ? "other" : add->id.value()) + (imported ? " " + imported->id.value() : ""));
      return static_cast<int64_t>(made_.size());
    };
    deps.clock = &clock_;
    changer_ = std::make_unique<PolicyChanger>(std::move(deps));
  }
  void Ask(const std::string& id, const std::string& import_from = "") {
    std::vector<PolicyChanger::Request> requests;
    requests.push_back({AddPolicy{.id = PolicyId(id), .import_from = import_from},
                        [this, id](const absl::StatusOr<int64_t>& revision) {
                          answers_.push_back(id + " " +
                                             std::string(absl::StatusCodeToString(revision.status().code())));
                        }});
    changer_->Add(std::move(requests));
  }
  /// Steps until so many have been answered.
  void StepUntil(size_t answers) {
    while (answers_.size() < answers) {
      changer_->Step();
      std::this_thread::yield();
    }
  }

  base::FakeClock clock_;
  std::shared_ptr<Disk> disk_ = std::make_shared<Disk>();
  std::vector<std::string> made_;
  std::vector<std::string> answers_;
  std::unique_ptr<PolicyChanger> changer_;
};

TEST_F(PolicyChangerTest, ASlowDiskHoldsUpNothingButTheChangesBehindIt) {
  Ask("first");
  Ask("imported", "slow");
  Ask("behind");
  for (int i = 0; i < 1000; ++i) changer_->Step();  // each returns at once: the update thread goes on
  EXPECT_EQ(made_, std::vector<std::string>{"first"});
  EXPECT_FALSE(changer_->idle());
  disk_->answers.Notify();
  StepUntil(3);
  EXPECT_EQ(made_, (std::vector<std::string>{"first", "imported from_slow", "behind"}));
  EXPECT_TRUE(changer_->idle());
}

TEST_F(PolicyChangerTest, WhatCannotBeReadIsNotMadeAndTheOthersAre) {
  Ask("a", "damaged");
  Ask("bad", "file");
  Ask("c", "file");
  StepUntil(3);
  EXPECT_EQ(answers_, (std::vector<std::string>{"a DATA_LOSS", "bad INVALID_ARGUMENT", "c OK"}));
  EXPECT_EQ(made_, std::vector<std::string>{"c from_file"});
}

TEST_F(PolicyChangerTest, WhatIsOnlyTriedBringsNothingToImport) {
  Ask("a", "tried");
  StepUntil(1);
  EXPECT_EQ(answers_, std::vector<std::string>{"a OK"});
  EXPECT_EQ(made_, std::vector<std::string>{"a"});
}

TEST_F(PolicyChangerTest, ATrialThatHangsIsStoppedAndLeavesNoThreadBehind) {
  Ask("a", "hangs until stopped");
  changer_->Step();
  clock_.Advance(absl::Seconds(60));
  StepUntil(1);
  EXPECT_EQ(answers_, std::vector<std::string>{"a DEADLINE_EXCEEDED"});
  EXPECT_TRUE(disk_->stopped.HasBeenNotified());
  EXPECT_TRUE(made_.empty());
}

TEST_F(PolicyChangerTest, ADiskThatNeverAnswersIsGivenUp) {
  for (int i = 0; i < PolicyChanger::kMaxAbandoned; ++i) {
    Ask("hangs", "slow");
    changer_->Step();
    clock_.Advance(absl::Seconds(59));
    changer_->Step();
    EXPECT_EQ(answers_.size(), static_cast<size_t>(i));
    clock_.Advance(absl::Seconds(1));
    changer_->Step();
    ASSERT_EQ(answers_.size(), static_cast<size_t>(i + 1));
    EXPECT_EQ(answers_.back(), "hangs DEADLINE_EXCEEDED");
  }
  Ask("one_more", "file");
  Ask("fresh");
  changer_->Step();
  EXPECT_THAT(answers_, testing::Contains("one_more RESOURCE_EXHAUSTED"));
  EXPECT_EQ(answers_.back(), "fresh OK");
  disk_->answers.Notify();
  // The threads that were left behind return, and there is room again.
  while (answers_.back() != "again OK") {
    const size_t before = answers_.size();
    Ask("again", "file");
    StepUntil(before + 1);
  }
  EXPECT_EQ(made_.front(), "fresh") << "nothing that came too late is made";
}

TEST_F(PolicyChangerTest, AtTheEndEverybodyIsAnswered) {
  Ask("hangs", "slow");
  Ask("behind");
  changer_->Step();
  changer_->RefuseAll(absl::UnavailableError("ends"));
  EXPECT_EQ(answers_, (std::vector<std::string>{"hangs UNAVAILABLE", "behind UNAVAILABLE"}));
  EXPECT_TRUE(made_.empty());
}

}  // namespace
}  // namespace troupe::run
