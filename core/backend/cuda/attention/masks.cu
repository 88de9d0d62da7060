#include "core/backend/cuda/attention/masks.h"

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"

namespace kerascnn::cuda {
namespace {

constexpr float kHidden = -3e4f;  // exp of it is 0, and float16 holds it

// A warp has a query.
template <typename T>
__global__ void mask_kernel(AttentionMask mask, const bool* __restrict__ sees, int64_t rows,
                            int64_t heads, int64_t queries, int64_t keys, T* __restrict__ added,
                            bool* __restrict__ is_blind) {
  begin_kernel();
  const int lane = threadIdx.x % 32;
  const int64_t warps = gridDim.x * int64_t{kThreads} / 32;
  for (int64_t row = (blockIdx.x * int64_t{kThreads} + threadIdx.x) / 32; row < rows;
       row += warps) {
    const int64_t query = row % queries, head = row / queries % heads,
                  batch = row / queries / heads;
    const bool* place =
        sees + batch * mask.strides[0] + head * mask.strides[1] + query * mask.strides[2];
    bool sees_any = false;
    for (int64_t key = lane; key < keys; key += 32) sees_any |= place[key * mask.strides[3]];
    sees_any = __any_sync(0xffffffffu, sees_any);
    for (int64_t key = lane; key < keys; key += 32) {
      const bool is_hidden = sees_any && !place[key * mask.strides[3]];
      added[row * keys + key] = store<T>(is_hidden ? kHidden : 0.0f);
    }
    if (lane == 0) is_blind[row] = !sees_any;
  }
}

// Vectors of 16 bytes, of which a query of a head has `vectors`.
__global__ void blind_zeros_kernel(AttentionMask mask, const uint4* x, const bool* is_blind,
                                   int64_t size, int64_t vectors, int64_t heads, int64_t queries,
                                   bool are_heads_behind, uint4* y) {
  begin_kernel();
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < size;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t place = i / vectors, batch = place / (heads * queries);
    const int64_t query = are_heads_behind ? place / heads % queries : place % queries;
    const int64_t head = are_heads_behind ? place % heads : place / queries % heads;
    const int64_t row = ((mask.has_batches ? batch : 0) * (mask.has_heads ? heads : 1) +
                         (mask.has_heads ? head : 0)) *
                            queries +
                        query;
    const bool is_zero = is_blind[row];
    if (is_zero) {
      y[i] = uint4{};
    } else if (y != x) {
      y[i] = x[i];
    }
  }
}

}  // namespace

void launch_mask(const AttentionCall& call, const bool* mask, void* added, bool* is_blind,
                 cudaStream_t stream) {
  const int64_t heads = call.mask->has_heads ? call.heads : 1;
  const int64_t rows = (call.mask->has_batches ? call.batch : 1) * heads * call.queries;
  const unsigned blocks = grid_for(rows, kThreads / 32);
  if (call.dtype == DType::Float16) {
    mask_kernel<<<blocks, kThreads, 0, stream>>>(*call.mask, mask, rows, heads, call.queries,
                                                 call.keys, static_cast<__half*>(added), is_blind);
  } else {
    mask_kernel<<<blocks, kThreads, 0, stream>>>(*call.mask, mask, rows, heads, call.queries,
                                                 call.keys, static_cast<__nv_bfloat16*>(added),
                                                 is_blind);
  }
  check_launch("attention's mask");
}

void launch_blind_zeros(const AttentionCall& call, const void* x, const bool* is_blind, void* y,
                        cudaStream_t stream) {
  const int64_t vectors = call.size / 8;
  const int64_t size = call.batch * call.heads * call.queries * vectors;
  blind_zeros_kernel<<<grid_for(size), kThreads, 0, stream>>>(
      *call.mask, static_cast<const uint4*>(x), is_blind, size, vectors, call.heads, call.queries,
      call.q == HeadsAt::Back, static_cast<uint4*>(y));
  check_launch("attention's queries");
}

}  // namespace kerascnn::cuda
