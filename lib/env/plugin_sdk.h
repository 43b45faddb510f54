// Environments for Troupe in a shared library of one's own, in C++17. This header and plugin_abi.h are all that is
// needed; examples/custom_env shows a whole library. Derive from Environment, say in the constructor who plays, and end
// the file with TROUPE_ENV_PLUGIN. Errors are thrown: std::invalid_argument for what the caller got wrong (arguments),
// anything else for the environment's own; they stop here and reach Troupe as code and text.
#pragma once

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lib/env/plugin_abi.h"

namespace troupe::plugin {

/// A JSON value: an argument of the environment that is more than a number. Plain value.
struct Json {
  enum class Kind { kNull, kBool, kInt, kDouble, kString, kList, kObject };
  struct Member;
  Kind kind = Kind::kNull;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;  ///< of kInt, too
  std::string text;
  std::vector<Json> items;      ///< of kList
  std::vector<Member> members;  ///< of kObject, in order

  /// Throws std::invalid_argument for what is not JSON.
  static Json Parse(const std::string& text);
};
struct Json::Member {
  std::string key;
  Json value;
};

/// `env.args` of the configuration. Each getter marks its name as known; what is left over is an error. A wrong type or
/// a number outside [low, high] throws std::invalid_argument with what was got and expected. Not thread-safe.
class Args {
 public:
  explicit Args(Json object) : object_(std::move(object)) {}

  int64_t Int(const std::string& name, int64_t fallback, int64_t low, int64_t high) {
    const Json* value = Find(name);
    if (value == nullptr) return fallback;
    if (value->kind != Json::Kind::kInt || value->integer < low || value->integer > high) {
      Wrong(name, "an integer in [" + std::to_string(low) + ", " + std::to_string(high) + "]");
    }
    return value->integer;
  }
  double Double(const std::string& name, double fallback, double low, double high) {
    const Json* value = Find(name);
    if (value == nullptr) return fallback;
    const bool is_number = value->kind == Json::Kind::kInt || value->kind == Json::Kind::kDouble;
    if (!is_number || !(value->number >= low && value->number <= high)) {
      Wrong(name, "a number in [" + std::to_string(low) + ", " + std::to_string(high) + "]");
    }
    return value->number;
  }
  bool Bool(const std::string& name, bool fallback) {
    const Json* value = Find(name);
    if (value == nullptr) return fallback;
    if (value->kind != Json::Kind::kBool) Wrong(name, "true or false");
    return value->boolean;
  }
  std::string String(const std::string& name, const std::string& fallback) {
    const Json* value = Find(name);
    if (value == nullptr) return fallback;
    if (value->kind != Json::Kind::kString) Wrong(name, "a text");
    return value->text;
  }
  /// Whatever was given; nullptr when nothing was. For lists and mappings.
  const Json* Find(const std::string& name) {
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) known_.push_back(name);
    for (const auto& [key, value] : object_.members) {
      if (key == name) return &value;
    }
    return nullptr;
  }
  [[noreturn]] static void Wrong(const std::string& name, const std::string& expected) {
    throw std::invalid_argument("argument " + name + ": expected " + expected);
  }

  void CheckAllKnown() const {
    for (const auto& [key, value] : object_.members) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      std::string names;
      for (const std::string& name : known_) names += (names.empty() ? "" : ", ") + name;
      throw std::invalid_argument("there is no argument '" + key + "', expected " +
                                  (names.empty() ? "none" : "one of " + names));
    }
  }

 private:
  Json object_;
  std::vector<std::string> known_;
};

using Seed = TroupeEpisodeSeed;

/// Random numbers of one episode, the same on every machine (SplitMix64). Plain value.
class Random {
 public:
  Random() = default;
  explicit Random(const Seed& seed)
      : state_(Mix(Mix(seed.seed) + (static_cast<uint64_t>(seed.env_id) << 32 | seed.episode))) {}

