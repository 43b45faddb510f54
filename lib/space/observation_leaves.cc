#include "lib/space/observation_leaves.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::space {
namespace {

void AppendObservationLeaves(const Space& space, const std::string& name, int64_t* first,
                             std::vector<ObservationLeaf>* leaves) {
  if (space.kind() != SpaceKind::kDict && space.kind() != SpaceKind::kTuple) {
    leaves->push_back({name, space, *first});
    *first += space.flat_size();
    return;
  }
  for (size_t i = 0; i < space.children().size(); ++i) {
    const std::string part = space.kind() == SpaceKind::kDict ? space.keys()[i] : absl::StrCat(i);
    AppendObservationLeaves(space.children()[i], name.empty() ? part : absl::StrCat(name, "/", part), first, leaves);
  }
}

}  // namespace

std::vector<ObservationLeaf> ObservationLeaves(const Space& space) {
  std::vector<ObservationLeaf> leaves;
  int64_t first = 0;
  AppendObservationLeaves(space, "", &first, &leaves);
  return leaves;
}

}  // namespace troupe::space
