#include "lib/rpc/codec/fragment_codec.h"

#include <cstring>
#include <string>
#include <vector>

#include "lib/base/crc32c.h"
#include "lib/base/philox.h"
#include "lib/policy/policy_spec.h"
#include "lib/rpc/codec/fragment_columns.h"
#include "lib/rpc/transport/limits.h"
#include "lib/sample/columns.h"
#include "lib/sample/testing/batch_maker.h"
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using sample::MultiAgentBatch;
using sample::MultiAgentBatchPtr;

std::string Bytes(const grpc::ByteBuffer& buffer) {
  std::string bytes;
  const auto list = SliceList::From(buffer);
  for (const grpc::Slice& slice : list->slices())
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

void ExpectSameColumn(const sample::ColumnView& a, const sample::ColumnView& b, const char* name) {
  ASSERT_EQ(a.present(), b.present()) << name;
  if (!a.present()) return;
  EXPECT_EQ(a.dtype, b.dtype) << name;
  EXPECT_EQ(a.rows, b.rows) << name;
  EXPECT_EQ(a.row_elements, b.row_elements) << name;
  if (a.bytes() > 0) {
    EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes()), 0) << name;
  }
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data) % 64, 0u) << name;
}

/// Bits, as NaN stands for an agent that never appeared.
void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0) << i;
}

void ExpectSame(const MultiAgentBatch& a, const MultiAgentBatch& b) {
  EXPECT_EQ(a.grant, b.grant);
  EXPECT_EQ(a.iteration, b.iteration);
  EXPECT_EQ(a.num_env_steps, b.num_env_steps);
  EXPECT_EQ(a.num_agent_steps, b.num_agent_steps);
  EXPECT_EQ(a.last_of_grant, b.last_of_grant);
  EXPECT_EQ(a.env_rows, b.env_rows);
  EXPECT_EQ(a.final_env_rows, b.final_env_rows);
  ASSERT_EQ(a.episodes.size(), b.episodes.size());
  for (size_t i = 0; i < a.episodes.size(); ++i) {
    EXPECT_EQ(a.episodes[i].env_id, b.episodes[i].env_id);
    EXPECT_EQ(a.episodes[i].episode, b.episodes[i].episode);
    EXPECT_EQ(a.episodes[i].first_step, b.episodes[i].first_step);
    EXPECT_EQ(a.episodes[i].continues, b.episodes[i].continues);
    ASSERT_EQ(a.episodes[i].agents.size(), b.episodes[i].agents.size());
    for (size_t k = 0; k < a.episodes[i].agents.size(); ++k) {
      EXPECT_EQ(a.episodes[i].agents[k].slot, b.episodes[i].agents[k].slot);
      EXPECT_EQ(a.episodes[i].agents[k].policy, b.episodes[i].agents[k].policy);
    }
  }
  ASSERT_EQ(a.finished.size(), b.finished.size());
  for (size_t i = 0; i < a.finished.size(); ++i) {
    EXPECT_EQ(a.finished[i].env_id, b.finished[i].env_id);
    EXPECT_EQ(a.finished[i].episode, b.finished[i].episode);
    EXPECT_EQ(a.finished[i].length, b.finished[i].length);
    EXPECT_EQ(a.finished[i].policies, b.finished[i].policies);
    ExpectSameBits(a.finished[i].returns, b.finished[i].returns);
    ExpectSameBits(a.finished[i].infos, b.finished[i].infos);
    EXPECT_EQ(a.finished[i].trajectories, b.finished[i].trajectories);
  }
  for (const auto& field : kStepFields) ExpectSameColumn(a.*(field.view), b.*(field.view), field.name);
  ASSERT_EQ(a.policies.size(), b.policies.size());
  for (size_t i = 0; i < a.policies.size(); ++i) {
    EXPECT_EQ(a.policies[i].policy, b.policies[i].policy);
    EXPECT_EQ(a.policies[i].version, b.policies[i].version);
    EXPECT_EQ(a.policies[i].rows, b.policies[i].rows);
    EXPECT_EQ(a.policies[i].num_segments, b.policies[i].num_segments);
    EXPECT_EQ(a.policies[i].final_rows, b.policies[i].final_rows);
    EXPECT_EQ(a.policies[i].num_memories, b.policies[i].num_memories);
    for (const auto& field : kPolicyFields) {
      ExpectSameColumn(a.policies[i].*(field.view), b.policies[i].*(field.view), field.name);
    }
  }
}

