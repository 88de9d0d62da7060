#include "core/backend/composite_products.h"

#include <string>

#include "core/backend/composite_kernel.h"
#include "core/ops/activation_kind.h"
#include "core/ops/fused_products.h"

namespace kerascnn {
namespace {

std::unique_ptr<Kernel> plan_activation_grad(CompositePlan plan, const PlanRequest& request) {
  const Attributes product = {{"transpose_a", request.attributes.get_bool("transpose_a")},
                              {"transpose_b", request.attributes.get_bool("transpose_b")}};
  const ActivationCall activation = fused_activation(request.op.name, request.attributes);
  if (activation.kind == Activation::Linear) {
    plan.apply_into("matmul", product, {plan.input(0), plan.input(1)}, {plan.output(0)});
  } else {
    const CompositePart g = plan.apply("matmul", product, {plan.input(0), plan.input(1)});
    plan.apply_into(std::string(activation_name(activation.kind)) + "_grad",
                    activation_attributes(activation), {g, plan.input(2)}, {plan.output(0)});
  }
  return plan.finish();
}

std::unique_ptr<Kernel> plan_dense_loss(CompositePlan plan, const PlanRequest& request) {
  const DenseLossInputs at(request.inputs.size());
  std::vector<CompositePart> layer;
  for (size_t i = 0; i < at.labels; ++i) layer.push_back(plan.input(i));
  const CompositePart logits = plan.apply("dense", dense_loss_layer(), layer);
  plan.apply_into("sparse_softmax_cross_entropy", request.attributes,
                  {logits, plan.input(at.labels), plan.input(at.gradient)},
                  {plan.output(0), plan.output(1), plan.output(2)});
  return plan.finish();
}

std::unique_ptr<Kernel> plan_dense_wgrad(CompositePlan plan) {
  plan.apply_into("matmul", {{"transpose_a", true}, {"transpose_b", false}},
                  {plan.input(0), plan.input(1)}, {plan.output(0)});
  plan.apply_into("reduce_sum", {{"axes", std::vector<int64_t>{0}}, {"keepdims", false}},
                  {plan.input(1)}, {plan.output(1)});
  return plan.finish();
}

}  // namespace

std::unique_ptr<Kernel> plan_composite_product(std::span<const KernelTableRow> table,
                                               const PlanRequest& request) {
  const CompositePlan plan(table, request);
  if (request.op.name == "dense_wgrad") return plan_dense_wgrad(plan);
  const bool is_loss = request.op.name == "dense_sparse_softmax_cross_entropy";
  return is_loss ? plan_dense_loss(plan, request) : plan_activation_grad(plan, request);
}

}  // namespace kerascnn
