// Convolutions of few input channels and few taps, as in a network's first layer, and the gradients
// of their kernels, on tensor cores. They have little arithmetic for what they read and write, so
// the loop is about memory: a block keeps a band of the input in shared memory and takes the
// patches from there, weights stay in registers, and the output, or its gradient, passes once
// between memory and registers, 16 bytes at a time. narrow_many.cuh has the same for more taps.
#include "core/backend/cuda/convolution/narrow.cuh"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/products/partial_sums.h"

namespace kerascnn::cuda {
namespace {

using namespace narrow;

constexpr int kMostTaps = 32;
constexpr int64_t kMostShared = 48 << 10;  // what every GPU gives a block without being asked
constexpr int64_t kUsualShared = 24 << 10;

// How the work is shared out.
struct Layout {
  int chunks;          // of kChannels output channels, that a block has; a warp has one of them
  int groups_across;   // of kPixels pixels, in an output row
  int64_t bands;       // of the batch
  int blocks;          // which take bands in turn
  int channel_blocks;  // grid.y
};

// The groups of pixels of a band that a warp takes.
struct Walk {
  int row = 0, group, step, groups_across;

  __device__ __forceinline__ Walk(const Layout& layout, int warp)
      : group(warp / layout.chunks),
        step(kWarps / layout.chunks),
        groups_across(layout.groups_across) {
    settle();
  }
  __device__ __forceinline__ void advance() {
    group += step;
    settle();
  }
  __device__ __forceinline__ void settle() {
    while (group >= groups_across) {
      group -= groups_across;
      ++row;
    }
  }
  __device__ __forceinline__ int column() const { return group * kPixels; }
};

template <typename T, int kTaps, bool kAnyActivation>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    conv_narrow_kernel(const T* __restrict__ x, const T* __restrict__ kernel,
                       const T* __restrict__ bias, T* __restrict__ y, Conv c, Band band,
                       Layout layout, Ends<kAnyActivation> ends) {
  begin_kernel();
  extern __shared__ __align__(16) char shared[];
  auto* tile = reinterpret_cast<Bits<T>*>(shared);
  constexpr int kWide = 16 / sizeof(T);
  constexpr int kSteps = kTaps / kDepth<T>;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int first_channel =
      (static_cast<int>(blockIdx.y) * layout.chunks + warp % layout.chunks) * kChannels;

  int offsets[kSteps][2][kPack<T>];  // of the taps that the thread reads; -1: behind the last one
  RightFragment weights[kSteps][kTiles];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int first = s * kDepth<T> + place_in_depth<T>(t, half);
#pragma unroll
      for (int e = 0; e < kPack<T>; ++e) {
        offsets[s][half][e] = first + e < c.taps ? place_of_tap(c, band, first + e) : -1;
      }
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const T* const column = kernel + first_channel + channel_of<kWide>(j, g);
        Bits<T> bits[kPack<T>];
#pragma unroll
        for (int e = 0; e < kPack<T>; ++e) {
          const T zero(0.0f);
          bits[e] = bits_of(first + e < c.taps ? column[(first + e) * c.output_channels] : zero);
        }
        weights[s][j].words[half] = word_of(bits);
      }
    }
  }
  float start[kTiles][2];
  load_start<kWide>(start, bias, first_channel, t);

  const int step = c.stride_width * c.input_channels;  // from one pixel's patch to the next
  for (int64_t b = blockIdx.x; b < layout.bands; b += layout.blocks) {
    const int64_t image = b / band.bands_of_image;
    const int first_row = static_cast<int>(b - image * band.bands_of_image) * band.rows;
    const int rows = min(band.rows, c.output_height - first_row);
    __syncthreads();  // everybody has left the band before
    load_band(x, tile, c, band, image, first_row, [](T number) { return bits_of(number); });
    __syncthreads();
    for (Walk walk(layout, warp); walk.row < rows; walk.advance()) {
      const int column = walk.column() + g;  // and eight more
      const Bits<T>* const line = tile + walk.row * c.stride_height * band.pitch;
      const Bits<T>* const patches[2] = {line + min(column, c.output_width - 1) * step,
                                         line + min(column + 8, c.output_width - 1) * step};
      float sums[kTiles][4];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[j][i] = start[j][i % 2];
      }
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        LeftFragment a;
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          Bits<T> bits[kPack<T>];
#pragma unroll
          for (int e = 0; e < kPack<T>; ++e) {
            const int offset = offsets[s][w / 2][e];
            bits[e] = offset >= 0 ? patches[w % 2][offset] : Bits<T>(0);
          }
          a.words[w] = word_of(bits);
        }
