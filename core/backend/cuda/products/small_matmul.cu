// Latency limits small matrix products: the number of dependent trips to memory counts, not the
// arithmetic. So every warp takes a 32 x 32 tile of the result and a short piece of the sum, and
// loads all of that straight into the registers of its tensor-core fragments. The pieces are added
// up over a block's warps and then over the blocks that share the tile: by a cluster of them
// through shared memory, or, where the device has no clusters, by the last one to finish. Both add
// in a fixed order.
#include "core/backend/cuda/products/small_matmul.h"

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/block.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/indices.cuh"
#include "core/backend/cuda/products/matmul_ends.cuh"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/device_buffer.h"
#include "core/backend/cuda/tiles/cluster.cuh"
#include "core/backend/cuda/tiles/fragments.cuh"
#include "core/backend/cuda/tiles/ordered_sums.cuh"

namespace kerascnn::cuda {
namespace {

constexpr int kTile = 32;       // rows and columns of the result, per block
constexpr int kUnit = 16;       // of the summed axis, loaded by a warp at once
constexpr int kUnits = 2;       // that a warp loads at once
constexpr int kMaxWarps = 8;    // of a block; they share the sum
constexpr int kMaxSplits = 16;  // blocks that share a tile: the largest cluster
// A tile is 256 vectors of 4. In shared memory the vectors lie as the fragments have them, 8 rows
// of one vector per lane, padded so that pairs of rows fall into different banks.
constexpr int kVectors = kTile * kTile / 4;
constexpr int kPaddedLanes = 36;
constexpr int kPartVectors = 8 * kPaddedLanes;

struct Product : ProductShape {
  int tiles_across;
  int splits;
  int k_per_split;          // a multiple of kUnit
  bool vector_a, vector_b;  // rows in memory are multiples of 16 bytes
};

size_t shared_bytes(int warps) {
  return (static_cast<size_t>(warps) * kPartVectors + kVectors) * sizeof(float4);
}

// What a lane needs of a matrix for one unit: values[i][e] is row 4 * group + i at k = 4 * member +
// e. Any order of rows and of the summed axis is right as long as both matrices have the same; this
// one makes every load a vector, whichever axis is contiguous (the rows' with `kRows`).
template <bool kRows>
__device__ __forceinline__ void load_unit(float (&values)[4][4], const float* __restrict__ matrix,
                                          int row, int rows, int k, int k_end, int k_size,
                                          bool vector) {
#pragma unroll
  for (int outer = 0; outer < 4; ++outer) {
    // `outer` counts steps along the axis that is not contiguous.
    const int r = kRows ? row : row + outer;
    const int at = kRows ? k + outer : k;
    const float* from = matrix + (kRows ? at * rows + r : r * k_size + at);
    float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
    if (vector) {
      if (r < rows && at < k_end) v = *reinterpret_cast<const float4*>(from);
    } else {
      const int left = r < rows && at < k_end ? (kRows ? rows - r : k_end - at) : 0;
      if (left > 0) v.x = from[0];
      if (left > 1) v.y = from[1];
      if (left > 2) v.z = from[2];
      if (left > 3) v.w = from[3];
    }
    const float four[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int inner = 0; inner < 4; ++inner) {
      if constexpr (kRows) {
        values[inner][outer] = four[inner];
      } else {
        values[outer][inner] = four[inner];
      }
    }
  }
}

// sums[p][j] are those of rows 4 * group + 2 * p + (0, 1), columns 8 * member + j + (0, 4).
__device__ __forceinline__ void multiply_unit(float (&sums)[2][4][4], const float (&a)[4][4],
                                              const float (&b)[4][4]) {
#pragma unroll
  for (int step = 0; step < 4; step += 2) {
    multiply_tiles(
        sums,
        [&](int p) {
          return LeftFragment{{to_tf32(a[2 * p][step]), to_tf32(a[2 * p + 1][step]),
                               to_tf32(a[2 * p][step + 1]), to_tf32(a[2 * p + 1][step + 1])}};
        },
        [&](int j) { return RightFragment{{to_tf32(b[j][step]), to_tf32(b[j][step + 1])}}; });
  }
}

// Where vector x of a tile is: eight neighbouring ones are a row.
struct Position {
  int row, column;
  __device__ __forceinline__ explicit Position(int x)
      : row(x / 8 % 8 * 4 + x / 64), column(x % 8 * 4) {}
  // Where fragments leave the vector in shared memory: by row % 4 and half of 8 columns, then by
  // lane.
  __device__ __forceinline__ static int in_part(int x) {
    return (x / 64 * 2 + x % 2) * kPaddedLanes + x / 2 % 32;
  }
};

// The part of the tile that the block has summed; each thread has its vectors in registers.
struct BlockSums {
  float4 vectors[2];  // of thread and thread + blockDim.x; the second only where warps are few
};

// Sums over the second matrix's rows, for ends that take them with `store_column_sum`: every block
// reads all of its columns anyway. The sums are of float32 numbers, which are not rounded as the
// product's factors are. Other ends get nothing.
template <typename End>
constexpr bool kSumsColumns =
    requires(const End& end, const ProductShape& p, float sum) { end.store_column_sum(p, 0, sum); };

template <bool kWanted>
struct ColumnSums {
  __device__ __forceinline__ explicit ColumnSums(bool) {}
  __device__ __forceinline__ void add_unit(const float (&)[4][4]) {}
  __device__ __forceinline__ void share(float*) const {}
};

template <>
struct ColumnSums<true> {
  bool is_wanted;  // all threads of a block have the same
  float sums[4] = {};

