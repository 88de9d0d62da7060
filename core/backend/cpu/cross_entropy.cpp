// Sparse cross-entropy from probabilities and from logits, and the gradients. A label outside [0,
// classes) makes its row's loss NaN and its gradient NaN.
#include <limits>

#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/ops/element_functions.h"

namespace kerascnn::cpu {

namespace {

struct Rows {
  int64_t count;
  int64_t classes;
  double epsilon;
};

Rows rows_of(const PlanRequest& request, const TensorSpec& matrix) {
  return {matrix.shape[0], matrix.shape[1], request.attributes.get_double("epsilon")};
}

template <typename Body>
void for_each_row(const Rows& rows, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, 2048 / std::max<int64_t>(1, rows.classes));
  parallel_for(rows.count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

template <typename C>
bool is_clipped(C p, double epsilon) {
  return p < static_cast<C>(epsilon) || p > static_cast<C>(1 - epsilon);
}

template <typename C>
C clipped_loss(C p, double epsilon) {
  const C low = static_cast<C>(epsilon);
  const C high = static_cast<C>(1 - epsilon);
  return -element::log(p < low ? low : (p > high ? high : p));
}

template <typename T>
compute_t<T> row_sum(const T* x, int64_t count) {
  compute_t<T> sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<compute_t<T>>(x[i]);
  return sum;
}

template <typename T>
void loss_row(const T* probabilities, int64_t label, const Rows& rows, T* loss) {
  using C = compute_t<T>;
  if (label < 0 || label >= rows.classes) {
    *loss = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const C p = static_cast<C>(probabilities[label]) / row_sum(probabilities, rows.classes);
  *loss = static_cast<T>(clipped_loss(p, rows.epsilon));
}

// With s the row's sum and l the label: d(-log(x_l / s)) / dx_j = 1/s - [j = l] / x_l.
template <typename T>
void loss_grad_row(compute_t<T> gy, const T* probabilities, int64_t label, const Rows& rows,
                   T* gx) {
  using C = compute_t<T>;
  if (label < 0 || label >= rows.classes) {
    std::fill(gx, gx + rows.classes, static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
    return;
  }
  const C sum = row_sum(probabilities, rows.classes);
  const C x = static_cast<C>(probabilities[label]);
  if (is_clipped(x / sum, rows.epsilon)) {
    std::fill(gx, gx + rows.classes, static_cast<T>(0));
    return;
  }
  std::fill(gx, gx + rows.classes, static_cast<T>(gy / sum));
  gx[label] = static_cast<T>(gy / sum - gy / x);
}

template <typename T>
void softmax_loss_row(const T* logits, int64_t label, const Rows& rows, T* loss, T* probabilities) {
  using C = compute_t<T>;
  C largest = -std::numeric_limits<C>::infinity();
  if constexpr (std::is_same_v<T, float>) {
    largest = float_kernels().maximum(logits, rows.classes);
  } else {
    for (int64_t i = 0; i < rows.classes; ++i) {
      largest = std::max(largest, static_cast<C>(logits[i]));
    }
  }
  C sum = 0;
  const bool has_label = label >= 0 && label < rows.classes;
  // This is read now, because the probabilities may be written over the logits.
  const C shifted = has_label ? static_cast<C>(logits[label]) - largest : C(0);
  if constexpr (std::is_same_v<T, float>) {
    sum = float_kernels().sum_exp(logits, largest, probabilities, rows.classes);
    for (int64_t i = 0; i < rows.classes; ++i) probabilities[i] /= sum;
  } else if constexpr (std::is_same_v<T, C>) {
    for (int64_t i = 0; i < rows.classes; ++i) {
      probabilities[i] = element::exp(logits[i] - largest);
      sum += probabilities[i];
    }
    for (int64_t i = 0; i < rows.classes; ++i) probabilities[i] /= sum;
  } else {
    for (int64_t i = 0; i < rows.classes; ++i)
      sum += element::exp(static_cast<C>(logits[i]) - largest);
    for (int64_t i = 0; i < rows.classes; ++i) {
      probabilities[i] = static_cast<T>(element::exp(static_cast<C>(logits[i]) - largest) / sum);
    }
  }
  if (!has_label) {
    *loss = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
    return;
  }
  *loss =
      static_cast<T>(rows.epsilon == 0 ? element::log(sum) - shifted
                                       : clipped_loss(element::exp(shifted) / sum, rows.epsilon));
}

template <typename T>
void softmax_loss_grad_row(compute_t<T> gy, const T* probabilities, int64_t label, const Rows& rows,
                           T* gx) {
  using C = compute_t<T>;
  if (label < 0 || label >= rows.classes) {
    std::fill(gx, gx + rows.classes, static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
    return;
  }
  if (rows.epsilon > 0 && is_clipped(static_cast<C>(probabilities[label]), rows.epsilon)) {
    std::fill(gx, gx + rows.classes, static_cast<T>(0));
    return;
  }
  for (int64_t i = 0; i < rows.classes; ++i) {
    gx[i] = static_cast<T>(gy * (static_cast<C>(probabilities[i]) - (i == label ? C(1) : C(0))));
  }
}

// Dispatches on both the floating type of `values` and the integer type of `labels`.
template <typename Function>
std::unique_ptr<Kernel> dispatch_loss(const PlanRequest& request, DType values, DType labels,
                                      const Function& function) {
  return dispatch_floating(request, values, [&]<typename T>(Type<T> type) {
    return dispatch_integer(request, labels, [&]<typename Label>(Type<Label> label_type) {
      return function(type, label_type);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_sparse_cross_entropy(const PlanRequest& request) {
  const Rows rows = rows_of(request, request.inputs[0]);
  return dispatch_loss(request, request.inputs[0].dtype, request.inputs[1].dtype,
                       [&]<typename T, typename Label>(Type<T>, Type<Label>) {
                         return make_kernel(
                             "kerascnn cross-entropy", [rows](const KernelArgs& args) {
                               for_each_row(rows, [&](int64_t row) {
                                 loss_row(input<T>(args, 0) + row * rows.classes,
                                          static_cast<int64_t>(input<Label>(args, 1)[row]), rows,
                                          output<T>(args, 0) + row);
                               });
                             });
                       });
}

std::unique_ptr<Kernel> plan_sparse_cross_entropy_grad(const PlanRequest& request) {
  const Rows rows = rows_of(request, request.inputs[1]);
  return dispatch_loss(request, request.inputs[1].dtype, request.inputs[2].dtype,
                       [&]<typename T, typename Label>(Type<T>, Type<Label>) {
                         return make_kernel(
                             "kerascnn cross-entropy gradient", [rows](const KernelArgs& args) {
                               for_each_row(rows, [&](int64_t row) {
                                 loss_grad_row(static_cast<compute_t<T>>(input<T>(args, 0)[row]),
                                               input<T>(args, 1) + row * rows.classes,
                                               static_cast<int64_t>(input<Label>(args, 2)[row]),
                                               rows, output<T>(args, 0) + row * rows.classes);
                               });
                             });
                       });
}

std::unique_ptr<Kernel> plan_sparse_softmax_cross_entropy(const PlanRequest& request) {
  const Rows rows = rows_of(request, request.inputs[0]);
  const bool has_gradient = request.inputs.size() == 3;
  return dispatch_loss(
      request, request.inputs[0].dtype, request.inputs[1].dtype,
      [&]<typename T, typename Label>(Type<T>, Type<Label>) {
        return make_kernel("kerascnn softmax cross-entropy", [rows, has_gradient](
                                                                 const KernelArgs& args) {
          for_each_row(rows, [&](int64_t row) {
            const auto label = static_cast<int64_t>(input<Label>(args, 1)[row]);
            T* probabilities = output<T>(args, 1) + row * rows.classes;
            softmax_loss_row(input<T>(args, 0) + row * rows.classes, label, rows,
                             output<T>(args, 0) + row, probabilities);
            if (!has_gradient) return;
            softmax_loss_grad_row(static_cast<compute_t<T>>(input<T>(args, 2)[row]), probabilities,
                                  label, rows, output<T>(args, 2) + row * rows.classes);
          });
        });
      });
}

std::unique_ptr<Kernel> plan_sparse_softmax_cross_entropy_grad(const PlanRequest& request) {
  const Rows rows = rows_of(request, request.inputs[1]);
  return dispatch_loss(
      request, request.inputs[1].dtype, request.inputs[2].dtype,
      [&]<typename T, typename Label>(Type<T>, Type<Label>) {
        return make_kernel(
            "kerascnn softmax cross-entropy gradient", [rows](const KernelArgs& args) {
              for_each_row(rows, [&](int64_t row) {
                softmax_loss_grad_row(static_cast<compute_t<T>>(input<T>(args, 0)[row]),
                                      input<T>(args, 1) + row * rows.classes,
                                      static_cast<int64_t>(input<Label>(args, 2)[row]), rows,
                                      output<T>(args, 0) + row * rows.classes);
              });
            });
      });
}

}  // namespace kerascnn::cpu
