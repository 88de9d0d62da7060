// These kernels compute sparse cross-entropy from probabilities and from logits, and the gradients.
// A label outside [0, classes) makes its row's loss NaN and its gradient NaN.
#include <algorithm>
#include <iterator>
#include <limits>
#include <span>

#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/ops/element_functions.h"

namespace kerascnn::cpu {

namespace {

struct Row {
  int64_t index;
  int64_t classes;
  int64_t label;
  double epsilon;

  bool has_label() const { return label >= 0 && label < classes; }
  // The first element of the row in a matrix.
  template <typename T>
  T* of(T* matrix) const {
    return matrix + index * classes;
  }
};

template <typename T>
void fill_nan(T* values, int64_t count) {
  std::fill(values, values + count, static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
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
void loss_row(const Row& row, const T* probabilities, T* loss) {
  using C = compute_t<T>;
  if (!row.has_label()) return fill_nan(loss, 1);
  const C p = static_cast<C>(probabilities[row.label]) / row_sum(probabilities, row.classes);
  *loss = static_cast<T>(clipped_loss(p, row.epsilon));
}

// With s the row's sum and l the label: d(-log(x_l / s)) / dx_j = 1/s - [j = l] / x_l.
template <typename T>
void loss_grad_row(const Row& row, compute_t<T> gy, const T* probabilities, T* gx) {
  using C = compute_t<T>;
  if (!row.has_label()) return fill_nan(gx, row.classes);
  const C sum = row_sum(probabilities, row.classes);
  const C x = static_cast<C>(probabilities[row.label]);
  if (is_clipped(x / sum, row.epsilon)) {
    std::fill(gx, gx + row.classes, static_cast<T>(0));
    return;
  }
  std::fill(gx, gx + row.classes, static_cast<T>(gy / sum));
  gx[row.label] = static_cast<T>(gy / sum - gy / x);
}

// `shifted` is the label's logit without the largest one, `sum` that of exp(logits - largest).
template <typename C>
C softmax_loss(const Row& row, C shifted, C sum) {
  return row.epsilon == 0 ? element::log(sum) - shifted
                          : clipped_loss(element::exp(shifted) / sum, row.epsilon);
}

template <typename T>
void softmax_loss_row(const Row& row, const T* logits, T* loss, T* probabilities) {
  using C = compute_t<T>;
  C largest = -std::numeric_limits<C>::infinity();
  if constexpr (std::is_same_v<T, float>) {
    largest = float_kernels().maximum(logits, row.classes);
  } else {
    for (int64_t i = 0; i < row.classes; ++i) {
      largest = std::max(largest, static_cast<C>(logits[i]));
    }
  }
  C sum = 0;
  // This is read now, because the probabilities may be written over the logits.
  const C shifted = row.has_label() ? static_cast<C>(logits[row.label]) - largest : C(0);
  if constexpr (std::is_same_v<T, float>) {
    sum = float_kernels().sum_exp(logits, largest, probabilities, row.classes);
    for (int64_t i = 0; i < row.classes; ++i) probabilities[i] /= sum;
  } else if constexpr (std::is_same_v<T, C>) {
    for (int64_t i = 0; i < row.classes; ++i) {
      probabilities[i] = element::exp(logits[i] - largest);
      sum += probabilities[i];
    }
    for (int64_t i = 0; i < row.classes; ++i) probabilities[i] /= sum;
  } else {
    for (int64_t i = 0; i < row.classes; ++i)
      sum += element::exp(static_cast<C>(logits[i]) - largest);
    for (int64_t i = 0; i < row.classes; ++i) {
      probabilities[i] = static_cast<T>(element::exp(static_cast<C>(logits[i]) - largest) / sum);
    }
  }
  if (!row.has_label()) return fill_nan(loss, 1);
  *loss = static_cast<T>(softmax_loss(row, shifted, sum));
}

template <typename T>
void softmax_loss_grad_row(const Row& row, compute_t<T> gy, const T* probabilities, T* gx) {
  using C = compute_t<T>;
  if (!row.has_label()) return fill_nan(gx, row.classes);
  if (row.epsilon > 0 && is_clipped(static_cast<C>(probabilities[row.label]), row.epsilon)) {
    std::fill(gx, gx + row.classes, static_cast<T>(0));
    return;
  }
  for (int64_t i = 0; i < row.classes; ++i) {
    gx[i] =
        static_cast<T>(gy * (static_cast<C>(probabilities[i]) - (i == row.label ? C(1) : C(0))));
  }
}

// A kernel that calls run(Type<T>(), args, row) for each row of the scores, an input in front of
// the labels.
template <typename Run>
std::unique_ptr<Kernel> plan_rows(const PlanRequest& request, const char* description,
                                  size_t scores, const Run& run) {
  const TensorSpec& spec = request.inputs[scores];
  const size_t labels = scores + 1;
  const int64_t count = spec.shape[0], classes = spec.shape[1];
  const double epsilon = request.attributes.get_double("epsilon");
  const IntegerReader label_of = integer_reader(request, request.inputs[labels].dtype);
  return dispatch_floating(request, spec.dtype, [&]<typename T>(Type<T> type) {
    return make_kernel(description, [=](const KernelArgs& args) {
      parallel_each(count, kExpWork * classes, [&](int64_t index) {
        run(type, args, Row{index, classes, label_of(args.inputs[labels], index), epsilon});
      });
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_sparse_cross_entropy(const PlanRequest& request) {
  return plan_rows(request, "kerascnn cross-entropy", 0,
                   []<typename T>(Type<T>, const KernelArgs& args, const Row& row) {
                     loss_row(row, row.of(input<T>(args, 0)), output<T>(args, 0) + row.index);
                   });
}

std::unique_ptr<Kernel> plan_sparse_cross_entropy_grad(const PlanRequest& request) {
  return plan_rows(request, "kerascnn cross-entropy gradient", 1,
                   []<typename T>(Type<T>, const KernelArgs& args, const Row& row) {
                     loss_grad_row(row, static_cast<compute_t<T>>(input<T>(args, 0)[row.index]),
                                   row.of(input<T>(args, 1)), row.of(output<T>(args, 0)));
                   });
}

namespace {

// Up to this many rows are computed together.
constexpr int64_t kRowsTogether = 64;

// As softmax_loss_row() and softmax_loss_grad_row() for each row; `weights` are null without the
// gradient.
void softmax_losses(std::span<const Row> rows, const float* logits, float* losses,
                    float* probabilities, const float* weights, float* gradients) {
  const int64_t first = rows[0].index, count = std::ssize(rows), classes = rows[0].classes;
  float of_label[kRowsTogether], largest[kRowsTogether], sums[kRowsTogether];
  // These are read now, because the probabilities may be written over the logits.
  for (int64_t i = 0; i < count; ++i) {
    const Row& row = rows[static_cast<size_t>(i)];
    of_label[i] = row.has_label() ? row.of(logits)[row.label] : 0.0f;
  }
  float_kernels().softmax_rows(logits + first * classes, count, classes,
                               probabilities + first * classes, largest, sums);
  for (int64_t i = 0; i < count; ++i) {
    const Row& row = rows[static_cast<size_t>(i)];
    float* loss = losses + row.index;
    if (row.has_label()) {
      *loss = softmax_loss(row, of_label[i] - largest[i], sums[i]);
    } else {
      fill_nan(loss, 1);
    }
    if (weights == nullptr) continue;
    softmax_loss_grad_row(row, weights[row.index], row.of(probabilities), row.of(gradients));
  }
}

std::unique_ptr<Kernel> make_softmax_losses(const PlanRequest& request) {
  const TensorSpec& spec = request.inputs[0];
  const int64_t count = spec.shape[0], classes = spec.shape[1];
  const bool has_gradient = request.inputs.size() == 3;
  const double epsilon = request.attributes.get_double("epsilon");
  const IntegerReader label_of = integer_reader(request, request.inputs[1].dtype);
  return make_kernel("kerascnn softmax cross-entropy", [=](const KernelArgs& args) {
    parallel_for(count, grain_of(kExpWork * classes), [&](int64_t begin, int64_t end) {
      Row rows[kRowsTogether];
      for (int64_t first = begin; first < end; first += kRowsTogether) {
        const int64_t some = std::min(kRowsTogether, end - first);
        for (int64_t i = 0; i < some; ++i) {
          rows[i] = {first + i, classes, label_of(args.inputs[1], first + i), epsilon};
        }
        softmax_losses({rows, static_cast<size_t>(some)}, input<float>(args, 0),
                       output<float>(args, 0), output<float>(args, 1),
                       has_gradient ? input<float>(args, 2) : nullptr,
                       has_gradient ? output<float>(args, 2) : nullptr);
      }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> plan_sparse_softmax_cross_entropy(const PlanRequest& request) {
  const TensorSpec& scores = request.inputs[0];
  if (scores.dtype == DType::Float32 && scores.shape[1] > 0 &&
      scores.shape[1] <= kMostSoftmaxColumns) {
    return make_softmax_losses(request);
  }
  const bool has_gradient = request.inputs.size() == 3;
  return plan_rows(request, "kerascnn softmax cross-entropy", 0,
                   [has_gradient]<typename T>(Type<T>, const KernelArgs& args, const Row& row) {
                     T* probabilities = row.of(output<T>(args, 1));
                     softmax_loss_row(row, row.of(input<T>(args, 0)),
                                      output<T>(args, 0) + row.index, probabilities);
                     if (!has_gradient) return;
                     softmax_loss_grad_row(row,
                                           static_cast<compute_t<T>>(input<T>(args, 2)[row.index]),
                                           probabilities, row.of(output<T>(args, 2)));
                   });
}

std::unique_ptr<Kernel> plan_sparse_softmax_cross_entropy_grad(const PlanRequest& request) {
  return plan_rows(request, "kerascnn softmax cross-entropy gradient", 1,
                   []<typename T>(Type<T>, const KernelArgs& args, const Row& row) {
                     softmax_loss_grad_row(row,
                                           static_cast<compute_t<T>>(input<T>(args, 0)[row.index]),
                                           row.of(input<T>(args, 1)), row.of(output<T>(args, 0)));
                   });
}

}  // namespace kerascnn::cpu
