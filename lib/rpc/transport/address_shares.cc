#include "lib/rpc/transport/address_shares.h"

#include "absl/strings/str_cat.h"

namespace troupe::rpc {

absl::Status AddressShares::Take(const std::string& address, int64_t most, int64_t most_of_address) {
  base::MutexLock lock(&mutex_);
  const auto found = of_.find(address);
  const int64_t of_address = found == of_.end() ? 0 : found->second;
  const bool is_full = all_ >= most;
  if (is_full || of_address >= most_of_address) {
    return absl::ResourceExhaustedError(absl::StrCat(what_, is_full ? "" : absl::StrCat(" of ", address), " are ",
                                                     is_full ? all_ : of_address, ", expected at most ",
                                                     is_full ? most : most_of_address, " with this one; ", advice_));
  }
  ++all_;
  ++of_[address];
  return absl::OkStatus();
}

void AddressShares::GiveBack(const std::string& address) {
  base::MutexLock lock(&mutex_);
  --all_;
  const auto found = of_.find(address);
  if (--found->second == 0) of_.erase(found);
}

}  // namespace troupe::rpc
