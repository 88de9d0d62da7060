// Products and what belongs to them in one launch, where they are small.
#include "core/backend/cuda/fusions/dense_loss.h"
#include "core/backend/cuda/fusions/fusions.h"
#include "core/backend/cuda/products/small_matmul.h"

namespace kerascnn::cuda {

std::unique_ptr<Kernel> plan_fused_matmul_activation_grad(const Match& match) {
  const Attributes& product = match.node("product").attributes;
  const Shape& y = match.spec("y").shape;
  GemmShape shape;
  shape.transpose_a = product.get_bool("transpose_a");
  shape.transpose_b = product.get_bool("transpose_b");
  shape.m = y[0];
  shape.n = y[1];
  shape.k = match.spec("a").shape[shape.transpose_a ? 0 : 1];
  const DType dtype = match.spec("a").dtype;
  if (!takes_small_matmul_activation_grad(dtype, shape, match.allow_tf32())) return nullptr;
  return plan_small_matmul_activation_grad("matmul_activation_grad", shape,
                                           *undone_activation(match.node("activation")));
}

std::unique_ptr<Kernel> plan_fused_dense_wgrad(const Match& match) {
  const Shape& x = match.spec("x").shape;
  GemmShape shape;
  shape.transpose_a = true;
  shape.m = x[1];
  shape.n = match.spec("g").shape[1];
  shape.k = x[0];
  if (!takes_small_dense_wgrad(match.spec("x").dtype, shape, match.allow_tf32())) return nullptr;
  return plan_small_dense_wgrad("dense_wgrad", shape);
}

std::unique_ptr<Kernel> plan_fused_dense_sparse_softmax_cross_entropy(const Match& match) {
  const GemmShape layer = dense_loss_layer(match);
  if (!takes_small_dense_loss(match.spec("x").dtype, layer, match.allow_tf32())) return nullptr;
  return plan_small_dense_loss("dense_sparse_softmax_cross_entropy", layer,
                               match.spec("labels").dtype, DenseLossArguments(match),
                               dense_loss_epsilon(match));
}

}  // namespace kerascnn::cuda
