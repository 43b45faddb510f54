#pragma once

#include <map>
#include <string>
#include <vector>

#include "proto/grpc/reflection/v1/reflection.pb.h"
#include <google/protobuf/descriptor.h>

namespace troupe::rpc {

/// The .proto files of a server's services with all that those import, and what server reflection answers of them.
/// Nothing else that this program has generated code for, as its configuration, is there. Made and owned by a server.
/// Immutable; thread-safe; never blocks. A request takes no memory that its answer does not need: names that are not
/// there are not remembered, as protobuf's own pool of generated code does.
class ServiceFiles {
 public:
  /// `files`: of generated code, whose services are the server's. From a message's descriptor(), so that the linker
  /// keeps them: nothing else of this program may need a message of theirs.
  explicit ServiceFiles(const std::vector<const google::protobuf::FileDescriptor*>& files);

  /// A name that is not there is an error_response with NOT_FOUND, and a request that asks for nothing one with
  /// INVALID_ARGUMENT. Files come with all that they import, each time.
  grpc::reflection::v1::ServerReflectionResponse Answer(
      const grpc::reflection::v1::ServerReflectionRequest& request) const;

 private:
  using Response = grpc::reflection::v1::ServerReflectionResponse;

  /// Adds what the file imports, then the file. -> it, in files_.
  const google::protobuf::FileDescriptor* Add(const google::protobuf::FileDescriptor& generated);
  void AnswerFile(const google::protobuf::FileDescriptor* file, const char* what, const std::string& name,
                  Response* response) const;
  void AnswerExtension(const grpc::reflection::v1::ExtensionRequest& request, Response* response) const;
  void AnswerExtensionNumbers(const std::string& type, Response* response) const;

  std::vector<std::string> services_;       ///< full names
  google::protobuf::DescriptorPool files_;  ///< no other pool behind it
  std::map<const google::protobuf::FileDescriptor*, grpc::reflection::v1::FileDescriptorResponse> answers_;
};

}  // namespace troupe::rpc
