// A plug-in for tests: a good environment and, by name, ways to go wrong.

#include <limits>

#include "lib/env/plugin_sdk.h"

namespace {

namespace plugin = troupe::plugin;

/// Two agents, five steps; everything that an environment can give.
class Whole final : public plugin::Environment {
 public:
  explicit Whole(plugin::Args& args)
      : scale_(args.Double("scale", 1.0, 0.0, 2.0)), text_(args.String("text", "")), flag_(args.Bool("flag", false)) {
    for (const char* id : {"a \"quoted\"", "b\\"}) AddAgent(id, "Box(-8, 8, [3])", "Discrete(3)", /*action_mask=*/true);
    SetState("Box(-8, 8, [2])");
    SetAgentMasks();
    SetInfoColumns({"distance", "steps"});
    SetMaxEpisodeSteps(args.Int("steps", 5, 1, 100));
    steps_ = static_cast<int>(args.Int("steps", 5, 1, 100));
  }
  void Reset(const plugin::Seed& seed, plugin::Writer& out) override {
    random_ = plugin::Random(seed);
    step_ = 0;
    Write(out);
  }
  void Step(const plugin::Actions& actions, plugin::Writer& out) override {
    ++step_;
    for (int slot = 0; slot < 2; ++slot) {
      if (actions.acts(slot)) out.AddReward(slot, static_cast<float>(scale_ * actions.discrete(slot)));
    }
    Write(out);
    if (step_ < steps_) return;
    if (random_.Below(2) == 0) {
      out.TruncateAll();
    } else {
      out.TerminateAgent(0);
      out.TruncateAgent(1);
      out.TerminateAll();
    }
  }

  void Draw(plugin::Canvas& canvas) const override {
    if (text_ == "no view") canvas.Circle({0, 0}, 1, plugin::Color::Agent(0));
    if (text_ == "throws") throw std::runtime_error("the pencil broke");
    canvas.View(-8, -8, 8, 8);
    canvas.Circle({1, 2}, 3, plugin::Color::Agent(1));
    canvas.Line({0, 0}, {1, static_cast<double>(step_)}, 0.5, {1, 2, 3, 4});
    canvas.Rectangle({0, 0}, {2, 1}, {9, 8, 7});
    canvas.Text({1, 1}, "step " + std::to_string(step_), {});
    canvas.Image({0, 0}, {2, 1}, 2, 1, {1, 2, 3, 4, 5, 6});
    const int shapes = text_ == "many" ? 100'000 : 0;
    for (int i = 0; i < shapes; ++i) canvas.Circle({0, 0}, 1, {});
  }

 private:
  void Write(plugin::Writer& out) {
    const float draw = random_.Uniform(-1.0f, 1.0f);
    for (int slot = 0; slot < 2; ++slot) {
      out.Observe(slot, {draw, static_cast<float>(step_), flag_ ? static_cast<float>(text_.size()) : 0.0f});
      uint8_t* const mask = out.ActionMask(slot);
      for (size_t i = 0; i < out.action_mask_size(slot); ++i) mask[i] = i == 0 || random_.Below(2) == 0 ? 1 : 0;
      out.SetAgentMask(slot, step_ % 2 == 0);
      out.SetInfo(slot, 1, step_);
    }
    out.State({draw, static_cast<float>(step_)});
  }

  const double scale_;
  const std::string text_;
  const bool flag_;
  int steps_ = 0;
  plugin::Random random_;
  int step_ = 0;
};

/// Goes wrong in the way and at the step that its arguments say.
class Wrong final : public plugin::Environment {
 public:
  explicit Wrong(plugin::Args& args) : how_(args.String("how", "")), at_(static_cast<int>(args.Int("at", 3, -1, 100))) {
    AddAgent("agent_0", "Box(-1, 1, [2])", "Discrete(3)");
    if (how_ == "waiting agent") AddAgent("agent_1", "Box(-1, 1, [2])", "Discrete(3)");
    SetMaxEpisodeSteps(10);
    if (at_ < 0) GoWrong(nullptr);
  }
  void Reset(const plugin::Seed&, plugin::Writer& out) override {
    step_ = 0;
    Write(out);
  }
  void Step(const plugin::Actions& actions, plugin::Writer& out) override {
    ++step_;
    if (step_ == at_ && how_ == "action of no slot") actions.acts(1);
    if (step_ == at_ && how_ == "action of a negative slot") actions.discrete(-1);
    if (step_ == at_ && how_ == "waiting agent") actions.continuous(1);
    Write(out);
    if (step_ == 10) out.TerminateAll();
  }

 private:
  void Write(plugin::Writer& out) {
    if (step_ == at_) {
      GoWrong(&out);
    } else {
      out.Observe(0, {0, 0});
    }
  }
  void GoWrong(plugin::Writer* out) {
    if (how_ == "runtime_error") throw std::runtime_error("the sky fell");
    if (how_ == "invalid_argument") throw std::invalid_argument("no such sky");
    if (how_ == "int") throw 7;
    if (how_ == "long text") throw std::runtime_error(std::string(5000, 'x'));
    if (how_ == "nan") out->Observe(0, {0, std::numeric_limits<float>::quiet_NaN()});
    if (how_ == "wrong size") out->Observe(0, {0, 0, 0});
    if (how_ == "beyond") out->Observe(0)[0] = out->Observe(0)[1] = 0;
    if (how_ == "overrun") {
      float* const row = out->Observe(0);
      row[0] = row[1] = row[2] = 0;
    }
    if (how_ == "wrong slot") {
      out->Observe(0, {0, 0});
      out->AddReward(7, 1);
    }
    if (how_ == "negative slot") out->Observe(-1)[0] = 0;
    if (how_ == "values of no slot") out->Observe(1, {0, 0});
    if (how_ == "values of a negative slot") out->Observe(-1, {0, 0});
    if (how_ == "mask size of no slot") out->action_mask_size(1);
    if (how_ == "wrong column") {
      out->Observe(0, {0, 0});
      out->SetInfo(0, 0, 1);
    }
  }

  const std::string how_;
  const int at_;
  int step_ = 0;
};

}  // namespace

TROUPE_ENV_PLUGIN(plugin::Offers<Whole>("whole", "everything an environment can give"),
                  plugin::Offers<Wrong>("wrong", "breaks the contract on order"))
