#include "bench/bare_stream.h"

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/check.h"
#include "lib/base/mutex.h"
#include "lib/rpc/door/address.h"
#include "lib/rpc/transport/transport.h"
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

namespace troupe::bench {
namespace {

constexpr char kMethod[] = "/troupe.bench.Bare/Stream";

/// Common to both receivers: listens, and remembers the port.
class ReceiverBase : public BareReceiver {
 public:
  std::string address() const override { return address_; }
  int64_t bytes() const override { return bytes_.load(std::memory_order_relaxed); }

 protected:
  void Listen(grpc::ServerBuilder& builder, const std::string& text) {
    rpc::ApplyServerSettings(builder);
    const auto address = rpc::ParseAddress(text);
    TROUPE_CHECK(address.ok());
    int port = 0;
    builder.AddListeningPort(text, *rpc::MakeServerCredentials(*address, {}), &port);
    server_ = builder.BuildAndStart();
    TROUPE_CHECK(server_ != nullptr);
    address_ = address->kind == rpc::Address::Kind::kTcp ? address->host + ":" + std::to_string(port) : text;
  }

  std::atomic<int64_t> bytes_{0};
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

class CallbackReceiver final : public ReceiverBase {
 public:
  explicit CallbackReceiver(const std::string& address) : service_(this) {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(&service_);
    Listen(builder, address);
  }
  ~CallbackReceiver() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(CallbackReceiver* owner) : owner_(owner) { StartRead(&message_); }
    void OnReadDone(bool ok) override {
      if (!ok) {
        Finish(grpc::Status::OK);
        return;
      }
      owner_->bytes_.fetch_add(static_cast<int64_t>(message_.Length()), std::memory_order_relaxed);
      StartRead(&message_);
    }
    void OnDone() override { delete this; }

   private:
    CallbackReceiver* const owner_;
    grpc::ByteBuffer message_;
  };
  class Service final : public grpc::CallbackGenericService {
   public:
    explicit Service(CallbackReceiver* owner) : owner_(owner) {}
    grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
      return new Reactor(owner_);
    }

   private:
    CallbackReceiver* const owner_;
  };

  Service service_;
};

class QueueReceiver final : public ReceiverBase {
 public:
  explicit QueueReceiver(const std::string& address) {
    grpc::ServerBuilder builder;
    builder.RegisterAsyncGenericService(&service_);
    queue_ = builder.AddCompletionQueue();
    Listen(builder, address);
    thread_ = std::thread([this] { Loop(); });
  }
  ~QueueReceiver() override {
    server_->Shutdown(std::chrono::system_clock::now());
    // No operation may start on a queue that was shut down.
    {
      base::MutexLock lock(&mutex_);
      while (!stream_over_) changed_.Wait(&mutex_);
    }
    queue_->Shutdown();
    thread_.join();
  }

 private:
  // One stream is all that a benchmark opens.
  void Loop() {
    enum Tag : intptr_t { kCall = 1, kRead, kFinish };
    grpc::GenericServerContext context;
    grpc::GenericServerAsyncReaderWriter stream(&context);
    grpc::ByteBuffer message;
    service_.RequestCall(&context, &stream, queue_.get(), queue_.get(), reinterpret_cast<void*>(kCall));
    void* tag;
    bool ok;
    while (queue_->Next(&tag, &ok)) {
      switch (reinterpret_cast<intptr_t>(tag)) {
        case kCall:
          if (ok) {
            stream.Read(&message, reinterpret_cast<void*>(kRead));
          } else {
            StreamOver();
          }
          break;
        case kRead:
          if (!ok) {
            stream.Finish(grpc::Status::OK, reinterpret_cast<void*>(kFinish));
            break;
          }
          bytes_.fetch_add(static_cast<int64_t>(message.Length()), std::memory_order_relaxed);
          stream.Read(&message, reinterpret_cast<void*>(kRead));
          break;
        default:
          StreamOver();
          break;
      }
    }
  }
  void StreamOver() {
    base::MutexLock lock(&mutex_);
    stream_over_ = true;
    changed_.NotifyAll();
  }

  base::Mutex mutex_;
  base::CondVar changed_;
  bool stream_over_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::thread thread_;
};

/// A message of borrowed memory, as an encoded fragment is.
grpc::ByteBuffer MakeMessage(const std::string& memory) {
  const grpc::Slice slice(memory.data(), memory.size(), grpc::Slice::STATIC_SLICE);
  return grpc::ByteBuffer(&slice, 1);
}

class CallbackSender final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit CallbackSender(grpc::ByteBuffer message) : message_(std::move(message)) {}
  void Run(const std::shared_ptr<grpc::Channel>& channel) {
    context_.set_wait_for_ready(true);
    grpc::GenericStub stub(channel);
    stub.PrepareBidiStreamingCall(&context_, kMethod, grpc::StubOptions(), this);
    StartWrite(&message_);
    StartCall();
    base::MutexLock lock(&mutex_);
    while (!done_) changed_.Wait(&mutex_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) StartWrite(&message_);
  }
  void OnDone(const grpc::Status&) override {
    base::MutexLock lock(&mutex_);
    done_ = true;
    changed_.NotifyAll();
  }

 private:
  const grpc::ByteBuffer message_;
  grpc::ClientContext context_;
  base::Mutex mutex_;
  base::CondVar changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

void RunQueueSender(const std::shared_ptr<grpc::Channel>& channel, const grpc::ByteBuffer& message) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  grpc::CompletionQueue queue;
  auto stream = stub.PrepareCall(&context, kMethod, &queue);
  stream->StartCall(reinterpret_cast<void*>(1));
  void* tag;
  bool ok;
  while (queue.Next(&tag, &ok) && ok) stream->Write(message, reinterpret_cast<void*>(2));
}

}  // namespace

std::unique_ptr<BareReceiver> StartBareReceiver(StreamApi api, const std::string& address) {
  if (api == StreamApi::kCallback) return std::make_unique<CallbackReceiver>(address);
  return std::make_unique<QueueReceiver>(address);
}

void RunBareSender(StreamApi api, const std::string& address, int64_t message_bytes) {
  const std::string memory(static_cast<size_t>(message_bytes), 'x');
  const std::shared_ptr<grpc::Channel> channel = *rpc::MakeChannel(*rpc::ParseAddress(address), {});
  if (api == StreamApi::kCallback) {
    CallbackSender(MakeMessage(memory)).Run(channel);
  } else {
    RunQueueSender(channel, MakeMessage(memory));
  }
}

}  // namespace troupe::bench
