// Group normalization of (samples, rows, channels), and its gradients, in one launch each.
//
// Elements of a group are not neighbours in memory, but those of a few groups of a sample are
// pieces of rows. A cluster of blocks has such a slice of a sample: it takes the statistics of each
// of its channels, then those of the groups from them, and then computes the elements. Where a
// block's share fits, it stays in shared memory in between, so that memory is read once; else it is
// read again. All sums have a fixed order: rows of a thread, threads of a block, blocks, channels.
#include <optional>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/block.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/elementwise/activation.cuh"
#include "core/backend/cuda/fusions/fusions.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/shared_memory.h"
#include "core/backend/cuda/tiles/async_copy.cuh"
#include "core/backend/cuda/tiles/cluster.cuh"
#include "core/base/env.h"
#include "core/ops/activation_kind.h"

namespace kerascnn::cuda {
namespace {

constexpr int kMostBlocks = 8;    // of a cluster, which every device with clusters takes
constexpr int kMostWidth = 1024;  // channels of a slice
constexpr int kBatch = 4;         // rows of a thread that loops are unrolled by
constexpr size_t kAccess = 16;    // bytes of an access, where channels divide into such
constexpr int64_t kPiece = 64;    // bytes of a row that a slice should have at least
// Of tensors of 16 bits with more bytes regions are faster.
constexpr int64_t kMostNarrowBytes = int64_t{8} << 20;
// Rows of a slice should have so many bytes, where there are slices enough for the device.
constexpr int64_t kSection = 32 << 10;

struct Groups {
  int64_t rows, channels;
  int64_t block_rows;  // of each block of a cluster but the last ones
  int groups, members;
  int width;   // channels of a slice: whole groups
  int slices;  // of a sample
  int blocks;  // of a cluster
  float epsilon;
  Activation activation;
  float alpha;

  __host__ __device__ int groups_of_slice() const { return width / members; }
  // Floats in shared memory beside what is kept: what threads give each other, which becomes the
  // results of all blocks, what other blocks read, and what is known of groups.
  template <int N>
  static constexpr int exchanged() {
    return kThreads * N > 2 * kMostWidth ? kThreads * N : 2 * kMostWidth;
  }
  template <int N>
  __host__ __device__ int floats() const {
    // A multiple of 4, so that what is kept is aligned.
    return (exchanged<N>() + 2 * width + 2 * groups_of_slice() + 3) / 4 * 4;
  }
};

// Where a thread is in its slice: it has N channels from `column` on of every `lanes`-th row of its
// block, from row `lane` on. Threads with no row only take part in barriers.
template <typename T, int N>
struct Place {
  __device__ explicit Place(const Groups& g) {
    const int columns = g.width / N;
    lanes = kThreads / columns;
    lane = static_cast<int>(threadIdx.x) / columns;
    column = static_cast<int>(threadIdx.x) % columns * N;
    rank = static_cast<int>(blockIdx.x % g.blocks);
    const int64_t cluster = blockIdx.x / g.blocks;
    sample = cluster / g.slices;
    first_channel = static_cast<int>(cluster % g.slices) * g.width;
    rows = static_cast<int>(rows_of(g, rank));
    if (lane >= lanes) rows = 0;
    first =
        (sample * g.rows + min(rank * g.block_rows, g.rows)) * g.channels + first_channel + column;
  }

  __device__ static int64_t rows_of(const Groups& g, int block) {
    const int64_t begin = min(block * g.block_rows, g.rows);
    return min(g.block_rows, g.rows - begin);
  }

  int lanes, lane, column;
  int rank;           // of the block
  int first_channel;  // of the slice
  int rows;           // of the block, 0 for a thread with no lane
  int64_t sample;
  int64_t first;  // where the thread's channels of the block's first row are
};

template <typename T, int N>
__device__ __forceinline__ void widen(const Vector<T, N>& from, float (&to)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) to[k] = load(from.values[k]);
}

template <typename T, int N>
__device__ __forceinline__ Vector<T, N> narrow(const float (&from)[N]) {
  Vector<T, N> to;
#pragma unroll
  for (int k = 0; k < N; ++k) to.values[k] = store<T>(from[k]);
  return to;
}

// As values are between two ops.
template <typename T, int N>
__device__ __forceinline__ void round_all(float (&values)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) values[k] = load(store<T>(values[k]));
}

