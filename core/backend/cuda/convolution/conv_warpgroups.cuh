// Convolutions with few input channels, and gradients of their inputs, on Hopper's tensor cores, in
// 16 bits: y (pixel, filter) = sum over taps and channels of x (pixel under the tap, channel) *
// kernel (tap, channel, filter).
//
// What tensor cores compute is y transposed: filters are the rows of their products, and pixels the
// columns, of which an instruction can have many. The first factor is the block's part of the
// kernel, with 64 filters. Shared memory is the narrow place: with both factors there it is as busy
// as the tensor cores. So most of the kernel stays in registers, 112 of a thread for 7 taps.
//
// Shared memory has rectangles of x with their borders, in rows of `pitch` slots of 128 bytes.
// Under a tap all pixels lie as many slots further on, so the second factor is a run of slots,
// which goes on over the ends of rows. The slots of the border are columns too, whose results
// nobody wants. Where a rectangle is as wide as the image, the padding behind a row is the one
// before the next.
//
// Two warpgroups multiply in turn, a rectangle each: while one has the tensor cores, the other one
// finishes its results. The next turn begins with a last tap to go, so that tensor cores never wait
// for it. A warp of the third warpgroup copies.
//
// The statistics of the results, for batch normalization, are sums along rows of the products, of
// which a thread has two.
//
// On an H200 the 512 images of 32 x 32 x 64 of a ResNet-18 take 54 microseconds, of which the
// products take 46 at 1.7 GHz; with statistics 67.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/block.cuh"
#include "core/backend/cuda/device/moments.cuh"
#include "core/backend/cuda/tiles/barrier.cuh"
#include "core/backend/cuda/tiles/warpgroup_half.cuh"

namespace kerascnn::cuda {

constexpr int kConvChannels = 64;  // most that are summed, and results of a block
constexpr int kConvMostTaps = 9;
constexpr int kConvTap = kConvChannels * kSwizzledRow;  // bytes of the kernel
constexpr int kConvGroups = 2;                          // warpgroups that multiply
constexpr int kConvMultipliers = kConvGroups * 32 * kWarpgroup;
constexpr int kConvThreads = kConvMultipliers + 32 * kWarpgroup;
constexpr int kConvTiles = 17;  // of 8 columns each
constexpr int kConvColumns = 8 * kConvTiles;
// A launch gives all threads 168 registers.
constexpr int kConvMultiplierRegisters = 240, kConvCopierRegisters = 24;
constexpr int kConvStoredRow = 32;  // bytes of a warp's 16 filters
// Results of a warp, and places for the columns that are no pixel.
constexpr int kConvStoring = (kConvColumns + 8) * kConvStoredRow;
constexpr int kConvDepth = 16;  // of one instruction
constexpr int kConvSteps = kConvChannels / kConvDepth;
constexpr int kConvKeptTaps = 7;  // in registers

// The sizes, and how the work is cut. For a gradient x is the result's gradient.
struct ConvLayout {
  int batch, height, width;  // of the results
  int channels, result_channels;
  int kernel_height, kernel_width, pad_top, pad_left;  // of windows over x

  int rows, columns;  // of a rectangle of results
  int pitch;
  int input_rows;
  int slots;  // of a stage, a multiple of 8
  int tiles_down, tiles_across, tiles;
  int stages;

  __host__ __device__ int taps() const { return kernel_height * kernel_width; }
  __host__ __device__ int copied_slots() const { return input_rows * pitch; }
};

// Which pixel of a rectangle a column of the products is; those of the border have the row
// kConvNowhere, which no rectangle has.
struct ConvPlace {
  int16_t row, column;
};
constexpr int16_t kConvNowhere = 0x7fff;
constexpr int kConvPlacesBytes = kConvColumns * static_cast<int>(sizeof(ConvPlace));

// A block's shared memory: the kernel, the ring of stages, what each warp stores, the places, the
// barriers.
struct ConvMemory {
  int stage_bytes, ring, storing, barriers, stages, bytes;

  __host__ __device__ explicit ConvMemory(const ConvLayout& l)
      : stage_bytes(l.slots * kSwizzledRow),
        ring(l.taps() * kConvTap),
        storing(ring + l.stages * stage_bytes),
        barriers(storing + kConvGroups * kWarpgroup * kConvStoring + kConvPlacesBytes),
        stages(l.stages),
        bytes(barriers + (2 * l.stages + 1) * static_cast<int>(sizeof(Barrier))) {}

