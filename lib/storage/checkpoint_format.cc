#include "lib/storage/checkpoint_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/crc32c.h"
#include "lib/base/parse_json.h"
#include "lib/base/status_macros.h"
#include "lib/storage/checkpoint_blocks.h"
#include "lib/storage/safetensors.h"
#include <nlohmann/json.hpp>

namespace troupe::storage {
namespace {

using Json = nlohmann::json;
using learner::LearnerState;
using policy::PolicySpec;
using policy::PolicyState;

constexpr int64_t kMaxManifestBytes = 64 << 20;
// Of somebody else's: room for a table of 1024 policies, and lanes of some 800,000 environments, which are left out.
constexpr int64_t kMaxForeignManifestBytes = 32 << 20;
constexpr int64_t kVerifyBytes = 1 << 20;  // in memory at a time
constexpr char kManifest[] = "manifest.json";
constexpr char kConfig[] = "config.yaml";
constexpr char kGroups[] = "groups.safetensors";
// The manifest guards itself: its checksum is over its text with these zeros in the checksum's place.
constexpr char kChecksumKey[] = "\"manifest_crc32c\": \"";
constexpr char kChecksumZeros[] = "00000000";

std::string Hex32(uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", value);
  return text;
}

std::string Hex64(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// What may have changed where a checkpoint has another hash than `specs`: a critic of all agents' images read them as
/// floats once, by the same configuration.
std::string HintOfNetworks(absl::Span<const PolicySpec> specs) {
  const auto convolves_all = [](const PolicySpec& spec) {
    return spec.critic().Reads(policy::NetworkInput::kJointObservation) && spec.ImagesOf(spec.critic()) > 0;
  };
  return std::any_of(specs.begin(), specs.end(), convolves_all)
             ? "; where the run is older than critics that convolve the images of all agents, model.critic_encoder=mlp"
               " is the network that it has"
             : "";
}

absl::Status CheckGroup(const policy::GroupState& group) {
  TROUPE_RETURN_IF_ERROR(policy::ValidatePolicyId(group.id.value()));
  return policy::CheckBlocks(absl::StrCat("group \"", group.id.value(), "\""), group.blocks);
}

/// Writes one file and notes it for the manifest.
absl::Status WriteNoted(FileSystem& fs, const std::string& directory, const std::string& name,
                        const std::vector<absl::Span<const std::byte>>& pieces, Json* files) {
  uint32_t crc = 0;
  int64_t bytes = 0;
  for (const absl::Span<const std::byte> piece : pieces) {
    crc = base::Crc32c(piece.data(), piece.size(), crc);
    bytes += static_cast<int64_t>(piece.size());
  }
  files->push_back({{"name", name}, {"bytes", bytes}, {"crc32c", Hex32(crc)}});
  return fs.WriteNewFile(directory + "/" + name, pieces);
}

absl::Status WriteTensors(FileSystem& fs, const std::string& directory, const std::string& name,
                          const std::vector<TensorToWrite>& tensors, Json* files) {
  const std::string header = SafetensorsHeader(tensors, {{"format", "pt"}});
  std::vector<absl::Span<const std::byte>> pieces = {AsPiece(header)};
  for (const TensorToWrite& tensor : tensors) pieces.push_back(tensor.bytes);
  TROUPE_RETURN_IF_ERROR(WriteNoted(fs, directory, name, pieces, files));
  files->back()["header_crc32c"] = Hex32(base::Crc32c(header.data(), header.size()));
  return absl::OkStatus();
}

absl::Status WriteGroups(FileSystem& fs, const std::string& directory, const std::vector<policy::GroupState>& groups,
                         Json* files) {
  std::vector<TensorToWrite> tensors;
  for (const policy::GroupState& group : groups) AddGroup(group, &tensors);
  return WriteTensors(fs, directory, kGroups, tensors, files);
}

/// JSON has no NaN: an absent value is null.
Json Numbers(const std::vector<double>& values) {
  Json out = Json::array();
  for (const double value : values) out.push_back(std::isfinite(value) ? Json(value) : Json(nullptr));
  return out;
}

std::vector<double> ToNumbers(const Json& json) {
  std::vector<double> out;
  for (const Json& value : json) {
    out.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
  }
  return out;
}

Json StateToJson(const LearnerState& state) {
  Json json;
  json["iteration"] = state.iteration;
  if (state.iterations.has_value()) json["iterations"] = *state.iterations;
  if (state.version.has_value()) json["version"] = *state.version;
  if (!state.feed_updates.empty()) json["feed_updates"] = state.feed_updates;
  json["env_steps"] = state.env_steps;
  json["agent_steps"] = state.agent_steps;
  json["episodes"] = state.episodes;
  json["wall_clock_s"] = state.wall_clock_s;
  json["learner_epoch"] = state.learner_epoch;
  const learner::RowCounters& rows = state.rows;
  json["rows"] = {{"received", rows.received}, {"accepted", rows.accepted}, {"duplicate", rows.duplicate},
                  {"stale", rows.stale},       {"invalid", rows.invalid},   {"trained", rows.trained},
                  {"queued", rows.queued},     {"dropped", rows.dropped},   {"rolled_back", rows.rolled_back},
                  {"aged", rows.aged},         {"waited", rows.waited}};
  json["lanes"] = Json::array();
  for (const learner::LaneState& lane : state.lanes) json["lanes"].push_back({lane.env_id.value(), lane.next_episode});
  json["watermarks"] = Json::array();
  for (const auto& [worker, watermark] : state.watermarks) json["watermarks"].push_back({worker, watermark});
  json["recent_return_sums"] = Numbers(state.recent_return_sums);
  json["recent_lengths"] = Numbers(state.recent_lengths);
  json["recent_by_strangers"] = state.recent_by_strangers;
  json["recent_agent_returns"] = Json::array();
  for (const auto& returns : state.recent_agent_returns) json["recent_agent_returns"].push_back(Numbers(returns));
  json["recent_agent_policies"] = state.recent_agent_policies;
  json["rewards_differ"] = state.rewards_differ;
  if (state.has_best) json["best_return"] = state.best_return;
  json["best_by"] = state.best_by;
  if (state.best_window.has_value() && std::isfinite(*state.best_window)) {
    json["best_window_return"] = *state.best_window;
  }
  json["policies"] = Json::array();
  for (size_t slot = 0; slot < state.policies.size(); ++slot) {
    const PolicyState& policy = state.policies[slot];  // of a free slot: without an id
    json["policies"].push_back({{"id", policy.id.value()},
                                {"version", {policy.version.learner_epoch, policy.version.n}},
                                {"integers", IntegersToJson(policy.blocks)}});
    if (slot < state.trained_as.size()) json["policies"].back()["trained_as"] = state.trained_as[slot].value();
  }
  json["groups"] = Json::array();
  for (const policy::GroupState& group : state.groups) {
    json["groups"].push_back({{"id", group.id.value()}, {"integers", IntegersToJson(group.blocks)}});
  }
  return json;
}

/// Throws nlohmann's exceptions on a missing or mistyped field; the caller turns them into a Status.
LearnerState StateFromJson(const Json& json) {
  LearnerState state;
  state.iteration = base::JsonInteger(json.at("iteration"));
  if (json.contains("iterations")) state.iterations = base::JsonInteger(json.at("iterations"));
  if (json.contains("version")) state.version = base::JsonInteger(json.at("version"));
  if (json.contains("feed_updates")) {
    for (const auto& [feed, updates] : json.at("feed_updates").items()) {
      state.feed_updates[feed] = base::JsonInteger(updates);
    }
  }
  state.env_steps = base::JsonInteger(json.at("env_steps"));
  state.agent_steps = base::JsonInteger(json.at("agent_steps"));
  state.episodes = base::JsonInteger(json.at("episodes"));
  state.wall_clock_s = json.at("wall_clock_s").get<double>();
  state.learner_epoch = static_cast<uint64_t>(base::JsonInteger(json.at("learner_epoch")));
  const Json& rows = json.at("rows");
  state.rows = {base::JsonInteger(rows.at("received")),   base::JsonInteger(rows.at("accepted")),
                base::JsonInteger(rows.at("duplicate")),  base::JsonInteger(rows.at("stale")),
                base::JsonInteger(rows.at("invalid")),    base::JsonInteger(rows.at("trained")),
                base::JsonInteger(rows.at("queued")),     base::JsonInteger(rows.at("dropped")),
                base::JsonInteger(rows.at("rolled_back"))};
  // An earlier version does not write it.
  if (rows.contains("aged")) state.rows.aged = base::JsonInteger(rows.at("aged"));
  if (rows.contains("waited")) state.rows.waited = base::JsonInteger(rows.at("waited"));
  for (const Json& lane : json.at("lanes")) {
    state.lanes.push_back({base::EnvId(static_cast<uint32_t>(base::JsonInteger(lane.at(0)))),
                           static_cast<uint32_t>(base::JsonInteger(lane.at(1)))});
  }
  for (const Json& entry : json.at("watermarks")) {
    state.watermarks[static_cast<uint64_t>(base::JsonInteger(entry.at(0)))] =
        static_cast<uint64_t>(base::JsonInteger(entry.at(1)));
  }
  state.recent_return_sums = ToNumbers(json.at("recent_return_sums"));
  state.recent_lengths = ToNumbers(json.at("recent_lengths"));
  // Not known for an earlier version.
  for (const Json& by_stranger : json.value("recent_by_strangers", Json::array())) {
    state.recent_by_strangers.push_back(base::JsonInteger(by_stranger) != 0 ? 1 : 0);
  }
  for (const Json& returns : json.at("recent_agent_returns")) state.recent_agent_returns.push_back(ToNumbers(returns));
  // Not known for an earlier version.
  for (const Json& policies : json.value("recent_agent_policies", Json::array())) {
    std::vector<int32_t>& played = state.recent_agent_policies.emplace_back();
    for (const Json& policy : policies) {
      const int64_t slot = base::JsonInteger(policy);
      played.push_back(slot >= 0 && slot < static_cast<int64_t>(policy::PolicyTable::kMaxPolicies)
                           ? static_cast<int32_t>(slot)
                           : -1);
    }
  }
  state.rewards_differ = json.value("rewards_differ", false);
  state.best_by = json.value("best_by", std::string("sum"));
  state.has_best = json.contains("best_return");
  if (state.has_best) state.best_return = json.at("best_return").get<double>();
  if (json.contains("best_window_return")) state.best_window = json.at("best_window_return").get<double>();
  for (const Json& entry : json.value("groups", Json::array())) {
    policy::GroupState& group = state.groups.emplace_back();
    group.id = policy::GroupId(entry.at("id").get<std::string>());
    IntegersFromJson(entry.at("integers"), &group.blocks);
  }
  return state;
}

/// What a state says of policies.
void PoliciesFromJson(const Json& json, int64_t format, LearnerState* state) {
  for (const Json& entry : json.at("policies")) {
    PolicyState policy;
    policy.id = policy::PolicyId(entry.at("id").get<std::string>());
    policy.version = {static_cast<uint64_t>(base::JsonInteger(entry.at("version").at(0))),
                      base::JsonInteger(entry.at("version").at(1))};
    if (format == 1) {
      IntegersFromFormat1(entry, &policy.blocks);
    } else {
      IntegersFromJson(entry.at("integers"), &policy.blocks);
    }
    state->policies.push_back(std::move(policy));
    if (entry.contains("trained_as")) state->trained_as.emplace_back(entry.at("trained_as").get<std::string>());
  }
}

/// Whether a key of a manifest is of those that the policies alone need.
bool IsOfPolicies(int depth, const std::string& key) {
  static const std::set<std::string> kTop = {"format_version", "spec_hash",          "files", "weights_crc32c", "state",
                                             "policy_table",   "policy_map_capacity"};
  static const std::set<std::string> kNotOfState = {"lanes",
                                                    "watermarks",
                                                    "recent_return_sums",
                                                    "recent_lengths",
                                                    "recent_agent_returns",
                                                    "recent_agent_policies",
                                                    "recent_by_strangers",
                                                    "groups"};
  return depth == 1 ? kTop.count(key) > 0 : depth != 2 || kNotOfState.count(key) == 0;
}

/// A name that WriteCheckpointFiles gives: the manifest of somebody else must not lead out of its directory.
bool IsFileName(const std::string& name) {
  return name == kConfig || (absl::EndsWith(name, ".safetensors") &&
                             name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_.0123456789") == std::string::npos);
}

/// The text of a manifest with its own checksum.
std::string Signed(const Json& manifest) {
  std::string text = manifest.dump(1) + "\n";
  const size_t at = text.find(kChecksumKey) + sizeof(kChecksumKey) - 1;
  text.replace(at, sizeof(kChecksumZeros) - 1, Hex32(base::Crc32c(text.data(), text.size())));
  return text;
}

/// The text of a manifest that its checksum fits.
absl::StatusOr<std::string> ReadManifestText(FileSystem& fs, const std::string& directory, int64_t max_bytes) {
  absl::StatusOr<std::string> read = fs.ReadFile(directory + "/" + kManifest, max_bytes);
  if (!read.ok()) return CheckpointDamaged(directory, std::string(read.status().message()));
  std::string text = *std::move(read);
  const size_t key = text.find(kChecksumKey);
  if (key == std::string::npos || key + sizeof(kChecksumKey) - 1 + 8 > text.size()) {
    return CheckpointDamaged(directory, "manifest.json has no checksum");
  }
  const size_t at = key + sizeof(kChecksumKey) - 1;
  const std::string stored = text.substr(at, 8);
  text.replace(at, 8, kChecksumZeros);
  if (Hex32(base::Crc32c(text.data(), text.size())) != stored)
    return CheckpointDamaged(directory, "manifest.json fails its checksum");
  return text;
}

/// Compares a file's checksum, with little of it in memory.
absl::Status VerifyFile(FileSystem& fs, const std::string& directory, const CheckpointManifest::File& file) {
  const absl::StatusOr<std::unique_ptr<OpenFile>> opened = fs.Open(directory + "/" + file.name);
  if (!opened.ok()) return CheckpointDamaged(directory, std::string(opened.status().message()));
  return VerifyOpenFile(**opened, directory, file);
}

/// Which files hold policy `slot`.
std::string WeightsFile(bool separately, size_t slot) {
  return separately ? absl::StrCat("policy_", slot, ".safetensors") : "policies.safetensors";
}
std::string OptimizerFile(bool separately, size_t slot) {
  return separately ? absl::StrCat("optimizer_", slot, ".safetensors") : "optimizer.safetensors";
}

/// Over the arrays' bytes from number `first` on, as they will lie in the file.
uint32_t CrcOf(const std::vector<TensorToWrite>& tensors, size_t first) {
  uint32_t crc = 0;
  for (size_t i = first; i < tensors.size(); ++i) {
    crc = base::Crc32c(tensors[i].bytes.data(), tensors[i].bytes.size(), crc);
  }
  return crc;
}

absl::Status ReadGroups(FileSystem& fs, const std::string& directory, std::vector<policy::GroupState>* groups) {
  TROUPE_ASSIGN_OR_RETURN(const std::string text, fs.ReadFile(directory + "/" + kGroups, kMaxCheckpointFileBytes));
  TROUPE_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Parse(text));
  std::set<policy::GroupId> ids;
  size_t taken = 0;
  for (policy::GroupState& group : *groups) {
    const size_t integers = group.blocks.size();
    TROUPE_RETURN_IF_ERROR(TakeGroup(file, &group));
    taken += group.blocks.size() - integers;
    TROUPE_RETURN_IF_ERROR(CheckGroup(group));
    if (!ids.insert(group.id).second) return CheckpointDamaged(directory, "manifest.json names a group twice");
  }
  if (taken == file.tensors().size()) return absl::OkStatus();
  return CheckpointDamaged(directory,
                           absl::StrCat(kGroups, " holds ", file.tensors().size() - taken, " arrays of no group"));
}

bool StoredSeparately(const CheckpointManifest& manifest) { return manifest.Find(WeightsFile(false, 0)) == nullptr; }

}  // namespace

absl::Status CheckpointDamaged(const std::string& directory, const std::string& what) {
  const size_t slash = directory.find_last_of('/');
  return absl::DataLossError(
      absl::StrCat("checkpoint ", directory.substr(slash == std::string::npos ? 0 : slash + 1), " is damaged: ", what));
}

const CheckpointManifest::File* CheckpointManifest::Find(const std::string& name) const {
  const auto found = std::find_if(files.begin(), files.end(), [&name](const File& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

std::string CheckpointManifest::WeightsFile(size_t index) const {
  return storage::WeightsFile(StoredSeparately(*this), index);
}

std::string CheckpointManifest::OptimizerFile(size_t index) const {
  return storage::OptimizerFile(StoredSeparately(*this), index);
}

absl::StatusOr<PolicyState> WeightsFromTensors(const SafetensorsFile& file, const PolicySpec& spec,
                                               policy::WeightVersion version) {
  PolicyState state;
  state.id = spec.id;
  state.version = version;
  TROUPE_RETURN_IF_ERROR(TakeWeights(file, spec, &state));
  TROUPE_RETURN_IF_ERROR(state.Validate(spec));
  return state;
}

absl::Status WriteCheckpointFiles(FileSystem& fs, const std::string& directory, const LearnerState& state,
                                  absl::Span<const PolicySpec> specs, const CheckpointOptions& options) {
  policy::BySlot<PolicySpec> of_table;
  if (state.table != nullptr) {
    of_table = state.table->Specs();
    specs = of_table.values();
  }
  if (state.policies.size() != specs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint has ", state.policies.size(), " policies; expected ", specs.size()));
  }
  for (const policy::GroupState& group : state.groups) TROUPE_RETURN_IF_ERROR(CheckGroup(group));
  Json files = Json::array();
  Json weights_crc32c = Json::array();
  std::vector<TensorToWrite> weights, optimizer;
  for (size_t slot = 0; slot < specs.size(); ++slot) {
    const bool is_free = specs[slot].id.value().empty();
    const size_t first = weights.size();
    if (!is_free) {
      TROUPE_RETURN_IF_ERROR(state.policies[slot].Validate(specs[slot]));
      AddWeights(state.policies[slot], specs[slot], &weights);
      AddOtherBlocks(state.policies[slot], &optimizer);
    }
    weights_crc32c.push_back(Hex32(CrcOf(weights, first)));
    if (is_free && options.store_separately) continue;
    if (options.store_separately || slot + 1 == specs.size()) {
      TROUPE_RETURN_IF_ERROR(WriteTensors(fs, directory, WeightsFile(options.store_separately, slot), weights, &files));
      TROUPE_RETURN_IF_ERROR(
          WriteTensors(fs, directory, OptimizerFile(options.store_separately, slot), optimizer, &files));
      weights.clear();
      optimizer.clear();
    }
  }
  if (!state.groups.empty()) TROUPE_RETURN_IF_ERROR(WriteGroups(fs, directory, state.groups, &files));
  TROUPE_RETURN_IF_ERROR(WriteNoted(fs, directory, kConfig, {AsPiece(options.config_yaml)}, &files));

  Json manifest = {{"format_version", kCheckpointFormat},
                   {"spec_hash", Hex64(options.spec_hash)},
                   {"store_separately", options.store_separately},
                   {"files", files},
                   {"weights_crc32c", weights_crc32c},
                   {"state", StateToJson(state)},
                   {"manifest_crc32c", kChecksumZeros}};
  if (state.table != nullptr) manifest["policy_table"] = Json::parse(policy::ToJson(*state.table));
  if (options.policy_map_capacity > 0) manifest["policy_map_capacity"] = options.policy_map_capacity;
  const std::string text = Signed(manifest);
  TROUPE_RETURN_IF_ERROR(fs.WriteNewFile(directory + "/" + kManifest, {AsPiece(text)}));
  return fs.SyncDirectory(directory);
}

absl::Status VerifyOpenFile(const OpenFile& opened, const std::string& directory,
                            const CheckpointManifest::File& file) {
  if (opened.bytes() != file.bytes) {
    return CheckpointDamaged(directory,
                             absl::StrCat(file.name, " has ", opened.bytes(), " bytes; expected ", file.bytes));
  }
  uint32_t crc = 0;
  for (int64_t at = 0; at < file.bytes; at += kVerifyBytes) {
    const absl::StatusOr<std::string> part = opened.Read(at, std::min(kVerifyBytes, file.bytes - at));
    if (!part.ok()) return CheckpointDamaged(directory, std::string(part.status().message()));
    crc = base::Crc32c(part->data(), part->size(), crc);
  }
  if (crc == file.crc32c) return absl::OkStatus();
  return CheckpointDamaged(directory, absl::StrCat(file.name, " fails its checksum"));
}

absl::StatusOr<CheckpointManifest> ReadManifest(FileSystem& fs, const std::string& directory, ManifestPart part) {
  const bool all = part == ManifestPart::kAll;
  const int64_t max_bytes = all ? kMaxManifestBytes : kMaxForeignManifestBytes;
  TROUPE_ASSIGN_OR_RETURN(const std::string text, ReadManifestText(fs, directory, max_bytes));
  base::JsonLimits limits{.max_bytes = kMaxManifestBytes};
  if (all) {
    limits.max_values = std::numeric_limits<size_t>::max();
  } else {
    limits.keep = IsOfPolicies;
  }
  const absl::StatusOr<Json> parsed = base::ParseJson(text, limits);
  if (!parsed.ok()) {
    return CheckpointDamaged(directory, absl::StrCat("manifest.json ", parsed.status().message()));
  }
  const Json& json = *parsed;
  // From here on the text is what we wrote, or somebody else forged; a throw means another version's format.
  try {
    const int64_t format = base::JsonInteger(json.at("format_version"));
    if (format < kOldestCheckpointFormat || format > kCheckpointFormat) {
      return absl::FailedPreconditionError(
          absl::StrCat("checkpoint: got format ", format, ", expected ", kOldestCheckpointFormat, " or ",
                       kCheckpointFormat, format > kCheckpointFormat ? ": written by a newer troupe" : ""));
    }
    CheckpointManifest manifest;
    manifest.format = format;
    manifest.spec_hash = std::stoull(json.at("spec_hash").get<std::string>(), nullptr, 16);
    const auto from_hex = [](const Json& text) {
      return static_cast<uint32_t>(std::stoul(text.get<std::string>(), nullptr, 16));
    };
    const Json& files = json.at("files");
    if (files.size() > kMaxCheckpointFiles) {
      return CheckpointDamaged(directory, absl::StrCat("manifest.json names ", files.size(),
                                                       " files; expected at most ", kMaxCheckpointFiles));
    }
    std::set<std::string> names;
    for (const Json& file : files) {
      manifest.files.push_back({file.at("name").get<std::string>(), base::JsonInteger(file.at("bytes")),
                                from_hex(file.at("crc32c")), from_hex(file.value("header_crc32c", Json("0")))});
      const CheckpointManifest::File& read = manifest.files.back();
      if (!IsFileName(read.name) || read.bytes < 0 || read.bytes > kMaxCheckpointFileBytes) {
        return CheckpointDamaged(directory, "manifest.json names a file that no checkpoint has");
      }
      if (!names.insert(read.name).second) return CheckpointDamaged(directory, "manifest.json names a file twice");
    }
    for (const Json& crc : json.value("weights_crc32c", Json::array())) {
      manifest.weights_crc32c.push_back(from_hex(crc));
    }
    manifest.policy_map_capacity = base::JsonInteger(json.value("policy_map_capacity", Json(0)));
    const Json& state = json.at("state");
    if (all) {
      manifest.state = StateFromJson(state);
    } else {
      manifest.state.iteration = base::JsonInteger(state.at("iteration"));
      manifest.state.env_steps = base::JsonInteger(state.at("env_steps"));
    }
    PoliciesFromJson(state, format, &manifest.state);
    if (json.contains("policy_table")) {
      absl::StatusOr<policy::PolicyTablePtr> table = policy::PolicyTableFromJson(json.at("policy_table").dump());
      // What is wrong would quote it.
      if (!table.ok())
        return CheckpointDamaged(directory, "manifest.json has a policy table that this build cannot read");
      manifest.state.table = *std::move(table);
    }
    return manifest;
  } catch (const std::exception&) {
    return CheckpointDamaged(directory, "manifest.json lacks a field, or has one of another type");
  }
}

absl::Status AddPolicyTable(FileSystem& fs, const std::string& directory, const policy::PolicyTable& table) {
  TROUPE_ASSIGN_OR_RETURN(const std::string text, ReadManifestText(fs, directory, kMaxManifestBytes));
  Json manifest = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object()) return CheckpointDamaged(directory, "manifest.json is not JSON");
  manifest["policy_table"] = Json::parse(policy::ToJson(table));
  return ReplaceFile(fs, directory + "/" + kManifest, Signed(manifest));
}

absl::StatusOr<CheckpointManifest> VerifyCheckpoint(FileSystem& fs, const std::string& directory, ManifestPart part) {
  TROUPE_ASSIGN_OR_RETURN(CheckpointManifest manifest, ReadManifest(fs, directory, part));
  std::set<std::string> expected = {kManifest};
  for (const CheckpointManifest::File& file : manifest.files) {
    expected.insert(file.name);
    TROUPE_RETURN_IF_ERROR(VerifyFile(fs, directory, file));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(directory));
  for (const std::string& name : names) {
    if (expected.count(name) == 0) return CheckpointDamaged(directory, absl::StrCat("unknown file ", name));
  }
  return manifest;
}

absl::StatusOr<LearnerState> ReadCheckpoint(FileSystem& fs, const std::string& directory,
                                            absl::Span<const PolicySpec> specs, uint64_t spec_hash) {
  TROUPE_ASSIGN_OR_RETURN(CheckpointManifest manifest, VerifyCheckpoint(fs, directory));
  if (spec_hash != 0 && manifest.spec_hash != spec_hash) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint is of another run: its spec hash is ", Hex64(manifest.spec_hash), "; expected ",
                     Hex64(spec_hash), " (environment, policies or networks differ)", HintOfNetworks(specs)));
  }
  LearnerState state = std::move(manifest.state);
  policy::BySlot<PolicySpec> of_table;
  if (state.table != nullptr) {
    of_table = state.table->Specs();
    specs = of_table.values();
  }
  if (state.policies.size() != specs.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint holds ", state.policies.size(), " policies; expected ", specs.size()));
  }
  const bool separately = StoredSeparately(manifest);
  std::string weights_text, optimizer_text;
  SafetensorsFile weights, optimizer;
  bool opened = false;
  for (size_t slot = 0; slot < specs.size(); ++slot) {
    PolicyState& policy = state.policies[slot];
    if (specs[slot].id.value().empty()) continue;
    if (policy.id != specs[slot].id) {
      return absl::FailedPreconditionError(absl::StrCat("checkpoint's policy ", slot, " is \"", policy.id.value(),
                                                        "\"; expected \"", specs[slot].id.value(), "\""));
    }
    if (separately || !std::exchange(opened, true)) {
      TROUPE_ASSIGN_OR_RETURN(weights_text,
                              fs.ReadFile(directory + "/" + WeightsFile(separately, slot), kMaxCheckpointFileBytes));
      TROUPE_ASSIGN_OR_RETURN(optimizer_text,
                              fs.ReadFile(directory + "/" + OptimizerFile(separately, slot), kMaxCheckpointFileBytes));
      TROUPE_ASSIGN_OR_RETURN(weights, SafetensorsFile::Parse(weights_text));
      TROUPE_ASSIGN_OR_RETURN(optimizer, SafetensorsFile::Parse(optimizer_text));
    }
    TROUPE_RETURN_IF_ERROR(TakeWeights(weights, specs[slot], &policy));
    TROUPE_RETURN_IF_ERROR(TakeOtherBlocks(optimizer, manifest.format, &policy));
    TROUPE_RETURN_IF_ERROR(policy.Validate(specs[slot]));
  }
  if (!state.groups.empty()) TROUPE_RETURN_IF_ERROR(ReadGroups(fs, directory, &state.groups));
  return state;
}

}  // namespace troupe::storage
