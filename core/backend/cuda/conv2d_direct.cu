// Convolution without a library: any floating dtype, groups, dilation. Written for few input values per output,
// where a convolution is bound by memory and launches; right, if not fast, for everything else.
//
// A tap is one (row, column, input channel of the group) of the kernel; taps are numbered as they lie in memory,
// so the kernel is a (taps, output channels) matrix.
#include "core/backend/cuda/conv2d.h"
#include "core/backend/cuda/device/activation.cuh"
#include "core/backend/cuda/device/block.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/device_buffer.h"

namespace kerascnn::cuda {
namespace {

struct Conv {
  int64_t batch;
  int input_height, input_width, input_channels, output_height, output_width, output_channels;
  int kernel_height, kernel_width, stride_height, stride_width, pad_top, pad_left;
  int dilation_height, dilation_width, group_inputs, group_outputs, taps;

  explicit Conv(const Conv2DGeometry& g)
      : batch(g.batch),
        input_height(static_cast<int>(g.input_height)),
        input_width(static_cast<int>(g.input_width)),
        input_channels(static_cast<int>(g.input_channels)),
        output_height(static_cast<int>(g.output_height)),
        output_width(static_cast<int>(g.output_width)),
        output_channels(static_cast<int>(g.output_channels)),
        kernel_height(static_cast<int>(g.kernel_height)),
        kernel_width(static_cast<int>(g.kernel_width)),
        stride_height(static_cast<int>(g.stride_height)),
        stride_width(static_cast<int>(g.stride_width)),
        pad_top(static_cast<int>(g.pad_top)),
        pad_left(static_cast<int>(g.pad_left)),
        dilation_height(static_cast<int>(g.dilation_height)),
        dilation_width(static_cast<int>(g.dilation_width)),
        group_inputs(static_cast<int>(g.group_input_channels())),
        group_outputs(static_cast<int>(g.group_output_channels())),
        taps(kernel_height * kernel_width * group_inputs) {}
};

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
        const T* source = x + ((at.n * c.input_height + row) * c.input_width + column) *
                                  c.input_channels + first_input;
        const T* weights = kernel +
                           static_cast<int64_t>(r * c.kernel_width + s) * c.group_inputs *
                               c.output_channels + channel;
        for (int q = 0; q < c.group_inputs; ++q) {
          const C value = load(source[q]);
          const auto w = *reinterpret_cast<const Vector<T, N>*>(
              weights + static_cast<int64_t>(q) * c.output_channels);
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
template <typename T>
__global__ void dgrad_kernel(const T* __restrict__ gy, const T* __restrict__ kernel,
                             T* __restrict__ gx, Conv c, int64_t size) {
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
      const int row = at.row + c.pad_top - r * c.dilation_height;
      if (row < 0 || row % c.stride_height != 0 || row / c.stride_height >= c.output_height) continue;
      for (int s = 0; s < c.kernel_width; ++s) {
        const int column = at.column + c.pad_left - s * c.dilation_width;
        if (column < 0 || column % c.stride_width != 0 ||
            column / c.stride_width >= c.output_width) {
          continue;
        }
        const T* gradients = gy + ((at.n * c.output_height + row / c.stride_height) * c.output_width +
                                   column / c.stride_width) *
                                      c.output_channels + first_output;
        const T* weights =
            kernel + (static_cast<int64_t>(r * c.kernel_width + s) * c.group_inputs + q) *
                         c.output_channels + first_output;
        for (int k = 0; k < c.group_outputs; ++k) sum += load(gradients[k]) * load(weights[k]);
      }
    }
    gx[i] = store<T>(sum);
  }
}

struct WgradParams {
  int lanes;             // threads side by side take neighbouring output channels
  int tap_groups;        // grid.y: kTaps taps each
  int splits;            // grid.z: a share of the output lines each
  int64_t lines;         // batch * output_height
  int64_t lines_per_split;
};

// Each thread sums kTaps elements of the kernel's gradient over its share of the pixels; the threads of a block
// with the same channel are summed in shared memory, the blocks' partial sums by the last block: always in the
// same order.
template <typename T, int kTaps>
__global__ void wgrad_kernel(const T* __restrict__ x, const T* __restrict__ gy, T* __restrict__ gw,
                             compute_t<T>* __restrict__ partial, unsigned* tickets, Conv c,
                             WgradParams p) {
  using C = compute_t<T>;
  const int lane = threadIdx.x % p.lanes;
  const int row_thread = threadIdx.x / p.lanes;
  const int row_threads = kThreads / p.lanes;
  const int channel = blockIdx.x * p.lanes + lane;
  const int first_tap = blockIdx.y * kTaps;
  const bool active = channel < c.output_channels;
  // The block's lanes may straddle groups only where a lane is one channel of its own group's taps.
  const int first_input = active ? channel / c.group_outputs * c.group_inputs : 0;

  int tap_row[kTaps], tap_column[kTaps], tap_offset[kTaps];
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
    const int tap = min(first_tap + t, c.taps - 1);
    const int q = tap % c.group_inputs;
    const int s = tap / c.group_inputs % c.kernel_width;
    const int r = tap / c.group_inputs / c.kernel_width;
    tap_row[t] = r * c.dilation_height - c.pad_top;
    tap_column[t] = s * c.dilation_width - c.pad_left;
    tap_offset[t] = first_input + q;
  }

