#include "lib/storage/testing/crash_disk.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "lib/base/check.h"

namespace troupe::storage {
namespace {

namespace fs = std::filesystem;

/// A file whose bytes from `durable` on were not synced.
std::string Damage(std::string text, size_t durable, CrashDisk::Keeps keeps, std::mt19937_64& random) {
  const size_t pending = text.size() - durable;
  if (keeps == CrashDisk::Keeps::kAll || pending == 0) return text;
  if (keeps == CrashDisk::Keeps::kNothing) return text.substr(0, durable);
  const size_t kept = durable + random() % (pending + 1);
  if (random() % 2 == 0) return text.substr(0, kept);
  return text.substr(0, kept) + std::string(text.size() - kept, '\0');
}

}  // namespace

CrashDisk::CrashDisk(std::string root) : root_(std::move(root)) {
  Scan(root_);
  for (const Node& node : nodes_) names_at_start_.push_back(node.names);
}

int CrashDisk::Add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<int>(nodes_.size()) - 1;
}

int CrashDisk::Scan(const std::string& path) {
  const fs::file_status status = fs::symlink_status(path);
  if (fs::is_symlink(status)) return Add({Node::Kind::kLink, fs::read_symlink(path).string(), {}});
  if (!fs::is_directory(status)) {
    std::ifstream in(path, std::ios::binary);
    return Add({Node::Kind::kFile, std::string(std::istreambuf_iterator<char>(in), {}), {}});
  }
  const int folder = Add({Node::Kind::kFolder, "", {}});
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const int node = Scan(entry.path().string());
    nodes_[static_cast<size_t>(folder)].names[entry.path().filename().string()] = node;
  }
  return folder;
}

int CrashDisk::Find(const std::string& path) const {
  int node = 0;
  for (const fs::path& part : fs::path(path).lexically_relative(root_)) {
    if (part == ".") continue;
    const auto& names = nodes_[static_cast<size_t>(node)].names;
    const auto found = names.find(part.string());
    if (found == names.end()) return kNone;
    node = found->second;
  }
  return node;
}

int CrashDisk::FolderOf(const std::string& path) const { return Find(fs::path(path).parent_path().string()); }

bool CrashDisk::Stopped() {
  if (stop_after_ < 0 || calls() < stop_after_) return false;
  errno = EIO;
  return true;
}

void CrashDisk::Note(Call call) {
  if (call.kind == Call::Kind::kNames) {
    for (const auto& [name, node] : call.changes) {
      auto& names = nodes_[static_cast<size_t>(call.node)].names;
      if (node == kNone) {
        names.erase(name);
      } else {
        names[name] = node;
      }
    }
  }
  calls_.push_back(std::move(call));
}

int CrashDisk::Create(const std::string& path, mode_t mode) {
  if (Stopped()) return -1;
  const int fd = DiskCalls::Create(path, mode);
  if (fd < 0) return fd;
  const int node = Add({Node::Kind::kFile, "", {}});
  node_of_fd_[fd] = node;
  Note({Call::Kind::kNames, FolderOf(path), {{fs::path(path).filename().string(), node}}, ""});
  return fd;
}

ssize_t CrashDisk::Write(int fd, const void* data, size_t bytes) {
  if (Stopped()) return -1;
  const ssize_t written = DiskCalls::Write(fd, data, bytes);
  if (written <= 0) return written;
  Note({Call::Kind::kData,
        node_of_fd_.at(fd),
        {},
        std::string(static_cast<const char*>(data), static_cast<size_t>(written))});
  return written;
}

int CrashDisk::Sync(int /*fd*/, const std::string& path) {
  if (Stopped()) return -1;
  const int node = Find(path);
  TROUPE_CHECK(node != kNone);
  Note({Call::Kind::kSync, node, {}, ""});
  return 0;
}

int CrashDisk::Rename(const std::string& from, const std::string& to) {
  if (Stopped()) return -1;
  const int result = DiskCalls::Rename(from, to);
  if (result != 0) return result;
  TROUPE_CHECK(fs::path(from).parent_path() == fs::path(to).parent_path());
  const std::string old_name = fs::path(from).filename().string();
  const std::string new_name = fs::path(to).filename().string();
  Note({Call::Kind::kNames, FolderOf(from), {{old_name, kNone}, {new_name, Find(from)}}, ""});
  return 0;
}