/// A decoder as the server uses it.
class Receiver {
 public:
  explicit Receiver(const sample::BatchSchema& schema) : pool_(16 << 20), decoder_(schema, {}, &pool_) {}

  absl::StatusOr<MultiAgentBatchPtr> Receive(const SliceList& list) const {
    const auto split = SplitPayload(list, kMaxFieldsBytes);
    if (!split.ok()) return split.status();
    v1::WorkerMessage message;
    if (!message.ParseFromString(split->fields)) return absl::InvalidArgumentError("no WorkerMessage");
    if (!message.has_fragment()) return absl::InvalidArgumentError("no fragment");
    return decoder_.Decode(message.fragment(), *split, list);
  }
  absl::StatusOr<MultiAgentBatchPtr> Receive(const std::string& bytes) const {
    return Receive(SliceList({grpc::Slice(bytes)}));
  }
  const BufferPool& pool() const { return pool_; }

 private:
  BufferPool pool_;
  FragmentDecoder decoder_;
};

/// What any protobuf library makes of the message: the payload a field like others.
v1::WorkerMessage ParseWhole(const std::string& bytes) {
  v1::WorkerMessage message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  return message;
}

TEST(FragmentCodecTest, TrajectoriesOfAgentsThatReturnedGoAlong) {
  const sample::BatchSchema schema = sample::RandomSchema(1);
  MultiAgentBatch batch = *sample::RandomBatch(schema, 1, {3, 11});
  const size_t agents = schema.agent_ids.size();
  batch.finished.resize(1);
  batch.finished[0].length = 9;
  batch.finished.push_back(batch.finished[0]);
  batch.finished[1].trajectories.assign(agents, 3);
  const auto encoded = EncodeFragment(1, std::make_shared<MultiAgentBatch>(batch));
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  const auto decoded = Receiver(schema).Receive(*SliceList::From(encoded->message));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ((*decoded)->finished[0].trajectories, std::vector<int32_t>(agents, 1));
  EXPECT_EQ((*decoded)->finished[1].trajectories, std::vector<int32_t>(agents, 3));
}

TEST(FragmentCodecTest, RoundTripOfEverythingABatchCanHold) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const sample::BatchSchema random = sample::RandomSchema(seed);
    const sample::BatchSchema schema = seed % 2 == 0 ? random : sample::WithCores(random, seed);
    const MultiAgentBatchPtr batch = sample::RandomBatch(schema, seed, {3, 11});
    const auto encoded = EncodeFragment(seed + 1, batch);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    const auto list = SliceList::From(encoded->message);
    ASSERT_TRUE(list.ok());
    const auto decoded = Receiver(schema).Receive(*list);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ExpectSame(*batch, **decoded);
    EXPECT_TRUE(sample::ValidateBatch(**decoded, schema, {}).ok());
  }
}

// Bytes, not numbers: what the contents mean is nothing to the codec.
TEST(FragmentCodecTest, RoundTripOfEveryColumnOfTheTable) {
  const sample::BatchSchema schema = sample::FullSchema();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const MultiAgentBatchPtr batch = sample::RandomColumns(schema, seed);
    const auto encoded = EncodeFragment(seed + 1, batch);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    EXPECT_GE(encoded->payload_bytes, sample::ColumnBytes(*batch));
    const auto decoded = Receiver(schema).Receive(*SliceList::From(encoded->message));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ExpectSame(*batch, **decoded);
    for (const auto& column : sample::StepColumns()) EXPECT_GT(((**decoded).*column.member).bytes(), 0u) << column.name;
    ASSERT_FALSE((*decoded)->policies.empty());
    for (const auto& column : sample::PolicyColumns()) {
      EXPECT_GT(((*decoded)->policies[0].*column.member).bytes(), 0u) << column.name;
    }
  }
}

/// Names of the fields of a message that describe columns.
std::vector<std::string> HeaderColumnsOf(const google::protobuf::Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *message.field(i);
    if (field.cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (field.message_type() == v1::Column::descriptor()) names.push_back(field.name());
  }
  return names;
}

