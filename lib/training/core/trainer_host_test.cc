// Learn groups of several policies, with an algorithm that exists here alone.

#include "lib/training/core/trainer_host.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/testing.h"
#include "lib/policy/testing/fake_blob_store.h"
#include "lib/policy/testing/same_bits.h"
#include "lib/training/testing/idle_backend.h"
#include "lib/training/testing/random_batch.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using policy::PolicySlot;

/// What groups of the fake saw and are to do; one for each test.
struct Script {
  std::vector<std::vector<int32_t>> updates;  ///< the members that were resident
  int64_t fail_at = -1;                       ///< the update that fails after it has changed everything
  int64_t commits = 0;
};
Script script;

/// Adds 1 to the first parameter of each member, and to a number of its own.
class FakePair final : public GroupTrainer {
 public:
  int64_t MinibatchRows(int64_t rows) const override { return rows; }
  absl::StatusOr<std::vector<learner::PolicyUpdateReport>> Update(const GroupUpdate& update) override {
    std::vector<int32_t>& members = script.updates.emplace_back();
    for (const MemberAtWork& member : update.members) {
      members.push_back(member.slot.value());
      member.resident.parameters.values()[0] += 1;
    }
    mixer_ += 1;
    if (static_cast<int64_t>(script.updates.size()) - 1 == script.fail_at) return absl::InternalError("as scripted");
    std::vector<learner::PolicyUpdateReport> reports;
    for (const learner::PolicyTrainBatch* batch : update.batches) {
      reports.push_back({.policy = update.MemberOf(*batch).slot, .trained_rows = batch->rows});
    }
    return reports;
  }
  void Commit() override { ++script.commits; }
  void Follow(GroupTrainer& before) override { mixer_ = dynamic_cast<FakePair&>(before).mixer_; }
  std::vector<policy::StateBlock> Export() const override {
    return {{"mixer.weight", {1}, std::vector<double>{mixer_}}};
  }
  absl::Status Import(const std::vector<policy::StateBlock>& blocks) override {
    if (blocks.size() != 1 || blocks[0].name != "mixer.weight") return absl::InvalidArgumentError("no such blocks");
    mixer_ = std::get<std::vector<double>>(blocks[0].values).at(0);
    return absl::OkStatus();
  }

 private:
  double mixer_ = 0.5;
};

/// Policies in pairs, as their slots follow each other; with the option `alone` each by itself.
class FakePairs final : public Algorithm {
 public:
  std::string_view name() const override { return "pairs"; }
  absl::StatusOr<StateForm> FormOf(const policy::AlgorithmSpec& spec) const override {
    StateForm form{.value_moments = spec.options.count("moments") > 0};
    if (const auto rate = spec.options.find("rate"); rate != spec.options.end()) {
      form.numbers.push_back({"learning_rate", std::get<double>(rate->second)});
    }
    return form;
  }
  std::vector<std::vector<PolicySlot>> Groups(absl::Span<const GroupMember> members) const override {
    std::vector<std::vector<PolicySlot>> groups;
    for (const GroupMember& member : members) {
      const bool alone = member.algorithm->options.count("alone") > 0;
      if (groups.empty() || groups.back().size() == 2 || alone) groups.emplace_back();
      groups.back().push_back(member.slot);
    }
    return groups;
  }
  bool reads_joint_steps(const policy::AlgorithmSpec& /*spec*/) const override { return true; }
  absl::StatusOr<std::unique_ptr<GroupTrainer>> MakeGroup(absl::Span<const GroupMember> /*members*/,
                                                          const TrainingContext& /*context*/) const override {
    return std::make_unique<FakePair>();
  }
};

class TrainerHostTest : public testing::Test {
 protected:
  void SetUp() override { script = {}; }

