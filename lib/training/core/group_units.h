#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/learner/train_batch.h"
#include "lib/training/core/row_uses.h"

namespace troupe::training {

/// A policy of a learn group with rows that count in a batch. Borrows.
struct MemberRows {
  const learner::PolicyTrainBatch* batch = nullptr;
  const RowUses* uses = nullptr;
};

/// Epochs of a learn group shuffle units and cut them into minibatches. A unit stays together: a row that counts, or
/// the whole sequence with one where a policy remembers. Where a group joins agents it is all of these that share joint
/// steps, of all its policies. With sequences those are the chunks of an episode whose agents overlap.
///
/// Units ascend by their first piece, and so do the pieces in each. Reused from batch to batch; the batch of Take
/// outlives the use. Owned by a group.
class GroupUnits {
 public:
  /// A row, or a sequence of a policy that remembers.
  struct Piece {
    int32_t member = 0;
    int32_t at = 0;  ///< the row, or the sequence's number

    bool operator==(const Piece& other) const = default;
  };
  /// A minibatch: units [first, end) of an epoch's order.
  struct Range {
    int64_t first = 0;
    int64_t end = 0;
  };

  /// `joins`: agents at a joint step stay together (learner::PolicyTrainBatch::joint_place is there).
  void Take(absl::Span<const MemberRows> members, bool joins);

  int64_t size() const { return static_cast<int64_t>(first_.size()) - 1; }
  absl::Span<const Piece> PiecesOf(int64_t unit) const;
  /// Where the minibatches of an epoch end: each with the first unit with which the rows of the policy that has the
  /// most reach a multiple of `minibatch` (at least 1), counted from where the epoch began; the last with the epoch.
  std::vector<Range> Minibatches(absl::Span<const int32_t> order, int64_t minibatch) const;
  /// Agents of the group at the joint step that has the most of them; 0 where nothing joins.
  int64_t width() const { return width_; }

 private:
  int32_t Find(int32_t piece);
  void Join(int32_t one, int32_t other);
  void JoinSteps();
  /// Rows that count in the piece.
  int64_t RowsOf(const Piece& piece) const;

  std::vector<MemberRows> members_;
  int32_t measure_ = 0;                         // the member with the most rows
  std::vector<std::vector<int32_t>> piece_of_;  // by member and row; -1: in none
  std::vector<Piece> pieces_;                   // unit after unit
  std::vector<int32_t> first_ = {0};            // by unit, where its pieces begin, and the end
  std::vector<int32_t> root_;                   // of a union-find over pieces
  int64_t width_ = 0;
};

}  // namespace troupe::training