  __device__ char* stage(char* shared, int number) const {
    return shared + ring + number * stage_bytes;
  }
  __device__ ConvPlace* places(char* shared) const {
    return reinterpret_cast<ConvPlace*>(shared + barriers - kConvPlacesBytes);
  }
  __device__ Barrier* full(char* shared) const {
    return reinterpret_cast<Barrier*>(shared + barriers);
  }
  __device__ Barrier* empty(char* shared) const { return full(shared) + stages; }
  __device__ Barrier& kernel_full(char* shared) const { return full(shared)[2 * stages]; }
};

// The first pixel of a rectangle.
struct ConvTile {
  int image, row, column;

  __device__ __forceinline__ ConvTile(const ConvLayout& l, int tile) {
    image = tile / (l.tiles_down * l.tiles_across);
    tile -= image * l.tiles_down * l.tiles_across;
    row = tile / l.tiles_across * l.rows;
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

// Barriers of the threads that multiply, by their numbers (0 is that of __syncthreads): one for the
// turns of each warpgroup, at which that one waits and the one before it arrives.
enum ConvBarrier : int { kConvFirstTurn = 1, kConvAll = kConvFirstTurn + kConvGroups };
constexpr int kConvAtTurn = 2 * 32 * kWarpgroup;  // threads

__device__ __forceinline__ void wait_for_turn(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(kConvFirstTurn + group), "n"(kConvAtTurn) : "memory");
}
__device__ __forceinline__ void give_turn_to(int group) {
  asm volatile("bar.arrive %0, %1;" ::"r"(kConvFirstTurn + group), "n"(kConvAtTurn) : "memory");
}
__device__ __forceinline__ void wait_for_all_multipliers() {
  asm volatile("bar.sync %0, %1;" ::"n"(static_cast<int>(kConvAll)), "n"(kConvMultipliers)
               : "memory");
}
// Waits too, and says whether any of them has `mine`.
__device__ __forceinline__ bool any_multiplier(bool mine) {
  int any;
  asm volatile(
      "{\n.reg .pred mine, any;\nsetp.ne.b32 mine, %1, 0;\n"
      "bar.red.or.pred any, %2, %3, mine;\nselp.b32 %0, 1, 0, any;\n}\n"
      : "=r"(any)
      : "r"(static_cast<int>(mine)), "n"(static_cast<int>(kConvAll)), "n"(kConvMultipliers)
      : "memory");
  return any != 0;
}

// The first factor: its first taps are in registers, as a warp's rows, and all in shared memory,
// where along the summed axis it has rows of filters, or, for a gradient, columns.
template <bool kIsGradient>
struct ConvKernel {
  LeftFragment kept[kConvKeptTaps][kConvSteps];
  const char* shared;
  int taps;

  __device__ __forceinline__ ConvKernel(const char* kernel, int number, int warp)
      : shared(kernel), taps(number) {
    const int lane = threadIdx.x % 32, matrix = lane / 8;
#pragma unroll
    for (int tap = 0; tap < kConvKeptTaps; ++tap) {
      if (tap >= taps) break;
#pragma unroll
      for (int step = 0; step < kConvSteps; ++step) {
        const int filter = 16 * warp + matrix % 2 * 8, channel = kConvDepth * step + matrix / 2 * 8;
        const int row = (kIsGradient ? filter : channel) + lane % 8;
        const int piece = (kIsGradient ? channel : filter) / 8;
        kept[tap][step] = load_matrices<!kIsGradient>(of_tap(tap) + row * kSwizzledRow +
                                                      ((piece ^ row % 8) << 4));
      }
    }
  }

