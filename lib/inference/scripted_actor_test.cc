#include "lib/inference/scripted_actor.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/inference/actor.h"
#include "lib/inference/make_policy_actor.h"

namespace troupe::inference {
namespace {

using policy::PolicySpec;
using space::ActionWord;
using ::testing::HasSubstr;

PolicySpec Spec(const std::string& policy_class, space::Space actions,
                space::Space obs = *space::Space::Box(0, 1, {7})) {
  PolicySpec spec;
  spec.id = policy::PolicyId("opponent");
  spec.policy_class = *policy::ParsePolicyClass(policy_class);
  spec.observation_space = std::move(obs);
  spec.action_space = std::move(actions);
  spec.action_bound_method = policy::ActionBoundMethod::kNone;
  return spec;
}

std::string ErrorOf(const PolicySpec& spec, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const auto actor = MakePolicyActor(spec, 1);
  EXPECT_EQ(actor.status().code(), code) << actor.status();
  return std::string(actor.status().message());
}

/// The actions of `rows` decisions of as many env ids, [rows, words].
std::vector<ActionWord> Act(const PolicySpec& spec, const std::vector<RowKey>& keys, const std::vector<float>& obs,
                            const std::vector<uint8_t>& mask = {}, uint64_t seed = 1) {
  const auto actor = MakePolicyActor(spec, seed);
  EXPECT_TRUE(actor.ok()) << actor.status();
  std::vector<ActionWord> actions(keys.size() * static_cast<size_t>(spec.action_words()));
  std::vector<float> logp(keys.size(), 9.0f);
  ActInput input;
  input.rows = static_cast<int64_t>(keys.size());
  input.obs = obs.data();
  input.action_mask = mask.empty() ? nullptr : mask.data();
  input.keys = keys.data();
  const absl::Status status = (*actor)->Act(input, actions.data(), logp.data());
  EXPECT_TRUE(status.ok()) << status;
  for (const float value : logp) EXPECT_EQ(value, 0.0f);
  return actions;
}

std::vector<RowKey> Keys(uint32_t rows) {
  std::vector<RowKey> keys;
  for (uint32_t r = 0; r < rows; ++r) {
    keys.push_back({base::EnvId(r % 7), r / 7, base::AgentSlot(static_cast<int32_t>(r % 2)), r % 5});
  }
  return keys;
}

TEST(RandomPolicyTest, IsUniformOverDiscreteActions) {
  const PolicySpec spec = Spec("random", *space::Space::Discrete(4, 10));
  const std::vector<ActionWord> actions = Act(spec, Keys(8000), std::vector<float>(8000 * 7));
  std::map<int32_t, int> counts;
  for (const ActionWord action : actions) ++counts[action.i32];
  ASSERT_EQ(counts.size(), 4u);
  // Chi-squared with 3 degrees of freedom: above 16.3 once in a thousand.
  double chi = 0;
  for (const auto& [action, count] : counts) {
    EXPECT_GE(action, 10);
    chi += (count - 2000.0) * (count - 2000.0) / 2000.0;
  }
  EXPECT_LT(chi, 16.3);
}

TEST(RandomPolicyTest, FillsABoxEvenlyAndStaysInside) {
  const PolicySpec spec = Spec("random", *space::Space::Box({-2, 5}, {2, 6}, {2}));
  const std::vector<ActionWord> actions = Act(spec, Keys(4000), std::vector<float>(4000 * 7));
  double sum[2] = {0, 0};
  double low = 9;
  double high = -9;
  for (size_t i = 0; i < actions.size(); i += 2) {
    low = std::min<double>(low, actions[i].f32);
    high = std::max<double>(high, actions[i].f32);
    sum[0] += actions[i].f32;
    sum[1] += actions[i + 1].f32;
  }
  EXPECT_GE(low, -2);
  EXPECT_LT(low, -1.98);
  EXPECT_LE(high, 2);
  EXPECT_GT(high, 1.98);
  EXPECT_NEAR(sum[0] / 4000, 0.0, 0.08);  // deviation of the mean: 0.018
  EXPECT_NEAR(sum[1] / 4000, 5.5, 0.02);
}

TEST(RandomPolicyTest, HonoursMasksAndSaysWhoseForbidsEverything) {
  PolicySpec spec = Spec("random", *space::Space::MultiDiscrete({3, 2}));
  spec.has_action_mask = true;
  const std::vector<RowKey> keys = Keys(500);
  std::vector<uint8_t> mask;
  for (size_t r = 0; r < keys.size(); ++r) mask.insert(mask.end(), {1, 0, 1, 0, 1});
  const std::vector<float> obs(keys.size() * 7);
  std::map<int32_t, int> first;
  const std::vector<ActionWord> actions = Act(spec, keys, obs, mask);
  for (size_t i = 0; i < actions.size(); i += 2) {
    ++first[actions[i].i32];
    EXPECT_EQ(actions[i + 1].i32, 1);
  }
  EXPECT_EQ(first.count(1), 0u);
  EXPECT_GT(first[0], 180);
  EXPECT_GT(first[2], 180);

  const auto actor = MakePolicyActor(spec, 1);
  mask[5 + 3] = mask[5 + 4] = 0;
  std::vector<ActionWord> out(keys.size() * 2);
  std::vector<float> logp(keys.size());
  ActInput input{static_cast<int64_t>(keys.size()), obs.data(), mask.data(), keys.data()};
  const absl::Status forbidden = (*actor)->Act(input, out.data(), logp.data());
  EXPECT_EQ(forbidden.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(forbidden.message()),
              HasSubstr("env 1, episode 0, agent slot 1, step 1 forbids every action"));
  input.action_mask = nullptr;
  EXPECT_THAT(std::string((*actor)->Act(input, out.data(), logp.data()).message()), HasSubstr("expected, got none"));
}

TEST(RandomPolicyTest, ARowFollowsFromSeedAndKeyAlone) {
  const PolicySpec spec = Spec("random", *space::Space::Discrete(1000));
  const std::vector<RowKey> keys = Keys(60);
  const std::vector<float> obs(60 * 7);
  const std::vector<ActionWord> all = Act(spec, keys, obs);
  int equal_to_others = 0;
  for (size_t r = 0; r < keys.size(); ++r) {
    EXPECT_EQ(Act(spec, {keys[r]}, obs)[0].i32, all[r].i32) << "whatever is played beside it";
    equal_to_others += r > 0 && all[r].i32 == all[r - 1].i32 ? 1 : 0;
  }
  EXPECT_LE(equal_to_others, 3);
  int equal_to_other_seed = 0;
  const std::vector<ActionWord> other = Act(spec, keys, obs, {}, 2);
  for (size_t r = 0; r < keys.size(); ++r) equal_to_other_seed += other[r].i32 == all[r].i32 ? 1 : 0;
  EXPECT_LE(equal_to_other_seed, 3);
}

TEST(RandomPolicyTest, RefusesAnUnboundedBox) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(ErrorOf(Spec("random", *space::Space::Box({-1, 0}, {1, kInfinity}, {2}))),
              HasSubstr("policy \"opponent\": class random needs a bounded Box; the action space is Box("));
}

TEST(AlwaysSameTest, PlaysTheFirstActionThatIsAllowed) {
  PolicySpec spec = Spec("scripted:always_same", *space::Space::MultiDiscrete({3, 2}));
  const std::vector<float> obs(2 * 7);
  for (const ActionWord word : Act(spec, Keys(2), obs)) EXPECT_EQ(word.i32, 0);
  EXPECT_EQ(Act(Spec("scripted:always_same", *space::Space::Discrete(3, 5)), Keys(1), obs)[0].i32, 5);
  spec.has_action_mask = true;
  const std::vector<ActionWord> masked = Act(spec, Keys(2), obs, {0, 0, 1, 1, 1, 0, 1, 1, 0, 1});
  EXPECT_EQ(masked[0].i32, 2);
  EXPECT_EQ(masked[1].i32, 0);
  EXPECT_EQ(masked[2].i32, 1);
  EXPECT_EQ(masked[3].i32, 1);
  const space::Space nested =
      *space::Space::Dict({{"a", *space::Space::Discrete(2, 4)}, {"b", *space::Space::MultiBinary(2)}});
  const std::vector<ActionWord> parts = Act(Spec("scripted:always_same", nested), Keys(1), obs);
  EXPECT_EQ(parts[0].i32, 4);
  EXPECT_EQ(parts[1].i32, 0);
  EXPECT_THAT(ErrorOf(Spec("scripted:always_same", *space::Space::Box(0, 1, {1}))),
              HasSubstr("needs discrete actions; the action space is Box("));
}

TEST(BeatLastTest, BeatsWhatTheOtherPlayed) {
  const PolicySpec spec = Spec("scripted:beat_last", *space::Space::Discrete(3));
  for (int own = 0; own < 3; ++own) {
    for (int other = 0; other < 3; ++other) {
      std::vector<float> obs(7, 0.0f);
      obs[static_cast<size_t>(own)] = obs[static_cast<size_t>(3 + other)] = obs[6] = 1.0f;
      EXPECT_EQ(Act(spec, Keys(1), obs)[0].i32, (other + 1) % 3);
    }
  }
  std::map<int32_t, int> first_hands;
  for (const ActionWord word : Act(spec, Keys(300), std::vector<float>(300 * 7))) ++first_hands[word.i32];
  for (int32_t hand = 0; hand < 3; ++hand) EXPECT_GT(first_hands[hand], 60) << "nobody knows the first hand";
}

TEST(BeatLastTest, RefusesOtherGames) {
  EXPECT_EQ(ErrorOf(Spec("scripted:beat_last", *space::Space::Discrete(3), *space::Space::Box(0, 1, {6}))),
            "policy \"opponent\": class scripted:beat_last plays rock_paper_scissors only, with observations Box(0, 1, "
            "[7]) and actions Discrete(3); these are Box(0, 1, [6]) and Discrete(3)");
  EXPECT_THAT(ErrorOf(Spec("scripted:beat_last", *space::Space::Discrete(4))), HasSubstr("and Discrete(4)"));
}

/// A board of connect four drawn from the top row down to the lowest: 'o' own, 'x' the other's, anything else free;
/// rows that are missing above are free.
std::vector<float> Board(const std::vector<std::string>& drawn) {
  std::vector<float> obs(84, 0.0f);
  for (size_t r = 0; r < drawn.size(); ++r) {
    const size_t row = 6 - drawn.size() + r;
    for (size_t column = 0; column < 7; ++column) {
      if (drawn[r][column] == 'o') obs[2 * (row * 7 + column)] = 1.0f;
      if (drawn[r][column] == 'x') obs[2 * (row * 7 + column) + 1] = 1.0f;
    }
  }
  return obs;
}

class OneMoveAheadTest : public ::testing::Test {
 protected:
  OneMoveAheadTest() { spec_.has_action_mask = true; }

