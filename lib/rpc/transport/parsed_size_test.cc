#include "lib/rpc/transport/parsed_size.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/rpc/codec/fragment_columns.h"
#include "lib/rpc/transport/limits.h"
#include "proto/troupe/v1/control.pb.h"
#include "proto/troupe/v1/query.pb.h"
#include "proto/troupe/v1/rollout.pb.h"
#include "proto/troupe/v1/weights.pb.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

using testing::HasSubstr;

/// `piece` again and again, up to the size of a message.
std::string Flood(const std::string& piece, size_t bytes = kMaxMessageBytes) {
  std::string flood;
  flood.reserve(bytes);
  while (flood.size() + piece.size() <= bytes) flood += piece;
  return flood;
}

template <typename Message>
absl::Status Read(const std::string& bytes, const ParsedLimit& limit = kAnswerLimit) {
  Message message;
  const absl::Status read = ParseBounded(bytes, limit, &message);
  if (absl::IsResourceExhausted(read)) {
    EXPECT_EQ(message.ByteSizeLong(), 0u) << "something was made of it";
  }
  return read;
}

/// A field of a number and a wire type, up to 15.
std::string Tag(int number, int wire) { return std::string(1, static_cast<char>(number << 3 | wire)); }

TEST(ParsedSizeTest, WhatTakesManyTimesItsBytesIsRefusedUnread) {
  const std::string empty(1, '\0');
  struct Case {
    const char* what;
    absl::Status status;
  };
  for (const auto& [what, status] : {
           Case{"rows of a query", Read<v1::ComputeActionsRequest>(Flood(Tag(1, 2) + empty))},
           Case{"slots, unpacked", Read<v1::QueryRows>(Flood(Tag(6, 0) + empty))},
           Case{"slots, packed", Read<v1::QueryRows>(Tag(6, 2) + "\x80\x80\xc0\x02" + std::string(5 << 20, '\0'))},
           Case{"empty ids", Read<v1::DescribePoliciesRequest>(Flood(Tag(1, 2) + empty))},
           Case{"ids of a change", Read<v1::PolicyIdsRequest>(Flood(Tag(1, 2) + empty))},
           Case{"unknown numbers", Read<v1::DrainRequest>(Flood(Tag(9, 0) + empty))},
           Case{"unknown texts", Read<v1::DrainRequest>(Flood(Tag(9, 2) + empty))},
           Case{"a number as a text", Read<v1::Lane>(Flood(Tag(1, 2) + empty))},
           Case{"a text as a number", Read<v1::DrainRequest>(Flood(Tag(1, 0) + empty))},
           Case{"policies of a fragment", Read<v1::Fragment>(Flood(Tag(11, 2) + empty, kMaxFieldsBytes))},
           Case{"unknown texts of a request", Read<v1::SubscribeRequest>(Flood(Tag(15, 2) + empty, kMaxFieldsBytes))},
           Case{"environments of a grant", Read<v1::Grant>(Flood(Tag(5, 2) + empty), kLearnerMessageLimit)},
       }) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << what << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("bytes would take more than ")) << what;
  }
}

TEST(ParsedSizeTest, WhatProgramsOfOursSendIsRead) {
  v1::ComputeActionsRequest query;
  for (int i = 0; i < 1024; ++i) {
    v1::QueryRows* const rows = query.add_policies();
    rows->set_policy_id(std::string(64, 'p'));
    rows->set_obs(std::string(5000, '\x7f'));
    rows->set_action_mask(std::string(4, '\1'));
    rows->add_agent_slots(1023);
    rows->set_state_in(std::string(4, '\1'));
  }
  ASSERT_LE(query.ByteSizeLong(), kMaxMessageBytes);
  EXPECT_TRUE(Read<v1::ComputeActionsRequest>(query.SerializeAsString(), kActionQueryLimit).ok());

  v1::Grant grant;
  for (uint32_t env = 0; env < 400000; ++env) {
    v1::Lane* const lane = grant.add_lanes();
    lane->set_env_id(env);
    lane->set_next_episode(env);
    lane->set_env_steps(25);
  }
  ASSERT_LE(grant.ByteSizeLong(), kMaxMessageBytes);
  EXPECT_TRUE(Read<v1::Grant>(grant.SerializeAsString(), kLearnerMessageLimit).ok());

  v1::WorkerMessage message;
  v1::Fragment* const fragment = message.mutable_fragment();
  for (int slot = 0; slot < 1024; ++slot) {
    v1::PolicyRows* const rows = fragment->add_policies();
    rows->set_policy_slot(slot);
    rows->mutable_version()->set_n(1 << 30);
    for (const auto& field : kPolicyFields) {
      v1::Column* const column = (rows->*(field.mutable_column))();
      column->set_rows(1 << 20);
      column->set_row_elements(1);
      column->set_offset(1 << 21);
    }
    for (int agent = 0; agent < 150; ++agent) fragment->mutable_episodes()->add_agent_slot(agent);
  }
  ASSERT_LE(message.ByteSizeLong(), kMaxFieldsBytes);
  EXPECT_TRUE(Read<v1::WorkerMessage>(message.SerializeAsString(), kWorkerMessageLimit).ok());
}