// The other way around a column of the table without a field does not compile.
TEST(FragmentCodecTest, EveryColumnOfAHeaderStandsInTheTable) {
  std::vector<std::string> table;
  for (const auto& column : sample::PolicyColumns()) table.emplace_back(column.name);
  EXPECT_EQ(HeaderColumnsOf(*v1::PolicyRows::descriptor()), table);
  table.clear();
  for (const auto& column : sample::StepColumns()) table.emplace_back(column.name);
  EXPECT_EQ(HeaderColumnsOf(*v1::Fragment::descriptor()), table);
}

TEST(FragmentCodecTest, TheMessageIsPlainProtobufWithAnAlignedPayload) {
  const sample::BatchSchema schema = sample::RandomSchema(3);
  const auto encoded = EncodeFragment(5, sample::RandomBatch(schema, 3));
  ASSERT_TRUE(encoded.ok());
  const v1::WorkerMessage message = ParseWhole(Bytes(encoded->message));
  EXPECT_EQ(message.fragment().sequence(), 5u);
  EXPECT_EQ(message.fragment().payload_bytes(), message.payload().size());
  EXPECT_EQ(message.payload().size() % 64, 0u);
  EXPECT_EQ(message.fragment().payload_crc32c(),
            base::Crc32cPortable(message.payload().data(), message.payload().size()));
  for (const v1::PolicyRows& rows : message.fragment().policies()) {
    EXPECT_EQ(rows.obs().offset() % 64, 0u);
    EXPECT_EQ(rows.action_logp().rows(), rows.rows());
  }
}

TEST(FragmentCodecTest, AcceptsWhatAnotherProtobufLibraryWrites) {
  const sample::BatchSchema schema = sample::RandomSchema(4);
  const MultiAgentBatchPtr batch = sample::RandomBatch(schema, 4);
  const std::string bytes = Bytes(EncodeFragment(1, batch)->message);
  const Receiver receiver(schema);
  // Serialized again from the parsed message: other varint lengths and field order are possible, the meaning is the
  // same.
  const auto again = receiver.Receive(ParseWhole(bytes).SerializeAsString());
  ASSERT_TRUE(again.ok()) << again.status();
  ExpectSame(*batch, **again);
  // Payload first.
  v1::WorkerMessage payload_only, rest = ParseWhole(bytes);
  payload_only.set_payload(rest.payload());
  rest.clear_payload();
  const auto reordered = receiver.Receive(payload_only.SerializeAsString() + rest.SerializeAsString());
  ASSERT_TRUE(reordered.ok()) << reordered.status();
  ExpectSame(*batch, **reordered);
}

TEST(FragmentCodecTest, BorrowsColumnsInsteadOfCopyingThem) {
  const sample::BatchSchema schema = sample::SimpleSchema();
  MultiAgentBatchPtr batch = sample::MakeBatch(schema, {}, 80, 25);
  const std::byte* obs = batch->policies[0].obs.data;
  std::weak_ptr<const MultiAgentBatch> watch = batch;
  auto encoded = EncodeFragment(1, batch);
  ASSERT_TRUE(encoded.ok());
  bool borrowed = false;
  const auto list = SliceList::From(encoded->message);
  for (const grpc::Slice& slice : list->slices()) borrowed |= reinterpret_cast<const std::byte*>(slice.begin()) == obs;
  EXPECT_TRUE(borrowed);
  batch.reset();
  EXPECT_FALSE(watch.expired());
}

TEST(FragmentCodecTest, ColumnsMayLieInAnyOrder) {
  const sample::BatchSchema schema = sample::SimpleSchema();
  const Receiver receiver(schema);
  v1::WorkerMessage message = ParseWhole(Bytes(EncodeFragment(1, sample::MakeBatch(schema, {}, 4, 25))->message));
  // Two columns of one size change places.
  v1::PolicyRows* const rows = message.mutable_fragment()->mutable_policies(0);
  const uint64_t rewards = rows->rewards().offset();
  rows->mutable_rewards()->set_offset(rows->action_logp().offset());
  rows->mutable_action_logp()->set_offset(rewards);
  const auto decoded = receiver.Receive(message.SerializeAsString());
  EXPECT_TRUE(decoded.ok()) << decoded.status();
}

