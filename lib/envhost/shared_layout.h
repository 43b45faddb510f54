#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "lib/env/env_spec.h"
#include <nlohmann/json.hpp>

/// What a worker and a process of Python environments share; python/troupe/_shm_host.py is its other half. A change of
/// anything here is a new kLayoutVersion.
namespace troupe::envhost {

inline constexpr uint32_t kLayoutVersion = 6;
inline constexpr uint32_t kMagic = 0x54524548;
/// Entries of the ring of requests: a power of two.
inline constexpr uint32_t kRingCapacity = 4096;
/// Environments of one process at most: each has one request under way, and perhaps a close.
inline constexpr int kMaxEnvsPerProcess = 1024;
/// Blocks begin and end at whole pages.
inline constexpr size_t kBlockAlignment = 4096;
/// A ring entry that says: read a line from the control channel. Others are a RequestKind, perhaps kBatchBegins, and an
/// environment's slot.
inline constexpr uint32_t kControlEntry = 0xFFFFFFFF;
/// The request begins a batch: answers to those before it are waited for by themselves.
inline constexpr uint32_t kBatchBegins = uint32_t{1} << 23;

/// The head of the shared memory. Words are counters that wrap, each written by one side; `head` and `done` are
/// futexes. Everything that the child writes is data to be checked, never trusted.
struct ControlPage {
  uint32_t magic;
  uint32_t version;
  uint32_t capacity;
  alignas(64) std::atomic<uint32_t> head;    ///< requests posted; the child waits on it
  alignas(64) std::atomic<uint32_t> done;    ///< requests answered, in order; the worker waits on it
  alignas(64) std::atomic<uint32_t> sleeps;  ///< the child waits
  alignas(64) std::atomic<uint32_t> waits;   ///< the worker waits,
  std::atomic<uint32_t> wake_at;             ///< until so many requests are answered
  alignas(4096) uint32_t ring[kRingCapacity];
  /// By slot: where its block begins, in pages of kBlockAlignment; written before the first request of the slot.
  alignas(4096) uint32_t block_pages[kMaxEnvsPerProcess];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(offsetof(ControlPage, head) == 64 && offsetof(ControlPage, done) == 128 &&
              offsetof(ControlPage, sleeps) == 192 && offsetof(ControlPage, waits) == 256 &&
              offsetof(ControlPage, ring) == 4096 && offsetof(ControlPage, block_pages) == 20480 &&
              sizeof(ControlPage) % kBlockAlignment == 0);

enum class RequestKind : uint32_t {
  kReset = 1,
  kStep = 2,
  kClose = 3,
  kMake = 4,
  kCall = 5,
  kPicture = 6,
  kEpisodeEnd = 7
};
inline uint32_t RingEntry(RequestKind kind, int slot) {
  return static_cast<uint32_t>(kind) << 24 | static_cast<uint32_t>(slot);
}
enum class AnswerStatus : uint32_t {
  kOk = 0,
  kFailed = 1,     ///< the environment raised an exception
  kBadOutput = 2,  ///< what it gave does not fit what it declared
};
inline constexpr uint32_t kAllTerminated = 1, kAllTruncated = 2, kHasEnvState = 4;  // BlockHeader::flags
inline constexpr uint8_t kObserved = 1, kTerminated = 2, kTruncated = 4, kInactive = 8, kHasMask = 16, kHasState = 32,
                         kHasInfo = 64;  // of an agent

/// The head of an environment's or a function's block.
struct BlockHeader {
  uint32_t seed;  ///< of the next reset
  uint32_t status;
  uint32_t flags;
  uint32_t error_bytes;
  uint64_t call_seed;   ///< of a call: the run's
  uint32_t call_count;  ///< rows of a policy; bytes of what is made, of a mapping function's question and answer
  uint32_t call_deterministic;
  uint64_t block_bytes;
  uint32_t callbacks;            ///< of a reset: whether callbacks of the episode are called
  uint32_t in_callback;          ///< written by the child: which it is in, 1 + its place in kEpisodeHooks; 0: none
  uint32_t callback_bytes;       ///< of what they tracked, in the answer of kEpisodeEnd
  uint32_t env_index;            ///< of a reset: the env id
  alignas(64) char error[4032];  ///< what happened, UTF-8: a line, then those of the traceback
};
/// The error that the block holds: INTERNAL, `prefix` and its first line; the lines after that are the traceback.
absl::Status ErrorOf(const BlockHeader& header, std::string_view prefix);
static_assert(sizeof(BlockHeader) == 4096 && offsetof(BlockHeader, call_seed) == 16 &&
              offsetof(BlockHeader, block_bytes) == 32 && offsetof(BlockHeader, error) == 64);

/// A picture of an environment: its height and width, two words, and from kPictureHead bytes on [height, width, 3]
/// bytes.
inline constexpr size_t kPictureHead = 64;
inline constexpr size_t kMostPictureBytes = size_t{3} * 2048 * 2048;

/// When callbacks beside an environment are called.
inline constexpr std::array<std::string_view, 3> kEpisodeHooks = {"on_episode_start", "on_episode_step",
                                                                  "on_episode_end"};
/// Bytes for an agent's last decision: the log-probability of its action (float), the length of its policy's id, the
/// id.
inline constexpr size_t kPlayerBytes = 76;
/// Of what the callbacks of an episode tracked: JSON.
inline constexpr size_t kTrackedBytes = size_t{1} << 15;

/// Where everything of an environment lies in its block: the same for every environment of a spec. Offsets in bytes
/// from the block's begin; rows as StepWriter wants them, so that an answer is copied once. Immutable value.
struct BlockLayout {
  /// `draws`: with a place for a picture; `watched`: with one for who plays, and what callbacks track.
  explicit BlockLayout(const env::EnvSpec& spec, bool draws = false, bool watched = false);

  nlohmann::json ToJson() const;

  struct Agent {
    size_t action = 0;
    size_t action_words = 0;
    size_t observation = 0;
    size_t observation_size = 0;  ///< elements
    bool observation_uint8 = false;
    size_t mask = 0;
    size_t mask_size = 0;  ///< 0 without mask
    size_t observation_bytes() const { return observation_size * (observation_uint8 ? 1 : sizeof(float)); }
  };
  std::vector<Agent> agents;
  size_t acts = 0;             ///< a byte an agent: it acts in this step
  size_t agent_flags = 0;      ///< a byte an agent
  size_t rewards = 0;          ///< a float an agent
  size_t infos = 0;            ///< [agents, columns] doubles, NaN where not given
  size_t state_size = 0;       ///< floats
  std::vector<size_t> states;  ///< none, one, or one an agent
  size_t picture = 0;          ///< kPictureHead + kMostPictureBytes
  bool draws = false;          ///< whether it has one
  size_t players = 0;          ///< kPlayerBytes an agent
  size_t tracked = 0;          ///< kTrackedBytes
  bool watched = false;        ///< whether it has both
  size_t block_bytes = 0;      ///< whole pages
};

}  // namespace troupe::envhost
