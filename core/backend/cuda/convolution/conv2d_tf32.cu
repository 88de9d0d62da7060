// Convolution on tensor cores for the channel counts of small networks takes one launch: the kernel
// stays in Keras' own order, and bias and activation are applied before the only store.
//
// Forward and data gradient are one matrix product whose left side is gathered on the fly
// ("implicit GEMM", Chetlur et al., arXiv:1410.0759): result (pixels, channels) = patches (pixels,
// taps * inner channels) @ kernel. Each turn of the main loop takes one tap and kDepth inner
// channels; copies for later turns are under way meanwhile.
#include "core/backend/cuda/convolution/conv2d.h"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/elementwise/activation.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/products/partial_sums.h"
#include "core/backend/cuda/runtime/shared_memory.h"
#include "core/backend/cuda/tiles/fragments.cuh"
#include "core/backend/cuda/tiles/shared_tile.cuh"

namespace kerascnn::cuda {
namespace {

constexpr int kBlock = 128;  // threads: four warps
constexpr int kDepth = 32;   // of the summed axis, per turn of the main loop
constexpr int kStages = 3;

// A convolution is a gather here: result pixel (n, row, column) reads source pixel
// (n, row * stride + offset + direction * tap row * dilation, ...).
struct Gather {
  int batch;
  int result_height, result_width, result_channels;
  int source_height, source_width, source_channels;
  int kernel_height, kernel_width;
  int stride_height, stride_width, offset_height, offset_width;
  int step_height, step_width;  // direction * dilation
};

Gather forward_gather(const Conv2DGeometry& g) {
  Gather a{};
  a.batch = static_cast<int>(g.batch);
  a.result_height = static_cast<int>(g.output_height);
  a.result_width = static_cast<int>(g.output_width);
  a.result_channels = static_cast<int>(g.output_channels);
  a.source_height = static_cast<int>(g.input_height);
  a.source_width = static_cast<int>(g.input_width);
  a.source_channels = static_cast<int>(g.input_channels);
  a.kernel_height = static_cast<int>(g.kernel_height);
  a.kernel_width = static_cast<int>(g.kernel_width);
  a.stride_height = static_cast<int>(g.stride_height);
  a.stride_width = static_cast<int>(g.stride_width);
  a.offset_height = static_cast<int>(-g.pad_top);
  a.offset_width = static_cast<int>(-g.pad_left);
  a.step_height = static_cast<int>(g.dilation_height);
  a.step_width = static_cast<int>(g.dilation_width);
  return a;
}

// With stride 1 the input's gradient gathers from the output's gradient.
Gather dgrad_gather(const Conv2DGeometry& g) {
  Gather a = forward_gather(g);
  std::swap(a.result_height, a.source_height);
  std::swap(a.result_width, a.source_width);
  std::swap(a.result_channels, a.source_channels);
  a.offset_height = static_cast<int>(g.pad_top);
  a.offset_width = static_cast<int>(g.pad_left);
  a.step_height = -a.step_height;
  a.step_width = -a.step_width;
  return a;
}

// Where a row of the gathered matrix reads, before the tap is known.
struct SourcePixel {
  int image;  // n * source_height, or -1 past the last pixel
  int row, column;

  __device__ __forceinline__ SourcePixel(const Gather& g, int pixel, int pixels) {
    if (pixel >= pixels) {
      image = -1;
      row = column = 0;
      return;
    }
    const int result_column = pixel % g.result_width;
    const int rest = pixel / g.result_width;
    const int result_row = rest % g.result_height;
    image = rest / g.result_height * g.source_height;
    row = result_row * g.stride_height + g.offset_height;
    column = result_column * g.stride_width + g.offset_width;
  }

