#include "lib/config/parse_yaml.h"

#include <map>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/parser.h>

namespace troupe::config {
namespace {

/// Measures a document while it is parsed and ends that with an exception as soon as a bound is reached.
class Measure final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) throw YAML::ParserException(mark, "a second document begins, expected one");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { Leaf(mark, anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, const std::string&) override {
    Leaf(mark, anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = nodes_of_.find(anchor);
    if (found == nodes_of_.end()) throw YAML::ParserException(mark, "an alias stands inside of what it stands for");
    Add(mark, found->second);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, anchor);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Group {
    YAML::anchor_t anchor;
    int64_t nodes_before;
  };

  void Add(const YAML::Mark& mark, int64_t nodes) {
    nodes_ += nodes;
    if (nodes_ > kMaxYamlNodes) {
      throw YAML::ParserException(mark, absl::StrCat("got more than ", kMaxYamlNodes, " values, expected fewer"));
    }
  }
  void Leaf(const YAML::Mark& mark, YAML::anchor_t anchor) {
    Add(mark, 1);
    if (anchor != YAML::NullAnchor) nodes_of_[anchor] = 1;
  }
  void Open(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (open_.size() == kMaxYamlDepth) {
      throw YAML::ParserException(mark,
                                  absl::StrCat("got more than ", kMaxYamlDepth, " levels of nesting, expected fewer"));
    }
    open_.push_back({anchor, nodes_});
    Add(mark, 1);
  }
  void Close() {
    const Group group = open_.back();
    open_.pop_back();
    if (group.anchor != YAML::NullAnchor) nodes_of_[group.anchor] = nodes_ - group.nodes_before;
  }

  int documents_ = 0;
  int64_t nodes_ = 0;
  std::vector<Group> open_;
  std::map<YAML::anchor_t, int64_t> nodes_of_;  ///< of what an alias may stand for
};

}  // namespace

absl::StatusOr<YAML::Node> ParseYaml(const std::string& text, const std::string& place, bool with_mark) {
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    Measure measure;
    // Each call is one document; Measure ends the second.
    while (parser.HandleNextDocument(measure)) {
    }
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    const std::string at =
        with_mark ? absl::StrCat(place, ":", error.mark.line + 1, ":", error.mark.column + 1) : place;
    return absl::InvalidArgumentError(absl::StrCat(at, ": not valid YAML: ", base::LogSafe(error.msg)));
  }
}

}  // namespace troupe::config
