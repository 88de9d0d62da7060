// What the convolutions with pooling share that multiply cells of 2 x 2 pixels on tensor cores.
//
// A warp takes 8 cells, which are the 32 rows of its products: row 8 * p + g is pixel p of cell g.
// So each thread holds all four pixels of its cell, and it uses a patch of the source that it has
// read for every tap and pixel that needs it.
#pragma once

#include "core/backend/cuda/convolution/conv_pool.cuh"
#include "core/backend/cuda/tiles/shared_tile.cuh"
#include "core/backend/cuda/tiles/warpgroup.cuh"

namespace kerascnn::cuda {

constexpr int kCellsPerWarp = 8;
constexpr int kCellsOfWarpgroup = kWarpgroup * kCellsPerWarp;

// Says how the source under some rows of cells lies in shared memory.
struct CellSource {
  int rows, columns;  // padding included
  int channels;       // rounded up to a multiple of 8
  int pixel;          // floats from one pixel to the next

  CellSource(int cell_rows, int cell_columns, int kernel, int source_channels)
      : rows(2 * cell_rows + kernel - 1),
        columns(2 * cell_columns + kernel - 1),
        channels((source_channels + 7) / 8 * 8),
        // Threads load pairs of floats of neighbouring cells, which are two pixels apart.
        pixel(padded_across(channels)) {}

  __host__ __device__ int64_t floats() const { return int64_t{rows} * columns * pixel; }
};

// A thread of a fragment sums over two of eight channels, which it gets with one load. Paired:
// channels `member` and `member` + 4 were put side by side, and have been through unbiased_tf32().
// Raw: the source is as it was in memory; the thread takes channels 2 * `member` and the next, and
// the rows of the weights change places instead.
enum class SourceForm { Paired, Raw };

template <SourceForm kForm>
__device__ __forceinline__ int place_of_channel(int channel) {
  if constexpr (kForm == SourceForm::Paired) return channel;
  return channel / 8 * 8 + channel % 2 * 4 + channel % 8 / 2;
}

// The weights lie as (taps, eights of channels, a factor of 8 channels and these columns).
template <int kTiles>
struct WeightPlaces {
  static constexpr int kOfEight = 8 * kTiles * 8;

  // Where channel `channel` and column `column` are, counted from the tap's first float.
  __device__ __forceinline__ static int at(int channel, int column) {
    return channel / 8 * kOfEight + place_in_factor(channel % 8, column, kTiles * 8);
  }
};

// sums[h][j] += pixels 2h (rows g) and 2h + 1 (rows g + 8) of the warp's cells, columns 8j.. of the
// weights, summed over 8 channels at first_depth, first_depth + depth_step, ... `source` is at the
// thread's cell and channel `member`. All warps of a warpgroup come together.
template <int kKernel, int kTiles, SourceForm kForm>
__device__ __forceinline__ void multiply_cells(const float* source, const float* weights,
                                               const CellSource& t, int first_depth, int depth_step,
                                               float (&sums)[2][kTiles][4]) {
  using Places = WeightPlaces<kTiles>;
  // A larger kernel leaves no registers for products of more rows.
  constexpr int kUnderWay = kKernel <= 3 ? 1 : 0;
  const int row_pitch = t.columns * t.pixel;
  const int tap_pitch = t.channels / 8 * Places::kOfEight;
  for (int depth = first_depth; depth < t.channels; depth += depth_step) {
    const float* of_depth = weights + depth / 8 * Places::kOfEight;
    // Rows of the source, each of which replaces the third above it.
    uint32_t patch[3][kKernel + 1][2];
    auto load_row = [&](int r) {
#pragma unroll
      for (int s = 0; s <= kKernel; ++s) {
        float2 v = *reinterpret_cast<const float2*>(source + r * row_pitch + s * t.pixel + depth);
        if constexpr (kForm == SourceForm::Raw) v = unbiased_tf32(v);
        patch[r % 3][s][0] = bits(v.x);
        patch[r % 3][s][1] = bits(v.y);
      }
    };
    wait_for_products<0>();
    load_row(0);
#pragma unroll
    for (int r = 0; r < kKernel; ++r) {
      // The products of the row before may still be under way; those before them have read what is
      // replaced now.
      wait_for_products<kUnderWay>();
      load_row(r + 1);
      begin_products();
#pragma unroll
      for (int s = 0; s < kKernel; ++s) {
        LeftFragment pixels[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const auto& left = patch[(r + h) % 3][s];
          const auto& right = patch[(r + h) % 3][s + 1];
          pixels[h] = {{left[0], right[0], left[1], right[1]}};
        }
        multiply_factor<kTiles>(sums, pixels, of_depth + (r * kKernel + s) * tap_pitch);
      }
      commit_products();
    }
  }
  wait_for_products<0>();
}

// Takes four neighbours of the kernel, for each tap, to WeightPlaces.
struct WeightColumn {
  const float* from;
  float* to;
  int from_tap, to_tap;
  bool valid;