  uint64_t Bits() { return Mix(state_ += 0x9e3779b97f4a7c15u); }
  /// Uniform in [0, 1).
  double Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }
  float Uniform(float low, float high) { return low + (high - low) * static_cast<float>(Uniform()); }
  /// Uniform in [0, n), n > 0.
  int Below(int n) { return static_cast<int>(((Bits() >> 32) * static_cast<uint64_t>(n)) >> 32); }

 private:
  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  uint64_t state_ = 0;
};

namespace internal {

/// Throws std::out_of_range for a slot that no agent has; `what` was asked of it.
inline void CheckSlot(const char* what, int slot, int num_agents) {
  if (slot >= 0 && slot < num_agents) return;
  throw std::out_of_range(std::string(what) + " of agent slot " + std::to_string(slot) + ", expected 0 to " +
                          std::to_string(num_agents - 1));
}

}  // namespace internal

/// What the agents do in a step, by slot (the order of AddAgent). A slot that no agent has is a std::out_of_range.
/// Valid during the call.
class Actions {
 public:
  Actions(const TroupeActionWord* const* rows, int num_agents) : rows_(rows), num_agents_(num_agents) {}
  bool acts(int slot) const { return Row(slot) != nullptr; }
  /// A word of an agent that acts (another one's is a std::logic_error): of a discrete or of a continuous part of its
  /// action space.
  int discrete(int slot, int word = 0) const { return Word(slot, word).i32; }
  float continuous(int slot, int word = 0) const { return Word(slot, word).f32; }

 private:
  const TroupeActionWord* Row(int slot) const {
    internal::CheckSlot("the action", slot, num_agents_);
    return rows_[slot];
  }
  const TroupeActionWord& Word(int slot, int word) const {
    const TroupeActionWord* const row = Row(slot);
    if (row != nullptr) return row[word];
    throw std::logic_error("the action of agent slot " + std::to_string(slot) + ", which does not act in this step");
  }

  const TroupeActionWord* const* const rows_;
  const int num_agents_;
};

/// Where Reset and Step write what they bring (docs/environments.md, the contract). Troupe refuses what is written for
/// a slot that no agent has; a size of its rows is a std::out_of_range. Valid during the call.
class Writer {
 public:
  Writer(const TroupeStepWriter& out, int num_agents) : out_(out), num_agents_(num_agents) {}

  /// The agent is ready, it acts next: its row of observation_size(slot) floats; write all of them.
  float* Observe(int slot) { return static_cast<float*>(out_.observe(out_.context, slot)); }
  uint8_t* ObserveUint8(int slot) { return static_cast<uint8_t*>(out_.observe(out_.context, slot)); }
  /// The same with the values, whose number is checked.
  void Observe(int slot, const std::vector<float>& values) {
    CheckSize("the observation of agent slot " + std::to_string(slot), values.size(), observation_size(slot));
    std::copy(values.begin(), values.end(), Observe(slot));
  }
  uint8_t* ActionMask(int slot) { return out_.action_mask(out_.context, slot); }
  float* State(int slot = 0) { return out_.state(out_.context, slot); }
  void State(const std::vector<float>& values, int slot = 0) {
    CheckSize("the state", values.size(), out_.state_size);
    std::copy(values.begin(), values.end(), State(slot));
  }
  /// Before the agent's Observe of the same call.
  void AddReward(int slot, float reward) { out_.add_reward(out_.context, slot, reward); }
  void TerminateAgent(int slot) { out_.terminate_agent(out_.context, slot); }
  void TruncateAgent(int slot) { out_.truncate_agent(out_.context, slot); }
  /// The episode ends, by the task or by a limit.
  void TerminateAll() { out_.terminate_all(out_.context); }
  void TruncateAll() { out_.truncate_all(out_.context); }
  void SetAgentMask(int slot, bool active) { out_.set_agent_mask(out_.context, slot, active ? 1 : 0); }
  void SetInfo(int slot, int column, double value) { out_.set_info(out_.context, slot, column, value); }

  size_t observation_size(int slot) const {
    internal::CheckSlot("the observation", slot, num_agents_);
    return static_cast<size_t>(out_.observation_sizes[slot]);
  }
  size_t action_mask_size(int slot) const {
    internal::CheckSlot("the action mask", slot, num_agents_);
    return static_cast<size_t>(out_.action_mask_sizes[slot]);
  }

