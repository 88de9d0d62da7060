// These are reduce_sum, reduce_mean, reduce_max, reduce_min and argmax.
//
// A block reduces a tile of outputs. Long reductions are split over several blocks, and the last
// block to finish combines their partial results in a fixed order, so results don't depend on
// timing.
#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/block.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/strided.cuh"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/device_buffer.h"
#include "core/ops/geometry.h"

namespace kerascnn::cuda {
namespace {

// Integers are summed in 64 bits, which agree with the result's dtype in what it holds.
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

// The dtypes that large networks reduce have kernels that read 16 bytes at once.
template <typename T>
constexpr bool kReadsVectors =
    std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, float>;

// Below, there are too few vectors to keep every thread busy.
constexpr int64_t kManyElements = int64_t{1} << 20;

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

// Combines vectors, whose numbers belong to neighbouring outputs, number by number.
template <typename Combine, int N>
struct CombineVectors {
  template <typename A>
  __device__ __forceinline__ Vector<A, N> operator()(Vector<A, N> a, const Vector<A, N>& b) const {
#pragma unroll
    for (int i = 0; i < N; ++i) a.values[i] = Combine()(a.values[i], b.values[i]);
    return a;
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
    if (outputs >> 31 == 0) {  // 64-bit divisions take long enough to show in a small reduction
      const uint32_t small = static_cast<uint32_t>(output);
      const uint32_t rest = small % static_cast<uint32_t>(inner);
      return static_cast<int64_t>(small - rest) * reduce + rest;
    }
    return (output / inner) * reduce * inner + output % inner;
  }
  __device__ __forceinline__ int64_t step(int64_t r) const {
    return is_simple ? r * inner : reduced(r);
  }
};

// Combines what the threads of a block have for the same outputs. The first `filled` rows of
// threads, at least one, have something. The result is right in the first row. One lane has vectors
// of one number.
template <int kLanes, typename A, typename Combine>
__device__ __forceinline__ A combine_rows(A* shared, A value, int filled, Combine combine) {
  static_assert(kLanes == 1 || kLanes == 32);
  int parts = filled;
  int stride = kLanes;
  if constexpr (kLanes == 1) {
    const int lane = threadIdx.x % 32;
    for (int step = 16; step > 0; step /= 2) {
      const A other{__shfl_down_sync(kFullWarp, value.values[0], step)};
      if (lane + step < 32 && threadIdx.x + step < filled) value = combine(value, other);
    }
    parts = (filled + 31) / 32;
    stride = 32;
  }
  shared[threadIdx.x] = value;
  __syncthreads();
  if (threadIdx.x < kLanes) {
#pragma unroll
    for (int part = 1; part < kThreads / 32; ++part) {
      if (part < parts) value = combine(value, shared[part * stride + threadIdx.x]);
    }
  }
  return value;
}

// Combines widen(element(r)) for r = first, first + step, ... below `end`, and at least for the
// first. Loads of a batch are under way at the same time, so the sums of small networks take one
// trip to memory.
template <typename A, typename Element, typename Widen, typename Combine>
__device__ __forceinline__ A combine_elements(int64_t first, int64_t end, int step, Element element,
                                              Widen widen, Combine combine) {
  constexpr int kBatch = 8;
  A value{};
  for (int64_t r = first; r < end; r += kBatch * step) {
    decltype(element(r)) batch[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (r + i * step < end) batch[i] = element(r + i * step);
    }
    value = r == first ? widen(batch[0]) : combine(value, widen(batch[0]));
#pragma unroll
    for (int i = 1; i < kBatch; ++i) {
      if (r + i * step < end) value = combine(value, widen(batch[i]));
    }
  }
  return value;
}

// kLanes threads side by side take kWidth neighbouring outputs each; kThreads / kLanes rows share a
// reduction. Every tensor that a kernel gets is aligned to vectors of 16 bytes.
template <typename T, int kLanes, int kWidth, typename Combine>
__global__ void reduce_kernel(const T* __restrict__ x, T* __restrict__ y,
                              typename Accumulate<T>::type* __restrict__ partial, unsigned* tickets,
                              ReduceParams p) {
  begin_kernel();
  using A = Vector<typename Accumulate<T>::type, kWidth>;
  constexpr int kRows = kThreads / kLanes;
  const CombineVectors<Combine, kWidth> combine;
  const int lane = threadIdx.x % kLanes;
  const int row = threadIdx.x / kLanes;
  const int64_t output = (static_cast<int64_t>(blockIdx.x) * kLanes + lane) * kWidth;
  const int64_t begin = blockIdx.y * p.per_split;
  const int64_t end = min(begin + p.per_split, p.reduce);
  auto rows_of = [](int64_t elements) { return static_cast<int>(min(elements, int64_t{kRows})); };
  __shared__ A shared[kThreads];

  A value{};
  if (output < p.outputs && begin < end) {
    const T* source = x + p.start(output);
    value = combine_elements<A>(
        begin + row, end, kRows,
        [&](int64_t r) { return *reinterpret_cast<const Vector<T, kWidth>*>(source + p.step(r)); },
        [](const Vector<T, kWidth>& numbers) {
          A wide;
#pragma unroll
          for (int i = 0; i < kWidth; ++i) {
            wide.values[i] = static_cast<typename Accumulate<T>::type>(load(numbers.values[i]));
          }
          return wide;
        },
        combine);
  }
  value = combine_rows<kLanes>(shared, value, rows_of(end - begin), combine);

  auto finish = [&](const A& result) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      auto number = result.values[i];
      if (p.scaled)
        number = static_cast<decltype(number)>(number * static_cast<decltype(number)>(p.scale));
      y[output + i] = store<T>(static_cast<compute_t<T>>(number));
    }
  };
  if (p.splits == 1) {
    if (row == 0 && output < p.outputs) finish(value);
    return;
  }
  // Every split has at least one element, so every partial result is filled.
  if (row == 0 && output < p.outputs) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) partial[blockIdx.y * p.outputs + output + i] = value.values[i];
  }
  if (!is_last_block(tickets + blockIdx.x, static_cast<unsigned>(p.splits))) return;
  if (output < p.outputs) {
    value = combine_elements<A>(
        row, p.splits, kRows,
        [&](int64_t s) {
          A sums;
#pragma unroll
          for (int i = 0; i < kWidth; ++i) sums.values[i] = partial[s * p.outputs + output + i];
          return sums;
        },
        [](const A& sums) { return sums; }, combine);
  }
  __syncthreads();  // the first row has read `shared`
  value = combine_rows<kLanes>(shared, value, rows_of(p.splits), combine);
  if (row == 0 && output < p.outputs) finish(value);
}