// The gradients g behind the activation become those before it.
template <int N>
__device__ __forceinline__ void undo_activation(const Groups& groups, float (&g)[N],
                                                const float (&reference)[N]) {
  switch (groups.activation) {
#define KERASCNN_CASE(kind, op, ...)                                                      \
  case Activation::kind:                                                                  \
    _Pragma("unroll") for (int k = 0; k < N; ++k) {                                       \
      g[k] = element_apply<ElementOp::op##_grad>(g[k], reference[k], 0.0f, groups.alpha); \
    }                                                                                     \
    break;
    KERASCNN_ACTIVATION_LIST(KERASCNN_CASE)
#undef KERASCNN_CASE
    default:
      break;
  }
}

// Mean and squared deviations of a number of values.
template <int N>
struct Moments {
  float mean[N] = {};
  float squares[N] = {};
  float count = 0.0f;

  __device__ void add(const float (&other_mean)[N], const float (&other_squares)[N],
                      float other_count) {
    if (other_count == 0.0f) return;
    const float sum = count + other_count, share = other_count / sum;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float apart = other_mean[k] - mean[k];
      mean[k] += apart * share;
      squares[k] += other_squares[k] + apart * apart * (count * share);
    }
    count = sum;
  }
};

// Merges what the threads of a block have of the same channels, for those of lane 0: pairs of
// lanes, then pairs of pairs. combine(a, b, count) gets what another lane has.
template <typename T, int N, typename Combine>
__device__ __forceinline__ void merge_lanes(const Place<T, N>& at, int columns, const float (&a)[N],
                                            const float (&b)[N], const float& count,
                                            float* exchange, Combine combine) {
  constexpr int kStride = kThreads / 2;  // at most half of the threads give something
  __shared__ float counts[kStride];
  const int column = at.column / N;
  int half = 1;
  while (2 * half < at.lanes) half *= 2;
  for (; at.lanes > 1 && half > 0; half /= 2) {
    if (at.lane >= half && at.lane < 2 * half && at.lane < at.lanes) {
      const int slot = (at.lane - half) * columns + column;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        exchange[2 * k * kStride + slot] = a[k];
        exchange[(2 * k + 1) * kStride + slot] = b[k];
      }
      counts[slot] = count;
    }
    __syncthreads();
    if (at.lane < half && at.lane + half < at.lanes) {
      const int slot = at.lane * columns + column;
      float other_a[N], other_b[N];
#pragma unroll
      for (int k = 0; k < N; ++k) {
        other_a[k] = exchange[2 * k * kStride + slot];
        other_b[k] = exchange[(2 * k + 1) * kStride + slot];
      }
      combine(other_a, other_b, counts[slot]);
    }
    __syncthreads();
  }
}

// Starts to bring elements to shared memory, for the same thread after commit and wait.
template <typename T, int N>
__device__ __forceinline__ void keep(Vector<T, N>* shared, const T* from) {
  if constexpr (sizeof(Vector<T, N>) == kAccess) {
    copy_async<kAccess>(shared, from, kAccess);
  } else {
    *shared = *reinterpret_cast<const Vector<T, N>*>(from);
  }
}

