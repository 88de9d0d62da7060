// The gradient of a convolution's kernel on Hopper's tensor cores, in TF32: gkernel (tap, input
// channel, filter) = sum over pixels of x (pixel under the tap) * gy (pixel).
//
// Tensor cores read numbers of 32 bits from shared memory only where the summed axis is the
// contiguous one, and pixels are contiguous in neither factor. So x goes through registers: shared
// memory has it as it is, and another tap is another address. gy is transposed on its way to shared
// memory, once for all taps.
//
// One warpgroup of a block copies, and the others multiply. Each of those has 64 input channels,
// all taps of one row of the kernel, and kFilters filters: the warpgroups differ in the row or in
// the channels. A turn of the main loop takes the pixels of a rectangle of the output, or of
// several whole images.
//
// The order of the pixels within a sum is free. Four runs of kRun pixels, neighbours in a row, are
// a group; lane 4 * g + t reads x under run t, and what it reads serves several taps.
#pragma once

#include <cstdint>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/tiles/async_copy.cuh"
#include "core/backend/cuda/tiles/barrier.cuh"
#include "core/backend/cuda/tiles/warpgroup.cuh"

namespace kerascnn::cuda {

constexpr int kWgradChannels = 64;  // input channels of a warpgroup
constexpr int kWgradCopiers = 32 * kWarpgroup;

// What is known when a kernel is compiled. kGroups warpgroups multiply; kKernelRows says whether
// they have different rows of the kernel or different input channels.
template <int kFilters_, int kGroups_, bool kKernelRows_, int kTaps_, int kRun_, int kStride_>
struct WgradShape {
  static constexpr int kFilters = kFilters_;
  static constexpr int kGroups = kGroups_;
  static constexpr bool kKernelRows = kKernelRows_;
  static constexpr int kTaps = kTaps_;  // in a row of the kernel
  static constexpr int kRun = kRun_;
  static constexpr int kStride = kStride_;  // along a row

  static constexpr int kPlanes = kKernelRows ? 1 : kGroups;  // of 64 input channels
  static constexpr int kRowsOfKernel = kKernelRows ? kGroups : 1;
  static constexpr int kThreads = kWgradCopiers + kGroups * 32 * kWarpgroup;
  static constexpr int kStep = kRun * kStride;                 // pixels of x from run to run
  static constexpr int kSpan = (kRun - 1) * kStride + kTaps;   // pixels of x that a run reads
  static constexpr int kTiles = kFilters / 8;
  static constexpr int kFactors = kRun / 2;  // of 8 pixels, in a group
  static constexpr int kFactor = 8 * kFilters;
  // Registers of a thread; what a launch gives to all alike is shared out anew.
  static constexpr int kMultiplierRegisters = kGroups == 2 ? 232 : 152;
  static constexpr int kCopierRegisters = kGroups == 2 ? 40 : 56;
  static constexpr int kTogether = kGroups == 2 ? 1 : 2;  // quads of filters that a copier loads
};

// The sizes, and how the work is cut.
struct WgradLayout {
  int batch, input_height, input_width, input_channels;
  int output_height, output_width, output_channels;
  int kernel_height, stride_height, pad_top, pad_left;

  int rows, columns;                 // of a rectangle, columns a multiple of kRun
  int rectangles_down, rectangles_across;  // of an image
  int images;                        // of a turn, more than one only where they are whole
  int input_rows, pitch;             // of x under a rectangle, as shared memory has it
  int groups;                        // of runs in a turn
  int turns;                         // all
  int stages;                        // of the ring
  int splits;                        // grid.z: each has a share of the turns
#ifdef WGRAD_PROBE
  int skip = 0;
#endif

  __host__ __device__ int slots() const { return images * input_rows * pitch; }
  __host__ __device__ int runs() const { return 4 * groups; }
};

// A pixel that is copied: where it is from the first one of the turn. `image` is negative for none.
struct alignas(16) WgradPlace {
  int image, row, column, offset;  // the offset in floats
};

template <typename Shape>
struct WgradMemory {
  int x_floats, stage_floats, stages_bytes, bytes;
  int slots, pixels, runs, stages;

