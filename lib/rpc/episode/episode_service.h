#pragma once

#include "lib/outside/episode_book.h"
#include "lib/rpc/door/peer_book.h"
#include "lib/rpc/episode/policy_files.h"
#include "lib/rpc/transport/stream_registry.h"
#include "proto/troupe/v1/episodes.grpc.pb.h"

namespace troupe::rpc {

/// The ExternalEpisodes service: a shell around an EpisodeBook, which it borrows. Its requests come as bytes, which are
/// looked at before anything is made of them. Thread-safe.
class EpisodeService final
    : public v1::ExternalEpisodes::WithRawCallbackMethod_StartEpisode<
          v1::ExternalEpisodes::WithRawCallbackMethod_GetActions<v1::ExternalEpisodes::WithRawCallbackMethod_LogActions<
              v1::ExternalEpisodes::WithRawCallbackMethod_LogReturns<
                  v1::ExternalEpisodes::WithRawCallbackMethod_EndEpisode<
                      v1::ExternalEpisodes::WithRawCallbackMethod_GetPolicies<v1::ExternalEpisodes::Service>>>>>> {
 public:
  /// `peers` is the server's.
  EpisodeService(outside::EpisodeBook* book, const PeerBook* peers);

  grpc::ServerUnaryReactor* StartEpisode(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* GetActions(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* LogActions(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* LogReturns(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* EndEpisode(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* GetPolicies(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* reply) override;

  /// Cancels answers that nobody has read for long; `now`: steady clock. Now and then.
  void CheckProgress(absl::Duration now) { unread_.CheckProgress(now); }

 private:
  outside::EpisodeBook* const book_;
  const PeerBook* const peers_;
  /// Of a request, which is there for as long as its call waits.
  const size_t most_bytes_;
  PolicyFiles files_;
  StreamRegistry unread_;  ///< calls of GetPolicies
};

}  // namespace troupe::rpc
