// softmax and log_softmax along one axis, and their gradients.
#include <algorithm>
#include <limits>

#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/ops/element_functions.h"
#include "core/ops/geometry.h"

namespace kerascnn::cpu {

namespace {

// Calls body(offset) for the first element of each line along the axis; its elements are `inner`
// apart.
template <typename Body>
void for_each_line(const AxisGeometry& geometry, const Body& body) {
  parallel_each(geometry.outer * geometry.inner, kExpWork * geometry.length, [&](int64_t line) {
    body(line / geometry.inner * geometry.length * geometry.inner + line % geometry.inner);
  });
}

template <bool is_log>
void softmax_row(const float* x, float* y, int64_t length) {
  const FloatKernels& kernels = float_kernels();
  const float largest = kernels.maximum(x, length);
  const float sum = kernels.sum_exp(x, largest, is_log ? nullptr : y, length);
  const float log_sum = element::log(sum);
  for (int64_t i = 0; i < length; ++i) y[i] = is_log ? x[i] - largest - log_sum : y[i] / sum;
}

template <typename T, bool is_log>
void softmax_line(const T* x, T* y, int64_t length, int64_t step) {
  using C = compute_t<T>;
  if constexpr (std::is_same_v<T, float>) {
    if (step == 1) return softmax_row<is_log>(x, y, length);
  }
  if constexpr (is_narrow_float<T>) {
    constexpr int64_t kLongest = 4096;
    if (step == 1 && length <= kLongest) {
      float row[kLongest];
      widen(x, row, length);
      softmax_row<is_log>(row, row, length);
      return narrow(row, y, length);
    }
  }
  C largest = -std::numeric_limits<C>::infinity();
  for (int64_t i = 0; i < length; ++i) largest = std::max(largest, static_cast<C>(x[i * step]));
  C sum = 0;
  for (int64_t i = 0; i < length; ++i) sum += element::exp(static_cast<C>(x[i * step]) - largest);
  const C log_sum = element::log(sum);
  for (int64_t i = 0; i < length; ++i) {
    const C shifted = static_cast<C>(x[i * step]) - largest;
    y[i * step] = static_cast<T>(is_log ? shifted - log_sum : element::exp(shifted) / sum);
  }
}

// softmax: gx = y * (gy - sum(gy * y)); log_softmax: gx = gy - exp(y) * sum(gy).
template <typename T, bool is_log>
void softmax_grad_line(const T* gy, const T* y, T* gx, int64_t length, int64_t step) {
  using C = compute_t<T>;
  C sum = 0;
  for (int64_t i = 0; i < length; ++i) {
    const C g = static_cast<C>(gy[i * step]);
    sum += is_log ? g : g * static_cast<C>(y[i * step]);
  }
  for (int64_t i = 0; i < length; ++i) {
    const C g = static_cast<C>(gy[i * step]);
    const C value = static_cast<C>(y[i * step]);
    gx[i * step] = static_cast<T>(is_log ? g - element::exp(value) * sum : value * (g - sum));
  }
}

AxisGeometry softmax_geometry(const PlanRequest& request) {
  return axis_geometry(request.outputs[0].shape, request.attributes.get_int("axis"));
}

// Rows of up to kMostSoftmaxColumns.
template <bool is_log>
void softmax_rows(const float* x, float* y, int64_t rows, int64_t length) {
  constexpr int64_t kRows = 64;
  float largest[kRows], sums[kRows], probabilities[4 * kMostSoftmaxColumns];
  const int64_t most = is_log ? std::min(kRows, 4 * kMostSoftmaxColumns / length) : kRows;
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t some = std::min(most, rows - first);
    const float* from = x + first * length;
    float* to = y + first * length;
    float_kernels().softmax_rows(from, some, length, is_log ? probabilities : to, largest, sums);
    if constexpr (is_log) {
      for (int64_t row = 0; row < some; ++row) sums[row] = element::log(sums[row]);
      for (int64_t row = 0; row < some; ++row) {
        for (int64_t j = 0; j < length; ++j) {
          to[row * length + j] = from[row * length + j] - largest[row] - sums[row];
        }
      }
    }
  }
}

template <bool is_log>
std::unique_ptr<Kernel> plan_forward(const PlanRequest& request) {
  const AxisGeometry geometry = softmax_geometry(request);
  const bool is_float = request.inputs[0].dtype == DType::Float32;
  if (is_float && geometry.inner == 1 && geometry.length > 0 &&
      geometry.length <= kMostSoftmaxColumns) {
    return make_kernel("kerascnn softmax", [geometry](const KernelArgs& args) {
      const int64_t length = geometry.length;
      parallel_for(geometry.outer, grain_of(kExpWork * length), [&](int64_t begin, int64_t end) {
        softmax_rows<is_log>(input<float>(args, 0) + begin * length,
                             output<float>(args, 0) + begin * length, end - begin, length);
      });
    });
  }
  return dispatch_floating(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_kernel("kerascnn softmax", [geometry](const KernelArgs& args) {
      for_each_line(geometry, [&](int64_t at) {
        softmax_line<T, is_log>(input<T>(args, 0) + at, output<T>(args, 0) + at, geometry.length,
                                geometry.inner);
      });
    });
  });
}

template <bool is_log>
std::unique_ptr<Kernel> plan_grad(const PlanRequest& request) {
  const AxisGeometry geometry = softmax_geometry(request);
  return dispatch_floating(request, request.inputs[0].dtype, [&]<typename T>(Type<T>) {
    return make_kernel("kerascnn softmax gradient", [geometry](const KernelArgs& args) {
      for_each_line(geometry, [&](int64_t at) {
        softmax_grad_line<T, is_log>(input<T>(args, 0) + at, input<T>(args, 1) + at,
                                     output<T>(args, 0) + at, geometry.length, geometry.inner);
      });
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
  return plan_grad<false>(request);
}
std::unique_ptr<Kernel> plan_log_softmax_grad(const PlanRequest& request) {
  return plan_grad<true>(request);
}

}  // namespace kerascnn::cpu