#pragma unroll
        for (int j = 0; j < kTiles; ++j) Numbers<T>::multiply(sums[j], a, weights[s][j]);
      }
      const int64_t line_of_image = image * c.output_height + first_row + walk.row;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (column + 8 * half >= c.output_width) continue;
        T* const target = y +
                          (line_of_image * c.output_width + column + 8 * half) * c.output_channels +
                          first_channel;
#pragma unroll
        for (int j = 0; j < kTiles; j += kWide / 2) {
          store_wide<kWide>(target + channel_of<kWide>(j, 2 * t), sums, j, half, ends);
        }
      }
    }
  }
}

// Each block has the sum over its bands: gkernel has one copy (taps, output channels) for each.
template <typename T, int kTaps>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    wgrad_narrow_kernel(const T* __restrict__ x, const T* __restrict__ gy,
                        float* __restrict__ gkernel, Conv c, Band band, Layout layout) {
  begin_kernel();
  extern __shared__ __align__(16) char shared[];
  auto* tile = reinterpret_cast<Bits<T>*>(shared);
  constexpr int kTilesDown = kTaps / 16;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int block_channel = static_cast<int>(blockIdx.y) * layout.chunks * kChannels;
  const int first_channel = block_channel + warp % layout.chunks * kChannels + g * kTiles;

  constexpr int kItem = sizeof(T);
  const int step = c.stride_width * c.input_channels * kItem;  // from one pixel's patch to the next
  const int lane_pixel = place_in_depth<T>(t, 0);              // of a group, the first
  uint32_t places[kTilesDown][2];
  find_places<T>(places, tile, c, band, g, step, t);
  float sums[kTilesDown][kTiles][4] = {};
  for (int64_t b = blockIdx.x; b < layout.bands; b += layout.blocks) {
    const int64_t image = b / band.bands_of_image;
    const int first_row = static_cast<int>(b - image * band.bands_of_image) * band.rows;
    const int rows = min(band.rows, c.output_height - first_row);
    // The lane's of the band's first group.
    const T* const from =
        gy +
        ((image * c.output_height + first_row) * c.output_width + lane_pixel) * c.output_channels +
        first_channel;
    Walk walk(layout, warp);
    Gradients<T> next;
    const auto read_next = [&] {
      if (walk.row >= rows) return;
      next.read(from + (walk.row * c.output_width + walk.column()) * c.output_channels,
                c.output_channels, c.output_width - walk.column(), t);
    };
    read_next();
    __syncthreads();  // everybody has left the band before
    load_band(x, tile, c, band, image, first_row, [](T number) { return bits_of(number); });
    __syncthreads();
    while (walk.row < rows) {
      const Gradients<T> gradients = next;
      const int place = walk.row * c.stride_height * band.pitch * kItem + walk.column() * step;
      const int pixels = c.output_width - walk.column();
      walk.advance();
      read_next();  // comes while this group is multiplied
      multiply_group(sums, gradients, places, place, step, pixels, t);
    }
  }

  __syncthreads();  // the band's memory is free
  // The warps' sums: (warps, taps, kChannels).
  float* const stack = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int i = 0; i < kTilesDown; ++i) {
#pragma unroll
    for (int d = 0; d < 4; ++d) {
      const int tap = i * 16 + g + d / 2 * 8;
      Vector<float, kTiles> values;
#pragma unroll
      for (int j = 0; j < kTiles; ++j) values.values[j] = sums[i][j][d];
      *reinterpret_cast<Vector<float, kTiles>*>(stack + (warp * kTaps + tap) * kChannels +
                                                (2 * t + d % 2) * kTiles) = values;
    }
  }
  __syncthreads();
  float* const target =
      gkernel + static_cast<int64_t>(blockIdx.x) * c.taps * c.output_channels + block_channel;
  const int width = layout.chunks * kChannels;
  for (int item = threadIdx.x; item < c.taps * width; item += kThreads) {
    const int tap = item / width, channel = item - tap * width;
    float sum = 0.0f;
    for (int w = channel / kChannels; w < kWarps; w += layout.chunks) {
      sum += stack[(w * kTaps + tap) * kChannels + channel % kChannels];
    }
    target[static_cast<int64_t>(tap) * c.output_channels + channel] = sum;
  }
}

// Bands of as many rows as leave each block several of them, and memory for the others on its
// multiprocessor.
int rows_of_band(const Conv& c, int64_t item) {
  const int64_t blocks = most_blocks(c, chunks_of_block(c));
  int rows = static_cast<int>(
      std::clamp<int64_t>(c.batch * c.output_height / (2 * blocks), 1, c.output_height));
  while (rows > 1 && Band(c, rows).bytes(item) > kUsualShared) --rows;
  return static_cast<int>(ceil_div(c.output_height, ceil_div(c.output_height, rows)));
}

