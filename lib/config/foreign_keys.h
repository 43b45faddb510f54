#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe::config {

/// A key of RLlib, XuanCe, skrl, Tianshou or the on-policy MAPPO repository that means something here.
struct ForeignKey {
  std::string_view name;  ///< as they spell it, without its section
  std::string_view from;  ///< whose it is
  std::string_view ours;  ///< our full key; empty: there is none
  std::string_view note;  ///< what differs; may be empty
};

/// All of them, each name once.
const std::vector<ForeignKey>& ForeignKeys();
/// nullptr when `name` is not among them.
const ForeignKey* FindForeignKey(std::string_view name);

/// The end of an error about the unknown key `name` in `section`: where the name stands elsewhere in the schema, what a
/// foreign name is called here, else the nearest key, else the section's keys.
std::string UnknownKeyHint(std::string_view section, std::string_view name, const std::vector<std::string>& siblings);

}  // namespace troupe::config
