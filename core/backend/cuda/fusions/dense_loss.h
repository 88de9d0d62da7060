// What the fusions of a classifier's last layer with its loss read of a match.
#pragma once

#include "core/backend/cuda/products/cublaslt_gemm.h"
#include "core/graph/fusion.h"

namespace kerascnn::cuda {

// Where the kernel's arguments are: x (n, k) or what a reshape makes (n, k) of, kernel (k,
// classes), a bias (classes,) or none, labels (n,), the gradient of the loss (n,) and, with a
// dropout, the random state (2,).
struct DenseLossArguments {
  explicit DenseLossArguments(const Match& match)
      : has_bias(match.has("bias")),
        drops(match.has("state")),
        x(match.input("x")),
        kernel(match.input("kernel")),
        bias(has_bias ? match.input("bias") : 0),
        labels(match.input("labels")),
        gradient(match.input("gradient_of_loss")),
        state(drops ? match.input("state") : 0) {}

  bool has_bias, drops;
  size_t x, kernel, bias, labels, gradient, state;
};

// Of samples (m), features (k) and classes (n).
inline GemmShape dense_loss_layer(const Match& match) {
  GemmShape shape;
  shape.m = match.spec("labels").shape[0];
  shape.k = match.spec("kernel").shape[0];
  shape.n = match.spec("kernel").shape[1];
  return shape;
}

inline double dense_loss_epsilon(const Match& match) {
  return match.node("loss").attributes.get_double("epsilon");
}

}  // namespace kerascnn::cuda
