// Convolutions with few input channels, and gradients of their inputs, on Hopper's tensor cores, in
// 16 bits: y (pixel, filter) = sum over taps and channels of x (pixel under the tap, channel) *
// kernel (tap, channel, filter).
//
// The block's part of the kernel, 64 filters, stays in shared memory. What tensor cores compute is
// y transposed: filters are the rows of their products and pixels the columns, of which there can
// be many, so that shared memory keeps up with them; 64 x 64 results at a time would need all it
// has.
//
// Shared memory has a rectangle of x with its border, in rows of `pitch` slots of 128 bytes. Under
// a tap all pixels lie as many slots further on, so the second factor is a run of slots, which goes
// on over the ends of rows. The slots of the border are columns too, whose results nobody wants.
// Where a rectangle is as wide as the image, the padding behind a row is the one before the next.
//
// Two warpgroups multiply, each for half of the rectangle's rows, in turn: while one finishes its
// results, the other one has the tensor cores. A warp of the third copies.
//
// The statistics of the results, for batch normalization, are sums along rows of the products, of
// which a thread has two.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/block.cuh"
#include "core/backend/cuda/device/moments.cuh"
#include "core/backend/cuda/tiles/barrier.cuh"
#include "core/backend/cuda/tiles/warpgroup_half.cuh"

namespace kerascnn::cuda {

constexpr int kConvChannels = 64;  // most that are summed, and results of a block
constexpr int kConvMostTaps = 9;
constexpr int kConvTap = kConvChannels * kSwizzledRow;  // bytes of the kernel
constexpr int kConvParts = 2;                           // warpgroups that multiply
constexpr int kConvMultipliers = kConvParts * 32 * kWarpgroup;
constexpr int kConvThreads = kConvMultipliers + 32 * kWarpgroup;
// A launch gives all threads 168 registers.
constexpr int kConvMultiplierRegisters = 232, kConvCopierRegisters = 40;
constexpr int kConvPixels = 16;                         // that a warp stores at a time
constexpr int kConvStoring = 2 * kConvPixels * 16 * 2;  // bytes of a warp
constexpr int kConvDepth = 16;                          // of one instruction

// The sizes, and how the work is cut. For a gradient x is the result's gradient.
struct ConvLayout {
  int batch, height, width;  // of the results
  int channels, result_channels;
  int kernel_height, kernel_width, pad_top, pad_left;  // of windows over x

  int rows, columns;  // of a part
  int pitch;
  int input_rows;  // of a rectangle, for all parts
  int slots;       // of a stage, a multiple of 8
  int tiles_down, tiles_across, tiles;
  int stages;

  __host__ __device__ int taps() const { return kernel_height * kernel_width; }
  __host__ __device__ int copied_slots() const { return input_rows * pitch; }
};

// A block's shared memory: the kernel, the ring of stages, what each warp stores, the barriers.
struct ConvMemory {
  int stage_bytes, ring, storing, barriers, stages, bytes;

  __host__ __device__ explicit ConvMemory(const ConvLayout& l)
      : stage_bytes(l.slots * kSwizzledRow),
        ring(l.taps() * kConvTap),
        storing(ring + l.stages * stage_bytes),
        barriers(storing + kConvParts * kWarpgroup * kConvStoring),
        stages(l.stages),
        bytes(barriers + (2 * l.stages + 1) * static_cast<int>(sizeof(Barrier)) +
              static_cast<int>(sizeof(int))) {}

  __device__ char* stage(char* shared, int number) const {
    return shared + ring + number * stage_bytes;
  }
  __device__ Barrier* full(char* shared) const {
    return reinterpret_cast<Barrier*>(shared + barriers);
  }
  __device__ Barrier* empty(char* shared) const { return full(shared) + stages; }
  __device__ Barrier& kernel_full(char* shared) const { return full(shared)[2 * stages]; }
  __device__ int& is_last(char* shared) const {
    return reinterpret_cast<int&>(full(shared)[2 * stages + 1]);
  }
};

// The first pixel of a rectangle of results.
struct ConvTile {
  int image, row, column;

