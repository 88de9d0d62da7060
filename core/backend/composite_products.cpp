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

// The layer, of `x`, and its loss.
void add_layer_and_loss(CompositePlan& plan, const PlanRequest& request, const DenseLossInputs& at,
                        const CompositePart& x) {
  std::vector<CompositePart> layer = {x};
  for (size_t i = at.kernel; i < at.labels; ++i) layer.push_back(plan.input(i));
  const CompositePart logits = plan.apply("dense", dense_loss_layer(), layer);
  plan.apply_into(
      "sparse_softmax_cross_entropy", {{"epsilon", request.attributes.get_double("epsilon")}},
      {logits, plan.input(at.labels), plan.input(at.gradient)},
      {plan.output(DenseLossOutputs::loss), plan.output(DenseLossOutputs::probabilities),
       plan.output(DenseLossOutputs::gradient)});
}

std::unique_ptr<Kernel> plan_dense_loss(CompositePlan plan, const PlanRequest& request) {
  const DenseLossInputs at(request.inputs.size());
  add_layer_and_loss(plan, request, at, plan.input(at.x));
  return plan.finish();
}

std::unique_ptr<Kernel> plan_dense_loss_dgrad(CompositePlan plan, const PlanRequest& request) {
  const Attributes& attributes = request.attributes;
  const bool drops = has_dropout(attributes);
  const DenseLossInputs at(request.inputs.size(), drops);
  const CompositePart x = plan.input(at.x), dx = plan.output(DenseLossOutputs::dx);
  const ActivationCall activation = fused_activation(request.op.name, attributes);
  const bool is_linear = activation.kind == Activation::Linear;

  if (drops) {
    const std::vector<CompositePart> dropped = {x, plan.input(at.state)};
    const Attributes dropout = dropout_attributes(attributes);
    add_layer_and_loss(plan, request, at, plan.apply("dropout", dropout, dropped));
    plan.apply_into("dropout", dropout, dropped, {plan.output(DenseLossOutputs::dropped)});
  } else {
    add_layer_and_loss(plan, request, at, x);
  }
  // Each of what follows goes to dx if it is the last, else to the next.
  const auto add = [&](std::string_view op, const Attributes& call,
                       const std::vector<CompositePart>& inputs, bool is_last) {
    if (!is_last) return plan.apply(op, call, inputs);
    plan.apply_into(op, call, inputs, {dx});
    return dx;
  };
  CompositePart g =
      add("matmul", {{"transpose_a", false}, {"transpose_b", true}},
          {plan.output(DenseLossOutputs::gradient), plan.input(at.kernel)}, is_linear && !drops);
  if (drops) {
    g = add("dropout", dropout_attributes(attributes), {g, plan.input(at.state)}, is_linear);
  }
  if (!is_linear) {
    plan.apply_into(std::string(activation_name(activation.kind)) + "_grad",
                    activation_attributes(activation), {g, x}, {dx});
  }
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
  const std::string_view op = request.op.name;
  if (op == "dense_wgrad") return plan_dense_wgrad(plan);
  if (op == "dense_sparse_softmax_cross_entropy") return plan_dense_loss(plan, request);
  if (op == "dense_sparse_softmax_cross_entropy_dgrad") return plan_dense_loss_dgrad(plan, request);
  return plan_activation_grad(plan, request);
}

}  // namespace kerascnn
