// Two agents at random places of a line shall meet; each sees where it is and where the other one is.
#include <algorithm>

#include "lib/env/plugin_sdk.h"

class Rendezvous final : public troupe::plugin::Environment {
 public:
  explicit Rendezvous(troupe::plugin::Args& args) : last_(static_cast<int>(args.Int("length", 15, 2, 1000)) - 1) {
    for (const char* id : {"red", "blue"}) AddAgent(id, "Box(-1, 1, [2])", "Discrete(3)");
    SetMaxEpisodeSteps(kSteps);
  }
  void Reset(const troupe::plugin::Seed& seed, troupe::plugin::Writer& out) override {
    troupe::plugin::Random random(seed);
    for (int& place : places_) place = random.Below(last_ + 1);
    step_ = 0;
    for (int agent = 0; agent < 2; ++agent) out.Observe(agent, {Scaled(agent), Scaled(1 - agent)});
  }
  void Step(const troupe::plugin::Actions& actions, troupe::plugin::Writer& out) override {
    for (int agent = 0; agent < 2; ++agent) {  // 0 left, 1 stay, 2 right
      places_[agent] = std::clamp(places_[agent] + actions.discrete(agent) - 1, 0, last_);
    }
    const bool met = places_[0] == places_[1];
    for (int agent = 0; agent < 2; ++agent) {
      out.AddReward(agent, met ? 1.0f : -0.1f);
      out.Observe(agent, {Scaled(agent), Scaled(1 - agent)});
    }
    if (met) out.TerminateAll();
    if (!met && ++step_ == kSteps) out.TruncateAll();
  }

  void Draw(troupe::plugin::Canvas& canvas) const override {
    canvas.View(-1, -2, last_ + 1, 2);
    canvas.Line({0, 0}, {static_cast<double>(last_), 0}, 0.1, {120, 124, 130});
    canvas.Circle({static_cast<double>(places_[0]), 0.4}, 0.4, {214, 69, 65});    // red
    canvas.Circle({static_cast<double>(places_[1]), -0.4}, 0.4, {52, 120, 198});  // blue
  }

 private:
  static constexpr int kSteps = 50;
  float Scaled(int agent) const { return 2.0f * static_cast<float>(places_[agent]) / static_cast<float>(last_) - 1.0f; }
  const int last_;
  int places_[2] = {};
  int step_ = 0;
};

TROUPE_ENV_PLUGIN(troupe::plugin::Offers<Rendezvous>("rendezvous", "two agents on a line shall meet"))