  __device__ __forceinline__ ConvTile(const ConvLayout& l, int tile) {
    image = tile / (l.tiles_down * l.tiles_across);
    tile -= image * l.tiles_down * l.tiles_across;
    row = tile / l.tiles_across * kConvParts * l.rows;
    column = tile % l.tiles_across * l.columns;
  }
};

// One thread does it.
template <bool kIsGradient>
__device__ __forceinline__ void copy_conv(const CUtensorMap* x, const CUtensorMap* kernel,
                                          char* shared, const ConvLayout& l) {
  const ConvMemory memory(l);
  Barrier& kernel_full = memory.kernel_full(shared);
  const int first = static_cast<int>(blockIdx.y) * kConvChannels;
  kernel_full.arrive_and_expect(l.taps() * kConvTap);
  copy_tensor(shared, kernel, kernel_full, kIsGradient ? 0 : first, kIsGradient ? first : 0, 0, 0);
  RingStage at;
  for (int tile = static_cast<int>(blockIdx.x); tile < l.tiles; tile += gridDim.x) {
    memory.empty(shared)[at.number].wait(at.phase ^ 1);
    Barrier& full = memory.full(shared)[at.number];
    full.arrive_and_expect(l.copied_slots() * kSwizzledRow);
    const ConvTile begin(l, tile);
    copy_tensor(memory.stage(shared, at.number), x, full, 0, begin.column - l.pad_left,
                begin.row - l.pad_top, begin.image);
    at.advance(l.stages);
  }
}

// Barriers of the threads that multiply, by their numbers (0 is that of __syncthreads).
enum ConvBarrier : int { kConvFirstTurn = 1, kConvAll = kConvFirstTurn + kConvParts };

__device__ __forceinline__ void wait_at(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kConvMultipliers) : "memory");
}
__device__ __forceinline__ void arrive_at(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(kConvMultipliers) : "memory");
}

// Starts all products of a part whose first slot is `slots`; channels beyond the last are zeros.
template <typename Half, int kTiles, bool kIsGradient>
__device__ __forceinline__ void multiply_taps(float (&sums)[kTiles][4], const char* kernel,
                                              const char* slots, const ConvLayout& l) {
  // Along the summed axis the kernel has rows of filters, or, for a gradient, columns.
  constexpr int kKernelStep = (kIsGradient ? kConvDepth * 2 : kConvDepth * kSwizzledRow) / 16;
  constexpr int kPixelStep = kConvDepth * 2 / 16;
  // A gradient's windows have the taps the other way round.
  uint64_t left = describe_rows(kernel + (kIsGradient ? (l.taps() - 1) * kConvTap : 0));
  uint64_t row = describe_rows(slots);
  int adds_up = 0;
#pragma unroll 1
  for (int y = 0; y < l.kernel_height; ++y) {
    uint64_t right = row;
#pragma unroll 1
    for (int x = 0; x < l.kernel_width; ++x) {
      begin_products();
#pragma unroll
      for (int step = 0; step < kConvChannels / kConvDepth; ++step) {
        multiply_rows<Half, kTiles, !kIsGradient, false>(sums, left + step * kKernelStep,
                                                         right + step * kPixelStep, adds_up);
        adds_up = 1;
      }
      left = kIsGradient ? left - kConvTap / 16 : left + kConvTap / 16;
      right += kSwizzledRow / 16;
    }
    row += l.pitch * (kSwizzledRow / 16);
  }
  commit_products();
}

// Which pixels of a part there are.
struct ConvEdge {
  int rows, columns;

  __device__ __forceinline__ ConvEdge(const ConvLayout& l, const ConvTile& part)
      : rows(min(l.rows, l.height - part.row)), columns(min(l.columns, l.width - part.column)) {}
  __device__ __forceinline__ bool has(int row, int column) const {
    return row < rows && column < columns;
  }
  // Bit 2 * j + e for the pixel that is column 8 * j + 2 * t + e of the products.
  template <int kTiles>
  __device__ __forceinline__ uint64_t mask(int pitch, int t) const {
    uint64_t bits = 0;
#pragma unroll 1
    for (int i = 0; i < 2 * kTiles; ++i) {
      const int slot = i / 2 * 8 + 2 * t + i % 2;
      bits |= uint64_t{has(slot / pitch, slot % pitch)} << i;
    }
    return bits;
  }
};

