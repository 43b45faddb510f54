// Rows of spaces: are they inside, and a random one.

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/space/space.h"

namespace troupe::space {
namespace {

bool IsWholeDType(tensor::DType dtype) { return dtype != tensor::DType::kFloat32 && dtype != tensor::DType::kFloat64; }

absl::Status BadElement(int64_t index, double value, std::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("element ", index, " is ", value, ", expected ", std::string(expected)));
}

absl::Status WrongLength(size_t got, int64_t expected, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("row has ", got, " ", std::string(what), ", expected ", expected));
}

absl::Status CheckBoxElements(const Space& box, absl::Span<const float> row, int64_t first) {
  const absl::Span<const double> low = box.low();
  const absl::Span<const double> high = box.high();
  const bool whole = IsWholeDType(box.dtype());
  for (size_t i = 0; i < row.size(); ++i) {
    const float value = row[i];
    const bool inside = value >= static_cast<float>(low[i]) && value <= static_cast<float>(high[i]);  // false for NaN
    if (!inside || !std::isfinite(value) || (whole && std::floor(value) != value)) {
      return BadElement(
          first + static_cast<int64_t>(i), value,
          absl::StrCat(whole ? "a whole number" : "a finite number", " in [", low[i], ", ", high[i], "]"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOneHot(absl::Span<const float> row, int64_t first) {
  int64_t ones = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] == 1.0f) {
      ++ones;
    } else if (row[i] != 0.0f) {
      return BadElement(first + static_cast<int64_t>(i), row[i], "0 or 1 (one-hot)");
    }
  }
  if (ones == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("elements ", first, " to ",
                                                 first + static_cast<int64_t>(row.size()) - 1, " hold ", ones,
                                                 " ones, expected exactly one (one-hot)"));
}

absl::Status CheckFlat(const Space& space, absl::Span<const float> row, int64_t first) {
  switch (space.kind()) {
    case SpaceKind::kNone:
      return absl::OkStatus();
    case SpaceKind::kBox:
      return CheckBoxElements(space, row, first);
    case SpaceKind::kDiscrete:
      return CheckOneHot(row, first);
    case SpaceKind::kMultiDiscrete: {
      size_t offset = 0;
      for (const int64_t n : space.nvec()) {
        TROUPE_RETURN_IF_ERROR(
            CheckOneHot(row.subspan(offset, static_cast<size_t>(n)), first + static_cast<int64_t>(offset)));
        offset += static_cast<size_t>(n);
      }
      return absl::OkStatus();
    }
    case SpaceKind::kMultiBinary:
      for (size_t i = 0; i < row.size(); ++i) {
        if (row[i] != 0.0f && row[i] != 1.0f) return BadElement(first + static_cast<int64_t>(i), row[i], "0 or 1");
      }
      return absl::OkStatus();
    case SpaceKind::kDict:
    case SpaceKind::kTuple: {
      size_t offset = 0;
      for (const Space& child : space.children()) {
        const size_t size = static_cast<size_t>(child.flat_size());
        TROUPE_RETURN_IF_ERROR(CheckFlat(child, row.subspan(offset, size), first + static_cast<int64_t>(offset)));
        offset += size;
      }
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWord(ActionWord word, int64_t index, int64_t low, int64_t count) {
  if (word.i32 >= low && word.i32 < low + count) return absl::OkStatus();
  return BadElement(index, word.i32, absl::StrCat("an integer in [", low, ", ", low + count - 1, "]"));
}

absl::Status CheckAction(const Space& space, absl::Span<const ActionWord> row, int64_t first) {
  switch (space.kind()) {
    case SpaceKind::kNone:
      return absl::OkStatus();
    case SpaceKind::kBox: {
      const absl::Span<const double> low = space.low();
      const absl::Span<const double> high = space.high();
      for (size_t i = 0; i < row.size(); ++i) {
        const float value = row[i].f32;
        const bool inside = value >= static_cast<float>(low[i]) && value <= static_cast<float>(high[i]);
        if (!inside || !std::isfinite(value)) {
          return BadElement(first + static_cast<int64_t>(i), value,
                            absl::StrCat("a finite number in [", low[i], ", ", high[i], "]"));
        }
      }
      return absl::OkStatus();
    }
    case SpaceKind::kDiscrete:
      return CheckWord(row[0], first, space.start(), space.n());
    case SpaceKind::kMultiDiscrete:
      for (size_t i = 0; i < row.size(); ++i) {
        TROUPE_RETURN_IF_ERROR(CheckWord(row[i], first + static_cast<int64_t>(i), 0, space.nvec()[i]));
      }
      return absl::OkStatus();
    case SpaceKind::kMultiBinary:
      for (size_t i = 0; i < row.size(); ++i)
        TROUPE_RETURN_IF_ERROR(CheckWord(row[i], first + static_cast<int64_t>(i), 0, 2));
      return absl::OkStatus();
    case SpaceKind::kDict:
    case SpaceKind::kTuple: {
      size_t offset = 0;
      for (const Space& child : space.children()) {
        const size_t words = static_cast<size_t>(child.action_words());
        TROUPE_RETURN_IF_ERROR(CheckAction(child, row.subspan(offset, words), first + static_cast<int64_t>(offset)));
        offset += words;
      }
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

/// Uniform within the bounds where they are finite, else normal or exponential as gymnasium's Box.sample.
float SampleElement(base::PhiloxSequence& random, double low, double high, bool whole) {
  double value = 0;
  if (std::isfinite(low) && std::isfinite(high)) {
    const double u = random.Uniform();
    value = whole ? std::min(high, std::floor(low + u * (high - low + 1))) : low * (1 - u) + high * u;
  } else if (std::isfinite(low)) {
    value = low - std::log(1.0 - random.Uniform());
  } else if (std::isfinite(high)) {
    value = high + std::log(1.0 - random.Uniform());
  } else {
    value = random.Normal();
  }
  if (whole) value = std::floor(value);
  // Rounding to float must not leave the space.
  return std::clamp(static_cast<float>(value), static_cast<float>(low), static_cast<float>(high));
}

/// A category; only allowed ones when `mask` is given and allows any.
int64_t SampleCategory(base::PhiloxSequence& random, int64_t categories, absl::Span<const uint8_t> mask) {
  const int64_t allowed = mask.size() - std::count(mask.begin(), mask.end(), uint8_t{0});
  if (mask.empty() || allowed == 0) return random.Below(static_cast<uint32_t>(categories));
  int64_t left = random.Below(static_cast<uint32_t>(allowed));
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] != 0 && left-- == 0) return static_cast<int64_t>(i);
  }
  return 0;
}

void SampleActionRow(const Space& space, base::PhiloxSequence& random, absl::Span<const uint8_t> mask,
                     absl::Span<ActionWord> row) {
  const auto category = [&](int64_t categories, int64_t mask_offset) {
    return static_cast<int32_t>(SampleCategory(
        random, categories,
        mask.empty() ? mask : mask.subspan(static_cast<size_t>(mask_offset), static_cast<size_t>(categories))));
  };
  switch (space.kind()) {
    case SpaceKind::kNone:
      return;
    case SpaceKind::kBox:
      for (size_t i = 0; i < row.size(); ++i) {
        row[i].f32 = SampleElement(random, space.low()[i], space.high()[i], IsWholeDType(space.dtype()));
      }
      return;
    case SpaceKind::kDiscrete:
      row[0].i32 = static_cast<int32_t>(space.start()) + category(space.n(), 0);
      return;
    case SpaceKind::kMultiDiscrete: {
      int64_t mask_offset = 0;
      for (size_t i = 0; i < row.size(); ++i) {
        row[i].i32 = category(space.nvec()[i], mask_offset);
        mask_offset += space.nvec()[i];
      }
      return;
    }
    case SpaceKind::kMultiBinary:
      for (size_t i = 0; i < row.size(); ++i) row[i].i32 = category(2, 2 * static_cast<int64_t>(i));
      return;
    case SpaceKind::kDict:
    case SpaceKind::kTuple: {
      size_t word = 0;
      size_t mask_offset = 0;
      for (const Space& child : space.children()) {
        const size_t words = static_cast<size_t>(child.action_words());
        const size_t masks = static_cast<size_t>(child.mask_size());
        SampleActionRow(child, random, mask.empty() ? mask : mask.subspan(mask_offset, masks),
                        row.subspan(word, words));
        word += words;
        mask_offset += masks;
      }
      return;
    }
  }
}

void SampleFlatRow(const Space& space, base::PhiloxSequence& random, absl::Span<float> row) {
  const auto one_hot = [&](absl::Span<float> part) {
    std::fill(part.begin(), part.end(), 0.0f);
    part[random.Below(static_cast<uint32_t>(part.size()))] = 1.0f;
  };
  size_t offset = 0;
  switch (space.kind()) {
    case SpaceKind::kNone:
      return;
    case SpaceKind::kBox:
      for (size_t i = 0; i < row.size(); ++i) {
        row[i] = SampleElement(random, space.low()[i], space.high()[i], IsWholeDType(space.dtype()));
      }
      return;
    case SpaceKind::kDiscrete:
      one_hot(row);
      return;
    case SpaceKind::kMultiDiscrete:
      for (const int64_t n : space.nvec()) {
        one_hot(row.subspan(offset, static_cast<size_t>(n)));
        offset += static_cast<size_t>(n);
      }
      return;
    case SpaceKind::kMultiBinary:
      for (float& element : row) element = static_cast<float>(random.Below(2));
      return;
    case SpaceKind::kDict:
    case SpaceKind::kTuple:
      for (const Space& child : space.children()) {
        const size_t size = static_cast<size_t>(child.flat_size());
        SampleFlatRow(child, random, row.subspan(offset, size));
        offset += size;
      }
      return;
  }
}

}  // namespace

absl::Status Space::ContainsFlat(absl::Span<const float> row) const {
  if (static_cast<int64_t>(row.size()) != flat_size()) return WrongLength(row.size(), flat_size(), "elements");
  return CheckFlat(*this, row, 0);
}

absl::Status Space::ContainsFlat(absl::Span<const uint8_t> row) const {
  if (flat_dtype() != tensor::DType::kUint8) return absl::InvalidArgumentError("row is uint8, expected float32");
  if (static_cast<int64_t>(row.size()) != flat_size()) return WrongLength(row.size(), flat_size(), "elements");
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] < low()[i] || row[i] > high()[i]) {
      return BadElement(static_cast<int64_t>(i), row[i],
                        absl::StrCat("a whole number in [", low()[i], ", ", high()[i], "]"));
    }
  }
  return absl::OkStatus();
}

absl::Status Space::ContainsAction(absl::Span<const ActionWord> row) const {
  if (static_cast<int64_t>(row.size()) != action_words())
    return WrongLength(row.size(), action_words(), "action words");
  return CheckAction(*this, row, 0);
}

void Space::SampleAction(base::PhiloxSequence& random, absl::Span<const uint8_t> mask,
                         absl::Span<ActionWord> row) const {
  SampleActionRow(*this, random, mask, row);
}

void Space::SampleFlat(base::PhiloxSequence& random, absl::Span<float> row) const { SampleFlatRow(*this, random, row); }

}  // namespace troupe::space
