#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "lib/rpc/transport/transport.h"
#include <google/protobuf/message_lite.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

namespace troupe::rpc {

/// A stream of bytes as its client sees it, step by step: each call blocks until its step is over. One thread.
class ByteStream {
 public:
  /// `method`: "/package.Service/Method".
  ByteStream(const std::string& address, const std::string& method)
      : ByteStream(*MakeChannel(*ParseAddress(address), {}), method) {}
  ByteStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method)
      : stub_(channel), call_(stub_.PrepareCall(&context_, method, &queue_)) {
    call_->StartCall(nullptr);
    Next();
  }
  ~ByteStream() {
    if (!finished_) {
      context_.TryCancel();
      Finish().IgnoreError();
    }
    queue_.Shutdown();
    while (Next()) {
    }
  }
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  bool Write(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    call_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    return Next();
  }
  bool HalfClose() {
    call_->WritesDone(nullptr);
    return Next();
  }
  bool Read(google::protobuf::MessageLite* reply) {
    grpc::ByteBuffer bytes;
    call_->Read(&bytes, nullptr);
    if (!Next()) return false;
    grpc::Slice slice;
    return bytes.DumpToSingleSlice(&slice).ok() && reply->ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
  }
  void Cancel() { context_.TryCancel(); }
  absl::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Next();
    finished_ = true;
    return FromGrpc(status);
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool finished_ = false;
};

}  // namespace troupe::rpc
