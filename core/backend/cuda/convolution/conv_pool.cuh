// What the kernels of a convolution with 2 x 2 max pooling share.
#pragma once

#include "core/backend/cuda/convolution/conv2d_max_pool2d.h"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/elementwise/activation.cuh"
#include "core/backend/cuda/tiles/async_copy.cuh"
#include "core/backend/cuda/tiles/numbers.cuh"

namespace kerascnn::cuda {

// Kernels come in two versions: for relu and no activation, which take one or two instructions
// (kSimple), and for all others, which would fill the instruction cache with copies of themselves
// and are called instead.
inline bool is_simple(Activation kind) {
  return kind == Activation::Linear || kind == Activation::Relu;
}

__device__ __noinline__ inline float other_activation(Activation kind, float x, float alpha) {
  return activate(kind, x, alpha);
}

template <bool kSimple>
__device__ __forceinline__ float activate_pixel(const ConvPool& c, float x) {
  if constexpr (!kSimple) return other_activation(c.activation, x, c.alpha);
  const float least = c.activation == Activation::Relu ? 0.0f : -INFINITY;
  return x < least ? least : x;  // NaN stays
}

__device__ __noinline__ inline float other_activation_gradient(Activation kind, float g, float y,
                                                               float alpha) {
  return activation_gradient(kind, g, y, alpha);
}

// Finds the gradient before the activation from the gradient g behind it and the activation's
// output y.
template <bool kSimple>
__device__ __forceinline__ float activation_gradient(const ConvPool& c, float g, float y) {
  if constexpr (!kSimple) return other_activation_gradient(c.activation, g, y, c.alpha);
  return c.activation == Activation::Linear || y > 0.0f ? g : 0.0f;
}

// Calls column.store(row, column.load(row)) of column = make(item) for every item of every row,
// spread over the block. A thread keeps its item from row to row, so that what depends on the item
// alone, its divisions above all, is computed once, and has the loads of kBatch rows under way
// together.
template <int kBatch, typename Make>
__device__ __forceinline__ void copy_rows(int rows, int items, Make make) {
  const int width = min(items, static_cast<int>(blockDim.x));
  const int step = static_cast<int>(blockDim.x) / width;
  const int first_row = static_cast<int>(threadIdx.x) / width;
  if (first_row >= step) return;
  for (int item = threadIdx.x - first_row * width; item < items; item += width) {
    auto column = make(item);
    for (int row = first_row; row < rows; row += kBatch * step) {
      decltype(column.load(row)) values[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (row + b * step < rows) values[b] = column.load(row + b * step);
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (row + b * step < rows) column.store(row + b * step, values[b]);
      }
    }
  }
}

// Calls make(item).start(row) for every item of every row, spread over `threads` threads, of which
// this is number `thread`: it starts copies to shared memory that go on by themselves.
template <typename Make>
__device__ __forceinline__ void start_rows(int thread, int threads, int rows, int items,
                                           Make make) {
  const int width = min(items, threads);
  const int step = threads / width;
  const int first_row = thread / width;
  if (first_row >= step) return;
  for (int item = thread - first_row * width; item < items; item += width) {
    const auto column = make(item);
    for (int row = first_row; row < rows; row += step) column.start(row);
  }
}

// Copies `kFloats` neighbouring channels of one column of a band of the input, row by row, as they
// are; zeros for the padding, and beyond the last channel.
template <int kFloats>
struct RawColumn {
  const float* from;  // in the image's first row
  float* to;          // in the band's first row
  int from_row, to_row;
  int top, height;
  int floats;  // that there are

  __device__ __forceinline__ void start(int row) const {
    const int at = top + row;
    const bool read = floats > 0 && static_cast<unsigned>(at) < static_cast<unsigned>(height);
    copy_async<kFloats * 4>(to + row * to_row, read ? from + at * from_row : from,
                            read ? floats * 4 : 0);
  }
};

// Where a block keeps a band of the input: some rows, padding included, from `top` on.
struct InputBand {
  int top, rows, columns;
  int channels;  // rounded up to a multiple of 4
  int pixel;     // floats from one pixel to the next
};

// Copies four channels of one column of a band of the input, row by row; zeros for the padding, and
// beyond the last channel. With kVector the channels are a multiple of 4.
template <bool kVector, typename Store>
struct InputColumn {
  const float* from;  // in the image's first row
  float* to;          // in the band's first row
  int from_row, to_row;
  int top, height;
  int left;  // channels from here on, not positive where there is nothing to read
  Store store_channels;

