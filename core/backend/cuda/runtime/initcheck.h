// For NVIDIA's initcheck. It does not see what Hopper's kernels, many of cuDNN and cuBLASLt and one
// of ours, write in bulk from shared memory (TMA), and it would report each later read of it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <initializer_list>

namespace kerascnn::cuda {

struct WrittenRange {
  const void* data;
  int64_t bytes;
};

// Tells the tool that a kernel on this stream writes these ranges. Does nothing outside of
// `compute-sanitizer --nvtx yes --tool initcheck`.
void mark_written(std::initializer_list<WrittenRange> ranges, cudaStream_t stream);

}  // namespace kerascnn::cuda
