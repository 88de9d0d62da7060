// This is the kernel's gradient on tensor cores: gkernel (taps * input channels, output channels) =
// sum over pixels of x under the tap * the spread gradient. A block keeps the input and the
// gradient under some cells in shared memory, makes some rows of the result from them, and goes on
// to the next cells; the sums of all blocks are added up by a second launch.
//
// Pixels are numbered cell by cell, so a pooled gradient fills four neighbouring rows. Rows of the
// result are taken in runs of 8 input channels of one tap.
#include "core/backend/cuda/convolution/conv2d_max_pool2d.h"
#include "core/backend/cuda/convolution/conv_pool.cuh"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/shared_memory.h"
#include "core/backend/cuda/tiles/cluster.cuh"
#include "core/backend/cuda/tiles/ordered_sums.cuh"
#include "core/backend/cuda/tiles/shared_tile.cuh"
#include "core/backend/cuda/tiles/warpgroup.cuh"

namespace kerascnn::cuda {
namespace {

constexpr int kRuns = 4;  // of a warp: 32 rows
constexpr int kMaxWarps = 12;
// A thread has so many loads under way together; the sums need most of its registers.
constexpr int kLoads = 4;
// Factors of 8 pixels whose input a warp has in registers.
constexpr int kDepths = 3;
// Rows of the result that a thread reads from other blocks together.
constexpr int kAhead = 4;
// Two multiprocessors that are neighbours always take a cluster of two large blocks; of larger
// clusters not as many fit at a time as multiprocessors.
constexpr int kClusterBlocks = 2;
// Where the result is larger than this, every further copy of it costs time.
constexpr int64_t kSmallResult = 8192;

// A band is some rows of cells of one image and the input under them.
struct Tiles {
  int cell_rows, bands_per_image;
  int rows, columns;  // of the input under a band, padding included
  int channels;       // of the input, rounded up to a multiple of 8
  int pixel;          // floats from one pixel of the input to the next
  int pixels;         // of a band's gradient, rounded up to a multiple of 8
  int runs;           // of the result
  int warps_down;     // warps that take different rows, whole warpgroups
  int warps_deep;     // warps that take different pixels for the same rows
  int bands;          // of all images
  int splits;         // grid.x: a share of the bands each
  int cluster;        // neighbouring splits whose sums are added up before they are written
  int together;       // bands in shared memory at a time

  Tiles(const ConvPool& c, int kernel, int cell_rows)
      : cell_rows(cell_rows),
        bands_per_image((c.pooled_height + cell_rows - 1) / cell_rows),
        rows(2 * cell_rows + kernel - 1),
        columns(2 * c.pooled_width + kernel - 1),
        channels((c.input_channels + 7) / 8 * 8),
        pixel(padded_down(channels)),  // lanes read 8 channels of 4 pixels
        pixels((4 * cell_rows * c.pooled_width + 7) / 8 * 8),
        runs(kernel * kernel * channels / 8),
        warps_down(1),
        warps_deep(1),
        bands(c.batch * bands_per_image),
        splits(1),
        cluster(1),
        together(1) {}

  __host__ __device__ int band_floats() const { return rows * columns * pixel; }
};

// Brings the input under the cells from first_row on, and zeros for the padding.
__device__ __forceinline__ void load_input(const float* x, float* tile, const ConvPool& c,
                                           const Tiles& t, int n, int first_row) {
  const InputBand band{2 * first_row - c.pad_top, t.rows, t.columns, t.channels, t.pixel};
  load_band_tf32<kLoads>(
      x, tile, c, band, n, [](int channel) { return channel; },
      [](float* to, float4 v) { *reinterpret_cast<float4*>(to) = v; });
}

// Takes four channels of the gradient, cell by cell, to the cells' four pixels: half of a factor of
// 8 pixels and kColumns columns. Adds what the thread has seen to `bias_sums`.
template <int kColumns, bool kSimple>
struct CellColumn {
  PooledColumn<kSimple> from;
  float* to;
  int cells;  // not more are read; 0 where the column lies beyond the last channel
  int turn;   // each thread starts with another channel, so that few write to one bank
  float (&bias_sums)[4];

