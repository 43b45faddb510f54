#pragma once

#include <string>

namespace troupe::cli {

/// What is known of a run that has ended. Plain value.
struct EndedRun {
  std::string folder;
  bool is_there = false;  ///< the folder holds a run
  bool has_checkpoint = false;
  bool has_events = false;  ///< files of TensorBoard
  bool plays = true;        ///< commands can play its environment, which is no world outside
  bool draws = false;       ///< its environment can be filmed
  bool finished = false;    ///< a limit of `stop` ended it
  /// The override with which a finished run goes on, "stop.env_steps=2000000"; empty: none that can be proposed.
  std::string raised;
};

/// Reads the run's folder; what cannot be read is taken for not there. Never fails: it is about a hint.
EndedRun ReadEndedRun(const std::string& folder);

/// The commands that a person may want next, as lines to paste: at most five, indented and aligned. `program`: as the
/// person calls it.
std::string NextCommandsText(const std::string& program, const EndedRun& run);

/// The command with which the run in `folder` goes on, from its last checkpoint where it has one.
std::string ResumeCommand(const std::string& program, const std::string& folder);

}  // namespace troupe::cli
