#include "lib/envhost/python_actor.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lib/base/status_macros.h"
#include "lib/base/traceback.h"
#include "lib/policy/policy_spec.h"

namespace troupe::envhost {
namespace {

constexpr size_t kCacheLine = 64;

size_t Aligned(size_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

}  // namespace

PythonActor::Layout::Layout(const policy::PolicySpec& spec)
    : obs_bytes(static_cast<size_t>(spec.observation_size()) *
                tensor::ElementBytes(spec.observation_space.flat_dtype())),
      mask_size(static_cast<size_t>(spec.mask_size())),
      action_words(static_cast<size_t>(spec.action_words())) {
  const size_t row_bytes = sizeof(inference::RowKey) + obs_bytes + mask_size + action_words * sizeof(space::ActionWord);
  rows = std::clamp<int64_t>(static_cast<int64_t>(PythonFunctions::kMaxBatchBytes / row_bytes), 1,
                             PythonFunctions::kMaxRows);
  const auto count = static_cast<size_t>(rows);
  obs = Aligned(count * sizeof(inference::RowKey));
  mask = obs + Aligned(count * obs_bytes);
  actions = mask + Aligned(count * mask_size);
  payload_bytes = actions + Aligned(count * action_words * sizeof(space::ActionWord));
}

nlohmann::json PythonActor::Layout::ToJson(const policy::PolicySpec& spec, const std::string& function) const {
  return {{"policy", function},
          {"policy_id", spec.id.value()},
          {"observation_space", spec.observation_space.ToString()},
          {"action_space", spec.action_space.ToString()},
          {"rows", rows},
          {"keys", keys},
          {"obs", obs},
          {"mask", mask},
          {"mask_size", mask_size},
          {"actions", actions}};
}

PythonActor::PythonActor(std::shared_ptr<PythonFunctions> functions, std::shared_ptr<PythonFunction> function,
                         const policy::PolicySpec& spec, const Layout& layout, uint64_t seed)
    : functions_(std::move(functions)), function_(std::move(function)), spec_(spec), layout_(layout), seed_(seed) {}

absl::Status PythonActor::Named(const absl::Status& status) const {
  if (status.ok()) return status;
  const absl::Status named(status.code(),
                           absl::StrCat("policy \"", spec_.id.value(), "\": ", std::string(status.message())));
  return base::WithTraceback(named, base::TracebackOf(status));
}

absl::Status PythonActor::Prepare() { return Named(function_->Make(*functions_)); }

absl::Status PythonActor::SetWeights(policy::WeightSnapshotPtr /*weights*/) {
  return absl::FailedPreconditionError(absl::StrCat("policy \"", spec_.id.value(), "\" is of class ",
                                                    spec_.policy_class.ToString(), ", which has no weights"));
}

absl::Status PythonActor::Act(const inference::ActInput& input, space::ActionWord* actions, float* logp) {
  if (input.rows == 0) return absl::OkStatus();
  TROUPE_RETURN_IF_ERROR(inference::CheckHasMask(spec_, input));
  for (int64_t first = 0; first < input.rows; first += layout_.rows) {
    TROUPE_RETURN_IF_ERROR(Named(ActFor(input, first, std::min(layout_.rows, input.rows - first), actions)));
  }
  std::fill_n(logp, input.rows, 0.0f);
  return absl::OkStatus();
}

absl::Status PythonActor::ActFor(const inference::ActInput& input, int64_t first, int64_t rows,
                                 space::ActionWord* actions) {
  const auto begin = static_cast<size_t>(first), count = static_cast<size_t>(rows);
  space::ActionWord* const out = actions + begin * layout_.action_words;
  return function_->Call(
      *functions_,
      [&](PythonFunction::Block block) {
        block.header.call_seed = seed_;
        block.header.call_count = static_cast<uint32_t>(rows);
        block.header.call_deterministic = input.deterministic ? 1 : 0;
        std::memcpy(block.payload + layout_.keys, input.keys + begin, count * sizeof(inference::RowKey));
        std::memcpy(block.payload + layout_.obs, static_cast<const std::byte*>(input.obs) + begin * layout_.obs_bytes,
                    count * layout_.obs_bytes);
        if (layout_.mask_size == 0) return;
        std::memcpy(block.payload + layout_.mask, input.action_mask + begin * layout_.mask_size,
                    count * layout_.mask_size);
      },
      [&](PythonFunction::Block block) -> absl::Status {
        std::memcpy(out, block.payload + layout_.actions, count * layout_.action_words * sizeof(space::ActionWord));
        for (size_t row = 0; row < count; ++row) {
          const absl::Span<const space::ActionWord> action(out + row * layout_.action_words, layout_.action_words);
          const absl::Status status = spec_.action_space.ContainsAction(action);
          if (!status.ok()) {
            const inference::RowKey& key = input.keys[begin + row];
            return absl::InternalError(
                absl::StrCat(spec_.policy_class.ToString(), ", env ", key.env_id.value(), ", episode ", key.episode,
                             ", step ", key.env_step, ", agent slot ", key.slot.value(),
                             ": made an action outside its space: ", std::string(status.message())));
          }
        }
        return absl::OkStatus();
      });
}

}  // namespace troupe::envhost
