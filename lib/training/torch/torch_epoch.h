#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/training/core/group_units.h"
#include "lib/training/torch/device_memory.h"
#include "lib/training/torch/torch_member.h"
#include <torch/torch.h>

namespace troupe::training {

/// A minibatch of a learn group, where its networks compute.
struct GroupMinibatch {
  std::vector<RowSelection> members;  ///< without tensors where a member has no row
  /// [joint steps, most agents at one], int64, where a group joins steps: rows of the minibatch, members' one after
  /// another, by the joint step where they are. Behind them the number of all, for no row. The first one is a row.
  torch::Tensor joint;
};

/// The minibatches of an epoch of a learn group. All their indices come to where networks compute at once; a minibatch
/// is pieces of these. Used by one thread.
class TorchEpoch {
 public:
  /// `units` of `members`, in the epoch's order and cut into `minibatches`. All stay.
  TorchEpoch(const GroupUnits& units, absl::Span<const MemberRows> members, absl::Span<const int32_t> order,
             absl::Span<const GroupUnits::Range> minibatches, const DeviceMemory& memory);

  int64_t size() const { return static_cast<int64_t>(joint_.first.size()) - 1; }
  GroupMinibatch Take(int64_t minibatch) const;

 private:
  /// Numbers of all minibatches, one after another.
  struct Numbers {
    std::vector<int64_t> host = {};
    std::vector<int64_t> first = {0};  ///< by minibatch, where its numbers begin, and the end
    torch::Tensor loaded = {};

    void EndMinibatch() { first.push_back(static_cast<int64_t>(host.size())); }
    torch::Tensor Piece(int64_t minibatch) const;
  };
  struct Member {
    Numbers rows, run, kept, sequences;  ///< the last three of one that remembers
    std::vector<torch::Tensor> batch_sizes;
  };

  /// The pieces of a minibatch that are of one member.
  void AddRows(const MemberRows& rows, absl::Span<const int32_t> pieces, Member* member);
  void AddJoint(absl::Span<const MemberRows> members);

  const int64_t width_;
  std::vector<Member> members_;
  Numbers joint_;
  std::vector<int64_t> place_of_step_;  // among a minibatch's joint steps
};

}  // namespace troupe::training