  // Finds the source's first channel at this pixel under a tap; `valid` is false in the padding.
  __device__ __forceinline__ const float* at(const Gather& g, const float* source, int tap_row,
                                             int tap_column, bool* valid) const {
    const int r = row + tap_row * g.step_height;
    const int c = column + tap_column * g.step_width;
    *valid = image >= 0 && static_cast<unsigned>(r) < static_cast<unsigned>(g.source_height) &&
             static_cast<unsigned>(c) < static_cast<unsigned>(g.source_width);
    if (!*valid) return source;
    return source + (static_cast<int64_t>(image + r) * g.source_width + c) * g.source_channels;
  }
};

// With kTransposed the kernel's inner axis for this product is its last (the data gradient).
template <int kRows, int kColumns, bool kTransposed>
struct ConvTiles {
  SharedTile<kRows, kDepth, true> a[kStages];
  SharedTile<kColumns, kDepth, kTransposed> b[kStages];
};

template <int kRows, int kColumns, bool kTransposed>
__global__ void __launch_bounds__(kBlock)
    conv_tf32_kernel(const float* __restrict__ source, const float* __restrict__ kernel,
                     const float* __restrict__ bias, float* __restrict__ result, Gather g,
                     Activation activation, float alpha) {
  begin_kernel();
  extern __shared__ char shared[];
  auto& tiles = *reinterpret_cast<ConvTiles<kRows, kColumns, kTransposed>*>(shared);
  constexpr int kChunks = kDepth / 4;  // vectors of a row of `a`
  constexpr int kRowsPerThread = kRows * kChunks / kBlock;
  constexpr int kWarpRows = kRows / 2, kWarpColumns = kColumns / 2;  // warps as a 2 x 2 grid

  const int thread = threadIdx.x;
  const int pixels = g.batch * g.result_height * g.result_width;
  const int first_pixel = blockIdx.x * kRows;
  const int first_channel = blockIdx.y * kColumns;
  const int inner = g.source_channels;
  const int inner_turns = (inner + kDepth - 1) / kDepth;
  const int turns = g.kernel_height * g.kernel_width * inner_turns;

  SourcePixel rows[kRowsPerThread] = {
      SourcePixel(g, first_pixel + thread / kChunks, pixels),
      SourcePixel(g, first_pixel + thread / kChunks + kBlock / kChunks, pixels),
      SourcePixel(g, first_pixel + thread / kChunks + 2 * (kBlock / kChunks), pixels),
      SourcePixel(g, first_pixel + thread / kChunks + 3 * (kBlock / kChunks), pixels)};
  static_assert(kRowsPerThread == 4);

  const auto start_copies = [&](int turn, int stage) {
    const int tap = turn / inner_turns;
    const int depth = (turn - tap * inner_turns) * kDepth;
    const int tap_row = tap / g.kernel_width;
    const int tap_column = tap - tap_row * g.kernel_width;
    auto& a = tiles.a[stage];
    a.template for_each_vector<kBlock>([&](int number, int row, int column) {
      bool valid;
      const float* from = rows[number].at(g, source, tap_row, tap_column, &valid);
      valid = valid && depth + column < inner;
      a.start_copy(row, column, valid ? from + depth + column : source, valid);
    });
    // The kernel is (tap, inner, result channel), with kTransposed (tap, result channel, inner).
    auto& b = tiles.b[stage];
    const int first_row = kTransposed ? first_channel : depth;
    const int first_column = kTransposed ? depth : first_channel;
    const int kernel_rows = kTransposed ? g.result_channels : inner;
    const int kernel_columns = kTransposed ? inner : g.result_channels;
    b.template for_each_vector<kBlock>([&](int, int row, int column) {
      const bool valid = first_row + row < kernel_rows && first_column + column < kernel_columns;
      const int64_t from =
          (static_cast<int64_t>(tap) * kernel_rows + first_row + row) * kernel_columns +
          first_column + column;
      b.start_copy(row, column, valid ? kernel + from : kernel, valid);
    });
  };

  float sums[kWarpRows / 16][kWarpColumns / 8][4] = {};
  const int warp = thread / 32;
  const int warp_row = warp / 2 * kWarpRows, warp_column = warp % 2 * kWarpColumns;
  run_stages<kStages>(turns, start_copies, [&](int stage) {
    multiply_depth<kDepth>(
        sums,
        [&](int i, int row, int k) {
          return to_tf32(tiles.a[stage].at(warp_row + i * 16 + row, k));
        },
        [&](int j, int k, int column) {
          return to_tf32(tiles.b[stage].at(warp_column + j * 8 + column, k));
        });
  });

  for_each_pair(sums, [&](int row, int column, float2 sum) {
    const int pixel = first_pixel + warp_row + row;
    const int channel = first_channel + warp_column + column;
    // Channels are a multiple of 4: both or neither.
    if (pixel >= pixels || channel >= g.result_channels) return;
    const float2 start =
        bias != nullptr ? float2{bias[channel], bias[channel + 1]} : float2{0.0f, 0.0f};
    *reinterpret_cast<float2*>(result + static_cast<int64_t>(pixel) * g.result_channels +
                               channel) = {activate(activation, sum.x + start.x, alpha),
                                           activate(activation, sum.y + start.y, alpha)};
  });
}

template <int kColumns, bool kTransposed>
std::unique_ptr<Kernel> plan_product(const Conv2DCall& call, const Gather& g) {
  constexpr int kRows = 64;
  using Tiles = ConvTiles<kRows, kColumns, kTransposed>;
  const auto kernel = conv_tf32_kernel<kRows, kColumns, kTransposed>;
  allow_most_shared_memory(kernel);
  const int64_t pixels = int64_t{g.batch} * g.result_height * g.result_width;
  const dim3 grid(static_cast<unsigned>(ceil_div(pixels, kRows)),
                  static_cast<unsigned>(ceil_div(g.result_channels, kColumns)));
  const bool has_bias = call.has_bias;
  const ActivationCall activation = call.activation;
  const std::string op(call.op->name);
  return make_early_kernel(message("kerascnn ", op, "_tf32"), [=](const KernelArgs& args) {
    // conv2d (x, kernel) and conv2d_dgrad (gy, kernel) agree in the order of their inputs.
    kernel<<<grid, kBlock, sizeof(Tiles), static_cast<cudaStream_t>(args.stream)>>>(
        input<float>(args, 0), input<float>(args, 1), has_bias ? input<float>(args, 2) : nullptr,
        output<float>(args, 0), g, activation.kind, static_cast<float>(activation.alpha));
    check_launch(op);
  });
}

constexpr int kWgradRows = 32;     // input channels of one tap
constexpr int kWgradColumns = 64;  // output channels

template <int kTaps>
struct WgradTiles {
  SharedTile<kWgradRows, kDepth, false> x[kStages][kTaps];
  SharedTile<kWgradColumns, kDepth, false> gy[kStages];
};

struct WgradSplit {
  int splits;            // grid.z
  int pixels_per_split;  // a multiple of kDepth
};

// gkernel (tap, input channel, output channel) = sum over pixels of x (pixel under the tap) * gy
// (pixel). A block takes kTaps neighbouring taps of one kernel row, so that gy is read once for
// them, and a share of the pixels; gkernel has one copy for each share.
template <int kTaps>
__global__ void __launch_bounds__(kBlock)
    wgrad_tf32_kernel(const float* __restrict__ x, const float* __restrict__ gy,
                      float* __restrict__ gkernel, Gather g, WgradSplit split) {
  begin_kernel();
  extern __shared__ char shared[];
  auto& tiles = *reinterpret_cast<WgradTiles<kTaps>*>(shared);
  constexpr int kTilesDown = kWgradRows / 16, kTilesAcross = 2;  // each warp: all rows, 16 columns
  const int inputs = g.source_channels, outputs = g.result_channels;
  const int pixels = g.batch * g.result_height * g.result_width;
  const int begin = blockIdx.z * split.pixels_per_split;
  const int end = min(begin + split.pixels_per_split, pixels);
  const int tap_groups = g.kernel_width / kTaps;
  const int input_tiles = (inputs + kWgradRows - 1) / kWgradRows;
  const int first_input = blockIdx.x % input_tiles * kWgradRows;
  const int tap_group = blockIdx.x / input_tiles;
  const int tap_row = tap_group / tap_groups;
  const int first_tap_column = tap_group % tap_groups * kTaps;
  const int first_output = blockIdx.y * kWgradColumns;
  const int turns = (end - begin + kDepth - 1) / kDepth;

  const auto start_copies = [&](int turn, int stage) {
    const int first_pixel = begin + turn * kDepth;
    auto& of_x = tiles.x[stage];
    of_x[0].template for_each_vector<kBlock>([&](int, int row, int column) {
      const SourcePixel pixel(g, first_pixel + row, end);
      const int channel = first_input + column;
#pragma unroll
      for (int t = 0; t < kTaps; ++t) {
        bool valid;
        const float* from = pixel.at(g, x, tap_row, first_tap_column + t, &valid);
        valid = valid && channel < inputs;
        of_x[t].start_copy(row, column, valid ? from + channel : x, valid);
      }
    });
    auto& of_gy = tiles.gy[stage];
    of_gy.template for_each_vector<kBlock>([&](int, int row, int column) {
      const int pixel = first_pixel + row;
      const int channel = first_output + column;
      const bool valid = pixel < end && channel < outputs;
      of_gy.start_copy(row, column,
                       valid ? gy + static_cast<int64_t>(pixel) * outputs + channel : gy, valid);
    });
  };

  float sums[kTaps * kTilesDown][kTilesAcross][4] = {};
  const int warp_column = static_cast<int>(threadIdx.x) / 32 * 16;
  run_stages<kStages>(turns, start_copies, [&](int stage) {
    multiply_depth<kDepth>(
        sums,
        [&](int i, int row, int k) {
          return to_tf32(tiles.x[stage][i / kTilesDown].at(i % kTilesDown * 16 + row, k));
        },
        [&](int j, int k, int column) {
          return to_tf32(tiles.gy[stage].at(warp_column + j * 8 + column, k));
        });
  });

  const int64_t size = static_cast<int64_t>(g.kernel_height) * g.kernel_width * inputs * outputs;
  float* target = gkernel + blockIdx.z * size;
  const int first_tap = tap_row * g.kernel_width + first_tap_column;
  for_each_pair(sums, [&](int row, int column, float2 sum) {
    const int tap = first_tap + row / kWgradRows;
    const int input_channel = first_input + row % kWgradRows;
    const int output_channel = first_output + warp_column + column;
    if (input_channel >= inputs || output_channel >= outputs) return;
    *reinterpret_cast<float2*>(
        target + (static_cast<int64_t>(tap) * inputs + input_channel) * outputs + output_channel) =
        sum;
  });
}

template <int kTaps>
std::unique_ptr<Kernel> plan_wgrad(const Conv2DCall& call) {
  const Conv2DGeometry& geometry = call.geometry;
  using Tiles = WgradTiles<kTaps>;
  const Gather g = forward_gather(geometry);
  const auto kernel = wgrad_tf32_kernel<kTaps>;
  allow_most_shared_memory(kernel);
  const int64_t pixels = int64_t{g.batch} * g.result_height * g.result_width;
  const int64_t across =
      ceil_div(g.source_channels, kWgradRows) * g.kernel_height * g.kernel_width / kTaps;
  const int64_t down = ceil_div(g.result_channels, kWgradColumns);
  // There are about two blocks per multiprocessor, each with at least four turns of the main loop.
  const int64_t wanted = ceil_div(2 * Context::current().multiprocessors(), across * down);
  const int64_t splits = std::clamp<int64_t>(std::min(wanted, pixels / (4 * kDepth)), 1, 256);
  WgradSplit split{};
  split.pixels_per_split = static_cast<int>(ceil_div(ceil_div(pixels, splits), kDepth) * kDepth);
  split.splits = static_cast<int>(ceil_div(pixels, split.pixels_per_split));
  const int64_t size = num_elements(geometry.kernel_shape());
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(down), split.splits);
  const int64_t sums = split.splits > 1 ? split.splits : 0;
  return make_summing_kernel(
      "kerascnn conv2d_wgrad_tf32",
      [=](const KernelArgs& args, bool adds_up) {
        const auto stream = static_cast<cudaStream_t>(args.stream);
        adds_up = adds_up && sums > 0;
        float* partial = adds_up ? static_cast<float*>(args.workspace) : output<float>(args, 0);
        kernel<<<grid, kBlock, sizeof(Tiles), stream>>>(input<float>(args, 0),
                                                        input<float>(args, 1), partial, g, split);
        check_launch("conv2d_wgrad_tf32");
        if (adds_up) {
          launch_sum_partials(DType::Float32, partial, args.outputs[0], split.splits, size, stream);
        }
      },
      sums * size * static_cast<int64_t>(sizeof(float)), sums);
}

// 16-byte copies along the channels, 32-bit pixel numbers, tensor cores that know TF32.
bool fits(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  constexpr int64_t kMaxPixels = (int64_t{1} << 31) - 4096;
  return call.dtype == DType::Float32 && call.allow_tf32 && g.groups == 1 &&
         g.input_channels % 4 == 0 && g.output_channels % 4 == 0 &&
         g.output_channels <= 65535 * 32 && g.batch * g.input_height * g.input_width < kMaxPixels &&
         g.batch * g.output_height * g.output_width < kMaxPixels &&
         Context::current().compute_capability() >= 80;
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d_tf32(const Conv2DCall& call) {
  if (!fits(call)) return nullptr;
  const Gather g = forward_gather(call.geometry);
  if (g.result_channels <= 32) return plan_product<32, false>(call, g);
  return plan_product<64, false>(call, g);
}

std::unique_ptr<Kernel> plan_conv2d_dgrad_tf32(const Conv2DCall& call) {
  const bool unit_stride = call.geometry.stride_height == 1 && call.geometry.stride_width == 1;
  if (!fits(call) || !unit_stride) return nullptr;
  const Gather g = dgrad_gather(call.geometry);
  if (g.result_channels <= 32) return plan_product<32, true>(call, g);
  return plan_product<64, true>(call, g);
}

std::unique_ptr<Kernel> plan_conv2d_wgrad_tf32(const Conv2DCall& call) {
  if (!fits(call)) return nullptr;
  return call.geometry.kernel_width % 3 == 0 ? plan_wgrad<3>(call) : plan_wgrad<1>(call);
}

}  // namespace kerascnn::cuda
