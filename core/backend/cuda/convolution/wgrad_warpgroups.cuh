// The gradient of a 3x3 convolution's kernel on Hopper's tensor cores, in TF32: gkernel (tap, input
// channel, filter) = sum over pixels of x (pixel under the tap) * gy (pixel).
//
// Tensor cores read numbers of 32 bits from shared memory only where the summed axis is the
// contiguous one, and pixels are contiguous in neither factor. So x goes through registers: shared
// memory has it as it is, and another tap is another address. gy is transposed on its way to shared
// memory, once for all taps.
//
// A block has 64 input channels, 64 filters and all taps. Three warpgroups multiply, each for one
// row of the kernel; the fourth copies. A turn of the main loop takes the pixels of a rectangle of
// the output, or of several whole images, and blocks may share the turns.
//
// The order of the pixels within a sum is free. Runs are four pixels that are neighbours in a row,
// and four runs are a group: lane 4 * g + t reads x under run t, and what it reads serves all taps
// of a row.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/tiles/barrier.cuh"
#include "core/backend/cuda/tiles/warpgroup.cuh"

namespace kerascnn::cuda {

constexpr int kWgradChannels = 64, kWgradFilters = 64;  // of a block
constexpr int kWgradTaps = 3;                           // in a row of the kernel, and rows
constexpr int kWgradRun = 4;
constexpr int kWgradPlane = 32;  // channels that lie side by side in shared memory: 128 bytes
constexpr int kWgradPlanes = kWgradChannels / kWgradPlane;
constexpr int kWgradTiles = kWgradFilters / 8;
constexpr int kWgradFactor = 8 * kWgradFilters;   // floats of a factor of 8 pixels
constexpr int kWgradFactors = 4 * kWgradRun / 8;  // of a group
constexpr int kWgradCopiers = 32 * kWarpgroup;
constexpr int kWgradMultipliers = kWgradTaps * 32 * kWarpgroup;
constexpr int kWgradThreads = kWgradMultipliers + kWgradCopiers;
// A launch gives all threads 128 registers.
constexpr int kWgradMultiplierRegisters = 152, kWgradCopierRegisters = 56;

constexpr int kWgradMostImages = 16;  // of a turn

// The sizes, and how the work is cut.
struct WgradLayout {
  int batch, input_height, input_width, input_channels;
  int output_height, output_width, output_channels;
  int stride_height, stride_width, pad_top, pad_left;

  int rows, columns;                       // of a rectangle; columns are a multiple of kWgradRun
  int rectangles_down, rectangles_across;  // of an image
  int images;                              // of a turn, more than one only where they are whole
  int input_rows, pitch;                   // of x under a rectangle
  int groups;                              // of runs in a turn
  int turns;                               // all
  int stages;                              // of the ring in shared memory
  int splits;                              // grid.z: each has a share of the turns
  bool is_ragged;                          // do some runs have fewer pixels than others?
  bool has_edges;                          // do some turns have fewer runs than others?

  __host__ __device__ int slots() const { return images * input_rows * pitch; }
  __host__ __device__ int runs() const { return 4 * groups; }
  __host__ __device__ int pixels() const { return runs() * kWgradRun; }
};

// A place in a turn, from its first pixel; in 32 bits.
struct WgradPlace {
  uint32_t packed;

  static constexpr int kNoImage = 255;  // of a pixel that is none

  __host__ __device__ WgradPlace(int image, int row, int column)
      : packed(static_cast<uint32_t>(image << 24 | row << 12 | column)) {}
  __host__ __device__ int image() const { return static_cast<int>(packed >> 24); }
  __host__ __device__ int row() const { return static_cast<int>(packed >> 12 & 0xfff); }
  __host__ __device__ int column() const { return static_cast<int>(packed & 0xfff); }
};

// Where runs begin. The runs of a group are neighbours such that x under them lies in different
// banks: two rows with two each, or one each of four rows where the stride is 2.
__host__ __device__ inline WgradPlace place_of_run(const WgradLayout& l, int run) {
  const int across = l.columns / kWgradRun;
  const int down = l.stride_width == 1 ? 2 : 4, wide = 4 / down;
  const int image = run / (l.rows * across);
  if (image >= l.images) return {WgradPlace::kNoImage, 0, 0};
  run -= image * l.rows * across;
  const int first_row = run / (down * across) * down;
  run -= first_row * across;
  const int rows = first_row + down <= l.rows ? down : l.rows - first_row;
  const int first = run / (rows * wide) * wide;
  run -= first * rows;
  const int columns = first + wide <= across ? wide : across - first;
  return {image, first_row + run / columns, (first + run % columns) * kWgradRun};
}

// What a run reads of x: the slot in shared memory for its first pixel under the first tap, and how
// many pixels it has in turns that are not cut short.
struct WgradRun {
  int packed;