Layout make_layout(const Conv& c, const Band& band) {
  Layout layout{};
  layout.chunks = chunks_of_block(c);
  layout.channel_blocks = c.output_channels / (kChannels * layout.chunks);
  layout.groups_across = static_cast<int>(ceil_div(c.output_width, kPixels));
  layout.bands = c.batch * band.bands_of_image;
  // All blocks have the same number of bands, or one less.
  const int64_t turns = ceil_div(layout.bands, most_blocks(c, layout.chunks));
  layout.blocks = static_cast<int>(ceil_div(layout.bands, turns));
  return layout;
}

bool fits(const Conv2DCall& call) {
  return suits_tiles(call) && call.geometry.num_taps() <= kMostTaps &&
         smallest_band_bytes(call) <= kMostShared;
}

template <typename T, int kTaps, bool kAnyActivation>
std::unique_ptr<Kernel> plan_forward_with(const Conv2DCall& call) {
  const Conv c(call.geometry);
  const Band band(c, rows_of_band(c, sizeof(T)));
  const Layout layout = make_layout(c, band);
  const dim3 grid(layout.blocks, layout.channel_blocks);
  const auto bytes = static_cast<size_t>(band.bytes(sizeof(T)));
  const bool has_bias = call.has_bias;
  const Ends<kAnyActivation> ends{call.activation.kind, static_cast<float>(call.activation.alpha)};
  return make_early_kernel("kerascnn conv2d_narrow", [=](const KernelArgs& args) {
    const auto stream = static_cast<cudaStream_t>(args.stream);
    conv_narrow_kernel<T, kTaps, kAnyActivation><<<grid, kThreads, bytes, stream>>>(
        input<T>(args, 0), input<T>(args, 1), has_bias ? input<T>(args, 2) : nullptr,
        output<T>(args, 0), c, band, layout, ends);
    check_launch("conv2d_narrow");
  });
}

template <typename T, int kTaps>
std::unique_ptr<Kernel> plan_forward(const Conv2DCall& call) {
  const Activation activation = call.activation.kind;
  const bool is_plain = activation == Activation::Linear || activation == Activation::Relu;
  return is_plain ? plan_forward_with<T, kTaps, false>(call)
                  : plan_forward_with<T, kTaps, true>(call);
}

template <typename T, int kTaps>
std::unique_ptr<Kernel> plan_wgrad(const Conv2DCall& call) {
  const Conv c(call.geometry);
  const Band band(c, rows_of_band(c, sizeof(T)));
  const Layout layout = make_layout(c, band);
  const dim3 grid(layout.blocks, layout.channel_blocks);
  constexpr int64_t kStackBytes = int64_t{kWarps} * kTaps * kChannels * sizeof(float);
  const auto bytes = static_cast<size_t>(std::max(band.bytes(sizeof(T)), kStackBytes));
  const int64_t size = num_elements(call.geometry.kernel_shape());
  return make_early_kernel(
      "kerascnn conv2d_wgrad_narrow",
      [=, dtype = call.dtype](const KernelArgs& args) {
        const auto stream = static_cast<cudaStream_t>(args.stream);
        wgrad_narrow_kernel<T, kTaps><<<grid, kThreads, bytes, stream>>>(
            input<T>(args, 0), input<T>(args, 1), static_cast<float*>(args.workspace), c, band,
            layout);
        check_launch("conv2d_wgrad_narrow");
        launch_sum_partials(dtype, args.workspace, args.outputs[0], layout.blocks, size, stream);
      },
      layout.blocks * size * static_cast<int64_t>(sizeof(float)));
}

}  // namespace

std::unique_ptr<Kernel> plan_conv2d_narrow(const Conv2DCall& call) {
  if (call.op == &op_conv2d_dgrad || !fits(call)) return nullptr;
  const auto plan = [&]<typename T, int kTaps>(Type<T>, std::integral_constant<int, kTaps>) {
    return call.op == &op_conv2d ? plan_forward<T, kTaps>(call) : plan_wgrad<T, kTaps>(call);
  };
  const auto plan_taps = [&]<typename T>(Type<T> type) {
    return call.geometry.num_taps() <= 16 ? plan(type, std::integral_constant<int, 16>())
                                          : plan(type, std::integral_constant<int, 32>());
  };
  if (call.dtype == DType::Float32) return plan_taps(Type<float>());
  if (call.dtype == DType::Float16) return plan_taps(Type<__half>());
  return plan_taps(Type<__nv_bfloat16>());
}

}  // namespace kerascnn::cuda
