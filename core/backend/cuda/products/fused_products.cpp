// Products and what belongs to them in one launch, where they are small; else the ops they stand
// for.
#include "core/ops/fused_products.h"
#include "core/backend/composite_products.h"
#include "core/backend/cuda/kernel_table.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/products/dense_loss.h"
#include "core/backend/cuda/products/small_matmul.h"
#include "core/ops/definitions.h"

namespace kerascnn::cuda {
namespace {

GemmShape product_shape(const PlanRequest& request) {
  GemmShape shape;
  shape.transpose_a = request.attributes.get_bool("transpose_a");
  shape.transpose_b = request.attributes.get_bool("transpose_b");
  shape.m = request.outputs[0].shape[0];
  shape.n = request.outputs[0].shape[1];
  shape.k = request.inputs[0].shape[shape.transpose_a ? 0 : 1];
  return shape;
}

GemmShape layer_shape(const PlanRequest& request) {
  GemmShape shape;
  shape.m = request.inputs[DenseLossInputs::x].shape[0];
  shape.k = request.inputs[DenseLossInputs::x].shape[1];
  shape.n = request.inputs[DenseLossInputs::kernel].shape[1];
  return shape;
}

GemmShape wgrad_shape(const PlanRequest& request) {
  GemmShape shape;
  shape.transpose_a = true;
  shape.m = request.outputs[0].shape[0];
  shape.n = request.outputs[0].shape[1];
  shape.k = request.inputs[0].shape[0];
  return shape;
}

}  // namespace

bool fuses_product(const PlanRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  if (&request.op == &op_matmul_activation_grad) {
    return takes_small_matmul_activation_grad(dtype, product_shape(request), request.allow_tf32);
  }
  if (&request.op == &op_dense_wgrad) {
    return takes_small_dense_wgrad(dtype, wgrad_shape(request), request.allow_tf32);
  }
  if (&request.op == &op_dense_sparse_softmax_cross_entropy_dgrad) {
    return takes_dense_loss_dgrad(request);
  }
  return &request.op == &op_dense_sparse_softmax_cross_entropy &&
         takes_small_dense_loss(dtype, layer_shape(request), request.allow_tf32);
}

std::unique_ptr<Kernel> plan_matmul_activation_grad(const PlanRequest& request) {
  if (!fuses_product(request)) return plan_composite_product(kernel_table(), request);
  return plan_small_matmul_activation_grad(std::string(request.op.name), product_shape(request),
                                           fused_activation(request.op.name, request.attributes));
}

std::unique_ptr<Kernel> plan_dense_sparse_softmax_cross_entropy(const PlanRequest& request) {
  if (!fuses_product(request)) return plan_composite_product(kernel_table(), request);
  const DenseLossInputs at(request.inputs.size());
  return plan_small_dense_loss(std::string(request.op.name), layer_shape(request),
                               request.inputs[at.labels].dtype, at,
                               request.attributes.get_double("epsilon"));
}

std::unique_ptr<Kernel> plan_dense_sparse_softmax_cross_entropy_dgrad(const PlanRequest& request) {
  if (!fuses_product(request)) return plan_composite_product(kernel_table(), request);
  return plan_small_dense_loss_dgrad(request);
}

std::unique_ptr<Kernel> plan_dense_wgrad(const PlanRequest& request) {
  if (!fuses_product(request)) return plan_composite_product(kernel_table(), request);
  return plan_small_dense_wgrad(std::string(request.op.name), wgrad_shape(request));
}

}  // namespace kerascnn::cuda