template <typename Half>
__device__ __forceinline__ float unpack(uint32_t pair, int number) {
  return load(reinterpret_cast<const Half*>(&pair)[number]);
}

// Merges the moments of the results in one row of a thread's products with `total`. Sums are of
// differences from one of the results, so that squares don't cancel.
template <typename Half, int kTiles>
__device__ __forceinline__ void add_moments_of_row(const uint32_t (&pairs)[kTiles][2], int row,
                                                   uint64_t mask, Moments<float>& total) {
  asm volatile("" : "+l"(mask));  // the rows one after another, which takes fewer registers
  const float origin = (mask & 1) != 0 ? unpack<Half>(pairs[0][row], 0) : total.mean;
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int i = 0; i < 2 * kTiles; ++i) {
    const float value = unpack<Half>(pairs[i / 2][row], i % 2) - origin;
    const float difference = (mask >> i & 1) != 0 ? value : 0.0f;
    sum += difference;
    squares += difference * difference;
  }
  const float count = static_cast<float>(__popcll(mask));
  const float mean = sum / max(count, 1.0f);
  const float deviation = squares - sum * mean;
  // Rounding must not make it negative, and NaN stays.
  total = merge_moments(total, {count, origin + mean, deviation < 0.0f ? 0.0f : deviation});
}

// Stores the results of a warp, 16 filters from y on, a vector of 8 a lane. They go through shared
// memory, 16 pixels at a time, whose halves are exchanged so that 8 lanes meet all banks.
template <typename Half, int kTiles>
__device__ __forceinline__ void store_conv(const uint32_t (&pairs)[kTiles][2], char* storing,
                                           Half* y, const ConvLayout& l, const ConvEdge& edge,
                                           int filters_left) {
  const int lane = threadIdx.x % 32;
  const auto place = [](int pixel, int half) { return 32 * pixel + 16 * (half ^ pixel / 4 % 2); };
  const int written = place(lane / 16 * 8 + lane % 8, lane / 8 % 2);
  const int pixel = lane / 2, half = lane % 2;
  const int read = place(pixel, half);
  const bool has_filters = 8 * half < filters_left;
  int row = pixel / l.pitch, column = pixel % l.pitch;
#pragma unroll
  for (int i = 0; i < kTiles; i += 2) {
    const bool has_second = i + 1 < kTiles;
    char* const buffer = storing + i / 2 % 2 * (kConvStoring / 2);
    const int second = has_second ? i + 1 : i;  // without one nobody reads its place
    store_transposed(buffer + written,
                     {pairs[i][0], pairs[i][1], pairs[second][0], pairs[second][1]});
    __syncwarp();
    if (has_filters && edge.has(row, column) && (has_second || pixel < 8)) {
      const auto results = *reinterpret_cast<const Vector<Half, 8>*>(buffer + read);
      *reinterpret_cast<Vector<Half, 8>*>(y + (row * l.width + column) * l.result_channels +
                                          8 * half) = results;
    }
    column += kConvPixels;
    while (column >= l.pitch) {
      column -= l.pitch;
      ++row;
    }
  }
}

// What comes with the products.
struct ConvEpilogue {
  const void* bias;         // null for none
  float lower;              // results are at least that: 0 for relu
  Moments<float>* partial;  // of each block; null where nobody reads statistics
  unsigned* tickets;        // one for each block of filters
  float* mean;
  float* variance;
};

// Merges the moments of a block's two parts and stores them; the last block merges all blocks'. In
// `exchange` there are kConvMultipliers moments.
__device__ __forceinline__ void finish_moments(Moments<float> (&moments)[2],
                                               const ConvEpilogue& epilogue, const ConvLayout& l,
                                               Moments<float>* exchange, int& is_last) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int warp = thread / 32 % kWarpgroup, part = thread / (32 * kWarpgroup);