TEST(FragmentCodecTest, RefusesToEncodeMoreThanAMessageHolds) {
  const sample::BatchSchema schema = sample::SimpleSchema(3, 1000);
  const auto encoded = EncodeFragment(1, sample::MakeBatch(schema, {}, 80, 25));
  EXPECT_EQ(encoded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(encoded.status().message().find("expected at most 4194304"), std::string::npos) << encoded.status();
}

// Each row: a way to break a valid fragment, and the words that must come back.
struct Hostile {
  const char* name;
  void (*spoil)(v1::WorkerMessage&);
  absl::StatusCode code;
  const char* words;
};

class HostileFragmentTest : public testing::TestWithParam<Hostile> {};

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

TEST_P(HostileFragmentTest, IsRefusedInWordsAndKeepsNothing) {
  const sample::BatchSchema schema = sample::SimpleSchema();
  const Receiver receiver(schema);
  v1::WorkerMessage message = ParseWhole(Bytes(EncodeFragment(1, sample::MakeBatch(schema, {}, 4, 25))->message));
  GetParam().spoil(message);
  const auto decoded = receiver.Receive(message.SerializeAsString());
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.status().code(), GetParam().code) << decoded.status();
  EXPECT_NE(decoded.status().message().find(GetParam().words), std::string::npos) << decoded.status();
  if (GetParam().code == kInvalid) {
    EXPECT_EQ(receiver.pool().idle_bytes(), 0u) << "a byte was kept before the shapes were checked";
  }
}

v1::PolicyRows* Rows(v1::WorkerMessage& m) { return m.mutable_fragment()->mutable_policies(0); }

