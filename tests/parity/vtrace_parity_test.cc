// One update of IMPALA and of APPO by every back end against numbers that plain PyTorch computed in double precision
// (vtrace_reference.py made vtrace_reference.json). Tolerances as in ppo_parity_test.cc.

#include <string>
#include <tuple>
#include <vector>

#include "lib/training/appo/appo.h"
#include "lib/training/impala/impala.h"
#include "tests/parity/update_parity.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

constexpr size_t kCases = 6;

const json& VtraceRecord() {
  static const json& recorded = *new json(ReadRecord("vtrace_reference.json"));
  return recorded;
}

policy::AlgorithmSpec AlgorithmOf(const json& record, bool in_one_step) {
  const json& from = record["options"];
  AppoOptions options;
  ReadOptions(from, &options);
  options.gae_lambda = from["vtrace_lambda"].get<double>();
  options.clips = {from["rho"].get<double>(), from["pg_rho"].get<double>()};
  options.minibatch_size = in_one_step ? 0 : from["minibatch_size"].get<int64_t>();
  if (record["algorithm"] == "impala") return WithSchedules(from, ImpalaSpec(options));
  options.clip_param = from["clip_param"].get<double>();
  options.target_network_update_freq = from["target_network_update_freq"].get<int64_t>();
  options.tau = from["tau"].get<double>();
  return WithSchedules(from, AppoSpec(options));
}

class VtraceParityTest : public UpdateParityTest {
 protected:
  const json& Recorded() const override { return VtraceRecord(); }
};

TEST(VtraceRecordTest, EveryRecordedCaseRuns) { EXPECT_EQ(VtraceRecord()["cases"].size(), kCases); }

TEST_P(VtraceParityTest, LossesAndGradientsOfOneMinibatch) {
  const json& expected = record()["one_step"];
  ExpectReport(Run(AlgorithmOf(record(), /*in_one_step=*/true)), expected);
  // After one step Adam's first moment is (1 - beta1) times the (clipped) gradient.
  std::vector<float> gradients = after_.Floats(kAdamExpAvg);
  for (float& value : gradients) value = static_cast<float>(value / (1.0 - AppoOptions().adam_beta1));
  ExpectClose(layout_, gradients, Flat(expected["gradients"], layout_), tolerance(), "gradient of");
}

TEST_P(VtraceParityTest, AWholeUpdate) {
  const json& expected = record()["update"];
  ExpectReport(Run(AlgorithmOf(record(), /*in_one_step=*/false)), expected);
  ExpectClose(layout_, after_.parameters(), Flat(expected["parameters"], layout_), tolerance(), "parameter");
  ExpectClose(layout_, after_.Floats(kAdamExpAvg), Flat(expected["exp_avg"], layout_), tolerance(), "exp_avg of");
}

INSTANTIATE_TEST_SUITE_P(All, VtraceParityTest,
                         testing::Combine(testing::Range<size_t>(0, kCases), testing::Range<size_t>(0, 7)),
                         [](const testing::TestParamInfo<VtraceParityTest::ParamType>& info) {
                           return VtraceRecord()["cases"][std::get<0>(info.param)]["name"].get<std::string>() + "_" +
                                  BackendName(info);
                         });

}  // namespace
}  // namespace troupe::training