  __device__ __forceinline__ float4 load(int tap) const {
    if (!valid) return {};
    return unbiased_tf32(
        __ldg(reinterpret_cast<const float4*>(from + static_cast<int64_t>(tap) * from_tap)));
  }
};

// A thread's items are columns of one channel.
struct ColumnsOfWeights : WeightColumn {
  int turn;

  __device__ __forceinline__ void store(int tap, float4 v) const {
    rotate(turn, v);
    float* first = to + tap * to_tap;
    first[(turn & 3) * 4] = v.x;
    first[((turn + 1) & 3) * 4] = v.y;
    first[((turn + 2) & 3) * 4] = v.z;
    first[((turn + 3) & 3) * 4] = v.w;
  }
};

// Brings output channels first_column.. of the kernel; its rows are input channels.
template <int kTiles, SourceForm kForm>
__device__ __forceinline__ void load_weights(const float* kernel, float* weights, const ConvPool& c,
                                             const CellSource& t, int taps, int first_column) {
  using Places = WeightPlaces<kTiles>;
  constexpr int kChunks = kTiles * 2;
  copy_rows<5>(taps, t.channels * kChunks, [&](int item) {
    const int channel = item / kChunks, chunk = item % kChunks;
    const int column = first_column + chunk * 4;
    return ColumnsOfWeights{
        {kernel + channel * c.output_channels + column,
         weights + Places::at(place_of_channel<kForm>(channel), chunk * 4),
         c.input_channels * c.output_channels, t.channels / 8 * Places::kOfEight,
         channel < c.input_channels && column < c.output_channels},
        chunk / 2};
  });
}

// Activates the sums of a cell's four pixels, channels `at` and the next, and stores their maxima,
// and where these are if the caller wants to know.
template <bool kSimple, bool kIndex = true>
__device__ __forceinline__ void store_maxima(const ConvPool& c, const float (&sums)[2][4],
                                             const float (&bias)[2], int64_t at, float* y,
                                             uint8_t* index) {
  Vector<float, 2> values;
  if constexpr (kSimple && !kIndex) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      values.values[k] = activate_maximum(
          c, largest_of_four(sums[0][k], sums[0][2 + k], sums[1][k], sums[1][2 + k]) + bias[k]);
    }
  } else {
    Vector<uint8_t, 2> positions;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const auto result = [&](int half, int element) {
        return activate_pixel<kSimple>(c, sums[half][element] + bias[k]);
      };
      Maximum2x2 maximum(result(0, k));
      maximum.add(result(0, 2 + k), 1);
      maximum.add(result(1, k), 2);
      maximum.add(result(1, 2 + k), 3);
      values.values[k] = maximum.value;
      positions.values[k] = maximum.position;
    }
    if (index != nullptr) *reinterpret_cast<Vector<uint8_t, 2>*>(index + at) = positions;
  }
  *reinterpret_cast<Vector<float, 2>*>(y + at) = values;
}

}  // namespace kerascnn::cuda
