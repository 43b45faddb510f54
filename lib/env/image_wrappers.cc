#include "lib/env/image_wrappers.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/env/env_wrapper.h"
#include "lib/space/image.h"

namespace troupe::env {
namespace {

using space::ImageExtent;

/// What becomes of an agent's image.
class ImageChange {
 public:
  virtual ~ImageChange() = default;
  virtual ImageExtent extent() const = 0;  ///< of what is made
  virtual void Apply(const uint8_t* from, uint8_t* to) = 0;
};
/// Of an image of this extent. INVALID_ARGUMENT where it cannot be made.
using MakeChange = std::function<absl::StatusOr<std::unique_ptr<ImageChange>>(const ImageExtent& from)>;

class Crop final : public ImageChange {
 public:
  Crop(const ImageExtent& from, const std::vector<int64_t>& crop)
      : row_bytes_(from.width * from.channels),
        first_(crop[0] * row_bytes_ + crop[1] * from.channels),
        extent_{crop[2], crop[3], from.channels} {}

  ImageExtent extent() const override { return extent_; }
  void Apply(const uint8_t* from, uint8_t* to) override {
    const int64_t run = extent_.width * extent_.channels;
    for (int64_t y = 0; y < extent_.height; ++y) {
      std::memcpy(to + y * run, from + first_ + y * row_bytes_, static_cast<size_t>(run));
    }
  }

 private:
  const int64_t row_bytes_;
  const int64_t first_;
  const ImageExtent extent_;
};

class Grayscale final : public ImageChange {
 public:
  explicit Grayscale(const ImageExtent& from) : extent_{from.height, from.width, 1} {}

  ImageExtent extent() const override { return extent_; }
  void Apply(const uint8_t* from, uint8_t* to) override {
    const int64_t pixels = extent_.size();
    for (int64_t p = 0; p < pixels; ++p, from += 3) {
      to[p] = static_cast<uint8_t>((299 * from[0] + 587 * from[1] + 114 * from[2] + 500) / 1000);
    }
  }

 private:
  const ImageExtent extent_;
};

class Resize final : public ImageChange {
 public:
  Resize(const ImageExtent& from, const std::vector<int64_t>& size)
      : from_(from),
        extent_{size[0], size[1], from.channels},
        rows_(Parts(from.height, size[0])),
        columns_(Parts(from.width, size[1])),
        sums_(static_cast<size_t>(from.width * from.channels)) {}

  ImageExtent extent() const override { return extent_; }
  void Apply(const uint8_t* from, uint8_t* to) override {
    const int64_t channels = from_.channels;
    const int64_t line = from_.width * channels;
    // All shares of an image's pixel together.
    const auto area = static_cast<uint64_t>(from_.height * from_.width);
    for (const Part& row : rows_) {
      std::fill(sums_.begin(), sums_.end(), 0u);
      for (size_t r = 0; r < row.shares.size(); ++r) {
        const uint8_t* const pixels = from + (row.first + static_cast<int64_t>(r)) * line;
        for (int64_t i = 0; i < line; ++i) sums_[static_cast<size_t>(i)] += row.shares[r] * pixels[i];
      }
      for (const Part& column : columns_) {
        for (int64_t c = 0; c < channels; ++c) {
          uint64_t sum = area / 2;
          const uint32_t* part = sums_.data() + column.first * channels + c;
          for (const uint32_t share : column.shares) {
            sum += uint64_t{share} * *part;
            part += channels;
          }
          *to++ = static_cast<uint8_t>(sum / area);
        }
      }
    }
  }

 private:
  /// Lines of the old image that one of the new covers, and how much of each: in parts of a new line, of which a line
  /// of the old has as many as there are new ones.
  struct Part {
    int64_t first = 0;
    std::vector<uint32_t> shares;
  };
  static std::vector<Part> Parts(int64_t old_lines, int64_t new_lines) {
    std::vector<Part> parts;
    for (int64_t n = 0; n < new_lines; ++n) {
      const int64_t begin = n * old_lines;
      const int64_t end = begin + old_lines;
      Part part;
      part.first = begin / new_lines;
      for (int64_t line = part.first; line * new_lines < end; ++line) {
        const int64_t share = std::min(end, (line + 1) * new_lines) - std::max(begin, line * new_lines);
        part.shares.push_back(static_cast<uint32_t>(share));
      }
      parts.push_back(std::move(part));
    }
    return parts;
  }

  const ImageExtent from_;
  const ImageExtent extent_;
  const std::vector<Part> rows_, columns_;
  std::vector<uint32_t> sums_;  // of a new line, by column of the old image and channel
};

class ImageEnv final : public EnvWrapper {
 public:
  ImageEnv(std::unique_ptr<MultiAgentEnv> env, EnvSpec spec, std::vector<std::unique_ptr<ImageChange>> changes)
      : EnvWrapper(std::move(env), std::move(spec)), writer_(*this) {
    for (size_t i = 0; i < changes.size(); ++i) {
      Agent& agent = agents_.emplace_back();
      agent.change = std::move(changes[i]);
      if (agent.change == nullptr) continue;
      agent.image.resize(static_cast<size_t>(inner_spec().possible_agents[i].observation_space.flat_size()));
    }
  }

