// Cross-entropy of integer labels with probabilities or logits, and the gradients; each row has a
// warp or a block.
//
// A label outside [0, classes) gives NaN in its row's loss and gradient; nothing is read out of
// bounds.
#include <limits>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/grid.cuh"
#include "core/backend/cuda/device/rows.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/movement/indices.cuh"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/runtime/check.h"

namespace kerascnn::cuda {
namespace {

struct CrossEntropyParams {
  int64_t rows = 0;
  int64_t classes = 0;
  // Probabilities are clipped to [low, high].
  double low = 0.0;
  double high = 1.0;
};

template <typename C>
__device__ __forceinline__ bool is_clipped(C p, const CrossEntropyParams& params) {
  return p < static_cast<C>(params.low) || p > static_cast<C>(params.high);
}

template <typename C>
__device__ __forceinline__ C clipped_loss(C p, const CrossEntropyParams& params) {
  return -element::log(element::clip(p, static_cast<C>(params.low), static_cast<C>(params.high)));
}

template <typename C>
__device__ __forceinline__ C not_a_number() {
  return std::numeric_limits<C>::quiet_NaN();
}

template <typename T, typename Label, int kLanes>
__global__ void __launch_bounds__(RowThreads<kLanes>::kBlock)
    sparse_cross_entropy(const T* __restrict__ probabilities, const Label* __restrict__ labels,
                         T* __restrict__ loss, CrossEntropyParams params) {
  begin_kernel();
  using C = compute_t<T>;
  using Threads = RowThreads<kLanes>;
  for (int64_t row = Threads::first_row(); row < params.rows; row += Threads::row_step()) {
    const T* p = probabilities + row * params.classes;
    const int64_t label = static_cast<int64_t>(labels[row]);
    const bool is_valid = label >= 0 && label < params.classes;
    const C chosen = is_valid ? load(p[label]) : not_a_number<C>();
    C sum = 0;
    for (int64_t i = Threads::lane(); i < params.classes; i += kLanes) sum += load(p[i]);
    sum = Threads::reduce(sum, Sum());
    if (Threads::lane() == 0) {
      loss[row] = store<T>(is_valid ? clipped_loss(chosen / sum, params) : chosen);
    }
  }
}

// With s = sum(p) and loss = -log(p[label] / s): d loss / d p[i] = 1 / s - [i = label] / p[label].
template <typename T, typename Label, int kLanes>
__global__ void __launch_bounds__(RowThreads<kLanes>::kBlock)
    sparse_cross_entropy_grad(const T* __restrict__ gy, const T* __restrict__ probabilities,
                              const Label* __restrict__ labels, T* gradient,
                              CrossEntropyParams params) {
  begin_kernel();
  using C = compute_t<T>;
  using Threads = RowThreads<kLanes>;
  for (int64_t row = Threads::first_row(); row < params.rows; row += Threads::row_step()) {
    const T* p = probabilities + row * params.classes;
    const int64_t label = static_cast<int64_t>(labels[row]);
    const bool is_valid = label >= 0 && label < params.classes;
    const C chosen = is_valid ? load(p[label]) : not_a_number<C>();
    const C g = load(gy[row]);
    C sum = 0;
    for (int64_t i = Threads::lane(); i < params.classes; i += kLanes) sum += load(p[i]);
    sum = Threads::reduce(sum, Sum());
    C others = g / sum;
    C own = others - g / chosen;
    if (is_clipped(chosen / sum, params)) others = own = 0;
    if (!is_valid) others = own = not_a_number<C>();
    for (int64_t i = Threads::lane(); i < params.classes; i += kLanes) {
      gradient[row * params.classes + i] = store<T>(i == label ? own : others);
    }
  }
}

// With `exact` the loss is the log-softmax itself, not the logarithm of a clipped probability. With
// the loss's gradient `gy` the kernel makes the gradient of the logits too, from the probabilities
// as they are stored.
template <typename T, typename Label, int kLanes>
__global__ void __launch_bounds__(RowThreads<kLanes>::kBlock)
    sparse_softmax_cross_entropy(const T* logits, const Label* __restrict__ labels,
                                 const T* __restrict__ gy, T* __restrict__ loss, T* probabilities,
                                 T* gradient, CrossEntropyParams params, bool exact) {
  begin_kernel();
  using C = compute_t<T>;
  using Threads = RowThreads<kLanes>;
  for (int64_t row = Threads::first_row(); row < params.rows; row += Threads::row_step()) {
    const T* x = logits + row * params.classes;
    const int64_t label = static_cast<int64_t>(labels[row]);
    const bool is_valid = label >= 0 && label < params.classes;
    const C chosen = is_valid ? load(x[label]) : not_a_number<C>();
    C largest = -std::numeric_limits<C>::infinity();
    for (int64_t i = Threads::lane(); i < params.classes; i += kLanes) {
      largest = Largest()(largest, load(x[i]));
    }
    largest = Threads::reduce(largest, Largest());
    C sum = 0;
    for (int64_t i = Threads::lane(); i < params.classes; i += kLanes) {
      sum += element::exp(load(x[i]) - largest);
    }
    sum = Threads::reduce(sum, Sum());
    if (Threads::lane() == 0) {
      const C shifted = chosen - largest;
      C value = chosen;
      if (is_valid) {
        value =
            exact ? element::log(sum) - shifted : clipped_loss(element::exp(shifted) / sum, params);
      }
      loss[row] = store<T>(value);
    }
    if (probabilities == nullptr && gradient == nullptr) continue;
    const C own = load(store<T>(element::exp(chosen - largest) / sum));
    const C g = gradient != nullptr ? load(gy[row]) : C(0);
    for (int64_t i = Threads::lane(); i < params.classes; i += kLanes) {
      const T p = store<T>(element::exp(load(x[i]) - largest) / sum);
      if (probabilities != nullptr) probabilities[row * params.classes + i] = p;
      if (gradient == nullptr) continue;
      const C slope = is_clipped(own, params) ? C(0) : g * (i == label ? load(p) - C(1) : load(p));
      gradient[row * params.classes + i] = store<T>(is_valid ? slope : not_a_number<C>());
    }
  }
}

// Each thread has one element.
template <typename T, typename Label>
__global__ void sparse_softmax_cross_entropy_grad(const T* __restrict__ gy, const T* probabilities,
                                                  const Label* __restrict__ labels, T* gradient,
                                                  CrossEntropyParams params) {
  begin_kernel();
  using C = compute_t<T>;
  const int64_t size = params.rows * params.classes;
  for (int64_t i = first_item(); i < size; i += item_step()) {
    const Division at = divide(i, params.classes);
    const int64_t label = static_cast<int64_t>(labels[at.quotient]);
    C value = not_a_number<C>();
    if (label >= 0 && label < params.classes) {
      const C p = load(probabilities[i]);
      const C own = load(probabilities[at.quotient * params.classes + label]);
      const C g = load(gy[at.quotient]);
      value = is_clipped(own, params) ? C(0) : g * (at.remainder == label ? p - C(1) : p);
    }
    gradient[i] = store<T>(value);
  }
}

CrossEntropyParams make_params(const PlanRequest& request, const Shape& scores) {
  CrossEntropyParams params;
  params.rows = scores[0];
  params.classes = scores[1];
  const double epsilon = request.attributes.get_double("epsilon");
  params.low = epsilon;
  params.high = 1.0 - epsilon;
  return params;
}

// Calls function(Type<T>(), Type<Label>()).
template <typename Function>
std::unique_ptr<Kernel> dispatch(const PlanRequest& request, DType dtype, DType label_dtype,
                                 Function&& function) {
  return dispatch_floating(request.op.name, dtype, [&]<typename T>(Type<T>) {
    return dispatch_label(request.op.name, label_dtype, [&]<typename Label>(Type<Label>) {
      return function(Type<T>(), Type<Label>());
    });
  });
}

template <int kLanes>
unsigned row_grid(const CrossEntropyParams& params) {
  return grid_for(params.rows, RowThreads<kLanes>::kRowsPerBlock);
}

}  // namespace

// probabilities (n, k), labels (n,) -> loss (n,)
std::unique_ptr<Kernel> plan_sparse_cross_entropy(const PlanRequest& request) {
  const CrossEntropyParams params = make_params(request, request.inputs[0].shape);
  return dispatch(
      request, request.inputs[0].dtype, request.inputs[1].dtype,
      [&]<typename T, typename Label>(Type<T>, Type<Label>) {
        return make_early_kernel("kerascnn sparse cross-entropy", [params](const KernelArgs& args) {
          if (params.rows == 0) return;
          const bool is_short = params.classes <= kWarpRowLength;
          const auto kernel =
              is_short ? sparse_cross_entropy<T, Label, 32> : sparse_cross_entropy<T, Label, 256>;
          const unsigned grid = is_short ? row_grid<32>(params) : row_grid<256>(params);
          const int threads = is_short ? RowThreads<32>::kBlock : RowThreads<256>::kBlock;
          kernel<<<grid, threads, 0, static_cast<cudaStream_t>(args.stream)>>>(
              input<T>(args, 0), input<Label>(args, 1), output<T>(args, 0), params);
          check_launch("sparse_cross_entropy");
        });
      });
}

// gy (n,), probabilities (n, k), labels (n,) -> gradient of the probabilities (n, k)
std::unique_ptr<Kernel> plan_sparse_cross_entropy_grad(const PlanRequest& request) {
  const CrossEntropyParams params = make_params(request, request.inputs[1].shape);
  return dispatch(
      request, request.inputs[1].dtype, request.inputs[2].dtype,
      [&]<typename T, typename Label>(Type<T>, Type<Label>) {
        return make_early_kernel("kerascnn sparse cross-entropy", [params](const KernelArgs& args) {
          if (params.rows * params.classes == 0) return;
          const bool is_short = params.classes <= kWarpRowLength;
          const auto kernel = is_short ? sparse_cross_entropy_grad<T, Label, 32>
                                       : sparse_cross_entropy_grad<T, Label, 256>;
          const unsigned grid = is_short ? row_grid<32>(params) : row_grid<256>(params);
          const int threads = is_short ? RowThreads<32>::kBlock : RowThreads<256>::kBlock;
          kernel<<<grid, threads, 0, static_cast<cudaStream_t>(args.stream)>>>(
              input<T>(args, 0), input<T>(args, 1), input<Label>(args, 2), output<T>(args, 0),
              params);
          check_launch("sparse_cross_entropy_grad");
        });
      });
}

// logits (n, k), labels (n,), [gy (n,)] -> loss (n,), probabilities (n, k), [gradient of the
// logits (n, k)]
std::unique_ptr<Kernel> plan_sparse_softmax_cross_entropy(const PlanRequest& request) {
  const CrossEntropyParams params = make_params(request, request.inputs[0].shape);
  const bool exact = request.attributes.get_double("epsilon") == 0.0;
  const bool has_gradient = request.inputs.size() == 3;
  return dispatch(
      request, request.inputs[0].dtype, request.inputs[1].dtype,
      [&]<typename T, typename Label>(Type<T>, Type<Label>) {
        return make_early_kernel(
            "kerascnn sparse softmax cross-entropy",
            [params, exact, has_gradient](const KernelArgs& args) {
              if (params.rows == 0) return;
              const bool is_short = params.classes <= kWarpRowLength;
              const auto kernel = is_short ? sparse_softmax_cross_entropy<T, Label, 32>
                                           : sparse_softmax_cross_entropy<T, Label, 256>;
              const unsigned grid = is_short ? row_grid<32>(params) : row_grid<256>(params);
              const int threads = is_short ? RowThreads<32>::kBlock : RowThreads<256>::kBlock;
              kernel<<<grid, threads, 0, static_cast<cudaStream_t>(args.stream)>>>(
                  input<T>(args, 0), input<Label>(args, 1),
                  has_gradient ? input<T>(args, 2) : nullptr, output<T>(args, 0),
                  output<T>(args, 1), has_gradient ? output<T>(args, 2) : nullptr, params, exact);
              check_launch("sparse_softmax_cross_entropy");
            });
      });
}

// gy (n,), probabilities (n, k), labels (n,) -> gradient of the logits (n, k)
std::unique_ptr<Kernel> plan_sparse_softmax_cross_entropy_grad(const PlanRequest& request) {
  const CrossEntropyParams params = make_params(request, request.inputs[1].shape);
  return dispatch(
      request, request.inputs[1].dtype, request.inputs[2].dtype,
      [&]<typename T, typename Label>(Type<T>, Type<Label>) {
        return make_early_kernel(
            "kerascnn sparse softmax cross-entropy", [params](const KernelArgs& args) {
              const int64_t size = params.rows * params.classes;
              if (size == 0) return;
              sparse_softmax_cross_entropy_grad<T, Label>
                  <<<grid_for(size, 128), 128, 0, static_cast<cudaStream_t>(args.stream)>>>(
                      input<T>(args, 0), input<T>(args, 1), input<Label>(args, 2),
                      output<T>(args, 0), params);
              check_launch("sparse_softmax_cross_entropy_grad");
            });
      });
}

}  // namespace kerascnn::cuda
