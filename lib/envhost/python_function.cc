#include "lib/envhost/python_function.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/envhost/python_functions.h"

namespace troupe::envhost {
namespace {

constexpr size_t kPage = 4096;

}  // namespace

PythonFunction::PythonFunction(nlohmann::json what, size_t payload_bytes)
    : what_(std::move(what)), block_bytes_((sizeof(BlockHeader) + payload_bytes + kPage - 1) / kPage * kPage) {}

absl::Status PythonFunction::Attach(PythonFunctions& functions) {
  if (process_ != nullptr && !process_->dead()) return absl::OkStatus();
  process_ = nullptr;
  made_ = false;
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<HostProcess> process, functions.Process());
  TROUPE_ASSIGN_OR_RETURN(slot_, process->AcquireSlot(block_bytes_, what_));
  process_ = std::move(process);
  return absl::OkStatus();
}

absl::Status PythonFunction::Call(PythonFunctions& functions, absl::FunctionRef<void(Block)> fill,
                                  absl::FunctionRef<absl::Status(Block)> read) {
  base::MutexLock lock(&mutex_);
  absl::Status status = Attach(functions);
  if (status.ok()) {
    const Block block = {*slot_.block, reinterpret_cast<std::byte*>(slot_.block) + sizeof(BlockHeader)};
    fill(block);
    const absl::StatusOr<HostProcess::Ticket> ticket = process_->Post(slot_, RequestKind::kCall, /*makes=*/!made_);
    status = ticket.ok() ? process_->Await(*ticket) : ticket.status();
    if (status.ok() && block.header.status == static_cast<uint32_t>(AnswerStatus::kOk)) {
      made_ = true;
      status = read(block);
      if (status.ok()) return status;
      functions.CountError(/*raised=*/false, /*bad_output=*/true);
      return status;
    }
    if (status.ok()) {
      const bool raised = block.header.status == static_cast<uint32_t>(AnswerStatus::kFailed);
      functions.CountError(raised, !raised);
      const size_t bytes = std::min<size_t>(block.header.error_bytes, sizeof(block.header.error));
      return absl::InternalError(std::string(block.header.error, bytes));
    }
  }
  functions.CountError(/*raised=*/false, /*bad_output=*/false);
  return status;
}

}  // namespace troupe::envhost