  /// How often each column is played in `rows` decisions.
  std::map<int32_t, int> Columns(const std::vector<std::string>& drawn, std::vector<uint8_t> mask = {},
                                 uint32_t rows = 100) {
    const std::vector<float> board = Board(drawn);
    if (mask.empty() && spec_.has_action_mask) mask.assign(7, 1);
    std::vector<float> obs;
    std::vector<uint8_t> masks;
    for (uint32_t r = 0; r < rows; ++r) {
      obs.insert(obs.end(), board.begin(), board.end());
      masks.insert(masks.end(), mask.begin(), mask.end());
    }
    std::map<int32_t, int> counts;
    for (const ActionWord action : Act(spec_, Keys(rows), obs, masks)) ++counts[action.i32];
    return counts;
  }
  /// The only column played.
  int32_t Column(const std::vector<std::string>& drawn, const std::vector<uint8_t>& mask = {}) {
    const std::map<int32_t, int> counts = Columns(drawn, mask);
    EXPECT_EQ(counts.size(), 1u);
    return counts.begin()->first;
  }

  PolicySpec spec_ = Spec("scripted:one_move_ahead", *space::Space::Discrete(7), *space::Space::Box(0, 1, {6, 7, 2}));
};

TEST_F(OneMoveAheadTest, TakesItsFourthInEveryDirection) {
  EXPECT_EQ(Column({"xooo.xx"}), 4);
  EXPECT_EQ(Column({"oo.oxxx"}), 2) << "a gap";
  EXPECT_EQ(Column({"o......", "o......", "o.xx..."}), 0);
  EXPECT_EQ(Column({"..ox...", ".oxo...", "oxxo..."}), 3) << "to the right and up";
  EXPECT_EQ(Column({"xo.....", "oxo....", "xxxo..."}), 0) << "to the left and up";
  EXPECT_EQ(Column({"o......", "xo.....", "oxo....", "xxx.xo."}), 3) << "the lowest is missing";
}

TEST_F(OneMoveAheadTest, TakesBeforeItBlocks) {
  EXPECT_EQ(Column({"x.....o", "x.....o", "x.....o"}), 6);
  EXPECT_EQ(Column({"o.....x", "o.....x", "o.....x"}), 0);
}

TEST_F(OneMoveAheadTest, BlocksTheOthersFourth) {
  EXPECT_EQ(Column({"x......", "x......", "x.oo..."}), 0);
  EXPECT_EQ(Column({"oxxx..."}), 4);
  EXPECT_EQ(Column({"..xo...", ".xox...", "xooxo.."}), 3);
}

TEST_F(OneMoveAheadTest, PlaysAtRandomWhereNothingPresses) {
  EXPECT_EQ(Columns({}, {}, 700).size(), 7u);
  for (const auto& [column, count] : Columns({}, {}, 700)) EXPECT_GT(count, 60) << column;
  // Nobody has three.
  EXPECT_EQ(Columns({"xx..oo."}).size(), 7u);
  // The fourth place floats: a piece dropped there falls below it.
  EXPECT_EQ(Columns({"ooo....", "xxo....", "oxx...."}).size(), 7u);
  // Pieces at the end of one row and at the beginning of the next are no line.
  EXPECT_EQ(Columns({".....xx", "xx...oo"}).size(), 7u);
}

TEST_F(OneMoveAheadTest, StaysInsideTheMaskAndOffFullColumns) {
  EXPECT_EQ(Columns({"ooo...."}, {1, 1, 1, 0, 0, 0, 1}).size(), 4u) << "its fourth is forbidden";
  EXPECT_EQ(Columns({}, {0, 1, 0, 0, 0, 1, 0}).size(), 2u);
  spec_.has_action_mask = false;
  const std::map<int32_t, int> counts =
      Columns({"x.....o", "o.....x", "x.....o", "o.....x", "x.....o", "o.....x"}, {}, 500);
  EXPECT_EQ(counts.size(), 5u);
  EXPECT_EQ(counts.count(0) + counts.count(6), 0u);
  EXPECT_EQ(Column({"xxoxxox", "ooxooxo", "xxoxxox", "ooxooxo", "xxoxxox", "ooxooxo"}), 0) << "inside the space still";
}

TEST_F(OneMoveAheadTest, RefusesOtherGames) {
  EXPECT_THAT(
      ErrorOf(Spec("scripted:one_move_ahead", *space::Space::Discrete(9), *space::Space::Box(0, 1, {3, 3, 2}))),
      HasSubstr("plays connect_four only, with observations Box(0, 1, [6, 7, 2]) and actions Discrete(7); these "
                "are Box(0, 1, [3, 3, 2]) and Discrete(9)"));
}

TEST(ScriptedActorTest, UnknownNamesAndOtherClassesAreRefused) {
  EXPECT_EQ(ErrorOf(Spec("scripted:beat_lost", *space::Space::Discrete(3)), absl::StatusCode::kNotFound),
            "there is no scripted policy \"beat_lost\"; the nearest is \"beat_last\"");
  EXPECT_EQ(ErrorOf(Spec("scripted:zzz", *space::Space::Discrete(3)), absl::StatusCode::kNotFound),
            "there is no scripted policy \"zzz\"; expected one of always_same, beat_last, one_move_ahead");
  const PolicySpec random = Spec("random", *space::Space::Discrete(3));
  EXPECT_THAT(std::string(Actor::Create(random, 1).status().message()),
              HasSubstr("of class random, expected one with"));
  const PolicySpec ppo = Spec("trained", *space::Space::Discrete(3));
  EXPECT_THAT(std::string(ScriptedActor::Create(ppo, 1).status().message()),
              HasSubstr("of class trained, expected random"));
  EXPECT_EQ((*MakePolicyActor(random, 1))->SetWeights(nullptr).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ScriptedActorTest, AnActionOutsideTheSpaceIsAnError) {
  const ScriptedPolicy broken = {"broken", [](const PolicySpec&) { return absl::OkStatus(); },
                                 [](ScriptedDecision&, absl::Span<ActionWord> action) { action[0].i32 = 3; }};
  ScriptedActor actor(Spec("scripted:broken", *space::Space::Discrete(3)), broken, 1);
  const std::vector<float> obs(7);
  const RowKey key;
  ActionWord action;
  float logp = 0;
  const absl::Status status = actor.Act({1, obs.data(), nullptr, &key}, &action, &logp);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("class scripted:broken made an action outside its space"));
}

TEST(ScriptedActorTest, SeesUint8Observations) {
  const ScriptedPolicy first_byte = {"first_byte", [](const PolicySpec&) { return absl::OkStatus(); },
                                     [](ScriptedDecision& decision, absl::Span<ActionWord> action) {
                                       EXPECT_TRUE(decision.obs.empty());
                                       action[0].i32 = decision.uint8_obs[0];
                                     }};
  ScriptedActor actor(
      Spec("scripted:first_byte", *space::Space::Discrete(256), *space::Space::Box(0, 255, {2}, tensor::DType::kUint8)),
      first_byte, 1);
  const std::vector<uint8_t> obs = {7, 8, 200, 9};
  const RowKey keys[2] = {};
  ActionWord actions[2];
  float logp[2];
  ASSERT_TRUE(actor.Act({2, obs.data(), nullptr, keys}, actions, logp).ok());
  EXPECT_EQ(actions[0].i32, 7);
  EXPECT_EQ(actions[1].i32, 200);
}

}  // namespace
}  // namespace troupe::inference
