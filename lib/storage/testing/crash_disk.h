#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lib/storage/disk_calls.h"

namespace troupe::storage {

/// Changes real files below one folder, notes each call, and makes any state that a crash can leave: the calls up to
/// one of them happened, and what was not synced by then is there, is gone, or some of it is.
///
/// What it takes for durable, after POSIX and no file system's kindness: the bytes of a file that were written before
/// an fsync of the file; a name (created, renamed, removed) that changed before an fsync of its folder. Both halves of
/// a rename come or go together, and it needs what it renames; else pending changes are independent of each other.
/// Renames stay inside a folder. It never calls fsync itself. Not thread-safe.
class CrashDisk final : public DiskCalls {
 public:
  enum class Keeps { kAll, kNothing, kSome };
  /// What is kept of what was not synced. Of a file that keeps some, the rest is cut off or zero.
  struct Crash {
    Keeps names = Keeps::kAll;
    Keeps data = Keeps::kAll;
    uint64_t seed = 0;  ///< for kSome
  };

  /// What lies in `root`, which exists, is durable.
  explicit CrashDisk(std::string root);

  /// Calls that changed or synced something, so far.
  int calls() const { return static_cast<int>(calls_.size()); }
  /// After so many calls each further one fails and changes nothing, as for a process that was killed there.
  void StopAfter(int calls) { stop_after_ = calls; }
  /// Another process begins.
  void GoOn() { stop_after_ = -1; }
  /// Makes `to`, which is an empty folder, what `root` is after a crash that came after `calls` calls.
  void Materialize(int calls, const Crash& crash, const std::string& to) const;

  int Create(const std::string& path, mode_t mode) override;
  ssize_t Write(int fd, const void* data, size_t bytes) override;
  int Sync(int fd, const std::string& path) override;
  int Rename(const std::string& from, const std::string& to) override;
  int Link(const std::string& target, const std::string& link) override;
  int Unlink(const std::string& path) override;
  int MakeDirectory(const std::string& path) override;
  int RemoveDirectory(const std::string& path) override;

 private:
  static constexpr int kNone = -1;
  struct Node {
    enum class Kind { kFile, kFolder, kLink } kind = Kind::kFile;
    std::string text;                  ///< of a file that was there at the start; the target of a link
    std::map<std::string, int> names;  ///< of a folder, as the process sees it
  };
  struct Call {
    enum class Kind { kNames, kData, kSync } kind = Kind::kNames;
    int node = kNone;                                  ///< the folder whose names change, or what is written or synced
    std::vector<std::pair<std::string, int>> changes;  ///< kNames: a name and what it now means; kNone: nothing
    std::string bytes;                                 ///< kData: appended
  };

  int Add(Node node);
  int Scan(const std::string& path);
  /// The node of a path below root; kNone when there is none.
  int Find(const std::string& path) const;
  int FolderOf(const std::string& path) const;
  bool Stopped();
  void Note(Call call);
  void Write(int node, const std::vector<std::map<std::string, int>>& names, const std::vector<std::string>& texts,
             const std::string& to) const;

  const std::string root_;
  std::vector<Node> nodes_;
  std::vector<std::map<std::string, int>> names_at_start_;  ///< by node
  std::vector<Call> calls_;
  std::map<int, int> node_of_fd_;
  int stop_after_ = -1;
};

/// The machine's files without fsync: for tests in which no power fails.
class UnsyncedDisk final : public DiskCalls {
 public:
  int Sync(int /*fd*/, const std::string& /*path*/) override { return 0; }
};

}  // namespace troupe::storage
