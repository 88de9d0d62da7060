// take_batches: the next batch of several arrays in one launch, bytes as scaled floats where that
// is asked for. Indices outside the order or the data are clamped to them, as in take_batch.
#include <array>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/copy.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/indices.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"

namespace kerascnn::cuda {
namespace {

constexpr int kTakeThreads = 128;  // batches are small: more blocks reach more of the GPU
constexpr size_t kMaxArrays = 8;   // passed to the kernel by value
constexpr int kScaledBytes = 4;    // that a thread takes at once, where rows and addresses allow

struct TakenArray {
  const void* data;
  void* out;
  int64_t rows;
  int64_t words;        // of a row, each copied or scaled by one thread
  int64_t first_block;  // blocks are dealt to the arrays
  int word_bytes;
  float scale;  // 0: a copy
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
  if (a.scale != 0.0f && a.word_bytes == kScaledBytes) {
    const uchar4 bytes = static_cast<const uchar4*>(a.data)[from];
    static_cast<float4*>(a.out)[to] = {bytes.x * a.scale, bytes.y * a.scale, bytes.z * a.scale,
                                       bytes.w * a.scale};
    return;
  }
  if (a.scale != 0.0f) {
    static_cast<float*>(a.out)[to] = static_cast<const uint8_t*>(a.data)[from] * a.scale;
    return;
  }
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
  float scale;
};

PlannedArray plan_array(const TensorSpec& data, double scale) {
  PlannedArray array{};
  array.rows = data.shape[0];
  array.row_bytes = array.rows > 0 ? num_bytes(data) / array.rows : 0;
  array.item = static_cast<int64_t>(itemsize(data.dtype));
  array.scale = static_cast<float>(scale);
  array.widest = array.row_bytes > 0 ? widest_word(array.row_bytes) : 1;
  if (scale != 0.0) array.widest = array.row_bytes % kScaledBytes == 0 ? kScaledBytes : 1;
  return array;
}

TakenArray taken_array(const PlannedArray& planned, const void* data, void* out) {
  TakenArray array{};
  array.data = data;
  array.out = out;
  array.rows = planned.rows;
  array.scale = planned.scale;
  const bool is_scaled = planned.scale != 0.0f;
  const int64_t out_bytes = is_scaled ? planned.widest * int64_t{sizeof(float)} : planned.widest;
  const bool aligned = is_aligned(data, planned.widest) && is_aligned(out, out_bytes);
  array.word_bytes = static_cast<int>(aligned ? planned.widest : planned.item);
  array.words = planned.row_bytes / array.word_bytes;
  return array;
}

}  // namespace

bool fuses_take_batches(const PlanRequest& request) {
  return request.op.name == "take_batches" && request.inputs.size() - 2 <= kMaxArrays;
}

// arrays (n, ...), order int32 (m,), step int64 () -> batches; one scale for each array, 0 for none
std::unique_ptr<Kernel> plan_take_batches(const PlanRequest& request) {
  const std::vector<double> scales = request.attributes.get_doubles("scales");
  std::vector<PlannedArray> planned;
  for (size_t i = 0; i < scales.size(); ++i) {
    planned.push_back(plan_array(request.inputs[i], scales[i]));
  }
  const int64_t order_length = num_elements(request.inputs[scales.size()].shape);
  const int64_t batch_size = request.attributes.get_int("batch_size");
  return make_early_kernel("kerascnn take_batches", [=](const KernelArgs& args) {
    if (order_length == 0) return;
    for (size_t first = 0; first < planned.size(); first += kMaxArrays) {
      TakeParams params{};
      params.order = input<int32_t>(args, planned.size());
      params.step = input<int64_t>(args, planned.size() + 1);
      params.batch_size = batch_size;
      params.order_length = order_length;
      int64_t blocks = 0;
      for (size_t i = first; i < std::min(planned.size(), first + kMaxArrays); ++i) {
        if (planned[i].row_bytes == 0) continue;
        TakenArray array = taken_array(planned[i], args.inputs[i], args.outputs[i]);
        array.first_block = blocks;
        blocks += grid_for(batch_size * array.words, kTakeThreads);
        params.arrays[params.count++] = array;
      }
      if (blocks == 0) continue;
      take_batches<<<static_cast<unsigned>(blocks), kTakeThreads, 0,
                     static_cast<cudaStream_t>(args.stream)>>>(params);
      check_launch("take_batches");
    }
  });
}

}  // namespace kerascnn::cuda
