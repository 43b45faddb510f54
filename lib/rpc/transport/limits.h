#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace troupe::rpc {

/// The protocol this build speaks (proto/troupe/v1/common.proto).
constexpr uint32_t kProtocolMajor = 2;
constexpr uint32_t kProtocolMinor = 0;

/// Bounds of one message: column bytes, and everything else together. gRPC refuses what is larger before it is kept.
constexpr size_t kMaxPayloadBytes = size_t{4} << 20;
constexpr size_t kMaxFieldsBytes = size_t{1} << 20;
constexpr size_t kMaxMessageBytes = kMaxPayloadBytes + kMaxFieldsBytes;
/// What a message may become once it is parsed.
struct ParsedLimit {
  size_t max_bytes = 0;  ///< in memory; at least 8 MiB
  /// Parts: messages in it, texts, packed lists, and fields that this build does not know. Each takes an allocation and
  /// its time, and two bytes on the wire.
  size_t max_parts = SIZE_MAX;
};

/// ... of each kind: as much as the largest that a program of ours sends.
constexpr size_t kMaxParsedBytes = size_t{16} << 20;
constexpr ParsedLimit kAnswerLimit{kMaxParsedBytes};                  ///< of a learner to a client, and of its own user
constexpr ParsedLimit kLearnerMessageLimit{2 * kMaxParsedBytes};      ///< a Grant of 400,000 environments
constexpr ParsedLimit kHelloLimit{kMaxParsedBytes, 16};               ///< whatever comes before Hello was accepted
constexpr ParsedLimit kWorkerMessageLimit{kMaxParsedBytes, 20480};    ///< a Fragment of 1024 policies of 18 parts
constexpr ParsedLimit kSubscriptionLimit{kMaxParsedBytes, 1040};      ///< 1024 policies by id
constexpr ParsedLimit kActionQueryLimit{kMaxParsedBytes, 10264};      ///< 1024 rows of 9 parts, with an agent's id each
constexpr ParsedLimit kEpisodeLimit{kMaxParsedBytes, 10264};          ///< 1024 agents of 9 parts
constexpr ParsedLimit kDescriptionQueryLimit{kMaxParsedBytes, 1040};  ///< 1024 ids
/// A WeightUpdate carries at most so much of a policy.
constexpr size_t kWeightChunkBytes = size_t{2} << 20;
/// Largest policy a subscriber accepts (elements are checked against the spec before memory is taken).
constexpr size_t kMaxWeightBytes = size_t{1} << 32;

/// Texts from outside. Ids have limits of their own (policy::ValidatePolicyId).
constexpr size_t kMaxReasonBytes = 256;      ///< of a drain, a goodbye: what is longer is cut
constexpr size_t kMaxErrorBytes = 16384;     ///< of a peer's status: what is longer is cut
constexpr size_t kMaxWorkerNameBytes = 128;  ///< of Hello
constexpr size_t kMaxPathBytes = 4096;       ///< a file, or a class or function that is named with one
/// Checkpoints that a prune may be asked to keep, as many as experiment.keep_checkpoints.
constexpr int64_t kMaxKeptCheckpoints = 1'000'000;

/// What a worker keeps for a learner that does not acknowledge, whatever credit that gives, and lets it have waiting:
/// fragments (their learner would not take one further ahead), their bytes, grants, environments in them, and different
/// policy tables that they go by.
constexpr size_t kMaxUnackedFragments = 1024;
constexpr int64_t kMaxUnackedBytes = int64_t{64} << 20;
constexpr size_t kMaxWaitingGrants = 4096;
constexpr size_t kMaxWaitingLanes = size_t{1} << 20;
constexpr size_t kMaxWaitingTables = 16;
// The configuration in Welcome has config::kMaxConfigBytes at most, as any.

/// The one table of lib/rpc's time-outs.
constexpr absl::Duration kHandshakeTimeout = absl::Seconds(10);   ///< transport handshake, and from there to Hello
constexpr absl::Duration kKeepaliveInterval = absl::Seconds(20);  ///< HTTP/2 ping after so long without traffic
constexpr absl::Duration kKeepaliveTimeout = absl::Seconds(10);   ///< ... and the answer it waits for
constexpr absl::Duration kMinPingInterval = absl::Seconds(10);    ///< a server calls faster pings abuse
constexpr absl::Duration kHeartbeatInterval = absl::Seconds(2);   ///< what Welcome asks of workers
constexpr absl::Duration kMinHeartbeatInterval = absl::Milliseconds(100);  ///< ... and may ask, as a worker hears it
constexpr absl::Duration kMaxHeartbeatInterval = absl::Seconds(10);
constexpr absl::Duration kUnaryDeadline = absl::Seconds(10);       ///< Control calls but Checkpoint
constexpr absl::Duration kCheckpointDeadline = absl::Seconds(60);  ///< Control.Checkpoint waits for the disk

/// Streams of one connection. A worker has one on each of its two connections.
constexpr int kMaxConcurrentStreams = 64;
/// Streams of queries at once, those of one address, or by Unix sockets, among them, and how long each may
/// be without a request.
constexpr int64_t kMaxQueryStreams = 4096;
constexpr int64_t kMaxQueryStreamsOfAddress = 2560;
constexpr absl::Duration kQueryStreamIdle = absl::Minutes(5);
/// A request of server reflection: names of a file or a symbol and of a host, of 255 characters at most in honest ones.
constexpr size_t kMaxReflectionRequestBytes = 4096;
/// What clients of worlds outside are given of policies: all files together, a piece of them, calls at once, those of
/// one address of the network among them, and how long an answer may lie unread.
constexpr size_t kMaxPolicyFilesBytes = size_t{64} << 20;
constexpr size_t kPolicyPieceBytes = size_t{1} << 20;
constexpr int64_t kMaxPolicyCalls = 16;
constexpr int64_t kMaxPolicyCallsOfAddress = kMaxPolicyCalls / 2;
constexpr absl::Duration kPolicyCallPatience = absl::Seconds(10);
/// Workers at once.
constexpr size_t kMaxWorkers = 1024;
/// Memory that all connections of a server together may take for reading.
constexpr size_t kServerMemoryBytes = size_t{256} << 20;

}  // namespace troupe::rpc
