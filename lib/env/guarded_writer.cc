#include "lib/env/guarded_writer.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/env/env_rule.h"

namespace troupe::env {
namespace {

constexpr uint8_t kGuard = 0xA5;

constexpr const char* kRowNames[] = {"observation", "action mask", "state"};
constexpr EnvRule kRowRules[] = {EnvRule::kObservationValue, EnvRule::kActionMask, EnvRule::kState};

}  // namespace

GuardedWriter::GuardedWriter(const EnvSpec& spec) : spec_(spec) {
  for (const AgentSpec& agent : spec.possible_agents) {
    const bool bytes = agent.observation_space.flat_dtype() == tensor::DType::kUint8;
    const size_t size = static_cast<size_t>(agent.observation_space.flat_size());
    rows_[kObservation].push_back(Row{.bytes = bytes ? size : size * sizeof(float)});
    rows_[kMask].push_back(Row{.bytes = static_cast<size_t>(agent.action_space.mask_size())});
    rows_[kState].push_back(Row{.bytes = static_cast<size_t>(spec.state_space.flat_size()) * sizeof(float)});
  }
  for (std::vector<Row>& rows : rows_) {
    for (Row& row : rows) row.memory.assign(row.bytes + 2 * kGuardBytes, kGuard);
  }
}

GuardedWriter::~GuardedWriter() = default;

StepWriter& GuardedWriter::Begin(StepWriter& out) {
  out_ = &out;
  for (std::vector<Row>& rows : rows_) {
    for (Row& row : rows) row.target = nullptr;
  }
  return *this;
}

absl::Status GuardedWriter::End() {
  absl::Status first;
  for (int kind = 0; kind < kKinds; ++kind) {
    for (size_t slot = 0; slot < rows_[kind].size(); ++slot) {
      absl::Status status = Close(rows_[kind][slot], static_cast<Kind>(kind), slot);
      if (first.ok()) first = std::move(status);
    }
  }
  return first;
}

void* GuardedWriter::Observe(AgentSlot slot) { return HandOut(Find(kObservation, slot), out_->Observe(slot)); }

uint8_t* GuardedWriter::ActionMask(AgentSlot slot) {
  return static_cast<uint8_t*>(HandOut(Find(kMask, slot), out_->ActionMask(slot)));
}

float* GuardedWriter::State(AgentSlot slot) {
  const AgentSlot row = spec_.state_kind == StateKind::kPerEnv ? AgentSlot(0) : slot;
  return static_cast<float*>(HandOut(Find(kState, row), out_->State(slot)));
}

GuardedWriter::Row* GuardedWriter::Find(Kind kind, AgentSlot slot) {
  const bool there = slot.value() >= 0 && static_cast<size_t>(slot.value()) < rows_[kind].size();
  return there ? &rows_[kind][static_cast<size_t>(slot.value())] : nullptr;
}

void* GuardedWriter::HandOut(Row* row, void* target) {
  if (row == nullptr) return target;
  // Asked for again, it is the same row, with what was written.
  if (row->target != target) std::memcpy(row->memory.data() + kGuardBytes, target, row->bytes);
  row->target = static_cast<uint8_t*>(target);
  return row->memory.data() + kGuardBytes;
}

absl::Status GuardedWriter::Close(Row& row, Kind kind, size_t slot) {
  if (row.target == nullptr) return absl::OkStatus();
  std::memcpy(row.target, row.memory.data() + kGuardBytes, row.bytes);
  const auto begin = row.memory.begin();
  const auto end = row.memory.end();
  const auto is_guard = [](uint8_t byte) { return byte == kGuard; };
  const bool before = !std::all_of(begin, begin + kGuardBytes, is_guard);
  const bool after = !std::all_of(end - kGuardBytes, end, is_guard);
  if (!before && !after) return absl::OkStatus();
  std::fill(begin, begin + kGuardBytes, kGuard);
  std::fill(end - kGuardBytes, end, kGuard);
  return WithEnvRule(absl::InternalError(absl::StrCat("agent ", base::LogSafe(spec_.possible_agents[slot].id.value()),
                                                      " wrote ", before ? "before" : "beyond", " its ", kRowNames[kind],
                                                      " row of ", row.bytes, " bytes")),
                     kRowRules[kind]);
}

}  // namespace troupe::env