template <typename T, int kLanes, int kWidth, typename Combine>
std::unique_ptr<Kernel> plan_lanes(const ReduceGeometry& g, bool mean) {
  using A = typename Accumulate<T>::type;
  const int64_t tiles = ceil_div(g.outputs, kLanes * kWidth);
  // There are enough blocks for two per multiprocessor, each with at least eight turns of its loop.
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
  return make_early_kernel(
      "kerascnn reduce",
      [=](const KernelArgs& args) {
        if (p.outputs == 0) return;
        const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(p.splits));
        reduce_kernel<T, kLanes, kWidth, Combine>
            <<<grid, kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
                input<T>(args, 0), output<T>(args, 0), static_cast<A*>(args.workspace),
                tickets ? tickets->as<unsigned>() : nullptr, p);
        check_launch("reduce");
      },
      workspace, tickets != nullptr);
}

template <typename Combine>
std::unique_ptr<Kernel> plan_reduce(const PlanRequest& request, bool mean) {
  const ReduceGeometry g =
      reduce_geometry(request.inputs[0].shape, request.attributes.get_ints("axes"));
  auto plan = [&]<typename T>(Type<T>) -> std::unique_ptr<Kernel> {
    // Neighbouring threads read neighbouring elements, either along the outputs or along the
    // reduction.
    if (g.is_simple && g.inner == 1 && g.reduce > 32) return plan_lanes<T, 1, 1, Combine>(g, mean);
    // A thread that reads 2 or 4 bytes at once leaves most of a memory's bandwidth unused.
    constexpr int kWidest = kReadsVectors<T> ? 16 / sizeof(T) : 1;
    if constexpr (kWidest > 1) {
      if (g.is_simple && g.inner % kWidest == 0 && g.outputs * g.reduce >= kManyElements) {
        return plan_lanes<T, 32, kWidest, Combine>(g, mean);
      }
    }
    return plan_lanes<T, 32, 1, Combine>(g, mean);
  };
  if (mean) return dispatch_floating(request.op.name, request.inputs[0].dtype, plan);
  return dispatch_number(request.op.name, request.inputs[0].dtype, plan);
}

template <typename T>
__global__ void argmax_kernel(const T* __restrict__ x, int32_t* __restrict__ y, AxisGeometry g) {
  begin_kernel();
  const int64_t outputs = g.outer * g.inner;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x; i < outputs;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const T* row = x + (i / g.inner) * g.length * g.inner + i % g.inner;
    compute_t<T> best = load(row[0]);
    int32_t index = 0;
    for (int64_t j = 1; j < g.length; ++j) {
      const compute_t<T> value = load(row[j * g.inner]);
      // The result is the first maximum; the first NaN counts as one.
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
  const AxisGeometry g = axis_geometry(request.inputs[0].shape, request.attributes.get_int("axis"));
  return dispatch_number("argmax", request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_early_kernel("kerascnn argmax", [g](const KernelArgs& args) {
      if (g.outer * g.inner == 0) return;
      argmax_kernel<T>
          <<<grid_for(g.outer * g.inner), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
              input<T>(args, 0), output<int32_t>(args, 0), g);
      check_launch("argmax");
    });
  });
}

}  // namespace kerascnn::cuda
