// Convolution without a library: any floating dtype, groups, dilation, stride. Right, if not fast:
// it takes float64 and whatever the other implementations refuse.
//
// A tap is one (row, column, input channel of the group) of the kernel; taps are numbered as they
// lie in memory, so the kernel is a (taps, output channels) matrix.
#include "core/backend/cuda/convolution/conv2d.h"
#include "core/backend/cuda/convolution/convolution.cuh"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/elementwise/activation.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/products/partial_sums.h"
#include "core/backend/cuda/runtime/shared_memory.h"

namespace kerascnn::cuda {
namespace {

// Image, row and column of a position in (batch, height, width).
struct Pixel {
  int64_t n;
  int row, column;

  __device__ __forceinline__ Pixel(int64_t index, int height, int width) {
    if ((index >> 32) == 0) {
      unsigned rest = static_cast<unsigned>(index);
      column = static_cast<int>(rest % width);
      rest /= width;
      row = static_cast<int>(rest % height);
      n = rest / height;
    } else {
      column = static_cast<int>(index % width);
      index /= width;
      row = static_cast<int>(index % height);
      n = index / height;
    }
  }
};

// One thread makes N neighbouring output channels of one pixel (all of one group).
template <typename T, int N>
__global__ void conv_kernel(const T* __restrict__ x, const T* __restrict__ kernel,
                            const T* __restrict__ bias, T* __restrict__ y, Conv c, Activation kind,
                            compute_t<T> alpha, int64_t size) {
  begin_kernel();
  using C = compute_t<T>;
  const int channel_groups = c.output_channels / N;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < size;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t pixel_index = i / channel_groups;
    const int channel = static_cast<int>(i - pixel_index * channel_groups) * N;
    const Pixel at(pixel_index, c.output_height, c.output_width);
    const int top = at.row * c.stride_height - c.pad_top;
    const int left = at.column * c.stride_width - c.pad_left;
    const int first_input = channel / c.group_outputs * c.group_inputs;
    C sum[N];
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = bias != nullptr ? load(bias[channel + k]) : C(0);
    for (int r = 0; r < c.kernel_height; ++r) {
      const int row = top + r * c.dilation_height;
      if (row < 0 || row >= c.input_height) continue;
      for (int s = 0; s < c.kernel_width; ++s) {
        const int column = left + s * c.dilation_width;
        if (column < 0 || column >= c.input_width) continue;
        const T* source =
            x + ((at.n * c.input_height + row) * c.input_width + column) * c.input_channels +
            first_input;
        const T* weights =
            kernel +
            static_cast<int64_t>(r * c.kernel_width + s) * c.group_inputs * c.output_channels +
            channel;
        for (int q = 0; q < c.group_inputs; ++q) {
          const C value = load(source[q]);
          const auto w = *reinterpret_cast<const Vector<T, N>*>(weights + static_cast<int64_t>(q) *
                                                                              c.output_channels);
#pragma unroll
          for (int k = 0; k < N; ++k) sum[k] += value * load(w.values[k]);
        }
      }
    }
    Vector<T, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.values[k] = store<T>(activate(kind, sum[k], alpha));
    *reinterpret_cast<Vector<T, N>*>(y + i * N) = result;
  }
}

// One thread makes one element of the input's gradient, from every output that read it.
// kOutputs output channels are read at a time; kUnitStride spares two divisions for every tap.
template <typename T, int kOutputs, bool kUnitStride>
__global__ void dgrad_kernel(const T* __restrict__ gy, const T* __restrict__ kernel,
                             T* __restrict__ gx, Conv c, int64_t size) {
  begin_kernel();
  using C = compute_t<T>;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < size;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t pixel_index = i / c.input_channels;
    const int channel = static_cast<int>(i - pixel_index * c.input_channels);
    const Pixel at(pixel_index, c.input_height, c.input_width);
    const int group = channel / c.group_inputs;
    const int q = channel - group * c.group_inputs;
    const int first_output = group * c.group_outputs;
    C sum = 0;
    for (int r = 0; r < c.kernel_height; ++r) {
      const int shifted_row = at.row + c.pad_top - r * c.dilation_height;
      const int row = kUnitStride ? shifted_row : shifted_row / c.stride_height;
      if (shifted_row < 0 || row >= c.output_height) continue;
      if (!kUnitStride && row * c.stride_height != shifted_row) continue;
      for (int s = 0; s < c.kernel_width; ++s) {
        const int shifted_column = at.column + c.pad_left - s * c.dilation_width;
        const int column = kUnitStride ? shifted_column : shifted_column / c.stride_width;
        if (shifted_column < 0 || column >= c.output_width) continue;
        if (!kUnitStride && column * c.stride_width != shifted_column) continue;
        const T* gradients =
            gy + ((at.n * c.output_height + row) * c.output_width + column) * c.output_channels +
            first_output;
        const T* weights = kernel +
                           (static_cast<int64_t>(r * c.kernel_width + s) * c.group_inputs + q) *
                               c.output_channels +
                           first_output;
        for (int k = 0; k < c.group_outputs; k += kOutputs) {
          const auto g = *reinterpret_cast<const Vector<T, kOutputs>*>(gradients + k);
          const auto w = *reinterpret_cast<const Vector<T, kOutputs>*>(weights + k);
#pragma unroll
          for (int u = 0; u < kOutputs; ++u) sum += load(g.values[u]) * load(w.values[u]);
        }
      }
    }
    gx[i] = store<T>(sum);
  }
}