  __device__ __forceinline__ float4 load(int row) const {
    const int at = top + row;
    if (left <= 0 || static_cast<unsigned>(at) >= static_cast<unsigned>(height)) return {};
    const float* pixel = from + static_cast<int64_t>(at) * from_row;
    if constexpr (kVector) return __ldg(reinterpret_cast<const float4*>(pixel));
    return {__ldg(pixel), left > 1 ? __ldg(pixel + 1) : 0.0f, left > 2 ? __ldg(pixel + 2) : 0.0f,
            left > 3 ? __ldg(pixel + 3) : 0.0f};
  }
  __device__ __forceinline__ void store(int row, float4 v) const {
    store_channels(to + row * to_row, unbiased_tf32(v));
  }
};

// Copies a band of image n to shared memory, through unbiased_tf32(), with kBatch loads of a thread
// under way together. store(to, v) puts four channels to where place(channel) says they begin
// within a pixel.
template <int kBatch, typename Place, typename Store>
__device__ __forceinline__ void load_band_tf32(const float* x, float* tile, const ConvPool& c,
                                               const InputBand& band, int n, Place place,
                                               Store store) {
  const int chunks = band.channels / 4;
  const auto copy = [&]<int kTogether, bool kVector>() {
    copy_rows<kTogether>(band.rows, band.columns * chunks, [&](int item) {
      const int band_column = item / chunks;
      const int channel = (item - band_column * chunks) * 4;
      const int column = band_column - c.pad_left;
      const bool inside = static_cast<unsigned>(column) < static_cast<unsigned>(c.input_width);
      const int64_t pixel =
          static_cast<int64_t>(n) * c.input_height * c.input_width + (inside ? column : 0);
      return InputColumn<kVector, Store>{x + pixel * c.input_channels + channel,
                                         tile + band_column * band.pixel + place(channel),
                                         c.input_width * c.input_channels,
                                         band.columns * band.pixel,
                                         band.top,
                                         c.input_height,
                                         inside ? c.input_channels - channel : 0,
                                         store};
    });
  };
  if (c.input_channels % 4 == 0) {
    copy.template operator()<kBatch, true>();
  } else {
    copy.template operator()<2, false>();
  }
}

// Has four channels of a pooled pixel's gradient, before the activation, and where each maximum
// was.
struct PooledGradient {
  float values[4];
  uint8_t positions[4];
};

// Reads four channels of a column of pooled pixels, row by row.
template <bool kSimple>
struct PooledColumn {
  const float* gy;  // the gradient behind the activation
  const float* y;   // the activation's output
  const uint8_t* index;
  int row_pitch;
  const ConvPool* c;

  __device__ __forceinline__ PooledGradient load(int row) const {
    const int64_t at = static_cast<int64_t>(row) * row_pitch;
    const float4 g = __ldg(reinterpret_cast<const float4*>(gy + at));
    const float4 v = __ldg(reinterpret_cast<const float4*>(y + at));
    const uchar4 p = __ldg(reinterpret_cast<const uchar4*>(index + at));
    return {
        {activation_gradient<kSimple>(*c, g.x, v.x), activation_gradient<kSimple>(*c, g.y, v.y),
         activation_gradient<kSimple>(*c, g.z, v.z), activation_gradient<kSimple>(*c, g.w, v.w)},
        {p.x, p.y, p.z, p.w}};
  }
};

// Rotates vectors of four: the first one is then number `turn` modulo 4. Threads that take
// different turns, and store in this order, write to different banks.
template <typename... Four>
__device__ __forceinline__ void rotate(int turn, Four&... v) {
  if (turn & 1) ((v = {v.y, v.z, v.w, v.x}), ...);
  if (turn & 2) ((v = {v.z, v.w, v.x, v.y}), ...);
}

// The larger of two numbers, NaN where one of them is.
__device__ __forceinline__ float larger_or_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a > b || a != a ? a : b;
#endif
}

// Finds the maximum of a window where nobody asks for its place. Neither rounding nor relu change
// the order of numbers: bias and activation may come after it.
__device__ __forceinline__ float largest_of_four(float a, float b, float c, float d) {
  return larger_or_nan(larger_or_nan(a, b), larger_or_nan(c, d));
}

__device__ __forceinline__ float activate_maximum(const ConvPool& c, float x) {
  return larger_or_nan(x, c.activation == Activation::Relu ? 0.0f : -INFINITY);
}

// The running maximum of a window, and where it is: the first maximum, or the first NaN.
struct Maximum2x2 {
  float value;
  uint8_t position;

  __device__ __forceinline__ explicit Maximum2x2(float first) : value(first), position(0) {}
  __device__ __forceinline__ void add(float next, uint8_t at) {
    if (next > value || (next != next && value == value)) {
      value = next;
      position = at;
    }
  }
};

// Finds the largest of four pixels and its position, of N channels each.
template <bool kSimple, int N>
__device__ __forceinline__ void find_maxima(const ConvPool& c, const float (&sums)[4][N],
                                            Vector<float, N>& values,
                                            Vector<uint8_t, N>& positions) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    Maximum2x2 maximum(activate_pixel<kSimple>(c, sums[0][k]));
#pragma unroll
    for (int p = 1; p < 4; ++p) maximum.add(activate_pixel<kSimple>(c, sums[p][k]), p);
    values.values[k] = maximum.value;
    positions.values[k] = maximum.position;
  }
}

}  // namespace kerascnn::cuda
