// Forward and data gradient on tensor cores. Both make the results of a block's cells (2 x 2 pixels
// of the convolution's output, or of the input's gradient) from a band of the source in shared
// memory: one wait for memory, then products only.
//
// A warp takes 8 cells, which are the 32 rows of its products: row 8 * p + g is pixel p of cell g.
// So each thread holds all four pixels of its cell, and a patch of the source that it has read
// serves every tap and pixel that needs it.
#include "core/backend/cuda/conv2d_max_pool2d.h"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/conv_pool.cuh"
#include "core/backend/cuda/device/tf32.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/shared_memory.h"

namespace kerascnn::cuda {
namespace {

constexpr int kCellsPerWarp = 8;
constexpr int kMinThreads = 256;  // some may have nothing to do but to load
constexpr int kMaxThreads = 512;
constexpr int kMaxWarpsCells = 8;

// The cells of a block and the source under them, in shared memory.
struct Tiles {
  int cell_rows, cell_columns;  // of a block
  int bands_per_image;
  int rows, columns;  // of the source, padding included
  int channels;       // of the source, rounded up to a multiple of 8
  int pixel;          // floats from one pixel of the source to the next
  int warps_cells;    // warps that take different cells
  int warps_deep;     // warps that take different channels of the same cells

  Tiles(int cells_down, int cells_across, int kernel, int source_channels, int cell_rows)
      : cell_rows(cell_rows),
        cell_columns(cells_across),
        bands_per_image((cells_down + cell_rows - 1) / cell_rows),
        rows(2 * cell_rows + kernel - 1),
        columns(2 * cells_across + kernel - 1),
        channels((source_channels + 7) / 8 * 8),
        // The 8 cells of a fragment are two pixels apart: their banks differ by multiples of 4.
        pixel(channels + 2),
        warps_cells(std::min((cell_rows * cells_across + kCellsPerWarp - 1) / kCellsPerWarp,
                             kMaxWarpsCells)),
        warps_deep(1) {}

  // Few warps can't hide the latency of shared memory and of the tensor cores.
  void share_channels(int max_warps) {
    if (cell_rows * cell_columns > kMaxWarpsCells * kCellsPerWarp) return;
    while (warps_deep * 2 * 8 <= channels && warps_deep * 2 * warps_cells <= max_warps) {
      warps_deep *= 2;
    }
  }