  __device__ __forceinline__ explicit ColumnSums(bool wanted) : is_wanted(wanted) {}

  // b is as load_unit leaves it; what lies beyond its end is 0.
  __device__ __forceinline__ void add_unit(const float (&b)[4][4]) {
    if (!is_wanted) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += (b[i][0] + b[i][1]) + (b[i][2] + b[i][3]);
  }

  // Leaves the warp's sums in shared memory, kTile of them for each warp.
  __device__ __forceinline__ void share(float* of_block) const {
    if (!is_wanted) return;
    const int lane = threadIdx.x % 32;
    float4 total = {sums[0], sums[1], sums[2], sums[3]};
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
      // The lanes of a group have the same columns. A sum of two numbers is the same in either
      // order, so all lanes get the same bits.
      total.x += __shfl_xor_sync(0xffffffffu, total.x, step);
      total.y += __shfl_xor_sync(0xffffffffu, total.y, step);
      total.z += __shfl_xor_sync(0xffffffffu, total.z, step);
      total.w += __shfl_xor_sync(0xffffffffu, total.w, step);
    }
    if (lane % 4 == 0) {
      *reinterpret_cast<float4*>(of_block + threadIdx.x / 32 * kTile + lane) = total;
    }
  }
};

// Begins the kernel and sums the warp's share. With kVectorLoads both matrices can be read in
// vectors, which gives the common case short code.
template <bool kTransposeA, bool kTransposeB, bool kVectorLoads, typename Columns>
__device__ __forceinline__ void sum_in_warp(float (&sums)[2][4][4], Columns& columns,
                                            const float* __restrict__ a,
                                            const float* __restrict__ b, const Product& p,
                                            int first_row, int first_column, int k_begin, int k_end,
                                            uint32_t settled) {
  const int lane = threadIdx.x % 32;
  const int row = first_row + lane / 4 * 4, column = first_column + lane / 4 * 4;
  const int step = static_cast<int>(blockDim.x) / 32 * kUnit;
  const bool vector_a = kVectorLoads || p.vector_a, vector_b = kVectorLoads || p.vector_b;
  float of_a[kUnits][4][4], of_b[kUnits][4][4];
  int k = k_begin + static_cast<int>(threadIdx.x) / 32 * kUnit;
  const auto load_a = [&] {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      load_unit<kTransposeA>(of_a[u], a, row, p.m, k + lane % 4 * 4 + u * step, k_end, p.k,
                             vector_a);
    }
  };
  const auto load_b = [&] {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      load_unit<!kTransposeB>(of_b[u], b, column, p.n, k + lane % 4 * 4 + u * step, k_end, p.k,
                              vector_b);
    }
  };
  begin_kernel(settled, load_b, load_a);
  while (k < k_end) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (u == 0 || k + u * step < k_end) multiply_unit(sums, of_a[u], of_b[u]);
    }
#pragma unroll
    for (int u = 0; u < kUnits; ++u) columns.add_unit(of_b[u]);
    k += kUnits * step;
    if (k >= k_end) break;
    load_a();
    load_b();
  }
}

