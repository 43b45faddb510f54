#include "lib/rpc/door/address.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/loopback.h"

namespace troupe::rpc {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
constexpr std::string_view kAbstractPrefix = "unix-abstract:";
// sun_path holds the path and a zero.
constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;

absl::Status Malformed(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("address '", base::LogSafe(text), "': ", std::string(why),
                                                 "; expected unix:PATH, unix-abstract:NAME, HOST:PORT or [IPV6]:PORT"));
}

bool StartsWith(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

absl::StatusOr<Address> ParseSocket(std::string_view text, std::string_view prefix, Address::Kind kind) {
  Address address{.kind = kind, .text = std::string(text), .path = std::string(text.substr(prefix.size()))};
  if (address.path.empty()) return Malformed(text, "nothing after the colon");
  if (address.path.size() > kMaxPath) {
    return Malformed(text,
                     absl::StrCat("a name of ", address.path.size(), " bytes, but sockets have at most ", kMaxPath));
  }
  return address;
}

}  // namespace

bool Address::local() const {
  if (kind != Kind::kTcp) return true;
  return base::IsLoopback(host);
}

absl::StatusOr<Address> ParseAddress(std::string_view text) {
  if (StartsWith(text, kUnixPrefix)) return ParseSocket(text, kUnixPrefix, Address::Kind::kUnix);
  if (StartsWith(text, kAbstractPrefix)) return ParseSocket(text, kAbstractPrefix, Address::Kind::kAbstract);

  Address address{.kind = Address::Kind::kTcp, .text = std::string(text)};
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Malformed(text, "no port");
  std::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return Malformed(text, "an IPv6 address needs brackets");
  }
  if (host.empty()) return Malformed(text, "no host");
  // A scheme ("dns:", "http://") or anything else that gRPC would give a meaning of its own.
  if (host.find_first_of("/@,%") != std::string_view::npos) return Malformed(text, "no valid host");
  const std::string port(text.substr(colon + 1));
  if (port.empty() || !absl::SimpleAtoi(port, &address.port) || address.port < 0 || address.port > 65535) {
    return Malformed(text, "the port is no number from 0 to 65535");
  }
  address.host = std::string(host);
  // A resolver may take "127.1" for an address, and others for a name.
  in_addr ipv4{};
  if (address.host.find_first_not_of("0123456789.") == std::string::npos &&
      inet_pton(AF_INET, address.host.c_str(), &ipv4) != 1) {
    return Malformed(text, "no valid IPv4 address");
  }
  return address;
}

}  // namespace troupe::rpc
