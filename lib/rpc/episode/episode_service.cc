#include "lib/rpc/episode/episode_service.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "lib/base/clock.h"
#include "lib/base/hidden_order.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/episode/episode_codec.h"
#include "lib/rpc/transport/caller.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/limits.h"
#include "lib/rpc/transport/parsed_size.h"
#include "lib/rpc/transport/transport.h"

namespace troupe::rpc {
namespace {

using outside::StepKind;

/// Beside UNAVAILABLE, for clients that know it: the run has ended in order. Before the answer.
void TellEnd(grpc::CallbackServerContext& context, const absl::Status& status) {
  if (outside::SaysRunEnded(status)) context.AddTrailingMetadata("troupe-run", "ended");
}

/// A step that waits for its actions. It owns itself until gRPC is done with it.
class StepReactor final : public grpc::ServerUnaryReactor {
 public:
  StepReactor(outside::EpisodeBook& book, grpc::CallbackServerContext& context, std::string episode_id, StepKind kind,
              const outside::StepReport& report, grpc::ByteBuffer* reply)
      : book_(book), episode_id_(std::move(episode_id)) {
    const uint64_t call =
        book_.Act(episode_id_, kind, report,
                  [this, &context, kind, reply](absl::StatusOr<std::vector<outside::AgentAction>> actions) {
                    if (actions.ok() && kind == StepKind::kGetActions) *reply = Serialize(ToProto(*actions));
                    if (actions.ok() && kind == StepKind::kLogActions) {
                      v1::LogActionsReply logged;
                      logged.set_weights(book_.acting().number());
                      *reply = Serialize(logged);
                    }
                    TellEnd(context, actions.status());
                    base::HandOver(this);
                    Finish(ToGrpc(actions.status()));
                  });
    call_ = call;
    base::HandOver(this);
  }

  /// The client has gone, or its deadline has passed. gRPC calls this only after the constructor has returned, and
  /// before OnDone.
  void OnCancel() override {
    const base::Reaction reaction(this);
    book_.GiveUp(episode_id_, call_);
  }
  void OnDone() override {
    base::TakeOver(this);
    delete this;
  }

 private:
  outside::EpisodeBook& book_;
  const std::string episode_id_;
  uint64_t call_ = 0;
};

/// A piece of files on its way, which takes memory until its client has read it.
class PieceReactor final : public grpc::ServerUnaryReactor, public ServedStream {
 public:
  /// `answer` is already in `reply`.
  static PieceReactor* Start(PolicyFiles* files, StreamRegistry* unread, grpc::CallbackServerContext* context,
                             std::string host, absl::Duration now) {
    auto reactor = std::make_shared<PieceReactor>(files, unread, context, std::move(host), now);
    unread->Add(reactor);
    PieceReactor* const started = reactor.get();
    base::HandOver(started);
    started->Finish(grpc::Status::OK);
    return started;
  }
  PieceReactor(PolicyFiles* files, StreamRegistry* unread, grpc::CallbackServerContext* context, std::string host,
               absl::Duration now)
      : files_(*files), unread_(*unread), host_(std::move(host)), since_(now), context_(context) {}

  void End(const absl::Status& /*status*/) override {}  // it has its answer
  void CheckProgress(absl::Duration now) override {
    base::MutexLock lock(&mutex_);
    if (context_ != nullptr && now - since_ >= kPolicyCallPatience) context_->TryCancel();
  }
  void OnDone() override {
    base::TakeOver(this);
    {
      base::MutexLock lock(&mutex_);
      context_ = nullptr;
    }
    files_.Leave(host_);
    unread_.Remove(this);  // the last of this
  }

 private:
  PolicyFiles& files_;
  StreamRegistry& unread_;
  const std::string host_;
  const absl::Duration since_;
  base::Mutex mutex_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mutex_);
};

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context, const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  TellEnd(context, status);
  reactor->Finish(ToGrpc(status));
  return reactor;
}

template <typename Request>
absl::StatusOr<Request> Read(const grpc::ByteBuffer& bytes, size_t most_bytes) {
  if (bytes.Length() > most_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the request has ", bytes.Length(), " bytes, expected at most ",
                                                     most_bytes, ", twice what a report of all agents takes"));
  }
  Request request;
  TROUPE_RETURN_IF_ERROR(ParseBounded(bytes, kEpisodeLimit, &request));
  return request;
}

uint64_t WeightsOf(const v1::GetActionsRequest& /*request*/) { return 0; }
uint64_t WeightsOf(const v1::LogActionsRequest& request) { return request.weights(); }

