// Kernels around what NCCL sends: products with a factor, and many small tensors brought together
// in one piece of memory, or back (core/backend/message_packing.h).
#pragma once

#include <algorithm>
#include <vector>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/tensor_table.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/base/ceil_div.h"

namespace kerascnn::cuda {

// With 0 it is 0, whatever the value is.
template <typename T>
__device__ __forceinline__ T product(T value, compute_t<T> factor) {
  return factor == 0 ? static_cast<T>(factor)
                     : static_cast<T>(static_cast<compute_t<T>>(value) * factor);
}

template <typename T>
__global__ void multiply(const T* x, T* y, int64_t size, double by) {
  begin_kernel();
  const auto factor = static_cast<compute_t<T>>(by);
  for (int64_t i = first_item(); i < size; i += item_step()) y[i] = product(x[i], factor);
}

// y = by * x, which may be the same memory.
template <typename T>
void launch_multiply(const char* op, const T* x, T* y, int64_t size, double by,
                     cudaStream_t stream) {
  if (size == 0) return;
  multiply<T><<<grid_for(size), kThreads, 0, stream>>>(x, y, size, by);
  check_launch(op);
}

// A tensor, and where it goes or comes from.
struct MovedTensor {
  void* data = nullptr;
  int64_t size = 0;
  int64_t place = 0;  // of its first element in the packed memory
};

constexpr int64_t kMovedStretch = kThreads * 8;  // elements that a block moves
// The table stays under 4 KiB, the limit for kernel arguments that every driver has.
constexpr size_t kMostMoved = 120;

struct MovedEntry {
  MovedTensor tensor;
  int first_stretch;  // its number among all stretches of the table
};

struct MovedTable {
  MovedEntry entries[kMostMoved];
  int count;
};
static_assert(sizeof(MovedTable) < 3968);

// From the tensors into `packed`, or back, multiplied on the way.
template <typename T, bool kPacks>
__global__ void __launch_bounds__(kThreads)
    move_tensors(const __grid_constant__ MovedTable table, T* packed, double by) {
  // Nothing writes a kernel's arguments, so reading them need not wait.
  const MovedEntry& entry = table.entries[find_tensor(table, static_cast<int>(blockIdx.x))];
  begin_kernel();
  const auto factor = static_cast<compute_t<T>>(by);
  T* const tensor = static_cast<T*>(entry.tensor.data);
  T* const place = packed + entry.tensor.place;
  const int64_t first = (static_cast<int>(blockIdx.x) - entry.first_stretch) * kMovedStretch;
  const int64_t end = min(first + kMovedStretch, entry.tensor.size);
  for (int64_t i = first + threadIdx.x; i < end; i += kThreads) {
    if (kPacks) {
      place[i] = product(tensor[i], factor);
    } else {
      tensor[i] = product(place[i], factor);
    }
  }
}

template <typename T, bool kPacks>
void launch_moves(const char* op, const std::vector<MovedTensor>& tensors, void* packed, double by,
                  cudaStream_t stream) {
  for (size_t begin = 0; begin < tensors.size(); begin += kMostMoved) {
    MovedTable table{};
    table.count = static_cast<int>(std::min(kMostMoved, tensors.size() - begin));
    int64_t stretches = 0;
    for (int i = 0; i < table.count; ++i) {
      const MovedTensor& tensor = tensors[begin + static_cast<size_t>(i)];
      table.entries[i] = {tensor, static_cast<int>(stretches)};
      stretches += ceil_div(tensor.size, kMovedStretch);
    }
    move_tensors<T, kPacks><<<static_cast<unsigned>(stretches), kThreads, 0, stream>>>(
        table, static_cast<T*>(packed), by);
    check_launch(op);
  }
}

}  // namespace kerascnn::cuda
