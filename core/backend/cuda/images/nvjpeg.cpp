#include "core/backend/cuda/images/nvjpeg.h"

#include <array>

#include "core/backend/cuda/runtime/opened_library.h"
#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

constexpr const char* kWhatFails = "images can't be decoded on a GPU";
constexpr std::array kStatusNames = {"SUCCESS",
                                     "NOT_INITIALIZED",
                                     "INVALID_PARAMETER",
                                     "BAD_JPEG",
                                     "JPEG_NOT_SUPPORTED",
                                     "ALLOCATOR_FAILURE",
                                     "EXECUTION_FAILED",
                                     "ARCH_MISMATCH",
                                     "INTERNAL_ERROR",
                                     "IMPLEMENTATION_NOT_SUPPORTED",
                                     "INCOMPLETE_BITSTREAM"};

}  // namespace

NvjpegLibrary::NvjpegLibrary(const std::string& file) : file_(file) {
  const OpenedLibrary library(file, kWhatFails,
                              "pip install \"nvidia-nvjpeg==13.0.*\", or kerascnn's extra "
                              "\"nvjpeg\"");
  int (*get_property)(int property, int* value) = nullptr;
  library.find("nvjpegGetProperty", get_property);
  library.find("nvjpegCreateEx", create);
  library.find("nvjpegJpegStateCreate", create_state);
  library.find("nvjpegJpegStateDestroy", destroy_state);
  library.find("nvjpegDecodeBatchedInitialize", begin_batches);
  library.find("nvjpegDecodeBatched", decode_batch);
  std::array<int, 3> numbers{};  // major, minor, patch
  for (int property = 0; property < 3; ++property) {
    expect(get_property(property, &numbers[static_cast<size_t>(property)]), "nvjpegGetProperty");
  }
  version_ = message(numbers[0], ".", numbers[1], ".", numbers[2]);
  constexpr int kMajor = 13;  // of CUDA 13, whose runtime this library shares the device with
  if (numbers[0] != kMajor) {
    throw LibraryError(message(kWhatFails, ": ", file, " is nvJPEG ", version_,
                               ", and kerascnn calls nvJPEG ", kMajor,
                               "; install it with: pip install \"nvidia-nvjpeg==13.0.*\""));
  }
}

void NvjpegLibrary::expect(int status, const char* call) const {
  if (status == nvjpeg::kSuccess) return;
  const bool is_known = status > 0 && status < static_cast<int>(kStatusNames.size());
  throw LibraryError(message(kWhatFails, ": ", call, " failed with status ", status, " (",
                             is_known ? kStatusNames[static_cast<size_t>(status)] : "unknown",
                             "; nvJPEG ", version_.empty() ? "of an unknown version" : version_,
                             " of ", file_, "); decoder=\"cpu\" decodes without it"));
}

NvjpegState::NvjpegState(const NvjpegLibrary& library, nvjpeg::Handle handle)
    : library_(library), handle_(handle) {
  make();
}

NvjpegState::~NvjpegState() { destroy(); }

void NvjpegState::make() {
  library_.expect(library_.create_state(handle_, &state_), "nvjpegJpegStateCreate");
}

void NvjpegState::destroy() noexcept {
  if (state_ != nullptr) (void)library_.destroy_state(state_);
  state_ = nullptr;
  size_ = 0;
}

bool NvjpegState::decode(int count, const uint8_t* const* files, const size_t* sizes,
                         nvjpeg::Image* images, cudaStream_t stream) {
  if (state_ == nullptr) make();
  if (size_ != count) {
    size_ = 0;
    constexpr int kThreads = 1;  // of the host: the caller's
    library_.expect(
        library_.begin_batches(handle_, state_, count, kThreads, nvjpeg::kInterleavedRgb),
        "nvjpegDecodeBatchedInitialize");
    size_ = count;
  }
  const int status = library_.decode_batch(handle_, state_, files, sizes, images, stream);
  if (status == nvjpeg::kSuccess) return true;
  // What is left in it of the batch is unknown.
  (void)cudaStreamSynchronize(stream);
  destroy();
  (void)cudaGetLastError();
  if (status != nvjpeg::kBadJpeg && status != nvjpeg::kJpegNotSupported &&
      status != nvjpeg::kIncompleteBitstream) {
    library_.expect(status, "nvjpegDecodeBatched");
  }
  return false;
}

}  // namespace kerascnn::cuda
