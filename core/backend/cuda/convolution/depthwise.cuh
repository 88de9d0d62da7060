// In a depthwise convolution every channel has a kernel of its own, so that there is nothing for
// tensor cores to do. A thread owns two neighbouring channels (one 32-bit access of the 16-bit
// types) and makes a tile of results in registers. A block copies what its tiles read to shared
// memory first, zeros for the padding, so that the loop over taps has neither bounds nor addresses
// to compute.
//
// The data gradient is the same sum with other taps (Taps), whatever the stride: tap numbers are
// known when the loops are unrolled, and those that do not exist cost nothing.
#pragma once

#include "core/backend/cuda/convolution/convolution.cuh"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/elementwise/activation.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/tiles/async_copy.cuh"

namespace kerascnn::cuda::depthwise {

constexpr int kBlock = 128;
constexpr int kPair = 2;    // channels of a thread
constexpr int kLanes = 16;  // threads side by side
constexpr int kTiles = kBlock / kLanes;
constexpr int kChannels = kLanes * kPair;  // of a block

// Along one axis: the tap by which position `source` of a tile's source reaches position `result`
// of the tile; what is not in [0, K) is no tap. The data gradient's source is the gradient of the
// outputs. Its first position is the one that the last tap of the tile's first result reaches or,
// where that lies between two outputs of stride 2 (kShift is 1), the tap before the last.
template <int K, int kStride_, bool kGradient_, int kShift = 0>
struct Taps {
  static constexpr int kExtent = K;
  static constexpr int kStride = kStride_;
  static constexpr bool kGradient = kGradient_;
  static constexpr int kBase = K - 1 - kShift;

  __device__ static constexpr int tap(int result, int source) {
    return kGradient ? result - kStride * source + kBase : source - kStride * result;
  }
  __device__ static constexpr bool is_tap(int tap) { return tap >= 0 && tap < K; }
  // The positions that `results` results read.
  static constexpr int sources(int results) {
    return kGradient ? (results - 1 + kBase) / kStride + 1 : (results - 1) * kStride + K;
  }
  // How far the source of a tile is from that of another one, this many results before.
  static constexpr int step(int results) {
    return kGradient ? results / kStride : results * kStride;
  }
  // The first position of the source of a tile that begins at `first`, a multiple of the stride.
  __device__ static constexpr int origin(int first, int pad) {
    return kGradient ? (first + pad - kBase) / kStride : first * kStride - pad;
  }
};

// The images in 32 bits, and how a block's tiles lie in them.
struct Layout {
  int64_t batch;
  int channels, pad_top, pad_left;
  int source_height, source_width, result_height, result_width;
  int images, log_rows, log_columns;  // of a block's kTiles tiles; logarithms to base 2
  int block_rows, block_columns;      // blocks of an image
  int source_rows, source_columns;    // that the tiles of one image read
  bool wide;                          // are channels a multiple of 16 bytes?
  bool copies_ahead;  // is there memory for the next tiles of the kernel's gradient?
};

__device__ __forceinline__ bool is_in(int position, int extent) {
  return static_cast<unsigned>(position) < static_cast<unsigned>(extent);
}

// A window of (images, rows, columns, kChannels) in shared memory shows a part of an array of
// (batch, height, width, channels).
struct Window {
  int images, rows, columns;
};
struct Place {
  int64_t n;
  int row, column, channel;
};

template <typename T, int kBytes>
__device__ __forceinline__ void copy_window(T* to, const T* from, const Window& w, const Place& at,
                                            int64_t batch, int height, int width, int channels) {
  constexpr int kElements = kBytes / sizeof(T);
  constexpr int kParts = kChannels / kElements;
  constexpr int kPositions = 32 / kParts;  // that a warp copies at once
  const int part = threadIdx.x % kParts * kElements;
  const int position = threadIdx.x % 32 / kParts;
  const bool has_channels = at.channel + part < channels;
  const int row_size = width * channels;
  const T* base = from + (at.n * height + at.row) * row_size + (at.column + position) * channels +
                  at.channel + part;
  T* target = to + (threadIdx.x / 32 * w.columns + position) * kChannels + part;
  int image = 0, row = threadIdx.x / 32;
  while (true) {
    for (; row >= w.rows; row -= w.rows) ++image;
    if (image >= w.images) break;
    const bool has_line = has_channels && at.n + image < batch && is_in(at.row + row, height);
    const T* source = base + (static_cast<int64_t>(image) * height + row) * row_size;
    for (int column = position; column < w.columns; column += kPositions) {
      const bool valid = has_line && is_in(at.column + column, width);
      copy_async<kBytes>(target + (column - position) * kChannels, source, valid ? kBytes : 0);
      source += kPositions * channels;
    }
    target += kBlock / 32 * w.columns * kChannels;
    row += kBlock / 32;
  }
}

template <typename T>
__device__ __forceinline__ void copy_window(T* to, const T* from, const Window& w, const Place& at,
                                            int64_t batch, int height, int width, int channels,
                                            bool wide) {
  if (wide) {
    copy_window<T, 16>(to, from, w, at, batch, height, width, channels);
  } else {
    copy_window<T, kPair * sizeof(T)>(to, from, w, at, batch, height, width, channels);
  }
}

// Gives two numbers as float. The halves of a word with two of bfloat16 are the upper halves of
// floats.
template <typename T>
__device__ __forceinline__ void convert(float (&values)[kPair], const T* pair) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const unsigned word = *reinterpret_cast<const unsigned*>(pair);
    values[0] = __uint_as_float(word << 16);
    values[1] = __uint_as_float(word & 0xffff0000u);
  } else {
    const auto two = *reinterpret_cast<const Vector<T, kPair>*>(pair);
#pragma unroll
    for (int k = 0; k < kPair; ++k) values[k] = load(two.values[k]);
  }
}

