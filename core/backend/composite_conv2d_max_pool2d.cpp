#include "core/backend/composite_conv2d_max_pool2d.h"

#include <string>

#include "core/backend/composite_kernel.h"
#include "core/ops/conv2d_max_pool2d.h"

namespace kerascnn {
namespace {

class Parts {
 public:
  Parts(std::span<const KernelTableRow> table, const PlanRequest& request)
      : plan_(table, request),
        attributes_(request.attributes),
        geometry_(conv2d_max_pool2d_geometry(request.op.name, request.attributes, request.inputs)) {
  }

  std::unique_ptr<Kernel> forward(bool has_bias) {
    std::vector<CompositePart> inputs = {plan_.input(0), plan_.input(1)};
    if (has_bias) inputs.push_back(plan_.input(2));
    Attributes attributes = window_attributes();
    attributes.set("activation", attributes_.get_string("activation"));
    attributes.set("activation_alpha", attributes_.get_double("activation_alpha"));
    const CompositePart y = plan_.apply("conv2d", attributes, inputs);
    plan_.apply_into("max_pool2d", pool_attributes(), {y}, {plan_.output(0), plan_.output(1)});
    return plan_.finish();
  }

  std::unique_ptr<Kernel> dgrad() {
    const CompositePart g = spread(narrow_gradient(0), 2);
    Attributes attributes = window_attributes();
    attributes.set("input_shape", geometry_.conv.input_shape());
    plan_.apply_into("conv2d_dgrad", attributes, {g, plan_.input(3)}, {plan_.output(0)});
    return plan_.finish();
  }

  std::unique_ptr<Kernel> wgrad() {
    const CompositePart narrow = narrow_gradient(1);
    const CompositePart g = spread(narrow, 3);
    Attributes attributes = window_attributes();
    attributes.set("kernel_shape", geometry_.conv.kernel_shape());
    plan_.apply_into("conv2d_wgrad", attributes, {plan_.input(0), g}, {plan_.output(0)});
    // Each pooled gradient goes to exactly one position, so the sums are equal.
    plan_.apply_into("reduce_sum", {{"axes", std::vector<int64_t>{0, 1, 2}}, {"keepdims", false}},
                     {narrow}, {plan_.output(1)});
    return plan_.finish();
  }

 private:
  Attributes window_attributes() const {
    return {{"strides", attributes_.get_ints("strides")},
            {"padding", attributes_.get_ints("padding")},
            {"dilations", attributes_.get_ints("dilations")},
            {"groups", attributes_.get_int("groups")}};
  }

  Attributes pool_attributes() const {
    return {{"window", attributes_.get_ints("window")},
            {"strides", attributes_.get_ints("pool_strides")},
            {"padding", attributes_.get_ints("pool_padding")}};
  }

  // Before the activation, on the pooled values: gy is input `first`, y the one after it.
  CompositePart narrow_gradient(size_t first) {
    const CompositePart gy = plan_.input(first);
    const ActivationCall& activation = geometry_.activation;
    if (activation.kind == Activation::Linear) return gy;
    return plan_.apply(std::string(activation_name(activation.kind)) + "_grad",
                       activation_attributes(activation), {gy, plan_.input(first + 1)});
  }

  CompositePart spread(const CompositePart& narrow, size_t index) {
    Attributes attributes = pool_attributes();
    attributes.set("input_shape", geometry_.pool.input_shape());
    return plan_.apply("max_pool2d_grad", attributes, {narrow, plan_.input(index)});
  }

  CompositePlan plan_;
  const Attributes& attributes_;
  Conv2DMaxPool2DGeometry geometry_;
};

}  // namespace

std::unique_ptr<Kernel> plan_composite_conv2d_max_pool2d(std::span<const KernelTableRow> table,
                                                         const PlanRequest& request) {
  Parts parts(table, request);
  if (request.op.name == "conv2d_max_pool2d") return parts.forward(request.inputs.size() == 3);
  return request.op.name == "conv2d_max_pool2d_dgrad" ? parts.dgrad() : parts.wgrad();
}

}  // namespace kerascnn