 private:
  struct Agent {
    std::unique_ptr<ImageChange> change;  ///< nullptr: it stays
    std::vector<uint8_t> image;           ///< as the environment writes it
    uint8_t* row = nullptr;               ///< of the call; nullptr: observes nothing
  };

  /// Lets the environment write images where they are changed from.
  class Writer final : public ForwardingWriter {
   public:
    explicit Writer(ImageEnv& owner) : owner_(owner) {}
    void* Observe(AgentSlot slot) override {
      Agent& agent = owner_.agents_[static_cast<size_t>(slot.value())];
      if (agent.change == nullptr) return out().Observe(slot);
      agent.row = static_cast<uint8_t*>(out().Observe(slot));
      return agent.image.data();
    }

   private:
    ImageEnv& owner_;
  };

  StepWriter& BeginCall(StepWriter& out) override {
    for (Agent& agent : agents_) agent.row = nullptr;
    writer_.Begin(out);
    return writer_;
  }

  absl::Status EndCall(StepWriter& /*out*/) override {
    for (Agent& agent : agents_) {
      if (agent.row != nullptr) agent.change->Apply(agent.image.data(), agent.row);
    }
    return absl::OkStatus();
  }

  std::vector<Agent> agents_;
  Writer writer_;
};

/// The Box of the changed image, of as many dimensions as the old one has.
absl::StatusOr<space::Space> ChangedSpace(const space::Space& old, const ImageExtent& extent) {
  std::vector<int64_t> shape = {extent.height, extent.width};
  if (old.shape().size() == 3) shape.push_back(extent.channels);
  const double low = *std::min_element(old.low().begin(), old.low().end());
  const double high = *std::max_element(old.high().begin(), old.high().end());
  return space::Space::Box(low, high, std::move(shape), old.dtype());
}

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithImages(std::unique_ptr<MultiAgentEnv> env, const MakeChange& make) {
  EnvSpec spec = env->spec();
  std::vector<std::unique_ptr<ImageChange>> changes;
  for (AgentSpec& agent : spec.possible_agents) {
    const space::Space& old = agent.observation_space;
    const ImageExtent from = space::ImageOf(old);
    absl::StatusOr<std::unique_ptr<ImageChange>> change =
        space::IsImageOfBytes(old)
            ? make(from)
            : absl::InvalidArgumentError(
                  "expected an image, a uint8 Box of [height, width, channels] or [height, width]");
    if (!change.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("agent \"", agent.id.value(), "\" observes ", old.ToString(), "; ",
                                                     std::string(change.status().message())));
    }
    if (*change != nullptr) {
      TROUPE_ASSIGN_OR_RETURN(agent.observation_space, ChangedSpace(old, (*change)->extent()));
    }
    changes.push_back(*std::move(change));
  }
  const bool changes_any = std::any_of(changes.begin(), changes.end(), [](const auto& one) { return one != nullptr; });
  if (!changes_any) return env;
  return std::make_unique<ImageEnv>(std::move(env), std::move(spec), std::move(changes));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithCrop(std::unique_ptr<MultiAgentEnv> env,
                                                        const std::vector<int64_t>& crop) {
  if (crop.size() != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("got [", absl::StrJoin(crop, ", "), "], expected four numbers, [top, left, height, width]"));
  }
  return WithImages(std::move(env), [&](const ImageExtent& from) -> absl::StatusOr<std::unique_ptr<ImageChange>> {
    if (crop[0] < 0 || crop[1] < 0 || crop[2] < 1 || crop[3] < 1 || crop[0] > from.height - crop[2] ||
        crop[1] > from.width - crop[3]) {
      return absl::InvalidArgumentError(absl::StrCat("got the part [", absl::StrJoin(crop, ", "),
                                                     "], [top, left, height, width], expected one inside of ",
                                                     from.height, " x ", from.width, " pixels"));
    }
    return std::make_unique<Crop>(from, crop);
  });
}

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithGrayscale(std::unique_ptr<MultiAgentEnv> env) {
  return WithImages(std::move(env), [](const ImageExtent& from) -> absl::StatusOr<std::unique_ptr<ImageChange>> {
    if (from.channels == 1) return nullptr;
    if (from.channels != 3) {
      return absl::InvalidArgumentError(
          absl::StrCat("got ", from.channels, " channels, expected 3 (red, green, blue) or 1"));
    }
    return std::make_unique<Grayscale>(from);
  });
}

absl::StatusOr<std::unique_ptr<MultiAgentEnv>> WithResize(std::unique_ptr<MultiAgentEnv> env,
                                                          const std::vector<int64_t>& size) {
  const auto fits = [](int64_t extent) { return extent >= 1 && extent <= kMaxImageExtent; };
  if (size.size() != 2 || !fits(size[0]) || !fits(size[1])) {
    return absl::InvalidArgumentError(absl::StrCat("got [", absl::StrJoin(size, ", "),
                                                   "], expected two numbers from 1 to ", kMaxImageExtent,
                                                   ", [height, width]"));
  }
  return WithImages(std::move(env), [&](const ImageExtent& from) -> absl::StatusOr<std::unique_ptr<ImageChange>> {
    if (from.height == size[0] && from.width == size[1]) return nullptr;
    if (std::max(from.height, from.width) > kMaxImageExtent) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected at most ", kMaxImageExtent, " pixels in height and width"));
    }
    return std::make_unique<Resize>(from, size);
  });
}

}  // namespace troupe::env