  __host__ __device__ explicit WgradMemory(const WgradLayout& l)
      : x_floats(Shape::kPlanes * l.slots() * kWgradChannels),
        stage_floats(x_floats + l.groups * Shape::kFactors * Shape::kFactor),
        stages_bytes(l.stages * stage_floats * 4),
        slots(l.slots()),
        pixels(l.runs() * Shape::kRun),
        runs(l.runs()),
        stages(l.stages) {
    bytes = stages_bytes + (slots + pixels) * static_cast<int>(sizeof(WgradPlace)) + runs * 4 +
            2 * stages * 8;
  }
  __device__ WgradPlace* places_of_x(char* shared) const {
    return reinterpret_cast<WgradPlace*>(shared + stages_bytes);
  }
  __device__ WgradPlace* places_of_gy(char* shared) const { return places_of_x(shared) + slots; }
  __device__ int* slots_of_runs(char* shared) const {
    return reinterpret_cast<int*>(places_of_gy(shared) + pixels);
  }
  __device__ Barrier* full(char* shared) const {  // `runs` is a multiple of 4
    return reinterpret_cast<Barrier*>(slots_of_runs(shared) + runs);
  }
  __device__ Barrier* empty(char* shared) const { return full(shared) + stages; }
};

// The slot of x in shared memory that has the first pixel of a run under the first tap; runs behind
// the last one read what the first one does.
template <typename Shape>
__host__ __device__ inline int slot_of_run(const WgradLayout& l, int run) {
  const int across = l.columns / Shape::kRun;
  const int image = run / (l.rows * across);
  const int row = run / across % l.rows, column = run % across * Shape::kRun;
  if (image >= l.images) return 0;
  const int input_row = Shape::kKernelRows ? row * l.stride_height : row;
  return (image * l.input_rows + input_row) * l.pitch + column * Shape::kStride;
}

template <typename Shape>
__host__ __device__ inline WgradPlace place_of_slot(const WgradLayout& l, int slot) {
  const int image = slot / (l.input_rows * l.pitch);
  const int row = slot / l.pitch % l.input_rows * (Shape::kKernelRows ? 1 : l.stride_height);
  const int column = slot % l.pitch;
  return {image, row, column,
          ((image * l.input_height + row) * l.input_width + column) * l.input_channels};
}

// `pixel` counts along the runs.
template <typename Shape>
__host__ __device__ inline WgradPlace place_of_pixel(const WgradLayout& l, int pixel) {
  const int image = pixel / (l.rows * l.columns);
  const int row = pixel / l.columns % l.rows, column = pixel % l.columns;
  if (image >= l.images) return {-1, 0, 0, 0};
  return {image, row, column,
          ((image * l.output_height + row) * l.output_width + column) * l.output_channels};
}

// The first pixel of a turn.
struct WgradStart {
  int image, row, column;

  __host__ __device__ WgradStart(const WgradLayout& l, int turn) {
    const int rectangles = l.rectangles_down * l.rectangles_across;
    const int rectangle = turn % rectangles;
    image = turn / rectangles * l.images;
    row = rectangle / l.rectangles_across * l.rows;
    column = rectangle % l.rectangles_across * l.columns;
  }
};

// Where a slot has a channel, in floats: 16 bytes at a time are exchanged such that the lanes of a
// warp read from different banks. `run` is the number of the run that begins at the slot or before
// it.
__host__ __device__ __forceinline__ int place_of_channel(int channel, int run) {
  return channel ^ (run & 3) << 3;
}

// What a thread block has of the result.
struct WgradTile {
  int first_channel, first_filter, kernel_row;

