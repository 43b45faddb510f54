// What continuous actions are drawn from, for every back end. All weights are zero, so that the last layer says its
// biases.

#include "lib/inference/continuous_head.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "lib/inference/action_bounds.h"
#include "lib/inference/testing/backends.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/testing.h"
#include <gtest/gtest.h>

namespace troupe::inference {
namespace {

using policy::ContinuousDistribution;
using policy::PolicySpec;
using space::ActionWord;
using space::Space;

constexpr int64_t kDraws = 20000;

PolicySpec SpecOf(ContinuousDistribution distribution, bool is_free, const Space& actions) {
  PolicySpec spec = policy::SmallSpecForTesting();
  spec.action_space = actions;
  policy::SetDistributionForTesting(distribution, &spec);
  spec.free_log_std = is_free;
  return spec;
}

double Softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

double LogNormal(double x, double mean, double log_std) {
  const double z = (x - mean) / std::exp(log_std);
  return -0.5 * z * z - log_std - 0.5 * std::log(2 * M_PI);
}

/// Of 2 x - 1, x ~ Beta(a, b).
double LogBeta(double y, double a, double b) {
  return (a - 1) * std::log((1 + y) / 2) + (b - 1) * std::log((1 - y) / 2) + std::lgamma(a + b) - std::lgamma(a) -
         std::lgamma(b) - std::log(2.0);
}

/// The largest distance of the samples' distribution from the one with that density on [low, high] (Kolmogorov and
/// Smirnov's); midpoints of it, narrower than a thousandth of what it spreads over.
double DistanceFrom(std::vector<double> samples, double low, double high,
                    const std::function<double(double)>& log_density) {
  std::sort(samples.begin(), samples.end());
  constexpr int kSteps = 200000;
  const double width = (high - low) / kSteps;
  double below = 0;
  double distance = 0;
  size_t next = 0;
  const auto count = static_cast<double>(samples.size());
  const auto density = [&](int step) {
    const double middle = low + (step + 0.5) * width;
    return std::exp(log_density(middle));
  };
  for (int step = 0; step < kSteps; ++step) {
    const size_t first = next;
    while (next < samples.size() && samples[next] < low + (step + 1) * width) ++next;
    distance = std::max(distance, std::abs(below - static_cast<double>(first) / count));
    below += density(step) * width;
    distance = std::max(distance, std::abs(below - static_cast<double>(next) / count));
  }
  EXPECT_NEAR(below, 1, 1e-4) << "the density itself";
  EXPECT_EQ(next, samples.size());
  return distance;
}
/// Larger ones come once in a thousand runs; the seeds are fixed.
const double kMostDistance = 1.95 / std::sqrt(static_cast<double>(kDraws));

/// What one policy does for kDraws rows.
struct Acts {
  std::vector<ActionWord> actions;
  std::vector<float> logp;
  int64_t words = 0;

  std::vector<double> Word(int64_t word) const {
    std::vector<double> values;
    for (size_t i = static_cast<size_t>(word); i < actions.size(); i += static_cast<size_t>(words)) {
      values.push_back(actions[i].f32);
    }
    return values;
  }
};

class ContinuousHeadTest : public BackendTest {
 protected:
  /// `outputs`: the last layer's; `log_std`: free ones.
  std::unique_ptr<Actor> MakeActor(const PolicySpec& spec, const std::vector<float>& outputs,
                                   const std::vector<float>& log_std = {}) const {
    auto weights = std::make_shared<policy::WeightSnapshot>();
    weights->id = spec.id;
    weights->version = {1, 1};
    const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
    weights->actor.assign(static_cast<size_t>(layout.acting_size()), 0.0f);
    EXPECT_EQ(layout.Find("actor.2.bias")->count, static_cast<int64_t>(outputs.size()));
    std::copy(outputs.begin(), outputs.end(), weights->actor.begin() + layout.Find("actor.2.bias")->offset);
    if (!log_std.empty()) {
      std::copy(log_std.begin(), log_std.end(), weights->actor.begin() + layout.Find("actor.log_std")->offset);
    }
    auto actor = Actor::Create(spec, 11, GetParam());
    EXPECT_TRUE(actor.ok()) << actor.status();
    EXPECT_TRUE((*actor)->SetWeights(weights).ok());
    return *std::move(actor);
  }