// Calls function(k, group of the slice) for N channels from `column` on.
template <int N, typename Function>
__device__ __forceinline__ void for_channels(const Groups& g, int column, Function function) {
  int group = column / g.members, member = column % g.members;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (member == g.members) {
      member = 0;
      ++group;
    }
    function(k, group);
    ++member;
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads, 3)
    group_norm_kernel(const T* __restrict__ x, const float* __restrict__ gamma,
                      const float* __restrict__ beta, T* __restrict__ y, float* __restrict__ means,
                      float* __restrict__ inverses, Groups g) {
  begin_kernel();
  using Piece = Vector<T, N>;
  extern __shared__ float4 shared[];
  float* exchange = reinterpret_cast<float*>(shared);
  float* share_of_block = exchange + Groups::exchanged<N>();
  float* of_groups = share_of_block + 2 * g.width;
  Piece* kept = reinterpret_cast<Piece*>(exchange + g.floats<N>());
  const Place<T, N> at(g);
  const int columns = g.width / N;
  const T* sample = x + at.sample * g.rows * g.channels + at.first_channel;  // its first row

  const T* from = x + at.first;
  Piece* own_kept = kept + at.column / N;
  for (int row = at.lane; row < at.rows; row += at.lanes) {
    keep(own_kept + row * columns, from + row * g.channels);
  }
  commit_copies();

  // Elements are taken as what they differ by from the sample's first row, and those of a thread
  // from its own first row: squares of means don't cost digits.
  float origin[N] = {}, base[N] = {}, sum[N] = {}, squares[N] = {};
  if (at.rows > at.lane) widen(*reinterpret_cast<const Piece*>(sample + at.column), origin);
  wait_for_copies<0>();
  if (at.rows > at.lane) widen(own_kept[at.lane * columns], base);
#pragma unroll kBatch
  for (int row = at.lane; row < at.rows; row += at.lanes) {
    const Piece elements = own_kept[row * columns];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float apart = load(elements.values[k]) - base[k];
      sum[k] += apart;
      squares[k] += apart * apart;
    }
  }
  Moments<N> own;
  own.count = at.rows > at.lane ? static_cast<float>((at.rows - at.lane - 1) / at.lanes + 1) : 0.0f;
  if (own.count > 0.0f) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float mean = sum[k] / own.count;
      const float left = squares[k] - sum[k] * mean;
      own.mean[k] = base[k] - origin[k] + mean;
      own.squares[k] = left < 0.0f ? 0.0f : left;  // NaN stays
    }
  }
  merge_lanes(at, columns, own.mean, own.squares, own.count, exchange,
              [&](const float (&mean)[N], const float (&other)[N], float count) {
                own.add(mean, other, count);
              });
  if (at.lane == 0) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      share_of_block[at.column + k] = own.mean[k];
      share_of_block[g.width + at.column + k] = own.squares[k];
    }
  }
  __syncwarp();
  arrive_in_cluster();
  wait_for_cluster();

  // Each block merges what all of them have, and gets the same.
  float* of_channels = exchange;
  for (int channel = threadIdx.x; channel < g.width; channel += kThreads) {
    Moments<1> all;
    for (int block = 0; block < g.blocks; ++block) {
      const float mean[1] = {load_from_cluster(share_of_block + channel, block)};
      const float other[1] = {load_from_cluster(share_of_block + g.width + channel, block)};
      all.add(mean, other, static_cast<float>(Place<T, N>::rows_of(g, block)));
    }
    // Of a group, all channels are taken as what they differ by from the first one's first element.
    const float first = load(sample[channel / g.members * g.members]);
    of_channels[channel] = load(sample[channel]) - first + all.mean[0];
    of_channels[g.width + channel] = all.squares[0];
  }
  __syncthreads();
  arrive_in_cluster();  // nothing is read from other blocks any more
  const int lane_of_warp = threadIdx.x % 32;
  for (int group = threadIdx.x / 32; group < g.groups_of_slice(); group += kThreads / 32) {
    const float* mean_of = of_channels + group * g.members;
    const float* squares_of = mean_of + g.width;
    float mean = 0.0f, variance = 0.0f;
    for (int i = lane_of_warp; i < g.members; i += 32) mean += mean_of[i];
    mean = warp_reduce(mean, Sum()) / static_cast<float>(g.members);
    for (int i = lane_of_warp; i < g.members; i += 32) {
      const float apart = mean_of[i] - mean;
      variance += squares_of[i] / static_cast<float>(g.rows) + apart * apart;
    }
    variance = warp_reduce(variance, Sum()) / static_cast<float>(g.members);
    mean += load(sample[group * g.members]);
    const float inverse = element_apply<ElementOp::rsqrt>(variance + g.epsilon, 0.0f, 0.0f, 0.0f);
    if (lane_of_warp == 0) {
      of_groups[2 * group] = mean;
      of_groups[2 * group + 1] = inverse;
      const int64_t index = at.sample * g.groups + at.first_channel / g.members + group;
      if (at.rank == 0 && means != nullptr) means[index] = mean;
      if (at.rank == 0 && inverses != nullptr) inverses[index] = inverse;
    }
  }
  __syncthreads();

  float mean[N], scale[N], shift[N];
  for_channels<N>(g, at.column, [&](int k, int group) {
    const int channel = at.first_channel + at.column + k;
    mean[k] = of_groups[2 * group];
    scale[k] = of_groups[2 * group + 1] * gamma[channel];
    shift[k] = beta[channel];
  });
