// Server reflection: its answers, and its streams over a Unix socket beside those of queries.

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "lib/base/await.h"
#include "lib/base/clock.h"
#include "lib/base/process_memory.h"
#include "lib/rpc/learner/learner_server.h"
#include "lib/rpc/serve/query_client.h"
#include "lib/rpc/serve/query_server.h"
#include "lib/rpc/serve/reflection_service.h"
#include "lib/rpc/testing/byte_stream.h"
#include "lib/rpc/testing/fake_endpoint.h"
#include "lib/rpc/transport/limits.h"
#include "lib/sample/testing/batch_maker.h"
#include "lib/serving/query_engine.h"
#include "lib/serving/testing/query_builder.h"
#include "proto/grpc/reflection/v1/reflection.pb.h"
#include "proto/grpc/reflection/v1alpha/reflection.pb.h"
#include "proto/troupe/v1/query.pb.h"
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

namespace reflection = grpc::reflection::v1;
using google::protobuf::DescriptorPool;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr char kReflectionMethod[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
constexpr char kOldReflectionMethod[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
constexpr absl::Duration kReflectionTimeout = absl::Seconds(20);

reflection::ServerReflectionRequest AskFor(const std::string& symbol) {
  reflection::ServerReflectionRequest request;
  request.set_file_containing_symbol(symbol);
  return request;
}

reflection::ServerReflectionRequest AskForServices() {
  reflection::ServerReflectionRequest request;
  request.set_list_services("");
  return request;
}

std::vector<std::string> ServicesOf(const reflection::ServerReflectionResponse& response) {
  std::vector<std::string> names;
  for (const auto& service : response.list_services_response().service()) names.push_back(service.name());
  return names;
}

/// The names of the files in an answer, in its order.
std::vector<std::string> FilesOf(const reflection::ServerReflectionResponse& response) {
  std::vector<std::string> names;
  for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
    google::protobuf::FileDescriptorProto file;
    EXPECT_TRUE(file.ParseFromString(bytes));
    names.push_back(file.name());
  }
  return names;
}

class ServiceFilesTest : public testing::Test {
 protected:
  std::vector<std::string> FilesWith(const std::string& symbol) const { return FilesOf(files_.Answer(AskFor(symbol))); }
  /// The error in the answer; 0: none.
  static int CodeOf(const reflection::ServerReflectionResponse& response) {
    return response.error_response().error_code();
  }

  const ServiceFiles files_{
      {v1::ComputeActionsRequest::descriptor()->file(), reflection::ServerReflectionRequest::descriptor()->file()}};
};

TEST_F(ServiceFilesTest, ListsItsServicesAndRepeatsTheRequest) {
  reflection::ServerReflectionRequest request = AskForServices();
  request.set_host("here");
  const auto response = files_.Answer(request);
  EXPECT_THAT(ServicesOf(response), ElementsAre("troupe.v1.Query", "grpc.reflection.v1.ServerReflection"));
  EXPECT_EQ(response.valid_host(), "here");
  EXPECT_EQ(response.original_request().SerializeAsString(), request.SerializeAsString());
}

TEST_F(ServiceFilesTest, AFileComesWithAllThatItImportsSoThatAClientCanBuildIt) {
  reflection::ServerReflectionRequest request;
  request.set_file_by_filename("troupe/v1/query.proto");
  const auto response = files_.Answer(request);
  EXPECT_THAT(FilesOf(response), ElementsAre("troupe/v1/query.proto", "troupe/v1/common.proto"));
  DescriptorPool pool;
  for (int i = response.file_descriptor_response().file_descriptor_proto_size() - 1; i >= 0; --i) {
    google::protobuf::FileDescriptorProto file;
    ASSERT_TRUE(file.ParseFromString(response.file_descriptor_response().file_descriptor_proto(i)));
    ASSERT_NE(pool.BuildFile(file), nullptr);
  }
  ASSERT_NE(pool.FindServiceByName("troupe.v1.Query"), nullptr);
  EXPECT_EQ(pool.FindFileByName("troupe/v1/query.proto")->DebugString(),
            v1::ComputeActionsRequest::descriptor()->file()->DebugString());
}

TEST_F(ServiceFilesTest, SymbolsOfEveryKindAreFound) {
  for (const char* symbol : {"troupe.v1.Query", "troupe.v1.Query.ComputeActions", "troupe.v1.ComputeActionsRequest",
                             "troupe.v1.ComputeActionsRequest.seed", "troupe.v1.QueryRows.obs_dtype"}) {
    EXPECT_THAT(FilesWith(symbol), ElementsAre("troupe/v1/query.proto", "troupe/v1/common.proto")) << symbol;
  }
  for (const char* symbol : {"troupe.v1.DType", "troupe.v1.DTYPE_UINT8", "troupe.v1.WeightVersion"}) {
    EXPECT_THAT(FilesWith(symbol), ElementsAre("troupe/v1/common.proto")) << symbol;
  }
  EXPECT_THAT(FilesWith("grpc.reflection.v1.ServerReflection"), ElementsAre("grpc/reflection/v1/reflection.proto"));
}

TEST_F(ServiceFilesTest, NoAnswerIsLarge) {
  for (const char* symbol : {"troupe.v1.Query", "troupe.v1.DType", "grpc.reflection.v1.ServerReflection"}) {
    EXPECT_LT(files_.Answer(AskFor(symbol)).ByteSizeLong(), size_t{16} << 10) << symbol;  // as docs/deployment.md says
  }
}

TEST_F(ServiceFilesTest, OtherMessagesOfThisProgramAreNotThere) {
  const DescriptorPool& generated = *DescriptorPool::generated_pool();
  ASSERT_NE(generated.FindMessageTypeByName("troupe.v1.RunConfig"), nullptr);
  ASSERT_NE(generated.FindFileByName("troupe/v1/config.proto"), nullptr);
  const auto by_symbol = files_.Answer(AskFor("troupe.v1.RunConfig"));
  EXPECT_EQ(CodeOf(by_symbol), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(by_symbol.error_response().error_message(),
            "there is no symbol \"troupe.v1.RunConfig\", expected one of the services troupe.v1.Query, "
            "grpc.reflection.v1.ServerReflection and their files");
  reflection::ServerReflectionRequest request;
  request.set_file_by_filename("troupe/v1/config.proto");
  EXPECT_EQ(CodeOf(files_.Answer(request)), static_cast<int>(absl::StatusCode::kNotFound));
}

TEST_F(ServiceFilesTest, BadRequestsGetOneErrorInWords) {
  EXPECT_EQ(CodeOf(files_.Answer({})), static_cast<int>(absl::StatusCode::kInvalidArgument)) << "asks for nothing";
  for (const std::string& name : {std::string(), std::string("."), std::string("troupe..v1"), std::string(4000, 'x')}) {
    for (const bool by_file : {false, true}) {
      reflection::ServerReflectionRequest request = AskFor(name);
      if (by_file) request.set_file_by_filename(name);
      const auto response = files_.Answer(request);
      EXPECT_EQ(CodeOf(response), static_cast<int>(absl::StatusCode::kNotFound)) << name;
      EXPECT_LT(response.error_response().error_message().size(), 400u);
    }
  }
}

TEST_F(ServiceFilesTest, ThereAreNoExtensions) {
  reflection::ServerReflectionRequest request;
  request.set_all_extension_numbers_of_type("troupe.v1.QueryRows");
  auto response = files_.Answer(request);
  EXPECT_EQ(response.all_extension_numbers_response().base_type_name(), "troupe.v1.QueryRows");
  EXPECT_THAT(response.all_extension_numbers_response().extension_number(), IsEmpty());
  request.set_all_extension_numbers_of_type("troupe.v1.RunConfig");
  EXPECT_EQ(CodeOf(files_.Answer(request)), static_cast<int>(absl::StatusCode::kNotFound));
  request.mutable_file_containing_extension()->set_containing_type("troupe.v1.QueryRows");
  request.mutable_file_containing_extension()->set_extension_number(4);
  response = files_.Answer(request);
  EXPECT_EQ(CodeOf(response), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(response.error_response().error_message(), "the message troupe.v1.QueryRows has no extension 4");
  request.mutable_file_containing_extension()->set_containing_type("troupe.v1.RunConfig");
  EXPECT_EQ(CodeOf(files_.Answer(request)), static_cast<int>(absl::StatusCode::kNotFound));
}

// protobuf's pool of generated code keeps a note of each name that it was asked for in vain.
TEST_F(ServiceFilesTest, NamesThatAreNotThereAreNotRemembered) {
  const auto ask = [this](int count) {
    for (int i = 0; i < count; ++i) {
      const std::string name = absl::StrCat(std::string(200, 'x'), i);
      EXPECT_EQ(CodeOf(files_.Answer(AskFor(name))), static_cast<int>(absl::StatusCode::kNotFound));
      reflection::ServerReflectionRequest request;
      request.set_file_by_filename(name);
      EXPECT_EQ(CodeOf(files_.Answer(request)), static_cast<int>(absl::StatusCode::kNotFound));
    }
  };
  ask(1000);
  const int64_t before = base::ProcessMemory::Now().heap_bytes;
  ask(20'000);  // of 8 MB of names
  EXPECT_LT(base::ProcessMemory::Now().heap_bytes - before, int64_t{1} << 20);
}

TEST(ReflectionProtoTest, BothNamesHaveTheSameMessages) {
  const std::string text = grpc::reflection::v1::ServerReflectionRequest::descriptor()->file()->DebugString();
  const std::string old = grpc::reflection::v1alpha::ServerReflectionRequest::descriptor()->file()->DebugString();
  EXPECT_EQ(absl::StrReplaceAll(old, {{"v1alpha", "v1"}}), text);
}

class ReflectionTest : public testing::Test {
 protected:
  ReflectionTest() {
    const policy::PolicySpec spec = serving::MakeSpec("p", *space::Space::Box(-1, 1, {3}), *space::Space::Discrete(4));
    rows_ = serving::MakeRows(spec, 2);
    engine_ = *serving::QueryEngine::Create({spec}, {});
    EXPECT_EQ(engine_->SetWeights(serving::MakeWeights(spec, 1)), absl::OkStatus());
    Start({});
  }
  void Start(const QueryStreamLimits& limits) {
    server_.reset();
    server_ = *QueryServer::Start({address_}, {}, engine_.get(), limits);
    client_ = *QueryClient::Create(address_, {});
  }
  absl::Status Query() const { return client_->ComputeActions(Asked(), kReflectionTimeout).status(); }
  serving::ActionQuery Asked() const { return serving::Ask({&rows_}, true); }
  /// True where the stream answers what services there are.
  static bool Lists(ByteStream& stream) {
    reflection::ServerReflectionResponse response;
    return stream.Write(AskForServices().SerializeAsString()) && stream.Read(&response) &&
           ServicesOf(response).size() == 3;
  }
  /// The end of a stream that got `bytes` and answers nothing.
  absl::Status EndAfter(const std::string& bytes) const {
    ByteStream stream(address_, kReflectionMethod);
    stream.Write(bytes);
    reflection::ServerReflectionResponse response;
    EXPECT_FALSE(stream.Read(&response));
    return stream.Finish();
  }
  /// True once the server has so many streams.
  bool HasStreams(size_t count) const {
    return base::AwaitPolling(absl::Milliseconds(1), base::Deadline::After(kReflectionTimeout),
                              [&] { return server_->num_streams() == count; });
  }

  const std::string address_ = absl::StrCat("unix-abstract:troupe-reflection-", getpid(), "-",
                                            testing::UnitTest::GetInstance()->current_test_info()->name());
  serving::OwnedRows rows_;
  std::unique_ptr<serving::QueryEngine> engine_;
  std::unique_ptr<QueryServer> server_;
  std::unique_ptr<QueryClient> client_;
};

TEST_F(ReflectionTest, AnswersUnderBothNames) {
  for (const char* method : {kReflectionMethod, kOldReflectionMethod}) {
    ByteStream stream(address_, method);
    reflection::ServerReflectionResponse response;
    ASSERT_TRUE(stream.Write(AskForServices().SerializeAsString()));
    ASSERT_TRUE(stream.Read(&response));
    EXPECT_THAT(ServicesOf(response), ElementsAre("troupe.v1.Query", "grpc.reflection.v1.ServerReflection",
                                                  "grpc.reflection.v1alpha.ServerReflection"));
    for (const std::string& service : ServicesOf(response)) {
      reflection::ServerReflectionResponse files;
      ASSERT_TRUE(stream.Write(AskFor(service).SerializeAsString()));
      ASSERT_TRUE(stream.Read(&files));
      EXPECT_FALSE(FilesOf(files).empty()) << service;
    }
    ASSERT_TRUE(stream.HalfClose());
    EXPECT_FALSE(stream.Read(&response));
    EXPECT_EQ(stream.Finish(), absl::OkStatus());
  }
  EXPECT_TRUE(HasStreams(0));
}

TEST_F(ReflectionTest, RequestsThatWaitAreAnsweredInTheirOrderAndUnknownNamesEndNothing) {
  ByteStream stream(address_, kReflectionMethod);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(stream.Write(AskFor(absl::StrCat("name", i)).SerializeAsString()));
  ASSERT_TRUE(stream.HalfClose());
  reflection::ServerReflectionResponse response;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(stream.Read(&response));
    EXPECT_EQ(response.original_request().file_containing_symbol(), absl::StrCat("name", i));
    EXPECT_EQ(response.error_response().error_code(), static_cast<int>(absl::StatusCode::kNotFound));
  }
  EXPECT_FALSE(stream.Read(&response));
  EXPECT_EQ(stream.Finish(), absl::OkStatus());
}

TEST_F(ReflectionTest, BytesThatAreNoRequestEndItAndNothingElse) {
  ByteStream other(address_, kReflectionMethod);
  EXPECT_TRUE(Lists(other));
  const absl::Status malformed = EndAfter(std::string(100, '\xff'));
  EXPECT_EQ(malformed, absl::InvalidArgumentError("got 100 bytes that are no ServerReflectionRequest"));
  std::string no_text = AskFor("x").SerializeAsString();
  no_text.back() = '\xff';
  EXPECT_EQ(EndAfter(no_text).code(), absl::StatusCode::kInvalidArgument) << "names are UTF-8";
  const std::string large = AskFor(std::string(kMaxReflectionRequestBytes - 2, 'x')).SerializeAsString();
  ASSERT_EQ(large.size(), kMaxReflectionRequestBytes + 1);
  EXPECT_EQ(EndAfter(large),
            absl::ResourceExhaustedError("a ServerReflectionRequest has 4097 bytes, expected at most 4096"));
  EXPECT_EQ(EndAfter(std::string(kMaxMessageBytes + 1, 'x')).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Lists(other));
  EXPECT_EQ(Query(), absl::OkStatus());
}

TEST_F(ReflectionTest, TheLongestHonestRequestIsAnswered) {
  // No name of a host is longer than 253 characters, and none of ours than that.
  reflection::ServerReflectionRequest request = AskFor(absl::StrCat("troupe.v1.", std::string(1000, 'x')));
  request.set_host(std::string(253, 'h'));
  ByteStream stream(address_, kReflectionMethod);
  reflection::ServerReflectionResponse response;
  ASSERT_TRUE(stream.Write(request.SerializeAsString()));
  ASSERT_TRUE(stream.Read(&response));
  EXPECT_EQ(response.valid_host(), request.host());
  request = AskFor(std::string(kMaxReflectionRequestBytes - 3, 'x'));
  ASSERT_EQ(request.ByteSizeLong(), kMaxReflectionRequestBytes);
  ASSERT_TRUE(stream.Write(request.SerializeAsString()));
  ASSERT_TRUE(stream.Read(&response));
  EXPECT_EQ(response.error_response().error_code(), static_cast<int>(absl::StatusCode::kNotFound));
}

TEST_F(ReflectionTest, ItsStreamsHaveTheirPlacesAmongThoseOfQueries) {
  Start({.open = 2});
  const auto asking = client_->OpenStream();
  EXPECT_TRUE(asking->ComputeActions(Asked(), kReflectionTimeout).ok());
  {
    ByteStream stream(address_, kReflectionMethod);
    EXPECT_TRUE(Lists(stream));
    const absl::Status refused = EndAfter("");
    EXPECT_EQ(refused, absl::ResourceExhaustedError("streams of queries are 2, expected at most 2 with this one; end "
                                                    "one of them, or ask without a stream"));
    EXPECT_EQ(client_->OpenStream()->ComputeActions(Asked(), kReflectionTimeout).status().code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(Query(), absl::OkStatus()) << "calls need no place";
  }
  ASSERT_TRUE(HasStreams(1));
  EXPECT_TRUE(client_->OpenStream()->ComputeActions(Asked(), kReflectionTimeout).ok()) << "it has left";
}

TEST_F(ReflectionTest, OneAddressTakesItsShareAndNoMore) {
  Start({.open = 4, .open_of_address = 2});
  ByteStream first(address_, kReflectionMethod), second(address_, kOldReflectionMethod);
  EXPECT_TRUE(Lists(first));
  EXPECT_TRUE(Lists(second));
  EXPECT_EQ(EndAfter("").code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ReflectionTest, ManyToolsAtOnceAreAnsweredWhileQueriesGoOn) {
  std::vector<std::unique_ptr<ByteStream>> streams;
  for (int i = 0; i < 40; ++i) streams.push_back(std::make_unique<ByteStream>(address_, kReflectionMethod));
  for (int round = 0; round < 3; ++round) {
    for (const auto& stream : streams) EXPECT_TRUE(Lists(*stream));
    EXPECT_EQ(Query(), absl::OkStatus());
  }
  EXPECT_EQ(server_->num_streams(), 40u);
  streams.clear();
  EXPECT_TRUE(HasStreams(0));
}

TEST_F(ReflectionTest, WithoutARequestForTooLongItEnds) {
  Start({.idle = absl::Milliseconds(50)});
  ByteStream silent(address_, kReflectionMethod);
  EXPECT_TRUE(Lists(silent));
  ASSERT_TRUE(HasStreams(1));
  EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(5), base::Deadline::After(kReflectionTimeout), [&] {
    server_->Tick();
    return server_->num_streams() == 0;
  }));
  reflection::ServerReflectionResponse response;
  EXPECT_FALSE(silent.Read(&response));
  EXPECT_EQ(silent.Finish().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ReflectionTest, WhoDoesNotReadItsAnswersIsCancelled) {
  Start({.idle = absl::Milliseconds(100)});
  // A window of 64 KiB, and that for good: no client of ours.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  ByteStream silent(grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments),
                    kReflectionMethod);
  // The server reads the next request once an answer is written: of so many it begins those that the window takes.
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(silent.Write(AskFor("troupe.v1.Query").SerializeAsString()));
  ASSERT_TRUE(HasStreams(1));
  EXPECT_TRUE(base::AwaitPolling(absl::Milliseconds(5), base::Deadline::After(kReflectionTimeout), [&] {
    server_->Tick();
    return server_->num_streams() == 0;
  }));
  reflection::ServerReflectionResponse response;
  int answers = 0;
  while (silent.Read(&response)) ++answers;
  EXPECT_LT(answers, 100);
  EXPECT_EQ(silent.Finish().code(), absl::StatusCode::kCancelled);
}

TEST_F(ReflectionTest, ShutdownEndsIt) {
  ByteStream stream(address_, kReflectionMethod);
  EXPECT_TRUE(Lists(stream));
  server_->Shutdown(kReflectionTimeout);
  reflection::ServerReflectionResponse response;
  EXPECT_FALSE(stream.Read(&response));
  EXPECT_EQ(stream.Finish().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ReflectionTest, ClientsThatVanishLeaveNothing) {
  for (int i = 0; i < 200; ++i) {
    ByteStream stream(address_, kReflectionMethod);
    ASSERT_TRUE(stream.Write(AskFor("troupe.v1.Query").SerializeAsString()));
    stream.Cancel();  // maybe before the answer, maybe after
  }
  EXPECT_TRUE(HasStreams(0));
  ByteStream stream(address_, kReflectionMethod);
  EXPECT_TRUE(Lists(stream));
}

TEST_F(ReflectionTest, ALearnerHasNone) {
  FakeEndpoint endpoint;
  base::FakeClock clock;
  LearnerServerOptions options;
  options.addresses = {address_ + "-learner"};
  options.schema = sample::SimpleSchema();
  options.queries = engine_.get();
  auto learner = LearnerServer::Start(std::move(options), &endpoint, &endpoint, &clock);
  ASSERT_TRUE(learner.ok()) << learner.status();
  for (const char* method : {kReflectionMethod, kOldReflectionMethod}) {
    ByteStream stream(address_ + "-learner", method);
    EXPECT_EQ(stream.Finish().code(), absl::StatusCode::kUnimplemented);
  }
  (*learner)->Shutdown(absl::Seconds(1));
}

}  // namespace
}  // namespace troupe::rpc