// Reads `kCount` neighbouring positions of a row in shared memory.
template <typename T, int kCount>
__device__ __forceinline__ void read_row(float (&values)[kCount][kPair], const T* row) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) convert(values[j], row + j * kChannels);
}

// A call by itself: one copy of it for all results of a tile, and only layers that have one pay.
inline __device__ __noinline__ float activate_one(Activation activation, float x, float alpha) {
  return activate(activation, x, alpha);
}

template <Activation kActivation, int kRows, int kColumns>
__device__ __forceinline__ void activate_tile(float (&sum)[kRows][kColumns][kPair], float alpha) {
#pragma unroll
  for (int i = 0; i < kRows * kColumns * kPair; ++i) {
    float& x = sum[i / kPair / kColumns][i / kPair % kColumns][i % kPair];
    x = activate(kActivation, x, alpha);
  }
}

// Activations of usual networks are part of the kernel: a call takes longer than they do.
template <int kRows, int kColumns>
__device__ __forceinline__ void activate_tile(Activation activation,
                                              float (&sum)[kRows][kColumns][kPair], float alpha) {
  switch (activation) {
    case Activation::Linear:
      return;
    case Activation::Relu:
      return activate_tile<Activation::Relu>(sum, alpha);
    case Activation::ClippedRelu:
      return activate_tile<Activation::ClippedRelu>(sum, alpha);
    case Activation::Silu:
      return activate_tile<Activation::Silu>(sum, alpha);
    default:
#pragma unroll
      for (int i = 0; i < kRows * kColumns * kPair; ++i) {
        float& x = sum[i / kPair / kColumns][i / kPair % kColumns][i % kPair];
        x = activate_one(activation, x, alpha);
      }
  }
}

template <typename T>
struct Ends {
  const T* bias;  // may be null
  Activation activation;
  float alpha;
};

// Where a block's tiles begin, and which of them is the thread's.
template <int kRows, int kColumns>
struct Position {
  int64_t n;
  int row, column;                         // of the block's first result
  int image, tile_row, tile_column, lane;  // of the thread

  __device__ __forceinline__ Position(int image_block, int block, const Layout& l) {
    const int column_block = static_cast<unsigned>(block) / static_cast<unsigned>(l.block_rows);
    n = static_cast<int64_t>(image_block) * l.images;
    row = ((block - column_block * l.block_rows) << l.log_rows) * kRows;
    column = (column_block << l.log_columns) * kColumns;
    lane = threadIdx.x % kLanes;
    const int tile = threadIdx.x / kLanes;
    tile_column = tile & ((1 << l.log_columns) - 1);
    tile_row = tile >> l.log_columns & ((1 << l.log_rows) - 1);
    image = tile >> (l.log_columns + l.log_rows);
  }
};

