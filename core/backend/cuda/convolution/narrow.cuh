// What the kernels for convolutions of few input channels share, as in a network's first layer.
//
// They are products of 16 rows and 8 columns at a time, in tensor cores. Forward the rows are
// pixels, the columns output channels, and a product sums over taps; a kernel's gradient has taps
// as rows and sums over pixels. Which channel a column stands for is free: it is chosen so that a
// thread has neighbouring channels.
#pragma once

#include <algorithm>
#include <type_traits>

#include "core/backend/cuda/convolution/band.cuh"
#include "core/backend/cuda/convolution/conv2d.h"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/elementwise/activation.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/tiles/numbers.cuh"
#include "core/backend/cuda/tiles/shared_loads.cuh"

namespace kerascnn::cuda::narrow {

constexpr int kWarps = kThreads / 32;
constexpr int kPixels = 16;                  // of a group, neighbours in an output row
constexpr int kChannels = 32;                // output channels of a warp
constexpr int kTiles = kChannels / 8;        // of eight columns each
constexpr int kBlocksPerMultiprocessor = 2;  // as many as registers allow

// The bits of a number, as tensor cores take them.
template <typename T>
using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;

__device__ __forceinline__ uint32_t bits_of(float value) { return to_tf32(value); }
__device__ __forceinline__ uint16_t bits_of(__half value) { return __half_as_ushort(value); }
__device__ __forceinline__ uint16_t bits_of(__nv_bfloat16 value) {
  return __bfloat16_as_ushort(value);
}

template <typename T>
using Numbers = std::conditional_t<std::is_same_v<T, float>, Tf32Numbers, HalfNumbers<T>>;
// A word of a fragment has this many numbers, which are neighbours along the summed axis, and a
// product sums kDepth.
template <typename T>
constexpr int kPack = Numbers<T>::kPerWord;
template <typename T>
constexpr int kDepth = 8 * kPack<T>;

__device__ __forceinline__ uint32_t word_of(const uint32_t (&bits)[1]) { return bits[0]; }
__device__ __forceinline__ uint32_t word_of(const uint16_t (&bits)[2]) {
  return bits[0] | static_cast<uint32_t>(bits[1]) << 16;
}

// Lane 4 * g + t has words of the rows and columns g (tiles/numbers.cuh); their places in the
// summed axis begin here, for the first half of its words and for the second.
template <typename T>
__device__ __forceinline__ int place_in_depth(int t, int half) {
  return kPack<T> * (t + 4 * half);
}

// A column of a warp's tile j, for results that a thread stores kWide at a time.
template <int kWide>
__device__ __forceinline__ int channel_of(int j, int column) {
  constexpr int kTogether = kWide / 2;  // tiles that a store takes two numbers of
  return (j / kTogether * 4 + column / 2) * kWide + j % kTogether * 2 + column % 2;
}

// The ends of a convolution. A kernel of its own has any activation, since that needs registers.
template <bool kAnyActivation>
struct Ends {
  Activation activation;
  float alpha;

  template <int kCount>
  __device__ __forceinline__ void apply(float (&values)[kCount]) const {
    if constexpr (kAnyActivation) {
      activate_all(activation, values, alpha);
    } else if (activation == Activation::Relu) {
#pragma unroll
      for (float& value : values) value = activate(Activation::Relu, value, 0.0f);
    }
  }
};

// What the lane's sums of each tile begin with, in two neighbouring columns; `bias` may be null.
template <int kWide, typename T>
__device__ __forceinline__ void load_start(float (&start)[kTiles][2], const T* __restrict__ bias,
                                           int first_channel, int t) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int channel = first_channel + channel_of<kWide>(j, 2 * t + e);
      start[j][e] = bias != nullptr ? load(bias[channel]) : 0.0f;
    }
  }
}

// Stores the results of a pixel, that of row g + 8 * half, in neighbouring channels: of the tiles
// from j on, as channel_of() has them.
template <int kWide, typename T, bool kAnyActivation>
__device__ __forceinline__ void store_wide(T* target, const float (&sums)[kTiles][4], int j,
                                           int half, const Ends<kAnyActivation>& ends) {
  float wide[kWide];
#pragma unroll
  for (int e = 0; e < kWide; ++e) wide[e] = sums[j + e / 2][half * 2 + e % 2];
  ends.apply(wide);
  Vector<T, kWide> values;
#pragma unroll
  for (int e = 0; e < kWide; ++e) values.values[e] = store<T>(wide[e]);
  *reinterpret_cast<Vector<T, kWide>*>(target) = values;
}

// The part of the output's gradient that a thread has of a group of pixels: neighbouring channels,
// one of each tile, of the pixels at its places in the depth of products.
template <typename T>
struct Gradients {
  Vector<T, kTiles> values[kPixels / kDepth<T>][2][kPack<T>];

  // `from` is where the first of these pixels has them, and the row of the output has `pixels` more
  // from the group's first one on.
  __device__ __forceinline__ void read(const T* __restrict__ from, int channels, int pixels,
                                       int t) {
    if (pixels >= kPixels) {
      read<true>(from, channels, 0);
    } else {
      read<false>(from, channels, pixels - place_in_depth<T>(t, 0));
    }
  }

