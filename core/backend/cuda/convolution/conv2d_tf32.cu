// Convolution on tensor cores for the channel counts of small networks: one launch, the kernel in
// Keras' own order, bias and activation applied before the only store.
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
#include "core/backend/cuda/tiles/tf32.cuh"

namespace kerascnn::cuda {
namespace {

constexpr int kBlock = 128;  // threads: four warps
constexpr int kDepth = 32;   // of the summed axis, per turn of the main loop
constexpr int kStages = 3;
// Rows of shared memory are padded so that the lanes of a fragment load fall into 32 different
// banks: rows read across (a fragment's fast axis is the row's) by 4 floats, rows read down by 8.
constexpr int kPadAcross = 4;
constexpr int kPadDown = 8;

// A convolution as a gather: result pixel (n, row, column) reads source pixel
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

// For a convolution with stride 1, whose input's gradient gathers from the output's gradient.
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

  // The source's first channel at this pixel under a tap; `valid` is false in the padding.
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

// kTransposed: the kernel's inner axis for this product is its last (the data gradient).
template <int kRows, int kColumns, bool kTransposed>
struct ConvTiles {
  float a[kStages][kRows][kDepth + kPadAcross];
  float b[kStages][kTransposed ? kColumns : kDepth]
         [kTransposed ? kDepth + kPadAcross : kColumns + kPadDown];
};

template <int kRows, int kColumns, bool kTransposed>
__global__ void __launch_bounds__(kBlock)
    conv_tf32_kernel(const float* __restrict__ source, const float* __restrict__ kernel,
                     const float* __restrict__ bias, float* __restrict__ result, Gather g,
                     Activation activation, float alpha) {
  begin_kernel();
  extern __shared__ char shared[];
  auto& tiles = *reinterpret_cast<ConvTiles<kRows, kColumns, kTransposed>*>(shared);
  constexpr int kChunks = kDepth / 4;  // 16-byte pieces of a row of `a`
  constexpr int kRowsPerThread = kRows * kChunks / kBlock;
  constexpr int kWarpRows = kRows / 2, kWarpColumns = kColumns / 2;  // warps as a 2 x 2 grid
  constexpr int kTilesDown = kWarpRows / 16, kTilesAcross = kWarpColumns / 8;

  const int thread = threadIdx.x;
  const int pixels = g.batch * g.result_height * g.result_width;
  const int first_pixel = blockIdx.x * kRows;
  const int first_channel = blockIdx.y * kColumns;
  const int inner = g.source_channels;
  const int inner_turns = (inner + kDepth - 1) / kDepth;
  const int turns = g.kernel_height * g.kernel_width * inner_turns;

  const int chunk = thread % kChunks;
  SourcePixel rows[kRowsPerThread] = {
      SourcePixel(g, first_pixel + thread / kChunks, pixels),
      SourcePixel(g, first_pixel + thread / kChunks + kBlock / kChunks, pixels),
      SourcePixel(g, first_pixel + thread / kChunks + 2 * (kBlock / kChunks), pixels),
      SourcePixel(g, first_pixel + thread / kChunks + 3 * (kBlock / kChunks), pixels)};
  static_assert(kRowsPerThread == 4);

  auto start_copies = [&](int turn) {
    const int stage = turn % kStages;
    const int tap = turn / inner_turns;
    const int depth = (turn - tap * inner_turns) * kDepth;
    const int tap_row = tap / g.kernel_width;
    const int tap_column = tap - tap_row * g.kernel_width;
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      bool valid;
      const float* from = rows[i].at(g, source, tap_row, tap_column, &valid);
      const int at = depth + chunk * 4;
      valid = valid && at < inner;
      copy_async_16(&tiles.a[stage][thread / kChunks + i * (kBlock / kChunks)][chunk * 4],
                    valid ? from + at : source, valid);
    }
    if constexpr (kTransposed) {
      // Kernel (tap, result channel, inner): rows of the tile are result channels.
      for (int item = thread; item < kColumns * kChunks; item += kBlock) {
        const int column = item / kChunks;
        const int at = depth + item % kChunks * 4;
        const bool valid = first_channel + column < g.result_channels && at < inner;
        const int64_t from =
            (static_cast<int64_t>(tap) * g.result_channels + first_channel + column) * inner + at;
        copy_async_16(&tiles.b[stage][column][item % kChunks * 4], valid ? kernel + from : kernel,
                      valid);
      }
    } else {
      // Kernel (tap, inner, result channel): rows of the tile are inner channels.
      constexpr int kRowChunks = kColumns / 4;
      for (int item = thread; item < kDepth * kRowChunks; item += kBlock) {
        const int row = item / kRowChunks;
        const int column = item % kRowChunks * 4;
        const bool valid = depth + row < inner && first_channel + column < g.result_channels;
        const int64_t from = (static_cast<int64_t>(tap) * inner + depth + row) * g.result_channels +
                             first_channel + column;
        copy_async_16(&tiles.b[stage][row][column], valid ? kernel + from : kernel, valid);
      }
    }
  };

