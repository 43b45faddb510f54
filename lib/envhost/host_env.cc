#include "lib/envhost/host_env.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/base/traceback.h"
#include "lib/env/canvas.h"

namespace troupe::envhost {

HostEnv::HostEnv(std::shared_ptr<HostPool> pool, std::shared_ptr<const HostPool::Kind> kind, int seat)
    : pool_(std::move(pool)), kind_(std::move(kind)), layout_(*kind_->layout), seat_(seat) {}

HostEnv::~HostEnv() {
  if (process_ != nullptr) process_->ReleaseSlot(slot_);
}

absl::Status HostEnv::Reset(const env::EpisodeSeed& seed, env::StepWriter& out) {
  TROUPE_RETURN_IF_ERROR(StartReset(seed));
  return Finish(out);
}

absl::Status HostEnv::Step(env::ActionRows actions, env::StepWriter& out) {
  TROUPE_RETURN_IF_ERROR(StartStep(actions));
  return Finish(out);
}

absl::Status HostEnv::Attach() {
  if (process_ != nullptr && !process_->dead()) return absl::OkStatus();
  process_ = nullptr;
  made_ = false;
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<HostProcess> process, pool_->ProcessFor(seat_));
  TROUPE_ASSIGN_OR_RETURN(slot_, process->AcquireSlot(layout_.block_bytes));
  process_ = std::move(process);
  return absl::OkStatus();
}

absl::Status HostEnv::StartReset(const env::EpisodeSeed& seed) {
  absl::Status status = Attach();
  if (!status.ok()) return Lose(std::move(status));
  pool_->TendIdle();
  slot_.block->seed = seed.ResetSeed();
  slot_.block->env_index = seed.env_id.value();
  slot_.block->callbacks = layout_.watched && !pool_->tracks_->off() ? 1 : 0;
  return Post(RequestKind::kReset);
}

absl::Status HostEnv::StartStep(env::ActionRows actions) {
  if (process_ == nullptr || process_->dead()) {
    return Lose(absl::UnavailableError(
        absl::StrCat("its Python process ended",
                     process_ == nullptr ? "" : absl::StrCat(": ", std::string(process_->death().message())))));
  }
  uint8_t* acts = At<uint8_t>(layout_.acts);
  for (size_t i = 0; i < layout_.agents.size(); ++i) {
    const BlockLayout::Agent& agent = layout_.agents[i];
    acts[i] = actions[i] != nullptr ? 1 : 0;
    if (actions[i] == nullptr) continue;
    std::memcpy(At<std::byte>(agent.action), actions[i], agent.action_words * sizeof(space::ActionWord));
  }
  return Post(RequestKind::kStep);
}

absl::Status HostEnv::Post(RequestKind kind) {
  is_step_ = kind == RequestKind::kStep;
  absl::StatusOr<HostProcess::Ticket> ticket = process_->Post(slot_, kind, /*makes=*/!made_);
  if (!ticket.ok()) return Lose(ticket.status());
  ticket_ = *ticket;
  return absl::OkStatus();
}

absl::Status HostEnv::Finish(env::StepWriter& out) {
  absl::Status status = process_->Await(ticket_);
  if (!status.ok()) return Lose(std::move(status));
  if (slot_.block->status != static_cast<uint32_t>(AnswerStatus::kOk)) return ReadError();
  made_ = true;
  ReadAnswer(out);
  return absl::OkStatus();
}

absl::Status HostEnv::Lose(absl::Status status) {
  pool_->counters_.errors.fetch_add(1, std::memory_order_relaxed);
  if (process_ == nullptr || !process_->dead()) return status;
  const bool blamed = BlameCallbacks();
  process_ = nullptr;
  return base::WithCallbackBlamed(std::move(status), blamed);
}

bool HostEnv::BlameCallbacks() {
  // Every environment of the process loses its episode by it, not only the one whose callback it was.
  const uint32_t hook = layout_.watched ? process_->callback_in_progress() : 0;
  if (hook == 0) return false;
  pool_->tracks_->TurnOff(
      absl::StrCat(std::string(kEpisodeHooks[hook - 1]),
                   ": the process that it was called in ended: ", std::string(process_->death().message())));
  return true;
}

void HostEnv::NoteDecision(env::AgentSlot slot, std::string_view policy, float log_prob) {
  if (!layout_.watched || process_ == nullptr) return;
  uint8_t* const player = At<uint8_t>(layout_.players + static_cast<size_t>(slot.value()) * kPlayerBytes);
  std::memcpy(player, &log_prob, sizeof(log_prob));
  uint8_t* const id = player + sizeof(log_prob);
  const size_t bytes = std::min(policy.size(), kPlayerBytes - sizeof(log_prob) - 1);
  id[0] = static_cast<uint8_t>(bytes);
  std::memcpy(id + 1, policy.data(), bytes);
}

