#include "core/backend/cuda/attention/masks.h"

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"

namespace kerascnn::cuda {
namespace {

constexpr float kHidden = -3e4f;  // exp of it is 0, and float16 holds it

// One row of products.
template <typename T>
struct AddedRow {
  const T* bias;     // null where there is none
  const bool* mask;  // likewise
  int64_t bias_stride, mask_stride;
  int64_t num_seen;  // later keys are hidden by the causal mask

  __device__ bool sees(int64_t key) const {
    return key < num_seen && (mask == nullptr || mask[key * mask_stride]);
  }
  __device__ float number(int64_t key) const {
    return bias == nullptr ? 0.0f : load(bias[key * bias_stride]);
  }
};

__device__ int64_t offset(const ProductStrides& strides, int64_t batch, int64_t head,
                          int64_t query) {
  return batch * strides[0] + head * strides[1] + query * strides[2];
}

// A warp has a row.
template <typename T>
__global__ void added_kernel(AttentionCall call, ProductStrides bias_strides,
                             ProductStrides mask_strides, const T* __restrict__ bias,
                             const bool* __restrict__ mask, int64_t rows, int64_t heads,
                             T* __restrict__ added, bool* __restrict__ is_blind) {
  begin_kernel();
  const int lane = threadIdx.x % 32;
  const int64_t warps = gridDim.x * int64_t{kThreads} / 32;
  for (int64_t i = (blockIdx.x * int64_t{kThreads} + threadIdx.x) / 32; i < rows; i += warps) {
    const int64_t query = i % call.queries, head = i / call.queries % heads,
                  batch = i / call.queries / heads;
    AddedRow<T> row{bias, mask, bias_strides[3], mask_strides[3], call.keys};
    if (bias != nullptr) row.bias += offset(bias_strides, batch, head, query);
    if (mask != nullptr) row.mask += offset(mask_strides, batch, head, query);
    if (call.is_causal && query + 1 < call.keys) row.num_seen = query + 1;
    float largest = -INFINITY;
    bool sees_any = false;
    for (int64_t key = lane; key < call.keys; key += 32) {
      if (!row.sees(key)) continue;
      sees_any = true;
      largest = fmaxf(largest, row.number(key));
    }
    sees_any = __any_sync(0xffffffffu, sees_any);
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
    }
    for (int64_t key = lane; key < call.keys; key += 32) {
      float number = 0.0f;
      if (sees_any) {
        // NaN stays NaN.
        number = row.sees(key) ? row.number(key) - largest : kHidden;
        if (number < kHidden) number = kHidden;
      }
      added[i * call.keys + key] = store<T>(number);
    }
    if (lane == 0) is_blind[i] = !sees_any;
  }
}

// Vectors of 16 bytes, of which a query of a head has `vectors`.
__global__ void blind_zeros_kernel(AttentionCall call, const uint4* x, const bool* is_blind,
                                   int64_t size, int64_t vectors, int64_t rows_of_batch,
                                   int64_t rows_of_head, uint4* y) {
  begin_kernel();
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < size;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t place = i / vectors, batch = place / (call.heads * call.queries);
    const bool are_heads_behind = call.q == HeadsAt::Back;
    const int64_t query =
        are_heads_behind ? place / call.heads % call.queries : place % call.queries;
    const int64_t head = are_heads_behind ? place % call.heads : place / call.queries % call.heads;
    if (is_blind[batch * rows_of_batch + head * rows_of_head + query]) {
      y[i] = uint4{};
    } else if (y != x) {
      y[i] = x[i];
    }
  }
}

}  // namespace

void launch_added(const AttentionCall& call, const void* bias, const bool* mask, void* added,
                  bool* is_blind, cudaStream_t stream) {
  const auto launch = [&]<typename T>(Type<T>) {
    added_kernel<T><<<grid_for(call.added_rows(), kThreads / 32), kThreads, 0, stream>>>(
        call, call.bias.value_or(ProductStrides{}), call.mask.value_or(ProductStrides{}),
        static_cast<const T*>(bias), mask, call.added_rows(), call.added_heads(),
        static_cast<T*>(added), is_blind);
  };
  call.dtype == DType::Float16 ? launch(Type<__half>{}) : launch(Type<__nv_bfloat16>{});
  check_launch("attention's mask");
}

void launch_blind_zeros(const AttentionCall& call, const void* x, const bool* is_blind, void* y,
                        cudaStream_t stream) {
  const int64_t vectors = call.size / 8;
  const int64_t size = call.batch * call.heads * call.queries * vectors;
  const int64_t rows_of_head = call.added_heads() == 1 ? 0 : call.queries;
  const int64_t rows_of_batch = call.added_batches() == 1 ? 0 : call.added_heads() * call.queries;
  blind_zeros_kernel<<<grid_for(size), kThreads, 0, stream>>>(
      call, static_cast<const uint4*>(x), is_blind, size, vectors, rows_of_batch, rows_of_head,
      static_cast<uint4*>(y));
  check_launch("attention's queries");
}

}  // namespace kerascnn::cuda
