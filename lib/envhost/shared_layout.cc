#include "lib/envhost/shared_layout.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/traceback.h"

namespace troupe::envhost {
namespace {

constexpr size_t kRow = 64;  // a row begins a cache line

/// Hands out places, one after another.
class Places {
 public:
  size_t Take(size_t bytes, size_t alignment) {
    end_ = (end_ + alignment - 1) / alignment * alignment;
    const size_t begin = end_;
    end_ += bytes;
    return begin;
  }

 private:
  size_t end_ = sizeof(BlockHeader);
};

}  // namespace

absl::Status ErrorOf(const BlockHeader& header, std::string_view prefix) {
  const std::string text(header.error, std::min<size_t>(header.error_bytes, sizeof(header.error)));
  const size_t end = text.find('\n');
  const absl::Status status = absl::InternalError(absl::StrCat(std::string(prefix), text.substr(0, end)));
  return base::WithTraceback(status, end == std::string::npos ? "" : text.substr(end + 1));
}

BlockLayout::BlockLayout(const env::EnvSpec& spec, bool with_pictures, bool with_callbacks)
    : draws(with_pictures), watched(with_callbacks) {
  Places places;
  const size_t count = spec.possible_agents.size();
  acts = places.Take(count, kRow);
  // Action rows stand one after another: where all are one word, the child reads them as one array.
  places.Take(0, kRow);
  for (const env::AgentSpec& agent : spec.possible_agents) {
    Agent& place = agents.emplace_back();
    place.action_words = static_cast<size_t>(agent.action_space.action_words());
    place.action = places.Take(place.action_words * sizeof(space::ActionWord), sizeof(space::ActionWord));
  }
  agent_flags = places.Take(count, kRow);
  rewards = places.Take(count * sizeof(float), kRow);
  infos = places.Take(count * spec.info_columns.size() * sizeof(double), kRow);
  for (size_t i = 0; i < count; ++i) {
    const env::AgentSpec& agent = spec.possible_agents[i];
    agents[i].observation_size = static_cast<size_t>(agent.observation_space.flat_size());
    agents[i].observation_uint8 = agent.observation_space.flat_dtype() == tensor::DType::kUint8;
    agents[i].observation = places.Take(agents[i].observation_bytes(), kRow);
    agents[i].mask_size = agent.has_action_mask ? static_cast<size_t>(agent.action_space.mask_size()) : 0;
    agents[i].mask = places.Take(agents[i].mask_size, kRow);
  }
  if (spec.state_kind != env::StateKind::kNone) {
    state_size = static_cast<size_t>(spec.state_space.flat_size());
    const size_t rows = spec.state_kind == env::StateKind::kPerEnv ? 1 : count;
    for (size_t i = 0; i < rows; ++i) states.push_back(places.Take(state_size * sizeof(float), kRow));
  }
  picture = places.Take(draws ? kPictureHead + kMostPictureBytes : 0, kRow);
  players = places.Take(watched ? count * kPlayerBytes : 0, kRow);
  tracked = places.Take(watched ? kTrackedBytes : 0, kRow);
  block_bytes = places.Take(0, kBlockAlignment);
}

nlohmann::json BlockLayout::ToJson() const {
  nlohmann::json json = {
      {"block_bytes", block_bytes}, {"acts", acts},       {"agent_flags", agent_flags},
      {"rewards", rewards},         {"infos", infos},     {"states", states},
      {"state_size", state_size},   {"picture", picture}, {"picture_bytes", draws ? kMostPictureBytes : 0},
      {"players", players},         {"tracked", tracked}, {"watched", watched}};
  for (const char* key :
       {"actions", "action_words", "observations", "observation_sizes", "observation_uint8", "masks", "mask_sizes"}) {
    json[key] = nlohmann::json::array();
  }
  for (const Agent& agent : agents) {
    json["actions"].push_back(agent.action);
    json["action_words"].push_back(agent.action_words);
    json["observations"].push_back(agent.observation);
    json["observation_sizes"].push_back(agent.observation_size);
    json["observation_uint8"].push_back(agent.observation_uint8);
    json["masks"].push_back(agent.mask);
    json["mask_sizes"].push_back(agent.mask_size);
  }
  return json;
}

}  // namespace troupe::envhost
