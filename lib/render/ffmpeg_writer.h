#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "lib/render/frame_writer.h"

namespace troupe::render {

/// The program of that name on the PATH, whole; NOT_FOUND. Folders of the PATH that are not absolute are left out: in
/// the working directory may lie anybody's.
absl::StatusOr<std::string> FindOnPath(const std::string& name);

/// An MP4 by the program ffmpeg, which gets the pictures as they are through a socket, and writes into a file in
/// memory. No shell, and no name of ours in its command line. The program's end is waited for; one that stands still
/// longer than `patience` is killed. Not thread-safe; Add and Finish may block so long.
class FfmpegWriter final : public FrameWriter {
 public:
  struct Options {
    int width = 0, height = 0;
    int frames_per_second = 10;
    absl::Duration patience = absl::Seconds(60);
    int64_t most_bytes = int64_t{512} << 20;  ///< of the file
  };

  /// INTERNAL where it cannot be started.
  static absl::StatusOr<std::unique_ptr<FfmpegWriter>> Start(const std::string& program, const Options& options);
  ~FfmpegWriter() override;

  /// Also DEADLINE_EXCEEDED, and INTERNAL with the exit code and the last line of what ffmpeg says.
  absl::Status Add(const Picture& picture, int times) override;
  absl::StatusOr<std::string> Finish() override;

 private:
  explicit FfmpegWriter(const Options& options) : options_(options) {}
  absl::Status Spawn(const std::string& program);
  absl::Status Write(const Picture& picture);
  /// Waits until it has ended: OK where its exit code is 0.
  absl::Status Await();
  void Kill();
  std::string LastLine() const;

  const Options options_;
  pid_t pid_ = -1;
  int frames_fd_ = -1, file_fd_ = -1, words_fd_ = -1;
};

}  // namespace troupe::render