// Computes y = the sum over taps of source and kernel (K, K, channels), for tiles of
// kRows x kColumns.
template <typename T, typename Taps, int kRows, int kColumns, int kBlocks>
__global__ void __launch_bounds__(kBlock, kBlocks)
    depthwise_kernel(const T* __restrict__ source, const T* __restrict__ kernel,
                     T* __restrict__ result, Ends<T> ends, Layout l) {
  constexpr int K = Taps::kExtent;
  constexpr int kSourceRows = Taps::sources(kRows), kSourceColumns = Taps::sources(kColumns);
  begin_kernel();
  extern __shared__ __align__(16) char shared[];
  T* weights_tile = reinterpret_cast<T*>(shared);
  T* tile = weights_tile + K * K * kChannels;
  // Blocks side by side take neighbouring channels, which lie side by side.
  const Position<kRows, kColumns> p(blockIdx.z, blockIdx.y, l);
  const int first_channel = blockIdx.x * kChannels;
  const int top = Taps::origin(p.row, l.pad_top), left = Taps::origin(p.column, l.pad_left);
  copy_window(weights_tile, kernel, {1, K, K}, {0, 0, 0, first_channel}, 1, K, K, l.channels,
              l.wide);
  copy_window(tile, source, {l.images, l.source_rows, l.source_columns},
              {p.n, top, left, first_channel}, l.batch, l.source_height, l.source_width, l.channels,
              l.wide);
  commit_copies();
  const int channel = first_channel + p.lane * kPair;
  const int64_t n = p.n + p.image;
  const int row = p.row + p.tile_row * kRows, column = p.column + p.tile_column * kColumns;
  const bool active =
      channel < l.channels && n < l.batch && row < l.result_height && column < l.result_width;
  float bias[kPair] = {};
  if (active && !Taps::kGradient && ends.bias != nullptr) {
#pragma unroll
    for (int k = 0; k < kPair; ++k) bias[k] = load(ends.bias[channel + k]);
  }
  wait_for_copies<0>();
  __syncthreads();
  if (!active) return;

  const int first_row = p.tile_row * Taps::step(kRows);
  const T* at = tile +
                ((p.image * l.source_rows + first_row) * l.source_columns +
                 p.tile_column * Taps::step(kColumns)) *
                    kChannels +
                p.lane * kPair;
  const int row_step = l.source_columns * kChannels;
  float sum[kRows][kColumns][kPair];
#pragma unroll
  for (int o = 0; o < kRows; ++o) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int k = 0; k < kPair; ++k) sum[o][c][k] = bias[k];
    }
  }
  float weights[K][K][kPair];
#pragma unroll
  for (int i = 0; i < kSourceRows; ++i) {
#pragma unroll
    for (int r = 0; r < K; ++r) {  // the weights that are needed from here on
      bool first = false;
      for (int o = 0; o < kRows; ++o) first |= Taps::tap(o, i) == r;
      for (int before = 0; before < i; ++before) {
        for (int o = 0; o < kRows; ++o) first &= Taps::tap(o, before) != r;
      }
      if (first) read_row(weights[r], weights_tile + r * K * kChannels + p.lane * kPair);
    }
    // Large kernels pass over rows of padding, of which small images have many.
    if (K == 3 || is_in(top + first_row + i, l.source_height)) {
      float values[kSourceColumns][kPair];
      read_row(values, at + i * row_step);
#pragma unroll
      for (int o = 0; o < kRows; ++o) {
        const int r = Taps::tap(o, i);
        if (!Taps::is_tap(r)) continue;
#pragma unroll
        for (int j = 0; j < kSourceColumns; ++j) {
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            const int t = Taps::tap(c, j);
            if (!Taps::is_tap(t)) continue;
#pragma unroll
            for (int k = 0; k < kPair; ++k) {
              sum[o][c][k] = fmaf(values[j][k], weights[r][t][k], sum[o][c][k]);
            }
          }
        }
      }
    }
  }

  if (!Taps::kGradient) activate_tile(ends.activation, sum, ends.alpha);
  T* to = result + ((n * l.result_height + row) * l.result_width + column) * l.channels + channel;
  const int row_size = l.result_width * l.channels;
#pragma unroll
  for (int o = 0; o < kRows; ++o) {
    if (row + o >= l.result_height) break;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (column + c < l.result_width) {
        *reinterpret_cast<Vector<T, kPair>*>(to + c * l.channels) = {store<T>(sum[o][c][0]),
                                                                     store<T>(sum[o][c][1])};
      }
    }
    to += row_size;
  }
}

