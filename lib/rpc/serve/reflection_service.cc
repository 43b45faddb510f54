#include "lib/rpc/serve/reflection_service.h"

#include "proto/troupe/v1/query.pb.h"

namespace troupe::rpc {

ReflectionService::ReflectionService(QueryStreams* streams, const PeerBook* peers)
    : streams_(streams),
      peers_(peers),
      files_({v1::ComputeActionsRequest::descriptor()->file(),
              grpc::reflection::v1::ServerReflectionRequest::descriptor()->file(),
              grpc::reflection::v1alpha::ServerReflectionRequest::descriptor()->file()}) {}

void ReflectionService::Register(grpc::ServerBuilder& builder) {
  builder.RegisterService(&v1_);
  builder.RegisterService(&v1alpha_);
}

}  // namespace troupe::rpc
