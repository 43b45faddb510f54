#include "lib/space/observation_leaves.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::space {
namespace {

bool IsLeaf(const Space& space) { return space.kind() != SpaceKind::kDict && space.kind() != SpaceKind::kTuple; }

void AppendLeaves(const Space& space, int64_t* first, std::vector<ObservationLeaf>* leaves) {
  if (IsLeaf(space)) {
    leaves->push_back({space, *first});
    *first += space.flat_size();
    return;
  }
  for (const Space& child : space.children()) AppendLeaves(child, first, leaves);
}

void AppendNames(const Space& space, const std::string& name, std::vector<std::string>* names) {
  if (IsLeaf(space)) {
    names->push_back(name);
    return;
  }
  for (size_t i = 0; i < space.children().size(); ++i) {
    const std::string part = space.kind() == SpaceKind::kDict ? space.keys()[i] : absl::StrCat(i);
    AppendNames(space.children()[i], name.empty() ? part : absl::StrCat(name, "/", part), names);
  }
}

}  // namespace

std::vector<ObservationLeaf> ObservationLeaves(const Space& space) {
  std::vector<ObservationLeaf> leaves;
  int64_t first = 0;
  AppendLeaves(space, &first, &leaves);
  return leaves;
}

bool HasUnboundedNumbers(const Space& space) {
  if (space.kind() == SpaceKind::kBox) return !space.bounded();
  return !IsLeaf(space) && std::any_of(space.children().begin(), space.children().end(), HasUnboundedNumbers);
}

std::vector<std::string> ObservationLeafNames(const Space& space) {
  std::vector<std::string> names;
  AppendNames(space, "", &names);
  return names;
}

}  // namespace troupe::space
