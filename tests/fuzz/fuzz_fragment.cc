// A WorkerMessage with a fragment, as it comes from a worker that nobody vouches for: cut into slices anywhere, taken
// apart, decoded, checked. What is accepted must encode again to what decodes to the same.
//
// Input: a byte of which bit 0 says that header and payload come apart (the header with its length before it) and that
// lengths and checksum are put right, since a mutation would hardly ever get beyond them; bits 1 to 3 into how many
// slices the message is cut, bits 4 to 7 which schema the run has (from 12 on one with cores). Then the message.

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/check.h"
#include "lib/base/crc32c.h"
#include "lib/learner/checked_fragment.h"
#include "lib/rpc/codec/fragment_codec.h"
#include "lib/rpc/transport/buffer_pool.h"
#include "lib/rpc/transport/limits.h"
#include "lib/sample/columns.h"
#include "lib/sample/testing/batch_maker.h"
#include "tests/fuzz/fuzz_input.h"

namespace troupe {
namespace {

using rpc::SliceList;
using rpc::SplitMessage;

const sample::BatchSchema& Schema(uint64_t seed) {
  static const auto schemas = [] {
    std::array<sample::BatchSchema, 16> made;
    for (size_t i = 0; i < made.size(); ++i) {
      made[i] = i < 12 ? sample::RandomSchema(i) : sample::WithCores(sample::RandomSchema(i), i);
    }
    return made;
  }();
  return schemas[seed % schemas.size()];
}

/// The message of a header and a payload that come apart.
std::string PutTogether(std::string_view fields, std::string_view payload) {
  v1::WorkerMessage message;
  if (message.ParseFromArray(fields.data(), static_cast<int>(fields.size())) && message.has_fragment()) {
    message.mutable_fragment()->set_payload_bytes(payload.size());
    message.mutable_fragment()->set_payload_crc32c(base::Crc32c(payload.data(), payload.size()));
  }
  message.set_payload(payload.data(), payload.size());
  return message.SerializeAsString();
}

SliceList Cut(std::string_view bytes, size_t slices) {
  std::vector<grpc::Slice> cut;
  for (size_t i = 0; i < slices; ++i) {
    const size_t begin = bytes.size() * i / slices;
    const size_t end = bytes.size() * (i + 1) / slices;
    cut.emplace_back(bytes.data() + begin, end - begin);
  }
  return SliceList(std::move(cut));
}

absl::StatusOr<sample::MultiAgentBatchPtr> Decode(const SliceList& list, const rpc::FragmentDecoder& decoder,
                                                  uint64_t* sequence) {
  const absl::StatusOr<SplitMessage> split = rpc::SplitPayload(list, rpc::kMaxFieldsBytes);
  if (!split.ok()) return split.status();
  v1::WorkerMessage message;
  if (!message.ParseFromString(split->fields)) return absl::InvalidArgumentError("no WorkerMessage");
  if (!message.has_fragment()) return absl::InvalidArgumentError("no fragment");
  *sequence = message.fragment().sequence();
  return decoder.Decode(message.fragment(), *split, list);
}

void ExpectSameAfterRoundTrip(uint64_t sequence, const sample::MultiAgentBatchPtr& batch,
                              const rpc::FragmentDecoder& decoder) {
  const absl::StatusOr<rpc::EncodedFragment> encoded = rpc::EncodeFragment(sequence, batch);
  TROUPE_CHECK(encoded.ok());
  const absl::StatusOr<SliceList> list = SliceList::From(encoded->message);
  TROUPE_CHECK(list.ok());
  uint64_t again_sequence = 0;
  const absl::StatusOr<sample::MultiAgentBatchPtr> again = Decode(*list, decoder, &again_sequence);
  TROUPE_CHECK(again.ok());
  TROUPE_CHECK(again_sequence == sequence);
  TROUPE_CHECK((*again)->num_env_steps == batch->num_env_steps);
  TROUPE_CHECK((*again)->policies.size() == batch->policies.size());
  for (size_t p = 0; p < batch->policies.size(); ++p) {
    const sample::PolicyRows& got = (*again)->policies[p];
    const sample::PolicyRows& sent = batch->policies[p];
    TROUPE_CHECK(got.rows == sent.rows && got.num_memories == sent.num_memories);
    for (const auto& column : sample::PolicyColumns()) {
      const size_t bytes = (sent.*column.member).bytes();
      TROUPE_CHECK((got.*column.member).bytes() == bytes);
      TROUPE_CHECK(bytes == 0 || std::memcmp((got.*column.member).data, (sent.*column.member).data, bytes) == 0);
    }
  }
}

}  // namespace
}  // namespace troupe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace troupe;
  fuzz::FuzzInput input(data, size);
  const uint8_t how = input.Byte();
  const sample::BatchSchema& schema = Schema(how >> 4);
  rpc::BufferPool pool(size_t{1} << 20);
  const rpc::FragmentDecoder decoder(schema, {}, &pool);
  uint64_t sequence = 0;
  std::string message;
  if ((how & 1) != 0) {
    const std::string_view fields = input.Part();
    message = PutTogether(fields, input.Rest());
  } else {
    message = input.Rest();
  }
  const absl::StatusOr<sample::MultiAgentBatchPtr> batch =
      Decode(Cut(message, 1 + ((how >> 1) & 7)), decoder, &sequence);
  if (!batch.ok()) return 0;
  const learner::CheckedFragment checked = learner::CheckFragment(*batch, schema, {});
  if (checked.status.ok()) ExpectSameAfterRoundTrip(sequence, *batch, decoder);
  return 0;
}
