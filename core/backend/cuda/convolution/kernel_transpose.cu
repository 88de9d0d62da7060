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

constexpr int kPackBytes = 16;
constexpr int kSide = 64;

// The same for sizes that are whole numbers of packs: memory is read and written a pack at a time,
// and a thread's reads are all under way together. A block has one tile. `settled`: see
// begin_kernel.
template <typename T>
__global__ void transpose_packs_kernel(const T* __restrict__ x, T* __restrict__ y, int64_t rows,
                                       int64_t columns, uint32_t settled) {
  constexpr int kPack = kPackBytes / sizeof(T);
  constexpr int kPacks = kSide / kPack;  // of a row or column of the tile
  constexpr int kTurns = kSide * kPacks / kThreads;
  constexpr int kWords = kPackBytes / sizeof(uint32_t);
  // + 1: the elements of a column lie in different banks.
  __shared__ uint32_t tile[kSide][kPacks * kWords + 1];
  const int64_t row = int64_t{blockIdx.y} * kSide, column = int64_t{blockIdx.x} * kSide;
  const int pack = threadIdx.x % kPacks, line = threadIdx.x / kPacks;
  constexpr int kLines = kThreads / kPacks;
  Vector<uint32_t, kWords> packs[kTurns];
  begin_kernel(settled, [&] {
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int64_t r = row + line + i * kLines, c = column + pack * kPack;
      if (r < rows && c < columns) {
        packs[i] = *reinterpret_cast<const Vector<uint32_t, kWords>*>(x + r * columns + c);
      }
    }
  });
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      tile[line + i * kLines][pack * kWords + w] = packs[i].values[w];
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int across = line + i * kLines;
    Vector<T, kPack> result;
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      result.values[e] = reinterpret_cast<const T*>(tile[pack * kPack + e])[across];
    }
    const int64_t r = row + pack * kPack, c = column + across;
    if (r < rows && c < columns) *reinterpret_cast<Vector<T, kPack>*>(y + c * rows + r) = result;
  }
}

}  // namespace

void launch_transpose(DType dtype, const void* x, void* y, int64_t rows, int64_t columns,
                      cudaStream_t stream, uint32_t settled) {
  if (rows == 0 || columns == 0) return;
  dispatch_size(dtype, [&]<typename T>(Type<T>) {
    if constexpr (sizeof(T) == 2 || sizeof(T) == 4) {
      // Every tensor that a kernel gets is aligned to a pack.
      constexpr int64_t kPack = kPackBytes / sizeof(T);
      const int64_t tiles_down = ceil_div(rows, kSide);
      if (rows % kPack == 0 && columns % kPack == 0 && tiles_down <= 65535) {
        const dim3 grid(static_cast<unsigned>(ceil_div(columns, kSide)),
                        static_cast<unsigned>(tiles_down));
        transpose_packs_kernel<<<grid, kThreads, 0, stream>>>(
            static_cast<const T*>(x), static_cast<T*>(y), rows, columns, settled);
        check_launch("transpose");
        return;
      }
    }
    const int64_t tiles_across = ceil_div(columns, kTile);
    const int64_t tiles = ceil_div(rows, kTile) * tiles_across;
    transpose_kernel<T><<<grid_for(tiles, 1), kThreads, 0, stream>>>(
        static_cast<const T*>(x), static_cast<T*>(y), rows, columns, tiles_across, tiles);
    check_launch("transpose");
  });
}

}  // namespace kerascnn::cuda