  static std::vector<policy::PolicySpec> Specs(int count) {
    std::vector<policy::PolicySpec> specs;
    for (int i = 0; i < count; ++i) {
      specs.push_back(policy::SmallSpecForTesting());
      specs.back().id = policy::PolicyId(absl::StrCat("p", i));
    }
    return specs;
  }
  absl::StatusOr<std::unique_ptr<TrainerHost>> Make(int policies, const PolicyStoreOptions& store = {},
                                                    policy::AlgorithmSpec algorithm = {.name = "pairs"}) {
    const auto find = [this](std::string_view name) -> absl::StatusOr<const Algorithm*> {
      if (name == pairs_.name()) return &pairs_;
      return absl::InvalidArgumentError(absl::StrCat("there is no algorithm ", std::string(name)));
    };
    PolicyStore::Deps deps;
    deps.blobs = &blobs_;
    return TrainerHost::Make(
        Specs(policies), std::vector<policy::AlgorithmSpec>(static_cast<size_t>(policies), algorithm), {.seed = 1},
        find, [](const policy::PolicySpec&) { return std::make_unique<IdleBackend>(); },
        tensor::TensorAllocator::Pageable(), store, deps);
  }
  /// Rows of these policies.
  struct Batch {
    explicit Batch(const std::vector<int32_t>& slots) {
      for (const int32_t slot : slots) {
        parts.push_back(std::make_unique<RandomBatch>(policy::SmallSpecForTesting(), std::vector<int64_t>{4}, 1));
        parts.back()->rows().policy = PolicySlot(slot);
        all.policies.push_back(parts.back()->rows());
      }
    }
    std::vector<std::unique_ptr<RandomBatch>> parts;
    learner::TrainBatch all;
  };
  static learner::UpdateContext Context(int64_t iteration) {
    return {.seed = 1, .iteration = iteration, .env_steps = 0, .next_version = {1, iteration + 1}};
  }
  static double Mixer(TrainerHost& host, size_t group) {
    const auto groups = host.ExportGroups();
    EXPECT_TRUE(groups.ok()) << groups.status();
    return std::get<std::vector<double>>(groups->at(group).blocks.at(0).values).at(0);
  }
  static float First(TrainerHost& host, int32_t slot) { return host.ExportState(PolicySlot(slot))->parameters().at(0); }

  FakePairs pairs_;
  policy::FakeBlobStore blobs_;
};

TEST_F(TrainerHostTest, TellsItsGroups) {
  const auto host = Make(5);
  ASSERT_TRUE(host.ok()) << host.status();
  const std::vector<policy::LearnGroup> groups = (*host)->Groups();
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0], (policy::LearnGroup{policy::GroupId("p0"), "pairs", {PolicySlot(0), PolicySlot(1)}, true}));
  EXPECT_EQ(groups[1].id.value(), "p2");
  EXPECT_EQ(groups[2], (policy::LearnGroup{policy::GroupId("p4"), "pairs", {PolicySlot(4)}, true}));
}

// Two fit: each group has its turn, whole, and members that the batch does not have are there, too.
TEST_F(TrainerHostTest, AGroupIsAcquiredWhole) {
  for (const int64_t budget : {int64_t{0}, int64_t{1} << 20}) {
    SetUp();
    const auto host = *Make(6, {.capacity = 2, .host_budget_bytes = budget});
    std::vector<float> before;
    for (int32_t slot = 0; slot < 6; ++slot) before.push_back(First(*host, slot));
    const auto reports = host->Update(Batch({0, 3, 4, 5}).all, Context(0));
    ASSERT_TRUE(reports.ok()) << reports.status();
    EXPECT_EQ(reports->size(), 4u);
    EXPECT_EQ(reports->at(1).policy, PolicySlot(3));
    EXPECT_EQ(reports->at(3).trained_rows, 4);
    EXPECT_THAT(script.updates, testing::UnorderedElementsAre(std::vector<int32_t>{0, 1}, std::vector<int32_t>{2, 3},
                                                              std::vector<int32_t>{4, 5}));
    for (int32_t slot = 0; slot < 6; ++slot) {
      EXPECT_EQ(First(*host, slot), before[static_cast<size_t>(slot)] + 1) << slot;
    }
  }
}