  __host__ __device__ int64_t source_floats() const { return int64_t{rows} * columns * pixel; }
};

// Rows of the weights in shared memory: lanes read 4 rows of 8 columns, which fall into 32 banks.
template <int kColumns>
constexpr int kWeightRow = kColumns % 16 == 0 ? kColumns + 8 : kColumns;

// sums[h][j] += pixels 2h (rows g) and 2h + 1 (rows g + 8) of the warp's cells, columns 8j.. of the
// weights, summed over 8 channels at first_depth, first_depth + depth_step, ... `source` is at the
// thread's cell and channel `member`, `weights` (taps, channels, columns) at row `member` and
// column `group`.
template <int kKernel, int kTiles>
__device__ __forceinline__ void multiply_cells(const float* source, const float* weights,
                                               const Tiles& t, int first_depth, int depth_step,
                                               float (&sums)[2][kTiles][4]) {
  constexpr int kRow = kWeightRow<kTiles * 8>;
  const int row_pitch = t.columns * t.pixel;
  const int tap_pitch = t.channels * kRow;
  for (int depth = first_depth; depth < t.channels; depth += depth_step) {
    uint32_t patch[2][kKernel + 1][2];  // two rows of the source, the older one replaced in turn
    auto load_row = [&](int r) {
#pragma unroll
      for (int s = 0; s <= kKernel; ++s) {
        const float* from = source + r * row_pitch + s * t.pixel + depth;
        patch[r % 2][s][0] = bits(from[0]);
        patch[r % 2][s][1] = bits(from[4]);
      }
    };
    load_row(0);
#pragma unroll
    for (int r = 0; r < kKernel; ++r) {
      load_row(r + 1);
#pragma unroll
      for (int s = 0; s < kKernel; ++s) {
        const float* tap = weights + (r * kKernel + s) * tap_pitch + depth * kRow;
        uint32_t b[kTiles][2];
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          b[j][0] = bits(tap[j * 8]);
          b[j][1] = bits(tap[4 * kRow + j * 8]);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const auto& left = patch[(r + h) % 2][s];
          const auto& right = patch[(r + h) % 2][s + 1];
          const uint32_t a[4] = {left[0], right[0], left[1], right[1]};
#pragma unroll
          for (int j = 0; j < kTiles; ++j) multiply_tf32(sums[h][j], a, b[j]);
        }
      }
    }
  }
}

// The input under a block's cells, zeros for the padding.
__device__ __forceinline__ void load_input(const float* x, float* tile, const ConvPool& c,
                                           const Tiles& t, int n, int first_cell_row) {
  const int top = 2 * first_cell_row - c.pad_top;
  const int chunks = t.channels / 4;
  copy_rows<8>(
      t.rows, t.columns * chunks,
      [&](int row, int item) {
        return load_padded(x, c, n, top + row, item / chunks - c.pad_left, item % chunks * 4);
      },
      [&](int row, int item, float4 v) {
        auto* to = reinterpret_cast<float2*>(tile + (row * t.columns + item / chunks) * t.pixel +
                                             item % chunks * 4);
        to[0] = {unbiased_tf32(v.x), unbiased_tf32(v.y)};
        to[1] = {unbiased_tf32(v.z), unbiased_tf32(v.w)};
      });
}

// Output channels first_column.. of the kernel as (taps, input channels, columns).
template <int kColumns>
__device__ __forceinline__ void load_weights(const float* kernel, float* weights, const ConvPool& c,
                                             const Tiles& t, int taps, int first_column) {
  constexpr int kRow = kWeightRow<kColumns>;
  constexpr int kChunks = kColumns / 4;
  const auto store = [&](int row, int chunk, float4 v) {
    *reinterpret_cast<float4*>(weights + row * kRow + chunk * 4) = {
        unbiased_tf32(v.x), unbiased_tf32(v.y), unbiased_tf32(v.z), unbiased_tf32(v.w)};
  };
  const auto load = [&](int row, int chunk) {
    const int column = first_column + chunk * 4;
    if (column >= c.output_channels) return float4{};
    return __ldg(reinterpret_cast<const float4*>(kernel + row * c.output_channels + column));
  };
  if (t.channels == c.input_channels) {
    copy_rows<8>(taps * t.channels, kChunks, load, store);
    return;
  }
  copy_rows<8>(
      taps, t.channels * kChunks,
      [&](int tap, int item) {
        const int channel = item / kChunks;
        if (channel >= c.input_channels) return float4{};
        return load(tap * c.input_channels + channel, item % kChunks);
      },
      [&](int tap, int item, float4 v) {
        store(tap * t.channels + item / kChunks, item % kChunks, v);
      });
}

// Input channels first_column.. of the kernel, turned by 180 degrees, as (taps, output channels,
// columns). Up to 8 lanes read neighbouring output channels of an input channel. Each starts with
// another of its four, so that few of them write to one bank.
template <int kColumns>
__device__ __forceinline__ void load_turned_weights(const float* kernel, float* weights,
                                                    const ConvPool& c, const Tiles& t, int taps,
                                                    int first_column) {
  constexpr int kRow = kWeightRow<kColumns>;
  const int chunks = t.channels / 4;
  copy_rows<9>(
      taps, chunks * kColumns,
      [&](int tap, int item) {
        const int column = first_column + item / chunks;
        const int channel = item % chunks * 4;
        if (channel >= c.output_channels || column >= c.input_channels) return float4{};
        return __ldg(reinterpret_cast<const float4*>(
            kernel + (tap * c.input_channels + column) * c.output_channels + channel));
      },
      [&](int tap, int item, float4 v) {
        const int chunk = item % chunks;
        float* to = weights + ((taps - 1 - tap) * t.channels + chunk * 4) * kRow + item / chunks;
        if (chunk & 1) v = {v.y, v.z, v.w, v.x};
        if (chunk & 2) v = {v.z, v.w, v.x, v.y};
        to[(chunk & 3) * kRow] = unbiased_tf32(v.x);
        to[((chunk + 1) & 3) * kRow] = unbiased_tf32(v.y);
        to[((chunk + 2) & 3) * kRow] = unbiased_tf32(v.z);
        to[((chunk + 3) & 3) * kRow] = unbiased_tf32(v.w);
      });
}

__device__ __forceinline__ void clear_tile(float* tile, const Tiles& t) {
  const int floats = static_cast<int>(t.source_floats());
  for (int i = threadIdx.x; i < floats / 2; i += blockDim.x) {
    reinterpret_cast<float2*>(tile)[i] = {0.0f, 0.0f};
  }
}

// The gradient of the convolution's output under a block's cells of the input's gradient: each
// pooled gradient where its maximum was, in a tile of zeros. `pad_top` and `pad_left` are those of
// the turned convolution.
template <bool kSimple>
__device__ __forceinline__ void spread_gradient(const float* gy, const float* y,
                                                const uint8_t* index, float* tile,
                                                const ConvPool& c, const Tiles& t, int n,
                                                int first_cell_row, int pad_top, int pad_left) {
  const int top = 2 * first_cell_row - pad_top;  // row of the convolution's output
  const int first = max(top, 0) / 2;
  const int last = min((top + t.rows - 1) / 2, c.pooled_height - 1);
  const int chunks = c.output_channels / 4;
  copy_rows<4>(
      last - first + 1, c.pooled_width * chunks,
      [&](int row, int item) {
        const int64_t row_start = (static_cast<int64_t>(n) * c.pooled_height + first + row) *
                                  c.pooled_width * c.output_channels;
        return load_gradient<kSimple>(gy, y, index, row_start + item * 4, c);
      },
      [&](int row, int item, const PooledGradient& gradient) {
        const int window_row = 2 * (first + row) - top;
        const int column = 2 * (item / chunks) + pad_left;
        float* to = tile + column * t.pixel + item % chunks * 4;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int r = window_row + (gradient.positions[k] >> 1);
          if (static_cast<unsigned>(r) >= static_cast<unsigned>(t.rows)) continue;
          to[(r * t.columns + (gradient.positions[k] & 1)) * t.pixel + k] =
              unbiased_tf32(gradient.values[k]);
        }
      });
}

