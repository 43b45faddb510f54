#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/hidden_order.h"
#include "lib/base/mutex.h"
#include "lib/rpc/transport/convert.h"
#include "lib/rpc/transport/grpc_deadline.h"
#include "proto/troupe/v1/rollout.pb.h"
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server_builder.h>

namespace troupe::rpc {

/// Whoever answers at a learner's address and says what a test tells it to, true or not: after each Hello a script,
/// whose last message comes again and again where that is told. Reads what workers send and answers nothing of it.
/// Thread-safe.
class LyingLearner final : private grpc::CallbackGenericService {
 public:
  enum class Ending { kSilence, kAgainAndAgain };

  LyingLearner(const std::string& address, const std::vector<v1::LearnerMessage>& script,
               Ending ending = Ending::kSilence)
      : ending_(ending) {
    for (const v1::LearnerMessage& message : script) script_.push_back(Serialize(message));
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~LyingLearner() override { server_->Shutdown(GrpcDeadline(absl::ZeroDuration())); }

  /// As an honest learner says it.
  static v1::LearnerMessage Welcome(uint64_t spec_hash, const std::string& config_yaml = "") {
    v1::LearnerMessage message;
    v1::Welcome* const welcome = message.mutable_welcome();
    *welcome->mutable_protocol() = OurProtocol();
    welcome->set_worker_id(1);
    welcome->set_worker_epoch(2);
    welcome->set_learner_epoch(1);
    welcome->set_spec_hash(spec_hash);
    welcome->set_config_yaml(config_yaml);
    welcome->set_credit_bytes(16 << 20);
    return message;
  }

  /// Messages that came on Rollout streams.
  int64_t messages() const {
    base::MutexLock lock(&mutex_);
    return messages_;
  }

 private:
  class Stream final : public grpc::ServerGenericBidiReactor {
   public:
    Stream(LyingLearner* learner, bool is_rollout) : learner_(learner), is_rollout_(is_rollout) {
      base::HandOver(this);
      StartRead(&incoming_);
    }
    void OnReadDone(bool ok) override {
      const base::Reaction reaction(this);
      if (!ok) {
        {
          base::MutexLock lock(&mutex_);
          ended_ = true;
          if (writing_) return;  // its end finishes the stream
          writing_ = true;
        }
        base::HandOver(this);
        Finish(grpc::Status::OK);
        return;
      }
      if (is_rollout_) learner_->Note();
      incoming_.Clear();
      const bool first = !std::exchange(begun_, true);
      if (first && is_rollout_) Say();
      base::HandOver(this);
      StartRead(&incoming_);
    }
    void OnWriteDone(bool ok) override {
      const base::Reaction reaction(this);
      bool ended;
      {
        base::MutexLock lock(&mutex_);
        ended = ended_;
        writing_ = ended;
      }
      if (ended) {
        base::HandOver(this);
        Finish(grpc::Status::OK);
      } else if (ok) {  // else the read that is in flight says so, too
        Say();
      }
    }
    void OnDone() override {
      base::TakeOver(this);
      delete this;
    }

   private:
    void Say() {
      const std::vector<grpc::ByteBuffer>& script = learner_->script_;
      {
        base::MutexLock lock(&mutex_);
        if (ended_ || writing_) return;
        if (next_ == script.size()) {
          if (script.empty() || learner_->ending_ == Ending::kSilence) return;
          --next_;
        }
        outgoing_ = script[next_++];
        writing_ = true;
      }
      base::HandOver(this);
      StartWrite(&outgoing_);
    }

    LyingLearner* const learner_;
    const bool is_rollout_;
    bool begun_ = false;  // of the read reaction
    grpc::ByteBuffer incoming_, outgoing_;
    base::Mutex mutex_;
    size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
    bool writing_ ABSL_GUARDED_BY(mutex_) = false;
    bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    return new Stream(this, context->method() == "/troupe.v1.Rollout/Stream");
  }
  void Note() {
    base::MutexLock lock(&mutex_);
    ++messages_;
  }

  const Ending ending_;
  std::vector<grpc::ByteBuffer> script_;
  mutable base::Mutex mutex_;
  int64_t messages_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace troupe::rpc