  float sums[kTilesDown][kTilesAcross][4] = {};
  const int warp = thread / 32, lane = thread % 32;
  const int warp_row = warp / 2 * kWarpRows, warp_column = warp % 2 * kWarpColumns;
  const int group = lane / 4, member = lane % 4;

  auto multiply_stage = [&](int stage) {
#pragma unroll
    for (int k = 0; k < kDepth; k += 8) {
      uint32_t a[kTilesDown][4], b[kTilesAcross][2];
#pragma unroll
      for (int i = 0; i < kTilesDown; ++i) {
        const int row = warp_row + i * 16 + group;
        a[i][0] = to_tf32(tiles.a[stage][row][k + member]);
        a[i][1] = to_tf32(tiles.a[stage][row + 8][k + member]);
        a[i][2] = to_tf32(tiles.a[stage][row][k + member + 4]);
        a[i][3] = to_tf32(tiles.a[stage][row + 8][k + member + 4]);
      }
#pragma unroll
      for (int j = 0; j < kTilesAcross; ++j) {
        const int column = warp_column + j * 8 + group;
        b[j][0] = to_tf32(kTransposed ? tiles.b[stage][column][k + member]
                                      : tiles.b[stage][k + member][column]);
        b[j][1] = to_tf32(kTransposed ? tiles.b[stage][column][k + member + 4]
                                      : tiles.b[stage][k + member + 4][column]);
      }
#pragma unroll
      for (int i = 0; i < kTilesDown; ++i) {
#pragma unroll
        for (int j = 0; j < kTilesAcross; ++j) multiply_tf32(sums[i][j], a[i], b[j]);
      }
    }
  };

  for (int turn = 0; turn < kStages - 1; ++turn) {
    if (turn < turns) start_copies(turn);
    commit_copies();
  }
  for (int turn = 0; turn < turns; ++turn) {
    wait_for_copies<kStages - 2>();
    __syncthreads();  // the turn's tiles are complete, and everybody has left the stage filled next
    if (turn + kStages - 1 < turns) start_copies(turn + kStages - 1);
    commit_copies();
    multiply_stage(turn % kStages);
  }

#pragma unroll
  for (int i = 0; i < kTilesDown; ++i) {
#pragma unroll
    for (int j = 0; j < kTilesAcross; ++j) {
      const int channel = first_channel + warp_column + j * 8 + 2 * member;
      if (channel >= g.result_channels) continue;  // channels are a multiple of 4: both or neither
      const float bias0 = bias != nullptr ? bias[channel] : 0.0f;
      const float bias1 = bias != nullptr ? bias[channel + 1] : 0.0f;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int pixel = first_pixel + warp_row + i * 16 + group + half * 8;
        if (pixel >= pixels) continue;
        const float2 values = {activate(activation, sums[i][j][half * 2] + bias0, alpha),
                               activate(activation, sums[i][j][half * 2 + 1] + bias1, alpha)};
        *reinterpret_cast<float2*>(result + static_cast<int64_t>(pixel) * g.result_channels +
                                   channel) = values;
      }
    }
  }
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
  float x[kStages][kTaps][kDepth][kWgradRows + kPadDown];
  float gy[kStages][kDepth][kWgradColumns + kPadDown];
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
  const int thread = threadIdx.x;
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

