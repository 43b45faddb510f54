#include "lib/training/impala/impala.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/testing/processor.h"
#include "lib/policy/testing.h"
#include "lib/training/a2c/a2c.h"
#include "lib/training/appo/appo.h"
#include "lib/training/core/state_blocks.h"
#include "lib/training/core/trainer_host.h"
#include "lib/training/fused/fused_backend.h"
#include "lib/training/registry.h"
#include "lib/training/testing/random_batch.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

using testing::HasSubstr;

const policy::PolicySlot kSlot(0);

std::unique_ptr<TrainerHost> Make(policy::PolicySpec spec, const policy::AlgorithmSpec& algorithm) {
  const auto team = std::make_shared<ThreadTeam>(1);
  EXPECT_TRUE((*FindAlgorithm(algorithm.name))->SetNetworks(algorithm, &spec).ok());
  auto made = TrainerHost::Make({spec}, {algorithm}, {.seed = 1, .team = team}, &FindAlgorithm,
                                [team](const policy::PolicySpec& of) { return MakeFusedBackend(of, team); });
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

learner::UpdateContext Context(int64_t iteration) {
  return {.seed = 1, .iteration = iteration, .env_steps = 0, .next_version = {1, iteration + 1}};
}

std::map<std::string, double> MetricsOf(const learner::PolicyUpdateReport& report) {
  return {report.metrics.begin(), report.metrics.end()};
}

/// The rows' log-probabilities by the policy that `algorithm` begins with become those of who acted.
void ActAsThePolicy(const policy::PolicySpec& spec, RandomBatch* batch) {
  const auto backend = *MakeFusedBackend(spec, std::make_shared<ThreadTeam>(1));
  FlatParameters parameters = InitialParameters(spec, 1);
  PreparedBatch prepared;
  ASSERT_TRUE(prepared.Prepare(spec, {}, batch->rows()).ok());
  ASSERT_TRUE(backend->Begin(prepared, &parameters, NetworkBackend::kWholeTeam).ok());
  batch->logp = *backend->LogProbabilities(Net::kOnline);
  ASSERT_TRUE(backend->End().ok());
  batch->rows().action_logp = batch->logp;
}

class ImpalaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!base::ProcessorHasAvx2()) GTEST_SKIP() << base::kNoAvx2;
  }
  const policy::PolicySpec spec_ = policy::SmallSpecForTesting();
};

