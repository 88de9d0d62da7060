// These are the forward pass and the data gradient on tensor cores. Both make the results of a
// block's cells (2 x 2 pixels of the convolution's output, or of the input's gradient) from a band
// of the source in shared memory: one wait for memory, then products only.
#include "core/backend/cuda/convolution/conv2d_max_pool2d.h"
#include "core/backend/cuda/convolution/conv_cells.cuh"
#include "core/backend/cuda/convolution/conv_pool.cuh"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/shared_memory.h"
#include "core/backend/cuda/tiles/warpgroup.cuh"

namespace kerascnn::cuda {
namespace {

constexpr int kMinThreads = 256;  // some may have nothing to do but to load
constexpr int kMaxThreads = 512;
constexpr int kMaxWarpsCells = 8;

// Says which cells a block has, and how the source under them lies in shared memory.
struct Tiles : CellSource {
  int cell_rows, cell_columns;  // of a block
  int bands_per_image;
  int warps_cells;  // warps that take different cells, whole warpgroups
  int warps_deep;   // warps that take different channels of the same cells

  Tiles(int cells_down, int cells_across, int kernel, int source_channels, int cell_rows)
      : CellSource(cell_rows, cells_across, kernel, source_channels),
        cell_rows(cell_rows),
        cell_columns(cells_across),
        bands_per_image((cells_down + cell_rows - 1) / cell_rows),
        warps_cells(std::min(
            (cell_rows * cells_across + kCellsOfWarpgroup - 1) / kCellsOfWarpgroup * kWarpgroup,
            kMaxWarpsCells)),
        warps_deep(1) {}

  // Few warps can't hide the latency of shared memory and of the tensor cores.
  void share_channels(int max_warps) {
    if (cell_rows * cell_columns > kMaxWarpsCells * kCellsPerWarp) return;
    while (warps_deep * 2 * 8 <= channels && warps_deep * 2 * warps_cells <= max_warps) {
      warps_deep *= 2;
    }
  }
};

// A thread of a fragment sums over channels `member` and `member` + 4 of eight. In shared memory
// they are neighbours, so that one load brings both.
__device__ __forceinline__ int place_in_pixel(int channel) {  // of a multiple of 4 and 3 more
  return channel / 8 * 8 + channel / 4 % 2;
}
__device__ __forceinline__ void store_in_pixel(float* to, float4 v) {
  to[0] = v.x;
  to[2] = v.y;
  to[4] = v.z;
  to[6] = v.w;
}

// Brings the input under a block's cells to shared memory.
__device__ __forceinline__ void load_input(const float* x, float* tile, const ConvPool& c,
                                           const Tiles& t, int n, int first_cell_row) {
  const InputBand band{2 * first_cell_row - c.pad_top, t.rows, t.columns, t.channels, t.pixel};
  load_band_tf32<8>(
      x, tile, c, band, n, [](int channel) { return place_in_pixel(channel); },
      [](float* to, float4 v) { store_in_pixel(to, v); });
}

// The four weights that a thread copies are channels of one column.
struct ChannelsOfWeights : WeightColumn {
  __device__ __forceinline__ void store(int tap, float4 v) const {
    *reinterpret_cast<float4*>(to + tap * to_tap) = v;
  }
};

// Brings input channels first_column.. of the kernel, turned by 180 degrees; its rows are output
// channels.
template <int kTiles>
__device__ __forceinline__ void load_turned_weights(const float* kernel, float* weights,
                                                    const ConvPool& c, const Tiles& t, int taps,
                                                    int first_column) {
  using Places = WeightPlaces<kTiles>;
  constexpr int kColumns = kTiles * 8;
  const int tap_pitch = t.channels / 8 * Places::kOfEight;
  copy_rows<9>(taps, t.channels / 4 * kColumns, [&](int item) {
    // Neighbours take eight columns of a chunk, then those of the next.
    const int chunk = item / 8 % (t.channels / 4);
    const int of_block = item / (t.channels * 2) * 8 + item % 8;
    const int channel = chunk * 4, column = first_column + of_block;
    return ChannelsOfWeights{{kernel + column * c.output_channels + channel,
                              weights + (taps - 1) * tap_pitch + Places::at(channel, of_block),
                              c.input_channels * c.output_channels, -tap_pitch,
                              channel < c.output_channels && column < c.input_channels}};
  });
}

__device__ __forceinline__ void clear_tile(float* tile, const Tiles& t) {
  const int floats = static_cast<int>(t.floats());
  for (int i = threadIdx.x; i < floats / 4; i += blockDim.x) {
    reinterpret_cast<float4*>(tile)[i] = {};
  }
}

// Takes four channels of a column of pooled gradients, row by row, to where their maxima were.
template <bool kSimple>
struct SpreadColumn {
  PooledColumn<kSimple> from;
  float* to;  // in the row above the first window
  int row_pitch, pixel;
  int first_row, rows;  // of the band: of the first window, and how many there are

