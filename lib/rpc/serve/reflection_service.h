#pragma once

#include "lib/rpc/door/peer_book.h"
#include "lib/rpc/serve/reflection_stream.h"
#include "lib/rpc/serve/service_files.h"
#include "lib/rpc/transport/answer_stream.h"
#include "lib/rpc/transport/caller.h"
#include "proto/grpc/reflection/v1/reflection.grpc.pb.h"
#include "proto/grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include <grpcpp/server_builder.h>

namespace troupe::rpc {

/// Server reflection of a policy server, under both names that clients ask for. gRPC's own (grpc++_reflection) holds a
/// thread for each stream, so that a few strangers would take them all. Made and owned by the server. Thread-safe.
class ReflectionService {
 public:
  /// `streams`, whose places its streams take, and `peers` are the server's.
  ReflectionService(QueryStreams* streams, const PeerBook* peers);
  ReflectionService(const ReflectionService&) = delete;
  ReflectionService& operator=(const ReflectionService&) = delete;
  /// Before the server starts; lives as long as that.
  void Register(grpc::ServerBuilder& builder);

 private:
  /// `Reflection`: the generated class of one of the names. The messages of both have the same bytes.
  template <typename Reflection>
  class Named final
      : public Reflection::template WithRawCallbackMethod_ServerReflectionInfo<typename Reflection::Service> {
   public:
    explicit Named(ReflectionService* all) : all_(*all) {}
    AnswerStream::Reactor* ServerReflectionInfo(grpc::CallbackServerContext* context) override {
      return ReflectionStream::Start(all_.streams_, &all_.files_, context,
                                     CallerOf(*context, Door::kAddress, all_.peers_));
    }

   private:
    ReflectionService& all_;
  };

  QueryStreams* const streams_;
  const PeerBook* const peers_;
  const ServiceFiles files_;
  Named<grpc::reflection::v1::ServerReflection> v1_{this};
  Named<grpc::reflection::v1alpha::ServerReflection> v1alpha_{this};
};

}  // namespace troupe::rpc