INSTANTIATE_TEST_SUITE_P(
    All, HostileFragmentTest,
    testing::Values(
        Hostile{"FlippedPayload", [](v1::WorkerMessage& m) { (*m.mutable_payload())[77] ^= 1; },
                absl::StatusCode::kDataLoss, "CRC-32C"},
        Hostile{"OtherChecksum", [](v1::WorkerMessage& m) { m.mutable_fragment()->set_payload_crc32c(1); },
                absl::StatusCode::kDataLoss, "CRC-32C"},
        Hostile{"ShortPayload", [](v1::WorkerMessage& m) { m.mutable_payload()->resize(64); }, kInvalid,
                "its header says"},
        Hostile{"NoPayload", [](v1::WorkerMessage& m) { m.clear_payload(); }, kInvalid, "its header says"},
        Hostile{"HugePayload",
                [](v1::WorkerMessage& m) {
                  m.mutable_payload()->resize(kMaxPayloadBytes + 64);
                  m.mutable_fragment()->set_payload_bytes(m.payload().size());
                },
                kInvalid, "expected at most 4194304"},
        Hostile{"ColumnBehindTheEnd",
                [](v1::WorkerMessage& m) { Rows(m)->mutable_obs()->set_offset(m.payload().size()); }, kInvalid,
                "within the payload"},
        Hostile{"OffsetThatOverflows", [](v1::WorkerMessage& m) { Rows(m)->mutable_obs()->set_offset(~uint64_t{63}); },
                kInvalid, "within the payload"},
        Hostile{"OddOffset", [](v1::WorkerMessage& m) { Rows(m)->mutable_rewards()->set_offset(4); }, kInvalid,
                "multiple of 64"},
        Hostile{"RowsThatOverflow", [](v1::WorkerMessage& m) { Rows(m)->mutable_obs()->set_rows(int64_t{1} << 62); },
                kInvalid, "shape"},
        Hostile{"NegativeRows", [](v1::WorkerMessage& m) { Rows(m)->mutable_obs()->set_rows(-1); }, kInvalid, "shape"},
        Hostile{"NoElements", [](v1::WorkerMessage& m) { Rows(m)->mutable_obs()->set_row_elements(0); }, kInvalid,
                "shape"},
        Hostile{"OtherWidth",
                [](v1::WorkerMessage& m) {
                  Rows(m)->mutable_obs()->set_row_elements(9);
                  Rows(m)->mutable_obs()->set_rows(Rows(m)->rows());
                },
                kInvalid, "obs"},
        Hostile{"OtherDType", [](v1::WorkerMessage& m) { Rows(m)->mutable_obs()->set_dtype(v1::DTYPE_INT32); },
                kInvalid, "obs"},
        Hostile{"NoDType", [](v1::WorkerMessage& m) { Rows(m)->mutable_obs()->set_dtype(v1::DTYPE_UNSPECIFIED); },
                kInvalid, "dtype"},
        Hostile{"UnknownDType",
                [](v1::WorkerMessage& m) { Rows(m)->mutable_obs()->set_dtype(static_cast<v1::DType>(99)); }, kInvalid,
                "dtype"},
        Hostile{"OneColumnForTwo",
                [](v1::WorkerMessage& m) { Rows(m)->mutable_env_row()->set_offset(Rows(m)->segment().offset()); },
                kInvalid, "which column"},
        Hostile{"ColumnThatBeginsInAnother",
                [](v1::WorkerMessage& m) { Rows(m)->mutable_rewards()->set_offset(Rows(m)->obs().offset() + 64); },
                kInvalid, "expected columns that do not overlap"},
        Hostile{"TableInAColumn",
                [](v1::WorkerMessage& m) {
                  m.mutable_fragment()->mutable_step_index()->set_offset(Rows(m)->obs().offset());
                },
                kInvalid, "overlap"},
        Hostile{"RowsWithoutAStep", [](v1::WorkerMessage& m) { m.mutable_fragment()->set_num_env_steps(0); }, kInvalid,
                "num_env_steps is 0"},
        Hostile{"MissingColumn", [](v1::WorkerMessage& m) { Rows(m)->clear_rewards(); }, kInvalid, "rewards"},
        Hostile{"ExtraColumn", [](v1::WorkerMessage& m) { *Rows(m)->mutable_action_mask() = Rows(m)->actions(); },
                kInvalid, "action_mask"},
        Hostile{"UnknownPolicy", [](v1::WorkerMessage& m) { Rows(m)->set_policy_slot(7); }, kInvalid, "policy"},
        Hostile{"TwicePolicies",
                [](v1::WorkerMessage& m) { *m.mutable_fragment()->add_policies() = m.fragment().policies(0); },
                kInvalid, "policies"},
        Hostile{"NegativeCount", [](v1::WorkerMessage& m) { m.mutable_fragment()->set_env_rows(-5); }, kInvalid,
                "env_rows"},
        Hostile{"RaggedEpisodes", [](v1::WorkerMessage& m) { m.mutable_fragment()->mutable_episodes()->add_env_id(1); },
                kInvalid, "episodes.episode"},
        Hostile{
            "AgentsThatAreNotThere",
            [](v1::WorkerMessage& m) { m.mutable_fragment()->mutable_episodes()->set_num_agents(0, 4'000'000'000u); },
            kInvalid, "sum of num_agents"},
        Hostile{"RaggedFinished",
                [](v1::WorkerMessage& m) { m.mutable_fragment()->mutable_finished()->add_returns(1); }, kInvalid,
                "finished.returns"},
        Hostile{"RaggedTrajectories",
                [](v1::WorkerMessage& m) { m.mutable_fragment()->mutable_finished()->add_trajectories(1); }, kInvalid,
                "finished.trajectories"},
        Hostile{"FieldsBeyondTheLimit",
                [](v1::WorkerMessage& m) {
                  m.mutable_fragment()->mutable_episodes()->mutable_agent_slot()->Resize(2'000'000, 1);
                },
                kInvalid, "beside its payload"}),
    [](const testing::TestParamInfo<Hostile>& info) { return std::string(info.param.name); });

// What a fragment says of memories, and what the run's policies have.
TEST(FragmentCodecTest, MemoriesThatAreNotDueAreRefusedAndSoAreMissingOnes) {
  const sample::BatchSchema plain = sample::SimpleSchema(2, 4);
  sample::BatchSchema remembers = plain;
  remembers.policies[policy::PolicySlot(0)].actor.core = {policy::CoreKind::kGru, 3, 1};
  remembers.policies[policy::PolicySlot(0)].sequence_length = 4;
  const auto encode = [](const sample::BatchSchema& schema) {
    return ParseWhole(Bytes(EncodeFragment(1, sample::MakeBatch(schema, {}, 2, 30))->message));
  };
  const auto refused = [](const sample::BatchSchema& schema, const v1::WorkerMessage& message) {
    const absl::Status status = Receiver(schema).Receive(message.SerializeAsString()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  v1::WorkerMessage message = encode(remembers);
  EXPECT_TRUE(Receiver(remembers).Receive(message.SerializeAsString()).ok());
  const int64_t num_memories = Rows(message)->num_memories();
  EXPECT_GT(num_memories, Rows(message)->num_segments()) << "sequences that begin inside of segments";
  EXPECT_THAT(refused(plain, message), testing::HasSubstr("policy 'shared': num_memories is "));
  EXPECT_THAT(refused(remembers, encode(plain)), testing::HasSubstr("policy 'shared': num_memories is 0, expected "));
  Rows(message)->set_num_memories(num_memories - 1);
  EXPECT_THAT(refused(remembers, message), testing::HasSubstr("policy 'shared': column 'memory' is float32["));
  Rows(message)->set_num_memories(num_memories);
  Rows(message)->clear_memory_at();
  EXPECT_THAT(refused(remembers, message), testing::HasSubstr("policy 'shared': column 'memory_at' is absent"));
}

// So that a build that knows no cores understands every fragment of a policy without.
TEST(FragmentCodecTest, AFragmentWithoutACoreSaysNothingOfMemories) {
  const sample::BatchSchema schema = sample::SimpleSchema(2, 4);
  const v1::WorkerMessage message = ParseWhole(Bytes(EncodeFragment(1, sample::MakeBatch(schema, {}, 2, 3))->message));
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message.fragment().policies(0).GetReflection()->ListFields(message.fragment().policies(0), &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) EXPECT_LE(field->number(), 21) << field->name();
}

TEST(FragmentCodecTest, EveryTruncationIsRefused) {
  const sample::BatchSchema schema = sample::SimpleSchema(2, 4);
  const Receiver receiver(schema);
  const std::string bytes = Bytes(EncodeFragment(1, sample::MakeBatch(schema, {}, 2, 3))->message);
  for (size_t length = 0; length < bytes.size(); ++length) {
    ASSERT_FALSE(receiver.Receive(bytes.substr(0, length)).ok()) << length << " of " << bytes.size();
  }
  ASSERT_TRUE(receiver.Receive(bytes).ok());
}

TEST(FragmentCodecTest, NoBitFlipCrashesAndNoneInThePayloadPasses) {
  const sample::BatchSchema schema = sample::SimpleSchema(2, 4);
  const Receiver receiver(schema);
  const MultiAgentBatchPtr batch = sample::MakeBatch(schema, {}, 2, 3);
  const std::string bytes = Bytes(EncodeFragment(1, batch)->message);
  const size_t payload_begin = bytes.size() - EncodeFragment(1, batch)->payload_bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = bytes;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      const auto decoded = receiver.Receive(flipped);
      if (i >= payload_begin) {
        ASSERT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss) << i;
      }
      // A flip in the tables may still be a valid fragment; then its contents must be safe to look at.
      if (decoded.ok()) sample::ValidateBatch(**decoded, schema, {}).IgnoreError();
    }
  }
}

// Refused by the decoder, refused by the rules of a batch, or a fragment like any other: one that can be sent on.
TEST(FragmentCodecTest, RandomGarbageInTheHeaderIsRefusedOrSafe) {
  const sample::BatchSchema schema = sample::RandomSchema(1);
  const Receiver receiver(schema);
  const std::string bytes = Bytes(EncodeFragment(1, sample::RandomBatch(schema, 1))->message);
  const size_t header_bytes = bytes.size() - EncodeFragment(1, sample::RandomBatch(schema, 1))->payload_bytes;
  base::PhiloxSequence random(base::PhiloxKey::Make(11, base::RandomStream::kTest), {0, 0, 0, 0});
  int refused = 0, broken = 0, whole = 0;
  for (int trial = 0; trial < 5000; ++trial) {
    std::string spoiled = bytes;
    const int edits = 1 + static_cast<int>(random() % 8);
    for (int i = 0; i < edits; ++i) spoiled[random() % header_bytes] = static_cast<char>(random());
    const auto decoded = receiver.Receive(spoiled);
    if (!decoded.ok()) {
      ++refused;
      EXPECT_TRUE(absl::IsInvalidArgument(decoded.status()) || absl::IsDataLoss(decoded.status())) << decoded.status();
    } else if (const absl::Status status = sample::ValidateBatch(**decoded, schema, {}); !status.ok()) {
      ++broken;
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    } else {
      ++whole;
      const auto again = receiver.Receive(Bytes(EncodeFragment(1, *decoded)->message));
      ASSERT_TRUE(again.ok()) << again.status();
      ExpectSame(**decoded, **again);
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(broken, 10);
  EXPECT_GT(whole, 100);
}

}  // namespace
}  // namespace troupe::rpc
