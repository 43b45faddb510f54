// One A2C update of every back end against numbers that NumPy computed in double precision, whose gradients are
// differences of the loss (a2c_reference.py made a2c_reference.json). Tolerance 1e-5, relative to the largest number of
// a tensor: what float32 leaves over a few optimizer steps; 1e-4 on a GPU, whose sums have an order of their own. The
// path for devices runs on $TROUPE_TEST_DEVICE, by default on the CPU.

#include <string>
#include <tuple>
#include <vector>

#include "lib/training/a2c/a2c_options.h"
#include "tests/parity/update_parity.h"
#include <gtest/gtest.h>

namespace troupe::training {
namespace {

const json& A2cRecord() {
  static const json& recorded = *new json(ReadRecord("a2c_reference.json"));
  return recorded;
}

A2cOptions Options(const json& from) {
  A2cOptions options;
  ReadOptions(from, &options);
  options.minibatch_size = from["minibatch_size"].get<int64_t>();
  return options;
}

class A2cParityTest : public UpdateParityTest {
 protected:
  const json& Recorded() const override { return A2cRecord(); }
};

TEST_P(A2cParityTest, LossesAndGradientsOfOneMinibatch) {
  A2cOptions options = Options(record()["options"]);
  options.minibatch_size = 0;
  const json& expected = record()["one_step"];
  ExpectReport(Run(WithSchedules(record()["options"], A2cSpec(options))), expected);
  // After one step Adam's first moment is (1 - beta1) times the (clipped) gradient.
  std::vector<float> gradients = after_.Floats(kAdamExpAvg);
  for (float& value : gradients) value = static_cast<float>(value / (1.0 - options.adam_beta1));
  ExpectClose(layout_, gradients, Flat(expected["gradients"], layout_), tolerance(), "gradient of");
}

TEST_P(A2cParityTest, AWholeUpdate) {
  const json& expected = record()["update"];
  ExpectReport(Run(WithSchedules(record()["options"], A2cSpec(Options(record()["options"])))), expected);
  ExpectClose(layout_, after_.parameters(), Flat(expected["parameters"], layout_), tolerance(), "parameter");
  ExpectClose(layout_, after_.Floats(kAdamExpAvg), Flat(expected["exp_avg"], layout_), tolerance(), "exp_avg of");
  ExpectClose(layout_, after_.Floats(kAdamExpAvgSq), Flat(expected["exp_avg_sq"], layout_), tolerance(),
              "exp_avg_sq of");
  EXPECT_EQ(after_.Integer(kAdamSteps), expected["minibatch_steps"].get<int64_t>());
}

INSTANTIATE_TEST_SUITE_P(All, A2cParityTest,
                         testing::Combine(testing::Range<size_t>(0, 2), testing::Range<size_t>(0, 7)),
                         [](const testing::TestParamInfo<A2cParityTest::ParamType>& info) {
                           return A2cRecord()["cases"][std::get<0>(info.param)]["name"].get<std::string>() + "_" +
                                  BackendName(info);
                         });

}  // namespace
}  // namespace troupe::training
