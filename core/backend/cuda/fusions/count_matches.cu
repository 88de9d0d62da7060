// How many rows have their largest score at the label, in one launch.
//
// A few threads, or a warp, share a row; a block takes several rows at a time. Counts are whole
// numbers, which the last block to finish adds up: results don't depend on timing.
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/block.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/fusions/fusions.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/device_buffer.h"

namespace kerascnn::cuda {
namespace {

constexpr int kBlock = 1024;  // threads at the most
constexpr int kBatch = 8;     // loads of a thread that are under way at the same time
// Counts up to here are exact in float32, as the sum is that this replaces; indices fit 32 bits.
constexpr int64_t kMost = int64_t{1} << 24;

struct CountParams {
  int64_t rows;
  int classes;
  int lanes;  // threads that share a row: a power of two, no more than classes and a warp
  int64_t rows_per_block;
};

// Does a score at `index` come before the best one so far, at `at`? The largest does, NaN counting
// as larger than any number; of equal ones the first.
template <typename C>
__device__ __forceinline__ bool comes_first(C score, int index, C best, int at) {
  if (best != best) return score != score && index < at;
  return score > best || score != score || (score == best && index < at);
}

// The place of the first maximum in a row that `lanes` threads share, for each of them.
template <typename T>
__device__ __forceinline__ int best_place(const T* row, int lane, const CountParams& p) {
  using C = compute_t<T>;
  C best = load(row[lane]);
  int at = lane;
  for (int first = lane; first < p.classes; first += kBatch * p.lanes) {
    C batch[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i * p.lanes < p.classes) batch[i] = load(row[first + i * p.lanes]);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int index = first + i * p.lanes;
      if (index < p.classes && comes_first(batch[i], index, best, at)) {
        best = batch[i];
        at = index;
      }
    }
  }
  for (int step = p.lanes / 2; step > 0; step /= 2) {
    const C other = __shfl_xor_sync(kFullWarp, best, step);
    const int other_at = __shfl_xor_sync(kFullWarp, at, step);
    if (comes_first(other, other_at, best, at)) {
      best = other;
      at = other_at;
    }
  }
  return at;
}

// The sum of what the warps of a block counted, for the threads of the first warp. `count` is the
// same for all threads of a warp.
__device__ __forceinline__ int add_warps(int count) {
  __shared__ int counts[kBlock / 32];
  const int lane = threadIdx.x % 32;
  if (lane == 0) counts[threadIdx.x / 32] = count;
  __syncthreads();
  if (threadIdx.x >= 32) return 0;
  return warp_reduce(lane < blockDim.x / 32 ? counts[lane] : 0, Sum());
}

template <typename T, typename L>
__global__ void __launch_bounds__(kBlock)
    count_matches_kernel(const T* __restrict__ scores, const L* __restrict__ labels,
                         float* __restrict__ total, int* __restrict__ partial, unsigned* ticket,
                         CountParams p) {
  begin_kernel();
  const int lane = threadIdx.x % p.lanes;
  const int rows_at_once = blockDim.x / p.lanes;
  const int64_t begin = blockIdx.x * p.rows_per_block;
  const int64_t end = min(begin + p.rows_per_block, p.rows);
  int count = 0;
  for (int64_t first = begin; first < end; first += rows_at_once) {  // warps stay together
    const int64_t row = first + threadIdx.x / p.lanes;
    // Threads beyond the last row look at that one once more, for the others of their warp.
    const int64_t source = min(row, end - 1);
    const L label = labels[source];
    const int place = best_place(scores + source * p.classes, lane, p);
    const bool matches = lane == 0 && row < end && static_cast<L>(place) == label;
    count += __popc(__ballot_sync(kFullWarp, matches));
  }
  count = add_warps(count);
  if (gridDim.x == 1) {
    if (threadIdx.x == 0) *total = static_cast<float>(count);
    return;
  }
  if (threadIdx.x == 0) partial[blockIdx.x] = count;
  if (!is_last_block(ticket, gridDim.x) || threadIdx.x >= 32) return;
  int sum = 0;
  for (int block = threadIdx.x; block < gridDim.x; block += 32) sum += partial[block];
  sum = warp_reduce(sum, Sum());
  if (threadIdx.x == 0) *total = static_cast<float>(sum);
}

struct CountPlan {
  CountParams params;
  unsigned blocks;
  unsigned threads;
};

CountPlan plan_count(int64_t rows, int64_t classes) {
  CountPlan plan{};
  CountParams& p = plan.params;
  p.rows = rows;
  p.classes = static_cast<int>(classes);
  // About four scores for each thread: one trip to memory for all of them.
  p.lanes = 1;
  while (p.lanes < 32 && p.lanes * 4 < classes) p.lanes *= 2;
  const int64_t wanted = std::max<int64_t>(1, ceil_div(rows * p.lanes, 32)) * 32;
  // How often a block of so many threads takes rows, if it takes all of them.
  auto turns = [&](int64_t threads) { return ceil_div(rows, threads / p.lanes); };
  // To wait for the last block costs as much as a few trips to memory.
  constexpr int64_t kTripsAlone = 6;
  const int64_t trips = turns(kBlock) * ceil_div(classes, int64_t{kBatch} * p.lanes);
  const bool is_alone = trips <= kTripsAlone;
  const int64_t threads = std::min<int64_t>(wanted, is_alone ? kBlock : kThreads);
  const int64_t most = is_alone ? 1 : 2 * Context::current().multiprocessors();
  p.rows_per_block = std::max<int64_t>(1, ceil_div(turns(threads), most)) * (threads / p.lanes);
  plan.blocks = static_cast<unsigned>(std::max<int64_t>(1, ceil_div(rows, p.rows_per_block)));
  plan.threads = static_cast<unsigned>(threads);
  return plan;
}

template <typename T, typename L>
std::unique_ptr<Kernel> make_count_kernel(const CountPlan& plan) {
  std::shared_ptr<DeviceBuffer> ticket;
  int64_t workspace = 0;
  if (plan.blocks > 1) {
    ticket = std::make_shared<DeviceBuffer>(sizeof(unsigned));
    workspace = plan.blocks * static_cast<int64_t>(sizeof(int));
  }
  return make_early_kernel(
      "kerascnn count matches",
      [=](const KernelArgs& args) {
        count_matches_kernel<T, L>
            <<<plan.blocks, plan.threads, 0, static_cast<cudaStream_t>(args.stream)>>>(
                input<T>(args, 0), input<L>(args, 1), output<float>(args, 0),
                static_cast<int*>(args.workspace), ticket ? ticket->as<unsigned>() : nullptr,
                plan.params);
        check_launch("count_matches");
      },
      workspace, ticket != nullptr);
}

}  // namespace

std::unique_ptr<Kernel> plan_fused_count_matches(const Match& match) {
  const TensorSpec& scores = match.spec("scores");
  const int64_t rows = scores.shape[0], classes = scores.shape[1];
  if (rows > kMost || classes > kMost) return nullptr;
  const CountPlan plan = plan_count(rows, classes);
  return dispatch_floating("count_matches", scores.dtype, [&]<typename T>(Type<T>) {
    switch (match.spec("labels").dtype) {
      case DType::Int32:
        return make_count_kernel<T, int32_t>(plan);
      case DType::Int64:
        return make_count_kernel<T, int64_t>(plan);
      default:
        return make_count_kernel<T, float>(plan);
    }
  });
}

}  // namespace kerascnn::cuda