  static Acts Act(Actor* actor, bool deterministic = false, int64_t first = 0, int64_t rows = kDraws) {
    const std::vector<float> obs(static_cast<size_t>(rows * 3), 0.5f);
    std::vector<RowKey> keys;
    for (int64_t r = first; r < first + rows; ++r) {
      keys.push_back({base::EnvId(static_cast<uint32_t>(r % 16)), 3, {}, static_cast<uint32_t>(r / 16)});
    }
    Acts acts;
    acts.words = actor->spec().action_words();
    acts.actions.resize(static_cast<size_t>(rows * acts.words));
    acts.logp.resize(static_cast<size_t>(rows));
    EXPECT_TRUE(
        actor->Act({rows, obs.data(), nullptr, keys.data(), deterministic}, acts.actions.data(), acts.logp.data())
            .ok());
    return acts;
  }

  /// Of each row, against the sum over words of `log_density(word, action)`.
  static void ExpectLogp(const Acts& acts, const std::function<double(int64_t, double)>& log_density) {
    for (size_t r = 0; r < acts.logp.size(); ++r) {
      double expected = 0;
      for (int64_t w = 0; w < acts.words; ++w) {
        expected += log_density(w, acts.actions[r * static_cast<size_t>(acts.words) + static_cast<size_t>(w)].f32);
      }
      ASSERT_NEAR(acts.logp[r], expected, 1e-5 * std::max(1.0, std::abs(expected))) << "row " << r;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, ContinuousHeadTest, kBackends, BackendCaseName);

TEST_P(ContinuousHeadTest, PredictedDeviations) {
  const PolicySpec spec = SpecOf(ContinuousDistribution::kGaussian, false, *Space::Box(-1, 1, {3}));
  const std::vector<float> outputs = {-0.25f, 50, 2, -1.5f, 0.75f, 0};
  const auto actor = MakeActor(spec, outputs);
  const Acts acts = Act(actor.get());
  for (size_t w = 0; w < 3; ++w) {
    const auto log_density = [&](double x) { return LogNormal(x, outputs[w], outputs[w + 3]); };
    const double reach = 8 * std::exp(outputs[w + 3]);
    EXPECT_LT(DistanceFrom(acts.Word(static_cast<int64_t>(w)), outputs[w] - reach, outputs[w] + reach, log_density),
              kMostDistance);
  }
  ExpectLogp(acts, [&](int64_t w, double x) {
    return LogNormal(x, outputs[static_cast<size_t>(w)], outputs[static_cast<size_t>(w) + 3]);
  });
  const Acts modes = Act(actor.get(), true, 0, 2);
  for (size_t w = 0; w < 3; ++w) EXPECT_EQ(modes.actions[w].f32, outputs[w]);
}

TEST_P(ContinuousHeadTest, DeviationsAreClamped) {
  for (const bool is_free : {true, false}) {
    for (const float said : {-9.0f, 3.0f}) {
      PolicySpec spec = SpecOf(ContinuousDistribution::kGaussian, is_free, *Space::Box(-1, 1, {1}));
      spec.min_log_std = -1;
      spec.max_log_std = 0.5;
      const auto actor = is_free ? MakeActor(spec, {0}, {said}) : MakeActor(spec, {0, said});
      const Acts acts = Act(actor.get());
      const double log_std = said < 0 ? -1 : 0.5;
      EXPECT_LT(DistanceFrom(acts.Word(0), -20, 20, [&](double x) { return LogNormal(x, 0, log_std); }), kMostDistance);
      ExpectLogp(acts, [&](int64_t, double x) { return LogNormal(x, 0, log_std); });
    }
  }
}

// The recorded action is the number before tanh; its log-probability that of its tanh.
TEST_P(ContinuousHeadTest, SquashedGaussians) {
  for (const bool is_free : {true, false}) {
    const PolicySpec spec = SpecOf(ContinuousDistribution::kSquashedGaussian, is_free, *Space::Box(-1, 1, {2}));
    const auto actor = is_free ? MakeActor(spec, {0.5f, -3}, {-0.25f, 1}) : MakeActor(spec, {0.5f, -3, -0.25f, 1});
    const double means[] = {0.5, -3};
    const double log_stds[] = {-0.25, 1};
    const Acts acts = Act(actor.get());
    for (size_t w = 0; w < 2; ++w) {
      EXPECT_LT(DistanceFrom(acts.Word(static_cast<int64_t>(w)), -25, 25,
                             [&](double x) { return LogNormal(x, means[w], log_stds[w]); }),
                kMostDistance);
    }
    std::vector<double> squashed = acts.Word(0);
    for (double& x : squashed) x = std::tanh(x);
    const auto of_tanh = [&](double y) { return LogNormal(std::atanh(y), 0.5, -0.25) - std::log1p(-y * y); };
    EXPECT_LT(DistanceFrom(squashed, -1, 1, of_tanh), kMostDistance);
    ExpectLogp(acts, [&](int64_t w, double x) {
      const double slope = 2 * (std::log(2.0) - std::abs(x) - std::log1p(std::exp(-2 * std::abs(x))));
      return LogNormal(x, means[w], log_stds[w]) - slope;
    });
    const Acts modes = Act(actor.get(), true, 0, 1);
    EXPECT_EQ(modes.actions[0].f32, 0.5f);
    EXPECT_EQ(modes.actions[1].f32, -3.0f);
  }
}

TEST_P(ContinuousHeadTest, Betas) {
  const PolicySpec spec = SpecOf(ContinuousDistribution::kBeta, true, *Space::Box(-2, 2, {5}));
  // Nearly uniform, a hill, two slopes, a narrow hill away from the middle.
  const std::vector<float> outputs = {-9, 0, 2, -6, 100, -9, 0, -1, 1.5f, 20};
  const auto alpha = [&](int64_t w) { return 1 + Softplus(outputs[static_cast<size_t>(w)]); };
  const auto beta = [&](int64_t w) { return 1 + Softplus(outputs[static_cast<size_t>(w) + 5]); };
  const auto actor = MakeActor(spec, outputs);
  const Acts acts = Act(actor.get());
  for (int64_t w = 0; w < 5; ++w) {
    const double a = alpha(w);
    const double b = beta(w);
    const std::vector<double> words = acts.Word(w);
    EXPECT_LT(DistanceFrom(words, -1, 1, [&](double y) { return LogBeta(y, a, b); }), kMostDistance) << w;
    double sum = 0;
    double squares = 0;
    for (const double y : words) sum += y;
    const double mean = sum / static_cast<double>(kDraws);
    for (const double y : words) squares += (y - mean) * (y - mean);
    const double variance = 4 * a * b / ((a + b) * (a + b) * (a + b + 1));
    EXPECT_NEAR(mean, (a - b) / (a + b), 4.5 * std::sqrt(variance / kDraws));
    EXPECT_NEAR(squares / static_cast<double>(kDraws) / variance, 1, 0.05);
  }
  ExpectLogp(acts, [&](int64_t w, double y) { return LogBeta(y, alpha(w), beta(w)); });
  const Acts means = Act(actor.get(), true, 0, 1);
  for (int64_t w = 0; w < 5; ++w) {
    EXPECT_NEAR(means.actions[static_cast<size_t>(w)].f32, (alpha(w) - beta(w)) / (alpha(w) + beta(w)), 1e-6);
  }
}

TEST_P(ContinuousHeadTest, ABetaKeepsOffItsEnds) {
  const PolicySpec spec = SpecOf(ContinuousDistribution::kBeta, true, *Space::Box(-1, 1, {3}));
  // All at one end; beyond the largest output that counts; neither.
  const auto actor = MakeActor(spec, {1e30f, 1e9f, -1e30f, -1e30f, 1e9f, -1e30f});
  for (const bool deterministic : {false, true}) {
    const Acts acts = Act(actor.get(), deterministic);
    for (size_t r = 0; r < acts.logp.size(); ++r) {
      ASSERT_TRUE(std::isfinite(acts.logp[r])) << r;
      for (size_t w = 0; w < 3; ++w) ASSERT_LE(std::abs(acts.actions[3 * r + w].f32), policy::kMaxBetaAction);
    }
    const std::vector<double> end = acts.Word(0);
    EXPECT_GT(*std::min_element(end.begin(), end.end()), 1 - 1e-4);
    const std::vector<double> middle = acts.Word(1);
    EXPECT_LT(*std::max_element(middle.begin(), middle.end()), 0.006) << "a deviation of 7e-4";
  }
}

TEST_P(ContinuousHeadTest, ARowDoesNotDependOnItsBatch) {
  const Space actions = *Space::Tuple({*Space::Box(-1, 1, {3}), *Space::Discrete(4), *Space::Box(-1, 1, {2})});
  for (const auto distribution :
       {ContinuousDistribution::kGaussian, ContinuousDistribution::kSquashedGaussian, ContinuousDistribution::kBeta}) {
    const PolicySpec spec = SpecOf(distribution, false, actions);
    const auto actor = MakeActor(spec, {0, 1, 2, 3, -9, 0.25f, 0.5f, -9, -1, -0.5f, 0, 0.75f, -0.25f, 1});
    const Acts together = Act(actor.get(), false, 0, 600);
    for (int64_t r = 0; r < 600; ++r) {
      const Acts alone = Act(actor.get(), false, r, 1);
      for (size_t w = 0; w < 6; ++w) {
        ASSERT_EQ(alone.actions[w].i32, together.actions[static_cast<size_t>(r) * 6 + w].i32) << "row " << r;
      }
      ASSERT_EQ(alone.logp[0], together.logp[static_cast<size_t>(r)]);
    }
  }
}

// Outputs stand behind each other: all categories, then for each continuous leaf means and log standard deviations.
TEST_P(ContinuousHeadTest, MixedSpacesPutEachLeafWhereItBelongs) {
  const Space actions = *Space::Tuple({*Space::Box(-1, 1, {2}), *Space::Discrete(3), *Space::Box(-1, 1, {1})});
  const PolicySpec spec = SpecOf(ContinuousDistribution::kGaussian, false, actions);
  const std::vector<float> outputs = {0, 0, 5, 10, 20, -3, -2, 30, -1};
  const auto actor = MakeActor(spec, outputs);
  const Acts acts = Act(actor.get());
  double squares[3] = {};
  for (int64_t r = 0; r < kDraws; ++r) {
    const ActionWord* const row = &acts.actions[static_cast<size_t>(4 * r)];
    squares[0] += (row[0].f32 - 10.0) * (row[0].f32 - 10.0) / std::exp(2 * -3.0);
    squares[1] += (row[1].f32 - 20.0) * (row[1].f32 - 20.0) / std::exp(2 * -2.0);
    squares[2] += (row[3].f32 - 30.0) * (row[3].f32 - 30.0) / std::exp(2 * -1.0);
  }
  for (const double sum : squares) EXPECT_NEAR(sum / kDraws, 1, 0.05);
}

// The noise of an action's elements is not correlated, of one Box or of two: 5 deviations of the estimate at most.
TEST_P(ContinuousHeadTest, ElementsAreDrawnApart) {
  const Space actions = *Space::Tuple({*Space::Box(-1, 1, {3}), *Space::Box(-1, 1, {2})});
  for (const auto distribution :
       {ContinuousDistribution::kGaussian, ContinuousDistribution::kSquashedGaussian, ContinuousDistribution::kBeta}) {
    for (const bool is_free : {true, false}) {
      if (distribution == ContinuousDistribution::kBeta && !is_free) continue;
      const PolicySpec spec = SpecOf(distribution, is_free, actions);
      const policy::ParameterLayout layout = policy::ParameterLayout::For(spec);
      const auto actor =
          MakeActor(spec, std::vector<float>(static_cast<size_t>(layout.Find("actor.2.bias")->count), 0.0f),
                    spec.log_std_size() > 0 ? std::vector<float>(5, 0.0f) : std::vector<float>());
      const Acts acts = Act(actor.get());
      for (int64_t a = 0; a < 5; ++a) {
        for (int64_t b = 0; b < a; ++b) {
          const std::vector<double> x = acts.Word(a), y = acts.Word(b);
          double xy = 0, xx = 0, yy = 0;
          for (size_t i = 0; i < x.size(); ++i) {
            xy += x[i] * y[i];
            xx += x[i] * x[i];
            yy += y[i] * y[i];
          }
          EXPECT_LT(std::abs(xy / std::sqrt(xx * yy)), 5 / std::sqrt(static_cast<double>(x.size()))) << a << " " << b;
        }
      }
    }
  }
}

// A gamma whose first attempts are all refused is drawn from words that no other gamma of the episode has.
TEST(BetaRetryTest, EachGammaOfAnEpisodeGoesOnFromWordsOfItsOwn) {
  const PolicySpec spec = SpecOf(ContinuousDistribution::kBeta, true, *Space::Box(-1, 1, {2}));
  const ContinuousHead head(spec);
  const auto words = head.RandomWords(2);
  std::vector<uint32_t> random;  // two normals of 1.67 and two numbers just below 1: refused, again and again
  for (int64_t i = 0; i < 2 * words; i += 4)
    random.insert(random.end(), {0x10000000u, 0x20000000u, 0xfffff000u, 0xfffff000u});
  const std::vector<float> outputs(8, 0.0f);
  const RowKey keys[] = {{base::EnvId(1), 3, {}, 0}, {base::EnvId(1), 3, {}, 1}};
  std::vector<ActionWord> actions(4);
  float logp[2] = {};
  ContinuousCall call;
  call.rows = 2;
  call.words = 2;
  call.outputs = outputs.data();
  call.output_stride = 4;
  call.random = random.data();
  call.random_stride = words;
  call.keys = keys;
  call.seed = 11;
  call.actions = actions.data();
  call.action_stride = 2;
  call.logp = logp;
  head.Sample(call);
  std::set<float> different;
  for (const ActionWord& action : actions) {
    EXPECT_GT(std::abs(action.f32), 1e-6f) << "both gammas are one";
    different.insert(action.f32);
  }
  EXPECT_EQ(different.size(), 4u);
}

// The environment sees what is within its Box, whatever is drawn.
TEST(ContinuousBoundsTest, ActionsReachTheEnvironmentInItsBox) {
  for (const auto distribution : {ContinuousDistribution::kSquashedGaussian, ContinuousDistribution::kBeta}) {
    PolicySpec spec = SpecOf(distribution, true, *Space::Box(-0.3f, 2.7f, {1}));
    const bool is_beta = distribution == ContinuousDistribution::kBeta;
    if (is_beta) spec.action_bound_method = policy::ActionBoundMethod::kNone;
    ASSERT_TRUE(spec.Validate().ok()) << spec.Validate();
    const ActionBounds bounds(spec);
    for (const float u : {-20.0f, -1.0f, 0.0f, 0.5f, 20.0f}) {
      ActionWord word;
      word.f32 = is_beta ? std::clamp(u, -policy::kMaxBetaAction, policy::kMaxBetaAction) : u;
      const double expected = -0.3 + 1.5 * ((is_beta ? word.f32 : std::tanh(double{u})) + 1);
      bounds.Apply({&word, 1}, {&word, 1});
      EXPECT_NEAR(word.f32, expected, 1e-6);
      EXPECT_GE(word.f32, -0.3f);
      EXPECT_LE(word.f32, 2.7f);
    }
  }
}

}  // namespace
}  // namespace troupe::inference
