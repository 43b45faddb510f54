#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "lib/base/mutex.h"
#include "lib/envhost/host_process.h"
#include "lib/envhost/shared_layout.h"
#include "lib/policy/ids.h"
#include <nlohmann/json.hpp>

namespace troupe::envhost {

class PythonFunctions;

/// One function and its block in the process, wherever that is now. Owned by PythonFunctions, which outlives every
/// call. Thread-safe: calls take turns.
class PythonFunction {
 public:
  /// What a call may use. The payload is what follows the header.
  struct Block {
    BlockHeader& header;
    std::byte* payload;
  };

  /// A request that is a text.
  struct Question {
    std::string_view text;
    std::string_view has;  ///< of what it may be long, for the error
    uint64_t seed = 0;
  };

  /// `what` tells the process what to make; as text it fits the payload.
  PythonFunction(const nlohmann::json& what, size_t payload_bytes);

  /// Has it made in the process, if that was not done yet. Errors are PythonFunctions'.
  absl::Status Make(PythonFunctions& functions);
  /// Has `fill` write the request, the process answer it, and `read` take the answer. Errors are PythonFunctions', and
  /// what `read` says.
  absl::Status Call(PythonFunctions& functions, absl::FunctionRef<void(Block)> fill,
                    absl::FunctionRef<absl::Status(Block)> read);
  /// The same with text in and text out; `read` borrows the answer. INVALID_ARGUMENT: the question does not fit the
  /// payload, and the process is not asked.
  absl::Status CallText(PythonFunctions& functions, const Question& question,
                        absl::FunctionRef<absl::Status(std::string_view answer)> read);

 private:
  /// A place in the process that lives, with the function made.
  absl::Status Attach(PythonFunctions& functions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// One request and its answer.
  absl::Status Request(PythonFunctions& functions, RequestKind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Block block() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return {*slot_.block, reinterpret_cast<std::byte*>(slot_.block) + sizeof(BlockHeader)};
  }

  const std::string what_;
  const size_t payload_bytes_;
  const size_t block_bytes_;
  base::Mutex mutex_;
  std::shared_ptr<HostProcess> process_ ABSL_GUARDED_BY(mutex_);
  HostProcess::Slot slot_ ABSL_GUARDED_BY(mutex_);
  bool made_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace troupe::envhost
