// Few input channels, float32, for many images: as conv2d_max_pool2d_small.cu, but a thread keeps
// the weights of its output channels in registers and goes from cell to cell with them, and a block
// from image to image, with the next one on its way to shared memory. Sums are added up in the same
// order: the results have the same bits.
#include "core/backend/cuda/convolution/conv2d_max_pool2d.h"
#include "core/backend/cuda/convolution/conv_pool.cuh"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/context.h"

namespace kerascnn::cuda {
namespace {

constexpr int64_t kMaxShared = 48 << 10;  // what every GPU gives a block without being asked
constexpr int kMaxImages = 8;             // of an item
constexpr int kSlots = 2;                 // one is read, one filled

// A block's piece of work is an item: a band of rows of an image, or some whole images.
struct Items {
  int cell_rows, bands_per_image;
  int rows, columns;  // of the input under them, padding included; pairs of columns are whole
  int images;         // of an item
  int count;
  int cells_together;  // that a block's threads work on at once

  __host__ __device__ int plane() const { return rows * columns; }
};

// Starts to copy an item's input to shared memory as (images, channels, rows, columns).
template <int kChannels>
__device__ __forceinline__ void start_item(const float* __restrict__ x, float* slot,
                                           const ConvPool& c, const Items& items, int item) {
  if (item < items.count) {
    const int group = item / items.bands_per_image;
    const int band = item - group * items.bands_per_image;
    const int first = group * items.images;
    const int row_floats = c.input_width * kChannels;
    for (int i = 0; i < min(items.images, c.batch - first); ++i) {
      const float* image = x + static_cast<int64_t>(first + i) * c.input_height * row_floats;
      float* to = slot + i * kChannels * items.plane();
      start_rows(static_cast<int>(threadIdx.x), kThreads, items.rows, items.columns * kChannels,
                 [&](int place) {
                   const int column = place / kChannels, channel = place % kChannels;
                   const int from = column - c.pad_left;
                   const bool inside =
                       static_cast<unsigned>(from) < static_cast<unsigned>(c.input_width);
                   return RawColumn<1>{inside ? image + from * kChannels + channel : image,
                                       to + channel * items.plane() + column,
                                       row_floats,
                                       items.columns,
                                       2 * band * items.cell_rows - c.pad_top,
                                       c.input_height,
                                       inside ? 1 : 0};
                 });
    }
  }
  commit_copies();
}

// The results of a cell's four pixels for N output channels.
template <int kKernel, int kChannels, int N>
__device__ __forceinline__ void multiply_cell(
    const float* source, int plane, int columns,
    const float (&weights)[kKernel * kKernel * kChannels][N], float (&sums)[4][N]) {
#pragma unroll
  for (int q = 0; q < kChannels; ++q) {
    float patch[kKernel + 1][kKernel + 1];
#pragma unroll
    for (int r = 0; r <= kKernel; ++r) {
#pragma unroll
      for (int s = 0; s <= kKernel; s += 2) {
        const float2 v = *reinterpret_cast<const float2*>(source + q * plane + r * columns + s);
        patch[r][s] = v.x;
        patch[r][s + 1] = v.y;
      }
    }
#pragma unroll
    for (int r = 0; r < kKernel; ++r) {
#pragma unroll
      for (int s = 0; s < kKernel; ++s) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const float w = weights[(r * kKernel + s) * kChannels + q][k];
          sums[0][k] += patch[r][s] * w;
          sums[1][k] += patch[r][s + 1] * w;
          sums[2][k] += patch[r + 1][s] * w;
          sums[3][k] += patch[r + 1][s + 1] * w;
        }
      }
    }
  }
}

// Blocks that share a multiprocessor: as many as `weights` for each thread leave registers for.
constexpr int blocks_together(int weights, bool has_index) {
  if (weights > 60) return 1;
  return weights > 40 || has_index ? 2 : 3;
}

