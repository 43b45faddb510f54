#include "lib/rpc/learner/learner_server.h"

#include <utility>

#include "lib/base/await.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/control/monitor_service.h"
#include "lib/rpc/serve/query_service.h"
#include "lib/rpc/transport/buffer_pool.h"
#include "lib/rpc/transport/caller.h"
#include "lib/rpc/transport/listen.h"
#include "lib/rpc/transport/stream_registry.h"
#include "lib/rpc/worker/rollout_reactor.h"
#include "lib/rpc/worker/weight_reactor.h"
#include "lib/rpc/worker/worker_streams.h"
#include "proto/troupe/v1/rollout.grpc.pb.h"
#include "proto/troupe/v1/weights.grpc.pb.h"
#include <grpcpp/server_builder.h>

namespace troupe::rpc {
namespace {

/// For calls that do not end although they were told to.
constexpr absl::Duration kLastCallsGrace = absl::Milliseconds(500);

// The generated services with their large messages left as bytes.
class RolloutService final : public v1::Rollout::WithRawCallbackMethod_Stream<v1::Rollout::Service> {
 public:
  RolloutService(const RolloutContext* context, const PeerBook* peers) : context_(context), peers_(peers) {}
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Stream(grpc::CallbackServerContext* context) override {
    return RolloutReactor::Start(context_, CallerOf(*context, Door::kAddress, peers_), context->peer());
  }

 private:
  const RolloutContext* const context_;
  const PeerBook* const peers_;
};

class WeightsService final : public v1::Weights::WithRawCallbackMethod_Subscribe<v1::Weights::Service> {
 public:
  WeightsService(const WeightContext* context, const PeerBook* peers) : context_(context), peers_(peers) {}
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Subscribe(
      grpc::CallbackServerContext* context) override {
    return WeightReactor::Start(context_, CallerOf(*context, Door::kAddress, peers_), context->peer());
  }

 private:
  const WeightContext* const context_;
  const PeerBook* const peers_;
};

class LearnerServerImpl final : public LearnerServer {
 public:
  LearnerServerImpl(LearnerServerOptions options, LearnerEndpoint* endpoint, MonitorHandler* monitor,
                    base::Clock* clock)
      : options_(std::move(options)),
        clock_(clock),
        pool_(static_cast<size_t>(options_.pool_idle_bytes)),
        decoder_(options_.schema, options_.limits, &pool_),
        bus_(options_.schema.PolicyIds(),
             [this](const policy::PolicyTablePtr& policies) { decoder_.SetPolicies(*policies); }),
        rollout_service_(&rollout_context_, &peers_),
        weights_service_(&weight_context_, &peers_),
        monitor_service_(monitor, Door::kAddress, &peers_),
        query_service_(options_.queries, &peers_, &query_streams_, clock) {
    rollout_context_.endpoint = endpoint;
    rollout_context_.decoder = &decoder_;
    rollout_context_.tables = &tables_;
    rollout_context_.registry = &registry_;
    rollout_context_.clock = clock;
    rollout_context_.spec_hash = options_.schema.WorkerHash();
    rollout_context_.config_yaml = options_.config_yaml;
    rollout_context_.credit_bytes = static_cast<uint64_t>(options_.credit_bytes);
    rollout_context_.on_joined = [this](sample::WorkerId id, const std::shared_ptr<ServedStream>& stream) {
      Joined(id, stream);
    };
    rollout_context_.on_worker = [this](const std::string& connection) { peers_.NoteWorker(connection); };
    weight_context_.on_worker = [this](const std::string& connection) { peers_.NoteSubscriber(connection); };
    weight_context_.bus = &bus_;
    weight_context_.registry = &weight_streams_;
    weight_context_.clock = clock;
    weight_context_.spec_hash = rollout_context_.spec_hash;
  }

  ~LearnerServerImpl() override { Shutdown(absl::Seconds(1)); }

  absl::Status Listen() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&rollout_service_);
    builder.RegisterService(&weights_service_);
    builder.RegisterService(&monitor_service_);
    builder.RegisterService(&query_service_);
    TROUPE_ASSIGN_OR_RETURN(
        listening_, StartListening(builder, options_.addresses,
                                   {.security = options_.security, .peers = &peers_, .counts = options_.counts}));
    return absl::OkStatus();
  }

  WeightBus& weights() override { return bus_; }
  std::vector<std::string> addresses() const override { return listening_.addresses(); }
  void Tick() override {
    registry_.CheckProgress(clock_->SteadyNow());
    weight_streams_.CheckProgress(clock_->SteadyNow());
    query_streams_.CheckProgress(clock_->SteadyNow());
  }
  absl::Status DialSelf(absl::Duration timeout) const override { return listening_.DialSelf(timeout); }
  int64_t num_streams() const override { return static_cast<int64_t>(registry_.size() + weight_streams_.size()); }
  int64_t num_rollout_streams() const override { return static_cast<int64_t>(registry_.size()); }

  void Shutdown(absl::Duration timeout) override {
    {
      base::MutexLock lock(&mutex_);
      if (shut_down_) return;
      shut_down_ = true;
    }
    if (!listening_.serving()) return;
    registry_.EndAll(absl::UnavailableError("the learner is going down"));
    weight_streams_.EndAll(absl::UnavailableError("the learner is going down"));
    query_streams_.EndAll(absl::UnavailableError("the learner is going down"));
    // Those whose peer does not read are cancelled by the deadline; Shutdown returns when every call is done.
    const base::Deadline deadline = base::Deadline::After(timeout);
    registry_.AwaitEmpty(deadline.left());
    weight_streams_.AwaitEmpty(deadline.left());
    listening_.Shutdown(kLastCallsGrace);
    registry_.AwaitEmpty(absl::Seconds(10));
    weight_streams_.AwaitEmpty(absl::Seconds(10));
    query_streams_.AwaitEmpty(absl::Seconds(10));
  }

 private:
  /// A worker has one stream: the older one ends.
  void Joined(sample::WorkerId id, const std::shared_ptr<ServedStream>& stream) {
    const std::shared_ptr<ServedStream> older = stream_of_worker_.Replace(id, stream);
    if (older != nullptr) older->End(absl::AbortedError("the worker has registered again"));
  }

  const LearnerServerOptions options_;
  base::Clock* const clock_;
  BufferPool pool_;
  FragmentDecoder decoder_;
  TableEncoder tables_;
  WeightBus bus_;
  StreamRegistry registry_;  ///< of workers, by which they hand in samples
  StreamRegistry weight_streams_;
  StreamRegistry query_streams_;  ///< of whoever asks: nobody waits for their goodbye
  RolloutContext rollout_context_;
  WeightContext weight_context_;
  PeerBook peers_;
  RolloutService rollout_service_;
  WeightsService weights_service_;
  MonitorService monitor_service_;
  QueryService query_service_;
  base::Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  WorkerStreams stream_of_worker_;
  /// Last, so that it is gone before anything it calls.
  ListeningServer listening_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LearnerServer>> LearnerServer::Start(LearnerServerOptions options,
                                                                    LearnerEndpoint* endpoint, MonitorHandler* monitor,
                                                                    base::Clock* clock) {
  auto server = std::make_unique<LearnerServerImpl>(std::move(options), endpoint, monitor, clock);
  TROUPE_RETURN_IF_ERROR(server->Listen());
  return std::unique_ptr<LearnerServer>(std::move(server));
}

}  // namespace troupe::rpc
