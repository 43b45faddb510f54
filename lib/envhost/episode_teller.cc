#include "lib/envhost/episode_teller.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "lib/base/status_macros.h"
#include "lib/envhost/python_program.h"
#include <nlohmann/json.hpp>

namespace troupe::envhost {
namespace {

using nlohmann::json;

json ToRequest(const HostOptions& options) {
  return {{"callbacks", ModuleNames(options.callbacks, options.folder)},
          {"evaluating", options.evaluating},
          {"step_timeout_s", absl::ToDoubleSeconds(options.step_timeout)}};
}

std::string ToText(const EndedEpisode& episode) {
  using Json = nlohmann::ordered_json;  // agents in their order
  Json returns = Json::object(), policies = Json::object();
  for (const EndedEpisode::Part& part : episode.parts) {
    returns[std::string(part.agent)] = part.episode_return;
    policies[std::string(part.agent)] = std::string(part.policy);
  }
  return Json{{"length", episode.length}, {"returns", std::move(returns)}, {"policies", std::move(policies)}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

EpisodeTeller::EpisodeTeller(std::shared_ptr<PythonFunctions> functions, const HostOptions& options,
                             std::shared_ptr<EpisodeTracks> tracks)
    : functions_(std::move(functions)),
      tracks_(std::move(tracks)),
      function_(ToRequest(options), PythonFunctions::kMaxTextBytes) {}

void EpisodeTeller::Tell(absl::Span<const EndedEpisode> episodes) {
  std::vector<std::string> texts;
  for (const EndedEpisode& episode : episodes) {
    if (!tracks_->off()) texts.push_back(ToText(episode));
  }
  for (size_t told = 0; told < texts.size() && !tracks_->off();) {
    const absl::StatusOr<size_t> called = TellSome(absl::MakeConstSpan(texts).subspan(told));
    if (absl::IsCancelled(called.status())) return;  // the functions are asked no more: it ends
    if (!called.ok()) tracks_->TurnOff(absl::StrCat("on_episode_end: ", std::string(called.status().message())));
    told += called.value_or(0);
  }
}

absl::StatusOr<size_t> EpisodeTeller::TellSome(absl::Span<const std::string> episodes) {
  size_t bytes = 2 + episodes[0].size(), count = 1;
  while (count < std::min(episodes.size(), kMaxEpisodes) &&
         bytes + 1 + episodes[count].size() <= PythonFunctions::kMaxTextBytes) {
    bytes += 1 + episodes[count++].size();
  }
  const std::string text = absl::StrCat("[", absl::StrJoin(episodes.first(count), ","), "]");
  size_t called = 0;
  TROUPE_RETURN_IF_ERROR(function_.CallText(
      *functions_, {.text = text, .has = "an episode's agents and policies"}, [&](std::string_view answer) {
        tracks_->Take(answer);
        const json message = json::parse(answer, nullptr, /*allow_exceptions=*/false);
        const bool said = message.is_object() && message.contains("called") && message["called"].is_number_unsigned();
        called = said ? std::min(message["called"].get<size_t>(), count) : 0;
        return called > 0 || tracks_->off() ? absl::OkStatus() : absl::InternalError("its process called none");
      }));
  return called;
}

}  // namespace troupe::envhost