  __host__ __device__ WgradRun(const WgradLayout& l, int number) : packed(0) {
    const WgradPlace place = place_of_run(l, number);
    if (place.image() >= l.images) return;
    const int slot = (place.image() * l.input_rows + place.row() * l.stride_height) * l.pitch +
                     place.column() * l.stride_width;
    const int left = l.output_width - place.column();
    packed = slot * 8 + (left < kWgradRun ? left : kWgradRun);
  }
  __host__ __device__ int slot() const { return packed / 8; }
  __host__ __device__ int pixels() const { return packed % 8; }
};

// Where gy has a pixel, in floats from the first pixel of the turn; negative for none. A group has
// kWgradRun quarters of four pixels: number i of each run.
__host__ __device__ inline int offset_of_pixel(const WgradLayout& l, int quarter, int run) {
  const WgradPlace place = place_of_run(l, quarter / kWgradRun * 4 + run);
  const int column = place.column() + quarter % kWgradRun;
  if (place.image() >= l.images || column >= l.output_width) return -1;
  return ((place.image() * l.output_height + place.row()) * l.output_width + column) *
         l.output_channels;
}

// The first pixel of a turn, and how many images, rows and columns there are from it on.
struct WgradStart {
  int image, row, column;
  int images_left, rows_left, columns_left;

  __host__ __device__ WgradStart(const WgradLayout& l, int turn) {
    const int rectangles = l.rectangles_down * l.rectangles_across;
    const int rectangle = turn % rectangles;
    image = turn / rectangles * l.images;
    row = rectangle / l.rectangles_across * l.rows;
    column = rectangle % l.rectangles_across * l.columns;
    images_left = l.batch - image;
    rows_left = l.output_height - row;
    columns_left = l.output_width - column;
  }

  // How many pixels there are from the first one of a run on.
  __host__ __device__ int pixels_of(WgradPlace run) const {
    const int pixels = columns_left - run.column();
    return run.image() < images_left && run.row() < rows_left && pixels > 0 ? pixels : 0;
  }
};

// Where a plane of x has a channel of a slot, in floats: as copies of tensors with 128 bytes a row
// exchange 16 bytes at a time ("128B swizzle").
__device__ __forceinline__ int place_in_plane(int slot, int channel) {
  return slot * kWgradPlane + (channel ^ (slot & 7) << 2);
}

// A block's shared memory: the ring of stages, each the planes of x and the factors of gy; the slot
// of each run; the offsets of gy, four at a time; the places of the runs; the first pixel and the
// barriers of each stage.
struct WgradMemory {
  int plane_floats, x_floats, stage_floats, bytes;
  int ring_bytes, runs, pixels, stages;

  __host__ __device__ explicit WgradMemory(const WgradLayout& l)
      : plane_floats((l.slots() + 7) / 8 * 8 * kWgradPlane),
        x_floats(kWgradPlanes * plane_floats),
        stage_floats(x_floats + l.groups * kWgradFactors * kWgradFactor),
        ring_bytes(l.stages * stage_floats * 4),
        runs(l.runs()),
        pixels(l.pixels()),
        stages(l.stages) {
    bytes = ring_bytes + 4 * pixels + 8 * runs +
            stages * static_cast<int>(sizeof(WgradStart) + 2 * sizeof(Barrier));
  }
  __device__ float* stage(char* shared, int number) const {
    return reinterpret_cast<float*>(shared) + number * stage_floats;
  }
  __device__ int* offsets(char* shared) const {
    return reinterpret_cast<int*>(shared + ring_bytes);
  }
  __device__ WgradRun* runs_of_x(char* shared) const {
    return reinterpret_cast<WgradRun*>(offsets(shared) + pixels);
  }
  __device__ WgradPlace* places(char* shared) const {
    return reinterpret_cast<WgradPlace*>(runs_of_x(shared) + runs);
  }
  __device__ WgradStart* starts(char* shared) const {
    return reinterpret_cast<WgradStart*>(places(shared) + runs);
  }
  __device__ Barrier* full(char* shared) const {
    return reinterpret_cast<Barrier*>(starts(shared) + stages);
  }
  __device__ Barrier* empty(char* shared) const { return full(shared) + stages; }
};

// A thread of the copiers takes four filters of a quarter at a time: four vectors of gy. Filter j
// of them goes to part j of the columns, so that neighbouring threads write neighbouring columns.
struct WgradQuarter {
  static constexpr int kQuads = kWgradFilters / 4;
  static constexpr int kStep = kWgradCopiers / kQuads;