  template <typename Shape>
  static __device__ __forceinline__ WgradTile of_block(const WgradLayout& l) {
    const int x = static_cast<int>(blockIdx.x);
    const int rows = l.kernel_height / Shape::kRowsOfKernel;
    return {x / rows * Shape::kPlanes * kWgradChannels,
            static_cast<int>(blockIdx.y) * Shape::kFilters, x % rows};
  }
};

template <typename Shape>
__device__ __forceinline__ void copy_x(const float* __restrict__ x, float* stage,
                                       const WgradPlace* places, const WgradLayout& l,
                                       const WgradTile& tile, const WgradStart& start, int thread) {
  constexpr int kChunks = Shape::kPlanes * kWgradChannels / 4;
  const int slots = l.slots();
  const int row = start.row * l.stride_height - l.pad_top + tile.kernel_row;
  const int column = start.column * Shape::kStride - l.pad_left;
  const int channel = thread % kChunks * 4;
  const float* from =
      x +
      ((static_cast<int64_t>(start.image) * l.input_height + row) * l.input_width + column) *
          l.input_channels +
      tile.first_channel + channel;
  float* to = stage + channel / kWgradChannels * slots * kWgradChannels;
  for (int slot = thread / kChunks; slot < slots; slot += kWgradCopiers / kChunks) {
    const WgradPlace place = places[slot];
    const bool valid =
        start.image + place.image < l.batch &&
        static_cast<unsigned>(row + place.row) < static_cast<unsigned>(l.input_height) &&
        static_cast<unsigned>(column + place.column) < static_cast<unsigned>(l.input_width);
    copy_async_16(to + slot * kWgradChannels +
                      place_of_channel(channel % kWgradChannels, slot / Shape::kStep),
                  valid ? from + place.offset : x, valid);
  }
}

// A thread takes four filters of four pixels that are 4 rows of a factor. Filter j of them goes to
// quarter j of the columns: neighbouring threads write neighbouring columns then.
template <typename Shape>
__device__ __forceinline__ void transpose_gy(const float* __restrict__ gy, float* factors,
                                             const WgradPlace* places, const WgradLayout& l,
                                             const WgradTile& tile, const WgradStart& start,
                                             int thread) {
  constexpr int kQuads = Shape::kFilters / 4;
  constexpr int kTogether = Shape::kTogether;
  const int quad = thread % kQuads;
  const int halves = l.groups * Shape::kRun;  // of factors
  const float* from =
      gy +
      ((static_cast<int64_t>(start.image) * l.output_height + start.row) * l.output_width +
       start.column) *
          l.output_channels +
      tile.first_filter + quad * 4;
  constexpr int kStep = kWgradCopiers / kQuads;
  for (int first = thread / kQuads; first < halves; first += kTogether * kStep) {
    float4 values[kTogether][4];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const int half = first + k * kStep;
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        values[k][t] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (half >= halves) continue;
        const int group = half / Shape::kRun, number = half % Shape::kRun;
        const WgradPlace place = places[(4 * group + t) * Shape::kRun + number];
        if (place.image >= 0 && start.image + place.image < l.batch &&
            start.row + place.row < l.output_height &&
            start.column + place.column < l.output_width) {
          values[k][t] = __ldg(reinterpret_cast<const float4*>(from + place.offset));
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const int half = first + k * kStep;
      if (half >= halves) continue;
      auto* to = reinterpret_cast<float4*>(factors + half * 4 * Shape::kFilters) + quad;
      const auto& v = values[k];
      to[0] = unbiased_tf32(float4{v[0].x, v[1].x, v[2].x, v[3].x});
      to[kQuads] = unbiased_tf32(float4{v[0].y, v[1].y, v[2].y, v[3].y});
      to[2 * kQuads] = unbiased_tf32(float4{v[0].z, v[1].z, v[2].z, v[3].z});
      to[3 * kQuads] = unbiased_tf32(float4{v[0].w, v[1].w, v[2].w, v[3].w});
    }
  }
}

// A place in the ring of stages.
struct WgradCursor {
  int stage = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ void next_stage(const WgradLayout& l) {
    if (++stage == l.stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

template <typename Shape>
__device__ __forceinline__ void copy_turns(const float* __restrict__ x,
                                           const float* __restrict__ gy, char* shared,
                                           const WgradLayout& l, int first_turn, int end_turn,
                                           int thread) {
  const WgradMemory<Shape> memory(l);
  const WgradTile tile = WgradTile::of_block<Shape>(l);
  WgradCursor at;
  for (int turn = first_turn; turn < end_turn; ++turn, at.next_stage(l)) {
    const WgradStart start(l, turn);
    float* stage = reinterpret_cast<float*>(shared) + at.stage * memory.stage_floats;
    memory.empty(shared)[at.stage].wait(at.phase ^ 1);
#ifdef WGRAD_PROBE
    if (!(l.skip & 1))
#endif
    copy_x<Shape>(x, stage, memory.places_of_x(shared), l, tile, start, thread);
    memory.full(shared)[at.stage].arrive_after_copies();
#ifdef WGRAD_PROBE
    if (!(l.skip & 2))
#endif
    transpose_gy<Shape>(gy, stage + memory.x_floats, memory.places_of_gy(shared), l, tile, start,
                        thread);
    publish_to_tensor_cores();
    memory.full(shared)[at.stage].arrive();
  }
}

// What a thread reads of x for the pixels of a group: two channels under a run and all taps.
template <typename Shape>
struct WgradValues {
  float2 values[Shape::kSpan];

  // `slots` has the warpgroup's channels; the thread reads `channel` and the next.
  __host__ __device__ __forceinline__ void read(const float* slots, int slot, int channel) {
    const int run = static_cast<int>(static_cast<unsigned>(slot) / Shape::kStep);
    slots += slot * kWgradChannels;
#pragma unroll
    for (int i = 0; i < Shape::kSpan; ++i) {
      values[i] = *reinterpret_cast<const float2*>(
          slots + i * kWgradChannels + place_of_channel(channel, run + i / Shape::kStep));
    }
  }
};

// The same as factors, for each tap. Row g of a warp is its channel 2 * g, row g + 8 the next one;
// places t and t + 4 in the depth are neighbouring pixels of run t.
template <typename Shape>
struct WgradFragments {
  LeftFragment of[Shape::kFactors][Shape::kTaps];

  __device__ __forceinline__ void round(const WgradValues<Shape>& from) {
    const auto& values = from.values;
#pragma unroll
    for (int f = 0; f < Shape::kFactors; ++f) {
#pragma unroll
      for (int tap = 0; tap < Shape::kTaps; ++tap) {
        const float2 near = values[2 * f * Shape::kStride + tap];
        const float2 far = values[(2 * f + 1) * Shape::kStride + tap];
        of[f][tap] = {{to_tf32(near.x), to_tf32(near.y), to_tf32(far.x), to_tf32(far.y)}};
      }
    }
  }
};

// Stores the sums of a warp.
template <typename Shape>
__host__ __device__ __forceinline__ void store_sums(
    const float (&sums)[Shape::kTaps][Shape::kTiles][4], float* result, int64_t tap_stride,
    int row_stride, int lane) {
  const int group = lane / 4, member = lane % 4;
#pragma unroll
  for (int tap = 0; tap < Shape::kTaps; ++tap) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* const row = result + tap * tap_stride + (2 * group + half) * row_stride;
#pragma unroll
      for (int tile = 0; tile < Shape::kTiles / 4; ++tile) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int d = 2 * half + e;
          constexpr int kQuarter = Shape::kTiles / 4;
          const auto& s = sums[tap];
          *reinterpret_cast<float4*>(row + 4 * (8 * tile + 2 * member + e)) = {
              s[tile][d], s[tile + kQuarter][d], s[tile + 2 * kQuarter][d],
              s[tile + 3 * kQuarter][d]};
        }
      }
    }
  }
}

