// Kernels over many tensors. They take a table of entries as an argument, and each block takes some
// stretches of the tensors.
#pragma once

namespace kerascnn::cuda {

// The number of the tensor that a stretch belongs to: the last one whose `first_stretch` is not
// behind it. This passes over tensors without elements, which have no stretches.
template <typename Table>
__device__ __forceinline__ int find_tensor(const Table& table, int stretch) {
  int low = 0, high = table.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.entries[middle].first_stretch <= stretch) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace kerascnn::cuda
