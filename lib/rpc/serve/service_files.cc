#include "lib/rpc/serve/service_files.h"

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/check.h"
#include "lib/base/shortened.h"
#include <google/protobuf/descriptor.pb.h>

namespace troupe::rpc {
namespace {

using google::protobuf::FileDescriptor;
namespace reflection = grpc::reflection::v1;

/// As much of a name as an error repeats.
constexpr size_t kShownNameBytes = 128;

void SetError(absl::StatusCode code, std::string message, reflection::ServerReflectionResponse* response) {
  response->mutable_error_response()->set_error_code(static_cast<int32_t>(code));
  response->mutable_error_response()->set_error_message(std::move(message));
}

/// The file, then what it imports and those import in turn, each once.
void AppendWithImports(const FileDescriptor& file, std::set<const FileDescriptor*>* done,
                       reflection::FileDescriptorResponse* response) {
  if (!done->insert(&file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  response->add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AppendWithImports(*file.dependency(i), done, response);
}

}  // namespace

ServiceFiles::ServiceFiles(const std::vector<const FileDescriptor*>& files) {
  for (const FileDescriptor* const file : files) {
    for (int i = 0; i < file->service_count(); ++i) services_.push_back(file->service(i)->full_name());
    Add(*file);
  }
}

const FileDescriptor* ServiceFiles::Add(const FileDescriptor& generated) {
  if (const FileDescriptor* const added = files_.FindFileByName(generated.name()); added != nullptr) return added;
  for (int i = 0; i < generated.dependency_count(); ++i) Add(*generated.dependency(i));
  google::protobuf::FileDescriptorProto proto;
  generated.CopyTo(&proto);
  const FileDescriptor* const file = files_.BuildFile(proto);
  TROUPE_CHECK(file != nullptr);
  std::set<const FileDescriptor*> done;
  AppendWithImports(*file, &done, &answers_[file]);
  return file;
}

reflection::ServerReflectionResponse ServiceFiles::Answer(const reflection::ServerReflectionRequest& request) const {
  Response response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case reflection::ServerReflectionRequest::kFileByFilename:
      AnswerFile(files_.FindFileByName(request.file_by_filename()), "file", request.file_by_filename(), &response);
      break;
    case reflection::ServerReflectionRequest::kFileContainingSymbol:
      AnswerFile(files_.FindFileContainingSymbol(request.file_containing_symbol()), "symbol",
                 request.file_containing_symbol(), &response);
      break;
    case reflection::ServerReflectionRequest::kFileContainingExtension:
      AnswerExtension(request.file_containing_extension(), &response);
      break;
    case reflection::ServerReflectionRequest::kAllExtensionNumbersOfType:
      AnswerExtensionNumbers(request.all_extension_numbers_of_type(), &response);
      break;
    case reflection::ServerReflectionRequest::kListServices:
      for (const std::string& service : services_) {
        response.mutable_list_services_response()->add_service()->set_name(service);
      }
      break;
    case reflection::ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      SetError(absl::StatusCode::kInvalidArgument,
               "got a request that asks for nothing, expected one of file_by_filename, file_containing_symbol, "
               "file_containing_extension, all_extension_numbers_of_type and list_services",
               &response);
      break;
  }
  return response;
}

void ServiceFiles::AnswerFile(const FileDescriptor* file, const char* what, const std::string& name,
                              Response* response) const {
  if (file != nullptr) {
    *response->mutable_file_descriptor_response() = answers_.at(file);
    return;
  }
  SetError(absl::StatusCode::kNotFound,
           absl::StrCat("there is no ", what, " \"", base::Shortened(name, kShownNameBytes),
                        "\", expected one of the services ", absl::StrJoin(services_, ", "), " and their files"),
           response);
}

void ServiceFiles::AnswerExtension(const reflection::ExtensionRequest& request, Response* response) const {
  const auto* const type = files_.FindMessageTypeByName(request.containing_type());
  if (type == nullptr) return AnswerFile(nullptr, "message", request.containing_type(), response);
  const auto* const extension = files_.FindExtensionByNumber(type, request.extension_number());
  if (extension != nullptr) return AnswerFile(extension->file(), "", "", response);
  SetError(absl::StatusCode::kNotFound,
           absl::StrCat("the message ", type->full_name(), " has no extension ", request.extension_number()), response);
}

void ServiceFiles::AnswerExtensionNumbers(const std::string& type, Response* response) const {
  const auto* const found = files_.FindMessageTypeByName(type);
  if (found == nullptr) return AnswerFile(nullptr, "message", type, response);
  std::vector<const google::protobuf::FieldDescriptor*> extensions;
  files_.FindAllExtensions(found, &extensions);
  reflection::ExtensionNumberResponse* const numbers = response->mutable_all_extension_numbers_response();
  numbers->set_base_type_name(type);
  for (const auto* extension : extensions) numbers->add_extension_number(extension->number());
}

}  // namespace troupe::rpc