 private:
  static void CheckSize(const std::string& what, size_t got, uint64_t expected) {
    if (got == expected) return;
    throw std::logic_error(what + " has " + std::to_string(got) + " elements, expected " + std::to_string(expected));
  }
  const TroupeStepWriter& out_;
  const int num_agents_;
};

/// A color; `alpha` 255 is opaque.
struct Color {
  uint8_t red = 0, green = 0, blue = 0, alpha = 255;

  /// Of agents, by slot; again from the beginning when there are more. As Troupe's own environments draw them.
  static Color Agent(int slot) {
    static constexpr uint8_t kAgents[][3] = {{52, 120, 198}, {234, 142, 45}, {66, 158, 92},
                                             {143, 98, 190}, {36, 164, 170}, {194, 88, 140}};
    const uint8_t* const color = kAgents[static_cast<unsigned>(slot) % 6];
    return {color[0], color[1], color[2]};
  }
  uint32_t word() const {
    return static_cast<uint32_t>(red) << 24 | static_cast<uint32_t>(green) << 16 | static_cast<uint32_t>(blue) << 8 |
           alpha;
  }
};

struct Point {
  double x = 0, y = 0;
};

/// What a Draw draws on, in units of the environment's own world with y upwards: View first. Limits: plugin_abi.h's
/// TROUPE_CANVAS_….
class Canvas {
 public:
  explicit Canvas(const TroupeCanvas& out) : out_(out) {}

  void View(double left, double bottom, double right, double top) { out_.view(out_.context, left, bottom, right, top); }
  void Circle(Point center, double radius, Color color) {
    out_.circle(out_.context, center.x, center.y, radius, color.word());
  }
  void Line(Point from, Point to, double width, Color color) {
    out_.line(out_.context, from.x, from.y, to.x, to.y, width, color.word());
  }
  /// Filled, by its corners in order.
  void Polygon(const std::vector<Point>& corners, Color color) {
    static_assert(sizeof(Point) == 2 * sizeof(double));
    out_.polygon(out_.context, corners.empty() ? nullptr : &corners[0].x, corners.size(), color.word());
  }
  void Rectangle(Point low, Point high, Color color) { Polygon({low, {high.x, low.y}, high, {low.x, high.y}}, color); }
  /// A line of text that begins at `at`, its baseline.
  void Text(Point at, const std::string& text, Color color) {
    out_.text(out_.context, at.x, at.y, text.c_str(), color.word());
  }
  /// A picture of one's own between two corners: [height, width, 3] bytes, red first, the top row first.
  void Image(Point low, Point high, int width, int height, const std::vector<uint8_t>& rgb) {
    if (width < 1 || height < 1 || rgb.size() != 3 * static_cast<size_t>(width) * static_cast<size_t>(height)) {
      throw std::logic_error("Image has " + std::to_string(rgb.size()) + " bytes, expected width times height times 3");
    }
    out_.image(out_.context, low.x, low.y, high.x, high.y, static_cast<uint32_t>(width), static_cast<uint32_t>(height),
               rgb.data());
  }

 private:
  const TroupeCanvas& out_;
};

namespace internal {
struct NoPicture {};
}  // namespace internal

/// Base class of environments. The constructor takes `Args&`, reads its arguments and describes itself with the
/// protected functions. Used by one thread at a time.
class Environment {
 public:
  virtual ~Environment() = default;
  virtual void Reset(const Seed& seed, Writer& out) = 0;
  virtual void Step(const Actions& actions, Writer& out) = 0;
  /// Draws the state after the last Reset or Step, and changes nothing that the episode depends on. By default there is
  /// no picture.
  virtual void Draw(Canvas& /*canvas*/) const { throw internal::NoPicture(); }

