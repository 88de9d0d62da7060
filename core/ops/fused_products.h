// The ops that passes make of a product and what follows it or stands beside it:
//   matmul_activation_grad              op(a) op(b) taken back through an activation whose output
//                                       is the third input
//   dense_sparse_softmax_cross_entropy  the last layer of a classifier, its loss, the
//                                       probabilities and the gradient of the logits
//   dense_wgrad                         the gradients of a dense layer's kernel and bias: of x (n,
//                                       k) and g (n, m) the product of x transposed and g (k, m),
//                                       and the sums of g's columns (m,)
#pragma once

#include <cstddef>

#include "core/base/attributes.h"

namespace kerascnn {

// Where dense_sparse_softmax_cross_entropy has its inputs: x (n, k), kernel (k, classes), a bias
// (classes,) or none, labels (n,), the gradient of the loss (n,).
struct DenseLossInputs {
  static constexpr size_t x = 0;
  static constexpr size_t kernel = 1;
  bool has_bias;
  size_t labels;
  size_t gradient;

  explicit DenseLossInputs(size_t count)
      : has_bias(count == 5), labels(has_bias ? 3 : 2), gradient(labels + 1) {}
};

// The attributes of its dense layer.
Attributes dense_loss_layer();

}  // namespace kerascnn