#pragma unroll kBatch
  for (int row = at.lane; row < at.rows; row += at.lanes) {
    float values[N];
    widen(own_kept[row * columns], values);
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] = (values[k] - mean[k]) * scale[k] + shift[k];
    if (g.activation != Activation::Linear) {
      round_all<T>(values);
      activate_all(g.activation, values, g.alpha);
    }
    *reinterpret_cast<Piece*>(y + at.first + row * g.channels) = narrow<T>(values);
  }
  __syncwarp();
  wait_for_cluster();
}

// With z = (x - m) i, the normalized elements, and g, the gradients of z gamma + beta: dx = i gamma
// g
// - i (sum(gamma g) + z sum(gamma g z)) / n, where sums and n are of a group.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads, 2)
    group_norm_grad_kernel(const T* __restrict__ x, const float* __restrict__ gamma,
                           const float* __restrict__ beta, const T* __restrict__ gy,
                           const float* __restrict__ means, const float* __restrict__ inverses,
                           T* __restrict__ dx, float* __restrict__ dgamma,
                           float* __restrict__ dbeta, Groups g) {
  begin_kernel();
  using Piece = Vector<T, N>;
  extern __shared__ float4 shared[];
  float* exchange = reinterpret_cast<float*>(shared);
  float* share_of_block = exchange + Groups::exchanged<N>();
  float* of_groups = share_of_block + 2 * g.width;
  // An element of x, then its gradient.
  Piece* kept = reinterpret_cast<Piece*>(exchange + g.floats<N>());
  const Place<T, N> at(g);
  const int columns = g.width / N;
  const float* sample_means = means + at.sample * g.groups + at.first_channel / g.members;
  const float* sample_inverses = inverses + at.sample * g.groups + at.first_channel / g.members;

  const T *from = x + at.first, *gradients_from = gy + at.first;
  Piece* own_kept = kept + at.column / N;
  Piece* own_gradients = own_kept + columns;
  for (int row = at.lane; row < at.rows; row += at.lanes) {
    keep(own_kept + 2 * row * columns, from + row * g.channels);
    keep(own_gradients + 2 * row * columns, gradients_from + row * g.channels);
  }
  commit_copies();
  float mean[N], scale[N], shift[N] = {};
  for_channels<N>(g, at.column, [&](int k, int group) {
    const int channel = at.first_channel + at.column + k;
    mean[k] = sample_means[group];
    scale[k] = sample_inverses[group] * gamma[channel];
    if (g.activation != Activation::Linear) shift[k] = beta[channel];
  });
  // The gradients of what is before the activation.
  const auto take_back = [&](const Piece& of_x, Piece& of_y) {
    if (g.activation == Activation::Linear) return;
    float reference[N], gradient[N];
    widen(of_x, reference);
    widen(of_y, gradient);
#pragma unroll
    for (int k = 0; k < N; ++k) reference[k] = (reference[k] - mean[k]) * scale[k] + shift[k];
    round_all<T>(reference);
    if (gradient_uses_output(g.activation)) {
      activate_all(g.activation, reference, g.alpha);
      round_all<T>(reference);
    }
    undo_activation(g, gradient, reference);
    of_y = narrow<T>(gradient);
  };
  float sum[N] = {}, products[N] = {};
  wait_for_copies<0>();
#pragma unroll kBatch
  for (int row = at.lane; row < at.rows; row += at.lanes) {
    const Piece elements = own_kept[2 * row * columns];
    Piece gradients = own_gradients[2 * row * columns];
    take_back(elements, gradients);
    if (g.activation != Activation::Linear) own_gradients[2 * row * columns] = gradients;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float gradient = load(gradients.values[k]);
      sum[k] += gradient;
      products[k] += gradient * (load(elements.values[k]) - mean[k]);
    }
  }
  merge_lanes(at, columns, sum, products, 0.0f, exchange,
              [&](const float (&other_sum)[N], const float (&other_products)[N], float) {
#pragma unroll
                for (int k = 0; k < N; ++k) {
                  sum[k] += other_sum[k];
                  products[k] += other_products[k];
                }
              });
  if (at.lane == 0) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      share_of_block[at.column + k] = sum[k];
      share_of_block[g.width + at.column + k] = products[k];
    }
  }
  __syncwarp();
  arrive_in_cluster();
  wait_for_cluster();

  float* of_channels = exchange;
  for (int channel = threadIdx.x; channel < g.width; channel += kThreads) {
    float all = 0.0f, all_products = 0.0f;
    for (int block = 0; block < g.blocks; ++block) {
      all += load_from_cluster(share_of_block + channel, block);
      all_products += load_from_cluster(share_of_block + g.width + channel, block);
    }
    const float factor = gamma[at.first_channel + channel];
    const float inverse = sample_inverses[channel / g.members];
    of_channels[channel] = all * (inverse * factor);
    of_channels[g.width + channel] = all_products * factor;
    if (at.rank == 0) {
      const int64_t index = at.sample * g.channels + at.first_channel + channel;
      dgamma[index] = all_products * inverse;
      dbeta[index] = all;
    }
  }
  __syncthreads();
  arrive_in_cluster();  // nothing is read from other blocks any more
  const int lane_of_warp = threadIdx.x % 32;
  for (int group = threadIdx.x / 32; group < g.groups_of_slice(); group += kThreads / 32) {
    const float* sums_of = of_channels + group * g.members;
    const float* products_of = sums_of + g.width;
    float by_mean = 0.0f, by_inverse = 0.0f;
    for (int i = lane_of_warp; i < g.members; i += 32) {
      by_mean += sums_of[i];
      by_inverse += products_of[i];
    }
    by_mean = warp_reduce(by_mean, Sum());
    by_inverse = warp_reduce(by_inverse, Sum());
    if (lane_of_warp == 0) {
      const float inverse = sample_inverses[group];
      const float count = static_cast<float>(g.rows) * static_cast<float>(g.members);
      of_groups[2 * group] = -(by_inverse * (inverse * inverse * inverse)) / count;
      of_groups[2 * group + 1] = -by_mean / count;
    }
  }
  __syncthreads();

  float slope[N], offset[N];
  for_channels<N>(g, at.column, [&](int k, int group) {
    slope[k] = of_groups[2 * group];
    offset[k] = of_groups[2 * group + 1];
  });