  int num_agents() const { return static_cast<int>(agents_.size()); }
  /// plugin_abi.h's JSON.
  std::string SpecJson() const {
    std::string json = "{\"agents\": [";
    for (const std::string& agent : agents_) json += (&agent == agents_.data() ? "" : ", ") + agent;
    json += "], \"info_columns\": [";
    for (const std::string& column : info_columns_) {
      json += (&column == info_columns_.data() ? "" : ", ") + Quoted(column);
    }
    return json + "], " + state_ + "\"agent_mask\": " + (has_agent_mask_ ? "true" : "false") +
           ", \"max_episode_steps\": " + std::to_string(max_episode_steps_) + "}";
  }

 protected:
  /// The next slot. Spaces as in configurations: "Box(-1, 1, [4])", "Discrete(5)".
  void AddAgent(const std::string& id, const std::string& observation_space, const std::string& action_space,
                bool action_mask = false) {
    agents_.push_back("{\"id\": " + Quoted(id) + ", \"observation_space\": " + Quoted(observation_space) +
                      ", \"action_space\": " + Quoted(action_space) +
                      ", \"action_mask\": " + (action_mask ? "true" : "false") + "}");
  }
  /// A global state, one an env step or one an agent.
  void SetState(const std::string& space, bool per_agent = false) {
    state_ = std::string("\"state\": \"") + (per_agent ? "per_agent" : "per_env") +
             "\", \"state_space\": " + Quoted(space) + ", ";
  }
  void SetAgentMasks() { has_agent_mask_ = true; }
  void SetInfoColumns(std::vector<std::string> names) { info_columns_ = std::move(names); }
  /// Env steps after which every episode has ended.
  void SetMaxEpisodeSteps(int64_t steps) { max_episode_steps_ = steps; }

 private:
  static std::string Quoted(const std::string& text) {
    std::string quoted = "\"";
    for (const char c : text) {
      char escaped[8];
      if (static_cast<unsigned char>(c) < 0x20) {
        std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned>(c));
        quoted += escaped;
      } else {
        if (c == '"' || c == '\\') quoted += '\\';
        quoted += c;
      }
    }
    return quoted + "\"";
  }

  std::vector<std::string> agents_;  // JSON
  std::vector<std::string> info_columns_;
  std::string state_;  // JSON members
  bool has_agent_mask_ = false;
  int64_t max_episode_steps_ = 0;
};

/// What a library offers under one name.
struct Offer {
  const char* name;
  const char* description;
  std::unique_ptr<Environment> (*make)(Args& args);
};

template <typename T>
Offer Offers(const char* name, const char* description) {
  return {name, description, [](Args& args) -> std::unique_ptr<Environment> { return std::make_unique<T>(args); }};
}

// --- what TROUPE_ENV_PLUGIN needs
// --------------------------------------------------------------------------------------

namespace internal {

/// A recursive reader; deeper than 64 is an error.
class JsonParser {
 public:
  explicit JsonParser(const std::string& text) : at_(text.c_str()), end_(at_ + text.size()) {}

  Json Whole() {
    Json value = Value(0);
    Blanks();
    if (at_ != end_) Fail();
    return value;
  }