// What a thread works on: a cell of the block, or none.
struct ThreadCell {
  int row, column;  // in cells, from the block's first row
  bool valid;

  __device__ __forceinline__ ThreadCell(const Tiles& t, int number, int rows) {
    valid = number < rows * t.cell_columns;
    row = valid ? number / t.cell_columns : 0;
    column = valid ? number - row * t.cell_columns : 0;
  }
};

// Adds up the sums of the warps that took different channels of the same cells, always in the same
// order; the first of them has the result. Everybody must be done with shared memory's contents.
template <int kTiles>
__device__ __forceinline__ void add_warps(float* shared, const Tiles& t, int warp_cells,
                                          int warp_deep, float (&sums)[2][kTiles][4]) {
  constexpr int kSums = 2 * kTiles * 4;
  if (t.warps_deep == 1) return;
  const int lane = threadIdx.x % 32;
  __syncthreads();
  if (warp_deep > 0 && warp_deep < t.warps_deep) {
    float* to = shared + ((warp_deep - 1) * t.warps_cells + warp_cells) * kSums * 32 + lane;
#pragma unroll
    for (int i = 0; i < kSums; ++i) to[i * 32] = sums[i / (kTiles * 4)][i / 4 % kTiles][i % 4];
  }
  __syncthreads();
  if (warp_deep > 0) return;
  for (int deep = 1; deep < t.warps_deep; ++deep) {
    const float* from = shared + ((deep - 1) * t.warps_cells + warp_cells) * kSums * 32 + lane;
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i / (kTiles * 4)][i / 4 % kTiles][i % 4] += from[i * 32];
  }
}