#pragma unroll kBatch
  for (int row = at.lane; row < at.rows; row += at.lanes) {
    const Piece elements = own_kept[2 * row * columns];
    const Piece gradients = own_gradients[2 * row * columns];
    float values[N], gradient[N];
    widen(elements, values);
    widen(gradients, gradient);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[k] = gradient[k] * scale[k] + ((values[k] - mean[k]) * slope[k] + offset[k]);
    }
    *reinterpret_cast<Piece*>(dx + at.first + row * g.channels) = narrow<T>(values);
  }
  __syncwarp();
  wait_for_cluster();
}

// Which channels a block has, and how many elements it takes at once.
struct Slice {
  int width = 0;
  int piece = 1;  // elements of an access
};

// Whole groups, so many that a piece of a row has kPiece bytes where a sample's rows do, and more
// where rows are few. Nothing where a group is too wide for a block.
std::optional<Slice> choose_slice(const Shape& shape, int64_t groups, int64_t itemsize,
                                  int64_t multiprocessors) {
  const int64_t channels = shape.back();
  const int64_t rows = num_elements(shape) / shape.front() / channels;
  const int64_t members = channels / groups;
  const int64_t wide = static_cast<int64_t>(kAccess) / itemsize;
  std::optional<Slice> best;
  for (int64_t count = 1; count <= groups && count * members <= kMostWidth; ++count) {
    const int64_t width = count * members;
    if (groups % count != 0) continue;
    const int64_t piece = channels % wide == 0 && width % wide == 0 ? wide : 1;
    if (width / piece > kThreads || (best && piece < best->piece)) continue;
    const bool is_wider = best && piece > best->piece;
    const bool is_short = best && rows * best->width * itemsize < kSection &&
                          shape.front() * (channels / width) >= 2 * multiprocessors;
    if (best && !is_wider && !is_short && best->width * itemsize >= kPiece) continue;
    best = Slice{static_cast<int>(width), static_cast<int>(piece)};
  }
  return best;
}