 private:
  [[noreturn]] static void Fail() { throw std::invalid_argument("arguments: not valid JSON"); }
  void Blanks() {
    while (at_ != end_ && std::isspace(static_cast<unsigned char>(*at_))) ++at_;
  }
  bool Take(char c) {
    Blanks();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  bool Word(const char* word) {
    const size_t size = std::strlen(word);
    if (static_cast<size_t>(end_ - at_) < size || std::strncmp(at_, word, size) != 0) return false;
    at_ += size;
    return true;
  }
  Json Value(int depth) {
    if (depth > 64) Fail();
    Blanks();
    Json value;
    if (Take('{')) {
      value.kind = Json::Kind::kObject;
      if (Take('}')) return value;
      do {
        Blanks();
        std::string key = Text();
        if (!Take(':')) Fail();
        value.members.push_back({std::move(key), Value(depth + 1)});
      } while (Take(','));
      if (!Take('}')) Fail();
    } else if (Take('[')) {
      value.kind = Json::Kind::kList;
      if (Take(']')) return value;
      do {
        value.items.push_back(Value(depth + 1));
      } while (Take(','));
      if (!Take(']')) Fail();
    } else if (at_ != end_ && *at_ == '"') {
      value.kind = Json::Kind::kString;
      value.text = Text();
    } else if (Word("true")) {
      value.kind = Json::Kind::kBool;
      value.boolean = true;
    } else if (Word("false")) {
      value.kind = Json::Kind::kBool;
    } else if (!Word("null")) {
      Number(value);
    }
    return value;
  }
  void Number(Json& value) {
    const char* end = at_;
    while (end != end_ && (std::isdigit(static_cast<unsigned char>(*end)) || std::strchr("+-.eE", *end) != nullptr)) {
      ++end;
    }
    const std::string text(at_, end);
    char* parsed = nullptr;
    value.number = std::strtod(text.c_str(), &parsed);
    if (text.empty() || *parsed != 0) Fail();
    const bool whole = text.find_first_of(".eE") == std::string::npos;
    value.kind = whole ? Json::Kind::kInt : Json::Kind::kDouble;
    if (whole) value.integer = std::strtoll(text.c_str(), nullptr, 10);
    at_ = end;
  }
  std::string Text() {
    if (at_ == end_ || *at_ != '"') Fail();
    ++at_;
    std::string text;
    while (at_ != end_ && *at_ != '"') {
      if (*at_ != '\\') {
        text += *at_++;
      } else {
        ++at_;
        Escaped(text);
      }
    }
    if (at_ == end_) Fail();
    ++at_;
    return text;
  }
  void Escaped(std::string& text) {
    static const char kFrom[] = "\"\\/bfnrt";
    static const char kTo[] = "\"\\/\b\f\n\r\t";
    if (at_ == end_) Fail();
    const char* const place = std::strchr(kFrom, *at_);
    if (*at_ != 0 && place != nullptr) {
      ++at_;
      text += kTo[place - kFrom];
      return;
    }
    if (*at_++ != 'u') Fail();
    uint32_t code = Hex();
    if (code >= 0xd800 && code < 0xdc00) {
      if (!Word("\\u")) Fail();
      code = 0x10000 + ((code - 0xd800) << 10) + (Hex() - 0xdc00);
    }
    const auto add = [&text](uint32_t byte) { text += static_cast<char>(byte); };
    if (code < 0x80) {
      add(code);
    } else if (code < 0x800) {
      add(0xc0 | code >> 6), add(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      add(0xe0 | code >> 12), add(0x80 | (code >> 6 & 0x3f)), add(0x80 | (code & 0x3f));
    } else {
      add(0xf0 | code >> 18), add(0x80 | (code >> 12 & 0x3f)), add(0x80 | (code >> 6 & 0x3f)),
          add(0x80 | (code & 0x3f));
    }
  }
  uint32_t Hex() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      if (at_ == end_ || !std::isxdigit(static_cast<unsigned char>(*at_))) Fail();
      const char c = *at_;
      code = code << 4 | static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return code;
  }

  const char* at_;
  const char* const end_;
};

/// Runs `body`; what it throws becomes code and text.
template <typename Body>
int32_t Guarded(TroupeEnvError* error, const Body& body) noexcept {
  const auto failed = [error](int32_t code, const char* text) {
    std::snprintf(error->text, sizeof(error->text), "%s", text);
    return code;
  };
  try {
    body();
    return TROUPE_ENV_OK;
  } catch (const NoPicture&) {
    return failed(TROUPE_ENV_UNIMPLEMENTED, "no picture");
  } catch (const std::invalid_argument& thrown) {
    return failed(TROUPE_ENV_INVALID_ARGUMENT, thrown.what());
  } catch (const std::exception& thrown) {
    return failed(TROUPE_ENV_INTERNAL, thrown.what());
  } catch (...) {
    return failed(TROUPE_ENV_INTERNAL, "threw something that is no std::exception");
  }
}

/// What TroupeEnv points to.
struct Made {
  std::unique_ptr<Environment> environment;
  std::string spec;
};

/// The table of a library; one, made at the first call of troupe_env_plugin. `Tag` tells libraries in one process
/// apart.
template <typename Tag>
class Library {
 public:
  static const TroupeEnvPlugin* Serve(std::vector<Offer> (*offers)()) {
    static const Library library(offers());
    return &library.table_;
  }
  static int32_t Draw(TroupeEnv* env, const TroupeCanvas* out, TroupeEnvError* error) {
    return Guarded(error, [&] {
      Canvas canvas(*out);
      Of(env)->environment->Draw(canvas);
    });
  }

