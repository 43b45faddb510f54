#include "lib/render/ffmpeg_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"

extern char** environ;

namespace troupe::render {
namespace {

constexpr int kFileFd = 3;  // in ffmpeg
constexpr off_t kMostWords = 4096;

absl::Status Errno(const char* what) { return absl::InternalError(absl::StrCat(what, ": ", std::strerror(errno))); }

absl::Status TooSlow(absl::Duration patience) {
  return absl::DeadlineExceededError(
      absl::StrCat("ffmpeg stood still for ", absl::FormatDuration(patience), " and was killed"));
}

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(std::min<int64_t>(absl::ToInt64Milliseconds(duration), 1 << 30));
}

void Close(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

}  // namespace

absl::StatusOr<std::string> FindOnPath(const std::string& name) {
  const char* const path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    if (folder.empty() || folder[0] != '/') continue;
    std::string program = absl::StrCat(folder, "/", name);
    struct stat info {};
    if (stat(program.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(program.c_str(), X_OK) == 0) {
      return program;
    }
  }
  return absl::NotFoundError(absl::StrCat("there is no ", name, " on the PATH"));
}

absl::StatusOr<std::unique_ptr<FfmpegWriter>> FfmpegWriter::Start(const std::string& program, const Options& options) {
  auto writer = std::unique_ptr<FfmpegWriter>(new FfmpegWriter(options));
  TROUPE_RETURN_IF_ERROR(writer->Spawn(program));
  return writer;
}

absl::Status FfmpegWriter::Spawn(const std::string& program) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return Errno("ffmpeg: socketpair");
  frames_fd_ = ends[0];
  fcntl(frames_fd_, F_SETFL, O_NONBLOCK);
  file_fd_ = memfd_create("troupe-mp4", MFD_CLOEXEC);
  words_fd_ = memfd_create("troupe-ffmpeg-words", MFD_CLOEXEC);
  const std::string size = absl::StrCat(options_.width, "x", options_.height);
  const std::string rate = absl::StrCat(options_.frames_per_second);
  // yuv420p, which every player knows, wants even sides.
  std::vector<std::string> words = {program,     "-hide_banner",
                                    "-nostats",  "-loglevel",
                                    "error",     "-f",
                                    "rawvideo",  "-pixel_format",
                                    "rgb24",     "-video_size",
                                    size,        "-framerate",
                                    rate,        "-i",
                                    "pipe:0",    "-an",
                                    "-vf",       "pad=ceil(iw/2)*2:ceil(ih/2)*2",
                                    "-pix_fmt",  "yuv420p",
                                    "-movflags", "+faststart",
                                    "-f",        "mp4",
                                    "-y",        absl::StrCat("file:/proc/self/fd/", kFileFd)};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // Out of the way of the numbers that they get.
  const int in = fcntl(ends[1], F_DUPFD_CLOEXEC, 10), out = fcntl(file_fd_, F_DUPFD_CLOEXEC, 10);
  const int said = fcntl(words_fd_, F_DUPFD_CLOEXEC, 10);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, said, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, said, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out, kFileFd);
  const int failed = file_fd_ < 0 || in < 0 || out < 0 || said < 0
                         ? EMFILE
                         : posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  for (int fd : {ends[1], in, out, said}) Close(&fd);
  if (failed == 0) return absl::OkStatus();
  pid_ = -1;
  return absl::InternalError(absl::StrCat(program, " cannot be started: ", std::strerror(failed)));
}

FfmpegWriter::~FfmpegWriter() {
  Kill();
  for (int* fd : {&frames_fd_, &file_fd_, &words_fd_}) Close(fd);
}

void FfmpegWriter::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

absl::Status FfmpegWriter::Add(const Picture& picture, int times) {
  TROUPE_RETURN_IF_ERROR(CheckSize(picture, options_.width, options_.height));
  if (pid_ < 0) return absl::FailedPreconditionError("the video was finished before");
  for (int i = 0; i < times; ++i) TROUPE_RETURN_IF_ERROR(Write(picture));
  return absl::OkStatus();
}

absl::Status FfmpegWriter::Write(const Picture& picture) {
  size_t written = 0;
  while (written < picture.rgb.size()) {
    const ssize_t part =
        send(frames_fd_, picture.rgb.data() + written, picture.rgb.size() - written, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (part >= 0) {
      written += static_cast<size_t>(part);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd room = {frames_fd_, POLLOUT, 0};
      if (poll(&room, 1, Milliseconds(options_.patience)) == 0) {
        Kill();
        return TooSlow(options_.patience);
      }
    } else if (errno != EINTR) {
      const absl::Status ended = Await();  // it reads no more: why, it says itself
      return ended.ok() ? absl::InternalError("ffmpeg ended before it had all pictures") : ended;
    }
  }
  return absl::OkStatus();
}

absl::Status FfmpegWriter::Await() {
  // <sys/pidfd.h> of Debian 12 cannot be used from C++.
  int ended_fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (ended_fd < 0) return Errno("ffmpeg: pidfd_open");
  pollfd ended = {ended_fd, POLLIN, 0};
  int ready = -1;
  do {
    ready = poll(&ended, 1, Milliseconds(options_.patience));
  } while (ready < 0 && errno == EINTR);
  Close(&ended_fd);
  if (ready <= 0) {
    Kill();
    return TooSlow(options_.patience);
  }
  int state = 0;
  waitpid(std::exchange(pid_, -1), &state, 0);
  if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return absl::OkStatus();
  const std::string how =
      WIFEXITED(state) ? absl::StrCat("exit code ", WEXITSTATUS(state)) : absl::StrCat("signal ", WTERMSIG(state));
  const std::string line = LastLine();
  return absl::InternalError(absl::StrCat("ffmpeg failed with ", how, line.empty() ? "" : ": ", line));
}

absl::StatusOr<std::string> FfmpegWriter::Finish() {
  if (pid_ < 0) return absl::FailedPreconditionError("the video was finished before");
  Close(&frames_fd_);
  TROUPE_RETURN_IF_ERROR(Await());
  struct stat info {};
  if (fstat(file_fd_, &info) != 0) return Errno("ffmpeg's file");
  if (info.st_size == 0) return absl::InternalError("ffmpeg wrote nothing, expected an MP4");
  if (info.st_size > options_.most_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the MP4 has ", info.st_size, " bytes, expected at most ", options_.most_bytes));
  }
  std::string file(static_cast<size_t>(info.st_size), '\0');
  size_t read_bytes = 0;
  while (read_bytes < file.size()) {
    const ssize_t part =
        pread(file_fd_, file.data() + read_bytes, file.size() - read_bytes, static_cast<off_t>(read_bytes));
    if (part <= 0) return Errno("ffmpeg's file");
    read_bytes += static_cast<size_t>(part);
  }
  return file;
}

std::string FfmpegWriter::LastLine() const {
  struct stat info {};
  if (fstat(words_fd_, &info) != 0) return "";
  const off_t bytes = std::min(info.st_size, kMostWords);
  std::string words(static_cast<size_t>(bytes), '\0');
  const ssize_t got = pread(words_fd_, words.data(), words.size(), info.st_size - bytes);
  words.resize(got < 0 ? 0 : static_cast<size_t>(got));
  while (!words.empty() && std::isspace(static_cast<unsigned char>(words.back()))) words.pop_back();
  const size_t begin = words.rfind('\n');
  return base::LogSafe(begin == std::string::npos ? words : words.substr(begin + 1), 300);
}

}  // namespace troupe::render