struct WgradParams {
  int lanes;       // threads side by side take neighbouring output channels
  int tap_groups;  // grid.y: kTaps taps each
  int splits;      // grid.z: a share of the output pixels each
  int64_t pixels;
  int64_t pixels_per_split;
};

// Each thread sums kTaps elements of the kernel's gradient over its share of the pixels, and the
// block sums what its threads have for the same element. gw has one copy for each split.
template <typename T, typename Out, int kTaps>
__global__ void wgrad_kernel(const T* __restrict__ x, const T* __restrict__ gy,
                             Out* __restrict__ gw, Conv c, WgradParams p) {
  begin_kernel();
  using C = compute_t<T>;
  const int lane = threadIdx.x % p.lanes;
  const int row_thread = threadIdx.x / p.lanes;
  const int row_threads = kThreads / p.lanes;
  const int channel = blockIdx.x * p.lanes + lane;
  const int first_tap = blockIdx.y * kTaps;
  const bool active = channel < c.output_channels;
  const int first_input = active ? channel / c.group_outputs * c.group_inputs : 0;

  int tap_row[kTaps], tap_column[kTaps], tap_channel[kTaps];
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
    const int tap = min(first_tap + t, c.taps - 1);
    tap_channel[t] = first_input + tap % c.group_inputs;
    tap_column[t] = tap / c.group_inputs % c.kernel_width * c.dilation_width - c.pad_left;
    tap_row[t] = tap / c.group_inputs / c.kernel_width * c.dilation_height - c.pad_top;
  }

  C sum[kTaps] = {};
  const int64_t begin = blockIdx.z * p.pixels_per_split;
  const int64_t end = min(begin + p.pixels_per_split, p.pixels);
  if (active) {
#pragma unroll 2
    for (int64_t pixel = begin + row_thread; pixel < end; pixel += row_threads) {
      const Pixel at(pixel, c.output_height, c.output_width);
      const C g = load(gy[pixel * c.output_channels + channel]);
      const T* image = x + at.n * c.input_height * c.input_width * c.input_channels;
#pragma unroll
      for (int t = 0; t < kTaps; ++t) {
        const int row = at.row * c.stride_height + tap_row[t];
        const int column = at.column * c.stride_width + tap_column[t];
        if (static_cast<unsigned>(row) < static_cast<unsigned>(c.input_height) &&
            static_cast<unsigned>(column) < static_cast<unsigned>(c.input_width)) {
          sum[t] +=
              g * load(image[(row * c.input_width + column) * c.input_channels + tap_channel[t]]);
        }
      }
    }
  }

  extern __shared__ char shared[];
  C* sums = reinterpret_cast<C*>(shared);  // (kTaps, kThreads)
#pragma unroll
  for (int t = 0; t < kTaps; ++t) sums[t * kThreads + threadIdx.x] = sum[t];
  __syncthreads();
  Out* target = gw + blockIdx.z * static_cast<int64_t>(c.taps) * c.output_channels;
  for (int item = threadIdx.x; item < kTaps * p.lanes; item += kThreads) {
    const int t = item / p.lanes;
    const int item_lane = item - t * p.lanes;
    const int item_channel = blockIdx.x * p.lanes + item_lane;
    if (first_tap + t >= c.taps || item_channel >= c.output_channels) continue;
    C total = 0;
#pragma unroll 4
    for (int r = 0; r < row_threads; ++r) total += sums[t * kThreads + r * p.lanes + item_lane];
    target[static_cast<int64_t>(first_tap + t) * c.output_channels + item_channel] =
        store<Out>(static_cast<compute_t<Out>>(total));
  }
}

