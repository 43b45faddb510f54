// Messages of the Weights stream, as they come from whoever answers at a learner's address. A snapshot that is accepted
// has the size that its policy asks for and finite numbers.
//
// Input: a byte of which bit 0 says that the checksum of the first message is put right, bit 1 that the policy
// normalizes its observations; then messages, each with its length before it.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/check.h"
#include "lib/base/crc32c.h"
#include "lib/policy/parameter_layout.h"
#include "lib/policy/testing.h"
#include "lib/rpc/codec/weight_codec.h"
#include "proto/troupe/v1/weights.pb.h"
#include "tests/fuzz/fuzz_input.h"

namespace troupe {
namespace {

policy::PolicySpec Spec(bool normalizes) {
  policy::PolicySpec spec = policy::SmallSpecForTesting();
  spec.normalize_observations = normalizes;
  return spec;
}

grpc::ByteBuffer Buffer(std::string_view bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size());
  return grpc::ByteBuffer(&slice, 1);
}

/// The checksum that the first message would need for the payloads of all.
void PutRight(std::vector<std::string>* messages) {
  if (messages->empty()) return;
  uint32_t crc = 0;
  v1::WeightUpdate update;
  for (const std::string& message : *messages) {
    if (update.ParseFromString(message)) crc = base::Crc32c(update.payload().data(), update.payload().size(), crc);
  }
  if (!update.ParseFromString(messages->front())) return;
  update.set_crc32c(crc);
  messages->front() = update.SerializeAsString();
}

}  // namespace
}  // namespace troupe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace troupe;
  static const auto quiet = google::protobuf::SetLogHandler(nullptr);  // a line for each broken text, else
  (void)quiet;
  fuzz::FuzzInput input(data, size);
  const uint8_t how = input.Byte();
  const policy::PolicySpec spec = Spec((how & 2) != 0);
  std::vector<std::string> messages;
  while (!input.empty()) messages.emplace_back(input.Part());
  if ((how & 1) != 0) PutRight(&messages);
  rpc::WeightAssembler assembler(std::make_shared<rpc::SlotPolicies>(policy::BySlot<policy::PolicySpec>{spec}));
  for (const std::string& message : messages) {
    const auto update = assembler.Add(Buffer(message));
    if (!update.ok()) return 0;  // the stream would end
    if (!update->has_value() || (*update)->snapshot == nullptr) continue;
    const policy::WeightSnapshot& snapshot = *(*update)->snapshot;
    TROUPE_CHECK((*update)->slot == policy::PolicySlot(0));
    TROUPE_CHECK(static_cast<int64_t>(snapshot.actor.size()) == policy::ParameterLayout::For(spec).acting_size());
    for (const float number : snapshot.actor) TROUPE_CHECK(std::isfinite(number));
  }
  return 0;
}