 private:
  explicit Library(std::vector<Offer> offers) {
    for (const Offer& offer : offers) entries_.push_back({offer.name, offer.description});
    Offered() = std::move(offers);
    table_ = {TROUPE_ENV_ABI_VERSION,
              static_cast<uint32_t>(entries_.size()),
              entries_.data(),
              &Make,
              &Spec,
              &Reset,
              &Step,
              &Destroy};
  }
  static std::vector<Offer>& Offered() {
    static std::vector<Offer> offers;
    return offers;
  }
  static Made* Of(TroupeEnv* env) { return reinterpret_cast<Made*>(env); }

  static int32_t Make(const char* name, const char* args, TroupeEnv** env, TroupeEnvError* error) {
    return Guarded(error, [&] {
      for (const Offer& offer : Offered()) {
        if (std::strcmp(offer.name, name) != 0) continue;
        Args parsed(Json::Parse(args));
        auto made = std::make_unique<Made>();
        made->environment = offer.make(parsed);
        parsed.CheckAllKnown();
        made->spec = made->environment->SpecJson();
        *env = reinterpret_cast<TroupeEnv*>(made.release());
        return;
      }
      throw std::invalid_argument(std::string("there is no environment ") + name);
    });
  }
  static const char* Spec(TroupeEnv* env) { return Of(env)->spec.c_str(); }
  static int32_t Reset(TroupeEnv* env, const TroupeEpisodeSeed* seed, const TroupeStepWriter* out,
                       TroupeEnvError* error) {
    return Guarded(error, [&] {
      Environment& environment = *Of(env)->environment;
      Writer writer(*out, environment.num_agents());
      environment.Reset(*seed, writer);
    });
  }
  static int32_t Step(TroupeEnv* env, const TroupeActionWord* const* actions, const TroupeStepWriter* out,
                      TroupeEnvError* error) {
    return Guarded(error, [&] {
      Environment& environment = *Of(env)->environment;
      Writer writer(*out, environment.num_agents());
      environment.Step(Actions(actions, environment.num_agents()), writer);
    });
  }
  static void Destroy(TroupeEnv* env) { delete Of(env); }

  std::vector<TroupeEnvEntry> entries_;
  TroupeEnvPlugin table_;
};

}  // namespace internal

inline Json Json::Parse(const std::string& text) { return internal::JsonParser(text).Whole(); }

}  // namespace troupe::plugin

/// Once in a library, at the end of a file: TROUPE_ENV_PLUGIN(troupe::plugin::Offers<Mine>("mine", "what it is"), …).
#define TROUPE_ENV_PLUGIN(...)                                                                  \
  namespace {                                                                                   \
  struct TroupeEnvPluginTag {};                                                                 \
  }                                                                                             \
  extern "C" TROUPE_ENV_EXPORT const TroupeEnvPlugin* troupe_env_plugin(uint32_t abi_version) { \
    if (abi_version != TROUPE_ENV_ABI_VERSION) return nullptr;                                  \
    return troupe::plugin::internal::Library<TroupeEnvPluginTag>::Serve(                        \
        +[]() -> std::vector<troupe::plugin::Offer> { return {__VA_ARGS__}; });                 \
  }                                                                                             \
  extern "C" TROUPE_ENV_EXPORT int32_t troupe_env_draw(TroupeEnv* env, const TroupeCanvas* out, \
                                                       TroupeEnvError* error) {                 \
    return troupe::plugin::internal::Library<TroupeEnvPluginTag>::Draw(env, out, error);        \
  }