TEST(ParsedSizeTest, WhatHasTooManyPartsIsRefusedHoweverShortItIs) {
  const std::string empty(1, '\0');
  // What each limit lets pass is what programs of ours send at most, above; a part more is refused.
  struct Case {
    const char* what;
    std::string part;
    ParsedLimit limit;
    absl::Status (*read)(const std::string&, const ParsedLimit&);
  };
  for (const auto& [what, part, limit, read] : {
           Case{"unknown texts before Hello", Tag(14, 2) + empty, kHelloLimit, Read<v1::WorkerMessage>},
           Case{"unknown numbers before Hello", Tag(13, 0) + empty, kHelloLimit, Read<v1::WorkerMessage>},
           Case{"Hellos", Tag(1, 2) + empty, kHelloLimit, Read<v1::WorkerMessage>},
           Case{"Fragments", Tag(2, 2) + empty, kWorkerMessageLimit, Read<v1::WorkerMessage>},
           Case{"incidents", Tag(4, 2) + empty, kWorkerMessageLimit, Read<v1::Heartbeat>},
           Case{"ids", Tag(3, 2) + empty, kSubscriptionLimit, Read<v1::SubscribeRequest>},
           Case{"rows", Tag(1, 2) + empty, kActionQueryLimit, Read<v1::ComputeActionsRequest>},
           Case{"policies", Tag(1, 2) + empty, kDescriptionQueryLimit, Read<v1::DescribePoliciesRequest>},
       }) {
    ASSERT_LT(limit.max_parts, size_t{100000}) << what;
    std::string parts;
    for (size_t i = 0; i < limit.max_parts; ++i) parts += part;
    EXPECT_EQ(read(parts, limit), absl::OkStatus()) << what;
    const absl::Status status = read(parts + part, limit);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << what << ": " << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("has more than ", limit.max_parts, " elements and texts")))
        << what;
  }
}

TEST(ParsedSizeTest, WhatIsNoMessageIsRefusedInWords) {
  v1::ComputeActionsRequest query;
  query.add_policies()->set_obs(std::string(kShortMessageBytes, 'x'));
  const std::string whole = query.SerializeAsString();
  ASSERT_TRUE(Read<v1::ComputeActionsRequest>(whole).ok());
  for (const std::string& broken : {whole.substr(0, whole.size() - 1), whole + '\x0a', whole + "\x0b\x0c",
                                    std::string("\xff"), std::string(1 << 20, '\xff'), Flood(Tag(1, 3) + Tag(1, 4))}) {
    const absl::Status status = Read<v1::ComputeActionsRequest>(broken);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("bytes that are no ComputeActionsRequest"));
  }
  // An element that says more than there is.
  EXPECT_FALSE(Read<v1::ComputeActionsRequest>(Flood("\x0a\xff\xff\xff\x07")).ok());
}

TEST(ParsedSizeTest, BytesInManyPiecesAreReadAsOne) {
  v1::ComputeActionsRequest query;
  query.add_policies()->set_obs(std::string(3 * kShortMessageBytes, 'x'));
  const std::string whole = query.SerializeAsString();
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < whole.size(); at += 7) slices.emplace_back(whole.substr(at, 7));
  v1::ComputeActionsRequest read;
  ASSERT_TRUE(ParseBounded(grpc::ByteBuffer(slices.data(), slices.size()), kAnswerLimit, &read).ok());
  EXPECT_EQ(read.SerializeAsString(), whole);
}

}  // namespace
}  // namespace troupe::rpc