template <int N>
size_t shared_bytes(const Groups& g, int64_t row_bytes) {
  return static_cast<size_t>(g.block_rows * row_bytes) + g.floats<N>() * sizeof(float);
}

// `tensors` are those that the kernel reads twice. Nothing where regions are better: where shared
// memory does not hold these, or where sections are too few for the device.
template <int N, typename... P>
std::optional<Groups> plan_groups(void (*kernel)(P...), const Shape& shape, int64_t groups,
                                  const Slice& slice, int64_t itemsize, int tensors) {
  Groups g{};
  g.channels = shape.back();
  g.rows = num_elements(shape) / shape[0] / g.channels;
  g.groups = static_cast<int>(groups);
  g.members = static_cast<int>(g.channels / groups);
  g.width = slice.width;
  g.slices = static_cast<int>(g.channels / slice.width);
  const int64_t clusters = shape[0] * g.slices;
  const int64_t row_bytes = slice.width * itemsize * tensors;
  const int64_t lanes = kThreads / (slice.width / N);
  const int64_t multiprocessors = Context::current().multiprocessors();
  // So that three blocks share a multiprocessor, or two of the gradient.
  const int64_t share = (tensors == 1 ? 64 : 96) << 10;
  g.blocks = 1;
  while (g.blocks < kMostBlocks) {
    const bool is_large = g.rows * row_bytes > g.blocks * share;
    const bool is_alone =
        clusters * g.blocks < 2 * multiprocessors && g.rows >= 2 * kBatch * lanes * g.blocks;
    if (!is_large && !is_alone) break;
    g.blocks *= 2;
  }
  g.block_rows = ceil_div(g.rows, int64_t{g.blocks});
  if (clusters * g.blocks > std::numeric_limits<int>::max()) return std::nullopt;
  allow_most_shared_memory(kernel);
  const auto fits = [&] {
    return ClusterLaunch(dim3(static_cast<unsigned>(g.blocks)), kThreads,
                         static_cast<unsigned>(g.blocks), shared_bytes<N>(g, row_bytes))
        .fits(kernel);
  };
  const int64_t most = static_cast<int64_t>(Context::current().properties().sharedMemPerBlockOptin);
  const int64_t kept = g.block_rows * row_bytes;
  const bool is_idle = 2 * clusters * g.blocks < multiprocessors && kept > 3 * kSection;
  if (is_idle || kept >= most || !fits()) return std::nullopt;
  return g;
}