TEST_F(TrainerHostTest, ACapacityBelowAGroupIsAnErrorAtTheStart) {
  const auto host = Make(4, {.capacity = 1});
  EXPECT_EQ(host.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      host.status().message(),
      "multi_agent.policy_map_capacity is 1; expected at least 2: the policies of learn group \"p0\" (p0, p1) are "
      "trained together by pairs");
  EXPECT_TRUE(Make(4, {.capacity = 2}).ok());
}

TEST_F(TrainerHostTest, AFailedUpdateLeavesPoliciesAndGroupsAsTheyWere) {
  for (const int64_t fail_at : {0, 1, 2}) {
    SetUp();
    script.fail_at = fail_at;
    const auto host = *Make(6, {.capacity = 2, .host_budget_bytes = 0});
    std::vector<policy::PolicyState> before;
    for (int32_t slot = 0; slot < 6; ++slot) before.push_back(*host->ExportState(PolicySlot(slot)));
    EXPECT_EQ(host->Update(Batch({0, 1, 2, 3, 4, 5}).all, Context(0)).status(), absl::InternalError("as scripted"));
    EXPECT_EQ(static_cast<int64_t>(script.updates.size()), fail_at + 1);
    for (int32_t slot = 0; slot < 6; ++slot) {
      policy::ExpectSameBits(*host->ExportState(PolicySlot(slot)), before[static_cast<size_t>(slot)]);
    }
    for (size_t group = 0; group < 3; ++group) EXPECT_EQ(Mixer(*host, group), 0.5);
    EXPECT_EQ(script.commits, 0);  // nor of the groups that had succeeded
  }
}

TEST_F(TrainerHostTest, CommitsTheGroupsOfAnUpdateThatSucceeded) {
  const auto host = *Make(6);
  ASSERT_TRUE(host->Update(Batch({0, 1, 4}).all, Context(0)).ok());
  EXPECT_EQ(script.commits, 2);
}

TEST_F(TrainerHostTest, WhatBelongsToNoPolicyIsExportedAndImported) {
  const auto host = *Make(4);
  ASSERT_TRUE(host->Update(Batch({0, 1}).all, Context(0)).ok());
  EXPECT_EQ(Mixer(*host, 0), 1.5);
  EXPECT_EQ(Mixer(*host, 1), 0.5);
  const std::vector<policy::GroupState> saved = *host->ExportGroups();
  EXPECT_EQ(saved[1].id.value(), "p2");

  const auto other = *Make(4);
  for (const policy::GroupState& state : saved) ASSERT_TRUE(other->ImportGroup(state).ok());
  EXPECT_EQ(Mixer(*other, 0), 1.5);
  EXPECT_EQ(Mixer(*other, 1), 0.5);

  EXPECT_EQ(other->ImportGroup({policy::GroupId("p1"), {}}),
            absl::NotFoundError("there is no learn group \"p1\"; expected one of p0, p2"));
  EXPECT_EQ(other->ImportGroup({policy::GroupId("p2"), {}}),
            absl::InvalidArgumentError("learn group \"p2\" (pairs): no such blocks"));
}

TEST_F(TrainerHostTest, MembersOfAGroupOfSeveralStay) {
  const auto host = *Make(2);
  EXPECT_EQ(host->RemovePolicy(PolicySlot(1)),
            absl::FailedPreconditionError("cannot remove a policy: policy \"p1\" is of learn group \"p0\", whose 2 "
                                          "policies pairs trains together; expected a policy that learns by itself"));
  const policy::PolicySpec spec = Specs(3)[2];
  const absl::Status added = host->AddPolicy(PolicySlot(2), spec, *InitialState(spec, StateForm{}, 1), PolicySlot(0));
  EXPECT_EQ(added.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(added.message()), testing::HasSubstr("learn group \"p0\""));
  EXPECT_EQ(host->Groups().size(), 1u);
}