template <typename T, int kTaps>
std::unique_ptr<Kernel> plan_wgrad(const Conv2DCall& call) {
  using C = compute_t<T>;
  const Conv2DGeometry& g = call.geometry;
  const Conv c(g);
  WgradParams p{};
  p.lanes = 8;
  while (p.lanes < 32 && p.lanes < c.output_channels) p.lanes *= 2;
  p.tap_groups = static_cast<int>(ceil_div(c.taps, kTaps));
  if (p.tap_groups > 65535) {
    throw ValueError(message("conv2d_wgrad: a kernel of shape ", shape_string(g.kernel_shape()),
                             " has too many elements for the direct CUDA kernel"));
  }
  p.pixels = g.batch * g.output_height * g.output_width;
  const int64_t tiles = ceil_div(c.output_channels, p.lanes) * p.tap_groups;
  // About two blocks per multiprocessor, each with at least two turns of its loop.
  const int64_t wanted =
      ceil_div(2 * Context::current().multiprocessors(), std::max<int64_t>(tiles, 1));
  const int64_t most = ceil_div(p.pixels, 2 * (kThreads / p.lanes));
  const int64_t splits = std::clamp<int64_t>(std::min(wanted, most), 1, 1024);
  p.pixels_per_split = std::max<int64_t>(1, ceil_div(p.pixels, splits));
  p.splits = static_cast<int>(std::max<int64_t>(1, ceil_div(p.pixels, p.pixels_per_split)));
  const int64_t size = num_elements(g.kernel_shape());
  // Partial sums of float16 and bfloat16 are float32: no stack of the result's dtype.
  const int64_t sums = std::is_same_v<T, C> && p.splits > 1 ? p.splits : 0;
  const int64_t workspace = p.splits > 1 ? p.splits * size * static_cast<int64_t>(sizeof(C)) : 0;
  const size_t shared = kTaps * kThreads * sizeof(C);
  // The dynamic limit is 48 KiB unless asked for more (25 taps of doubles need 50).
  allow_most_shared_memory(wgrad_kernel<T, C, kTaps>);
  allow_most_shared_memory(wgrad_kernel<T, T, kTaps>);
  return make_summing_kernel(
      "kerascnn conv2d_wgrad",
      [=, dtype = call.dtype](const KernelArgs& args, bool adds_up) {
        if (size == 0) return;
        const auto stream = static_cast<cudaStream_t>(args.stream);
        const dim3 grid(static_cast<unsigned>(ceil_div(c.output_channels, p.lanes)), p.tap_groups,
                        p.splits);
        if (p.splits == 1) {
          wgrad_kernel<T, T, kTaps><<<grid, kThreads, shared, stream>>>(
              input<T>(args, 0), input<T>(args, 1), output<T>(args, 0), c, p);
          check_launch("conv2d_wgrad");
          return;
        }
        void* partial = adds_up ? args.workspace : args.outputs[0];
        wgrad_kernel<T, C, kTaps><<<grid, kThreads, shared, stream>>>(
            input<T>(args, 0), input<T>(args, 1), static_cast<C*>(partial), c, p);
        check_launch("conv2d_wgrad");
        if (!adds_up) return;
        launch_sum_partials(dtype, partial, args.outputs[0], p.splits, size, stream);
      },
      workspace, sums);
}

template <typename T, int N>
std::unique_ptr<Kernel> plan_forward(const Conv2DCall& call) {
  const Conv c(call.geometry);
  const int64_t size = num_elements(call.geometry.output_shape()) / N;
  const bool has_bias = call.has_bias;
  const ActivationCall activation = call.activation;
  return make_early_kernel("kerascnn conv2d", [=](const KernelArgs& args) {
    if (size == 0) return;
    conv_kernel<T, N><<<grid_for(size), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
        input<T>(args, 0), input<T>(args, 1), has_bias ? input<T>(args, 2) : nullptr,
        output<T>(args, 0), c, activation.kind, static_cast<compute_t<T>>(activation.alpha), size);
    check_launch("conv2d");
  });
}

template <typename T, int kOutputs>
std::unique_ptr<Kernel> plan_dgrad(const Conv2DCall& call) {
  const Conv c(call.geometry);
  const int64_t size = num_elements(call.geometry.input_shape());
  const bool unit_stride = c.stride_height == 1 && c.stride_width == 1;
  const auto kernel =
      unit_stride ? dgrad_kernel<T, kOutputs, true> : dgrad_kernel<T, kOutputs, false>;
  return make_early_kernel("kerascnn conv2d_dgrad", [=](const KernelArgs& args) {
    if (size == 0) return;
    kernel<<<grid_for(size), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
        input<T>(args, 0), input<T>(args, 1), output<T>(args, 0), c, size);
    check_launch("conv2d_dgrad");
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d_direct(const Conv2DCall& call) {
  return dispatch_floating("conv2d", call.dtype, [&]<typename T>(Type<T>) {
    if (call.geometry.group_output_channels() % 8 == 0) return plan_forward<T, 8>(call);
    if (call.geometry.group_output_channels() % 2 == 0) return plan_forward<T, 2>(call);
    return plan_forward<T, 1>(call);
  });
}

std::unique_ptr<Kernel> plan_conv2d_dgrad_direct(const Conv2DCall& call) {
  return dispatch_floating("conv2d_dgrad", call.dtype, [&]<typename T>(Type<T>) {
    if (call.geometry.group_output_channels() % 4 == 0) return plan_dgrad<T, 4>(call);
    return plan_dgrad<T, 1>(call);
  });
}

std::unique_ptr<Kernel> plan_conv2d_wgrad_direct(const Conv2DCall& call) {
  return dispatch_floating("conv2d_wgrad", call.dtype, [&]<typename T>(Type<T>) {
    const int64_t taps = num_elements(call.geometry.kernel_shape()) /
                         std::max<int64_t>(call.geometry.output_channels, 1);
    if (taps <= 9) return plan_wgrad<T, 9>(call);
    return plan_wgrad<T, 25>(call);
  });
}

}  // namespace kerascnn::cuda
