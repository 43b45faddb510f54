// What a client does with the answers of whoever is at an address.

#include "lib/rpc/transport/unary_call.h"

#include <memory>
#include <string>

#include "lib/rpc/control/monitor_client.h"
#include "lib/rpc/control/monitor_codec.h"
#include "lib/rpc/testing/peak_memory.h"
#include "proto/troupe/v1/monitor.grpc.pb.h"
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

/// Answers every Status with the same bytes.
class LyingMonitor final : public v1::Monitor::WithRawCallbackMethod_Status<v1::Monitor::Service> {
 public:
  explicit LyingMonitor(std::string answer) : answer_(std::move(answer)) {}

  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const grpc::ByteBuffer* /*request*/,
                                   grpc::ByteBuffer* reply) override {
    const grpc::Slice slice(answer_);
    *reply = grpc::ByteBuffer(&slice, 1);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const std::string answer_;
};

absl::StatusOr<RunStatus> Ask(std::string answer) {
  LyingMonitor monitor(std::move(answer));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&monitor);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  return (*MonitorClient::Create(absl::StrCat("127.0.0.1:", port), {}))->Status(absl::Seconds(30));
}

TEST(UnaryCallTest, AnAnswerComesAsItWasSent) {
  v1::StatusReply reply;
  reply.set_run_name("run");
  reply.add_workers()->set_num_envs(3);
  const absl::StatusOr<RunStatus> got = Ask(reply.SerializeAsString());
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(ToProto(*got).workers(0).num_envs(), 3);
  EXPECT_EQ(got->run_name, "run");
}

// Two bytes on the wire, an empty worker, are some two hundred in memory.
TEST(UnaryCallTest, AnAnswerThatGrowsIsRefusedBeforeItIsMade) {
  std::string empty_workers;
  v1::StatusReply one;
  one.add_workers();
  while (empty_workers.size() < 3'000'000) empty_workers += one.SerializeAsString();
  const PeakMemory peak;
  const absl::StatusOr<RunStatus> got = Ask(empty_workers);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kResourceExhausted) << got.status();
  EXPECT_NE(got.status().message().find("learner at 127.0.0.1:"), std::string::npos) << got.status();
  EXPECT_LT(peak.growth_bytes(), (int64_t{64} << 20) + kKeptBySanitizerBytes);
}

TEST(UnaryCallTest, AnAnswerThatIsNoneIsRefused) {
  EXPECT_EQ(Ask("\xff\xff\xff").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe::rpc