  // A gradient's windows have the taps the other way round.
  __device__ __forceinline__ const char* of_tap(int tap) const {
    return shared + (kIsGradient ? taps - 1 - tap : tap) * kConvTap;
  }
};

// Starts all products of a rectangle whose first slot is `slots`; channels beyond the last are
// zeros. It calls `before_last` while those of the last tap are yet to be started.
template <typename Half, bool kIsGradient, typename BeforeLast>
__device__ __forceinline__ void multiply_taps(float (&sums)[kConvTiles][4],
                                              const ConvKernel<kIsGradient>& kernel,
                                              const char* slots, const ConvLayout& l,
                                              const BeforeLast& before_last) {
  constexpr int kKernelStep = (kIsGradient ? kConvDepth * 2 : kConvDepth * kSwizzledRow) / 16;
  constexpr int kPixelStep = kConvDepth * 2 / 16, kSlot = kSwizzledRow / 16;
  uint64_t right = describe_rows(slots);
  int column = 0;
  begin_products();
#pragma unroll
  for (int tap = 0; tap < kConvMostTaps; ++tap) {
    if (tap >= kernel.taps) break;
    if (tap == kernel.taps - 1) before_last();
    const uint64_t left = describe_rows(kernel.of_tap(tap));
#pragma unroll
    for (int step = 0; step < kConvSteps; ++step) {
      const uint64_t pixels = right + step * kPixelStep;
      if (tap < kConvKeptTaps) {
        multiply_left<Half, kConvTiles, false>(sums, kernel.kept[tap][step], pixels,
                                               tap + step > 0);
      } else {
        multiply_rows<Half, kConvTiles, !kIsGradient, false>(sums, left + step * kKernelStep,
                                                             pixels, 1);
      }
    }
    right += kSlot;
    if (++column == l.kernel_width) {
      column = 0;
      right += (l.pitch - l.kernel_width) * kSlot;
    }
  }
  commit_products();
}

// Which pixels of a rectangle there are.
struct ConvEdge {
  int rows, columns;

  __device__ __forceinline__ ConvEdge(const ConvLayout& l, const ConvTile& tile)
      : rows(min(l.rows, l.height - tile.row)), columns(min(l.columns, l.width - tile.column)) {}
  __device__ __forceinline__ bool has(const ConvPlace& place) const {
    return place.row < rows && place.column < columns;
  }
  // Bit 2 * j + e for the pixel that is column 8 * j + 2 * t + e of the products.
  __device__ __forceinline__ uint64_t mask(const ConvPlace* places, int t) const {
    uint64_t bits = 0;
#pragma unroll 1
    for (int i = 0; i < 2 * kConvTiles; ++i) {
      bits |= uint64_t{has(places[i / 2 * 8 + 2 * t + i % 2])} << i;
    }
    return bits;
  }
};

// NaN stays.
template <typename Half>
__device__ __forceinline__ uint32_t relu_of_pair(uint32_t pair) {
  uint32_t result;
  if constexpr (std::is_same_v<Half, __half>) {
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(result) : "r"(pair), "r"(0));
  } else {
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(pair), "r"(0));
  }
  return result;
}

template <typename Half>
__device__ __forceinline__ float unpack(uint32_t pair, int number) {
  return load(reinterpret_cast<const Half*>(&pair)[number]);
}

// The sums for the moments of a thread's two rows. They are of differences from one of the results,
// so that squares don't cancel; four lanes have the same row and the same origin.
struct ConvSums {
  float origins[2] = {}, sums[2] = {}, squares[2] = {};
  int count = 0;

  // The first results have the origins. Their first column is a pixel.
  template <typename Half>
  __device__ __forceinline__ void begin(const uint32_t (&pairs)[kConvTiles][2]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      origins[row] =
          __shfl_sync(kFullWarp, unpack<Half>(pairs[0][row], 0), threadIdx.x % 32 / 4 * 4);
    }
  }

  template <typename Half>
  __device__ __forceinline__ void add(const uint32_t (&pairs)[kConvTiles][2], uint64_t mask) {
#pragma unroll
    for (int j = 0; j < kConvTiles; ++j) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float value = unpack<Half>(pairs[j][row], e) - origins[row];
          const float difference = (mask >> (2 * j + e) & 1) != 0 ? value : 0.0f;
          sums[row] += difference;
          squares[row] += difference * difference;
        }
        // One after another: registers are few.
        asm volatile("" : "+f"(sums[row]), "+f"(squares[row]));
      }
    }
    count += __popcll(mask);
  }

  // The moments of a row, which all four lanes get.
  __device__ __forceinline__ Moments<float> moments(int row) const {
    float sum = sums[row], square = squares[row];
    int all = count;
#pragma unroll
    for (int other = 1; other < 4; other *= 2) {
      sum += __shfl_xor_sync(kFullWarp, sum, other);
      square += __shfl_xor_sync(kFullWarp, square, other);
      all += __shfl_xor_sync(kFullWarp, all, other);
    }
    if (all == 0) return {};
    const float mean = sum / static_cast<float>(all);
    const float deviation = square - sum * mean;
    // Rounding must not make it negative, and NaN stays.
    return {static_cast<float>(all), origins[row] + mean, deviation < 0.0f ? 0.0f : deviation};
  }
};

