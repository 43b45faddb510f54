#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "lib/env/canvas.h"
#include "lib/env/plugin_abi.h"

namespace troupe::env {

/// A Canvas as the functions of plugin_abi.h, for one draw of a plug-in. What is beyond the limits or malformed is not
/// drawn, nor anything after it, and Finish says what it was. Not thread-safe.
class PluginCanvas {
 public:
  /// `canvas` outlives it.
  explicit PluginCanvas(Canvas* canvas);
  PluginCanvas(const PluginCanvas&) = delete;
  PluginCanvas& operator=(const PluginCanvas&) = delete;

  const TroupeCanvas& functions() const { return functions_; }
  /// INTERNAL for what was refused, or where there was no view.
  absl::Status Finish() const;

 private:
  static PluginCanvas& Self(void* context) { return *static_cast<PluginCanvas*>(context); }
  static void View(void* context, double left, double bottom, double right, double top) noexcept;
  static void Circle(void* context, double x, double y, double radius, uint32_t color) noexcept;
  static void Line(void* context, double from_x, double from_y, double to_x, double to_y, double width,
                   uint32_t color) noexcept;
  static void Polygon(void* context, const double* corners, uint64_t num_corners, uint32_t color) noexcept;
  static void Text(void* context, double x, double y, const char* text, uint32_t color) noexcept;
  static void Image(void* context, double left, double bottom, double right, double top, uint32_t width,
                    uint32_t height, const uint8_t* rgb) noexcept;

  /// Whether one shape more may be drawn.
  bool Takes();
  void Refuse(absl::Status why);

  Canvas& canvas_;
  TroupeCanvas functions_;
  bool has_view_ = false;
  uint32_t shapes_ = 0;
  absl::Status refused_;
};

}  // namespace troupe::env
