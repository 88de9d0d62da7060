// The ops that passes make of a product and what follows it or stands beside it:
//   matmul_activation_grad              op(a) op(b) taken back through an activation whose output
//                                       is the third input
//   dense_sparse_softmax_cross_entropy  the last layer of a classifier, its loss, the
//                                       probabilities and the gradient of the logits
//   dense_sparse_softmax_cross_entropy_dgrad
//                                       the same, then the gradient of what the layer was given,
//                                       taken back through a dropout before the layer and through
//                                       an activation before that; with dropout also its result
//   dense_wgrad                         the gradients of a dense layer's kernel and bias: of x (n,
//                                       k) and g (n, m) the product of x transposed and g (k, m),
//                                       and the sums of g's columns (m,)
#pragma once

#include <cstddef>

#include "core/base/attributes.h"

namespace kerascnn {

// Where dense_sparse_softmax_cross_entropy has its inputs: x (n, k), kernel (k, classes), a bias
// (classes,) or none, labels (n,), the gradient of the loss (n,). In
// dense_sparse_softmax_cross_entropy_dgrad x is what the dropout is given, if there is one, and the
// random state (2,) comes last.
struct DenseLossInputs {
  static constexpr size_t x = 0;
  static constexpr size_t kernel = 1;
  bool has_bias;
  size_t labels;
  size_t gradient;
  size_t state;  // only with dropout

  explicit DenseLossInputs(size_t count, bool has_dropout = false)
      : has_bias(count == (has_dropout ? 6 : 5)),
        labels(has_bias ? 3 : 2),
        gradient(labels + 1),
        state(gradient + 1) {}
};

// Where dense_sparse_softmax_cross_entropy_dgrad has its outputs. The last one, only with dropout,
// may be left out.
struct DenseLossOutputs {
  static constexpr size_t loss = 0;
  static constexpr size_t probabilities = 1;
  static constexpr size_t gradient = 2;  // of the logits
  static constexpr size_t dx = 3;
  static constexpr size_t dropped = 4;  // what the layer is given
};

// Does a call of it drop elements? It then has dropout's attributes, "rate" and "stream".
bool has_dropout(const Attributes& attributes);
Attributes dropout_attributes(const Attributes& attributes);

// The attributes of its dense layer.
Attributes dense_loss_layer();

}  // namespace kerascnn