  __device__ __forceinline__ PooledGradient load(int cell) const {
    return cell < cells ? from.load(cell) : PooledGradient{};
  }
  __device__ __forceinline__ void store(int cell, const PooledGradient& gradient) const {
    float4 v = {gradient.values[0], gradient.values[1], gradient.values[2], gradient.values[3]};
    uchar4 p = {gradient.positions[0], gradient.positions[1], gradient.positions[2],
                gradient.positions[3]};
    bias_sums[0] += v.x;
    bias_sums[1] += v.y;
    bias_sums[2] += v.z;
    bias_sums[3] += v.w;
    rotate(turn, v, p);
    v = unbiased_tf32(v);
    const float values[4] = {v.x, v.y, v.z, v.w};
    const uint8_t positions[4] = {p.x, p.y, p.z, p.w};
    auto* of_cell = reinterpret_cast<float4*>(to + cell * 4 * kColumns);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int at = positions[k];
      of_cell[(turn + k) & 3] = {at == 0 ? values[k] : 0.0f, at == 1 ? values[k] : 0.0f,
                                 at == 2 ? values[k] : 0.0f, at == 3 ? values[k] : 0.0f};
    }
  }
};

// Makes the gradient at the cells' pixels: each pooled gradient at its maximum, zeros else.
template <int kColumns, bool kSimple>
__device__ __forceinline__ void spread_gradient(const float* gy, const float* y,
                                                const uint8_t* index, float* tile,
                                                const ConvPool& c, const Tiles& t, int n,
                                                int first_row, int first_column,
                                                float (&bias_sums)[4]) {
  const int cells = min(t.cell_rows, c.pooled_height - first_row) * c.pooled_width;
  const int64_t first_cell =
      (static_cast<int64_t>(n) * c.pooled_height + first_row) * c.pooled_width;
  // The chunks of a thread are the same in each turn, as are its channels in `bias_sums`.
  copy_rows<kLoads / 2>(t.pixels / 4, kColumns / 4, [&](int chunk) {
    const int channel = first_column + chunk * 4;
    const bool valid = channel < c.output_channels;
    const int64_t at = first_cell * c.output_channels + (valid ? channel : 0);
    return CellColumn<kColumns, kSimple>{{gy + at, y + at, index + at, c.output_channels, &c},
                                         tile + chunk * 16,
                                         valid ? cells : 0,
                                         chunk / 2,
                                         bias_sums};
  });
}

// kWide: input channels are a multiple of 32, so the runs of a warp are neighbours in one tap.
template <int kKernel, int kTiles, bool kSimple, bool kWide, bool kCluster>
__global__ void __launch_bounds__(kMaxWarps * 32)
    conv_pool_wgrad_tf32_kernel(const float* __restrict__ x, const float* __restrict__ gy,
                                const float* __restrict__ y, const uint8_t* __restrict__ index,
                                PartialSums partial, ConvPool c, Tiles t, uint32_t settled) {
  extern __shared__ __align__(32) float shared[];
  constexpr int kColumns = kTiles * 8;
  float* gradient = shared;  // (bands, eights of pixels, a factor of 8 pixels and kColumns)
  float* tile = gradient + t.together * t.pixels * kColumns;  // (bands, rows, columns, channels)
  int* offsets = reinterpret_cast<int*>(tile + t.together * t.band_floats());  // of each pixel

  const int lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  const int warp = threadIdx.x / 32;
  const int warp_down = warp % t.warps_down, warp_deep = warp / t.warps_down;
  const int first_column = blockIdx.y * kColumns;
  const int block_run = blockIdx.z * t.warps_down * kRuns;
  const int first_run = block_run + warp_down * kRuns;

  for (int i = threadIdx.x; i < t.together * t.pixels; i += blockDim.x) {
    const int band = i / t.pixels;
    const int pixel = i - band * t.pixels;
    // Pixels past the last cell have a gradient of zero and read the first pixel.
    const int cell = pixel / 4 < t.cell_rows * c.pooled_width ? pixel / 4 : 0;
    const int row = 2 * (cell / c.pooled_width) + pixel % 4 / 2;
    const int column = 2 * (cell % c.pooled_width) + pixel % 2;
    offsets[i] = band * t.band_floats() + (row * t.columns + column) * t.pixel;
  }
  int sources[kWide ? 1 : kRuns];  // of the thread's row in each run
#pragma unroll
  for (int i = 0; i < (kWide ? 1 : kRuns); ++i) {
    // Warps behind the last run take runs that others have too.
    const int run = min(first_run + i, t.runs - (kWide ? kRuns : 1));
    const int tap = run / (t.channels / 8);
    const int channel = (run - tap * (t.channels / 8)) * 8;
    sources[i] = (tap / kKernel * t.columns + tap % kKernel) * t.pixel + channel + group;
  }

  float sums[kRuns / 2][kTiles][4] = {};
  float bias_sums[4] = {};
  for (int first = blockIdx.x; first < t.bands; first += t.splits * t.together) {
    const int together = min(t.together, (t.bands - first + t.splits - 1) / t.splits);
    const auto for_each_band = [&](auto load) {
      for (int i = 0; i < together; ++i) {
        const int band = first + i * t.splits;
        const int n = band / t.bands_per_image;
        load(i, n, (band - n * t.bands_per_image) * t.cell_rows);
      }
    };
    __syncthreads();  // everybody has left the tiles of the turn before
    begin_kernel(settled, [&] {
      for_each_band([&](int i, int n, int first_row) {
        load_input(x, tile + i * t.band_floats(), c, t, n, first_row);
      });
    });
    for_each_band([&](int i, int n, int first_row) {
      spread_gradient<kColumns, kSimple>(gy, y, index, gradient + i * t.pixels * kColumns, c, t, n,
                                         first_row, first_column, bias_sums);
    });
    publish_to_async_proxy();
    __syncthreads();
    // The input of kCount products from `depth` on goes to registers first; other warpgroups
    // multiply meanwhile.
    const int pixels = together * t.pixels, step = t.warps_deep * 8;
    const auto multiply = [&]<int kCount>(int depth) {
      LeftFragment a[kCount][kRuns / 2];
#pragma unroll
      for (int d = 0; d < kCount; ++d) {
        const float* near = tile + offsets[depth + d * step + member];
        const float* far = tile + offsets[depth + d * step + member + 4];
#pragma unroll
        for (int i = 0; i < kRuns / 2; ++i) {
          const int upper = kWide ? sources[0] + 16 * i : sources[kWide ? 0 : 2 * i];
          const int lower = kWide ? upper + 8 : sources[kWide ? 0 : 2 * i + 1];
          a[d][i] = {{bits(near[upper]), bits(near[lower]), bits(far[upper]), bits(far[lower])}};
        }
      }
      begin_products();
#pragma unroll
      for (int d = 0; d < kCount; ++d) {
        multiply_factor<kTiles>(sums, a[d], gradient + (depth + d * step) * kColumns);
      }
      commit_products();
      wait_for_products<0>();
    };
    int depth = warp_deep * 8;
    for (; depth + (kDepths - 1) * step < pixels; depth += kDepths * step) {
      multiply.template operator()<kDepths>(depth);
    }
    for (; depth < pixels; depth += step) multiply.template operator()<1>(depth);
  }

  // Adds up the warps that took different pixels for the same rows, always in the same order.
  constexpr int kSums = kRuns / 2 * kTiles * 4;
  __syncthreads();
  const int slot = warp_down * 32 + lane;
  for (int deep = 1; deep < t.warps_deep; ++deep) {
    if (warp_deep == deep) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        shared[i * t.warps_down * 32 + slot] = sums[i / (kTiles * 4)][i / 4 % kTiles][i % 4];
      }
    }
    __syncthreads();
    if (warp_deep == 0) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        sums[i / (kTiles * 4)][i / 4 % kTiles][i % 4] += shared[i * t.warps_down * 32 + slot];
      }
    }
    __syncthreads();
  }

  // The block's result in shared memory, and below it the sum of the gradients it has seen.
  constexpr int kOut = kColumns + 8;
  const int block_rows = t.warps_down * kRuns * 8;
  float* bias_row = shared + block_rows * kOut;
  float* bias_parts = bias_row + kOut;
  if (warp_deep == 0) {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      float* row = shared + ((warp_down * kRuns + i) * 8 + group) * kOut + 2 * member;
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        *reinterpret_cast<float2*>(row + j * 8) = {sums[i / 2][j][i % 2 * 2],
                                                   sums[i / 2][j][i % 2 * 2 + 1]};
      }
    }
  }
  constexpr int kChunks = kColumns / 4;
  reinterpret_cast<float4*>(bias_parts)[threadIdx.x] = {bias_sums[0], bias_sums[1], bias_sums[2],
                                                        bias_sums[3]};
  __syncthreads();
  if (threadIdx.x < kColumns) {
    const int column = threadIdx.x;
    float total = 0;
#pragma unroll 4
    for (int i = column / 4; i < blockDim.x; i += kChunks) total += bias_parts[i * 4 + column % 4];
    bias_row[column] = total;
  }
  if constexpr (kCluster) {
    arrive_in_cluster();
    wait_for_cluster();
  } else {
    __syncthreads();
  }

  // Each block of a cluster adds up a share of the results of all, always in the same order.
  const int64_t copy = blockIdx.x / t.cluster;
  float* kernel_sums = partial.kernel + copy * partial.kernel_stride + first_column;
  const int rank = blockIdx.x % t.cluster;
  const int column = threadIdx.x % kChunks * 4;
  const int step = t.cluster * blockDim.x / kChunks;
  const bool has_bias = blockIdx.z == 0 && partial.bias != nullptr;
  const int shared_rows = block_rows + (has_bias ? 1 : 0);
  const int eights = t.channels / 8;
  // A multiple of 4: all four columns or none.
  const int end = first_column + column < c.output_channels ? shared_rows : 0;
  for (int row = (rank * blockDim.x + threadIdx.x) / kChunks; row < end; row += kAhead * step) {
    float4 totals[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (row + a * step >= end) break;
      const auto* from = reinterpret_cast<const float4*>(shared + (row + a * step) * kOut + column);
      if constexpr (kCluster) {
        totals[a] = {};
#pragma unroll
        for (int other = 0; other < kClusterBlocks; ++other) {
          totals[a] = add(totals[a], load_from_cluster(from, other));
        }
      } else {
        totals[a] = *from;
      }
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int at = row + a * step;
      if (at >= end) break;
      float* target = partial.bias + copy * partial.bias_stride + first_column;
      if (at < block_rows) {
        const int run = block_run + at / 8;
        if (run >= t.runs) continue;
        int result_row = run * 8 + at % 8;
        if (!kWide) {  // else there are no channels but those of the input
          const int tap = run / eights;
          const int channel = (run - tap * eights) * 8 + at % 8;
          if (channel >= c.input_channels) continue;
          result_row = tap * c.input_channels + channel;
        }
        target = kernel_sums + result_row * c.output_channels;
      }
      *reinterpret_cast<float4*>(target + column) = totals[a];
    }
  }
  if constexpr (kCluster) {
    arrive_in_cluster();  // nobody leaves while others read its results
    wait_for_cluster();
  }
}

