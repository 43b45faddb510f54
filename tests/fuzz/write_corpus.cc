// Writes the corpora that programs make (fragments, weights, tables, checkpoints, frames) into the folder given; those
// of YAML are files of examples/ and one of leaf_encoders. Run again when a format grows, and commit what it wrote.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/check.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/policy_table.h"
#include "lib/policy/testing.h"
#include "lib/rpc/codec/fragment_codec.h"
#include "lib/rpc/codec/weight_codec.h"
#include "lib/sample/testing/batch_maker.h"
#include "lib/storage/checkpoint_format.h"
#include "lib/storage/testing.h"
#include "lib/storage/testing/scratch_directory.h"
#include "proto/troupe/v1/rollout.pb.h"
#include "tests/fuzz/fuzz_input.h"

namespace troupe {
namespace {

namespace fs = std::filesystem;

std::string Bytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  TROUPE_CHECK(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

void Write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string ReadText(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void WriteFragments(const fs::path& folder) {
  // From 12 on the fuzzer's schemas have cores.
  for (const uint64_t seed : std::vector<uint64_t>{0, 1, 2, 3, 4, 5, 12, 13}) {
    sample::BatchSchema schema = sample::RandomSchema(seed);
    if (seed >= 12) schema = sample::WithCores(std::move(schema), seed);
    const auto batch = sample::MakeBatch(schema, sample::RandomRolloutOptions(schema, seed), 2, 3);
    const auto encoded = rpc::EncodeFragment(seed + 1, batch);
    TROUPE_CHECK(encoded.ok());
    const std::string message = Bytes(encoded->message);
    const auto how = static_cast<char>((seed << 4) | ((seed & 7) << 1));
    Write(folder / absl::StrCat("whole_", seed), how + message);
    v1::WorkerMessage parts;
    TROUPE_CHECK(parts.ParseFromString(message));
    const std::string payload = parts.payload();
    parts.clear_payload();
    Write(folder / absl::StrCat("parts_", seed),
          static_cast<char>(how | 1) + fuzz::AsPart(parts.SerializeAsString()) + payload);
  }
}

void WriteWeights(const fs::path& folder) {
  for (const bool normalizes : {false, true}) {
    policy::PolicySpec spec = policy::SmallSpecForTesting();
    spec.normalize_observations = normalizes;
    auto snapshot = std::make_shared<policy::WeightSnapshot>();
    snapshot->id = spec.id;
    snapshot->version = {1, 2};
    snapshot->actor.assign(static_cast<size_t>(policy::ParameterLayout::For(spec).acting_size()), 0.5f);
    if (normalizes) {
      snapshot->observation_mean.assign(static_cast<size_t>(spec.observation_size()), 0.5f);
      snapshot->observation_inverse_std.assign(static_cast<size_t>(spec.observation_size()), 2.0f);
    }
    const rpc::PublishedWeights published(policy::PolicySlot(0), 0, snapshot);
    std::string text(1, static_cast<char>(normalizes ? 3 : 1));
    for (const grpc::ByteBuffer& chunk : published.Chunks()) text += fuzz::AsPart(Bytes(chunk));
    text += fuzz::AsPart(Bytes(rpc::EncodeAnnouncement({1, 2}, 1)));
    Write(folder / (normalizes ? "normalized" : "plain"), text);
  }
}

policy::PolicyTablePtr Table() {
  policy::PolicySpec a = policy::SmallSpecForTesting();
  a.id = policy::PolicyId("a");
  policy::PolicySpec b = a;
  b.id = policy::PolicyId("b");
  auto table = policy::PolicyTable::Make(
      {a, b}, {true, false}, {{"agent_0", {{a.id, 1.0}}}, {"*", {{a.id, 2.0}, {b.id, 1.0}}}}, {"agent_0", "agent_1"});
  TROUPE_CHECK(table.ok());
  return *table;
}

/// Of a policy with an encoder for a leaf that is an image, and for one that is not.
policy::PolicyTablePtr TableOfLeaves() {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.observation_space = *space::ParseSpace("Dict{arm: Tuple(Box(-1, 1, [2])), camera: Box(0, 255, [5, 4], uint8)}");
  spec.actor.encoder = policy::EncoderKind::kLeaves;
  spec.actor.leaf_encoders = {{.leaf = 0, .hidden_sizes = {3}}, {.leaf = 1, .conv_layers = {{2, 3, 1}}}};
  return *policy::PolicyTable::Make({spec}, {true}, {{"*", {{spec.id, 1.0}}}}, {"agent_0"});
}

void WriteTables(const fs::path& folder) {
  policy::PolicyTablePtr table = Table();
  Write(folder / "first", policy::ToJson(*table));
  policy::PolicySpec late = policy::SmallSpecForTesting();
  late.id = policy::PolicyId("late");
  table = *table->Add(late, true);
  table = *table->SetMapping({{"*", {{late.id, 1.0}}}});
  table = *table->Remove(policy::PolicyId("b"));
  Write(folder / "changed", policy::ToJson(*table));
  Write(folder / "leaves", policy::ToJson(*TableOfLeaves()));
}

void WriteCheckpoints(const fs::path& folder) {
  storage::FileSystem& files = storage::FileSystem::Posix();
  const policy::PolicySpec spec = policy::SmallSpecForTesting();
  for (const bool with_table : {false, true}) {
    const storage::ScratchDirectory scratch;
    learner::LearnerState state = storage::StateForTesting(spec, 100);
    if (with_table) state.table = *policy::PolicyTable::Make({spec}, {true}, {{"*", {{spec.id, 1.0}}}}, {"agent_0"});
    storage::CheckpointOptions options;
    options.config_yaml = "seed: 1\n";
    TROUPE_CHECK(storage::WriteCheckpointFiles(files, scratch.path(), state, {&spec, 1}, options).ok());
    const std::string which = with_table ? "table" : "plain";
    Write(folder / ("manifest_" + which), '\3' + ReadText(scratch.path() + "/manifest.json"));
    Write(folder / ("weights_" + which), '\0' + ReadText(scratch.path() + "/policies.safetensors"));
  }
}

std::string Frame(int type, int flags, uint32_t stream, const std::string& payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(payload.size() >> shift & 0xff);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift & 0xff);
  return frame + payload;
}

void WriteFrames(const fs::path& folder) {
  constexpr int kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kWindowUpdate = 8, kContinuation = 9;
  constexpr int kEnd = 1, kEndOfHeaders = 4, kPadded = 8;
  const std::string message("\0\0\0\0\2hi", 7);
  const std::string hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "");
  const std::string answer = Frame(kHeaders, kEndOfHeaders, 1, "ok") + Frame(kData, 0, 1, message) +
                             Frame(kHeaders, kEndOfHeaders | kEnd, 1, "trailers");
  const std::string call = Frame(kHeaders, kEndOfHeaders, 1, "headers") + Frame(kData, kEnd, 1, message);
  Write(folder / "call", '\6' + fuzz::AsPart(hello + call) + fuzz::AsPart(answer) +
                             fuzz::AsPart(Frame(kPing, 0, 0, "12345678") + Frame(kWindowUpdate, 0, 0, "\1\1\1\1")));
  Write(folder / "reset",
        '\1' + fuzz::AsPart(hello + Frame(kHeaders, 0, 3, "head") + Frame(kContinuation, kEndOfHeaders, 3, "ers") +
                            Frame(kData, kPadded, 3, '\2' + message + "pp") + Frame(kReset, 0, 3, "code")));
}

}  // namespace
}  // namespace troupe

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_corpus tests/fuzz/corpus\n");
    return 2;
  }
  const std::filesystem::path folder(argv[1]);
  troupe::WriteFragments(folder / "fragment");
  troupe::WriteWeights(folder / "weights");
  troupe::WriteTables(folder / "policy_table");
  troupe::WriteCheckpoints(folder / "checkpoint");
  troupe::WriteFrames(folder / "frames");
  return 0;
}
