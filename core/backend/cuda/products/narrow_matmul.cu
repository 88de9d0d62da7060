#include "core/backend/cuda/products/narrow_matmul.h"

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/block.cuh"
#include "core/backend/cuda/elementwise/activation.cuh"
#include "core/backend/cuda/launch.h"

namespace kerascnn::cuda {
namespace {

constexpr int kMaxNarrow = 16;
constexpr int64_t kMaxRows = 4096;  // of the sum over a batch that one block takes

// y (m, n) = activation(a (m, k) @ b (k, n) + bias). A block computes one row; its threads share
// the sum over k.
template <int kN>
__global__ void __launch_bounds__(kThreads)
    narrow_product(const float* __restrict__ a, const float* __restrict__ b,
                   const float* __restrict__ bias, float* __restrict__ y, int64_t m, int64_t k,
                   int n, Activation activation, float alpha) {
  begin_kernel();
  __shared__ float shared[kThreads / 32][kN];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int64_t row = blockIdx.x; row < m; row += gridDim.x) {
    float sum[kN] = {};
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < k; i += kThreads) {
      const float value = a[row * k + i];
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        if (j < n) sum[j] += value * b[i * n + j];
      }
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      const float total = warp_reduce(sum[j], Sum());
      if (lane == 0) shared[warp][j] = total;
    }
    __syncthreads();
    if (threadIdx.x < n) {
      float total = bias != nullptr ? bias[threadIdx.x] : 0.0f;
#pragma unroll
      for (int w = 0; w < kThreads / 32; ++w) total += shared[w][threadIdx.x];
      y[row * n + threadIdx.x] = activate(activation, total, alpha);
    }
    __syncthreads();
  }
}

constexpr int kColumns = 32;  // of a, per block
constexpr int kGroups = kThreads / kColumns;
constexpr int kChunk = 128;  // rows of b in shared memory at a time

// y (m, n) = a^T @ b for a (k, m), b (k, n). A thread takes one column of a and an eighth of the
// rows.
template <int kN>
__global__ void __launch_bounds__(kThreads)
    narrow_transposed_product(const float* __restrict__ a, const float* __restrict__ b,
                              float* __restrict__ y, int64_t m, int64_t k, int n) {
  begin_kernel();
  __shared__ float rows[kChunk * kN];
  __shared__ float shared[kGroups][kColumns]
                         [kN + 1];  // + 1: neighbouring columns are in different banks
  const int lane = threadIdx.x % kColumns;
  const int group = threadIdx.x / kColumns;
  const int64_t column = blockIdx.x * static_cast<int64_t>(kColumns) + lane;
  float sum[kN] = {};
  for (int64_t first = 0; first < k; first += kChunk) {
    const int count = static_cast<int>(min(k - first, int64_t{kChunk}));
    for (int i = threadIdx.x; i < count * n; i += kThreads) rows[i] = b[first * n + i];
    __syncthreads();
    if (column < m) {
#pragma unroll 16
      for (int r = group; r < count; r += kGroups) {
        const float value = a[(first + r) * m + column];
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          if (j < n) sum[j] += value * rows[r * n + j];
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < kN; ++j) shared[group][lane][j] = sum[j];
  __syncthreads();
  for (int i = threadIdx.x; i < kColumns * n; i += kThreads) {
    const int from = i / n;
    const int64_t target = blockIdx.x * static_cast<int64_t>(kColumns) + from;
    if (target >= m) break;
    float total = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) total += shared[g][from][i % n];
    y[target * n + i % n] = total;
  }
}

constexpr int kRowsPerBlock = 8;

// y (m, n) = a (m, k) @ b^T for b (n, k) with a short k. A thread keeps one row of b and computes
// one column of y.
template <int kK>
__global__ void __launch_bounds__(kThreads)
    short_product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ y,
                  int64_t m, int64_t n, int k) {
  begin_kernel();
  const int64_t column = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (column >= n) return;
  float row_of_b[kK];
#pragma unroll
  for (int i = 0; i < kK; ++i) row_of_b[i] = i < k ? b[column * k + i] : 0.0f;
  for (int64_t first = blockIdx.y * kRowsPerBlock; first < m;
       first += static_cast<int64_t>(gridDim.y) * kRowsPerBlock) {
#pragma unroll
    for (int r = 0; r < kRowsPerBlock; ++r) {
      const int64_t row = first + r;
      if (row >= m) break;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kK; ++i) {
        if (i < k) sum += a[row * k + i] * row_of_b[i];
      }
      y[row * n + column] = sum;
    }
  }
}

// Calls function with the smallest compiled width that holds `n`; ten classes are the most common.
template <typename Function>
auto with_width(int64_t n, Function&& function) {
  if (n <= 4) return function(std::integral_constant<int, 4>());
  if (n <= 10) return function(std::integral_constant<int, 10>());
  return function(std::integral_constant<int, kMaxNarrow>());
}

cudaStream_t stream_of(const KernelArgs& args) { return static_cast<cudaStream_t>(args.stream); }

}  // namespace

std::unique_ptr<Kernel> plan_narrow_matmul(const std::string& op, DType dtype, const GemmShape& g,
                                           bool has_bias, const ActivationCall& activation) {
  if (dtype != DType::Float32 || g.batch != 1 || g.m == 0 || g.n == 0 || g.k == 0) return nullptr;
  const bool has_epilogue = has_bias || activation.kind != Activation::Linear;
  if (!g.transpose_a && !g.transpose_b && g.n <= kMaxNarrow) {
    return with_width(g.n, [&]<int kN>(std::integral_constant<int, kN>) {
      return make_early_kernel("kerascnn narrow product", [=](const KernelArgs& args) {
        narrow_product<kN><<<grid_for(g.m, 1), kThreads, 0, stream_of(args)>>>(
            input<float>(args, 0), input<float>(args, 1),
            has_bias ? input<float>(args, 2) : nullptr, output<float>(args, 0), g.m, g.k,
            static_cast<int>(g.n), activation.kind, static_cast<float>(activation.alpha));
        check_launch(op);
      });
    });
  }
  if (has_epilogue) return nullptr;
  if (g.transpose_a && !g.transpose_b && g.n <= kMaxNarrow && g.k <= kMaxRows &&
      ceil_div(g.m, kColumns) < (1 << 30)) {
    return with_width(g.n, [&]<int kN>(std::integral_constant<int, kN>) {
      return make_early_kernel("kerascnn narrow product (transposed)", [=](const KernelArgs& args) {
        narrow_transposed_product<kN>
            <<<static_cast<unsigned>(ceil_div(g.m, kColumns)), kThreads, 0, stream_of(args)>>>(
                input<float>(args, 0), input<float>(args, 1), output<float>(args, 0), g.m, g.k,
                static_cast<int>(g.n));
        check_launch(op);
      });
    });
  }
  if (!g.transpose_a && g.transpose_b && g.k <= kMaxNarrow && ceil_div(g.n, kThreads) < (1 << 30)) {
    return with_width(g.k, [&]<int kK>(std::integral_constant<int, kK>) {
      const dim3 grid(static_cast<unsigned>(ceil_div(g.n, kThreads)), grid_for(g.m, kRowsPerBlock));
      return make_early_kernel("kerascnn short product", [=](const KernelArgs& args) {
        short_product<kK><<<grid, kThreads, 0, stream_of(args)>>>(
            input<float>(args, 0), input<float>(args, 1), output<float>(args, 0), g.m, g.n,
            static_cast<int>(g.k));
        check_launch(op);
      });
    });
  }
  return nullptr;
}

}  // namespace kerascnn::cuda