#pragma unroll
  for (int row = 0; row < 2; ++row) {
#pragma unroll
    for (int other = 1; other < 4; other *= 2) {
      const Moments<float> theirs = {__shfl_xor_sync(kFullWarp, moments[row].count, other),
                                     __shfl_xor_sync(kFullWarp, moments[row].mean, other),
                                     __shfl_xor_sync(kFullWarp, moments[row].deviation, other)};
      // The same order in all lanes, so that they have the same result.
      moments[row] = (lane & other) == 0 ? merge_moments(moments[row], theirs)
                                         : merge_moments(theirs, moments[row]);
    }
    if (lane % 4 == 0) {
      exchange[part * kConvChannels + warp * 16 + row * 8 + lane / 4] = moments[row];
    }
  }
  wait_at(kConvAll);
  const int filter = thread % kConvChannels;
  const int result = static_cast<int>(blockIdx.y) * kConvChannels + filter;
  const bool is_inside = result < l.result_channels;
  if (thread < kConvChannels && is_inside) {
    epilogue.partial[static_cast<int64_t>(blockIdx.x) * l.result_channels + result] =
        merge_moments(exchange[filter], exchange[kConvChannels + filter]);
  }
  __threadfence();
  wait_at(kConvAll);
  if (thread == 0) {
    is_last = atomicInc(epilogue.tickets + blockIdx.y, gridDim.x - 1) == gridDim.x - 1 ? 1 : 0;
  }
  wait_at(kConvAll);
  if (is_last == 0) return;
  __threadfence();
  // Four threads for each filter; several loads are under way at once.
  constexpr int kShares = kConvMultipliers / kConvChannels, kAtOnce = 8;
  const int share = thread / kConvChannels;
  const int blocks = static_cast<int>(gridDim.x);
  Moments<float> total{};
  for (int first = share; first < blocks; first += kShares * kAtOnce) {
    Moments<float> loaded[kAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int block = first + i * kShares;
      if (block < blocks && is_inside) {
        loaded[i] = epilogue.partial[static_cast<int64_t>(block) * l.result_channels + result];
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) total = merge_moments(total, loaded[i]);
  }
  exchange[thread] = total;
  wait_at(kConvAll);
  if (thread >= kConvChannels || !is_inside) return;
  for (int other = 1; other < kShares; ++other) {
    total = merge_moments(total, exchange[other * kConvChannels + filter]);
  }
  epilogue.mean[result] = total.mean;
  epilogue.variance[result] = total.deviation / total.count;
}