// Where a lane stores 8 filters of a column, for each 16 columns: its place in a warp's results as
// copies of tensors read them that have 32 bytes a row and exchange 16 bytes at a time ("32B
// swizzle"), pixel by pixel.
struct ConvStores {
  static constexpr int kCount = (kConvTiles + 1) / 2;
  uint32_t pairs[(kCount + 1) / 2] = {};  // two places each

  __device__ __forceinline__ ConvStores(const ConvPlace* places, const ConvLayout& l) {
    const int lane = threadIdx.x % 32, half = lane / 8 % 2;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      // The last 16 columns are 8.
      const int column = min(16 * i + lane / 16 * 8, 8 * (kConvTiles - 1)) + lane % 8;
      const ConvPlace place = places[column];
      const int pixel = place.row == kConvNowhere ? kConvColumns + lane % 8
                                                  : place.row * l.columns + place.column;
      const uint32_t bytes = kConvStoredRow * pixel + 16 * (half ^ pixel / 4 % 2);
      pairs[i / 2] |= bytes << i % 2 * 16;
    }
  }
  __device__ __forceinline__ int operator[](int i) const {
    return static_cast<int>(pairs[i / 2] >> i % 2 * 16 & 0xffff);
  }
};

// What comes with the products.
struct ConvEpilogue {
  const void* bias;  // null for none
  bool is_relu;
  Moments<float>* partial;  // of each block; null where nobody reads statistics
  unsigned* tickets;        // one for each block of filters
  float* mean;
  float* variance;
};

// Merges the moments of a block's warpgroups and stores them; the last block merges all blocks'. In
// `exchange` there are kConvMultipliers moments.
__device__ __forceinline__ void finish_moments(const ConvSums& sums, const ConvEpilogue& epilogue,
                                               const ConvLayout& l, Moments<float>* exchange) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int warp = thread / 32 % kWarpgroup, group = thread / (32 * kWarpgroup);
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const Moments<float> of_row = sums.moments(row);
    if (lane % 4 == 0) {
      exchange[group * kConvChannels + warp * 16 + row * 8 + lane / 4] = of_row;
    }
  }
  wait_for_all_multipliers();
  const int filter = thread % kConvChannels;
  const int result = static_cast<int>(blockIdx.y) * kConvChannels + filter;
  const bool is_inside = result < l.result_channels;
  if (thread < kConvChannels && is_inside) {
    Moments<float> merged = exchange[filter];
    for (int other = 1; other < kConvGroups; ++other) {
      merged = merge_moments(merged, exchange[other * kConvChannels + filter]);
    }
    epilogue.partial[static_cast<int64_t>(blockIdx.x) * l.result_channels + result] = merged;
  }
  __threadfence();
  wait_for_all_multipliers();
  bool is_last = false;
  if (thread == 0) {
    is_last = atomicInc(epilogue.tickets + blockIdx.y, gridDim.x - 1) == gridDim.x - 1;
  }
  if (!any_multiplier(is_last)) return;
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
  wait_for_all_multipliers();
  if (thread >= kConvChannels || !is_inside) return;
  for (int other = 1; other < kShares; ++other) {
    total = merge_moments(total, exchange[other * kConvChannels + filter]);
  }
  epilogue.mean[result] = total.mean;
  epilogue.variance[result] = total.deviation / total.count;
}