template <int kKernel, int kChannels, int N, bool kSimple, bool kIndex>
__global__ void __launch_bounds__(kThreads,
                                  blocks_together(kKernel * kKernel * kChannels * N, kIndex))
    conv_pool_small_many_kernel(const float* __restrict__ x, const float* __restrict__ kernel,
                                const float* __restrict__ bias, float* __restrict__ y,
                                uint8_t* __restrict__ index, const __grid_constant__ ConvPool c,
                                const __grid_constant__ Items items, uint32_t settled) {
  extern __shared__ __align__(32) float shared[];
  constexpr int kTaps = kKernel * kKernel * kChannels;
  const int image_floats = kChannels * items.plane();
  const int slot_floats = items.images * image_floats;
  const int image_cells = items.cell_rows * c.pooled_width;
  int* sources = reinterpret_cast<int*>(shared + kSlots * slot_floats);  // of an item's cells
  for (int i = threadIdx.x; i < items.images * image_cells; i += kThreads) {
    const int image = i / image_cells, rest = i - image * image_cells;
    const int row = rest / c.pooled_width, column = rest - row * c.pooled_width;
    sources[i] = image * image_floats + 2 * row * items.columns + 2 * column;
  }
  const int groups = c.output_channels / N;
  const int first_cell = static_cast<int>(threadIdx.x) / groups;
  const int channel = (static_cast<int>(threadIdx.x) - first_cell * groups) * N;
  const bool works = first_cell < items.cells_together;
  int item = static_cast<int>(blockIdx.x);
  Vector<float, N> of_tap;
  float weights[kTaps][N] = {}, start[N] = {};
  begin_kernel(
      settled,
      [&] {
#pragma unroll
        for (int t = 0; t < kTaps; ++t) {
          of_tap =
              *reinterpret_cast<const Vector<float, N>*>(kernel + t * c.output_channels + channel);
#pragma unroll
          for (int k = 0; k < N; ++k) weights[t][k] = of_tap.values[k];
        }
#pragma unroll
        for (int k = 0; k < N; ++k) start[k] = bias != nullptr ? bias[channel + k] : 0.0f;
      },
      [&] { start_item<kChannels>(x, shared, c, items, item); });

  for (int slot = 0; item < items.count; item += static_cast<int>(gridDim.x), slot ^= 1) {
    // Everybody's copies have come, and everybody has left the other slot.
    wait_for_copies<0>();
    __syncthreads();
    start_item<kChannels>(x, shared + (slot ^ 1) * slot_floats, c, items,
                          item + static_cast<int>(gridDim.x));
    if (!works) continue;
    const int group = item / items.bands_per_image;
    const int image = group * items.images;
    const int row = (item - group * items.bands_per_image) * items.cell_rows;
    const int cells = min(items.images, c.batch - image) *
                      min(items.cell_rows, c.pooled_height - row) * c.pooled_width;
    const int64_t first_pixel =
        (static_cast<int64_t>(image) * c.pooled_height + row) * c.pooled_width;
    for (int cell = first_cell; cell < cells; cell += items.cells_together) {
      float sums[4][N];
#pragma unroll
      for (int p = 0; p < 4; ++p) {
#pragma unroll
        for (int k = 0; k < N; ++k) sums[p][k] = start[k];
      }
      multiply_cell<kKernel, kChannels, N>(shared + slot * slot_floats + sources[cell],
                                           items.plane(), items.columns, weights, sums);
      const int64_t at = (first_pixel + cell) * c.output_channels + channel;
      Vector<float, N> values;
      if constexpr (kSimple && !kIndex) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          values.values[k] =
              activate_maximum(c, largest_of_four(sums[0][k], sums[1][k], sums[2][k], sums[3][k]));
        }
      } else {
        Vector<uint8_t, N> positions;
        find_maxima<kSimple>(c, sums, values, positions);
        if (index != nullptr) *reinterpret_cast<Vector<uint8_t, N>*>(index + at) = positions;
      }
      *reinterpret_cast<Vector<float, N>*>(y + at) = values;
    }
  }
}

// The share of a block's threads that have a cell to work on.
double share_of_threads(int cells, int cells_together) {
  const auto turns = static_cast<double>(ceil_div(cells, cells_together));
  return cells / (turns * cells_together);
}

int64_t shared_bytes(const ConvPool& c, const Items& items) {
  return int64_t{items.images} * sizeof(float) *
         (int64_t{kSlots} * c.input_channels * items.plane() +
          int64_t{items.cell_rows} * c.pooled_width);
}

