#include "core/backend/cuda/products/partial_sums.h"

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/check.h"

namespace kerascnn::cuda {
namespace {

// kLanes threads side by side take neighbouring elements. The rows of a block share an element's
// splits, because a chain of dependent additions costs more than their number.
template <typename T, int kLanes>
__global__ void sum_partials_kernel(const compute_t<T>* __restrict__ partial, T* __restrict__ y,
                                    T* __restrict__ rest, int64_t first_rest, int splits,
                                    int64_t size) {
  begin_kernel();
  using C = compute_t<T>;
  constexpr int kRows = kThreads / kLanes;
  __shared__ C shared[kRows][kLanes];
  const int lane = threadIdx.x % kLanes;
  const int row = threadIdx.x / kLanes;
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * kLanes; base < size;
       base += static_cast<int64_t>(gridDim.x) * kLanes) {
    const int64_t element = base + lane;
    C sum = 0;
    if (element < size) {
#pragma unroll 4
      for (int s = row; s < splits; s += kRows) sum += partial[s * size + element];
    }
    shared[row][lane] = sum;
    __syncthreads();
    if (row == 0 && element < size) {
      for (int r = 1; r < kRows; ++r) sum += shared[r][lane];
      if (element < first_rest) {
        y[element] = store<T>(sum);
      } else if (rest != nullptr) {
        rest[element - first_rest] = store<T>(sum);
      }
    }
    __syncthreads();
  }
}

constexpr int kPack = 4;
// From this size on, threads with a pack each fill a GPU, and need not share an element's splits.
constexpr int64_t kManyElements = int64_t{1} << 16;

// The first `size` of `step` elements, in packs.
template <typename T>
__global__ void sum_packs_kernel(const compute_t<T>* __restrict__ partial, T* __restrict__ y,
                                 int splits, int64_t size, int64_t step) {
  begin_kernel();
  using C = compute_t<T>;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x * kPack;
  for (int64_t i = (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) * kPack; i < size;
       i += stride) {
    C sum[kPack] = {};
#pragma unroll 8
    for (int s = 0; s < splits; ++s) {
      const auto pack = *reinterpret_cast<const Vector<C, kPack>*>(partial + s * step + i);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum[k] += pack.values[k];
    }
#pragma unroll
    for (int k = 0; k < kPack; ++k) y[i + k] = store<T>(sum[k]);
  }
}

}  // namespace

void launch_sum_partials(DType dtype, const void* partial, void* y, int64_t splits, int64_t size,
                         cudaStream_t stream, void* rest, int64_t rest_size) {
  const int64_t total = size + rest_size;
  if (total == 0) return;
  dispatch_floating("sum of partial results", dtype, [&]<typename T>(Type<T>) {
    if constexpr (sizeof(compute_t<T>) == sizeof(float)) {
      if (rest == nullptr && size >= kManyElements && size % kPack == 0 && total % kPack == 0) {
        launch_early(sum_packs_kernel<T>, grid_for(size / kPack), kThreads, stream,
                     static_cast<const float*>(partial), static_cast<T*>(y),
                     static_cast<int>(splits), size, total);
        return;
      }
    }
    const auto launch = [&]<int kLanes>(std::integral_constant<int, kLanes>) {
      launch_early(sum_partials_kernel<T, kLanes>, grid_for(total, kLanes), kThreads, stream,
                   static_cast<const compute_t<T>*>(partial), static_cast<T*>(y),
                   static_cast<T*>(rest), size, static_cast<int>(splits), total);
    };
    // Many partial results need many rows; 8 floats are still a whole memory sector.
    if (splits > 64) {
      launch(std::integral_constant<int, 8>());
    } else {
      launch(std::integral_constant<int, 32>());
    }
  });
}

}  // namespace kerascnn::cuda
