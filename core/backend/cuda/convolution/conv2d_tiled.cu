// Convolution of small images with few products per result, float32: a block keeps a band of the
// input in shared memory, with its padding as zeros, so that the loop over taps has neither bounds
// nor divisions.
//
// A tap is one (row, column, input channel) of the kernel, numbered as they lie in memory.
#include "core/backend/cuda/convolution/conv2d.h"
#include "core/backend/cuda/convolution/convolution.cuh"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/elementwise/activation.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/products/partial_sums.h"
#include "core/backend/cuda/runtime/context.h"

namespace kerascnn::cuda {
namespace {

constexpr int64_t kMaxShared = 48 << 10;  // what every GPU gives a block without being asked

// A band: `rows` output rows of one image and the input rows that they read.
struct Band {
  int rows, bands_per_image, input_rows, input_columns;

  Band(const Conv& c, int rows)
      : rows(rows),
        bands_per_image(static_cast<int>(ceil_div(c.output_height, rows))),
        input_rows((rows - 1) * c.stride_height + (c.kernel_height - 1) * c.dilation_height + 1),
        input_columns((c.output_width - 1) * c.stride_width +
                      (c.kernel_width - 1) * c.dilation_width + 1) {}

  int64_t floats(const Conv& c) const {
    return int64_t{input_rows} * input_columns * c.input_channels;
  }
};

// Copies the input rows of a band to shared memory, zeros for the padding. Waits for nobody.
__device__ __forceinline__ void load_band(const float* __restrict__ x, float* tile, const Conv& c,
                                          const Band& band, int64_t n, int first_row) {
  const int width = band.input_columns * c.input_channels;  // of a row of the tile
  const int valid = c.input_width * c.input_channels;
  const int shift = c.pad_left * c.input_channels;
  const int top = first_row * c.stride_height - c.pad_top;
  for (int r = threadIdx.x / 32; r < band.input_rows; r += kThreads / 32) {
    const int row = top + r;
    const bool inside = row >= 0 && row < c.input_height;
    const float* source = x + (n * c.input_height + (inside ? row : 0)) * valid;
    for (int j = threadIdx.x % 32; j < width; j += 32) {
      const int at = j - shift;
      tile[r * width + j] = inside && at >= 0 && at < valid ? source[at] : 0.0f;
    }
  }
}

// Where a tap reads in the tile, from the tile's position of an output.
__device__ __forceinline__ int tap_offset(const Conv& c, const Band& band, int tap) {
  const int q = tap % c.input_channels;
  const int s = tap / c.input_channels % c.kernel_width;
  const int r = tap / c.input_channels / c.kernel_width;
  return (r * c.dilation_height * band.input_columns + s * c.dilation_width) * c.input_channels + q;
}

__device__ __forceinline__ int tile_position(const Conv& c, const Band& band, int row, int column) {
  return (row * c.stride_height * band.input_columns + column * c.stride_width) * c.input_channels;
}

// Fills shared memory with the weights as (taps, output channels). The data gradient of a
// convolution with stride 1 is the convolution of gy with the kernel turned by 180 degrees and its
// channels exchanged (kTurned).
template <bool kTurned>
__device__ __forceinline__ void load_weights(const float* __restrict__ kernel, float* weights,
                                             const Conv& c) {
  for (int i = threadIdx.x; i < c.taps * c.output_channels; i += kThreads) {
    int from = i;
    if (kTurned) {
      const int tap = i / c.output_channels;
      const int place = tap / c.input_channels;  // row and column
      const int turned = c.kernel_height * c.kernel_width - 1 - place;
      from = (turned * c.output_channels + i % c.output_channels) * c.input_channels +
             tap % c.input_channels;
    }
    weights[i] = kernel[from];
  }
}

// One thread makes N neighbouring channels of one output.
template <int N, bool kTurned>
__global__ void conv_tiled_kernel(const float* __restrict__ x, const float* __restrict__ kernel,
                                  const float* __restrict__ bias, float* __restrict__ y, Conv c,
                                  Band band, Activation activation, float alpha) {
  begin_kernel();
  extern __shared__ __align__(32) float shared[];
  float* weights = shared;                             // (taps, channels)
  float* tile = weights + c.taps * c.output_channels;  // (input rows, input columns, channels)
  int* offsets =
      reinterpret_cast<int*>(tile + band.input_rows * band.input_columns * c.input_channels);
  const int64_t n = blockIdx.x / band.bands_per_image;
  const int first_row = static_cast<int>(blockIdx.x % band.bands_per_image) * band.rows;

  load_weights<kTurned>(kernel, weights, c);
  for (int t = threadIdx.x; t < c.taps; t += kThreads) offsets[t] = tap_offset(c, band, t);
  load_band(x, tile, c, band, n, first_row);
  __syncthreads();

  const int groups = c.output_channels / N;
  const int rows = min(band.rows, c.output_height - first_row);
  for (int item = threadIdx.x; item < rows * c.output_width * groups; item += kThreads) {
    const int pixel = item / groups;
    const int channel = (item - pixel * groups) * N;
    const int row = pixel / c.output_width;
    const int column = pixel - row * c.output_width;
    const float* source = tile + tile_position(c, band, row, column);
    float sum[N];
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = bias != nullptr ? bias[channel + k] : 0.0f;
#pragma unroll 5
    for (int t = 0; t < c.taps; ++t) {
      const float value = source[offsets[t]];
      const auto w =
          *reinterpret_cast<const Vector<float, N>*>(weights + t * c.output_channels + channel);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += value * w.values[k];
    }
    Vector<float, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.values[k] = activate(activation, sum[k], alpha);
    const int64_t output =
        ((n * c.output_height + first_row + row) * c.output_width + column) * c.output_channels +
        channel;
    *reinterpret_cast<Vector<float, N>*>(y + output) = result;
  }
}

template <int N, bool kTurned>
std::unique_ptr<Kernel> plan_product(const Conv2DCall& call) {
  const Conv c(call.geometry);
  // Takes as many rows as give every thread of a block something to do, and as few as give every
  // multiprocessor two blocks.
  const int64_t full = ceil_div(kThreads * N, int64_t{c.output_width} * c.output_channels);
  const int64_t spread = c.batch * c.output_height / (2 * Context::current().multiprocessors());
  const int rows =
      static_cast<int>(std::clamp<int64_t>(std::min(full, spread), 1, c.output_height));
  const Band band(c, rows);
  const int64_t bytes = (int64_t{c.taps} * c.output_channels + band.floats(c) + c.taps) * 4;
  if (bytes > kMaxShared) return nullptr;
  const int64_t blocks = c.batch * band.bands_per_image;
  const bool has_bias = call.has_bias;
  const ActivationCall activation = call.activation;
  const std::string op(call.op->name);
  return make_early_kernel("kerascnn " + op + "_tiled", [=](const KernelArgs& args) {
    conv_tiled_kernel<N, kTurned>
        <<<static_cast<unsigned>(blocks), kThreads, static_cast<size_t>(bytes),
           static_cast<cudaStream_t>(args.stream)>>>(
            input<float>(args, 0), input<float>(args, 1),
            has_bias ? input<float>(args, 2) : nullptr, output<float>(args, 0), c, band,
            activation.kind, static_cast<float>(activation.alpha));
    check_launch(op);
  });
}

struct WgradParams {
  int lanes;       // threads side by side take neighbouring output channels
  int tap_groups;  // grid.y: kTaps taps each
  int splits;      // grid.z: a share of the bands each
  int64_t bands;
};

// Each thread sums kTaps elements of the kernel's gradient over its share of the outputs, the block
// what its threads have for the same element. gw has one copy for each split.
template <int kTaps>
__global__ void wgrad_tiled_kernel(const float* __restrict__ x, const float* __restrict__ gy,
                                   float* __restrict__ gw, Conv c, Band band, WgradParams p) {
  begin_kernel();
  extern __shared__ __align__(32) float shared[];
  const int lane = threadIdx.x % p.lanes;
  const int row_thread = threadIdx.x / p.lanes;
  const int row_threads = kThreads / p.lanes;
  const int channel = blockIdx.x * p.lanes + lane;
  const int first_tap = blockIdx.y * kTaps;
  const bool active = channel < c.output_channels;

  int offsets[kTaps];
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
    offsets[t] = tap_offset(c, band, min(first_tap + t, c.taps - 1));
  }
  float sum[kTaps] = {};
  for (int64_t b = blockIdx.z; b < p.bands; b += p.splits) {
    const int64_t n = b / band.bands_per_image;
    const int first_row = static_cast<int>(b - n * band.bands_per_image) * band.rows;
    const int outputs = min(band.rows, c.output_height - first_row) * c.output_width;
    load_band(x, shared, c, band, n, first_row);
    __syncthreads();
    if (active) {
      const float* gradients =
          gy + (n * c.output_height + first_row) * c.output_width * c.output_channels + channel;
#pragma unroll 4
      for (int i = row_thread; i < outputs; i += row_threads) {
        const int row = i / c.output_width;
        const int column = i - row * c.output_width;
        const float g = gradients[static_cast<int64_t>(i) * c.output_channels];
        const float* source = shared + tile_position(c, band, row, column);
#pragma unroll
        for (int t = 0; t < kTaps; ++t) sum[t] += g * source[offsets[t]];
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int t = 0; t < kTaps; ++t) shared[t * kThreads + threadIdx.x] = sum[t];
  __syncthreads();
  float* target = gw + blockIdx.z * static_cast<int64_t>(c.taps) * c.output_channels;
  for (int item = threadIdx.x; item < kTaps * p.lanes; item += kThreads) {
    const int t = item / p.lanes;
    const int item_lane = item - t * p.lanes;
    const int item_channel = blockIdx.x * p.lanes + item_lane;
    if (first_tap + t >= c.taps || item_channel >= c.output_channels) continue;
    float total = 0;
#pragma unroll 4
    for (int r = 0; r < row_threads; ++r) total += shared[t * kThreads + r * p.lanes + item_lane];
    target[static_cast<int64_t>(first_tap + t) * c.output_channels + item_channel] = total;
  }
}

template <int kTaps>
std::unique_ptr<Kernel> plan_wgrad(const Conv2DCall& call) {
  const Conv c(call.geometry);
  WgradParams p{};
  p.lanes = 8;
  while (p.lanes < 32 && p.lanes < c.output_channels) p.lanes *= 2;
  p.tap_groups = static_cast<int>(ceil_div(c.taps, kTaps));
  // Bands of about eight outputs per thread.
  const int64_t wanted_rows = ceil_div(8 * kThreads / p.lanes, c.output_width);
  const Band band(c, static_cast<int>(std::clamp<int64_t>(wanted_rows, 1, c.output_height)));
  const int64_t bytes = std::max<int64_t>(band.floats(c), kTaps * kThreads) * 4;
  if (bytes > kMaxShared || p.tap_groups > 65535) return nullptr;
  p.bands = c.batch * band.bands_per_image;
  const int64_t tiles = ceil_div(c.output_channels, p.lanes) * p.tap_groups;
  // About two blocks per multiprocessor, all with the same number of bands.
  const int64_t most =
      std::clamp<int64_t>(ceil_div(2 * Context::current().multiprocessors(), tiles), 1,
                          std::min<int64_t>(p.bands, 1024));
  const int64_t turns = ceil_div(p.bands, most);
  p.splits = static_cast<int>(ceil_div(p.bands, turns));
  const int64_t size = num_elements(call.geometry.kernel_shape());
  const dim3 grid(static_cast<unsigned>(ceil_div(c.output_channels, p.lanes)), p.tap_groups,
                  p.splits);
  const int64_t sums = p.splits > 1 ? p.splits : 0;
  return make_summing_kernel(
      "kerascnn conv2d_wgrad_tiled",
      [=](const KernelArgs& args, bool adds_up) {
        const auto stream = static_cast<cudaStream_t>(args.stream);
        adds_up = adds_up && sums > 0;
        float* partial = adds_up ? static_cast<float*>(args.workspace) : output<float>(args, 0);
        wgrad_tiled_kernel<kTaps><<<grid, kThreads, static_cast<size_t>(bytes), stream>>>(
            input<float>(args, 0), input<float>(args, 1), partial, c, band, p);
        check_launch("conv2d_wgrad_tiled");
        if (adds_up) {
          launch_sum_partials(DType::Float32, partial, args.outputs[0], p.splits, size, stream);
        }
      },
      sums * size * static_cast<int64_t>(sizeof(float)), sums);
}

template <bool kTurned>
std::unique_ptr<Kernel> plan_width(const Conv2DCall& call) {
  const int64_t channels = call.geometry.output_channels;
  const int64_t outputs = num_elements(call.geometry.output_shape());
  // More channels per thread save loads, as long as there are threads enough to hide the latency of
  // the rest.
  const int64_t enough_threads = int64_t{512} * Context::current().multiprocessors();
  if (channels % 8 == 0 && outputs / 8 >= enough_threads) return plan_product<8, kTurned>(call);
  if (channels % 4 == 0 && outputs / 4 >= enough_threads) return plan_product<4, kTurned>(call);
  if (channels % 2 == 0 && outputs / 2 >= enough_threads / 4) return plan_product<2, kTurned>(call);
  return plan_product<1, kTurned>(call);
}

bool fits(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  return call.dtype == DType::Float32 && g.groups == 1 &&
         g.batch * g.output_height < (int64_t{1} << 31);
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d_tiled(const Conv2DCall& call) {
  if (!fits(call)) return nullptr;
  return plan_width<false>(call);
}

std::unique_ptr<Kernel> plan_conv2d_dgrad_tiled(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  if (!fits(call) || g.stride_height != 1 || g.stride_width != 1) return nullptr;
  Conv2DCall turned = call;
  Conv2DGeometry& t = turned.geometry;
  std::swap(t.input_height, t.output_height);
  std::swap(t.input_width, t.output_width);
  std::swap(t.input_channels, t.output_channels);
  t.pad_top = g.dilation_height * (g.kernel_height - 1) - g.pad_top;
  t.pad_left = g.dilation_width * (g.kernel_width - 1) - g.pad_left;
  return plan_width<true>(turned);
}

std::unique_ptr<Kernel> plan_conv2d_wgrad_tiled(const Conv2DCall& call) {
  if (!fits(call)) return nullptr;
  const int64_t taps = num_elements(call.geometry.kernel_shape()) / call.geometry.output_channels;
  return taps <= 9 ? plan_wgrad<9>(call) : plan_wgrad<25>(call);
}

}  // namespace kerascnn::cuda
