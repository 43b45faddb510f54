#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/rpc/door/address.h"
#include "lib/rpc/door/descriptor.h"

namespace troupe::rpc {

/// Sockets that listen at one address: "localhost" may be one for IPv4 and one for IPv6. Non-blocking, closed on exec,
/// without SO_REUSEPORT: two servers on one port would share its connections at random. The file of a Unix socket goes
/// with them. Move-only; not thread-safe.
class ListeningSockets {
 public:
  /// ALREADY_EXISTS when somebody else listens at `address`; INVALID_ARGUMENT or PERMISSION_DENIED when nobody can. A
  /// socket file that nobody answers at is what a killed server left behind, and is replaced.
  static absl::StatusOr<ListeningSockets> Open(const Address& address);
  ~ListeningSockets() { Close(); }
  ListeningSockets(ListeningSockets&& other) noexcept;
  ListeningSockets& operator=(ListeningSockets&& other) noexcept;

  const std::vector<Descriptor>& sockets() const { return sockets_; }
  /// The address as given, with the port that port 0 became.
  const Address& address() const { return address_; }
  /// Nobody gets through any more. Idempotent.
  void Close();

 private:
  explicit ListeningSockets(Address address) : address_(std::move(address)) {}
  absl::Status OpenTcp();
  absl::Status OpenUnix();

  Address address_;
  std::vector<Descriptor> sockets_;
};

}  // namespace troupe::rpc