/// GetActions and LogActions.
template <typename Request>
grpc::ServerUnaryReactor* Step(outside::EpisodeBook& book, grpc::CallbackServerContext& context, StepKind kind,
                               const grpc::ByteBuffer& bytes, size_t most_bytes, grpc::ByteBuffer* reply) {
  if (context.IsCancelled()) return Answer(context, absl::CancelledError("the call was cancelled before it was begun"));
  const absl::StatusOr<Request> request = Read<Request>(bytes, most_bytes);
  if (!request.ok()) return Answer(context, request.status());
  absl::StatusOr<outside::StepReport> report = ToReport(request->agents(), request->state());
  if (!report.ok()) return Answer(context, report.status());
  report->weights = WeightsOf(*request);
  return new StepReactor(book, context, request->episode_id(), kind, *report, reply);
}

/// Strange, but valid encodings of small reports fit, too.
constexpr size_t kRoom = size_t{4} << 10;

}  // namespace

EpisodeService::EpisodeService(outside::EpisodeBook* book, const PeerBook* peers)
    : book_(book),
      peers_(peers),
      most_bytes_(std::min(2 * MostReportBytes(book->spec()) + kRoom, kMaxMessageBytes)),
      files_(&book->acting()) {}

grpc::ServerUnaryReactor* EpisodeService::StartEpisode(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  const absl::StatusOr<v1::StartEpisodeRequest> read = Read<v1::StartEpisodeRequest>(*request, most_bytes_);
  if (!read.ok()) return Answer(*context, read.status());
  const absl::StatusOr<std::string> id = book_->Start(CallerOf(*context, Door::kAddress, peers_), read->episode_id());
  if (id.ok()) {
    v1::StartEpisodeReply begun = ToProto(*id, book_->spec());
    begun.set_weights(book_->acting().number());
    *reply = Serialize(begun);
  }
  return Answer(*context, id.status());
}

grpc::ServerUnaryReactor* EpisodeService::GetActions(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  return Step<v1::GetActionsRequest>(*book_, *context, StepKind::kGetActions, *request, most_bytes_, reply);
}

grpc::ServerUnaryReactor* EpisodeService::LogActions(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  return Step<v1::LogActionsRequest>(*book_, *context, StepKind::kLogActions, *request, most_bytes_, reply);
}

grpc::ServerUnaryReactor* EpisodeService::LogReturns(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  const absl::StatusOr<v1::LogReturnsRequest> read = Read<v1::LogReturnsRequest>(*request, most_bytes_);
  if (!read.ok()) return Answer(*context, read.status());
  std::vector<std::pair<std::string, double>> returns;
  for (const v1::AgentReturn& each : read->returns()) returns.emplace_back(each.agent_id(), each.reward());
  const absl::Status logged = book_->LogReturns(read->episode_id(), returns);
  if (logged.ok()) *reply = Serialize(v1::LogReturnsReply());
  return Answer(*context, logged);
}

grpc::ServerUnaryReactor* EpisodeService::EndEpisode(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  const absl::StatusOr<v1::EndEpisodeRequest> read = Read<v1::EndEpisodeRequest>(*request, most_bytes_);
  if (!read.ok()) return Answer(*context, read.status());
  const absl::StatusOr<outside::End> end = FromProto(read->end());
  if (!end.ok()) return Answer(*context, end.status());
  const absl::StatusOr<outside::StepReport> report = ToReport(read->agents(), read->state());
  if (!report.ok()) return Answer(*context, report.status());
  const absl::Status ended = book_->EndEpisode(read->episode_id(), *end, *report);
  if (ended.ok()) *reply = Serialize(v1::EndEpisodeReply());
  return Answer(*context, ended);
}

grpc::ServerUnaryReactor* EpisodeService::GetPolicies(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  const absl::StatusOr<v1::GetPoliciesRequest> read = Read<v1::GetPoliciesRequest>(*request, most_bytes_);
  if (!read.ok()) return Answer(*context, read.status());
  if (const absl::Status closing = book_->closing(); !closing.ok()) return Answer(*context, closing);
  std::string host = CallerOf(*context, Door::kAddress, peers_).Host();
  if (const absl::Status entered = files_.Enter(host); !entered.ok()) return Answer(*context, entered);
  const absl::StatusOr<PolicyPiece> piece = files_.Read(read->weights(), read->offset());
  if (!piece.ok()) {
    files_.Leave(host);
    return Answer(*context, piece.status());
  }
  *reply = Serialize(ToProto(*piece));
  return PieceReactor::Start(&files_, &unread_, context, std::move(host), base::Clock::Real().SteadyNow());
}

}  // namespace troupe::rpc
