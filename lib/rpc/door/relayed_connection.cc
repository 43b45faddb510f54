#include "lib/rpc/door/relayed_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "lib/rpc/door/frame.h"

namespace troupe::rpc {
namespace {

// Bytes that a client has sent before it hears that it has to go: closing over unread bytes would take from it what it
// has not read, either. As much as the windows that it was given.
constexpr size_t kMaxLingerBytes = size_t{12} << 20;
bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

void AppendGoaway(std::string& out, Http2Error error, std::string_view why) {
  std::string goaway;
  AppendUint32(goaway, 0x7fffffff);
  AppendUint32(goaway, static_cast<uint32_t>(error));
  goaway.append(why);
  AppendFrame(out, kGoawayFrame, 0, 0, goaway);
}

}  // namespace

RelayBuffers::Buffer RelayBuffers::TakeSmall() { return {std::unique_ptr<char[]>(new char[kSmallBytes]), kSmallBytes}; }

RelayBuffers::Buffer RelayBuffers::Take() {
  if (lent_ >= kMaxLent) return TakeSmall();
  ++lent_;
  if (spare_.empty()) return {std::unique_ptr<char[]>(new char[kBytes]), kBytes};
  Buffer buffer = std::move(spare_.back());
  spare_.pop_back();
  return buffer;
}

void RelayBuffers::Give(Buffer buffer) {
  if (buffer.size != kBytes) return;
  --lent_;
  if (spare_.size() < kMaxSpare) spare_.push_back(std::move(buffer));
}

RelayedConnection::RelayedConnection(Descriptor client, const std::string& host, const FrameLimits& limits,
                                     FrameTotals* totals, RelayBuffers* buffers, absl::Duration now)
    : client_(std::move(client)), guard_(limits, totals, host, now), buffers_(buffers) {}

RelayedConnection::~RelayedConnection() {
  Recycle(up_);
  Recycle(down_);
}

void RelayedConnection::OnClientReady(uint32_t events) {
  const bool broken = (events & (EPOLLERR | EPOLLHUP)) != 0;
  if (broken || (events & EPOLLRDHUP) != 0) client_gone_ = true;
  if (broken || (events & (EPOLLIN | EPOLLRDHUP)) != 0) client_readable_ = true;
  if (broken || (events & EPOLLOUT) != 0) client_writable_ = true;
}

void RelayedConnection::OnServerReady(uint32_t events) {
  const bool broken = (events & (EPOLLERR | EPOLLHUP)) != 0;
  if (broken || (events & (EPOLLIN | EPOLLRDHUP)) != 0) server_readable_ = true;
  if (broken || (events & EPOLLOUT) != 0) server_writable_ = true;
}

bool RelayedConnection::Advance(absl::Duration now) {
  // Answers first: they may permit what the client has sent meanwhile.
  bool more = AdvanceDown(now);
  if (!done() && open_) more = AdvanceUp(now) || more;
  // The client may have been refused a call just now, and nothing else need happen.
  if (!done() && may_answer()) more = AdvanceDown(now) || more;
  if (!done() && open_ && guard_.violation().has_value()) {
    SayGoodbye(*guard_.violation());
    more = AdvanceDown(now) || more;
  }
  if (done()) return false;
  if (up_.eof || down_.eof) leaving_since_ = std::min(leaving_since_, now);
  if (told_client_) Linger();
  return more && !done();
}

bool RelayedConnection::AdvanceUp(absl::Duration now) {
  guard_.ReleaseResets(now);
  for (int i = 0; i < kMovesPerTurn; ++i) {
    PermitUp(now);
    if (guard_.violation().has_value() || needs_server()) return false;
    Moved moved = Moved::kNothing;
    if (up_.sendable()) {
      moved = Send(server_, server_writable_, up_);
      // gRPC has closed: what it said before that comes down.
      if (moved == Moved::kEnd) up_.eof = true;
    } else if (!guard_.for_server().empty() && guard_.client_between_frames()) {
      moved = SendText(server_, server_writable_, guard_.for_server());
      if (moved == Moved::kEnd) up_.eof = true;
    } else if (!up_.eof && !guard_.waits()) {
      moved = Read(client_, client_readable_, up_);
      if (moved == Moved::kEnd) up_.eof = true;
    }
    if (moved != Moved::kSome) break;
    if (i + 1 == kMovesPerTurn) return true;
  }
  if (up_.eof && !up_.sendable()) EndUp();
  return false;
}

void RelayedConnection::EndUp() {
  if (told_server_) return;
  told_server_ = true;
  if (server_.valid()) {
    shutdown(server_.fd(), SHUT_WR);
  } else {
    client_.Close();  // it has left without a word
  }
}

void RelayedConnection::PermitUp(absl::Duration now) {
  if (up_.permitted == up_.end) return;
  char* const waiting = up_.buffer.bytes.get() + up_.permitted;
  Permit(up_, guard_.OnClientBytes(waiting, up_.end - up_.permitted, now));
}

bool RelayedConnection::PermitDown(absl::Duration now) {
  if (down_.permitted == down_.end) return false;
  char* const waiting = down_.buffer.bytes.get() + down_.permitted;
  return Permit(down_, guard_.OnServerBytes(waiting, down_.end - down_.permitted, now));
}

bool RelayedConnection::Permit(Pipe& pipe, const FrameGuard::Passed& passed) {
  char* const waiting = pipe.buffer.bytes.get() + pipe.permitted;
  const size_t size = pipe.end - pipe.permitted, dropped = passed.taken - passed.kept;
  if (dropped > 0) std::memmove(waiting + passed.kept, waiting + passed.taken, size - passed.taken);
  pipe.permitted += passed.kept;
  pipe.end -= dropped;
  if (pipe.empty()) Recycle(pipe);
  return passed.taken > 0;
}

bool RelayedConnection::AdvanceDown(absl::Duration now) {
  for (int i = 0; i < kMovesPerTurn; ++i) {
    Moved moved = Moved::kNothing;
    if (down_.sendable() || may_answer()) {
      const size_t before = guard_.for_client().size();
      moved = down_.sendable() ? Send(client_, client_writable_, down_)
                               : SendText(client_, client_writable_, guard_.for_client());
      said_part_ = !guard_.for_client().empty() && (said_part_ || guard_.for_client().size() < before);
      if (moved == Moved::kEnd) {
        client_.Close();  // nobody is left to tell
        return false;
      }
      unread_since_ = moved == Moved::kSome ? absl::InfiniteDuration() : std::min(unread_since_, now);
    } else if (PermitDown(now)) {
      moved = Moved::kSome;
    } else if (!down_.eof && server_.valid()) {
      moved = Read(server_, server_readable_, down_);
      if (moved == Moved::kEnd) down_.eof = true;
    }
    if (moved != Moved::kSome) break;
    if (i + 1 == kMovesPerTurn) return true;
  }
  if (down_.eof && !down_.sendable() && !told_client_) {
    told_client_ = true;
    open_ = false;
    server_.Close();
    shutdown(client_.fd(), SHUT_WR);
  }
  return false;
}

RelayedConnection::Moved RelayedConnection::Read(const Descriptor& from, bool& readable, Pipe& pipe) {
  if (!readable) return Moved::kNothing;
  if (pipe.buffer.bytes == nullptr) pipe.buffer = server_.valid() ? buffers_->Take() : RelayBuffers::TakeSmall();
  if (pipe.begin > 0) {
    std::memmove(pipe.buffer.bytes.get(), pipe.buffer.bytes.get() + pipe.begin, pipe.end - pipe.begin);
    pipe.permitted -= pipe.begin;
    pipe.end -= pipe.begin;
    pipe.begin = 0;
  }
  const ssize_t got = recv(from.fd(), pipe.buffer.bytes.get() + pipe.end, pipe.buffer.size - pipe.end, 0);
  const int error = errno;
  if (got > 0) {
    pipe.end += static_cast<size_t>(got);
    return Moved::kSome;
  }
  if (pipe.empty()) Recycle(pipe);
  if (got < 0 && error == EINTR) return Moved::kSome;
  if (got < 0 && WouldBlock(error)) {
    readable = false;
    return Moved::kNothing;
  }
  return Moved::kEnd;
}

RelayedConnection::Moved RelayedConnection::Send(const Descriptor& to, bool& writable, Pipe& pipe) {
  if (!writable) return Moved::kNothing;
  const ssize_t sent = send(to.fd(), pipe.buffer.bytes.get() + pipe.begin, pipe.permitted - pipe.begin, MSG_NOSIGNAL);
  if (sent >= 0) {
    pipe.begin += static_cast<size_t>(sent);
    if (pipe.empty()) Recycle(pipe);
    return Moved::kSome;
  }
  if (errno == EINTR) return Moved::kSome;
  if (WouldBlock(errno)) {
    writable = false;
    return Moved::kNothing;
  }
  Recycle(pipe);
  return Moved::kEnd;
}

RelayedConnection::Moved RelayedConnection::SendText(const Descriptor& to, bool& writable, std::string& text) {
  if (!writable) return Moved::kNothing;
  const ssize_t sent = send(to.fd(), text.data(), text.size(), MSG_NOSIGNAL);
  if (sent >= 0) {
    text.erase(0, static_cast<size_t>(sent));
    return Moved::kSome;
  }
  if (errno == EINTR) return Moved::kSome;
  writable = !WouldBlock(errno);
  return writable ? Moved::kEnd : Moved::kNothing;
}

void RelayedConnection::Recycle(Pipe& pipe) {
  if (pipe.buffer.bytes != nullptr) buffers_->Give(std::exchange(pipe.buffer, {}));
  pipe.begin = pipe.permitted = pipe.end = 0;
}

void RelayedConnection::TurnAway(const Descriptor& client, std::string_view why) {
  std::string words;
  AppendFrame(words, kSettingsFrame, 0, 0, "");
  AppendGoaway(words, Http2Error::kEnhanceYourCalm, why);
  (void)!send(client.fd(), words.data(), words.size(), MSG_NOSIGNAL);
  shutdown(client.fd(), SHUT_WR);
}

void RelayedConnection::SayGoodbye(const FrameGuard::Violation& violation) {
  // gRPC drops the connection with all its calls.
  open_ = false;
  server_.Close();
  Recycle(up_);
  up_.eof = down_.eof = true;
  // Words have a place between two frames only.
  if (said_part_ || !guard_.server_between_frames()) return;
  down_.end = down_.permitted;
  std::string words;
  if (violation.stream != 0) {
    std::string reset;
    AppendUint32(reset, static_cast<uint32_t>(Http2Error::kEnhanceYourCalm));
    AppendFrame(words, kRstStreamFrame, 0, violation.stream, reset);
  }
  AppendGoaway(words, violation.calm ? Http2Error::kNone : Http2Error::kEnhanceYourCalm, violation.what);
  if (down_.buffer.bytes == nullptr) down_.buffer = buffers_->Take();
  if (down_.buffer.size - down_.end < words.size()) return;
  std::memcpy(down_.buffer.bytes.get() + down_.end, words.data(), words.size());
  down_.end += words.size();
  down_.permitted = down_.end;
}

void RelayedConnection::Linger() {
  char dropped[16384];
  while (client_readable_ && lingered_bytes_ < kMaxLingerBytes) {
    const ssize_t got = recv(client_.fd(), dropped, sizeof(dropped), 0);
    if (got < 0 && WouldBlock(errno)) {
      client_readable_ = false;
      return;
    }
    if (got <= 0) break;
    lingered_bytes_ += static_cast<size_t>(got);
  }
  if (client_readable_) client_.Close();  // its end has come, or it never stops
}

}  // namespace troupe::rpc
