// nvJPEG, NVIDIA's decoder of JPEG files, opened by name on first use: what is declared here is the
// part of nvjpeg.h that is called, the same since CUDA 10.2.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/backend/cuda/runtime/handles.h"

namespace kerascnn::cuda {

namespace nvjpeg {

enum Status : int {
  kSuccess = 0,
  kBadJpeg = 3,
  kJpegNotSupported = 4,
  kIncompleteBitstream = 10,
};

// Where an image goes: interleaved colors have one channel.
struct Image {
  uint8_t* channel[4];
  size_t pitch[4];  // bytes of a row
};

using Handle = struct nvjpegHandle*;
using State = struct nvjpegJpegState*;
constexpr int kInterleavedRgb = 5;

}  // namespace nvjpeg

class NvjpegLibrary {
 public:
  // A file, or what the system finds by that name. Throws LibraryError with the remedy.
  explicit NvjpegLibrary(const std::string& file);

  const std::string& version() const { return version_; }
  // Throws LibraryError for a status that is none of success, naming the call.
  void expect(int status, const char* call) const;

  int (*create)(int backend, void* device_allocator, void* host_allocator, unsigned flags,
                nvjpeg::Handle*) = nullptr;
  int (*create_state)(nvjpeg::Handle, nvjpeg::State*) = nullptr;
  int (*destroy_state)(nvjpeg::State) = nullptr;
  int (*begin_batches)(nvjpeg::Handle, nvjpeg::State, int size, int threads, int format) = nullptr;
  int (*decode_batch)(nvjpeg::Handle, nvjpeg::State, const uint8_t* const* files,
                      const size_t* sizes, nvjpeg::Image* images, cudaStream_t) = nullptr;

 private:
  std::string file_, version_;
};

// What decodes one batch after another.
class NvjpegState {
 public:
  NvjpegState(const NvjpegLibrary& library, nvjpeg::Handle handle);
  ~NvjpegState();
  NvjpegState(const NvjpegState&) = delete;
  NvjpegState& operator=(const NvjpegState&) = delete;

  // Decodes files to interleaved colors; the stream is done with them when it is synchronized.
  // False where nvJPEG does not take one of them: nothing is decoded then, or only a part. Throws
  // LibraryError where it fails for another reason.
  bool decode(int count, const uint8_t* const* files, const size_t* sizes, nvjpeg::Image* images,
              cudaStream_t stream);

 private:
  void make();
  void destroy() noexcept;

  const NvjpegLibrary& library_;
  const nvjpeg::Handle handle_;
  nvjpeg::State state_ = nullptr;
  int size_ = 0;  // of the batches that it was made ready for
};

}  // namespace kerascnn::cuda
