// Convolutions of few input channels, as in a network's first layer, and the gradients of their
// kernels, on tensor cores. They have little arithmetic for what they read and write, so the loop
// is about memory: a block keeps a band of the input in shared memory and takes the patches from
// there, and the output, or its gradient, passes once between memory and registers, 16 bytes at a
// time.
//
// Both are products of 16 rows and 8 columns at a time. Forward its rows are pixels, its columns
// output channels, and it sums over taps; a gradient's rows are taps, and it sums over pixels.
// Which channel a column stands for is free: it is chosen so that a thread has neighbouring
// channels.
#include <type_traits>

#include "core/backend/cuda/convolution/band.cuh"
#include "core/backend/cuda/convolution/conv2d.h"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/elementwise/activation.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/products/partial_sums.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/tiles/numbers.cuh"

namespace kerascnn::cuda {
namespace {

constexpr int kWarps = kThreads / 32;
constexpr int kPixels = 16;            // of a group, neighbours in an output row
constexpr int kChannels = 32;          // output channels of a warp
constexpr int kTiles = kChannels / 8;  // of eight columns each
constexpr int kMostTaps = 32;
constexpr int64_t kMostShared = 48 << 10;  // what every GPU gives a block without being asked
constexpr int64_t kUsualShared = 24 << 10;
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
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int channel = first_channel + channel_of<kWide>(j, 2 * t + e);
      start[j][e] = bias != nullptr ? load(bias[channel]) : 0.0f;
    }
  }

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
          float wide[kWide];
#pragma unroll
          for (int e = 0; e < kWide; ++e) wide[e] = sums[j + e / 2][half * 2 + e % 2];
          ends.apply(wide);
          Vector<T, kWide> values;
#pragma unroll
          for (int e = 0; e < kWide; ++e) values.values[e] = store<T>(wide[e]);
          *reinterpret_cast<Vector<T, kWide>*>(target + channel_of<kWide>(j, 2 * t)) = values;
        }
      }
    }
  }
}

// The part of the output's gradient that a thread has of a group of pixels: neighbouring channels,
// one of each tile, of the pixels at its places in the depth of products.
template <typename T>
struct Gradients {
  Vector<T, kTiles> values[kPixels / kDepth<T>][2][kPack<T>];

  __device__ __forceinline__ void read(const T* __restrict__ gy, const Conv& c, int64_t line,
                                       int first_column, int first_channel, int t) {
#pragma unroll
    for (int s = 0; s < kPixels / kDepth<T>; ++s) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int e = 0; e < kPack<T>; ++e) {
          const int column = first_column + s * kDepth<T> + place_in_depth<T>(t, half) + e;
          if (column < c.output_width) {
            values[s][half][e] = *reinterpret_cast<const Vector<T, kTiles>*>(
                gy + (line * c.output_width + column) * c.output_channels + first_channel);
          } else {
#pragma unroll
            for (int j = 0; j < kTiles; ++j) values[s][half][e].values[j] = T(0.0f);
          }
        }
      }
    }
  }
};

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

  int offsets[kTilesDown]
             [2];  // of the taps that the thread reads; results behind the last are lost
#pragma unroll
  for (int i = 0; i < kTilesDown; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      offsets[i][half] = place_of_tap(c, band, min(i * 16 + half * 8 + g, c.taps - 1));
    }
  }
  float sums[kTilesDown][kTiles][4] = {};
  const int step = c.stride_width * c.input_channels;  // from one pixel's patch to the next
  for (int64_t b = blockIdx.x; b < layout.bands; b += layout.blocks) {
    const int64_t image = b / band.bands_of_image;
    const int first_row = static_cast<int>(b - image * band.bands_of_image) * band.rows;
    const int rows = min(band.rows, c.output_height - first_row);
    const int64_t first_line = image * c.output_height + first_row;
    Walk walk(layout, warp);
    Gradients<T> next;
    if (walk.row < rows) {
      next.read(gy, c, first_line + walk.row, walk.column(), first_channel, t);
    }
    __syncthreads();  // everybody has left the band before
    load_band(x, tile, c, band, image, first_row, [](T number) { return bits_of(number); });
    __syncthreads();
    while (walk.row < rows) {
      const Gradients<T> gradients = next;
      const Bits<T>* const line = tile + walk.row * c.stride_height * band.pitch;
      const int first_column = walk.column();
      walk.advance();
      if (walk.row < rows) {  // comes while this group is multiplied
        next.read(gy, c, first_line + walk.row, walk.column(), first_channel, t);
      }
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
            Bits<T> bits[kPack<T>];
#pragma unroll
            for (int e = 0; e < kPack<T>; ++e) {
              const int column = first_column + s * kDepth<T> + place_in_depth<T>(t, w / 2) + e;
              bits[e] =
                  column < c.output_width ? line[column * step + offsets[i][w % 2]] : Bits<T>(0);
            }
            a.words[w] = word_of(bits);
          }
#pragma unroll
          for (int j = 0; j < kTiles; ++j) Numbers<T>::multiply(sums[i][j], a, right[j]);
        }
      }
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

int chunks_of_block(const Conv& c) {
  int chunks = 1;
  while (chunks < kWarps && c.output_channels / kChannels % (2 * chunks) == 0) chunks *= 2;
  return chunks;
}

int channel_blocks(const Conv& c) { return c.output_channels / (kChannels * chunks_of_block(c)); }

// How many blocks may share the bands, so that all run at once.
int64_t most_blocks(const Conv& c) {
  const int64_t blocks = int64_t{kBlocksPerMultiprocessor} * Context::current().multiprocessors();
  return std::max<int64_t>(1, blocks / channel_blocks(c));
}

// Bands of as many rows as leave each block several of them, and memory for the others on its
// multiprocessor.
int rows_of_band(const Conv& c, int64_t item) {
  const int64_t blocks = most_blocks(c);
  int rows = static_cast<int>(
      std::clamp<int64_t>(c.batch * c.output_height / (2 * blocks), 1, c.output_height));
  while (rows > 1 && Band(c, rows).bytes(item) > kUsualShared) --rows;
  return static_cast<int>(ceil_div(c.output_height, ceil_div(c.output_height, rows)));
}

Layout make_layout(const Conv& c, const Band& band) {
  Layout layout{};
  layout.chunks = chunks_of_block(c);
  layout.channel_blocks = channel_blocks(c);
  layout.groups_across = static_cast<int>(ceil_div(c.output_width, kPixels));
  layout.bands = c.batch * band.bands_of_image;
  // All blocks have the same number of bands, or one less.
  const int64_t turns = ceil_div(layout.bands, most_blocks(c));
  layout.blocks = static_cast<int>(ceil_div(layout.bands, turns));
  return layout;
}

bool fits(const Conv2DCall& call) {
  const Conv2DGeometry& g = call.geometry;
  const bool in_tensor_cores = call.dtype == DType::Float32
                                   ? call.allow_tf32
                                   : call.dtype == DType::Float16 || call.dtype == DType::BFloat16;
  if (!in_tensor_cores || g.groups != 1 || g.num_taps() > kMostTaps ||
      g.output_channels % kChannels != 0 || g.output_channels > 65535 ||
      Context::current().compute_capability() < 80) {
    return false;
  }
  // The smallest band, in 64 bits as a row may be long.
  const int64_t columns =
      (g.output_width - 1) * g.stride_width + (g.kernel_width - 1) * g.dilation_width + 1;
  const int64_t rows = (g.kernel_height - 1) * g.dilation_height + 1;
  const auto item = static_cast<int64_t>(itemsize(call.dtype));
  return rows * columns * g.input_channels * item <= kMostShared;
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
