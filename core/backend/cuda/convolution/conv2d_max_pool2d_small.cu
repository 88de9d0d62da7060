// Few input channels, float32: the first layer of a network. There is little arithmetic, so plain
// cores do it; a thread makes one pooled pixel from the patch of the input under its four
// convolution results.
#include "core/backend/cuda/convolution/conv2d_max_pool2d.h"
#include "core/backend/cuda/convolution/conv_pool.cuh"
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/shared_memory.h"

namespace kerascnn::cuda {
namespace {

constexpr int64_t kMaxShared = 48 << 10;       // what every GPU gives a block without being asked
constexpr int64_t kMaxWgradShared = 64 << 10;  // what every GPU gives a block that asks

// Some rows of pooled pixels of one image, and the input under them.
struct CellBand {
  int cell_rows, bands_per_image, rows, columns;

  CellBand(const ConvPool& c, int kernel, int cell_rows)
      : cell_rows(cell_rows),
        bands_per_image(static_cast<int>(ceil_div(c.pooled_height, cell_rows))),
        rows(2 * cell_rows + kernel - 1),
        columns(2 * c.pooled_width + kernel - 1) {}
};

// One channel of one column of a band, row by row, zeros for the padding.
struct BandColumn {
  const float* from;  // in the image's first row
  float* to;          // in the band's first row
  int from_row, to_row;
  int top, height;
  bool inside;