int CrashDisk::Link(const std::string& target, const std::string& link) {
  if (Stopped()) return -1;
  const int result = DiskCalls::Link(target, link);
  if (result != 0) return result;
  const int node = Add({Node::Kind::kLink, target, {}});
  Note({Call::Kind::kNames, FolderOf(link), {{fs::path(link).filename().string(), node}}, ""});
  return 0;
}

int CrashDisk::Unlink(const std::string& path) {
  if (Stopped()) return -1;
  const int result = DiskCalls::Unlink(path);
  if (result == 0) Note({Call::Kind::kNames, FolderOf(path), {{fs::path(path).filename().string(), kNone}}, ""});
  return result;
}

int CrashDisk::MakeDirectory(const std::string& path) {
  if (Stopped()) return -1;
  const int result = DiskCalls::MakeDirectory(path);
  if (result != 0) return result;
  const int node = Add({Node::Kind::kFolder, "", {}});
  Note({Call::Kind::kNames, FolderOf(path), {{fs::path(path).filename().string(), node}}, ""});
  return 0;
}

int CrashDisk::RemoveDirectory(const std::string& path) {
  if (Stopped()) return -1;
  const int result = DiskCalls::RemoveDirectory(path);
  if (result == 0) Note({Call::Kind::kNames, FolderOf(path), {{fs::path(path).filename().string(), kNone}}, ""});
  return result;
}

void CrashDisk::Materialize(int calls, const Crash& crash, const std::string& to) const {
  std::vector<int> synced(nodes_.size(), kNone);  // by node: its last sync
  for (int i = 0; i < calls; ++i) {
    const Call& call = calls_[static_cast<size_t>(i)];
    if (call.kind == Call::Kind::kSync) synced[static_cast<size_t>(call.node)] = i;
  }
  std::mt19937_64 random(crash.seed);
  std::vector<std::map<std::string, int>> names = names_at_start_;
  names.resize(nodes_.size());
  std::vector<std::string> texts;
  for (const Node& node : nodes_) texts.push_back(node.text);
  std::vector<size_t> durable(nodes_.size(), 0);
  for (size_t i = 0; i < nodes_.size(); ++i) durable[i] = texts[i].size();
  for (int i = 0; i < calls; ++i) {
    const Call& call = calls_[static_cast<size_t>(i)];
    const auto node = static_cast<size_t>(call.node);
    if (call.kind == Call::Kind::kData) texts[node] += call.bytes;
    if (call.kind == Call::Kind::kData && i < synced[node]) durable[node] = texts[node].size();
    if (call.kind != Call::Kind::kNames) continue;
    const bool keeps = crash.names == Keeps::kAll || (crash.names == Keeps::kSome && random() % 2 == 0);
    if (i > synced[node] && !keeps) continue;
    // A rename moves what is there: where the call that brought it was lost, it does nothing.
    const bool is_rename = call.changes.size() == 2;
    if (is_rename && names[node].count(call.changes[0].first) == 0) continue;
    for (const auto& [name, meaning] : call.changes) {
      if (meaning == kNone) {
        names[node].erase(name);
      } else {
        names[node][name] = meaning;
      }
    }
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].kind == Node::Kind::kFile) texts[i] = Damage(std::move(texts[i]), durable[i], crash.data, random);
  }
  Write(0, names, texts, to);
}

void CrashDisk::Write(int node, const std::vector<std::map<std::string, int>>& names,
                      const std::vector<std::string>& texts, const std::string& to) const {
  for (const auto& [name, child] : names[static_cast<size_t>(node)]) {
    const std::string path = to + "/" + name;
    const std::string& text = texts[static_cast<size_t>(child)];
    switch (nodes_[static_cast<size_t>(child)].kind) {
      case Node::Kind::kFile:
        std::ofstream(path, std::ios::binary) << text;
        break;
      case Node::Kind::kLink:
        fs::create_symlink(text, path);
        break;
      case Node::Kind::kFolder:
        fs::create_directory(path);
        Write(child, names, texts, path);
        break;
    }
  }
}

}  // namespace troupe::storage