  auto start_copies = [&](int turn) {
    const int stage = turn % kStages;
    const int first_pixel = begin + turn * kDepth;
    constexpr int kChunks = kWgradRows / 4;
#pragma unroll
    for (int item = thread; item < kDepth * kChunks; item += kBlock) {
      const SourcePixel pixel(g, first_pixel + item / kChunks, end);
      const int channel = first_input + item % kChunks * 4;
#pragma unroll
      for (int t = 0; t < kTaps; ++t) {
        bool valid;
        const float* from = pixel.at(g, x, tap_row, first_tap_column + t, &valid);
        valid = valid && channel < inputs;
        copy_async_16(&tiles.x[stage][t][item / kChunks][item % kChunks * 4],
                      valid ? from + channel : x, valid);
      }
    }
    constexpr int kGyChunks = kWgradColumns / 4;
#pragma unroll
    for (int item = thread; item < kDepth * kGyChunks; item += kBlock) {
      const int pixel = first_pixel + item / kGyChunks;
      const int channel = first_output + item % kGyChunks * 4;
      const bool valid = pixel < end && channel < outputs;
      copy_async_16(&tiles.gy[stage][item / kGyChunks][item % kGyChunks * 4],
                    valid ? gy + static_cast<int64_t>(pixel) * outputs + channel : gy, valid);
    }
  };

  float sums[kTaps][kTilesDown][kTilesAcross][4] = {};
  const int lane = thread % 32;
  const int group = lane / 4, member = lane % 4;
  const int warp_column = thread / 32 * 16;

  for (int turn = 0; turn < kStages - 1; ++turn) {
    if (turn < turns) start_copies(turn);
    commit_copies();
  }
  for (int turn = 0; turn < turns; ++turn) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    if (turn + kStages - 1 < turns) start_copies(turn + kStages - 1);
    commit_copies();
    const int stage = turn % kStages;
#pragma unroll
    for (int k = 0; k < kDepth; k += 8) {
      uint32_t b[kTilesAcross][2];
#pragma unroll
      for (int j = 0; j < kTilesAcross; ++j) {
        b[j][0] = to_tf32(tiles.gy[stage][k + member][warp_column + j * 8 + group]);
        b[j][1] = to_tf32(tiles.gy[stage][k + member + 4][warp_column + j * 8 + group]);
      }
#pragma unroll
      for (int t = 0; t < kTaps; ++t) {
#pragma unroll
        for (int i = 0; i < kTilesDown; ++i) {
          const int row = i * 16 + group;
          const uint32_t a[4] = {to_tf32(tiles.x[stage][t][k + member][row]),
                                 to_tf32(tiles.x[stage][t][k + member][row + 8]),
                                 to_tf32(tiles.x[stage][t][k + member + 4][row]),
                                 to_tf32(tiles.x[stage][t][k + member + 4][row + 8])};
#pragma unroll
          for (int j = 0; j < kTilesAcross; ++j) multiply_tf32(sums[t][i][j], a, b[j]);
        }
      }
    }
  }

  const int64_t size = static_cast<int64_t>(g.kernel_height) * g.kernel_width * inputs * outputs;
  float* target = gkernel + blockIdx.z * size;
  const int first_tap = tap_row * g.kernel_width + first_tap_column;
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
#pragma unroll
    for (int i = 0; i < kTilesDown; ++i) {
#pragma unroll
      for (int j = 0; j < kTilesAcross; ++j) {
        const int output_channel = first_output + warp_column + j * 8 + 2 * member;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int input_channel = first_input + i * 16 + group + half * 8;
          if (input_channel >= inputs || output_channel >= outputs) continue;
          const float2 values = {sums[t][i][j][half * 2], sums[t][i][j][half * 2 + 1]};
          *reinterpret_cast<float2*>(
              target + (static_cast<int64_t>(first_tap + t) * inputs + input_channel) * outputs +
              output_channel) = values;
        }
      }
    }
  }
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
  // About two blocks per multiprocessor, each with at least four turns of the main loop.
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
