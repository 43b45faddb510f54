#include "lib/rpc/codec/table_codec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/transport/convert.h"

namespace troupe::rpc {

absl::StatusOr<std::vector<v1::PolicyTable>> TableChunks(const policy::PolicyTable& table) {
  const std::string json = policy::ToJson(table, policy::TableReader::kWorker);
  if (json.size() > policy::kMaxPolicyTableBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the policy table of revision ", table.revision(), " has ",
                                                     json.size(), " bytes, expected at most ",
                                                     policy::kMaxPolicyTableBytes));
  }
  std::vector<v1::PolicyTable> chunks;
  for (size_t offset = 0; offset < json.size(); offset += kTableChunkBytes) {
    v1::PolicyTable& chunk = chunks.emplace_back();
    chunk.set_revision(table.revision());
    chunk.set_total_bytes(json.size());
    chunk.set_offset(offset);
    chunk.set_json(json.substr(offset, kTableChunkBytes));
  }
  return chunks;
}

absl::StatusOr<TableEncoder::Messages> TableEncoder::Encode(const policy::PolicyTablePtr& table) {
  {
    base::MutexLock lock(&mutex_);
    if (table == newest_) return messages_;
  }
  TROUPE_ASSIGN_OR_RETURN(std::vector<v1::PolicyTable> chunks, TableChunks(*table));
  auto messages = std::make_shared<std::vector<grpc::ByteBuffer>>();
  for (v1::PolicyTable& chunk : chunks) {
    v1::LearnerMessage message;
    message.mutable_policy_table()->Swap(&chunk);
    messages->push_back(Serialize(message));
  }
  policy::PolicyTablePtr replaced = table;  // destroyed outside the lock
  Messages made = std::move(messages);
  Messages older = made;
  base::MutexLock lock(&mutex_);
  if (newest_ == nullptr || newest_->revision() <= table->revision()) {
    newest_.swap(replaced);
    messages_.swap(older);
  }
  return made;
}

absl::StatusOr<policy::PolicyTablePtr> TableAssembler::Add(const v1::PolicyTable& chunk) {
  if (!receiving_ || chunk.offset() == 0) {
    if (chunk.offset() != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("policy table: a first chunk at byte ", chunk.offset(), ", expected 0"));
    }
    if (receiving_ || chunk.revision() <= revision_) {
      return absl::InvalidArgumentError(absl::StrCat("policy table: revision ", chunk.revision(), " after ", revision_,
                                                     receiving_ ? ", which is not complete" : "",
                                                     ", expected a higher one"));
    }
    if (chunk.total_bytes() < 1 || chunk.total_bytes() > policy::kMaxPolicyTableBytes) {
      return absl::InvalidArgumentError(absl::StrCat("policy table of revision ", chunk.revision(), ": ",
                                                     chunk.total_bytes(), " bytes, expected 1 to ",
                                                     policy::kMaxPolicyTableBytes));
    }
    revision_ = chunk.revision();
    total_bytes_ = chunk.total_bytes();
    receiving_ = true;
    json_.clear();
  }
  if (chunk.revision() != revision_ || chunk.total_bytes() != total_bytes_ || chunk.offset() != json_.size() ||
      chunk.json().empty() || chunk.json().size() > total_bytes_ - json_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("policy table of revision ", revision_, ": a chunk of revision ",
                                                   chunk.revision(), " with ", chunk.json().size(), " bytes at byte ",
                                                   chunk.offset(), ", expected the rest from byte ", json_.size()));
  }
  json_.append(chunk.json());
  if (json_.size() < total_bytes_) return policy::PolicyTablePtr();
  receiving_ = false;
  TROUPE_ASSIGN_OR_RETURN(policy::PolicyTablePtr table, policy::PolicyTableFromJson(std::exchange(json_, {})));
  if (table->revision() != revision_) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy table: revision ", table->revision(), " inside, but its chunks say ", revision_));
  }
  return table;
}

}  // namespace troupe::rpc