template <typename Half, bool kIsGradient>
__device__ __forceinline__ void multiply_conv(char* shared, const CUtensorMap* y,
                                              const ConvEpilogue& epilogue, const ConvLayout& l) {
  const ConvMemory memory(l);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  // The same in all lanes, which the compiler sees by the exchange.
  const int group = __shfl_sync(kFullWarp, thread / (32 * kWarpgroup), 0);
  const int warp = thread / 32 % kWarpgroup;
  char* const storing = shared + memory.storing + thread / 32 * kConvStoring;
  const int first_filter = static_cast<int>(blockIdx.y) * kConvChannels + warp * 16;
  const int filters_left = l.result_channels - first_filter;
  float bias[2] = {};
  if (epilogue.bias != nullptr) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int filter = row * 8 + lane / 4;
      if (filter < filters_left) {
        bias[row] = load(static_cast<const Half*>(epilogue.bias)[first_filter + filter]);
      }
    }
  }
  ConvSums moments;
  bool has_begun = false;
  int masked_rows = -1, masked_columns = -1;
  uint64_t mask = 0;

  const int next_group = group + 1 == kConvGroups ? 0 : group + 1;
  if (next_group == 0) give_turn_to(0);  // the first one
  memory.kernel_full(shared).wait(0);
  const ConvKernel<kIsGradient> kernel(shared, l.taps(), warp);
  const int blocks = static_cast<int>(gridDim.x);
  const ConvStores stores(memory.places(shared), l);
  RingStage at;
  at.advance(l.stages, group);
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x) + group * blocks; tile < l.tiles;
       tile += kConvGroups * blocks) {
    memory.full(shared)[at.number].wait(at.phase);
    wait_for_turn(group);
    float sums[kConvTiles][4];
    multiply_taps<Half, kIsGradient>(sums, kernel, memory.stage(shared, at.number), l, [&] {
      // After the last turn of all nobody waits for the next one.
      if (tile + blocks < l.tiles) give_turn_to(next_group);
    });
    ConvTile begin(l, tile);
    // Here, while the products are under way.
    asm volatile("" : "+r"(begin.image), "+r"(begin.row), "+r"(begin.column));
    wait_for_products<0>();
    if (lane == 0) memory.empty(shared)[at.number].arrive();
    at.advance(l.stages, kConvGroups);

    if (epilogue.bias != nullptr) {
#pragma unroll
      for (int j = 0; j < kConvTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[j][e] += bias[e / 2];
      }
    }
    uint32_t pairs[kConvTiles][2];
#pragma unroll
    for (int j = 0; j < kConvTiles; ++j) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        pairs[j][row] = pack_pair<Half>(sums[j][2 * row], sums[j][2 * row + 1]);
        if (epilogue.is_relu) pairs[j][row] = relu_of_pair<Half>(pairs[j][row]);
      }
    }
    if (lane == 0) wait_until_stores_are_read();  // of the rectangle before
    __syncwarp();
#pragma unroll
    for (int i = 0; i < ConvStores::kCount; ++i) {
      const int second = min(2 * i + 1, kConvTiles - 1);
      store_transposed(storing + stores[i],
                       {pairs[2 * i][0], pairs[2 * i][1], pairs[second][0], pairs[second][1]});
    }
    publish_to_async_proxy();
    __syncwarp();
    // The copy leaves out what is beyond the images and the filters.
    if (lane == 0 && first_filter < l.result_channels) {
      store_tensor(y, storing, first_filter, begin.column, begin.row, begin.image);
    }
    if (!kIsGradient && epilogue.partial != nullptr) {
      const ConvEdge edge(l, begin);
      if (edge.rows != masked_rows || edge.columns != masked_columns) {
        masked_rows = edge.rows;
        masked_columns = edge.columns;
        mask = edge.mask(memory.places(shared), lane % 4);
      }
      if (!has_begun) moments.begin<Half>(pairs);
      has_begun = true;
      moments.add<Half>(pairs, mask);
    }
  }
  if (lane == 0) wait_for_stores();
  if (kIsGradient || epilogue.partial == nullptr) return;
  wait_for_all_multipliers();  // nobody stores any more
  finish_moments(moments, epilogue, l, reinterpret_cast<Moments<float>*>(shared + memory.storing));
}

// `x` brings boxes of (1, input_rows, pitch, 64), with zeros where the image or the channels end;
// `kernel` brings all taps of 64 channels and 64 filters; `y` takes boxes of (1, rows, columns,
// 16).
template <typename Half, bool kIsGradient>
__global__ void __launch_bounds__(kConvThreads, 1)
    conv_warpgroups_kernel(const __grid_constant__ CUtensorMap x,
                           const __grid_constant__ CUtensorMap kernel,
                           const __grid_constant__ CUtensorMap y,
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
    for (int i = threadIdx.x; i < kConvColumns; i += kConvThreads) {
      const int row = i / l.pitch, column = i - row * l.pitch;
      const bool is_pixel = row < l.rows && column < l.columns;
      memory.places(shared)[i] = {static_cast<int16_t>(is_pixel ? row : kConvNowhere),
                                  static_cast<int16_t>(column)};
    }
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < l.stages; ++stage) {
        memory.full(shared)[stage].start(1);
        memory.empty(shared)[stage].start(kWarpgroup);
      }
      memory.kernel_full(shared).start(1);
    }
    publish_to_async_proxy();
    begin_kernel();
    __syncthreads();
    if (threadIdx.x >= kConvMultipliers) {
      give_registers_back<kConvCopierRegisters>();
      if (threadIdx.x == kConvMultipliers) copy_conv<kIsGradient>(&x, &kernel, shared, l);
    } else {
      take_registers<kConvMultiplierRegisters>();
      multiply_conv<Half, kIsGradient>(shared, &y, epilogue, l);
    }
  }
}

}  // namespace kerascnn::cuda