ClusterLaunch launch_groups(const Groups& g, int64_t samples, size_t shared, void* stream) {
  const auto blocks = static_cast<unsigned>(samples * g.slices * g.blocks);
  return ClusterLaunch(dim3(blocks), kThreads, static_cast<unsigned>(g.blocks), shared,
                       static_cast<cudaStream_t>(stream));
}

// Does each of the values have one number for each channel of each sample, beside x?
bool is_beside(const Match& match, std::initializer_list<std::string_view> values) {
  Shape shape = match.spec("x").shape;
  std::fill(shape.begin() + 1, shape.end() - 1, 1);
  return std::all_of(values.begin(), values.end(), [&](std::string_view value) {
    return !match.has(value) || match.spec(value).shape == shape;
  });
}

// What both fusions require: that the user wants them, numbers for each channel, in float32, and x
// in a dtype that is computed in float32.
bool are_groups(const Match& match) {
  const TensorSpec& x = match.spec("x");
  if (!env_flag("KERASCNN_GROUP_NORM_KERNELS", false)) return false;
  if (x.shape.size() < 3 || num_elements(x.shape) == 0) return false;
  if (x.dtype != DType::Float32 && num_bytes(x) > kMostNarrowBytes) return false;
  const Shape channels = {x.shape.back()};
  const Shape& means = match.spec("channel means").shape;  // (samples, groups, members)
  const TensorSpec factors = {DType::Float32, {1, means[1], means[2]}};
  const bool is_float =
      x.dtype == DType::Float32 || x.dtype == DType::Float16 || x.dtype == DType::BFloat16;
  return is_float && means.size() == 3 && means[0] == x.shape[0] &&
         match.spec("gamma") == TensorSpec{DType::Float32, channels} &&
         match.spec("factors") == factors &&
         (!match.has("offsets") || (match.spec("beta") == TensorSpec{DType::Float32, channels} &&
                                    match.spec("offsets") == factors)) &&
         match.constant("epsilon") && is_beside(match, {"origins", "scales", "shifts"});
}

// What has to be a certain number in the gradient.
bool are_shares(const Match& match) {
  const Shape& x = match.spec("x").shape;
  const double members = static_cast<double>(match.spec("channel means").shape[2]);
  const double rows = static_cast<double>(num_elements(x) / x.front() / x.back());
  const auto is = [&](std::string_view name, double wanted) {
    const std::optional<double> number = match.constant(name);
    return number && static_cast<float>(*number) == static_cast<float>(wanted);
  };
  return is("-1/2", -0.5) && is("2", 2.0) && is("1/members", 1.0 / members) &&
         is("1/members again", 1.0 / members) && is("2/rows", 2.0 / rows) &&
         is("1/rows", 1.0 / rows);
}

// Calls function(Type<T>(), std::integral_constant<int, N>()) for elements of x's dtype, of which N
// are taken at once.
template <typename Function>
std::unique_ptr<Kernel> with_elements(DType dtype, int piece, Function&& function) {
  const auto with = [&]<typename T>(Type<T> type) {
    constexpr int kWide = static_cast<int>(kAccess / sizeof(T));
    return piece == 1 ? function(type, std::integral_constant<int, 1>())
                      : function(type, std::integral_constant<int, kWide>());
  };
  if (dtype == DType::Float16) return with(Type<__half>());
  if (dtype == DType::BFloat16) return with(Type<__nv_bfloat16>());
  return with(Type<float>());
}

}  // namespace

