#include "lib/rpc/listen.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/rpc/address.h"

namespace troupe::rpc {

absl::StatusOr<ListeningServer> StartListening(grpc::ServerBuilder& builder, const std::vector<std::string>& addresses,
                                               const TransportSecurity& security) {
  if (addresses.empty()) return absl::InvalidArgumentError("no address to listen at");
  ApplyServerSettings(builder);
  std::vector<int> ports(addresses.size(), -1);
  for (size_t i = 0; i < addresses.size(); ++i) {
    TROUPE_ASSIGN_OR_RETURN(const Address address, ParseAddress(addresses[i]));
    TROUPE_ASSIGN_OR_RETURN(auto credentials, MakeServerCredentials(address, security));
    TROUPE_RETURN_IF_ERROR(CheckAddressIsFree(address));
    builder.AddListeningPort(address.text, credentials, &ports[i]);
  }
  ListeningServer listening;
  listening.server = builder.BuildAndStart();
  for (size_t i = 0; i < addresses.size(); ++i) {
    TROUPE_ASSIGN_OR_RETURN(const Address address, ParseAddress(addresses[i]));
    if (listening.server == nullptr || ports[i] == 0) {
      // Somebody may have been quicker since it was free.
      TROUPE_RETURN_IF_ERROR(CheckAddressIsFree(address));
      if (listening.server == nullptr) continue;
      return absl::UnavailableError(absl::StrCat("cannot listen at ", address.text));
    }
    listening.addresses.push_back(address.kind == Address::Kind::kTcp && address.port == 0
                                      ? absl::StrCat(address.text.substr(0, address.text.rfind(':') + 1), ports[i])
                                      : address.text);
  }
  if (listening.server == nullptr) return absl::UnavailableError("cannot start the server");
  return listening;
}

}  // namespace troupe::rpc