  __device__ __forceinline__ PooledGradient load(int row) const { return from.load(row); }
  __device__ __forceinline__ void store(int row, const PooledGradient& gradient) const {
    const int window_row = first_row + 2 * row;
    float* window = to + 2 * row * row_pitch;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int down = gradient.positions[k] >> 1, right = gradient.positions[k] & 1;
      // Windows may reach out of the band.
      if (static_cast<unsigned>(window_row + down) >= static_cast<unsigned>(rows)) continue;
      window[down * row_pitch + right * pixel + 2 * k] = unbiased_tf32(gradient.values[k]);
    }
  }
};

// Makes the gradient of the convolution's output under a block's cells of the input's gradient: it
// puts each pooled gradient where its maximum was, in a tile of zeros. `pad_top` and `pad_left` are
// those of the turned convolution.
template <bool kSimple>
__device__ __forceinline__ void spread_gradient(const float* gy, const float* y,
                                                const uint8_t* index, float* tile,
                                                const ConvPool& c, const Tiles& t, int n,
                                                int first_cell_row, int pad_top, int pad_left) {
  const int top = 2 * first_cell_row - pad_top;  // row of the convolution's output
  const int first = max(top, 0) / 2;
  const int last = min((top + t.rows - 1) / 2, c.pooled_height - 1);
  const int chunks = c.output_channels / 4;
  const int width = c.pooled_width * chunks;
  const int64_t start = (static_cast<int64_t>(n) * c.pooled_height + first) * width * 4;
  const int window_row = 2 * first - top;
  const int row_pitch = t.columns * t.pixel;
  copy_rows<4>(last - first + 1, width, [&](int item) {
    const int column = item / chunks;
    const int channel = (item - column * chunks) * 4;
    const int64_t at = start + item * 4;
    return SpreadColumn<kSimple>{
        {gy + at, y + at, index + at, width * 4, &c},
        tile + window_row * row_pitch + (2 * column + pad_left) * t.pixel + place_in_pixel(channel),
        row_pitch,
        t.pixel,
        window_row,
        t.rows};
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
// order, and calls finish(j, sums) for 8 columns at a time, which each of these warps does for some
// of them. Everybody must be done with shared memory's contents.
template <int kTiles, typename Finish>
__device__ __forceinline__ void finish_cells(float* shared, const Tiles& t, int warp_cells,
                                             int warp_deep, const float (&sums)[2][kTiles][4],
                                             Finish finish) {
  const auto part = [&](int deep, int j, int h) {
    const int number = (((deep * t.warps_cells + warp_cells) * kTiles + j) * 2 + h) * 32;
    return reinterpret_cast<float4*>(shared) + number + threadIdx.x % 32;
  };
  if (t.warps_deep > 1) {
    __syncthreads();
    if (warp_deep < t.warps_deep) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        if (j % t.warps_deep == warp_deep) continue;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          *part(warp_deep, j, h) = {sums[h][j][0], sums[h][j][1], sums[h][j][2], sums[h][j][3]};
        }
      }
    }
    __syncthreads();
    if (warp_deep >= t.warps_deep) return;
  }
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    if (j % t.warps_deep != warp_deep) continue;
    float total[2][4] = {};
#pragma unroll 1
    for (int deep = 0; deep < t.warps_deep; ++deep) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float4 v = deep == warp_deep
                             ? float4{sums[h][j][0], sums[h][j][1], sums[h][j][2], sums[h][j][3]}
                             : *part(deep, j, h);
        total[h][0] += v.x;
        total[h][1] += v.y;
        total[h][2] += v.z;
        total[h][3] += v.w;
      }
    }
    finish(j, total);
  }
}