TEST_F(TrainerHostTest, APolicyTrainsOtherwiseFromTheNextUpdateOn) {
  const policy::AlgorithmSpec alone = {.name = "pairs", .options = {{"alone", true}, {"rate", 0.5}}};
  const auto host = Make(2, {}, alone);
  ASSERT_TRUE(host.ok()) << host.status();
  ASSERT_TRUE((*host)->Update(Batch({0, 1}).all, Context(0)).ok());
  policy::AlgorithmSpec set = alone;
  set.options["more"] = true;
  ASSERT_EQ((*host)->SetAlgorithm(PolicySlot(1), set), absl::OkStatus());
  EXPECT_EQ((*host)->Groups().size(), 2u);
  EXPECT_EQ(Mixer(**host, 1), 1.5) << "it goes on where the group before ended";
  ASSERT_TRUE((*host)->Update(Batch({0, 1}).all, Context(1)).ok());
  EXPECT_EQ(Mixer(**host, 1), 2.5);

  const auto refused = [&](const policy::AlgorithmSpec& algorithm, const std::string& text) {
    const absl::Status status = (*host)->SetAlgorithm(PolicySlot(0), algorithm);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(text));
  };
  set.options["moments"] = true;
  refused(set, "these settings want \" value_moments learning_rate\"; they can only be those of a new policy");
  set = alone;
  set.options["rate"] = 0.25;
  refused(set, "began with a learning_rate of 0.5, which training has moved since; got 0.25");
  refused({.name = "other"}, "is trained by pairs, got options of other");
  EXPECT_EQ((*host)->SetAlgorithm(PolicySlot(7), alone).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Mixer(**host, 0), 2.5) << "nothing has changed";

  const auto pair = Make(2);
  const absl::Status together = (*pair)->SetAlgorithm(PolicySlot(0), {.name = "pairs"});
  EXPECT_THAT(std::string(together.message()), testing::HasSubstr("expected a policy that learns by itself"));
}

TEST_F(TrainerHostTest, GroupsFollowThePolicies) {
  const auto host = *Make(2, {}, {.name = "pairs", .options = {{"alone", true}}});
  ASSERT_EQ(host->Groups().size(), 2u);
  const policy::PolicySpec spec = Specs(3)[2];
  ASSERT_TRUE(host->AddPolicy(PolicySlot(2), spec, *InitialState(spec, StateForm{}, 1), PolicySlot(1)).ok());
  ASSERT_EQ(host->Groups().size(), 3u);
  EXPECT_EQ(host->Groups()[2].id.value(), "p2");
  ASSERT_TRUE(host->Update(Batch({1, 2}).all, Context(0)).ok());
  ASSERT_TRUE(host->RemovePolicy(PolicySlot(1)).ok());
  ASSERT_EQ(host->Groups().size(), 2u);
  EXPECT_EQ(host->Groups()[1].id.value(), "p2");
  EXPECT_EQ(host->ExportGroups()->size(), 2u);
}

TEST_F(TrainerHostTest, APolicyWithoutAnAlgorithmIsKeptAndNotTrained) {
  const auto host = *Make(2, {}, {});
  EXPECT_TRUE(host->Groups().empty());
  EXPECT_TRUE(host->Snapshot(PolicySlot(1)).ok());
  EXPECT_EQ(host->Update(Batch({1}).all, Context(0)).status(),
            absl::InvalidArgumentError("policy \"p1\" has no algorithm: it is not trained"));
  EXPECT_EQ(Make(2, {}, {.name = "other"}).status(),
            absl::InvalidArgumentError("policy \"p0\": there is no algorithm other"));
}

}  // namespace
}  // namespace troupe::training
