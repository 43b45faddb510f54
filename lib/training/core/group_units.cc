#include "lib/training/core/group_units.h"

#include <algorithm>
#include <numeric>

namespace troupe::training {

int32_t GroupUnits::Find(int32_t piece) {
  while (root_[static_cast<size_t>(piece)] != piece) {
    int32_t& up = root_[static_cast<size_t>(piece)];
    up = root_[static_cast<size_t>(up)];
    piece = up;
  }
  return piece;
}

void GroupUnits::Join(int32_t one, int32_t other) {
  one = Find(one);
  other = Find(other);
  root_[static_cast<size_t>(std::max(one, other))] = std::min(one, other);
}

int64_t GroupUnits::RowsOf(const Piece& piece) const {
  const MemberRows& member = members_[static_cast<size_t>(piece.member)];
  if (member.batch->sequences.empty()) return 1;
  const learner::TrainSequence& sequence = member.batch->sequences[static_cast<size_t>(piece.at)];
  int64_t rows = 0;
  for (int64_t r = 0; r < sequence.rows; ++r) rows += member.uses->IsCounted(sequence.first_row + r) ? 1 : 0;
  return rows;
}

void GroupUnits::JoinSteps() {
  std::vector<int32_t> first;   // by joint step, a piece with a row there
  std::vector<int64_t> agents;  // by joint step
  for (size_t m = 0; m < members_.size(); ++m) {
    for (const int32_t row : members_[m].uses->counted()) {
      const auto step = static_cast<size_t>(members_[m].batch->joint_place[static_cast<size_t>(row)].step);
      const int32_t piece = piece_of_[m][static_cast<size_t>(row)];
      if (step >= first.size()) {
        first.resize(step + 1, -1);
        agents.resize(step + 1, 0);
      }
      width_ = std::max(width_, ++agents[step]);
      if (first[step] < 0) first[step] = piece;
      Join(first[step], piece);
    }
  }
}

void GroupUnits::Take(absl::Span<const MemberRows> members, bool joins) {
  members_.assign(members.begin(), members.end());
  piece_of_.resize(members.size());
  std::vector<Piece> pieces;
  measure_ = 0;
  for (size_t m = 0; m < members.size(); ++m) {
    const MemberRows& member = members[m];
    if (member.uses->counted().size() > members[static_cast<size_t>(measure_)].uses->counted().size()) {
      measure_ = static_cast<int32_t>(m);
    }
    std::vector<int32_t>& piece_of = piece_of_[m];
    piece_of.assign(static_cast<size_t>(member.batch->rows), -1);
    const auto add = [&](int32_t at) {
      pieces.push_back({static_cast<int32_t>(m), at});
      return static_cast<int32_t>(pieces.size()) - 1;
    };
    if (member.batch->sequences.empty()) {
      for (const int32_t row : member.uses->counted()) piece_of[static_cast<size_t>(row)] = add(row);
      continue;
    }
    for (size_t s = 0; s < member.batch->sequences.size(); ++s) {
      const learner::TrainSequence& sequence = member.batch->sequences[s];
      int32_t piece = -1;
      for (int64_t row = sequence.first_row; row < sequence.first_row + sequence.rows; ++row) {
        if (!member.uses->IsCounted(row)) continue;
        if (piece < 0) piece = add(static_cast<int32_t>(s));
        piece_of[static_cast<size_t>(row)] = piece;
      }
    }
  }
  root_.resize(pieces.size());
  std::iota(root_.begin(), root_.end(), 0);
  width_ = 0;
  if (joins) JoinSteps();
  // A counting sort by root: the least piece of each unit is its root.
  std::vector<int32_t> unit_of(pieces.size());
  first_.assign(1, 0);
  for (size_t piece = 0; piece < pieces.size(); ++piece) {
    const auto root = static_cast<size_t>(Find(static_cast<int32_t>(piece)));
    if (root == piece) {
      unit_of[piece] = static_cast<int32_t>(first_.size()) - 1;
      first_.push_back(0);
    }
    unit_of[piece] = unit_of[root];
    ++first_[static_cast<size_t>(unit_of[piece]) + 1];
  }
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  pieces_.resize(pieces.size());
  std::vector<int32_t> next(first_.begin(), first_.end() - 1);
  for (size_t piece = 0; piece < pieces.size(); ++piece) {
    pieces_[static_cast<size_t>(next[static_cast<size_t>(unit_of[piece])]++)] = pieces[piece];
  }
}

absl::Span<const GroupUnits::Piece> GroupUnits::PiecesOf(int64_t unit) const {
  const auto at = static_cast<size_t>(unit);
  return absl::MakeConstSpan(pieces_).subspan(static_cast<size_t>(first_[at]),
                                              static_cast<size_t>(first_[at + 1] - first_[at]));
}

std::vector<GroupUnits::Range> GroupUnits::Minibatches(absl::Span<const int32_t> order, int64_t minibatch) const {
  std::vector<Range> minibatches;
  int64_t rows = 0;  // of the epoch
  int64_t goal = minibatch;
  int64_t first = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    for (const Piece& piece : PiecesOf(order[i])) {
      if (piece.member == measure_) rows += RowsOf(piece);
    }
    if (rows < goal && i + 1 < order.size()) continue;
    const int64_t end = static_cast<int64_t>(i) + 1;
    minibatches.push_back({first, end});
    first = end;
    goal = rows / minibatch * minibatch + minibatch;
  }
  return minibatches;
}

}  // namespace troupe::training
