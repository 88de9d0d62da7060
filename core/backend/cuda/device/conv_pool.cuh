// What the kernels of a convolution with 2 x 2 max pooling share.
#pragma once

#include "core/backend/cuda/conv2d_max_pool2d.h"
#include "core/backend/cuda/device/activation.cuh"
#include "core/backend/cuda/device/tf32.cuh"
#include "core/backend/cuda/device/types.cuh"

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

// The gradient before the activation, from the gradient g behind it and the activation's output y.
template <bool kSimple>
__device__ __forceinline__ float activation_gradient(const ConvPool& c, float g, float y) {
  if constexpr (!kSimple) return other_activation_gradient(c.activation, g, y, c.alpha);
  return c.activation == Activation::Linear || y > 0.0f ? g : 0.0f;
}

// Calls store(row, item, load(row, item)) for every item of every row, spread over the block. A
// thread keeps its item from row to row, so that what depends on the item alone is computed once,
// and has the loads of kBatch rows under way together.
template <int kBatch, typename Load, typename Store>
__device__ __forceinline__ void copy_rows(int rows, int items, Load load, Store store) {
  const int width = min(items, static_cast<int>(blockDim.x));
  const int step = static_cast<int>(blockDim.x) / width;
  const int first_row = static_cast<int>(threadIdx.x) / width;
  if (first_row >= step) return;
  for (int item = threadIdx.x - first_row * width; item < items; item += width) {
    for (int row = first_row; row < rows; row += kBatch * step) {
      decltype(load(row, item)) values[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (row + b * step < rows) values[b] = load(row + b * step, item);
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (row + b * step < rows) store(row + b * step, item, values[b]);
      }
    }
  }
}

// Four channels of a pixel, zeros beyond `channels`.
__device__ __forceinline__ float4 load_channels(const float* pixel, int channel, int channels) {
  if (channels % 4 == 0) {
    return channel < channels ? __ldg(reinterpret_cast<const float4*>(pixel + channel)) : float4{};
  }
  return {channel < channels ? __ldg(pixel + channel) : 0.0f,
          channel + 1 < channels ? __ldg(pixel + channel + 1) : 0.0f,
          channel + 2 < channels ? __ldg(pixel + channel + 2) : 0.0f,
          channel + 3 < channels ? __ldg(pixel + channel + 3) : 0.0f};
}

// The same of the input at a row and column that may lie in the padding, where it is 0.
__device__ __forceinline__ float4 load_padded(const float* x, const ConvPool& c, int n, int row,
                                              int column, int channel) {
  const bool inside = static_cast<unsigned>(row) < static_cast<unsigned>(c.input_height) &&
                      static_cast<unsigned>(column) < static_cast<unsigned>(c.input_width);
  if (!inside) return {};
  const int64_t at = (static_cast<int64_t>(n) * c.input_height + row) * c.input_width + column;
  return load_channels(x + at * c.input_channels, channel, c.input_channels);
}

// Four channels of a pooled pixel's gradient, before the activation, and where each maximum was.
struct PooledGradient {
  float values[4];
  uint8_t positions[4];
};

template <bool kSimple>
__device__ __forceinline__ PooledGradient load_gradient(const float* gy, const float* y,
                                                        const uint8_t* index, int64_t at,
                                                        const ConvPool& c) {
  const float4 g = __ldg(reinterpret_cast<const float4*>(gy + at));
  const float4 v = __ldg(reinterpret_cast<const float4*>(y + at));
  const uchar4 p = __ldg(reinterpret_cast<const uchar4*>(index + at));
  return {{activation_gradient<kSimple>(c, g.x, v.x), activation_gradient<kSimple>(c, g.y, v.y),
           activation_gradient<kSimple>(c, g.z, v.z), activation_gradient<kSimple>(c, g.w, v.w)},
          {p.x, p.y, p.z, p.w}};
}

// What shared memory holds for tensor cores has been through unbiased_tf32().
__device__ __forceinline__ uint32_t bits(float value) { return __float_as_uint(value); }

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

}  // namespace kerascnn::cuda
