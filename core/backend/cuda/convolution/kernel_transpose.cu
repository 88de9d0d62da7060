#include "core/backend/cuda/convolution/kernel_transpose.h"

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/check.h"

namespace kerascnn::cuda {
namespace {

constexpr int kTile = 32;
constexpr int kTileRows = kThreads / kTile;

// Elements go through a tile in shared memory, so that reads and writes are both of neighbouring
// elements.
template <typename T>
__global__ void transpose_kernel(const T* __restrict__ x, T* __restrict__ y, int64_t rows,
                                 int64_t columns, int64_t tiles_across, int64_t tiles) {
  begin_kernel();
  __shared__ T tile[kTile][kTile + 1];  // + 1: the elements of a column lie in different banks
  const int lane = threadIdx.x % kTile;
  const int line = threadIdx.x / kTile;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t row = t / tiles_across * kTile;
    const int64_t column = t % tiles_across * kTile;
    for (int r = line; r < kTile; r += kTileRows) {
      if (row + r < rows && column + lane < columns) {
        tile[r][lane] = x[(row + r) * columns + column + lane];
      }
    }
    __syncthreads();
    for (int r = line; r < kTile; r += kTileRows) {
      if (column + r < columns && row + lane < rows) {
        y[(column + r) * rows + row + lane] = tile[lane][r];
      }
    }
    __syncthreads();
  }
}

}  // namespace

void launch_transpose(DType dtype, const void* x, void* y, int64_t rows, int64_t columns,
                      cudaStream_t stream) {
  const int64_t tiles_across = ceil_div(columns, kTile);
  const int64_t tiles = ceil_div(rows, kTile) * tiles_across;
  if (tiles == 0) return;
  dispatch_size(dtype, [&]<typename T>(Type<T>) {
    transpose_kernel<T><<<grid_for(tiles, 1), kThreads, 0, stream>>>(
        static_cast<const T*>(x), static_cast<T*>(y), rows, columns, tiles_across, tiles);
    check_launch("transpose");
  });
}

}  // namespace kerascnn::cuda