// Calls finish(cell, sums) with what the warps have computed for each cell of the block.
template <int kKernel, int kTiles, typename Finish>
__device__ __forceinline__ void multiply_block(float* shared, const float* tile,
                                               const float* weights, const Tiles& t, int rows,
                                               Finish finish) {
  const int lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  const int warp = threadIdx.x / 32;
  const int warp_cells = warp % t.warps_cells, warp_deep = warp / t.warps_cells;
  if (warp_deep > 0 && t.warps_deep == 1) return;  // came only to load
  // More than one turn only where warps_deep is 1.
  for (int first = warp_cells * kCellsPerWarp; first < rows * t.cell_columns || t.warps_deep > 1;
       first += t.warps_cells * kCellsPerWarp) {
    const ThreadCell cell(t, first + group, rows);
    const float* source = tile + (2 * cell.row * t.columns + 2 * cell.column) * t.pixel + member;
    float sums[2][kTiles][4] = {};
    // Others came only to load.
    if (warp_deep < t.warps_deep)
      multiply_cells<kKernel, kTiles>(source, weights + member * kWeightRow<kTiles * 8> + group, t,
                                      warp_deep * 8, t.warps_deep * 8, sums);
    add_warps<kTiles>(shared, t, warp_cells, warp_deep, sums);
    if (cell.valid && warp_deep == 0) finish(cell, sums);
    if (t.warps_deep > 1) return;
  }
}

template <int kKernel, int kTiles, bool kSimple>
__global__ void __launch_bounds__(kMaxThreads)
    conv_pool_tf32_kernel(const float* __restrict__ x, const float* __restrict__ kernel,
                          const float* __restrict__ bias, float* __restrict__ y,
                          uint8_t* __restrict__ index, ConvPool c, Tiles t, uint32_t settled) {
  extern __shared__ __align__(32) float shared[];
  constexpr int kTaps = kKernel * kKernel;
  float* weights = shared;
  float* tile = weights + kTaps * t.channels * kWeightRow<kTiles * 8>;
  const int n = blockIdx.x / t.bands_per_image;
  const int first_row = static_cast<int>(blockIdx.x) % t.bands_per_image * t.cell_rows;
  const int first_column = blockIdx.y * kTiles * 8;
  begin_kernel(
      settled, [&] { load_weights<kTiles * 8>(kernel, weights, c, t, kTaps, first_column); },
      [&] { load_input(x, tile, c, t, n, first_row); });
  __syncthreads();

  const int rows = min(t.cell_rows, c.pooled_height - first_row);
  const int member = threadIdx.x % 4;
  multiply_block<kKernel, kTiles>(
      shared, tile, weights, t, rows, [&](const ThreadCell& cell, auto& sums) {
        const int64_t pixel =
            (static_cast<int64_t>(n) * c.pooled_height + first_row + cell.row) * c.pooled_width +
            cell.column;
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          const int channel = first_column + j * 8 + 2 * member;
          if (channel >= c.output_channels) continue;  // a multiple of 4: both or neither
          Vector<float, 2> values;
          Vector<uint8_t, 2> positions;
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            const float start = bias != nullptr ? bias[channel + k] : 0.0f;
            const auto result = [&](int half, int element) {
              return activate_pixel<kSimple>(c, sums[half][j][element] + start);
            };
            Maximum2x2 maximum(result(0, k));
            maximum.add(result(0, 2 + k), 1);
            maximum.add(result(1, k), 2);
            maximum.add(result(1, 2 + k), 3);
            values.values[k] = maximum.value;
            positions.values[k] = maximum.position;
          }
          const int64_t at = pixel * c.output_channels + channel;
          *reinterpret_cast<Vector<float, 2>*>(y + at) = values;
          if (index != nullptr) *reinterpret_cast<Vector<uint8_t, 2>*>(index + at) = positions;
        }
      });
}