  C sum[kTaps] = {};
  const int64_t begin = blockIdx.z * p.lines_per_split;
  const int64_t end = min(begin + p.lines_per_split, p.lines);
  if (active) {
    for (int64_t line = begin + row_thread; line < end; line += row_threads) {
      const int64_t n = line / c.output_height;
      const int output_row = static_cast<int>(line - n * c.output_height);
      const T* gradients = gy + line * c.output_width * c.output_channels + channel;
      const T* image = x + n * c.input_height * c.input_width * c.input_channels;
      for (int output_column = 0; output_column < c.output_width; ++output_column) {
        const C g = load(gradients[static_cast<int64_t>(output_column) * c.output_channels]);
#pragma unroll
        for (int t = 0; t < kTaps; ++t) {
          const int row = output_row * c.stride_height + tap_row[t];
          const int column = output_column * c.stride_width + tap_column[t];
          if (static_cast<unsigned>(row) < static_cast<unsigned>(c.input_height) &&
              static_cast<unsigned>(column) < static_cast<unsigned>(c.input_width)) {
            sum[t] += g * load(image[(static_cast<int64_t>(row) * c.input_width + column) *
                                         c.input_channels + tap_offset[t]]);
          }
        }
      }
    }
  }

  __shared__ C shared[kThreads];
  const int64_t kernel_size = static_cast<int64_t>(c.taps) * c.output_channels;
  for (int t = 0; t < kTaps; ++t) {
    C value = 0;
#pragma unroll
    for (int u = 0; u < kTaps; ++u) {
      if (u == t) value = sum[u];  // keeps `sum` in registers
    }
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = row_threads / 2; half > 0; half /= 2) {
      if (row_thread < half) shared[threadIdx.x] += shared[threadIdx.x + half * p.lanes];
      __syncthreads();
    }
    if (row_thread == 0 && active && first_tap + t < c.taps) {
      const int64_t element = static_cast<int64_t>(first_tap + t) * c.output_channels + channel;
      if (p.splits == 1) {
        gw[element] = store<T>(shared[lane]);
      } else {
        partial[blockIdx.z * kernel_size + element] = shared[lane];
      }
    }
    __syncthreads();
  }
  if (p.splits == 1) return;
  if (!is_last_block(tickets + blockIdx.y * gridDim.x + blockIdx.x, p.splits)) return;
  for (int item = threadIdx.x; item < kTaps * p.lanes; item += kThreads) {
    const int tap = first_tap + item / p.lanes;
    const int out = blockIdx.x * p.lanes + item % p.lanes;
    if (tap >= c.taps || out >= c.output_channels) continue;
    const int64_t element = static_cast<int64_t>(tap) * c.output_channels + out;
    C total = 0;
    for (int s = 0; s < p.splits; ++s) total += partial[s * kernel_size + element];
    gw[element] = store<T>(total);
  }
}

