#include "lib/policy/policy_class.h"

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/nearest_name.h"
#include "lib/base/status_macros.h"
#include "lib/policy/python_callable.h"

namespace troupe::policy {
namespace {

using Kind = PolicyClass::Kind;

constexpr size_t kMaxPathLength = 4096;
constexpr std::string_view kOldTrained = "ppo";  // in configurations and checkpoints from before

struct KindWord {
  Kind kind;
  const char* word;
  const char* argument;  // what stands after the colon; empty: nothing may
};
constexpr std::array<KindWord, 5> kWords = {{
    {Kind::kTrained, "trained", ""},
    {Kind::kRandom, "random", ""},
    {Kind::kScripted, "scripted", "NAME"},
    {Kind::kCheckpoint, "checkpoint", "PATH"},
    {Kind::kPython, "python", "MODULE:NAME"},
}};

absl::Status Invalid(std::string_view text, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("got \"", base::LogSafe(text, 64), "\", ", why,
                                                 "expected trained, random, scripted:NAME, python:MODULE:NAME, or "
                                                 "checkpoint:PATH (checkpoint:PATH#ID for a policy of "
                                                 "another id)"));
}

}  // namespace

std::string PolicyClass::ToString() const {
  switch (kind) {
    case Kind::kTrained:
      return "trained";
    case Kind::kRandom:
      return "random";
    case Kind::kScripted:
      return absl::StrCat("scripted:", name);
    case Kind::kCheckpoint:
      return absl::StrCat("checkpoint:", path, source.value().empty() ? "" : "#", source.value());
    case Kind::kPython:
      return name;
  }
  return "unknown";
}

PolicyClass PolicyClass::ForWorkers() const {
  PolicyClass told = *this;
  if (kind == Kind::kCheckpoint) {
    told.path = "the-learner-has-it";
    told.source = PolicyId();
  }
  return told;
}

absl::StatusOr<PolicyClass> ParsePolicyClass(std::string_view text) {
  const size_t colon = text.find(':');
  std::string_view word = text.substr(0, colon);
  if (word == kOldTrained) word = "trained";
  const std::string argument(colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1));
  std::vector<std::string> words;
  for (const KindWord& known : kWords) {
    words.emplace_back(known.word);
    if (word != known.word) continue;
    const bool takes_argument = *known.argument != '\0';
    if (!takes_argument && colon != std::string_view::npos) return Invalid(text, "which takes no argument; ");
    if (takes_argument && argument.empty()) return Invalid(text, absl::StrCat("without its ", known.argument, "; "));
    PolicyClass parsed;
    parsed.kind = known.kind;
    if (known.kind == Kind::kScripted) parsed.name = argument;
    if (known.kind == Kind::kPython) {
      TROUPE_RETURN_IF_ERROR(ValidatePythonName(text));
      parsed.name = std::string(text);
    }
    if (known.kind == Kind::kCheckpoint) {
      const size_t hash = argument.rfind('#');
      parsed.path = argument.substr(0, hash);
      if (parsed.path.empty()) return Invalid(text, "without its PATH; ");
      if (parsed.path.size() > kMaxPathLength) {
        return Invalid(text, absl::StrCat("whose path has ", parsed.path.size(), " characters, of at most ",
                                          kMaxPathLength, "; "));
      }
      if (hash != std::string::npos) {
        parsed.source = PolicyId(argument.substr(hash + 1));
        TROUPE_RETURN_IF_ERROR(ValidatePolicyId(parsed.source.value()));
      }
    }
    return parsed;
  }
  const std::string nearest = base::NearestName(word, words);
  return Invalid(text, nearest.empty() ? "" : absl::StrCat("the nearest is \"", nearest, "\"; "));
}

}  // namespace troupe::policy