// Adds up what the block's warps have, through shared memory.
__device__ __forceinline__ BlockSums sum_in_block(float4* parts, const float (&sums)[2][4][4]) {
  const int lane = threadIdx.x % 32;
  const int warps = blockDim.x / 32;
  float4* part = parts + threadIdx.x / 32 * kPartVectors;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = i % 2 * 2 + half;
      part[(i * 2 + half) * kPaddedLanes + lane] = {sums[i / 2][0][at], sums[i / 2][1][at],
                                                    sums[i / 2][2][at], sums[i / 2][3][at]};
    }
  }
  __syncthreads();
  BlockSums result;
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    const int x = threadIdx.x + v * blockDim.x;
    if (x >= kVectors) break;
    result.vectors[v] = sum_in_order<kMaxWarps>(parts + Position::in_part(x), warps, kPartVectors);
  }
  return result;
}

// Two blocks fit on a multiprocessor: with one, a layer of 3136 features would take two turns.
template <bool kTransposeA, bool kTransposeB, bool kCluster, typename End>
__global__ void __launch_bounds__(kMaxWarps * 32, 2)
    small_matmul_kernel(const float* __restrict__ a, const float* __restrict__ b,
                        float4* __restrict__ partial, unsigned* tickets,
                        const __grid_constant__ Product p, const __grid_constant__ End end,
                        uint32_t settled) {
  extern __shared__ char shared[];
  float4* parts = reinterpret_cast<float4*>(shared);
  const int threads = blockDim.x;
  const int tile = blockIdx.x / p.splits;
  const int split = blockIdx.x % p.splits;  // and the rank in the cluster
  const int first_row = tile / p.tiles_across * kTile;
  const int first_column = tile % p.tiles_across * kTile;
  const int k_begin = split * p.k_per_split;
  const int k_end = min(k_begin + p.k_per_split, p.k);
  // Other blocks may write into this block's shared memory once it runs.
  if constexpr (kCluster) arrive_in_cluster();

  float sums[2][4][4] = {};
  // The first one of the blocks that share columns takes their sums.
  ColumnSums<kSumsColumns<End>> columns(first_row == 0);
  if (p.vector_a && p.vector_b) {
    sum_in_warp<kTransposeA, kTransposeB, true>(sums, columns, a, b, p, first_row, first_column,
                                                k_begin, k_end, settled);
  } else {
    sum_in_warp<kTransposeA, kTransposeB, false>(sums, columns, a, b, p, first_row, first_column,
                                                 k_begin, k_end, settled);
  }
  // The sums of columns lie behind the parts, where clusters receive theirs.
  float* of_columns = reinterpret_cast<float*>(parts + threads / 32 * kPartVectors);
  columns.share(of_columns);
  const BlockSums block = sum_in_block(parts, sums);
  if constexpr (kSumsColumns<End>) {
    static_assert(!kCluster && !kTransposeB, "a block has all of its columns, and in this order");
    if (first_row == 0 && threadIdx.x < kTile) {
      const float sum = sum_in_order<kMaxWarps>(of_columns + threadIdx.x, blockDim.x / 32, kTile);
      end.store_column_sum(p, first_column + threadIdx.x, sum);
    }
  }

  // The threads of a row call this together: `share` and the block's threads are multiples of 8.
  auto finish_vector = [&](int x, float4 sum) {
    const Position at(x);
    end(p, first_row + at.row, first_column + at.column, sum);
  };
  if constexpr (kCluster) {
    // Every block gets its share of the tile from all blocks.
    float4* received = parts + threads / 32 * kPartVectors;
    const int share = kVectors / p.splits;
    wait_for_cluster();
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const int x = threadIdx.x + v * threads;
      if (x >= kVectors) break;
      store_in_cluster(received + split * share + x % share, x / share, block.vectors[v]);
    }
    arrive_in_cluster();
    wait_for_cluster();
    for (int x = threadIdx.x; x < share; x += threads) {
      finish_vector(split * share + x, sum_in_order<kMaxSplits>(received + x, p.splits, share));
    }
  } else {
    float4* of_tile = partial + static_cast<int64_t>(tile) * p.splits * kVectors;
    if (p.splits > 1) {
#pragma unroll
      for (int v = 0; v < 2; ++v) {
        const int x = threadIdx.x + v * threads;
        if (x < kVectors) of_tile[split * kVectors + x] = block.vectors[v];
      }
      if (!is_last_block(tickets + tile, static_cast<unsigned>(p.splits))) return;
    }
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const int x = threadIdx.x + v * threads;
      if (x >= kVectors) break;
      float4 sum = block.vectors[v];
      if (p.splits > 1) sum = sum_in_order<kMaxSplits>(of_tile + x, p.splits, kVectors);
      finish_vector(x, sum);
    }
  }
}