template <typename T, int kTaps>
std::unique_ptr<Kernel> plan_wgrad(const Conv2DGeometry& g) {
  const Conv c(g);
  WgradParams p{};
  p.lanes = 8;
  while (p.lanes < 32 && p.lanes < c.output_channels) p.lanes *= 2;
  p.tap_groups = static_cast<int>(ceil_div(c.taps, kTaps));
  p.lines = g.batch * g.output_height;
  const int64_t tiles = ceil_div(c.output_channels, p.lanes) * p.tap_groups;
  const int64_t rows = kThreads / p.lanes;
  const int64_t wanted = ceil_div(2 * Context::current().multiprocessors(), tiles);
  const int64_t splits = std::clamp<int64_t>(std::min(wanted, ceil_div(p.lines, rows)), 1, 1024);
  p.lines_per_split = std::max<int64_t>(1, ceil_div(p.lines, splits));
  p.splits = static_cast<int>(std::max<int64_t>(1, ceil_div(p.lines, p.lines_per_split)));
  if (p.tap_groups > 65535) {
    throw ValueError(message("conv2d_wgrad: a kernel of shape ", shape_string(g.kernel_shape()),
                             " has too many elements for the direct CUDA kernel"));
  }
  const int64_t size = num_elements(g.kernel_shape());
  std::shared_ptr<DeviceBuffer> tickets;
  if (p.splits > 1) tickets = std::make_shared<DeviceBuffer>(tiles * sizeof(unsigned));
  const int64_t workspace =
      p.splits > 1 ? p.splits * size * static_cast<int64_t>(sizeof(compute_t<T>)) : 0;
  return make_kernel(
      "kerascnn conv2d_wgrad",
      [=](const KernelArgs& args) {
        if (size == 0) return;
        const dim3 grid(static_cast<unsigned>(ceil_div(c.output_channels, p.lanes)), p.tap_groups,
                        p.splits);
        wgrad_kernel<T, kTaps><<<grid, kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
            input<T>(args, 0), input<T>(args, 1), output<T>(args, 0),
            static_cast<compute_t<T>*>(args.workspace),
            tickets ? tickets->as<unsigned>() : nullptr, c, p);
        check_launch("conv2d_wgrad");
      },
      workspace);
}

template <typename T, int N>
std::unique_ptr<Kernel> plan_forward(const Conv2DCall& call) {
  const Conv c(call.geometry);
  const int64_t size = num_elements(call.geometry.output_shape()) / N;
  const bool has_bias = call.has_bias;
  const ActivationCall activation = call.activation;
  return make_kernel("kerascnn conv2d", [=](const KernelArgs& args) {
    if (size == 0) return;
    conv_kernel<T, N><<<grid_for(size), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
        input<T>(args, 0), input<T>(args, 1), has_bias ? input<T>(args, 2) : nullptr,
        output<T>(args, 0), c, activation.kind, static_cast<compute_t<T>>(activation.alpha), size);
    check_launch("conv2d");
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
    const Conv c(call.geometry);
    const int64_t size = num_elements(call.geometry.input_shape());
    return make_kernel("kerascnn conv2d_dgrad", [=](const KernelArgs& args) {
      if (size == 0) return;
      dgrad_kernel<T><<<grid_for(size), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
          input<T>(args, 0), input<T>(args, 1), output<T>(args, 0), c, size);
      check_launch("conv2d_dgrad");
    });
  });
}

std::unique_ptr<Kernel> plan_conv2d_wgrad_direct(const Conv2DCall& call) {
  return dispatch_floating("conv2d_wgrad", call.dtype, [&]<typename T>(Type<T>) {
    const int64_t taps = num_elements(call.geometry.kernel_shape()) /
                         std::max<int64_t>(call.geometry.output_channels, 1);
    if (taps <= 9) return plan_wgrad<T, 9>(call.geometry);
    return plan_wgrad<T, 25>(call.geometry);
  });
}

}  // namespace kerascnn::cuda