std::unique_ptr<Kernel> plan_fused_group_norm(const Match& match) {
  const TensorSpec& x = match.spec("x");
  if (!are_groups(match) || match.spec("y") != x) return nullptr;
  const auto itemsize_of_x = static_cast<int64_t>(itemsize(x.dtype));
  const int64_t groups = match.spec("channel means").shape[1];
  const std::optional<Slice> slice =
      choose_slice(x.shape, groups, itemsize_of_x, Context::current().multiprocessors());
  if (!slice) return nullptr;
  ActivationCall activation;
  if (match.has("activation")) {
    const Node& node = match.node("activation");
    activation = activation_call(*find_activation(*node.op), node.attributes);
  }
  const auto epsilon = static_cast<float>(*match.constant("epsilon"));
  return with_elements(
      x.dtype, slice->piece, [&]<typename T, int N>(Type<T>, std::integral_constant<int, N>) {
        std::optional<Groups> plan =
            plan_groups<N>(group_norm_kernel<T, N>, x.shape, groups, *slice, itemsize_of_x, 1);
        if (!plan) return std::unique_ptr<Kernel>();
        plan->epsilon = epsilon;
        plan->activation = activation.kind;
        plan->alpha = static_cast<float>(activation.alpha);
        const size_t shared = shared_bytes<N>(*plan, slice->width * itemsize_of_x);
        const int64_t samples = x.shape[0];
        const size_t gamma = match.input("gamma"), beta = match.input("beta");
        return make_early_kernel("kerascnn group normalization",
                                 [=, from = match.input("x"), g = *plan](const KernelArgs& args) {
                                   launch_groups(g, samples, shared, args.stream)
                                       .run(group_norm_kernel<T, N>, input<T>(args, from),
                                            input<float>(args, gamma), input<float>(args, beta),
                                            output<T>(args, 0), output<float>(args, 1),
                                            output<float>(args, 2), g);
                                 });
      });
}

std::unique_ptr<Kernel> plan_fused_group_norm_grad(const Match& match) {
  const TensorSpec& x = match.spec("x");
  if (!are_groups(match) || !are_shares(match) || !is_beside(match, {"slopes", "by channels"}) ||
      match.spec("gy") != x || match.spec("dx") != x) {
    return nullptr;
  }
  const auto itemsize_of_x = static_cast<int64_t>(itemsize(x.dtype));
  const int64_t groups = match.spec("channel means").shape[1];
  const std::optional<Slice> slice =
      choose_slice(x.shape, groups, itemsize_of_x, Context::current().multiprocessors());
  if (!slice) return nullptr;
  ActivationCall activation;
  if (match.has("activation gradient")) {
    const Node& node = match.node("activation gradient");
    activation = activation_call(*find_activation_of_gradient(*node.op), node.attributes);
    if (match.has("activation")) {
      const Node& other = match.node("activation");
      const ActivationCall undone = activation_call(*find_activation(*other.op), other.attributes);
      if (undone.kind != activation.kind || undone.alpha != activation.alpha) return nullptr;
    }
  }
  return with_elements(
      x.dtype, slice->piece, [&]<typename T, int N>(Type<T>, std::integral_constant<int, N>) {
        std::optional<Groups> plan =
            plan_groups<N>(group_norm_grad_kernel<T, N>, x.shape, groups, *slice, itemsize_of_x, 2);
        if (!plan) return std::unique_ptr<Kernel>();
        plan->activation = activation.kind;
        plan->alpha = static_cast<float>(activation.alpha);
        const size_t shared = shared_bytes<N>(*plan, 2 * slice->width * itemsize_of_x);
        const int64_t samples = x.shape[0];
        // Nothing reads the offsets where there is no activation.
        const size_t beta = match.input(match.has("offsets") ? "beta" : "gamma");
        return make_early_kernel(
            "kerascnn group normalization gradient",
            [=, from = match.input("x"), gamma = match.input("gamma"), gy = match.input("gy"),
             means = match.input("means"), inverses = match.input("inverses"),
             g = *plan](const KernelArgs& args) {
              launch_groups(g, samples, shared, args.stream)
                  .run(group_norm_grad_kernel<T, N>, input<T>(args, from),
                       input<float>(args, gamma), input<float>(args, beta), input<T>(args, gy),
                       input<float>(args, means), input<float>(args, inverses), output<T>(args, 0),
                       output<float>(args, 1), output<float>(args, 2), g);
            });
      });
}

}  // namespace kerascnn::cuda
