// For NVIDIA's initcheck: it does not see what Hopper's kernels write in bulk from shared memory
// (TMA), as those of cuDNN and cuBLASLt do, and would report each later read of it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <initializer_list>

namespace kerascnn::cuda {

struct WrittenRange {
  const void* data;
  int64_t bytes;
};

// Says that a kernel on this stream, which is none of ours, writes these. Does nothing outside of
// `compute-sanitizer --nvtx yes --tool initcheck`.
void mark_written(std::initializer_list<WrittenRange> ranges, cudaStream_t stream);

}  // namespace kerascnn::cuda