template <typename Half, int kTiles, bool kIsGradient>
__device__ __forceinline__ void multiply_conv(char* shared, Half* __restrict__ y,
                                              const ConvEpilogue& epilogue, const ConvLayout& l) {
  const ConvMemory memory(l);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  // The same in all lanes, which the compiler sees by the exchange.
  const int part = __shfl_sync(kFullWarp, thread / (32 * kWarpgroup), 0);
  const int warp = thread / 32 % kWarpgroup;
  char* const storing = shared + memory.storing + thread / 32 * kConvStoring;
  const int first_filter = static_cast<int>(blockIdx.y) * kConvChannels + warp * 16;
  const int filters_left = l.result_channels - first_filter;
  float bias[2] = {-0.0f, -0.0f};  // which changes no number
  if (epilogue.bias != nullptr) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int filter = row * 8 + lane / 4;
      if (filter < filters_left) {
        bias[row] = load(static_cast<const Half*>(epilogue.bias)[first_filter + filter]);
      }
    }
  }
  Moments<float> moments[2] = {};
  int masked_rows = -1, masked_columns = -1;
  uint64_t mask = 0;

  const int my_turn = kConvFirstTurn + part, their_turn = kConvFirstTurn + kConvParts - 1 - part;
  if (part == kConvParts - 1) arrive_at(kConvFirstTurn);
  memory.kernel_full(shared).wait(0);
  RingStage at;
  for (int tile = static_cast<int>(blockIdx.x); tile < l.tiles; tile += gridDim.x) {
    memory.full(shared)[at.number].wait(at.phase);
    wait_at(my_turn);
    float sums[kTiles][4];
    multiply_taps<Half, kTiles, kIsGradient>(
        sums, shared, memory.stage(shared, at.number) + part * l.rows * l.pitch * kSwizzledRow, l);
    // After the last turn of all nobody waits for the next one.
    if (part < kConvParts - 1 || tile + static_cast<int>(gridDim.x) < l.tiles) {
      arrive_at(their_turn);
    }
    wait_for_products<0>();
    if (lane == 0) memory.empty(shared)[at.number].arrive();
    at.advance(l.stages);

    uint32_t pairs[kTiles][2];
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        float two[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          two[e] = sums[j][2 * row + e] + bias[row];
          two[e] = two[e] < epilogue.lower ? epilogue.lower : two[e];  // keeps NaN
        }
        pairs[j][row] = pack_pair<Half>(two[0], two[1]);
      }
    }
    ConvTile begin(l, tile);
    begin.row += part * l.rows;
    const ConvEdge edge(l, begin);
    if (!kIsGradient && epilogue.partial != nullptr) {
      if (edge.rows != masked_rows || edge.columns != masked_columns) {
        masked_rows = edge.rows;
        masked_columns = edge.columns;
        mask = edge.mask<kTiles>(l.pitch, lane % 4);
      }
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        add_moments_of_row<Half>(pairs, row, mask, moments[row]);
      }
    }
    const int64_t pixel =
        (static_cast<int64_t>(begin.image) * l.height + begin.row) * l.width + begin.column;
    store_conv(pairs, storing, y + pixel * l.result_channels + first_filter, l, edge, filters_left);
  }
  if (kIsGradient || epilogue.partial == nullptr) return;
  wait_at(kConvAll);  // nobody stores any more
  finish_moments(moments, epilogue, l, reinterpret_cast<Moments<float>*>(shared + memory.storing),
                 memory.is_last(shared));
}

// `x` brings boxes of (1, input_rows, pitch, 64), with zeros where the image or the channels end;
// `kernel` brings all taps of 64 channels and 64 filters.
template <typename Half, int kTiles, bool kIsGradient>
__global__ void __launch_bounds__(kConvThreads, 1)
    conv_warpgroups_kernel(const __grid_constant__ CUtensorMap x,
                           const __grid_constant__ CUtensorMap kernel, Half* __restrict__ y,
                           const __grid_constant__ ConvEpilogue epilogue,
                           const __grid_constant__ ConvLayout l) {
  if constexpr (!kWarpgroups) {
    __trap();  // planned for sm_90 only
  } else {
    extern __shared__ __align__(1024) char shared[];
    const ConvMemory memory(l);
    // What the last rows of a stage read beyond what copies bring is padding, or nobody's.
    const int beyond = l.slots - l.copied_slots();
    for (int i = threadIdx.x; i < l.stages * beyond * (kSwizzledRow / 16); i += kConvThreads) {
      const int stage = i / (beyond * (kSwizzledRow / 16)),
                place = i % (beyond * (kSwizzledRow / 16));
      char* const to = memory.stage(shared, stage) + l.copied_slots() * kSwizzledRow + place * 16;
      *reinterpret_cast<uint4*>(to) = uint4{};
    }
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < l.stages; ++stage) {
        memory.full(shared)[stage].start(1);
        memory.empty(shared)[stage].start(kConvParts * kWarpgroup);
      }
      memory.kernel_full(shared).start(1);
    }
    publish_to_tensor_cores();
    begin_kernel();
    __syncthreads();
    if (threadIdx.x >= kConvMultipliers) {
      give_registers_back<kConvCopierRegisters>();
      if (threadIdx.x == kConvMultipliers) copy_conv<kIsGradient>(&x, &kernel, shared, l);
    } else {
      take_registers<kConvMultiplierRegisters>();
      multiply_conv<Half, kTiles, kIsGradient>(shared, y, epilogue, l);
    }
  }
}

}  // namespace kerascnn::cuda
