#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/envhost/episode_tracks.h"
#include "lib/envhost/host_options.h"
#include "lib/envhost/python_function.h"
#include "lib/envhost/python_functions.h"

namespace troupe::envhost {

/// An episode that is over, as callbacks hear of it. Borrowed for the call.
struct EndedEpisode {
  struct Part {
    std::string_view agent;
    std::string_view policy;
    double episode_return = 0;
  };
  int32_t length = 0;  ///< env steps
  std::vector<Part> parts;
};

/// Tells callbacks in Python of episodes of environments that are not in Python, in the process of functions. Made by
/// whoever samples; used by one thread. What goes wrong turns callbacks off (EpisodeTracks) and is no error of anybody.
class EpisodeTeller {
 public:
  /// Episodes of a call at most.
  static constexpr size_t kMaxEpisodes = 64;

  /// `options.callbacks` name the classes. Starts nothing yet.
  EpisodeTeller(std::shared_ptr<PythonFunctions> functions, const HostOptions& options,
                std::shared_ptr<EpisodeTracks> tracks);

  /// Calls on_episode_end for each, and waits for that: several at once take one trip.
  void Tell(absl::Span<const EndedEpisode> episodes);

 private:
  /// As many of them, from the first on, as one call takes; how many it was.
  absl::StatusOr<size_t> TellSome(absl::Span<const std::string> episodes);

  const std::shared_ptr<PythonFunctions> functions_;
  const std::shared_ptr<EpisodeTracks> tracks_;
  PythonFunction function_;
};

}  // namespace troupe::envhost
