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

constexpr size_t kMaxLine = 80;  // of a line that an error shows

/// What stands in line `number`, from 0.
std::string_view LineOf(std::string_view text, int number) {
  for (; number > 0 && !text.empty(); --number) {
    const size_t end = text.find('\n');
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return text.substr(0, text.find('\n'));
}

/// Whether a tab stands where a line is indented, which YAML forbids and its parsers say in other words.
bool IsIndentedByTab(std::string_view line) {
  const size_t first = line.find_first_not_of(' ');
  return first != std::string_view::npos && line[first] == '\t';
}

/// The line of the first such tab up to `last`; -1: there is none.
int FirstTabLine(std::string_view text, int last) {
  for (int number = 0; number <= last; ++number) {
    const size_t end = text.find('\n');
    if (IsIndentedByTab(text.substr(0, end))) return number;
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return -1;
}

/// What helps against the parser's commonest complaints.
std::string_view YamlHint(std::string_view complaint) {
  const auto is = [complaint](std::string_view words) { return complaint.find(words) != std::string_view::npos; };
  if (is("flow")) return "close every [ and {, put commas between what is inside, and text with a colon in quotes";
  if (is("end of map") || is("end of sequence") || is("block")) {
    return "indent the keys of one section by the same number of spaces";
  }
  if (is("second document")) return "take out the line \"---\"";
  if (is("got more than")) return "take some of it out";
  if (is("alias") || is("anchor")) return "write text that begins with & or * in quotes";
  if (is("quote") || is("scalar") || is("escape")) return "close every quote, and write a backslash in single quotes";
  return "put a space behind the colon of a key, and write text with a colon in quotes";
}

/// "PLACE: not valid YAML: COMPLAINT: got \"LINE\", …; HINT".
absl::Status YamlError(const std::string& text, const std::string& place, bool with_mark,
                       const YAML::Exception& error) {
  const int tab = error.mark.is_null() ? -1 : FirstTabLine(text, error.mark.line);
  const int line = tab >= 0 ? tab : error.mark.line;
  const std::string_view shown = LineOf(text, line);
  const int column = tab >= 0 ? static_cast<int>(shown.find('\t')) : error.mark.column;
  const std::string at = with_mark ? absl::StrCat(place, ":", line + 1, ":", column + 1) : place;
  // Without marks the place is the text itself; and what others sign in with is not shown.
  const bool hidden = !with_mark || shown.empty() || text.find("wandb_kwargs") != std::string::npos;
  const std::string got =
      hidden ? "" : absl::StrCat(": got \"", base::LogSafe(std::string(shown.substr(0, kMaxLine))), "\"");
  if (tab >= 0) {
    return absl::InvalidArgumentError(absl::StrCat(at, ": not valid YAML: a tab indents the line", got,
                                                   ", expected spaces; put two spaces in the tab's place"));
  }
  const bool told = error.msg.find("expected") != std::string::npos;
  return absl::InvalidArgumentError(absl::StrCat(at, ": not valid YAML: ", base::LogSafe(error.msg), got,
                                                 told ? "; " : ", expected KEY: VALUE a line; ",
                                                 std::string(YamlHint(error.msg))));
}

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
    return YamlError(text, place, with_mark, error);
  }
}

}  // namespace troupe::config
