// softmax and log_softmax along one axis, and their gradients.
#include <limits>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/rows.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/ops/geometry.h"

namespace kerascnn::cuda {
namespace {

// For rows that fit into registers: each lane holds kItems elements, so x is read once. y may be x.
template <typename T, bool kLog, int kItems>
__global__ void __launch_bounds__(RowThreads<32>::kBlock)
    softmax_short_rows(const T* x, T* y, int64_t rows, int length) {
  begin_kernel();
  using C = compute_t<T>;
  using Threads = RowThreads<32>;
  for (int64_t row = Threads::first_row(); row < rows; row += Threads::row_step()) {
    const T* from = x + row * length;
    T* to = y + row * length;
    C values[kItems];
    C largest = -std::numeric_limits<C>::infinity();
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const int i = Threads::lane() + k * 32;
      values[k] = i < length ? load(from[i]) : C(0);
      if (i < length) largest = Largest()(largest, values[k]);
    }
    largest = Threads::reduce(largest, Largest());
    C sum = 0;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      values[k] -= largest;
      const C exponential = element::exp(values[k]);
      if (Threads::lane() + k * 32 < length) sum += exponential;
      if (!kLog) values[k] = exponential;
    }
    sum = Threads::reduce(sum, Sum());
    const C log_sum = kLog ? element::log(sum) : C(0);
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const int i = Threads::lane() + k * 32;
      if (i < length) to[i] = store<T>(kLog ? values[k] - log_sum : values[k] / sum);
    }
  }
}

template <typename T, bool kLog, int kLanes>
__global__ void __launch_bounds__(RowThreads<kLanes>::kBlock)
    softmax_rows(const T* x, T* y, int64_t rows, int64_t length) {
  begin_kernel();
  using C = compute_t<T>;
  using Threads = RowThreads<kLanes>;
  for (int64_t row = Threads::first_row(); row < rows; row += Threads::row_step()) {
    const T* from = x + row * length;
    T* to = y + row * length;
    C largest = -std::numeric_limits<C>::infinity();
    for (int64_t i = Threads::lane(); i < length; i += kLanes) {
      largest = Largest()(largest, load(from[i]));
    }
    largest = Threads::reduce(largest, Largest());
    C sum = 0;
    for (int64_t i = Threads::lane(); i < length; i += kLanes) {
      sum += element::exp(load(from[i]) - largest);
    }
    sum = Threads::reduce(sum, Sum());
    const C log_sum = kLog ? element::log(sum) : C(0);
    for (int64_t i = Threads::lane(); i < length; i += kLanes) {
      const C shifted = load(from[i]) - largest;
      to[i] = store<T>(kLog ? shifted - log_sum : element::exp(shifted) / sum);
    }
  }
}

// For lines along an axis that is not the last: neighbouring threads take neighbouring lines.
template <typename T, bool kLog>
__global__ void softmax_lines(const T* x, T* y, AxisGeometry g) {
  begin_kernel();
  using C = compute_t<T>;
  const int64_t lines = g.outer * g.inner;
  for (int64_t line = first_item(); line < lines; line += item_step()) {
    const Division at = divide(line, g.inner);
    const int64_t begin = at.quotient * g.length * g.inner + at.remainder;
    const int64_t end = begin + g.length * g.inner;
    C largest = -std::numeric_limits<C>::infinity();
    for (int64_t i = begin; i < end; i += g.inner) largest = Largest()(largest, load(x[i]));
    C sum = 0;
    for (int64_t i = begin; i < end; i += g.inner) sum += element::exp(load(x[i]) - largest);
    const C log_sum = kLog ? element::log(sum) : C(0);
    for (int64_t i = begin; i < end; i += g.inner) {
      const C shifted = load(x[i]) - largest;
      y[i] = store<T>(kLog ? shifted - log_sum : element::exp(shifted) / sum);
    }
  }
}

// softmax: gx = y (gy - sum(gy y)); log_softmax: gx = gy - exp(y) sum(gy).
template <bool kLog, typename C>
__device__ __forceinline__ C gradient_term(C gy, C y) {
  return kLog ? gy : gy * y;
}
template <bool kLog, typename C>
__device__ __forceinline__ C gradient(C gy, C y, C sum) {
  return kLog ? gy - element::exp(y) * sum : y * (gy - sum);
}

template <typename T, bool kLog, int kLanes>
__global__ void __launch_bounds__(RowThreads<kLanes>::kBlock)
    softmax_grad_rows(const T* gy, const T* y, T* gx, int64_t rows, int64_t length) {
  begin_kernel();
  using C = compute_t<T>;
  using Threads = RowThreads<kLanes>;
  for (int64_t row = Threads::first_row(); row < rows; row += Threads::row_step()) {
    const int64_t begin = row * length;
    C sum = 0;
    for (int64_t i = Threads::lane(); i < length; i += kLanes) {
      sum += gradient_term<kLog>(load(gy[begin + i]), load(y[begin + i]));
    }
    sum = Threads::reduce(sum, Sum());
    for (int64_t i = Threads::lane(); i < length; i += kLanes) {
      gx[begin + i] = store<T>(gradient<kLog>(load(gy[begin + i]), load(y[begin + i]), sum));
    }
  }
}