  float4 of_run[4];

  __device__ __forceinline__ void load(const float* __restrict__ from, const WgradLayout& l,
                                       const WgradMemory& memory, char* shared, int turn,
                                       int quarter) {
    const int4 at = reinterpret_cast<const int4*>(memory.offsets(shared))[quarter];
    const int offset[4] = {at.x, at.y, at.z, at.w};
    unsigned valid = 15;
    if (l.is_ragged) {
      for (int t = 0; t < 4; ++t) valid &= ~((offset[t] < 0 ? 1u : 0u) << t);
    }
    if (l.has_edges) {
      const WgradStart start(l, turn);
      const WgradPlace* const runs = memory.places(shared) + quarter / kWgradRun * 4;
      for (int t = 0; t < 4; ++t) {
        if (quarter % kWgradRun >= start.pixels_of(runs[t])) valid &= ~(1u << t);
      }
    }
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      of_run[t] = (valid >> t & 1) != 0 ? __ldg(reinterpret_cast<const float4*>(from + offset[t]))
                                        : float4{0.0f, 0.0f, 0.0f, 0.0f};
    }
  }
  __device__ __forceinline__ void store(float* factors, int quarter, int quad) const {
    const auto& v = of_run;
    auto* to = reinterpret_cast<float4*>(factors + quarter * 4 * kWgradFilters) + quad;
    to[0] = unbiased_tf32(float4{v[0].x, v[1].x, v[2].x, v[3].x});
    to[kQuads] = unbiased_tf32(float4{v[0].y, v[1].y, v[2].y, v[3].y});
    to[2 * kQuads] = unbiased_tf32(float4{v[0].z, v[1].z, v[2].z, v[3].z});
    to[3 * kQuads] = unbiased_tf32(float4{v[0].w, v[1].w, v[2].w, v[3].w});
  }
};

// Where a copier reads: some quarters ahead of what it writes.
struct WgradReader {
  const float* from;  // the first pixel of the turn, with the thread's filters
  int turn, quarter;

  __device__ __forceinline__ void begin(const float* gy, const WgradLayout& l, int thread) {
    const WgradStart start(l, turn);
    quarter = thread / WgradQuarter::kQuads;
    from = gy +
           ((static_cast<int64_t>(start.image) * l.output_height + start.row) * l.output_width +
            start.column) *
               l.output_channels +
           blockIdx.y * kWgradFilters + thread % WgradQuarter::kQuads * 4;
  }
};

// One thread does it.
__device__ __forceinline__ void copy_x(const CUtensorMap* x, char* shared, const WgradLayout& l,
                                       int stage, int turn) {
  const WgradMemory memory(l);
  Barrier& full = memory.full(shared)[stage];
  const WgradStart start(l, turn);
  memory.starts(shared)[stage] = start;
  full.arrive_and_expect(kWgradPlanes * l.slots() * kWgradPlane * 4);
  for (int plane = 0; plane < kWgradPlanes; ++plane) {
    copy_tensor(memory.stage(shared, stage) + plane * memory.plane_floats, x, full,
                static_cast<int>(blockIdx.x) * kWgradChannels + plane * kWgradPlane,
                start.column * l.stride_width - l.pad_left, start.row * l.stride_height - l.pad_top,
                start.image);
  }
}

__device__ __forceinline__ void copy_turns(const CUtensorMap* x, const float* __restrict__ gy,
                                           char* shared, const WgradLayout& l, int first_turn,
                                           int end_turn, int thread) {
  const WgradMemory memory(l);
  WgradReader reader{nullptr, first_turn, 0};
  reader.begin(gy, l, thread);
  // Reads, if there is a turn left, and goes on.
  const auto read = [&](WgradQuarter& to) {
    if (reader.turn >= end_turn) return;
    to.load(reader.from, l, memory, shared, reader.turn, reader.quarter);
    reader.quarter += WgradQuarter::kStep;
    if (reader.quarter < l.groups * kWgradRun) return;
    if (++reader.turn < end_turn) reader.begin(gy, l, thread);
  };
  RingStage at;
  int turn = first_turn, quarter = thread / WgradQuarter::kQuads;
  // Writes what has been read, and reads what is two quarters ahead.
  const auto take = [&](WgradQuarter& next) {
    asm volatile("" : "+r"(thread));  // what follows from it is not kept in registers
    float* const stage = memory.stage(shared, at.number);
    if (quarter < WgradQuarter::kStep) {  // the turn's first
      memory.empty(shared)[at.number].wait(at.phase ^ 1);
      if (thread == 0) copy_x(x, shared, l, at.number, turn);
    }
    next.store(stage + memory.x_floats, quarter, thread % WgradQuarter::kQuads);
    quarter += WgradQuarter::kStep;
    if (quarter >= l.groups * kWgradRun) {
      publish_to_async_proxy();
      memory.full(shared)[at.number].arrive();
      at.advance(l.stages);
      ++turn;
      quarter = thread / WgradQuarter::kQuads;
    }
    read(next);
  };
  WgradQuarter ahead[2];
  read(ahead[0]);
  read(ahead[1]);
#pragma unroll 1
  while (turn < end_turn) {
    take(ahead[0]);
    if (turn < end_turn) take(ahead[1]);
  }
}