template <int kKernel, int kTiles, bool kSimple>
__global__ void __launch_bounds__(kMaxThreads)
    conv_pool_dgrad_tf32_kernel(const float* __restrict__ gy, const float* __restrict__ y,
                                const uint8_t* __restrict__ index, const float* __restrict__ kernel,
                                float* __restrict__ gx, ConvPool c, Tiles t, uint32_t settled) {
  extern __shared__ __align__(32) float shared[];
  constexpr int kTaps = kKernel * kKernel;
  float* weights = shared;
  float* tile = weights + kTaps * t.channels * kWeightRow<kTiles * 8>;
  const int n = blockIdx.x / t.bands_per_image;
  const int first_row = static_cast<int>(blockIdx.x) % t.bands_per_image * t.cell_rows;
  const int first_column = blockIdx.y * kTiles * 8;
  clear_tile(tile, t);
  begin_kernel(settled, [&] {
    load_turned_weights<kTiles * 8>(kernel, weights, c, t, kTaps, first_column);
  });
  __syncthreads();
  spread_gradient<kSimple>(gy, y, index, tile, c, t, n, first_row, kKernel - 1 - c.pad_top,
                           kKernel - 1 - c.pad_left);
  __syncthreads();

  const int rows = min(t.cell_rows, (c.input_height + 1) / 2 - first_row);
  const int member = threadIdx.x % 4;
  multiply_block<kKernel, kTiles>(
      shared, tile, weights, t, rows, [&](const ThreadCell& cell, auto& sums) {
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          const int row = 2 * (first_row + cell.row) + p / 2;
          const int column = 2 * cell.column + p % 2;
          if (row >= c.input_height || column >= c.input_width) continue;
          const int64_t pixel =
              (static_cast<int64_t>(n) * c.input_height + row) * c.input_width + column;
#pragma unroll
          for (int j = 0; j < kTiles; ++j) {
            const int channel = first_column + j * 8 + 2 * member;
            if (channel >= c.input_channels) continue;  // an even number: both or neither
            *reinterpret_cast<float2*>(gx + pixel * c.input_channels + channel) = {
                sums[p / 2][j][p % 2 * 2], sums[p / 2][j][p % 2 * 2 + 1]};
          }
        }
      });
}

struct Layout {
  Tiles tiles;
  dim3 grid;
  unsigned threads;
  size_t bytes;
};

// As many cells for a block as fit and leave work for all multiprocessors. False where not even one
// row of cells fits.
bool find_layout(const ConvPool& c, int kernel, int cells_down, int cells_across,
                 int source_channels, int columns, int blocks_across, Layout* layout) {
  const int weight_row = columns % 16 == 0 ? columns + 8 : columns;
  const int64_t most = Context::current().properties().sharedMemPerBlockOptin;
  const int wanted_blocks = Context::current().multiprocessors() * 3 / 4;
  for (int cell_rows = cells_down; cell_rows >= 1; cell_rows = (cell_rows + 1) / 2) {
    Tiles t(cells_down, cells_across, kernel, source_channels, cell_rows);
    const int64_t blocks = int64_t{c.batch} * t.bands_per_image;
    // One large block for each multiprocessor, or several smaller ones.
    const bool alone = blocks * blocks_across <= Context::current().multiprocessors();
    t.share_channels((alone ? kMaxThreads : kMaxThreads / 2) / 32);
    const int64_t floats = int64_t{kernel} * kernel * t.channels * weight_row + t.source_floats();
    const int64_t sums = int64_t{t.warps_deep - 1} * t.warps_cells * 32 * columns;
    const int64_t bytes = std::max(floats, sums) * int64_t{sizeof(float)};
    const bool enough = blocks * blocks_across >= wanted_blocks;
    if (bytes <= most && (enough || cell_rows == 1)) {
      *layout = {
          t, dim3(static_cast<unsigned>(blocks), blocks_across),
          static_cast<unsigned>(alone ? kMaxThreads
                                      : std::max(t.warps_cells * t.warps_deep * 32, kMinThreads)),
          static_cast<size_t>(bytes)};
      return true;
    }
    if (cell_rows == 1) break;
  }
  return false;
}