 private:
  template <bool kWhole>
  __device__ __forceinline__ void read(const T* __restrict__ from, int channels, int behind) {
#pragma unroll
    for (int s = 0; s < kPixels / kDepth<T>; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int e = 0; e < kPack<T>; ++e) {
          const int pixel = s * kDepth<T> + place_in_depth<T>(0, half) + e;
          if (kWhole || pixel < behind) {
            values[s][half][e] =
                *reinterpret_cast<const Vector<T, kTiles>*>(from + pixel * channels);
          } else {
#pragma unroll
            for (int j = 0; j < kTiles; ++j) values[s][half][e].values[j] = T(0.0f);
          }
        }
      }
    }
  }
};

// Where in shared memory x lies under the lane's taps, from `first_tap` on, those of rows g and 8 +
// g of each tile, for the lane's first pixel of a band. Patches begin `step` bytes apart. Results
// of taps behind the last one are lost.
template <typename T, int kTilesDown>
__device__ __forceinline__ void find_places(uint32_t (&places)[kTilesDown][2], const void* tile,
                                            const Conv& c, const Band& band, int first_tap,
                                            int step, int t) {
#pragma unroll
  for (int i = 0; i < kTilesDown; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tap = min(first_tap + i * 16 + half * 8, c.taps - 1);
      places[i][half] = shared_address(tile) +
                        place_of_tap(c, band, tap) * static_cast<int>(sizeof(T)) +
                        place_in_depth<T>(t, 0) * step;
    }
  }
}

// Adds products of a group's gradients and of x under taps to the sums of these taps. Taps are
// rows: places[i][half] is the address in shared memory of what lies under that of row 8 * half + g
// of tile i for the lane's first pixel of a band, `x` leads from there to this group, and `step`
// from a pixel to the next, in bytes. kWhole says that the group has all its pixels; else it has so
// many behind the lane's first one.
template <bool kWhole, typename T, int kTilesDown>
__device__ __forceinline__ void multiply_gradients(float (&sums)[kTilesDown][kTiles][4],
                                                   const Gradients<T>& gradients,
                                                   const uint32_t (&places)[kTilesDown][2],
                                                   uint32_t x, uint32_t step, int behind) {
#pragma unroll
  for (int s = 0; s < kPixels / kDepth<T>; ++s) {
    RightFragment right[kTiles];
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Bits<T> bits[kPack<T>];
#pragma unroll
        for (int e = 0; e < kPack<T>; ++e) {
          bits[e] = bits_of(gradients.values[s][half][e].values[j]);
        }
        right[j].words[half] = word_of(bits);
      }
    }
#pragma unroll
    for (int i = 0; i < kTilesDown; ++i) {
      LeftFragment a;
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        Bits<T> bits[kPack<T>] = {};
#pragma unroll
        for (int e = 0; e < kPack<T>; ++e) {
          const int pixel = s * kDepth<T> + place_in_depth<T>(0, w / 2) + e;
          if (kWhole || pixel < behind) {
            load_shared(bits[e], places[i][w % 2] + (x + pixel * step));
          }
        }
        a.words[w] = word_of(bits);
      }
#pragma unroll
      for (int j = 0; j < kTiles; ++j) Numbers<T>::multiply(sums[i][j], a, right[j]);
    }
  }
}

// `pixels` are left in the row of the output, this group's included.
template <typename T, int kTilesDown>
__device__ __forceinline__ void multiply_group(float (&sums)[kTilesDown][kTiles][4],
                                               const Gradients<T>& gradients,
                                               const uint32_t (&places)[kTilesDown][2], uint32_t x,
                                               uint32_t step, int pixels, int t) {
  if (pixels >= kPixels) {
    multiply_gradients<true>(sums, gradients, places, x, step, 0);
  } else {
    multiply_gradients<false>(sums, gradients, places, x, step, pixels - place_in_depth<T>(t, 0));
  }
}

// How many groups of kChannels output channels a block has: a power of two that divides them.
inline int chunks_of_block(const Conv& c, int most = kWarps) {
  int chunks = 1;
  while (chunks < most && c.output_channels / kChannels % (2 * chunks) == 0) chunks *= 2;
  return chunks;
}

// How many blocks may share the pixels, so that all run at once, if each has these chunks.
inline int64_t most_blocks(const Conv& c, int chunks) {
  const int64_t blocks = int64_t{kBlocksPerMultiprocessor} * Context::current().multiprocessors();
  return std::max<int64_t>(1, blocks / (c.output_channels / (kChannels * chunks)));
}

// Do the dtype, the groups and the output channels fit?
inline bool suits_tiles(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  const bool in_tensor_cores = call.dtype == DType::Float32
                                   ? call.allow_tf32
                                   : call.dtype == DType::Float16 || call.dtype == DType::BFloat16;
  return in_tensor_cores && g.groups == 1 && g.output_channels % kChannels == 0 &&
         g.output_channels <= 65535 && Context::current().compute_capability() >= 80;
}

// Bytes of the smallest band, in 64 bits as a row may be long.
inline int64_t smallest_band_bytes(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  const int64_t columns =
      (g.output_width - 1) * g.stride_width + (g.kernel_width - 1) * g.dilation_width + 1;
  const int64_t rows = (g.kernel_height - 1) * g.dilation_height + 1;
  return rows * columns * g.input_channels * static_cast<int64_t>(itemsize(call.dtype));
}

}  // namespace kerascnn::cuda::narrow
