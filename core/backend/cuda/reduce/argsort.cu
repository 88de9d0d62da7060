// argsort by bitonic sorting networks. Their order of work does not depend on data, so the result
// is the same in every run. Each line's positions are filled up to a power of two with positions
// behind the end.
#include "core/ops/argsort.h"

#include <bit>

#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/ops/geometry.h"

namespace kerascnn::cuda {
namespace {

constexpr int kSharedLength = 2048;  // what one block sorts in shared memory, 8 KiB

template <typename T>
__device__ __forceinline__ bool is_before(const T* line, const AxisGeometry& g, int i, int j,
                                          bool descending) {
  if (i >= g.length || j >= g.length) return i < j;
  return comes_before(load(line[i * g.inner]), i, load(line[j * g.inner]), j, descending);
}

// One exchange of the network, between the positions `at` and `at + distance`. They are within runs
// of `run` positions, which go up and down in turn.
template <typename T>
__device__ __forceinline__ void exchange(const T* line, const AxisGeometry& g, int* order, int pair,
                                         int distance, int run, bool descending) {
  const int at = pair / distance * 2 * distance + pair % distance;
  const int i = order[at];
  const int j = order[at + distance];
  const bool is_upward = (at & run) == 0;
  if (is_before(line, g, j, i, descending) == is_upward) {
    order[at] = j;
    order[at + distance] = i;
  }
}

template <typename T>
__device__ __forceinline__ const T* line_of(const T* x, const AxisGeometry& g, int64_t line) {
  const Division at = divide(line, g.inner);
  return x + at.quotient * g.length * g.inner + at.remainder;
}

// Each line of up to kSharedLength elements has a block; `padded` is a power of two.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    argsort_shared(const T* __restrict__ x, int32_t* __restrict__ y, AxisGeometry g, int padded,
                   bool descending) {
  __shared__ int order[kSharedLength];
  for (int64_t line = blockIdx.x; line < g.outer * g.inner; line += gridDim.x) {
    const T* from = line_of(x, g, line);
    for (int i = threadIdx.x; i < padded; i += kThreads) order[i] = i;
    for (int run = 2; run <= padded; run *= 2) {
      for (int distance = run / 2; distance > 0; distance /= 2) {
        __syncthreads();
        for (int pair = threadIdx.x; pair < padded / 2; pair += kThreads) {
          exchange(from, g, order, pair, distance, run, descending);
        }
      }
    }
    __syncthreads();
    int32_t* to = y + (from - x);
    for (int i = threadIdx.x; i < g.length; i += kThreads) to[i * g.inner] = order[i];
    __syncthreads();  // before the next line overwrites the order
  }
}

// For longer lines the orders are in `orders` (lines, padded), and each step is a launch.
__global__ void start_orders(int* orders, int64_t size, int padded) {
  for (int64_t i = first_item(); i < size; i += item_step()) {
    orders[i] = static_cast<int>(i & (padded - 1));
  }
}

template <typename T>
__global__ void argsort_step(const T* __restrict__ x, int* orders, AxisGeometry g, int padded,
                             int distance, int run, bool descending) {
  const int64_t pairs = padded / 2;
  for (int64_t i = first_item(); i < g.outer * g.inner * pairs; i += item_step()) {
    const Division at = divide(i, pairs);
    exchange(line_of(x, g, at.quotient), g, orders + at.quotient * padded,
             static_cast<int>(at.remainder), distance, run, descending);
  }
}

__global__ void write_orders(const int* __restrict__ orders, int32_t* __restrict__ y,
                             AxisGeometry g, int padded) {
  for (int64_t i = first_item(); i < g.outer * g.length * g.inner; i += item_step()) {
    const Division row = divide(i, g.inner);
    const Division at = divide(row.quotient, g.length);
    y[i] = orders[(at.quotient * g.inner + row.remainder) * padded + at.remainder];
  }
}

template <typename T>
std::unique_ptr<Kernel> plan_shared(const AxisGeometry& g, int padded, bool descending) {
  return make_kernel("kerascnn argsort", [=](const KernelArgs& args) {
    const int64_t lines = g.outer * g.inner;
    if (lines * g.length == 0) return;
    argsort_shared<T><<<grid_for(lines, 1), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
        input<T>(args, 0), output<int32_t>(args, 0), g, padded, descending);
    check_launch("argsort");
  });
}

template <typename T>
std::unique_ptr<Kernel> plan_long(const AxisGeometry& g, int padded, bool descending) {
  const int64_t lines = g.outer * g.inner;
  return make_kernel(
      "kerascnn argsort",
      [=](const KernelArgs& args) {
        if (lines == 0) return;
        const auto stream = static_cast<cudaStream_t>(args.stream);
        int* orders = static_cast<int*>(args.workspace);
        start_orders<<<grid_for(lines * padded), kThreads, 0, stream>>>(orders, lines * padded,
                                                                        padded);
        for (int64_t run = 2; run <= padded; run *= 2) {
          for (int64_t distance = run / 2; distance > 0; distance /= 2) {
            argsort_step<T><<<grid_for(lines * padded / 2), kThreads, 0, stream>>>(
                input<T>(args, 0), orders, g, padded, static_cast<int>(distance),
                static_cast<int>(run), descending);
          }
        }
        write_orders<<<grid_for(lines * g.length), kThreads, 0, stream>>>(
            orders, output<int32_t>(args, 0), g, padded);
        check_launch("argsort");
      },
      lines * padded * static_cast<int64_t>(sizeof(int)));
}

}  // namespace

std::unique_ptr<Kernel> plan_argsort(const PlanRequest& request) {
  const TensorSpec& spec = request.inputs[0];
  const AxisGeometry g = axis_geometry(spec.shape, request.attributes.get_int("axis"));
  const bool descending = request.attributes.get_bool("descending");
  const auto padded = static_cast<int>(std::bit_ceil(static_cast<uint32_t>(g.length)));
  return dispatch_number("argsort", spec.dtype, [&]<typename T>(Type<T>) {
    return padded <= kSharedLength ? plan_shared<T>(g, padded, descending)
                                   : plan_long<T>(g, padded, descending);
  });
}

}  // namespace kerascnn::cuda