// Calls finish(cell, j, sums) with what the warps have computed for each cell of the block and 8
// columns from 8j on.
template <int kKernel, int kTiles, typename Finish>
__device__ __forceinline__ void multiply_block(float* shared, const float* tile,
                                               const float* weights, const Tiles& t, int rows,
                                               Finish finish) {
  const int lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  const int warp = threadIdx.x / 32;
  const int warp_cells = warp % t.warps_cells, warp_deep = warp / t.warps_cells;
  if (warp_deep > 0 && t.warps_deep == 1) return;  // came only to load
  // More than one turn only where warps_deep is 1. A warpgroup's turns are those of its first warp.
  const int in_warpgroup = warp_cells % kWarpgroup * kCellsPerWarp;
  for (int first = warp_cells / kWarpgroup * kCellsOfWarpgroup;
       first < rows * t.cell_columns || t.warps_deep > 1; first += t.warps_cells * kCellsPerWarp) {
    const ThreadCell cell(t, first + in_warpgroup + group, rows);
    const float* source =
        tile + (2 * cell.row * t.columns + 2 * cell.column) * t.pixel + 2 * member;
    float sums[2][kTiles][4] = {};
    // Others came only to load.
    if (warp_deep < t.warps_deep) {
      multiply_cells<kKernel, kTiles, SourceForm::Paired>(source, weights, t, warp_deep * 8,
                                                          t.warps_deep * 8, sums);
    }
    finish_cells<kTiles>(shared, t, warp_cells, warp_deep, sums, [&](int j, auto& of_tile) {
      if (cell.valid) finish(cell, j, of_tile);
    });
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
  float* tile = weights + kTaps * t.channels * kTiles * 8;
  const int n = blockIdx.x / t.bands_per_image;
  const int first_row = static_cast<int>(blockIdx.x) % t.bands_per_image * t.cell_rows;
  const int first_column = blockIdx.y * kTiles * 8;
  begin_kernel(
      settled,
      [&] { load_weights<kTiles, SourceForm::Paired>(kernel, weights, c, t, kTaps, first_column); },
      [&] { load_input(x, tile, c, t, n, first_row); });
  const int member = threadIdx.x % 4;
  float start[kTiles][2] = {};
  if (bias != nullptr) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int channel = first_column + j * 8 + 2 * member;
      if (channel >= c.output_channels) continue;  // a multiple of 4: both or neither
      start[j][0] = bias[channel];
      start[j][1] = bias[channel + 1];
    }
  }
  publish_to_async_proxy();
  __syncthreads();

  const int rows = min(t.cell_rows, c.pooled_height - first_row);
  multiply_block<kKernel, kTiles>(
      shared, tile, weights, t, rows, [&](const ThreadCell& cell, int j, auto& sums) {
        const int channel = first_column + j * 8 + 2 * member;
        if (channel >= c.output_channels) return;
        const int64_t pixel =
            (static_cast<int64_t>(n) * c.pooled_height + first_row + cell.row) * c.pooled_width +
            cell.column;
        store_maxima<kSimple>(c, sums, start[j], pixel * c.output_channels + channel, y, index);
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
  float* tile = weights + kTaps * t.channels * kTiles * 8;
  const int n = blockIdx.x / t.bands_per_image;
  const int first_row = static_cast<int>(blockIdx.x) % t.bands_per_image * t.cell_rows;
  const int first_column = blockIdx.y * kTiles * 8;
  clear_tile(tile, t);
  begin_kernel(settled,
               [&] { load_turned_weights<kTiles>(kernel, weights, c, t, kTaps, first_column); });
  __syncthreads();
  spread_gradient<kSimple>(gy, y, index, tile, c, t, n, first_row, kKernel - 1 - c.pad_top,
                           kKernel - 1 - c.pad_left);
  publish_to_async_proxy();
  __syncthreads();

  const int rows = min(t.cell_rows, (c.input_height + 1) / 2 - first_row);
  const int member = threadIdx.x % 4;
  multiply_block<kKernel, kTiles>(
      shared, tile, weights, t, rows, [&](const ThreadCell& cell, int j, auto& sums) {
        const int channel = first_column + j * 8 + 2 * member;
        if (channel >= c.input_channels) return;  // an even number: both or neither
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          const int row = 2 * (first_row + cell.row) + p / 2;
          const int column = 2 * cell.column + p % 2;
          if (row >= c.input_height || column >= c.input_width) continue;
          const int64_t pixel =
              (static_cast<int64_t>(n) * c.input_height + row) * c.input_width + column;
          *reinterpret_cast<float2*>(gx + pixel * c.input_channels + channel) = {
              sums[p / 2][p % 2 * 2], sums[p / 2][p % 2 * 2 + 1]};
        }
      });
}

struct Layout {
  Tiles tiles;
  dim3 grid;
  unsigned threads;
  size_t bytes;
};

// A block takes as many cells as fit and leave work for all multiprocessors. False where not even
// one row of cells fits.
bool find_layout(const ConvPool& c, int kernel, int cells_down, int cells_across,
                 int source_channels, int columns, int blocks_across, Layout* layout) {
  const int64_t most = Context::current().properties().sharedMemPerBlockOptin;
  const int wanted_blocks = Context::current().multiprocessors() * 3 / 4;
  for (int cell_rows = cells_down; cell_rows >= 1; cell_rows = (cell_rows + 1) / 2) {
    Tiles t(cells_down, cells_across, kernel, source_channels, cell_rows);
    const int64_t blocks = int64_t{c.batch} * t.bands_per_image;
    // One large block for each multiprocessor, or several smaller ones.
    const bool alone = blocks * blocks_across <= Context::current().multiprocessors();
    t.share_channels((alone ? kMaxThreads : kMaxThreads / 2) / 32);
    const int64_t floats = int64_t{kernel} * kernel * t.channels * columns + t.floats();
    const int64_t sums =
        t.warps_deep > 1 ? int64_t{t.warps_deep} * t.warps_cells * 32 * columns : 0;
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
        settled_loads(args, {{1}, {0}}));
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
  return make_early_kernel("kerascnn conv2d_max_pool2d_dgrad_tf32", [=, at = call.at](
                                                                        const KernelArgs& args) {
    kernel<<<layout.grid, layout.threads, layout.bytes, static_cast<cudaStream_t>(args.stream)>>>(
        input<float>(args, at.gy), input<float>(args, at.y), input<uint8_t>(args, at.index),
        input<float>(args, at.kernel), output<float>(args, 0), c, layout.tiles,
        settled_loads(args, {{at.kernel}}));
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