void HostEnv::NoteEnd() {
  if (!layout_.watched || process_ == nullptr || process_->dead() || slot_.block->callbacks == 0) return;
  slot_.block->callback_bytes = 0;
  const absl::StatusOr<HostProcess::Ticket> ticket = process_->Post(slot_, RequestKind::kEpisodeEnd, /*makes=*/false);
  if (!ticket.ok() || !process_->Await(*ticket).ok()) {
    // The episode is whole: who asks next is told that the process has ended.
    BlameCallbacks();
    return;
  }
  const size_t bytes = std::min<size_t>(slot_.block->callback_bytes, kTrackedBytes);
  pool_->tracks_->Take(std::string_view(At<char>(layout_.tracked), bytes));
}

absl::Status HostEnv::ReadError() {
  made_ = false;  // it was closed
  HostPool::Counters& counters = pool_->counters_;
  counters.errors.fetch_add(1, std::memory_order_relaxed);
  const bool raised = slot_.block->status == static_cast<uint32_t>(AnswerStatus::kFailed);
  (raised ? counters.exceptions : counters.bad_outputs).fetch_add(1, std::memory_order_relaxed);
  return ErrorOf(*slot_.block, is_step_ ? "step: " : "reset: ");
}

absl::Status HostEnv::Draw(env::Canvas& canvas) const {
  if (!layout_.draws) {
    return absl::UnimplementedError(absl::StrCat(spec().name, " was made without what it takes to draw it"));
  }
  if (process_ == nullptr || process_->dead()) return absl::UnavailableError("its Python process ended");
  // The first picture may open a library and its fonts.
  TROUPE_ASSIGN_OR_RETURN(const HostProcess::Ticket ticket,
                          process_->Post(slot_, RequestKind::kPicture, /*makes=*/true));
  TROUPE_RETURN_IF_ERROR(process_->Await(ticket));
  if (slot_.block->status != static_cast<uint32_t>(AnswerStatus::kOk)) return ErrorOf(*slot_.block, "render: ");
  const uint32_t height = At<uint32_t>(layout_.picture)[0];
  const uint32_t width = At<uint32_t>(layout_.picture)[1];
  if (height < 1 || width < 1 || height > kMostPictureBytes || uint64_t{height} * width * 3 > kMostPictureBytes) {
    return absl::InternalError(absl::StrCat("render: a picture of ", height, " x ", width, "; expected at most ",
                                            kMostPictureBytes, " bytes"));
  }
  const absl::Span<const uint8_t> rgb(At<uint8_t>(layout_.picture + kPictureHead), size_t{height} * width * 3);
  canvas.View(0, 0, width, height);
  canvas.Image({0, 0}, {static_cast<double>(width), static_cast<double>(height)}, static_cast<int>(width),
               static_cast<int>(height), rgb);
  return absl::OkStatus();
}

void HostEnv::ReadAnswer(env::StepWriter& out) const {
  const uint8_t* flags = At<uint8_t>(layout_.agent_flags);
  const float* rewards = At<float>(layout_.rewards);
  const uint32_t all = slot_.block->flags;
  const env::EnvSpec& spec = kind_->spec;
  const size_t columns = spec.info_columns.size();
  if (spec.state_kind == env::StateKind::kPerEnv && (all & kHasEnvState) != 0) {
    std::memcpy(out.State(env::AgentSlot(0)), At<float>(layout_.states[0]), layout_.state_size * sizeof(float));
  }
  for (size_t i = 0; i < layout_.agents.size(); ++i) {
    const BlockLayout::Agent& agent = layout_.agents[i];
    const env::AgentSlot slot(static_cast<int32_t>(i));
    const uint8_t flag = flags[i];
    const float reward = rewards[i];
    if (reward != 0.0f) out.AddReward(slot, reward);
    if ((flag & kObserved) != 0) {
      std::memcpy(out.Observe(slot), At<std::byte>(agent.observation), agent.observation_bytes());
      if ((flag & kHasMask) != 0 && agent.mask_size != 0) {
        std::memcpy(out.ActionMask(slot), At<uint8_t>(agent.mask), agent.mask_size);
      }
      if ((flag & kHasState) != 0 && spec.state_kind == env::StateKind::kPerAgent) {
        std::memcpy(out.State(slot), At<float>(layout_.states[i]), layout_.state_size * sizeof(float));
      }
      if ((flag & kInactive) != 0) out.SetAgentMask(slot, false);
    }
    if ((flag & kTerminated) != 0) {
      out.TerminateAgent(slot);
    } else if ((flag & kTruncated) != 0) {
      out.TruncateAgent(slot);
    }
    if ((flag & kHasInfo) == 0) continue;
    for (size_t column = 0; column < columns; ++column) {
      const double value = At<double>(layout_.infos)[i * columns + column];
      if (!std::isnan(value)) out.SetInfo(slot, static_cast<int>(column), value);
    }
  }
  if ((all & kAllTerminated) != 0) {
    out.TerminateAll();
  } else if ((all & kAllTruncated) != 0) {
    out.TruncateAll();
  }
}

}  // namespace troupe::envhost