// What a thread reads of x for the pixels of a group: two channels under a run and all taps.
template <int kStride>
struct WgradValues {
  float2 values[(kWgradRun - 1) * kStride + kWgradTaps];

  // `plane` has the warp's channels; the thread reads `channel` of it and the next.
  __device__ __forceinline__ void read(const float* plane, int slot, int channel) {
    constexpr int kCount = (kWgradRun - 1) * kStride + kWgradTaps;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = *reinterpret_cast<const float2*>(plane + place_in_plane(slot + i, channel));
    }
  }
};

// The same as factors, for each tap. Row g of a warp is its channel 2 * g, row g + 8 the next one;
// places t and t + 4 in the depth are neighbouring pixels of run t.
template <int kStride>
struct WgradFragments {
  LeftFragment of[kWgradFactors][kWgradTaps];

  // With kMasked only the first `pixels` of the run are there; what the others read may be NaN.
  template <bool kMasked>
  __device__ __forceinline__ void round(const WgradValues<kStride>& from, int pixels) {
    const auto& values = from.values;
#pragma unroll
    for (int f = 0; f < kWgradFactors; ++f) {
#pragma unroll
      for (int tap = 0; tap < kWgradTaps; ++tap) {
        const float2 near = values[2 * f * kStride + tap];
        const float2 far = values[(2 * f + 1) * kStride + tap];
        of[f][tap] = {{to_tf32(near.x), to_tf32(near.y), to_tf32(far.x), to_tf32(far.y)}};
        if constexpr (kMasked) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (2 * f + i / 2 >= pixels) of[f][tap].words[i] = 0;
          }
        }
      }
    }
  }
};

// Stores the sums of a warp; `result` is that of its first channel and the block's first filter.
__device__ __forceinline__ void store_wgrad(const float (&sums)[kWgradTaps][kWgradTiles][4],
                                            float* result, const WgradLayout& l, int lane) {
  const int group = lane / 4, member = lane % 4;
  constexpr int kQuarter = kWgradTiles / 4;
#pragma unroll
  for (int tap = 0; tap < kWgradTaps; ++tap) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* const row =
          result +
          (static_cast<int64_t>(tap) * l.input_channels + 2 * group + half) * l.output_channels;
#pragma unroll
      for (int tile = 0; tile < kQuarter; ++tile) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int d = 2 * half + e;
          const auto& s = sums[tap];
          *reinterpret_cast<float4*>(row + 4 * (8 * tile + 2 * member + e)) = {
              s[tile][d], s[tile + kQuarter][d], s[tile + 2 * kQuarter][d],
              s[tile + 3 * kQuarter][d]};
        }
      }
    }
  }
}

// Where a thread of a warpgroup that multiplies reads x.
template <int kStride>
struct WgradSource {
  const WgradRun* runs;
  const WgradPlace* places;
  const WgradStart* starts;
  int plane, first_slot, channel;

  __device__ __forceinline__ WgradSource(const WgradLayout& l, const WgradMemory& memory,
                                         char* shared, int kernel_row, int warp, int lane)
      : runs(memory.runs_of_x(shared) + lane % 4),
        places(memory.places(shared) + lane % 4),
        starts(memory.starts(shared)),
        plane(warp / 2 * memory.plane_floats),
        first_slot(kernel_row * l.pitch),
        channel(warp % 2 * 16 + lane / 4 * 2) {}

  // Returns how many pixels of the run there are.
  __device__ __forceinline__ int read(WgradValues<kStride>& values, const float* x,
                                      const WgradLayout& l, int stage, int group) const {
    const WgradRun run = runs[4 * group];
    values.read(x + plane, first_slot + run.slot(), channel);
    return l.has_edges ? min(run.pixels(), starts[stage].pixels_of(places[4 * group]))
                       : run.pixels();
  }
};

