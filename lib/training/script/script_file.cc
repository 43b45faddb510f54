#include "lib/training/script/script_file.h"

#include <exception>
#include <istream>
#include <streambuf>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/log.h"

namespace troupe::training {
namespace {

/// Borrows bytes for a stream, which only reads.
class Bytes final : public std::streambuf {
 public:
  explicit Bytes(const std::string& bytes) {
    char* const first = const_cast<char*>(bytes.data());
    setg(first, first, first + bytes.size());
  }

 protected:
  pos_type seekoff(off_type offset, std::ios_base::seekdir from, std::ios_base::openmode /*which*/) override {
    char* const base = from == std::ios_base::beg ? eback() : from == std::ios_base::cur ? gptr() : egptr();
    if (offset < eback() - base || offset > egptr() - base) return pos_type(off_type(-1));
    setg(eback(), base + offset, egptr());
    return gptr() - eback();
  }
  pos_type seekpos(pos_type position, std::ios_base::openmode which) override {
    return seekoff(position, std::ios_base::beg, which);
  }
};

}  // namespace

torch::jit::Module ReadScript(const policy::ModuleFile& file, const torch::Device& device) {
  Bytes bytes(file.bytes);
  std::istream stream(&bytes);
  return torch::jit::load(stream, device);
}

torch::IValue CallScript(torch::jit::Method method, std::vector<torch::IValue> inputs) {
  try {
    return method(std::move(inputs));
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    const std::vector<std::string> lines = absl::StrSplit(error.what(), '\n', absl::SkipWhitespace());
    TORCH_CHECK(false, method.name(),
                " of the TorchScript module fails: ", lines.empty() ? "without a word" : lines.back());
  }
}

absl::Status ScriptError(const policy::ModuleFile& file, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("TorchScript file ", base::LogSafe(file.path), " ", what));
}

absl::Status UnreadableScript(const policy::ModuleFile& file, const absl::Status& read) {
  return ScriptError(file, absl::StrCat("cannot be read, expected what torch.jit.save wrote of a torch.jit.script: ",
                                        base::LogSafe(std::string(read.message()), kMaxScriptWords)));
}

}  // namespace troupe::training