struct Launch {
  Product product{};
  int warps = 0;
  unsigned blocks = 0;
  unsigned cluster = 0;  // 0: blocks without clusters
};

// Two units per warp put enough loads under way, and all of them take one trip to memory.
Launch make_launch(const GemmShape& g, int64_t multiprocessors) {
  Launch launch;
  Product& p = launch.product;
  p.m = static_cast<int>(g.m);
  p.n = static_cast<int>(g.n);
  p.k = static_cast<int>(g.k);
  const int64_t tiles = ceil_div(g.m, kTile) * ceil_div(g.n, kTile);
  p.tiles_across = static_cast<int>(ceil_div(g.n, kTile));
  const int64_t units = ceil_div(g.k, kUnit);
  launch.warps = units <= 4 ? 4 : kMaxWarps;
  int splits = 1;
  while (splits < kMaxSplits && 2 * launch.warps * splits < units &&
         tiles * splits * 2 <= 2 * multiprocessors) {
    splits *= 2;
  }
  p.splits = splits;
  p.k_per_split = static_cast<int>(ceil_div(units, splits) * kUnit);
  p.vector_a = (g.transpose_a ? g.m : g.k) % 4 == 0;
  p.vector_b = (g.transpose_b ? g.k : g.n) % 4 == 0;
  p.vector_y = g.n % 4 == 0;
  launch.blocks = static_cast<unsigned>(tiles * splits);
  return launch;
}

// `make_end` gives the kernel's end for the arguments of a call. An end that sums columns is for
// products without splits.
template <bool kTransposeA, bool kTransposeB, typename End>
std::unique_ptr<Kernel> plan(const std::string& op, const GemmShape& g,
                             std::function<End(const KernelArgs&)> make_end) {
  constexpr bool kMayCluster = !kSumsColumns<End>;
  const auto in_clusters = small_matmul_kernel<kTransposeA, kTransposeB, kMayCluster, End>;
  const auto with_tickets = small_matmul_kernel<kTransposeA, kTransposeB, false, End>;
  const Launch launch = make_launch(g, Context::current().multiprocessors());
  const Product p = launch.product;
  const unsigned threads = static_cast<unsigned>(launch.warps * 32);
  const size_t shared = shared_bytes(launch.warps);
  const bool clusters =
      p.splits > 1 && Context::current().compute_capability() >= 90 &&
      ClusterLaunch(launch.blocks, threads, static_cast<unsigned>(p.splits), shared)
          .fits(in_clusters);
  std::shared_ptr<DeviceBuffer> tickets;
  int64_t workspace = 0;
  if (p.splits > 1 && !clusters) {
    tickets = std::make_shared<DeviceBuffer>(launch.blocks / p.splits * sizeof(unsigned));
    workspace = int64_t{launch.blocks} * kVectors * static_cast<int64_t>(sizeof(float4));
  }
  return make_early_kernel(
      message("kerascnn small product, ", p.splits, clusters ? " blocks a cluster" : " splits"),
      [=](const KernelArgs& args) {
        const auto stream = static_cast<cudaStream_t>(args.stream);
        const float* a = input<float>(args, 0);
        const float* b = input<float>(args, 1);
        const End end = make_end(args);
        const uint32_t settled = settled_loads(args, {{1}, {0}});
        if (clusters) {
          ClusterLaunch(launch.blocks, threads, static_cast<unsigned>(p.splits), shared, stream)
              .run(in_clusters, a, b, static_cast<float4*>(nullptr),
                   static_cast<unsigned*>(nullptr), p, end, settled);
          return;
        }
        with_tickets<<<launch.blocks, threads, shared, stream>>>(
            a, b, static_cast<float4*>(args.workspace), tickets ? tickets->as<unsigned>() : nullptr,
            p, end, settled);
        check_launch(op);
      },
      workspace, tickets != nullptr);
}

// Every 32 x 32 tile reads its rows and columns for itself. Beyond about 16 MiB of that, the larger
// tiles of cuBLASLt save more than its second launch costs.
bool is_small(const GemmShape& g) {
  constexpr int64_t kMaxProducts = int64_t{1} << 26;
  return g.m <= kMaxProducts && g.n <= kMaxProducts && g.k <= kMaxProducts &&
         g.m * g.n <= kMaxProducts && g.m * g.n * g.k <= kMaxProducts;
}

