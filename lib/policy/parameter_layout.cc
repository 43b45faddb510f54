#include "lib/policy/parameter_layout.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace troupe::policy {
namespace {

// 64 bytes: every tensor starts on a cache line, as vector kernels like it.
constexpr int64_t kEntryAlignment = 16;

int64_t AlignUp(int64_t elements) { return (elements + kEntryAlignment - 1) / kEntryAlignment * kEntryAlignment; }

/// Appends entries one after another.
class Appender {
 public:
  explicit Appender(std::vector<ParameterEntry>* entries) : entries_(entries) {}

  void Add(std::string name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    entries_->push_back(ParameterEntry{std::move(name), std::move(shape), end_, count});
    end_ = AlignUp(end_ + count);
  }

  void AddMlp(const std::string& prefix, int64_t input, const std::vector<int64_t>& hidden, int64_t output) {
    int64_t layer = 0;
    const auto add_layer = [&](int64_t out) {
      Add(absl::StrCat(prefix, ".", layer, ".weight"), {out, input});
      Add(absl::StrCat(prefix, ".", layer, ".bias"), {out});
      input = out;
      ++layer;
    };
    for (const int64_t size : hidden) add_layer(size);
    add_layer(output);
  }

  int64_t end() const { return end_; }

 private:
  std::vector<ParameterEntry>* entries_;
  int64_t end_ = 0;
};

}  // namespace

ParameterLayout ParameterLayout::For(const PolicySpec& spec) {
  ParameterLayout layout;
  if (!spec.policy_class.has_weights()) return layout;
  Appender appender(&layout.entries_);
  appender.AddMlp("actor", spec.actor_input_size(), spec.model.actor_hidden_sizes, spec.actor_output_size());
  if (spec.log_std_size() > 0) appender.Add("actor.log_std", {spec.log_std_size()});
  layout.actor_size_ = appender.end();
  appender.AddMlp("critic", spec.critic_input_size(), spec.model.critic_hidden_sizes, 1);
  layout.size_ = appender.end();
  return layout;
}

const ParameterEntry* ParameterLayout::Find(std::string_view name) const {
  for (const ParameterEntry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::string FirstShapeDifference(const PolicySpec& got, const PolicySpec& expected) {
  const ParameterLayout ours = ParameterLayout::For(got);
  const ParameterLayout theirs = ParameterLayout::For(expected);
  const auto shape = [](const ParameterEntry* entry) {
    return entry == nullptr ? "none" : absl::StrCat("[", absl::StrJoin(entry->shape, ", "), "]");
  };
  for (const auto& [one, other] : {std::pair(&ours, &theirs), std::pair(&theirs, &ours)}) {
    for (const ParameterEntry& entry : one->entries()) {
      const ParameterEntry* const match = other->Find(entry.name);
      if (match != nullptr && match->shape == entry.shape) continue;
      return absl::StrCat("tensor \"", got.id.value(), "/", entry.name, "\" has shape ", shape(ours.Find(entry.name)),
                          ", expected ", shape(theirs.Find(entry.name)));
    }
  }
  return "";
}

}  // namespace troupe::policy
