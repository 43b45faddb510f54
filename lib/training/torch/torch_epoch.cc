#include "lib/training/torch/torch_epoch.h"

#include <algorithm>
#include <utility>

#include "lib/training/torch/torch_networks.h"

namespace troupe::training {

using torch::Tensor;

Tensor TorchEpoch::Numbers::Piece(int64_t minibatch) const {
  const auto at = static_cast<size_t>(minibatch);
  return loaded.narrow(0, first[at], first[at + 1] - first[at]);
}

TorchEpoch::TorchEpoch(const GroupUnits& units, absl::Span<const MemberRows> members, absl::Span<const int32_t> order,
                       absl::Span<const GroupUnits::Range> minibatches, const DeviceMemory& memory)
    : width_(units.width()), members_(members.size()) {
  std::vector<std::vector<int32_t>> pieces(members.size());  // by member
  for (const GroupUnits::Range& minibatch : minibatches) {
    for (std::vector<int32_t>& of_member : pieces) of_member.clear();
    for (int64_t i = minibatch.first; i < minibatch.end; ++i) {
      for (const GroupUnits::Piece& piece : units.PiecesOf(order[static_cast<size_t>(i)])) {
        pieces[static_cast<size_t>(piece.member)].push_back(piece.at);
      }
    }
    for (size_t m = 0; m < members.size(); ++m) AddRows(members[m], pieces[m], &members_[m]);
    if (width_ > 0) AddJoint(members);
    joint_.EndMinibatch();
  }
  for (Member& member : members_) {
    for (Numbers* const numbers : {&member.rows, &member.run, &member.kept, &member.sequences}) {
      if (!numbers->host.empty()) numbers->loaded = memory.LoadIndex(numbers->host);
    }
  }
  if (width_ > 0) joint_.loaded = memory.LoadIndex(joint_.host);
}

void TorchEpoch::AddRows(const MemberRows& rows, absl::Span<const int32_t> pieces, Member* member) {
  if (rows.batch->sequences.empty()) {
    member->rows.host.insert(member->rows.host.end(), pieces.begin(), pieces.end());
  } else {
    std::vector<std::pair<int64_t, int64_t>> sequences;
    for (const int32_t piece : pieces) {
      const learner::TrainSequence& sequence = rows.batch->sequences[static_cast<size_t>(piece)];
      sequences.emplace_back(sequence.first_row, sequence.rows);
    }
    const Packed packed = Pack(sequences);
    for (size_t i = 0; i < packed.rows.size(); ++i) {
      member->run.host.push_back(packed.rows[i]);
      if (!rows.uses->IsCounted(packed.rows[i])) continue;
      member->rows.host.push_back(packed.rows[i]);
      member->kept.host.push_back(static_cast<int64_t>(i));
    }
    for (const int64_t sequence : packed.sequences) {
      member->sequences.host.push_back(pieces[static_cast<size_t>(sequence)]);
    }
    member->batch_sizes.push_back(packed.batch_sizes);
  }
  for (Numbers* const numbers : {&member->rows, &member->run, &member->kept, &member->sequences}) {
    numbers->EndMinibatch();
  }
}

void TorchEpoch::AddJoint(absl::Span<const MemberRows> members) {
  const auto rows_of = [&](size_t m) {
    const std::vector<int64_t>& ends = members_[m].rows.first;
    return absl::MakeConstSpan(members_[m].rows.host).subspan(static_cast<size_t>(ends[ends.size() - 2]));
  };
  int64_t all = 0;
  for (size_t m = 0; m < members.size(); ++m) all += static_cast<int64_t>(rows_of(m).size());
  int64_t steps = 0;
  int64_t row_of_all = 0;
  const auto begin = static_cast<int64_t>(joint_.host.size());
  for (size_t m = 0; m < members.size(); ++m) {
    for (const int64_t row : rows_of(m)) {
      const auto step = static_cast<size_t>(members[m].batch->joint_place[static_cast<size_t>(row)].step);
      if (step >= place_of_step_.size()) place_of_step_.resize(step + 1, -1);
      int64_t& place = place_of_step_[step];
      if (place < 0) {
        place = steps++;
        joint_.host.resize(joint_.host.size() + static_cast<size_t>(width_), all);
      }
      const auto agents = joint_.host.begin() + begin + place * width_;
      *std::find(agents, agents + width_, all) = row_of_all++;
    }
  }
  for (size_t m = 0; m < members.size(); ++m) {
    for (const int64_t row : rows_of(m)) {
      place_of_step_[static_cast<size_t>(members[m].batch->joint_place[static_cast<size_t>(row)].step)] = -1;
    }
  }
}

GroupMinibatch TorchEpoch::Take(int64_t minibatch) const {
  const auto at = static_cast<size_t>(minibatch);
  GroupMinibatch taken;
  for (const Member& member : members_) {
    RowSelection& selection = taken.members.emplace_back();
    if (member.rows.first[at] == member.rows.first[at + 1]) continue;
    selection.rows = selection.run = member.rows.Piece(minibatch);
    if (member.batch_sizes.empty()) continue;
    selection.run = member.run.Piece(minibatch);
    selection.kept = member.kept.Piece(minibatch);
    selection.sequences = member.sequences.Piece(minibatch);
    selection.batch_sizes = member.batch_sizes[at];
  }
  if (width_ > 0) taken.joint = joint_.Piece(minibatch).view({-1, width_});
  return taken;
}

}  // namespace troupe::training
