// reduce_sum, reduce_mean, reduce_max, reduce_min, argmax.
//
// A block reduces a tile of outputs; long reductions are split over several blocks, whose partial
// results the last block to finish combines in a fixed order. So results don't depend on timing.
#include "core/backend/cuda/device/block.cuh"
#include "core/backend/cuda/device/strided.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/device_buffer.h"
#include "core/ops/geometry.h"

namespace kerascnn::cuda {
namespace {

// Integers are summed in 64 bits, as the result's dtype holds what fits.
template <typename T>
struct Accumulate {
  using type = compute_t<T>;
};
template <>
struct Accumulate<uint8_t> {
  using type = int64_t;
};
template <>
struct Accumulate<int8_t> {
  using type = int64_t;
};
template <>
struct Accumulate<int16_t> {
  using type = int64_t;
};
template <>
struct Accumulate<int32_t> {
  using type = int64_t;
};

struct Add {
  template <typename A>
  __device__ __forceinline__ A operator()(A a, A b) const {
    return a + b;
  }
};
struct Maximum {
  template <typename A>
  __device__ __forceinline__ A operator()(A a, A b) const {
    return element::maximum(a, b);
  }
};
struct Minimum {
  template <typename A>
  __device__ __forceinline__ A operator()(A a, A b) const {
    return element::minimum(a, b);
  }
};

struct ReduceParams {
  int64_t outputs;
  int64_t reduce;
  int64_t inner;  // simple geometry: element (output, r) is at start(output) + r * inner
  bool is_simple;
  StridedIndex kept, reduced;  // otherwise
  int64_t splits;
  int64_t per_split;
  double scale;  // 1 / reduce for means, 1 else
  bool scaled;

  __device__ __forceinline__ int64_t start(int64_t output) const {
    if (!is_simple) return kept(output);
    return (output / inner) * reduce * inner + output % inner;
  }
  __device__ __forceinline__ int64_t step(int64_t r) const {
    return is_simple ? r * inner : reduced(r);
  }
};

// Combines what the threads of a block have for the same output; the result is right in the first
// row.
template <int kLanes, typename A, typename Combine>
__device__ __forceinline__ A combine_rows(A* shared, bool* filled, A value, bool has_value,
                                          Combine combine) {
  constexpr int kRows = kThreads / kLanes;
  const int row = threadIdx.x / kLanes;
  shared[threadIdx.x] = value;
  filled[threadIdx.x] = has_value;
  __syncthreads();
  for (int half = kRows / 2; half > 0; half /= 2) {
    const int other = threadIdx.x + half * kLanes;
    if (row < half && filled[other]) {
      shared[threadIdx.x] =
          filled[threadIdx.x] ? combine(shared[threadIdx.x], shared[other]) : shared[other];
      filled[threadIdx.x] = true;
    }
    __syncthreads();
  }
  return shared[threadIdx.x];
}

// kLanes threads side by side take neighbouring outputs, kThreads / kLanes rows share a reduction.
template <typename T, int kLanes, typename Combine>
__global__ void reduce_kernel(const T* __restrict__ x, T* __restrict__ y,
                              typename Accumulate<T>::type* __restrict__ partial, unsigned* tickets,
                              ReduceParams p) {
  using A = typename Accumulate<T>::type;
  constexpr int kRows = kThreads / kLanes;
  const Combine combine;
  const int lane = threadIdx.x % kLanes;
  const int row = threadIdx.x / kLanes;
  const int64_t output = static_cast<int64_t>(blockIdx.x) * kLanes + lane;
  const int64_t begin = blockIdx.y * p.per_split;
  const int64_t end = min(begin + p.per_split, p.reduce);
  __shared__ A shared[kThreads];
  __shared__ bool filled[kThreads];

  A value{};
  bool has_value = output < p.outputs && begin + row < end;
  if (has_value) {
    const T* source = x + p.start(output);
    value = load(source[p.step(begin + row)]);
#pragma unroll 4
    for (int64_t r = begin + row + kRows; r < end; r += kRows) {
      value = combine(value, static_cast<A>(load(source[p.step(r)])));
    }
  }
  value = combine_rows<kLanes>(shared, filled, value, has_value, combine);

  auto finish = [&](A result) {
    if (p.scaled) result = static_cast<A>(result * static_cast<A>(p.scale));
    y[output] = store<T>(static_cast<compute_t<T>>(result));
  };
  if (p.splits == 1) {
    if (row == 0 && output < p.outputs) finish(value);
    return;
  }
  // Every split has at least one element, so every partial result is filled.
  if (row == 0 && output < p.outputs) partial[blockIdx.y * p.outputs + output] = value;
  if (!is_last_block(tickets + blockIdx.x, static_cast<unsigned>(p.splits))) return;
  has_value = output < p.outputs && row < p.splits;
  if (has_value) {
    value = partial[row * p.outputs + output];
#pragma unroll 4
    for (int64_t s = row + kRows; s < p.splits; s += kRows) {
      value = combine(value, partial[s * p.outputs + output]);
    }
  }
  value = combine_rows<kLanes>(shared, filled, value, has_value, combine);
  if (row == 0 && output < p.outputs) finish(value);
}

template <typename T, int kLanes, typename Combine>
std::unique_ptr<Kernel> plan_lanes(const ReduceGeometry& g, bool mean) {
  using A = typename Accumulate<T>::type;
  const int64_t tiles = ceil_div(g.outputs, kLanes);
  // Enough blocks for two per multiprocessor, each with at least eight turns of its loop.
  const int64_t wanted = ceil_div(2 * Context::current().multiprocessors(), tiles);
  const int64_t most = std::max<int64_t>(1, g.reduce / (8 * kThreads / kLanes));
  constexpr int64_t kMaxSplits = 128;  // the last block has to combine them
  ReduceParams p{};
  p.outputs = g.outputs;
  p.reduce = g.reduce;
  p.inner = g.inner;
  p.is_simple = g.is_simple;
  if (!g.is_simple) {
    p.kept = StridedIndex("reduce", g.kept_extents, g.kept_strides);
    p.reduced = StridedIndex("reduce", g.reduced_extents, g.reduced_strides);
  }
  p.splits = std::clamp<int64_t>(std::min(wanted, most), 1, kMaxSplits);
  p.per_split = ceil_div(g.reduce, p.splits);
  p.splits = std::max<int64_t>(1, ceil_div(g.reduce, std::max<int64_t>(p.per_split, 1)));
  p.scaled = mean;
  p.scale = 1.0 / static_cast<double>(g.reduce);
  std::shared_ptr<DeviceBuffer> tickets;
  int64_t workspace = 0;
  if (p.splits > 1) {
    tickets = std::make_shared<DeviceBuffer>(tiles * sizeof(unsigned));
    workspace = p.splits * g.outputs * static_cast<int64_t>(sizeof(A));
  }
  return make_kernel(
      "kerascnn reduce",
      [=](const KernelArgs& args) {
        if (p.outputs == 0) return;
        const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(p.splits));
        reduce_kernel<T, kLanes, Combine>
            <<<grid, kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
                input<T>(args, 0), output<T>(args, 0), static_cast<A*>(args.workspace),
                tickets ? tickets->as<unsigned>() : nullptr, p);
        check_launch("reduce");
      },
      workspace);
}

