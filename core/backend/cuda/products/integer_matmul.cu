#include "core/backend/cuda/products/integer_matmul.h"

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/launch.h"

namespace kerascnn::cuda {
namespace {

constexpr int kTile = 64;   // rows and columns of the result, per block
constexpr int kDepth = 32;  // of the summed axis, in shared memory at once
constexpr int kWords = kDepth / 4;
constexpr int kPerThread = 4;  // rows and columns, 16 apart
constexpr int kAcross = kTile / kPerThread;
static_assert(kAcross * kAcross == kThreads);

// A matrix of `lines` lines (rows of the first one, columns of the second) along which products are
// summed: element k of a line is at line * line_step + k * k_step. One of the steps is 1.
struct Lines {
  const int8_t* data;
  int64_t count;
  int64_t line_step;
  int64_t k_step;
};

// Loads four neighbours along the summed axis as one word; elements beyond the matrix are 0.
__device__ __forceinline__ uint32_t load_word(const Lines& from, int64_t line, int64_t k,
                                              int64_t k_size) {
  if (line >= from.count || k >= k_size) return 0;
  const int8_t* const at = from.data + line * from.line_step + k * from.k_step;
  if (from.k_step == 1 && k_size % 4 == 0) return *reinterpret_cast<const uint32_t*>(at);
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (k + i < k_size) {
      word |= static_cast<uint32_t>(static_cast<uint8_t>(at[i * from.k_step])) << (8 * i);
    }
  }
  return word;
}

// Loads one tile of both matrices, word by line. Neighbouring threads read neighbouring memory:
// words of one line where a line is contiguous, otherwise one word of neighbouring lines.
__device__ __forceinline__ void load_tile(uint32_t (&tile)[kWords][kTile + 1], const Lines& from,
                                          int64_t first, int64_t k, int64_t k_size) {
#pragma unroll
  for (int item = threadIdx.x; item < kWords * kTile; item += kThreads) {
    const int word = from.k_step == 1 ? item % kWords : item / kTile;
    const int line = from.k_step == 1 ? item / kWords : item % kTile;
    tile[word][line] = load_word(from, first + line, k + 4 * word, k_size);
  }
}

__global__ void __launch_bounds__(kThreads)
    integer_product(Lines a, Lines b, int32_t* __restrict__ y, int64_t k_size, int64_t batch,
                    int64_t tiles_down, int64_t tiles_across) {
  begin_kernel();
  __shared__ uint32_t left[kWords][kTile + 1];
  __shared__ uint32_t right[kWords][kTile + 1];
  const int row = threadIdx.x / kAcross, column = threadIdx.x % kAcross;
  const int8_t* const all_a = a.data;
  const int8_t* const all_b = b.data;
  for (int64_t tile = blockIdx.x; tile < batch * tiles_down * tiles_across; tile += gridDim.x) {
    const Division across = divide(tile, tiles_across);
    const Division down = divide(across.quotient, tiles_down);
    const int64_t first_row = down.remainder * kTile, first_column = across.remainder * kTile;
    a.data = all_a + down.quotient * a.count * k_size;
    b.data = all_b + down.quotient * b.count * k_size;
    int32_t sums[kPerThread][kPerThread] = {};
    for (int64_t k = 0; k < k_size; k += kDepth) {
      load_tile(left, a, first_row, k, k_size);
      load_tile(right, b, first_column, k, k_size);
      __syncthreads();
#pragma unroll
      for (int word = 0; word < kWords; ++word) {
        int32_t l[kPerThread], r[kPerThread];
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) {
          l[i] = static_cast<int32_t>(left[word][row + i * kAcross]);
          r[i] = static_cast<int32_t>(right[word][column + i * kAcross]);
        }
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
          for (int j = 0; j < kPerThread; ++j) sums[i][j] = __dp4a(l[i], r[j], sums[i][j]);
        }
      }
      __syncthreads();
    }
    int32_t* const result = y + down.quotient * a.count * b.count;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int64_t at_row = first_row + row + i * kAcross;
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        const int64_t at_column = first_column + column + j * kAcross;
        if (at_row < a.count && at_column < b.count) {
          result[at_row * b.count + at_column] = sums[i][j];
        }
      }
    }
  }
}

}  // namespace

std::unique_ptr<Kernel> plan_own_integer_matmul(const GemmShape& g) {
  return make_early_kernel("kerascnn integer product", [g](const KernelArgs& args) {
    const Lines a{input<int8_t>(args, 0), g.m, g.transpose_a ? 1 : g.k, g.transpose_a ? g.m : 1};
    const Lines b{input<int8_t>(args, 1), g.n, g.transpose_b ? g.k : 1, g.transpose_b ? 1 : g.n};
    const int64_t down = ceil_div(g.m, kTile), across = ceil_div(g.n, kTile);
    integer_product<<<grid_for(g.batch * down * across, 1), kThreads, 0,
                      static_cast<cudaStream_t>(args.stream)>>>(a, b, output<int32_t>(args, 0), g.k,
                                                                g.batch, down, across);
    check_launch("integer_matmul");
  });
}

}  // namespace kerascnn::cuda