// Takes as many rows of an image as fit, or several images where that leaves fewer threads without
// work. False where not even one row fits, or the batch is so small that blocks would do little but
// load weights.
bool find_items(const ConvPool& c, int kernel, int channels_of_thread, Items* found) {
  const int64_t wanted = int64_t{3} * Context::current().multiprocessors();
  for (int cell_rows = c.pooled_height; cell_rows >= 1; cell_rows /= 2) {
    Items items{};
    items.cell_rows = cell_rows;
    items.bands_per_image = static_cast<int>(ceil_div(c.pooled_height, cell_rows));
    items.rows = 2 * cell_rows + kernel - 1;
    items.columns = 2 * c.pooled_width + kernel - 1;  // an even number, as kernels are odd
    items.images = 1;
    items.cells_together = kThreads / (c.output_channels / channels_of_thread);
    if (shared_bytes(c, items) > kMaxShared) continue;
    if (items.cells_together == 0 || int64_t{c.batch} * items.bands_per_image < wanted) {
      return false;
    }
    *found = items;
    const int cells = cell_rows * c.pooled_width;
    for (int images = 2; images <= kMaxImages && items.bands_per_image == 1; ++images) {
      items.images = images;
      if (shared_bytes(c, items) > kMaxShared || c.batch / images < wanted) break;
      if (share_of_threads(images * cells, items.cells_together) >
          share_of_threads(found->images * cells, items.cells_together)) {
        *found = items;
      }
    }
    found->count =
        static_cast<int>(ceil_div(c.batch, found->images) * int64_t{found->bands_per_image});
    return true;
  }
  return false;
}

template <int kKernel, int kChannels, int N, bool kSimple>
std::unique_ptr<Kernel> plan_kernel(const ConvPoolCall& call) {
  const ConvPool c(call.geometry);
  Items items{};
  if (!find_items(c, kKernel, N, &items)) return nullptr;
  const auto bytes = static_cast<size_t>(shared_bytes(c, items));
  const auto kernel = conv_pool_small_many_kernel<kKernel, kChannels, N, kSimple, true>;
  // For calls that don't ask for the positions of maxima, as in prediction.
  const auto values_only = conv_pool_small_many_kernel<kKernel, kChannels, N, kSimple, !kSimple>;
  const auto blocks_of = [&](auto* function) {
    int together = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&together, function, kThreads, bytes),
          "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    return static_cast<unsigned>(
        std::min<int64_t>(items.count, int64_t{together} * Context::current().multiprocessors()));
  };
  const unsigned blocks = blocks_of(kernel), blocks_without_index = blocks_of(values_only);
  const bool has_bias = call.has_bias;
  return make_early_kernel("kerascnn conv2d_max_pool2d_small_many", [=](const KernelArgs& args) {
    const uint32_t settled =
        has_bias ? settled_loads(args, {{1, 2}, {0}}) : settled_loads(args, {{1}, {0}});
    const bool has_index = args.outputs[1] != nullptr;
    const auto launched = has_index ? kernel : values_only;
    launched<<<has_index ? blocks : blocks_without_index, kThreads, bytes,
               static_cast<cudaStream_t>(args.stream)>>>(
        input<float>(args, 0), input<float>(args, 1), has_bias ? input<float>(args, 2) : nullptr,
        output<float>(args, 0), output<uint8_t>(args, 1), c, items, settled);
    check_launch("conv2d_max_pool2d_small_many");
  });
}

template <int kKernel, int kChannels, int N>
std::unique_ptr<Kernel> plan_activation(const ConvPoolCall& call) {
  return is_simple(call.geometry.activation.kind) ? plan_kernel<kKernel, kChannels, N, true>(call)
                                                  : plan_kernel<kKernel, kChannels, N, false>(call);
}

// A thread takes as many output channels as its registers hold weights for, about 60.
template <int kKernel, int kChannels>
std::unique_ptr<Kernel> plan_width(const ConvPoolCall& call) {
  constexpr int kTaps = kKernel * kKernel * kChannels;
  const int64_t channels = call.geometry.conv.output_channels;
  if constexpr (kTaps * 4 <= 60) {
    if (channels % 4 == 0) return plan_activation<kKernel, kChannels, 4>(call);
  }
  if constexpr (kTaps * 2 <= 60) {
    if (channels % 2 == 0) return plan_activation<kKernel, kChannels, 2>(call);
  }
  return plan_activation<kKernel, kChannels, 1>(call);
}

template <int kKernel>
std::unique_ptr<Kernel> plan_channels(const ConvPoolCall& call) {
  switch (call.geometry.conv.input_channels) {
    case 1:
      return plan_width<kKernel, 1>(call);
    case 2:
      return plan_width<kKernel, 2>(call);
    case 3:
      return plan_width<kKernel, 3>(call);
    default:
      return nullptr;
  }
}

}  // namespace

std::unique_ptr<Kernel> plan_conv_pool_small_many(const ConvPoolCall& call) {
  if (!is_plain_conv_pool(call) || Context::current().compute_capability() < 80) return nullptr;
  return call.geometry.conv.kernel_height == 3 ? plan_channels<3>(call) : plan_channels<5>(call);
}

}  // namespace kerascnn::cuda