template <typename Combine>
std::unique_ptr<Kernel> plan_reduce(const PlanRequest& request, bool mean) {
  const ReduceGeometry g =
      reduce_geometry(request.inputs[0].shape, request.attributes.get_ints("axes"));
  auto plan = [&]<typename T>(Type<T>) -> std::unique_ptr<Kernel> {
    // Neighbouring threads read neighbouring elements: along the outputs, or along the reduction.
    const bool rows = g.is_simple && g.inner == 1 && g.reduce > 32;
    return rows ? plan_lanes<T, 1, Combine>(g, mean) : plan_lanes<T, 32, Combine>(g, mean);
  };
  if (mean) return dispatch_floating(request.op.name, request.inputs[0].dtype, plan);
  return dispatch_number(request.op.name, request.inputs[0].dtype, plan);
}

template <typename T>
__global__ void argmax_kernel(const T* __restrict__ x, int32_t* __restrict__ y, AxisGeometry g) {
  const int64_t outputs = g.outer * g.inner;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < outputs;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const T* row = x + (i / g.inner) * g.length * g.inner + i % g.inner;
    compute_t<T> best = load(row[0]);
    int32_t index = 0;
    for (int64_t j = 1; j < g.length; ++j) {
      const compute_t<T> value = load(row[j * g.inner]);
      // The first maximum; the first NaN counts as one.
      if (value > best || (value != value && best == best)) {
        best = value;
        index = static_cast<int32_t>(j);
      }
    }
    y[i] = index;
  }
}

}  // namespace

std::unique_ptr<Kernel> plan_reduce_sum(const PlanRequest& request) {
  return plan_reduce<Add>(request, false);
}
std::unique_ptr<Kernel> plan_reduce_mean(const PlanRequest& request) {
  return plan_reduce<Add>(request, true);
}
std::unique_ptr<Kernel> plan_reduce_max(const PlanRequest& request) {
  return plan_reduce<Maximum>(request, false);
}
std::unique_ptr<Kernel> plan_reduce_min(const PlanRequest& request) {
  return plan_reduce<Minimum>(request, false);
}

std::unique_ptr<Kernel> plan_argmax(const PlanRequest& request) {
  const Shape& shape = request.inputs[0].shape;
  const int64_t axis = normalize_axis("argmax", request.attributes.get_int("axis"),
                                      static_cast<int64_t>(shape.size()));
  const AxisGeometry g = axis_geometry(shape, axis);
  return dispatch_number("argmax", request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_kernel("kerascnn argmax", [g](const KernelArgs& args) {
      if (g.outer * g.inner == 0) return;
      argmax_kernel<T>
          <<<grid_for(g.outer * g.inner), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
              input<T>(args, 0), output<int32_t>(args, 0), g);
      check_launch("argmax");
    });
  });
}

}  // namespace kerascnn::cuda