template <int kStride>
__device__ __forceinline__ void multiply_turns(char* shared, float* __restrict__ gkernel,
                                               const WgradLayout& l, int first_turn, int end_turn) {
  const WgradMemory memory(l);
  const int kernel_row = static_cast<int>(threadIdx.x) / (32 * kWarpgroup);
  const int warp = static_cast<int>(threadIdx.x) / 32 % kWarpgroup, lane = threadIdx.x % 32;
  const WgradSource<kStride> source(l, memory, shared, kernel_row, warp, lane);
  Barrier* const full = memory.full(shared);

  float sums[kWgradTaps][kWgradTiles][4] = {};
  WgradValues<kStride> values;
  WgradFragments<kStride> fragments;
  int pixels = kWgradRun;  // of the run
  const auto read = [&](int stage, int group) {
    pixels = source.read(values, memory.stage(shared, stage), l, stage, group);
  };
  const auto multiply = [&](int stage, int group) {
    const float* factors =
        memory.stage(shared, stage) + memory.x_floats + group * kWgradFactors * kWgradFactor;
    if (l.has_edges || l.is_ragged) {
      fragments.template round<true>(values, pixels);
    } else {
      fragments.template round<false>(values, pixels);
    }
    begin_products();
#pragma unroll
    for (int f = 0; f < kWgradFactors; ++f) {
      const uint64_t factor = describe_factor(factors + f * kWgradFactor, kWgradFilters);
#pragma unroll
      for (int tap = 0; tap < kWgradTaps; ++tap) {
        multiply_warpgroup<kWgradTiles>(sums[tap], fragments.of[f][tap], factor);
      }
    }
    commit_products();
  };

  // While products are under way, the thread reads what the next ones need.
  RingStage at;
  if (first_turn < end_turn) {
    full[0].wait(0);
    read(0, 0);
  }
  for (int turn = first_turn; turn < end_turn; ++turn) {
    for (int group = 1; group < l.groups; ++group) {
      multiply(at.number, group - 1);
      read(at.number, group);
      wait_for_products<0>();
    }
    multiply(at.number, l.groups - 1);
    const int stage = at.number;
    at.advance(l.stages);
    if (turn + 1 < end_turn) {
      full[at.number].wait(at.phase);
      read(at.number, 0);
    }
    wait_for_products<0>();
    if (lane == 0) memory.empty(shared)[stage].arrive();
  }

  const int64_t first_row =
      ((static_cast<int64_t>(blockIdx.z) * kWgradTaps + kernel_row) * kWgradTaps) *
          l.input_channels +
      static_cast<int64_t>(blockIdx.x) * kWgradChannels + warp * 16;
  store_wgrad(sums, gkernel + first_row * l.output_channels + blockIdx.y * kWgradFilters, l, lane);
}

// Each split has its own copy of gkernel. `x` brings boxes of (images, input_rows, pitch,
// kWgradPlane), with zeros where the image ends.
template <int kStride>
__global__ void __launch_bounds__(kWgradThreads, 1)
    wgrad_warpgroups_kernel(const __grid_constant__ CUtensorMap x, const float* __restrict__ gy,
                            float* __restrict__ gkernel, const __grid_constant__ WgradLayout l) {
  extern __shared__ __align__(1024) char shared[];
  const WgradMemory memory(l);
  for (int i = threadIdx.x; i < memory.pixels; i += kWgradThreads) {
    memory.offsets(shared)[i] = offset_of_pixel(l, i / 4, i % 4);
  }
  for (int i = threadIdx.x; i < memory.runs; i += kWgradThreads) {
    memory.runs_of_x(shared)[i] = WgradRun(l, i);
    memory.places(shared)[i] = place_of_run(l, i);
  }
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < l.stages; ++stage) {
      memory.full(shared)[stage].start(kWgradCopiers + 1);
      memory.empty(shared)[stage].start(kWgradMultipliers / 32);
    }
    publish_to_async_proxy();  // the barriers: copies arrive at them too
  }
  begin_kernel();
  __syncthreads();
  const auto share = [&](unsigned split) {
    return static_cast<int>(static_cast<int64_t>(l.turns) * split / l.splits);
  };
  const int first = share(blockIdx.z), end = share(blockIdx.z + 1);
  if (threadIdx.x >= kWgradMultipliers) {
    give_registers_back<kWgradCopierRegisters>();
    copy_turns(&x, gy, shared, l, first, end, static_cast<int>(threadIdx.x) - kWgradMultipliers);
  } else {
    take_registers<kWgradMultiplierRegisters>();
    multiply_turns<kStride>(shared, gkernel, l, first, end);
  }
}

}  // namespace kerascnn::cuda
