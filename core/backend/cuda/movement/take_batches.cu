// The next batch of an array, or of several in one launch. Indices outside the order or the data
// are clamped to them.
#include <array>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/fusions/fusions.h"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/copy.cuh"
#include "core/backend/cuda/movement/indices.cuh"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/base/error.h"
#include "core/ops/definitions.h"

namespace kerascnn::cuda {
namespace {

constexpr int kTakeThreads = 128;  // batches are small: more blocks reach more of the GPU
constexpr size_t kMaxArrays = kMostTakenArrays;  // passed to the kernel by value

struct TakenArray {
  const void* data;
  void* out;
  int64_t rows;
  int64_t words;        // of a row, each copied by one thread
  int64_t first_block;  // blocks are dealt to the arrays
  int word_bytes;
};

struct TakeParams {
  TakenArray arrays[kMaxArrays];
  int count;
  const int32_t* order;
  const int64_t* step;
  int64_t batch_size;
  int64_t order_length;
};

template <typename Word>
__device__ __forceinline__ void copy_word(const TakenArray& a, int64_t from, int64_t to) {
  static_cast<Word*>(a.out)[to] = static_cast<const Word*>(a.data)[from];
}

__device__ __forceinline__ void take_word(const TakenArray& a, int64_t from, int64_t to) {
  switch (a.word_bytes) {
    case 1:
      return copy_word<uint8_t>(a, from, to);
    case 2:
      return copy_word<uint16_t>(a, from, to);
    case 4:
      return copy_word<uint32_t>(a, from, to);
    case 8:
      return copy_word<uint2>(a, from, to);
    default:
      return copy_word<uint4>(a, from, to);
  }
}

__global__ void __launch_bounds__(kTakeThreads)
    take_batches(const __grid_constant__ TakeParams params) {
  begin_kernel();
  int index = 0;
  while (index + 1 < params.count && blockIdx.x >= params.arrays[index + 1].first_block) ++index;
  const TakenArray& a = params.arrays[index];
  const int64_t end_block =
      index + 1 < params.count ? params.arrays[index + 1].first_block : gridDim.x;
  const int64_t start = *params.step * params.batch_size;
  const int64_t threads = (end_block - a.first_block) * kTakeThreads;
  for (int64_t i = (blockIdx.x - a.first_block) * kTakeThreads + threadIdx.x;
       i < params.batch_size * a.words; i += threads) {
    const Division at = divide(i, a.words);
    const int64_t place = clamp_index(start + at.quotient, params.order_length);
    const int64_t row = clamp_index(params.order[place], a.rows);
    take_word(a, row * a.words + at.remainder, i);
  }
}

// What is known of an array before its addresses are.
struct PlannedArray {
  int64_t rows, row_bytes;
  int64_t widest;  // word, in bytes
  int64_t item;    // bytes of an element
};

PlannedArray plan_array(const TensorSpec& data) {
  PlannedArray array{};
  array.rows = data.shape[0];
  array.row_bytes = array.rows > 0 ? num_bytes(data) / array.rows : 0;
  array.widest = array.row_bytes > 0 ? widest_word(array.row_bytes) : 1;
  array.item = static_cast<int64_t>(itemsize(data.dtype));
  return array;
}

TakenArray taken_array(const PlannedArray& planned, const void* data, void* out) {
  TakenArray array{};
  array.data = data;
  array.out = out;
  array.rows = planned.rows;
  const bool aligned = is_aligned(data, planned.widest) && is_aligned(out, planned.widest);
  array.word_bytes = static_cast<int>(aligned ? planned.widest : planned.item);
  array.words = planned.row_bytes / array.word_bytes;
  return array;
}

// arrays (n, ...), order int32 (m,), step int64 () -> a batch of each array
std::unique_ptr<Kernel> plan(const PlanRequest& request, std::string description,
                             int64_t batch_size) {
  std::vector<PlannedArray> planned;
  for (const TensorSpec& data : request.inputs.first(request.inputs.size() - 2)) {
    planned.push_back(plan_array(data));
  }
  const int64_t order_length = num_elements(request.inputs[planned.size()].shape);
  return make_early_kernel(std::move(description), [=](const KernelArgs& args) {
    if (order_length == 0) return;
    TakeParams params{};
    params.order = input<int32_t>(args, planned.size());
    params.step = input<int64_t>(args, planned.size() + 1);
    params.batch_size = batch_size;
    params.order_length = order_length;
    int64_t blocks = 0;
    for (size_t i = 0; i < planned.size(); ++i) {
      if (planned[i].row_bytes == 0) continue;
      TakenArray array = taken_array(planned[i], args.inputs[i], args.outputs[i]);
      array.first_block = blocks;
      blocks += grid_for(batch_size * array.words, kTakeThreads);
      params.arrays[params.count++] = array;
    }
    if (blocks == 0) return;
    take_batches<<<static_cast<unsigned>(blocks), kTakeThreads, 0,
                   static_cast<cudaStream_t>(args.stream)>>>(params);
    check_launch("take_batches");
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_take_batch(const PlanRequest& request) {
  return plan(request, "kerascnn take_batch", request.attributes.get_int("batch_size"));
}

std::unique_ptr<Kernel> plan_fused_take_batches(const Match& match) {
  return plan(match.request(), "kerascnn take_batches",
              match.node("take_batch").attributes.get_int("batch_size"));
}

}  // namespace kerascnn::cuda
