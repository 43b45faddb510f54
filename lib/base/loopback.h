#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>

namespace troupe::base {

/// Bytes sent to `host` never leave this machine: it is "localhost", 127.0.0.0/8 as four numbers, ::1 (without
/// brackets), or such an IPv4 address mapped into IPv6. Anything else is a name that may lead anywhere, also where it
/// begins like one of these ("127.example.org"). Asks no resolver. A header alone, because lib/client takes nothing
/// else along.
inline bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

}  // namespace troupe::base
