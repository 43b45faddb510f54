#include "lib/rpc/codec/table_codec.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/policy/policy_entry.h"
#include "lib/policy/testing.h"
#include "lib/rpc/transport/slices.h"
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

policy::PolicyTablePtr Table(int policies) {
  std::vector<policy::PolicySpec> specs;
  for (int i = 0; i < policies; ++i) {
    specs.push_back(policy::SmallSpecForTesting());
    specs.back().id = policy::PolicyId(absl::StrCat("policy_with_quite_a_long_name_", i));
  }
  const policy::MappingRule rule{"*", {{specs[0].id, 1.0}}};
  return *policy::PolicyTable::Make(std::move(specs), std::vector<bool>(static_cast<size_t>(policies), true), {rule},
                                    {"agent"});
}

policy::PolicyTablePtr Frozen(const policy::PolicyTablePtr& table) {
  return *table->SetTrains(table->Find(policy::PolicySlot(0))->spec.id, false);
}

std::vector<v1::PolicyTable> Chunks(TableEncoder& encoder, const policy::PolicyTablePtr& table) {
  std::vector<v1::PolicyTable> chunks;
  const TableEncoder::Messages messages = *encoder.Encode(table);
  for (const grpc::ByteBuffer& bytes : *messages) {
    const auto list = SliceList::From(bytes);
    SliceInputStream stream(*list);
    v1::LearnerMessage message;
    EXPECT_TRUE(message.ParseFromZeroCopyStream(&stream));
    EXPECT_TRUE(message.has_policy_table());
    EXPECT_LE(message.policy_table().json().size(), kTableChunkBytes);
    chunks.push_back(message.policy_table());
  }
  return chunks;
}

TEST(TableCodecTest, RoundTripInOneChunkAndInMany) {
  TableEncoder encoder;
  for (const int policies : {1, 1024}) {
    const policy::PolicyTablePtr table = Frozen(Table(policies));
    TableAssembler assembler;
    const std::vector<v1::PolicyTable> chunks = Chunks(encoder, table);
    for (size_t i = 0; i < chunks.size(); ++i) {
      const auto got = assembler.Add(chunks[i]);
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_EQ(*got != nullptr, i + 1 == chunks.size());
      if (*got != nullptr) {
        EXPECT_EQ(policy::ToJson(**got), policy::ToJson(*table));
      }
    }
    if (policies == 1024) {
      EXPECT_GT(chunks.size(), 1u);
    }
  }
}

TEST(TableCodecTest, EncodedOnceForAll) {
  TableEncoder encoder;
  const policy::PolicyTablePtr table = Frozen(Table(2));
  const auto first = encoder.Encode(table);
  EXPECT_EQ(*encoder.Encode(table), *first);
  const policy::PolicyTablePtr newer = *table->SetTrains(policy::PolicyId("policy_with_quite_a_long_name_1"), false);
  EXPECT_NE(*encoder.Encode(newer), *first);
}

TEST(TableCodecTest, RefusesWhatIsNotTheProtocol) {
  TableEncoder encoder;
  const policy::PolicyTablePtr table = Frozen(Table(2));
  const v1::PolicyTable good = Chunks(encoder, table)[0];
  const auto code = [](const v1::PolicyTable& chunk) {
    TableAssembler assembler;
    return assembler.Add(chunk).status().code();
  };
  EXPECT_EQ(code(good), absl::StatusCode::kOk);
  v1::PolicyTable bad = good;
  bad.set_total_bytes(uint64_t{1} << 62);
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument) << "before memory is taken";
  bad.set_total_bytes(policy::kMaxPolicyTableBytes + 1);
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad.set_total_bytes(0);
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad.set_total_bytes(good.total_bytes() - 1);
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument) << "more than announced";
  bad = good;
  bad.set_offset(64);
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.set_revision(0);
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument) << "the start's is not sent";
  bad.set_revision(2);
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument) << "another one inside";
  bad = good;
  (*bad.mutable_json())[0] = 'x';
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.clear_json();
  EXPECT_EQ(code(bad), absl::StatusCode::kInvalidArgument);
}

TEST(TableCodecTest, RevisionsGrow) {
  TableEncoder encoder;
  const policy::PolicyTablePtr one = Frozen(Table(2));
  const policy::PolicyTablePtr two = *one->SetTrains(policy::PolicyId("policy_with_quite_a_long_name_1"), false);
  TableAssembler assembler;
  ASSERT_TRUE(assembler.Add(Chunks(encoder, two)[0]).ok());
  EXPECT_EQ(assembler.Add(Chunks(encoder, one)[0]).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(assembler.Add(Chunks(encoder, two)[0]).status().code(), absl::StatusCode::kInvalidArgument)
      << "the same one again, whatever is in it";
}

TEST(TableCodecTest, AnotherTableInTheMiddleIsAnError) {
  TableEncoder encoder;
  const std::vector<v1::PolicyTable> large = Chunks(encoder, Frozen(Table(1024)));
  TableAssembler assembler;
  ASSERT_TRUE(assembler.Add(large[0]).ok());
  EXPECT_EQ(assembler.Add(large[0]).status().code(), absl::StatusCode::kInvalidArgument);
  v1::PolicyTable other = large[1];
  other.set_revision(9);
  EXPECT_EQ(assembler.Add(other).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe::rpc