template <typename Shape>
__device__ __forceinline__ void multiply_turns(char* shared, float* __restrict__ gkernel,
                                               const WgradLayout& l, int turns) {
  const WgradMemory<Shape> memory(l);
  const int warpgroup = static_cast<int>(threadIdx.x) / (32 * kWarpgroup);
  const int warp = static_cast<int>(threadIdx.x) / 32 % kWarpgroup, lane = threadIdx.x % 32;
  const int channel = warp * 16 + lane / 4 * 2;
  const int first_slot = Shape::kKernelRows ? warpgroup * l.pitch : 0;
  const float* const stages =
      reinterpret_cast<const float*>(shared) +
      (Shape::kKernelRows ? 0 : warpgroup * l.slots() * kWgradChannels);
  const int* const runs = memory.slots_of_runs(shared) + lane % 4;
  Barrier* const full = memory.full(shared);
  Barrier* const empty = memory.empty(shared);

  float sums[Shape::kTaps][Shape::kTiles][4] = {};
  WgradValues<Shape> values;
  WgradFragments<Shape> fragments;
  const auto read = [&](int stage, int group) {
    values.read(stages + stage * memory.stage_floats, first_slot + runs[4 * group], channel);
  };
  const auto multiply = [&](int stage, int group) {
    const float* factors = reinterpret_cast<const float*>(shared) + stage * memory.stage_floats +
                           memory.x_floats + group * Shape::kFactors * Shape::kFactor;
    fragments.round(values);
    begin_products();
#pragma unroll
    for (int f = 0; f < Shape::kFactors; ++f) {
      const uint64_t factor = describe_factor(factors + f * Shape::kFactor, Shape::kFilters);
#pragma unroll
      for (int tap = 0; tap < Shape::kTaps; ++tap) {
        multiply_warpgroup<Shape::kTiles>(sums[tap], fragments.of[f][tap], factor);
      }
    }
    commit_products();
  };

  // While products are under way, the thread reads what the next ones need.
  WgradCursor at;
  if (turns > 0) {
    full[0].wait(0);
    read(0, 0);
  }
  for (int turn = 0; turn < turns; ++turn) {
    for (int group = 1; group < l.groups; ++group) {
      multiply(at.stage, group - 1);
      read(at.stage, group);
      wait_for_products<0>();
    }
    multiply(at.stage, l.groups - 1);
    const int stage = at.stage;
    at.next_stage(l);
    if (turn + 1 < turns) {
      full[at.stage].wait(at.phase);
      read(at.stage, 0);
    }
    wait_for_products<0>();
    if (lane == 0) empty[stage].arrive();
  }

  const WgradTile tile = WgradTile::of_block<Shape>(l);
  const int kernel_row = tile.kernel_row + (Shape::kKernelRows ? warpgroup : 0);
  const int first_channel = tile.first_channel + warp * 16 +
                            (Shape::kKernelRows ? 0 : warpgroup * kWgradChannels);
  const int64_t tap_stride = static_cast<int64_t>(l.input_channels) * l.output_channels;
  float* const target =
      gkernel + (static_cast<int64_t>(blockIdx.z) * l.kernel_height + kernel_row) * Shape::kTaps *
                    tap_stride +
      static_cast<int64_t>(first_channel) * l.output_channels + tile.first_filter;
  store_sums<Shape>(sums, target, tap_stride, l.output_channels, lane);
}