// This is the kernel's gradient. A thread sums all taps of its two channels over its share of the
// tiles of gy, the block what its threads have, and partial (splits, K, K, channels) has a copy for
// each block of a column of the grid. While a block works on its tiles, the next ones are copied,
// if that leaves room for as many blocks.
template <typename T, typename Taps, int kRows, int kColumns, int kBlocks>
__global__ void __launch_bounds__(kBlock, kBlocks)
    depthwise_wgrad_kernel(const T* __restrict__ x, const T* __restrict__ gy,
                           float* __restrict__ partial, Layout l, int blocks) {
  constexpr int K = Taps::kExtent;
  constexpr int kSourceRows = Taps::sources(kRows), kSourceColumns = Taps::sources(kColumns);
  begin_kernel();
  extern __shared__ __align__(16) char shared[];
  const int x_size = l.images * l.source_rows * l.source_columns * kChannels;
  const int stage = x_size + kTiles * kRows * kColumns * kChannels;
  T* tiles = reinterpret_cast<T*>(shared);  // of x and gy; twice where the next ones are copied
  const int first_channel = blockIdx.x * kChannels;
  const int blocks_of_image = l.block_rows * l.block_columns;
  const auto copy = [&](int block, int to) {
    if (block < blocks) {
      const int image = static_cast<unsigned>(block) / static_cast<unsigned>(blocks_of_image);
      const Position<kRows, kColumns> p(image, block - image * blocks_of_image, l);
      copy_window(
          tiles + to * stage, x, {l.images, l.source_rows, l.source_columns},
          {p.n, Taps::origin(p.row, l.pad_top), Taps::origin(p.column, l.pad_left), first_channel},
          l.batch, l.source_height, l.source_width, l.channels, l.wide);
      copy_window(tiles + to * stage + x_size, gy,
                  {l.images, kRows << l.log_rows, kColumns << l.log_columns},
                  {p.n, p.row, p.column, first_channel}, l.batch, l.result_height, l.result_width,
                  l.channels, l.wide);
    }
    commit_copies();
  };
  float sum[K][K][kPair] = {};
  const Position<kRows, kColumns> p(0, 0, l);
  const int first_row = p.tile_row * Taps::step(kRows);
  const int x_offset = ((p.image * l.source_rows + first_row) * l.source_columns +
                        p.tile_column * Taps::step(kColumns)) *
                           kChannels +
                       p.lane * kPair;
  const int g_offset =
      x_size + p.lane * kPair +
      ((((p.image << l.log_rows) + p.tile_row) * kRows << l.log_columns) + p.tile_column) *
          kColumns * kChannels;
  const int x_step = l.source_columns * kChannels, g_step = (kColumns << l.log_columns) * kChannels;
  const int step = gridDim.y;
  if (l.copies_ahead) copy(blockIdx.y, 0);
  int turn = 0;
#pragma unroll 1
  for (int block = blockIdx.y; block < blocks; block += step) {
    copy(l.copies_ahead ? block + step : block, l.copies_ahead ? turn ^ 1 : 0);
    if (l.copies_ahead) {
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    __syncthreads();
    const T* at = tiles + turn * stage + x_offset;
    const T* gradients = tiles + turn * stage + g_offset;
    float g[kRows][kColumns][kPair];
#pragma unroll
    for (int i = 0; i < kSourceRows; ++i) {
      // Row o of the tile is needed from row o * stride of the source on.
      if (i % Taps::kStride == 0 && i / Taps::kStride < kRows) {
        const int o = i / Taps::kStride;
        read_row(g[o], gradients + o * g_step);
      }
      float values[kSourceColumns][kPair];
      read_row(values, at + i * x_step);
#pragma unroll
      for (int o = 0; o < kRows; ++o) {
        const int r = Taps::tap(o, i);
        if (!Taps::is_tap(r)) continue;
#pragma unroll
        for (int j = 0; j < kSourceColumns; ++j) {
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            const int t = Taps::tap(c, j);
            if (!Taps::is_tap(t)) continue;
#pragma unroll
            for (int k = 0; k < kPair; ++k) {
              sum[r][t][k] = fmaf(values[j][k], g[o][c][k], sum[r][t][k]);
            }
          }
        }
      }
    }
    __syncthreads();
    if (l.copies_ahead) turn ^= 1;
  }

  auto* sums = reinterpret_cast<Vector<float, kPair>*>(shared);  // (K, kTiles, kLanes)
  float* target = partial + blockIdx.y * static_cast<int64_t>(K * K) * l.channels;
#pragma unroll
  for (int r = 0; r < K; ++r) {
#pragma unroll
    for (int t = 0; t < K; ++t) sums[t * kBlock + threadIdx.x] = {sum[r][t][0], sum[r][t][1]};
    __syncthreads();
    for (int item = threadIdx.x; item < K * kLanes; item += kBlock) {
      const int t = item / kLanes, lane = item % kLanes;
      const int channel = first_channel + lane * kPair;
      if (channel >= l.channels) continue;
      Vector<float, kPair> total{};
      for (int tile = 0; tile < kTiles; ++tile) {
        const Vector<float, kPair> part = sums[t * kBlock + tile * kLanes + lane];
#pragma unroll
        for (int k = 0; k < kPair; ++k) total.values[k] += part.values[k];
      }
      *reinterpret_cast<Vector<float, kPair>*>(
          target + static_cast<int64_t>(r * K + t) * l.channels + channel) = total;
    }
    __syncthreads();
  }
}

}  // namespace kerascnn::cuda::depthwise
