#include "lib/envhost/python_function.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/envhost/python_functions.h"

namespace troupe::envhost {

PythonFunction::PythonFunction(const nlohmann::json& what, size_t payload_bytes)
    : what_(what.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)),
      payload_bytes_(payload_bytes),
      block_bytes_((sizeof(BlockHeader) + std::max(payload_bytes, what_.size()) + kBlockAlignment - 1) /
                   kBlockAlignment * kBlockAlignment) {}

absl::Status PythonFunction::Request(PythonFunctions& functions, RequestKind kind) {
  absl::StatusOr<HostProcess::Ticket> ticket = process_->Post(slot_, kind, /*makes=*/kind == RequestKind::kMake);
  const absl::Status status = ticket.ok() ? process_->Await(*ticket) : ticket.status();
  if (!status.ok()) {
    functions.CountError(/*raised=*/false, /*bad_output=*/false);
    return status;
  }
  const BlockHeader& header = *slot_.block;
  if (header.status == static_cast<uint32_t>(AnswerStatus::kOk)) return status;
  const bool raised = header.status == static_cast<uint32_t>(AnswerStatus::kFailed);
  functions.CountError(raised, !raised);
  return ErrorOf(header, "");
}

absl::Status PythonFunction::Attach(PythonFunctions& functions) {
  if (process_ == nullptr || process_->dead()) {
    process_ = nullptr;
    made_ = false;
    absl::StatusOr<std::shared_ptr<HostProcess>> process = functions.Process();
    absl::StatusOr<HostProcess::Slot> slot = process.ok() ? (*process)->AcquireSlot(block_bytes_) : process.status();
    if (!slot.ok()) {
      functions.CountError(/*raised=*/false, /*bad_output=*/false);
      return slot.status();
    }
    slot_ = *slot;
    process_ = *std::move(process);
  }
  if (made_) return absl::OkStatus();
  std::memcpy(block().payload, what_.data(), what_.size());
  slot_.block->call_count = static_cast<uint32_t>(what_.size());
  TROUPE_RETURN_IF_ERROR(Request(functions, RequestKind::kMake));
  made_ = true;
  return absl::OkStatus();
}

absl::Status PythonFunction::Make(PythonFunctions& functions) {
  base::MutexLock lock(&mutex_);
  const PythonFunctions::Call call(&functions);
  TROUPE_RETURN_IF_ERROR(call.status());
  return Attach(functions);
}

absl::Status PythonFunction::Call(PythonFunctions& functions, absl::FunctionRef<void(Block)> fill,
                                  absl::FunctionRef<absl::Status(Block)> read) {
  base::MutexLock lock(&mutex_);
  const PythonFunctions::Call call(&functions);
  TROUPE_RETURN_IF_ERROR(call.status());
  TROUPE_RETURN_IF_ERROR(Attach(functions));
  fill(block());
  TROUPE_RETURN_IF_ERROR(Request(functions, RequestKind::kCall));
  const absl::Status status = read(block());
  if (!status.ok()) functions.CountError(/*raised=*/false, /*bad_output=*/true);
  return status;
}

absl::Status PythonFunction::CallText(PythonFunctions& functions, const Question& question,
                                      absl::FunctionRef<absl::Status(std::string_view answer)> read) {
  if (question.text.size() > payload_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat("the question has ", question.text.size(), " bytes (",
                                                   std::string(question.has), "), expected at most ", payload_bytes_));
  }
  return Call(
      functions,
      [&question](Block block) {
        std::memcpy(block.payload, question.text.data(), question.text.size());
        block.header.call_count = static_cast<uint32_t>(question.text.size());
        block.header.call_seed = question.seed;
      },
      [this, read](Block block) {
        const size_t bytes = std::min<size_t>(block.header.call_count, payload_bytes_);
        return read(std::string_view(reinterpret_cast<const char*>(block.payload), bytes));
      });
}

}  // namespace troupe::envhost