// Each split has its own copy of gkernel.
template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    wgrad_warpgroups_kernel(const float* __restrict__ x, const float* __restrict__ gy,
                            float* __restrict__ gkernel, WgradLayout l) {
  extern __shared__ __align__(128) char shared[];
  const WgradMemory<Shape> memory(l);
  for (int i = threadIdx.x; i < memory.slots; i += Shape::kThreads) {
    memory.places_of_x(shared)[i] = place_of_slot<Shape>(l, i);
  }
  for (int i = threadIdx.x; i < memory.pixels; i += Shape::kThreads) {
    memory.places_of_gy(shared)[i] = place_of_pixel<Shape>(l, i);
  }
  for (int i = threadIdx.x; i < memory.runs; i += Shape::kThreads) {
    memory.slots_of_runs(shared)[i] = slot_of_run<Shape>(l, i);
  }
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < l.stages; ++stage) {
      memory.full(shared)[stage].start(2 * kWgradCopiers);
      memory.empty(shared)[stage].start(Shape::kGroups * kWarpgroup);
    }
  }
  begin_kernel();
  __syncthreads();
  const auto share = [&](unsigned split) {
    return static_cast<int>(static_cast<int64_t>(l.turns) * split / l.splits);
  };
  const int first = share(blockIdx.z), end = share(blockIdx.z + 1);
  if (threadIdx.x >= Shape::kThreads - kWgradCopiers) {
    give_registers_back<Shape::kCopierRegisters>();
    copy_turns<Shape>(x, gy, shared, l, first, end,
                      static_cast<int>(threadIdx.x) - (Shape::kThreads - kWgradCopiers));
  } else {
    take_registers<Shape::kMultiplierRegisters>();
    multiply_turns<Shape>(shared, gkernel, l, end - first);
  }
}

}  // namespace kerascnn::cuda