  __device__ __forceinline__ float load(int row) const {
    const int at = top + row;
    if (!inside || static_cast<unsigned>(at) >= static_cast<unsigned>(height)) return 0.0f;
    return __ldg(from + static_cast<int64_t>(at) * from_row);
  }
  __device__ __forceinline__ void store(int row, float value) const { to[row * to_row] = value; }
};

// Copies channels first .. first + channels - 1 of a band of image n to shared memory as (rows,
// columns, channels).
__device__ __forceinline__ void load_band(const float* __restrict__ x, float* tile,
                                          const ConvPool& c, const CellBand& band, int n,
                                          int first_cell_row, int first, int channels) {
  const int width = band.columns * channels;
  copy_rows<4>(band.rows, width, [&](int item) {
    const int column = item / channels - c.pad_left;
    const bool inside = static_cast<unsigned>(column) < static_cast<unsigned>(c.input_width);
    const int64_t pixel =
        static_cast<int64_t>(n) * c.input_height * c.input_width + (inside ? column : 0);
    return BandColumn{x + pixel * c.input_channels + first + item % channels,
                      tile + item,
                      c.input_width * c.input_channels,
                      width,
                      2 * first_cell_row - c.pad_top,
                      c.input_height,
                      inside};
  });
}

// A thread makes N neighbouring channels of a pooled pixel.
template <int kKernel, int N, bool kSimple>
__global__ void __launch_bounds__(kThreads)
    conv_pool_small_kernel(const float* __restrict__ x, const float* __restrict__ kernel,
                           const float* __restrict__ bias, float* __restrict__ y,
                           uint8_t* __restrict__ index, ConvPool c, CellBand band,
                           uint32_t settled) {
  extern __shared__ __align__(32) float shared[];
  const int taps = kKernel * kKernel * c.input_channels;
  float* weights = shared;  // (taps, output channels), as in memory
  float* tile = weights + (taps * c.output_channels + 3) / 4 * 4;
  const int n = blockIdx.x / band.bands_per_image;
  const int first_row = static_cast<int>(blockIdx.x) % band.bands_per_image * band.cell_rows;
  begin_kernel(
      settled,
      [&] {
        for (int i = threadIdx.x; i < taps * c.output_channels; i += kThreads) {
          weights[i] = kernel[i];
        }
      },
      [&] { load_band(x, tile, c, band, n, first_row, 0, c.input_channels); });
  __syncthreads();

  const int groups = c.output_channels / N;
  const int cell_rows = min(band.cell_rows, c.pooled_height - first_row);
  for (int item = threadIdx.x; item < cell_rows * c.pooled_width * groups; item += kThreads) {
    const int cell = item / groups;
    const int channel = (item - cell * groups) * N;
    const int row = cell / c.pooled_width;
    const int column = cell - row * c.pooled_width;
    float sums[4][N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float start = bias != nullptr ? bias[channel + k] : 0.0f;
#pragma unroll
      for (int p = 0; p < 4; ++p) sums[p][k] = start;
    }
    for (int q = 0; q < c.input_channels; ++q) {
      const float* source = tile + (2 * row * band.columns + 2 * column) * c.input_channels + q;
      float patch[kKernel + 1][kKernel + 1];
#pragma unroll
      for (int r = 0; r <= kKernel; ++r) {
#pragma unroll
        for (int s = 0; s <= kKernel; ++s) {
          patch[r][s] = source[(r * band.columns + s) * c.input_channels];
        }
      }
#pragma unroll
      for (int r = 0; r < kKernel; ++r) {
#pragma unroll
        for (int s = 0; s < kKernel; ++s) {
          const int tap = (r * kKernel + s) * c.input_channels + q;
          const auto w = *reinterpret_cast<const Vector<float, N>*>(
              weights + tap * c.output_channels + channel);
#pragma unroll
          for (int k = 0; k < N; ++k) {
            sums[0][k] += patch[r][s] * w.values[k];
            sums[1][k] += patch[r][s + 1] * w.values[k];
            sums[2][k] += patch[r + 1][s] * w.values[k];
            sums[3][k] += patch[r + 1][s + 1] * w.values[k];
          }
        }
      }
    }
    Vector<float, N> values;
    Vector<uint8_t, N> positions;
    find_maxima<kSimple>(c, sums, values, positions);
    const int64_t at =
        ((static_cast<int64_t>(n) * c.pooled_height + first_row + row) * c.pooled_width + column) *
            c.output_channels +
        channel;
    *reinterpret_cast<Vector<float, N>*>(y + at) = values;
    if (index != nullptr) *reinterpret_cast<Vector<uint8_t, N>*>(index + at) = positions;
  }
}

template <int kKernel, int N>
std::unique_ptr<Kernel> plan_forward(const ConvPoolCall& call) {
  const ConvPool c(call.geometry);
  // Takes as many rows as give every thread of a block something to do.
  const int64_t full = int64_t{kThreads} * N / (int64_t{c.pooled_width} * c.output_channels);
  const CellBand band(c, kKernel, static_cast<int>(std::clamp<int64_t>(full, 1, c.pooled_height)));
  const int64_t weights = (num_elements(call.geometry.conv.kernel_shape()) + 3) / 4 * 4;
  const int64_t bytes =
      (weights + int64_t{band.rows} * band.columns * c.input_channels) * int64_t{sizeof(float)};
  if (bytes > kMaxShared) return nullptr;
  const unsigned blocks = static_cast<unsigned>(c.batch * band.bands_per_image);
  const bool has_bias = call.has_bias;
  const auto kernel = is_simple(c.activation) ? conv_pool_small_kernel<kKernel, N, true>
                                              : conv_pool_small_kernel<kKernel, N, false>;
  return make_early_kernel("kerascnn conv2d_max_pool2d_small", [=](const KernelArgs& args) {
    kernel<<<blocks, kThreads, static_cast<size_t>(bytes),
             static_cast<cudaStream_t>(args.stream)>>>(
        input<float>(args, 0), input<float>(args, 1), has_bias ? input<float>(args, 2) : nullptr,
        output<float>(args, 0), output<uint8_t>(args, 1), c, band, settled_loads(args, {{1}, {0}}));
    check_launch("conv2d_max_pool2d_small");
  });
}

constexpr int kWgradThreads = 512;

struct WgradParams {
  int lanes;   // threads side by side take neighbouring output channels
  int splits;  // grid.z: a share of the bands each
  int bands;
};

// A thread sums the kernel elements of one input channel (blockIdx.y) and one output channel over
// its share of the pooled pixels. Each split makes a copy of the sums.
template <int kKernel, bool kSimple>
__global__ void __launch_bounds__(kWgradThreads)
    conv_pool_wgrad_small_kernel(const float* __restrict__ x, const float* __restrict__ gy,
                                 const float* __restrict__ y, const uint8_t* __restrict__ index,
                                 PartialSums sums, ConvPool c, CellBand band, WgradParams p,
                                 uint32_t settled) {
  constexpr int kTaps = kKernel * kKernel;
  constexpr int kAhead = 8;  // pixels whose loads are under way together
  extern __shared__ __align__(32) float shared[];
  const int lane = threadIdx.x % p.lanes;
  const int row_thread = threadIdx.x / p.lanes;
  const int row_threads = kWgradThreads / p.lanes;
  const int channel = blockIdx.x * p.lanes + lane;
  const int q = blockIdx.y;
  // The thread's first cell, and the way from one of its cells to the next.
  const int first_cell_row = row_thread / c.pooled_width;
  const int first_cell_column = row_thread - first_cell_row * c.pooled_width;
  const int row_step = row_threads / c.pooled_width;
  const int column_step = row_threads - row_step * c.pooled_width;

  float sum[kTaps] = {};
  float total = 0;
  for (int b = blockIdx.z; b < p.bands; b += p.splits) {
    const int n = b / band.bands_per_image;
    const int first_row = (b - n * band.bands_per_image) * band.cell_rows;
    const int cells = channel < c.output_channels
                          ? min(band.cell_rows, c.pooled_height - first_row) * c.pooled_width
                          : 0;
    const int64_t base = (static_cast<int64_t>(n) * c.pooled_height + first_row) * c.pooled_width *
                             c.output_channels +
                         channel;
    float gradients[kAhead], values[kAhead];
    int positions[kAhead];
    const auto for_each_ahead = [&](int cell, auto load) {
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int i = cell + a * row_threads;
        load(a, i < cells, base + static_cast<int64_t>(i) * c.output_channels);
      }
    };
    const auto load_maxima = [&](int cell) {
      for_each_ahead(cell, [&](int a, bool valid, int64_t at) {
        values[a] = valid ? __ldg(y + at) : 0.0f;
        positions[a] = valid ? __ldg(index + at) : 0;
      });
    };
    const auto load_gradients = [&](int cell) {
      for_each_ahead(cell, [&](int a, bool valid, int64_t at) {
        gradients[a] = valid ? __ldg(gy + at) : 0.0f;
      });
    };
    __syncthreads();  // everybody has left the band before
    begin_kernel(settled, [&] {
      load_maxima(row_thread);
      load_band(x, shared, c, band, n, first_row, q, 1);
    });
    load_gradients(row_thread);
    __syncthreads();
    int row = first_cell_row, column = first_cell_column;
    for (int cell = row_thread; cell < cells; cell += kAhead * row_threads) {
      if (cell > row_thread) {
        load_maxima(cell);
        load_gradients(cell);
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int i = cell + a * row_threads;
        if (i >= cells) break;
        const float gradient = activation_gradient<kSimple>(c, gradients[a], values[a]);
        const float* source = shared + (2 * row + (positions[a] >> 1)) * band.columns + 2 * column +
                              (positions[a] & 1);
        total += gradient;
#pragma unroll
        for (int t = 0; t < kTaps; ++t) {
          sum[t] += gradient * source[t / kKernel * band.columns + t % kKernel];
        }
        row += row_step;
        column += column_step;
        if (column >= c.pooled_width) {
          column -= c.pooled_width;
          ++row;
        }
      }
    }
  }

