#include "lib/render/gif_writer.h"

#include <gif_lib.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace troupe::render {
namespace {

constexpr int kColors = 256;
constexpr int kStepMs = 10;  // GIF's unit of time

absl::Status ErrorOf(const GifFileType* gif) {
  const char* const words = GifErrorString(gif == nullptr ? 0 : gif->Error);
  return absl::InternalError(absl::StrCat("GIF: ", words == nullptr ? "cannot be encoded" : words));
}

}  // namespace

struct GifWriter::File {
  ~File() {
    if (gif != nullptr) EGifCloseFile(gif, nullptr);
    if (colors != nullptr) GifFreeMapObject(colors);
  }

  static int Append(GifFileType* gif, const GifByteType* data, int size) {
    static_cast<File*>(gif->UserData)->bytes.append(reinterpret_cast<const char*>(data), static_cast<size_t>(size));
    return size;
  }

  /// Makes `indices` and `colors` of a picture.
  bool Quantize(const Picture& picture) {
    const size_t count = indices.size();
    for (size_t i = 0; i < count; ++i) {
      red[i] = picture.rgb[3 * i];
      green[i] = picture.rgb[3 * i + 1];
      blue[i] = picture.rgb[3 * i + 2];
    }
    int size = kColors;
    return GifQuantizeBuffer(static_cast<unsigned>(picture.width), static_cast<unsigned>(picture.height), &size,
                             red.data(), green.data(), blue.data(), indices.data(), colors->Colors) == GIF_OK;
  }

  GifFileType* gif = nullptr;
  ColorMapObject* colors = nullptr;
  int width = 0;
  int height = 0;
  int delay = 0;  ///< steps
  int64_t most_bytes = 0;
  std::string bytes;
  std::vector<GifByteType> red, green, blue, indices;
};

GifWriter::GifWriter(std::unique_ptr<File> file) : file_(std::move(file)) {}
GifWriter::~GifWriter() = default;

absl::StatusOr<std::unique_ptr<GifWriter>> GifWriter::Create(int width, int height, int delay_ms, int64_t most_bytes) {
  auto file = std::make_unique<File>();
  file->width = width;
  file->height = height;
  file->most_bytes = most_bytes;
  file->delay = std::max(delay_ms / kStepMs, 1);
  const size_t pixels = static_cast<size_t>(width) * static_cast<size_t>(height);
  for (std::vector<GifByteType>* plane : {&file->red, &file->green, &file->blue, &file->indices}) plane->resize(pixels);
  file->colors = GifMakeMapObject(kColors, nullptr);
  int error = 0;
  file->gif = EGifOpen(file.get(), File::Append, &error);
  if (file->gif == nullptr || file->colors == nullptr) return ErrorOf(file->gif);
  EGifSetGifVersion(file->gif, true);
  // The block that viewers know as "again and again".
  constexpr unsigned char kForEver[] = {1, 0, 0};
  if (EGifPutScreenDesc(file->gif, width, height, 8, 0, nullptr) != GIF_OK ||
      EGifPutExtensionLeader(file->gif, APPLICATION_EXT_FUNC_CODE) != GIF_OK ||
      EGifPutExtensionBlock(file->gif, 11, "NETSCAPE2.0") != GIF_OK ||
      EGifPutExtensionBlock(file->gif, sizeof(kForEver), kForEver) != GIF_OK ||
      EGifPutExtensionTrailer(file->gif) != GIF_OK) {
    return ErrorOf(file->gif);
  }
  return std::unique_ptr<GifWriter>(new GifWriter(std::move(file)));
}

absl::Status GifWriter::Add(const Picture& picture, int times) {
  TROUPE_RETURN_IF_ERROR(CheckSize(picture, file_->width, file_->height));
  for (int i = 0; i < times; ++i) TROUPE_RETURN_IF_ERROR(AddOnce(picture));
  return absl::OkStatus();
}

absl::Status GifWriter::AddOnce(const Picture& picture) {
  File& file = *file_;
  if (static_cast<int64_t>(file.bytes.size()) > file.most_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the GIF has more than ", file.most_bytes, " bytes, expected a smaller picture"));
  }
  if (!file.Quantize(picture)) return ErrorOf(file.gif);
  GraphicsControlBlock control{DISPOSE_DO_NOT, false, file.delay, NO_TRANSPARENT_COLOR};
  GifByteType extension[4];
  EGifGCBToExtension(&control, extension);
  if (EGifPutExtension(file.gif, GRAPHICS_EXT_FUNC_CODE, sizeof(extension), extension) != GIF_OK ||
      EGifPutImageDesc(file.gif, 0, 0, file.width, file.height, false, file.colors) != GIF_OK) {
    return ErrorOf(file.gif);
  }
  for (int row = 0; row < file.height; ++row) {
    GifByteType* const line = file.indices.data() + static_cast<ptrdiff_t>(row) * file.width;
    if (EGifPutLine(file.gif, line, file.width) != GIF_OK) return ErrorOf(file.gif);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> GifWriter::Finish() {
  int error = 0;
  GifFileType* const gif = std::exchange(file_->gif, nullptr);
  if (gif == nullptr) return absl::FailedPreconditionError("the GIF was finished before");
  if (EGifCloseFile(gif, &error) != GIF_OK) return absl::InternalError(absl::StrCat("GIF: error ", error));
  return std::move(file_->bytes);
}

}  // namespace troupe::render