int64_t shared_bytes(const Tiles& t, int columns) {
  const int64_t floats = int64_t{t.together} * (t.pixels * (columns + 1) + t.band_floats());
  // The sums share the memory afterwards.
  const int64_t warps = int64_t{t.warps_down} * 32 * (kRuns / 2) * (columns / 8) * 4;
  const int64_t results = int64_t{t.warps_down * kRuns * 8 + 1} * (columns + 8) +
                          int64_t{t.warps_down} * t.warps_deep * 32 * 4;
  return std::max({floats, warps, results}) * int64_t{sizeof(float)};
}

template <int kKernel, int kTiles>
std::unique_ptr<Kernel> plan_wgrad(const ConvPoolCall& call) {
  const ConvPool c(call.geometry);
  const int multiprocessors = Context::current().multiprocessors();
  const int64_t most = Context::current().properties().sharedMemPerBlockOptin;
  constexpr int kColumns = kTiles * 8;
  const int warps =
      static_cast<int>(ceil_div(int64_t{kKernel} * kKernel * ((c.input_channels + 7) / 8), kRuns));
  const int blocks_down = static_cast<int>(ceil_div(warps, kMaxWarps));
  const int blocks_across = static_cast<int>(ceil_div(c.output_channels, kColumns));
  const int wanted = std::max(1, multiprocessors / (blocks_down * blocks_across));

  // Whole images, or as many parts of them as it takes to occupy the device and to fit.
  const auto tiles_of = [&](int cell_rows) {
    Tiles t(c, kKernel, cell_rows);
    t.warps_down = static_cast<int>(ceil_div(warps, blocks_down * kWarpgroup) * kWarpgroup);
    t.warps_deep = std::max(1, std::min(kMaxWarps / t.warps_down, t.pixels / 16));
    return t;
  };
  Tiles t = tiles_of(c.pooled_height);
  while (t.cell_rows > 1 && (shared_bytes(t, kColumns) > most || t.bands < wanted * 3 / 4)) {
    t = tiles_of((t.cell_rows + 1) / 2);
  }
  const int share = static_cast<int>(ceil_div(t.bands, std::min(t.bands, wanted)));
  t.splits = static_cast<int>(ceil_div(t.bands, share));
  t.together = share;
  while (t.together > 1 && shared_bytes(t, kColumns) > most) --t.together;
  if (shared_bytes(t, kColumns) > most || blocks_across > 65535) return nullptr;

  const auto choose = [&]<bool kSimple, bool kWide>() {
    const auto alone = conv_pool_wgrad_tf32_kernel<kKernel, kTiles, kSimple, kWide, false>;
    const auto in_clusters = conv_pool_wgrad_tf32_kernel<kKernel, kTiles, kSimple, kWide, true>;
    allow_most_shared_memory(alone);
    allow_most_shared_memory(in_clusters);
    return std::pair(alone, in_clusters);
  };
  const bool wide = c.input_channels % (8 * kRuns) == 0;
  const auto [alone, in_clusters] = is_simple(c.activation)
                                        ? (wide ? choose.template operator()<true, true>()
                                                : choose.template operator()<true, false>())
                                        : (wide ? choose.template operator()<false, true>()
                                                : choose.template operator()<false, false>());
  const unsigned threads = t.warps_down * t.warps_deep * 32;
  const auto bytes = static_cast<size_t>(shared_bytes(t, kColumns));
  const auto grid = [&](int splits) { return dim3(splits, blocks_across, blocks_down); };
  const int whole_clusters = t.splits / kClusterBlocks * kClusterBlocks;
  const bool clusters =
      num_elements(call.geometry.conv.kernel_shape()) > kSmallResult &&
      whole_clusters > kClusterBlocks &&
      ClusterLaunch(grid(whole_clusters), threads, kClusterBlocks, bytes).fits(in_clusters);
  if (clusters) {
    t.splits = whole_clusters;
    t.cluster = kClusterBlocks;
  }
  const int copies = t.splits / t.cluster;
  return make_conv_pool_wgrad(
      "kerascnn conv2d_max_pool2d_wgrad_tf32", call, copies,
      [=, at = call.at, blocks = grid(t.splits), alone = alone, in_clusters = in_clusters](
          const KernelArgs& args, const PartialSums& partial) {
        const auto stream = static_cast<cudaStream_t>(args.stream);
        const auto *x = input<float>(args, at.x), *gy = input<float>(args, at.gy),
                   *y = input<float>(args, at.y);
        const auto* index = input<uint8_t>(args, at.index);
        const uint32_t settled = settled_loads(args, {{at.x}});
        if (clusters) {
          ClusterLaunch(blocks, threads, kClusterBlocks, bytes, stream)
              .run(in_clusters, x, gy, y, index, partial, c, t, settled);
        } else {
          alone<<<blocks, threads, bytes, stream>>>(x, gy, y, index, partial, c, t, settled);
          check_launch("conv2d_max_pool2d_wgrad_tf32");
        }
      });
}

// Tensor cores want some channels on both sides; loads take two or four of them at once.
bool fits(const ConvPoolCall& call) {
  const Conv2DGeometry& g = call.geometry.conv;
  return is_plain_conv_pool(call) && call.allow_tf32 && g.input_channels > 4 &&
         g.input_channels % 2 == 0 && g.output_channels % 4 == 0 &&
         Context::current().compute_capability() >= 80;
}

template <int kKernel>
std::unique_ptr<Kernel> plan_columns(const ConvPoolCall& call) {
  const int64_t channels = call.geometry.conv.output_channels;
  if (channels <= 8) return plan_wgrad<kKernel, 1>(call);
  if (channels <= 16) return plan_wgrad<kKernel, 2>(call);
  if (channels <= 32) return plan_wgrad<kKernel, 4>(call);
  return plan_wgrad<kKernel, 8>(call);
}

}  // namespace

std::unique_ptr<Kernel> plan_conv_pool_wgrad_tf32(const ConvPoolCall& call) {
  if (!fits(call)) return nullptr;
  return call.geometry.conv.kernel_height == 3 ? plan_columns<3>(call) : plan_columns<5>(call);
}

}  // namespace kerascnn::cuda