template <int kKernel, int kTiles>
std::unique_ptr<Kernel> plan_forward(const ConvPoolCall& call) {
  const ConvPool c(call.geometry);
  Layout layout{Tiles(1, 1, 1, 8, 1), dim3(), 0, 0};
  const int blocks_across = static_cast<int>(ceil_div(c.output_channels, kTiles * 8));
  if (!find_layout(c, kKernel, c.pooled_height, c.pooled_width, c.input_channels, kTiles * 8,
                   blocks_across, &layout)) {
    return nullptr;
  }
  const auto kernel = is_simple(c.activation) ? conv_pool_tf32_kernel<kKernel, kTiles, true>
                                              : conv_pool_tf32_kernel<kKernel, kTiles, false>;
  allow_most_shared_memory(kernel);
  const bool has_bias = call.has_bias;
  return make_early_kernel("kerascnn conv2d_max_pool2d_tf32", [=](const KernelArgs& args) {
    kernel<<<layout.grid, layout.threads, layout.bytes, static_cast<cudaStream_t>(args.stream)>>>(
        input<float>(args, 0), input<float>(args, 1), has_bias ? input<float>(args, 2) : nullptr,
        output<float>(args, 0), output<uint8_t>(args, 1), c, layout.tiles,
        settled_loads(args, {1, 0}));
    check_launch("conv2d_max_pool2d_tf32");
  });
}

template <int kKernel, int kTiles>
std::unique_ptr<Kernel> plan_dgrad(const ConvPoolCall& call) {
  const ConvPool c(call.geometry);
  Layout layout{Tiles(1, 1, 1, 8, 1), dim3(), 0, 0};
  const int blocks_across = static_cast<int>(ceil_div(c.input_channels, kTiles * 8));
  if (!find_layout(c, kKernel, (c.input_height + 1) / 2, (c.input_width + 1) / 2, c.output_channels,
                   kTiles * 8, blocks_across, &layout)) {
    return nullptr;
  }
  const auto kernel = is_simple(c.activation) ? conv_pool_dgrad_tf32_kernel<kKernel, kTiles, true>
                                              : conv_pool_dgrad_tf32_kernel<kKernel, kTiles, false>;
  allow_most_shared_memory(kernel);
  return make_early_kernel("kerascnn conv2d_max_pool2d_dgrad_tf32", [=](const KernelArgs& args) {
    kernel<<<layout.grid, layout.threads, layout.bytes, static_cast<cudaStream_t>(args.stream)>>>(
        input<float>(args, 0), input<float>(args, 1), input<uint8_t>(args, 2),
        input<float>(args, 3), output<float>(args, 0), c, layout.tiles, settled_loads(args, {3}));
    check_launch("conv2d_max_pool2d_dgrad_tf32");
  });
}

// Tensor cores want some channels to sum over, 16-byte loads of the kernel, stores of two channels.
bool fits(const ConvPoolCall& call) {
  const Conv2DGeometry& g = call.geometry.conv;
  return is_plain_conv_pool(call) && call.allow_tf32 && g.input_channels > 4 &&
         g.input_channels % 2 == 0 && g.output_channels % 4 == 0 &&
         Context::current().compute_capability() >= 80;
}

// Calls function.operator()<kKernel, kTiles>() with the fewest columns that hold all channels, at
// most 32.
template <typename Function>
std::unique_ptr<Kernel> dispatch(const ConvPoolCall& call, int64_t channels, Function function) {
  const auto with_kernel = [&]<int kKernel>() {
    if (channels <= 8) return function.template operator()<kKernel, 1>();
    if (channels <= 16) return function.template operator()<kKernel, 2>();
    return function.template operator()<kKernel, 4>();
  };
  if (call.geometry.conv.kernel_height == 3) return with_kernel.template operator()<3>();
  return with_kernel.template operator()<5>();
}

}  // namespace

std::unique_ptr<Kernel> plan_conv_pool_tf32(const ConvPoolCall& call) {
  if (!fits(call)) return nullptr;
  return dispatch(call, call.geometry.conv.output_channels,
                  [&]<int kKernel, int kTiles>() { return plan_forward<kKernel, kTiles>(call); });
}

std::unique_ptr<Kernel> plan_conv_pool_dgrad_tf32(const ConvPoolCall& call) {
  if (!fits(call)) return nullptr;
  return dispatch(call, call.geometry.conv.input_channels,
                  [&]<int kKernel, int kTiles>() { return plan_dgrad<kKernel, kTiles>(call); });
}

}  // namespace kerascnn::cuda