  __syncthreads();
#pragma unroll
  for (int t = 0; t < kTaps; ++t) shared[t * kWgradThreads + threadIdx.x] = sum[t];
  shared[kTaps * kWgradThreads + threadIdx.x] = total;
  __syncthreads();
  float* kernel_sums = sums.kernel + blockIdx.z * sums.kernel_stride;
  float* bias_sums = sums.bias == nullptr ? nullptr : sums.bias + blockIdx.z * sums.bias_stride;
  for (int item = threadIdx.x; item < (kTaps + 1) * p.lanes; item += kWgradThreads) {
    const int t = item / p.lanes;
    const int item_lane = item - t * p.lanes;
    const int item_channel = blockIdx.x * p.lanes + item_lane;
    const bool is_bias = t == kTaps;
    if (item_channel >= c.output_channels || (is_bias && (q > 0 || bias_sums == nullptr))) continue;
    const float* from = shared + t * kWgradThreads + item_lane;
    float result = 0;
#pragma unroll 8
    for (int r = 0; r < row_threads; ++r) result += from[r * p.lanes];
    float* target =
        is_bias ? bias_sums : kernel_sums + (t * c.input_channels + q) * c.output_channels;
    target[item_channel] = result;
  }
}

template <int kKernel>
std::unique_ptr<Kernel> plan_wgrad(const ConvPoolCall& call) {
  const ConvPool c(call.geometry);
  WgradParams p{};
  p.lanes = 8;
  while (p.lanes < 32 && p.lanes < c.output_channels) p.lanes *= 2;
  const int64_t tiles = ceil_div(c.output_channels, p.lanes) * c.input_channels;
  const int multiprocessors = Context::current().multiprocessors();
  constexpr int64_t kReduction = (kKernel * kKernel + 1) * kWgradThreads;
  const auto bytes_of = [&](const CellBand& band) {
    return std::max<int64_t>(int64_t{band.rows} * band.columns, kReduction) *
           int64_t{sizeof(float)};
  };
  // Whole images, or as many parts of them as it takes to occupy the device.
  CellBand band(c, kKernel, c.pooled_height);
  while (band.cell_rows > 1 && (bytes_of(band) > kMaxWgradShared ||
                                c.batch * band.bands_per_image * tiles < multiprocessors * 3 / 4)) {
    band = CellBand(c, kKernel, (band.cell_rows + 1) / 2);
  }
  const int64_t bytes = bytes_of(band);
  if (bytes > kMaxWgradShared) return nullptr;
  p.bands = c.batch * band.bands_per_image;
  const int64_t most = std::clamp<int64_t>(multiprocessors / tiles, 1, 1024);
  const int64_t turns = ceil_div(p.bands, std::min<int64_t>(p.bands, most));
  p.splits = static_cast<int>(ceil_div(p.bands, turns));
  const dim3 grid(static_cast<unsigned>(ceil_div(c.output_channels, p.lanes)), c.input_channels,
                  p.splits);
  const auto kernel = is_simple(c.activation) ? conv_pool_wgrad_small_kernel<kKernel, true>
                                              : conv_pool_wgrad_small_kernel<kKernel, false>;
  allow_most_shared_memory(kernel);
  return make_conv_pool_wgrad("kerascnn conv2d_max_pool2d_wgrad_small", call, p.splits,
                              [=, at = call.at](const KernelArgs& args, const PartialSums& sums) {
                                kernel<<<grid, kWgradThreads, static_cast<size_t>(bytes),
                                         static_cast<cudaStream_t>(args.stream)>>>(
                                    input<float>(args, at.x), input<float>(args, at.gy),
                                    input<float>(args, at.y), input<uint8_t>(args, at.index), sums,
                                    c, band, p, settled_loads(args, {{at.x, at.y, at.index}}));
                                check_launch("conv2d_max_pool2d_wgrad_small");
                              });
}

// With more input channels than this, spreading them over tensor cores is faster.
constexpr int64_t kFewChannels = 4;

bool fits(const ConvPoolCall& call) {
  return is_plain_conv_pool(call) && call.geometry.conv.input_channels <= kFewChannels;
}

template <int kKernel>
std::unique_ptr<Kernel> plan_width(const ConvPoolCall& call) {
  const int64_t channels = call.geometry.conv.output_channels;
  if (channels % 4 == 0) return plan_forward<kKernel, 4>(call);
  if (channels % 2 == 0) return plan_forward<kKernel, 2>(call);
  return plan_forward<kKernel, 1>(call);
}

}  // namespace

std::unique_ptr<Kernel> plan_conv_pool_small(const ConvPoolCall& call) {
  if (!fits(call)) return nullptr;
  return call.geometry.conv.kernel_height == 3 ? plan_width<3>(call) : plan_width<5>(call);
}

std::unique_ptr<Kernel> plan_conv_pool_wgrad_small(const ConvPoolCall& call) {
  if (!fits(call)) return nullptr;
  return call.geometry.conv.kernel_height == 3 ? plan_wgrad<3>(call) : plan_wgrad<5>(call);
}

}  // namespace kerascnn::cuda