template <bool kTransposeA, bool kTransposeB, bool kAny = false>
std::unique_ptr<Kernel> plan_activation(const std::string& op, const GemmShape& g, bool has_bias,
                                        const ActivationCall& activation) {
  using End = ActivationEnd<kAny>;
  return plan<kTransposeA, kTransposeB, End>(op, g, [=](const KernelArgs& args) {
    const float* bias = has_bias ? input<float>(args, 2) : nullptr;
    return End{output<float>(args, 0), bias, activation.kind, static_cast<float>(activation.alpha)};
  });
}

template <bool kAny>
std::unique_ptr<Kernel> plan_gradient(const std::string& op, const GemmShape& g,
                                      const ActivationCall& activation) {
  using End = ActivationGradientEnd<kAny>;
  return plan<false, true, End>(op, g, [=](const KernelArgs& args) {
    return End{output<float>(args, 0), input<float>(args, 2), activation.kind,
               static_cast<float>(activation.alpha)};
  });
}

bool is_frequent(const ActivationCall& activation) {
  return activation.kind == Activation::Linear || activation.kind == Activation::Relu;
}

}  // namespace

bool takes_small_matmul(DType dtype, const GemmShape& g, bool allow_tf32) {
  return dtype == DType::Float32 && allow_tf32 && g.batch == 1 && g.m > 0 && g.n > 0 && g.k > 0 &&
         is_small(g) && Context::current().compute_capability() >= 80;
}

std::unique_ptr<Kernel> plan_small_matmul(const std::string& op, DType dtype, const GemmShape& g,
                                          bool allow_tf32, bool has_bias,
                                          const ActivationCall& activation) {
  if (!takes_small_matmul(dtype, g, allow_tf32)) return nullptr;
  if (!is_frequent(activation)) {
    // Only dense has such activations, and dense transposes nothing.
    if (g.transpose_a || g.transpose_b) return nullptr;
    return plan_activation<false, false, true>(op, g, has_bias, activation);
  }
  if (g.transpose_a) {
    return g.transpose_b ? plan_activation<true, true>(op, g, has_bias, activation)
                         : plan_activation<true, false>(op, g, has_bias, activation);
  }
  return g.transpose_b ? plan_activation<false, true>(op, g, has_bias, activation)
                       : plan_activation<false, false>(op, g, has_bias, activation);
}

bool takes_small_matmul_activation_grad(DType dtype, const GemmShape& g, bool allow_tf32) {
  return takes_small_matmul(dtype, g, allow_tf32) && !g.transpose_a && g.transpose_b;
}

std::unique_ptr<Kernel> plan_small_matmul_activation_grad(const std::string& op, const GemmShape& g,
                                                          const ActivationCall& activation) {
  return is_frequent(activation) ? plan_gradient<false>(op, g, activation)
                                 : plan_gradient<true>(op, g, activation);
}

bool takes_small_dense_loss(DType dtype, const GemmShape& g, bool allow_tf32) {
  return takes_small_matmul(dtype, g, allow_tf32) && g.n <= kTile;
}

std::unique_ptr<Kernel> plan_small_dense_loss(const std::string& op, const GemmShape& g,
                                              DType label_dtype, const DenseLossArguments& at,
                                              double epsilon) {
  return dispatch_label(op, label_dtype, [&]<typename Label>(Type<Label>) {
    using End = CrossEntropyEnd<Label>;
    return plan<false, false, End>(op, g, [=](const KernelArgs& args) {
      const float* bias = at.has_bias ? input<float>(args, at.bias) : nullptr;
      return End{bias,
                 input<Label>(args, at.labels),
                 input<float>(args, at.gradient),
                 output<float>(args, 0),
                 output<float>(args, 1),
                 output<float>(args, 2),
                 CrossEntropy(epsilon)};
    });
  });
}

bool takes_small_dense_wgrad(DType dtype, const GemmShape& g, bool allow_tf32) {
  return takes_small_matmul(dtype, g, allow_tf32) && g.transpose_a && !g.transpose_b &&
         make_launch(g, Context::current().multiprocessors()).product.splits == 1;
}

std::unique_ptr<Kernel> plan_small_dense_wgrad(const std::string& op, const GemmShape& g) {
  return plan<true, false, KernelAndBiasEnd>(op, g, [](const KernelArgs& args) {
    return KernelAndBiasEnd{output<float>(args, 0), output<float>(args, 1)};
  });
}

}  // namespace kerascnn::cuda
