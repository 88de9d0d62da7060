// Many tensors are rounded to 16 bits in one launch: a table of pointers is the kernel's argument,
// and each block takes some stretches of the tensors. More tensors than a table has take several
// launches.
#include <algorithm>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/tensor_table.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/copy.cuh"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/ops/geometry.h"

namespace kerascnn::cuda {
namespace {

constexpr int kCastThreads = 256;
constexpr int kWidth = 8;  // elements that a thread takes at once: 16 bytes of the result
constexpr int kTurns = 2;  // of a thread, whose loads are under way together
constexpr int64_t kStretch = int64_t{kCastThreads} * kWidth * kTurns;
// The table stays under 4 KiB, the limit for kernel arguments that every driver has.
constexpr size_t kMostTensors = 120;

struct CastEntry {
  const float* from;
  void* to;
  int64_t size;
  int first_stretch;  // its number among all stretches
  bool vectorized;
};

struct CastTable {
  CastEntry entries[kMostTensors];
  int count;
};
static_assert(sizeof(CastTable) < 3968);

template <typename T>
__global__ void __launch_bounds__(kCastThreads)
    cast_tensors(const __grid_constant__ CastTable table) {
  // Nothing writes a kernel's arguments, so reading them need not wait.
  const CastEntry& entry = table.entries[find_tensor(table, static_cast<int>(blockIdx.x))];
  begin_kernel();
  T* to = static_cast<T*>(entry.to);
  const int64_t first = (blockIdx.x - entry.first_stretch) * kStretch;
  if (entry.vectorized && first + kStretch <= entry.size) {
    Vector<float, 4> loaded[kTurns][kWidth / 4];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int64_t at = first + (turn * kCastThreads + threadIdx.x) * int64_t{kWidth};
#pragma unroll
      for (int part = 0; part < kWidth / 4; ++part) {
        loaded[turn][part] = reinterpret_cast<const Vector<float, 4>*>(entry.from + at)[part];
      }
    }
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int64_t at = first + (turn * kCastThreads + threadIdx.x) * int64_t{kWidth};
      Vector<T, kWidth> narrow;
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        narrow.values[k] = store<T>(loaded[turn][k / 4].values[k % 4]);
      *reinterpret_cast<Vector<T, kWidth>*>(to + at) = narrow;
    }
    return;
  }
  const int64_t end = min(first + kStretch, entry.size);
  for (int64_t i = first + threadIdx.x; i < end; i += kCastThreads) to[i] = store<T>(entry.from[i]);
}

template <typename T>
void launch_casts(const KernelArgs& args, const std::vector<int64_t>& sizes) {
  for (size_t begin = 0; begin < sizes.size(); begin += kMostTensors) {
    CastTable table{};
    table.count = static_cast<int>(std::min(kMostTensors, sizes.size() - begin));
    int64_t stretches = 0;
    for (int i = 0; i < table.count; ++i) {
      const size_t tensor = begin + static_cast<size_t>(i);
      CastEntry& entry = table.entries[i];
      entry.from = input<float>(args, tensor);
      entry.to = args.outputs[tensor];
      entry.size = sizes[tensor];
      entry.first_stretch = static_cast<int>(stretches);
      entry.vectorized = is_aligned(entry.from, kWidestWord) && is_aligned(entry.to, kWidestWord);
      stretches += ceil_div(entry.size, kStretch);
    }
    if (stretches == 0) continue;
    cast_tensors<T><<<static_cast<unsigned>(stretches), kCastThreads, 0,
                      static_cast<cudaStream_t>(args.stream)>>>(table);
    check_launch("cast_all");
  }
}

}  // namespace

std::unique_ptr<Kernel> plan_cast_all(const PlanRequest& request) {
  std::vector<int64_t> sizes;
  int64_t stretches = 0;
  for (const TensorSpec& spec : request.inputs) {
    sizes.push_back(num_elements(spec.shape));
    stretches += ceil_div(sizes.back(), kStretch);
  }
  if (stretches > INT32_MAX) {
    throw ValueError(message("cast_all: the tensors have more elements than one call can take (",
                             INT32_MAX * kStretch, "); cast some of them by themselves"));
  }
  const bool is_half = request.outputs[0].dtype == DType::Float16;
  return make_early_kernel("kerascnn cast_all", [sizes, is_half](const KernelArgs& args) {
    is_half ? launch_casts<__half>(args, sizes) : launch_casts<__nv_bfloat16>(args, sizes);
  });
}

}  // namespace kerascnn::cuda
