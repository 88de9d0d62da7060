// Depthwise convolution for kernels of any small size and strides of 1 and 2, known at run time
// only, and for odd numbers of channels: what depthwise.cuh has no tiles for.
#pragma once

#include "core/backend/cuda/convolution/depthwise.cuh"

namespace kerascnn::cuda::depthwise {

constexpr int kAnyColumns = 4;  // of a thread, side by side
constexpr int kMostExtent = 7;  // of a kernel
constexpr int kAnyWarps = 8;    // of a block of the kernel's gradient

// Where the tap reads for a result; negative where it reads nothing.
template <bool kGradient>
__device__ __forceinline__ int source_of(int result, int tap, int pad, int stride) {
  if (!kGradient) return result * stride + tap - pad;
  const int shifted = result + pad - tap;
  return (shifted & (stride - 1)) != 0 ? -1 : shifted >> (stride - 1);
}

// A thread makes kAnyColumns neighbouring results of N channels.
template <typename T, int N, bool kGradient>
__global__ void __launch_bounds__(kThreads)
    depthwise_any_kernel(const T* __restrict__ source, const T* __restrict__ kernel,
                         T* __restrict__ result, Ends<T> ends, Conv c, int64_t items) {
  begin_kernel();
  const int source_height = kGradient ? c.output_height : c.input_height;
  const int source_width = kGradient ? c.output_width : c.input_width;
  const int result_height = kGradient ? c.input_height : c.output_height;
  const int result_width = kGradient ? c.input_width : c.output_width;
  const int channels = c.input_channels;
  for (int64_t item = first_item(); item < items; item += item_step()) {
    const Division pack = divide(item, channels / N);
    const Division place = divide(pack.quotient, (result_width - 1) / kAnyColumns + 1);
    const Division line = divide(place.quotient, result_height);
    const int channel = static_cast<int>(pack.remainder) * N;
    const int column = static_cast<int>(place.remainder) * kAnyColumns;
    const int row = static_cast<int>(line.remainder);
    float sum[kAnyColumns][N];
#pragma unroll
    for (int i = 0; i < kAnyColumns; ++i) {
#pragma unroll
      for (int k = 0; k < N; ++k)
        sum[i][k] = ends.bias != nullptr ? load(ends.bias[channel + k]) : 0;
    }
    for (int r = 0; r < c.kernel_height; ++r) {
      const int from_row = source_of<kGradient>(row, r, c.pad_top, c.stride_height);
      if (!is_in(from_row, source_height)) continue;
      const T* from =
          source + (line.quotient * source_height + from_row) * source_width * channels + channel;
      const T* weights = kernel + static_cast<int64_t>(r) * c.kernel_width * channels + channel;
      for (int t = 0; t < c.kernel_width; ++t, weights += channels) {
        const auto w = *reinterpret_cast<const Vector<T, N>*>(weights);
#pragma unroll
        for (int i = 0; i < kAnyColumns; ++i) {
          const int at = source_of<kGradient>(column + i, t, c.pad_left, c.stride_width);
          if (!is_in(at, source_width)) continue;
          const auto value =
              *reinterpret_cast<const Vector<T, N>*>(from + static_cast<int64_t>(at) * channels);
#pragma unroll
          for (int k = 0; k < N; ++k) {
            sum[i][k] = fmaf(load(value.values[k]), load(w.values[k]), sum[i][k]);
          }
        }
      }
    }
    T* to = result + (place.quotient * result_width + column) * channels + channel;
#pragma unroll
    for (int i = 0; i < kAnyColumns; ++i) {
      if (column + i >= result_width) break;
      Vector<T, N> value;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        float x = sum[i][k];
        if (ends.activation != Activation::Linear) {
          x = activate_one(ends.activation, x, ends.alpha);
        }
        value.values[k] = store<T>(x);
      }
      *reinterpret_cast<Vector<T, N>*>(to + static_cast<int64_t>(i) * channels) = value;
    }
  }
}

// The kernel's gradient: blocks (packs of 32 * N channels, rows of the kernel, splits). A warp
// takes whole rows of gy, a thread the taps of one row of the kernel for its channels; partial is
// (splits, kernel height, kernel width, channels).
template <typename T, int N>
__global__ void __launch_bounds__(32 * kAnyWarps)
    depthwise_any_wgrad_kernel(const T* __restrict__ x, const T* __restrict__ gy,
                               float* __restrict__ partial, Conv c) {
  begin_kernel();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int channels = c.input_channels;
  const int channel = (blockIdx.x * 32 + lane) * N;
  const int tap_row = blockIdx.y;
  float sum[kMostExtent][N] = {};
  const int64_t lines = c.batch * c.output_height;
  int64_t line = static_cast<int64_t>(blockIdx.z) * kAnyWarps + warp;
  if (channel >= channels) line = lines;
  for (; line < lines; line += static_cast<int64_t>(gridDim.z) * kAnyWarps) {
    const Division at = divide(line, c.output_height);
    const int row = static_cast<int>(at.remainder) * c.stride_height + tap_row - c.pad_top;
    if (!is_in(row, c.input_height)) continue;
    const T* gradients = gy + line * c.output_width * channels + channel;
    const T* from = x + (at.quotient * c.input_height + row) * c.input_width * channels + channel;
#pragma unroll 2
    for (int column = 0; column < c.output_width; ++column, gradients += channels) {
      const auto g = *reinterpret_cast<const Vector<T, N>*>(gradients);
      const int first = column * c.stride_width - c.pad_left;
#pragma unroll
      for (int t = 0; t < kMostExtent; ++t) {
        if (t >= c.kernel_width || !is_in(first + t, c.input_width)) continue;
        const auto value = *reinterpret_cast<const Vector<T, N>*>(
            from + static_cast<int64_t>(first + t) * channels);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          sum[t][k] = fmaf(load(value.values[k]), load(g.values[k]), sum[t][k]);
        }
      }
    }
  }

  __shared__ float sums[kMostExtent][N][kAnyWarps][32];
#pragma unroll
  for (int t = 0; t < kMostExtent; ++t) {
#pragma unroll
    for (int k = 0; k < N; ++k) sums[t][k][warp][lane] = sum[t][k];
  }
  __syncthreads();
  if (channel >= channels) return;
  float* target = partial + (static_cast<int64_t>(blockIdx.z) * c.kernel_height + tap_row) *
                                c.kernel_width * channels;
  for (int t = warp; t < c.kernel_width; t += kAnyWarps) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      float total = 0;
      for (int w = 0; w < kAnyWarps; ++w) total += sums[t][k][w][lane];
      target[static_cast<int64_t>(t) * channels + channel + k] = total;
    }
  }
}

}  // namespace kerascnn::cuda::depthwise