TEST_F(ImpalaTest, OfRowsThatItsOwnPolicyMadeItIsA2c) {
  RandomBatch batch(spec_, {7, 9, 5, 12, 4, 8, 10}, 1);
  ActAsThePolicy(spec_, &batch);
  const auto impala = Make(spec_, ImpalaSpec(VtraceOptions()));
  A2cOptions options;
  options.learning_rate = VtraceOptions().learning_rate;
  const auto a2c = Make(spec_, A2cSpec(options));
  const auto of_impala = impala->Update(batch.batch, Context(0));
  const auto of_a2c = a2c->Update(batch.batch, Context(0));
  ASSERT_TRUE(of_impala.ok() && of_a2c.ok());
  for (const auto& [tag, value] : of_a2c->at(0).metrics) {
    EXPECT_NEAR(MetricsOf(of_impala->at(0))[tag], value, 1e-5 * std::max(1.0, std::abs(value))) << tag;
  }
  const std::vector<float> got = impala->ExportState(kSlot)->Floats(kAdamExpAvg);
  const std::vector<float> expected = a2c->ExportState(kSlot)->Floats(kAdamExpAvg);
  const float largest = std::abs(
      *std::max_element(expected.begin(), expected.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5 * largest) << i;
  EXPECT_NEAR(MetricsOf(of_impala->at(0))["Policy/Importance ratio"], 1, 1e-5);
}

TEST_F(ImpalaTest, ActionsThatTheNewPolicyAvoidsCountLess) {
  const auto parameters_moved = [&](float logp) {
    RandomBatch batch(spec_, {7, 9, 5}, 1);
    std::fill(batch.logp.begin(), batch.logp.end(), logp);
    const auto trainer = Make(spec_, ImpalaSpec(VtraceOptions()));
    const auto reports = trainer->Update(batch.batch, Context(0));
    EXPECT_TRUE(reports.ok()) << reports.status();
    return MetricsOf(reports->at(0))["Policy/Gradient norm"];
  };
  // As if who acted had been certain of them, and as if it had found them by chance.
  EXPECT_LT(parameters_moved(0.0f), 0.9 * parameters_moved(-5.0f));
}

TEST_F(ImpalaTest, EachBatchIsUsedOnce) {
  RandomBatch batch(spec_, {7, 9, 5, 12, 4, 8, 10}, 1);  // 55 rows
  VtraceOptions options;
  options.minibatch_size = 16;
  const auto trainer = Make(spec_, ImpalaSpec(options));
  const auto reports = trainer->Update(batch.batch, Context(0));
  EXPECT_EQ(reports->at(0).epochs, 1);
  EXPECT_EQ(reports->at(0).minibatch_steps, 4);
  EXPECT_FALSE((*FindAlgorithm("impala"))->Feed(ImpalaSpec(options)).has_value()) << "the run's own batches";
}

TEST_F(ImpalaTest, RefusesOptionsOutOfRange) {
  const auto error = [](const char* key, policy::OptionValue value, const char* name = "impala") {
    policy::AlgorithmSpec spec{.name = name};
    spec.options[key] = std::move(value);
    return std::string(CheckAlgorithm(spec).message());
  };
  EXPECT_THAT(error("vtrace_lambda", 1.5), HasSubstr("algorithm.vtrace_lambda is 1.5"));
  EXPECT_THAT(error("vtrace_clip_rho_threshold", 0.0), HasSubstr("algorithm.vtrace_clip_rho_threshold is 0"));
  EXPECT_THAT(error("vtrace_clip_pg_rho_threshold", -1.0), HasSubstr("algorithm.vtrace_clip_pg_rho_threshold is -1"));
  EXPECT_THAT(error("minibatch_size", int64_t{-1}), HasSubstr("algorithm.minibatch_size is -1"));
  EXPECT_THAT(error("tau", 0.0, "appo"), HasSubstr("algorithm.tau is 0"));
  EXPECT_THAT(error("tau", 1.5, "appo"), HasSubstr("algorithm.tau is 1.5"));
  EXPECT_THAT(error("clip_param", 0.0, "appo"), HasSubstr("algorithm.clip_param is 0"));
  for (const char* const key :
       {"circular_buffer_num_batches", "circular_buffer_iterations_per_batch", "target_network_update_freq"}) {
    EXPECT_THAT(error(key, int64_t{0}, "appo"), HasSubstr(std::string("algorithm.") + key + " is 0"));
  }
}

using AppoTest = ImpalaTest;

std::vector<float> Section(const TrainerHost& trainer, const policy::PolicySpec& spec, const std::string& role) {
  const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
  const policy::ParameterSection& section = *layout.FindSection(role);
  const std::vector<float> all = const_cast<TrainerHost&>(trainer).ExportState(kSlot)->parameters();
  return {all.begin() + section.offset, all.begin() + section.offset + section.size};
}

TEST_F(AppoTest, TheTargetFollowsTheActor) {
  policy::PolicySpec with_target = spec_;
  with_target.actor.has_target = true;
  RandomBatch batch(spec_, {7, 9, 5, 12}, 1);
  AppoOptions options;
  options.target_network_update_freq = 2;
  options.tau = 0.25;
  options.weight_decay = 0.1;  // which is no target's
  const auto trainer = Make(spec_, AppoSpec(options));
  const std::vector<float> first = Section(*trainer, with_target, "actor");
  EXPECT_EQ(Section(*trainer, with_target, "actor.target"), first) << "it begins as the actor does";
  ASSERT_TRUE(trainer->Update(batch.batch, Context(0)).ok());
  EXPECT_EQ(Section(*trainer, with_target, "actor.target"), first);
  EXPECT_NE(Section(*trainer, with_target, "actor"), first);
  ASSERT_TRUE(trainer->Update(batch.batch, Context(1)).ok());
  const std::vector<float> actor = Section(*trainer, with_target, "actor");
  const std::vector<float> target = Section(*trainer, with_target, "actor.target");
  for (size_t i = 0; i < target.size(); ++i) {
    ASSERT_NEAR(target[i], first[i] + 0.25f * (actor[i] - first[i]), 1e-6f) << i;
  }
}

TEST_F(AppoTest, ItsBufferHoldsAndUsesBatchesAsItSays) {
  AppoOptions options;
  options.circular_buffer_num_batches = 5;
  options.circular_buffer_iterations_per_batch = 3;
  const auto feed = (*FindAlgorithm("appo"))->Feed(AppoSpec(options));
  ASSERT_TRUE(feed.has_value());
  EXPECT_EQ(feed->max_ahead, 4);
  EXPECT_EQ(feed->max_policy_lag, std::nullopt) << "as the run has it";
  const auto source = feed->make_source(7);
  EXPECT_EQ(source->NumReady(8), 3);
  EXPECT_EQ(source->Done(8), 7);
  options.circular_buffer_iterations_per_batch = 2;
  EXPECT_NE((*FindAlgorithm("appo"))->Feed(AppoSpec(options))->name, feed->name)
      << "policies with others have a clock apart";
}

TEST_F(AppoTest, RowsOfOldPoliciesWeighAtMostTwice) {
  RandomBatch batch(spec_, {7, 9, 5}, 1);
  const auto clipped = [&](float logp) {
    std::fill(batch.logp.begin(), batch.logp.end(), logp);
    const auto trainer = Make(spec_, AppoSpec(AppoOptions()));
    return MetricsOf(trainer->Update(batch.batch, Context(0))->at(0));
  };
  // Half of how likely who acted found it is still more than the target: the ratio is to that half.
  const auto certain = clipped(1.0f);
  EXPECT_GT(certain.at("Policy/Clip fraction"), 0);
  // The policy that acted was not: the ratio is to the target, which is the actor still.
  const auto random = clipped(-20.0f);
  EXPECT_EQ(random.at("Policy/Clip fraction"), 0);
  EXPECT_NEAR(random.at("Policy/KL"), 0, 1e-6);
}

}  // namespace
}  // namespace troupe::training