template <typename T, bool kLog>
__global__ void softmax_grad_lines(const T* gy, const T* y, T* gx, AxisGeometry g) {
  begin_kernel();
  using C = compute_t<T>;
  const int64_t lines = g.outer * g.inner;
  for (int64_t line = first_item(); line < lines; line += item_step()) {
    const Division at = divide(line, g.inner);
    const int64_t begin = at.quotient * g.length * g.inner + at.remainder;
    const int64_t end = begin + g.length * g.inner;
    C sum = 0;
    for (int64_t i = begin; i < end; i += g.inner) {
      sum += gradient_term<kLog>(load(gy[i]), load(y[i]));
    }
    for (int64_t i = begin; i < end; i += g.inner) {
      gx[i] = store<T>(gradient<kLog>(load(gy[i]), load(y[i]), sum));
    }
  }
}

constexpr int kLineThreads =
    64;  // small blocks: lines are few and long, so they should spread over the GPU

AxisGeometry softmax_geometry(const PlanRequest& request) {
  return axis_geometry(request.outputs[0].shape, request.attributes.get_int("axis"));
}

template <typename T, bool kLog>
void launch_softmax(const T* x, T* y, const AxisGeometry& g, cudaStream_t stream) {
  const unsigned warp_grid = grid_for(g.outer, RowThreads<32>::kRowsPerBlock);
  const int length = static_cast<int>(std::min<int64_t>(g.length, kWarpRowLength));
  constexpr int kBlock = RowThreads<32>::kBlock;
  if (g.inner > 1) {
    softmax_lines<T, kLog>
        <<<grid_for(g.outer * g.inner, kLineThreads), kLineThreads, 0, stream>>>(x, y, g);
  } else if (g.length <= 32) {
    softmax_short_rows<T, kLog, 1><<<warp_grid, kBlock, 0, stream>>>(x, y, g.outer, length);
  } else if (g.length <= 256) {
    softmax_short_rows<T, kLog, 8><<<warp_grid, kBlock, 0, stream>>>(x, y, g.outer, length);
  } else if (g.length <= kWarpRowLength) {
    softmax_rows<T, kLog, 32><<<warp_grid, kBlock, 0, stream>>>(x, y, g.outer, g.length);
  } else {
    softmax_rows<T, kLog, 256><<<grid_for(g.outer, 1), 256, 0, stream>>>(x, y, g.outer, g.length);
  }
}

template <typename T, bool kLog>
void launch_softmax_grad(const T* gy, const T* y, T* gx, const AxisGeometry& g,
                         cudaStream_t stream) {
  if (g.inner > 1) {
    softmax_grad_lines<T, kLog>
        <<<grid_for(g.outer * g.inner, kLineThreads), kLineThreads, 0, stream>>>(gy, y, gx, g);
  } else if (g.length <= kWarpRowLength) {
    softmax_grad_rows<T, kLog, 32>
        <<<grid_for(g.outer, RowThreads<32>::kRowsPerBlock), RowThreads<32>::kBlock, 0, stream>>>(
            gy, y, gx, g.outer, g.length);
  } else {
    softmax_grad_rows<T, kLog, 256>
        <<<grid_for(g.outer, 1), 256, 0, stream>>>(gy, y, gx, g.outer, g.length);
  }
}

template <bool kLog>
std::unique_ptr<Kernel> plan_forward(const PlanRequest& request) {
  const AxisGeometry g = softmax_geometry(request);
  return dispatch_floating(request.op.name, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_early_kernel("kerascnn softmax", [g](const KernelArgs& args) {
      if (g.outer * g.length * g.inner == 0) return;
      launch_softmax<T, kLog>(input<T>(args, 0), output<T>(args, 0), g,
                              static_cast<cudaStream_t>(args.stream));
      check_launch("softmax");
    });
  });
}

template <bool kLog>
std::unique_ptr<Kernel> plan_gradient(const PlanRequest& request) {
  const AxisGeometry g = softmax_geometry(request);
  return dispatch_floating(request.op.name, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_early_kernel("kerascnn softmax gradient", [g](const KernelArgs& args) {
      if (g.outer * g.length * g.inner == 0) return;
      launch_softmax_grad<T, kLog>(input<T>(args, 0), input<T>(args, 1), output<T>(args, 0), g,
                                   static_cast<cudaStream_t>(args.stream));
      check_launch("softmax gradient");
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_softmax(const PlanRequest& request) {
  return plan_forward<false>(request);
}
std::unique_ptr<Kernel> plan_log_softmax(const PlanRequest& request) {
  return plan_forward<true>(request);
}
std::unique_ptr<Kernel> plan_softmax_grad(const PlanRequest& request) {
  return plan_gradient<false>(request);
}
std::unique_ptr<Kernel> plan_log_softmax_grad(const PlanRequest& request) {
  return plan_gradient<true>(request);
}

}  // namespace kerascnn::cuda
