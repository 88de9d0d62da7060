// Chooses the kernels of conv2d_max_pool2d and its gradients. Those of the gradients pass over the
// places without gradient, which are three of four and more; where the images have few channels,
// the forward kernel has no full-size output. In all other cases the ops that these stand for run
// one by one.
#include <cmath>
#include <string>

#include "core/backend/composite_conv2d_max_pool2d.h"
#include "core/backend/composite_kernel.h"
#include "core/backend/cpu/conv_pool.h"
#include "core/backend/cpu/float_kernels.h"
#include "core/backend/cpu/kernel_table.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/backend/stacked_kernel.h"
#include "core/ops/definitions.h"
#include "core/ops/partial_sums.h"

namespace kerascnn::cpu {

namespace {

// Is there so little to pool that lists of places pay?
bool pools_enough(const ConvPool& g) {
  constexpr int64_t kLeastPooled = 3;
  return g.conv.output_height * g.conv.output_width >=
         kLeastPooled * g.pool.output_height * g.pool.output_width;
}

bool fits(const PlanRequest& request, const ConvPool& g) {
  constexpr int64_t kMostElements = int64_t{1} << 30;  // places are 32 bits
  const bool is_padded = g.pool.pad_top != 0 || g.pool.pad_bottom != 0 || g.pool.pad_left != 0 ||
                         g.pool.pad_right != 0;
  return request.outputs[0].dtype == DType::Float32 && g.conv.groups == 1 &&
         g.conv.dilation_height == 1 && g.conv.dilation_width == 1 && !is_padded &&
         g.pool.index_dtype() == DType::UInt8 && g.padded_size() < kMostElements &&
         g.conv.output_channels * g.run * g.conv.kernel_height < kMostElements &&
         g.conv.batch * g.image_size() * g.pooled_size() > 0 && pools_enough(g);
}

Conv2DMaxPool2DGeometry geometry_of(const PlanRequest& request) {
  return conv2d_max_pool2d_geometry(request.op.name, request.attributes, request.inputs);
}

bool is_own_activation(const ActivationCall& activation) {
  return activation.kind == Activation::Linear || activation.kind == Activation::Relu;
}

std::unique_ptr<Kernel> plan_composite(const PlanRequest& request) {
  return plan_composite_conv2d_max_pool2d(cpu_kernel_table(), request);
}

// Another activation's gradient is taken first, on the pooled values.
std::unique_ptr<Kernel> plan_after_activation(const PlanRequest& request,
                                              const ActivationCall& activation) {
  const bool is_wgrad = &request.op == &op_conv2d_max_pool2d_wgrad;
  const size_t first = is_wgrad ? 1 : 0;
  CompositePlan plan(cpu_kernel_table(), request);
  const CompositePart gy =
      plan.apply(activation_gradient_op(activation.kind).name, activation_attributes(activation),
                 {plan.input(first), plan.input(first + 1)});
  Attributes attributes = request.attributes;
  attributes.set("activation", std::string("linear"));
  attributes.set("activation_alpha", 0.0);
  std::vector<CompositePart> inputs, outputs;
  for (size_t i = 0; i < request.inputs.size(); ++i) inputs.push_back(plan.input(i));
  for (size_t i = 0; i < request.outputs.size(); ++i) outputs.push_back(plan.output(i));
  inputs[first] = gy;
  plan.apply_into(request.op.name, attributes, inputs, outputs);
  return plan.finish();
}

std::unique_ptr<Kernel> plan_gradient(const PlanRequest& request) {
  const Conv2DMaxPool2DGeometry geometry = geometry_of(request);
  const ConvPool g(geometry);
  if (!fits(request, g)) return plan_composite(request);
  if (!is_own_activation(geometry.activation)) {
    return plan_after_activation(request, geometry.activation);
  }
  if (&request.op != &op_conv2d_max_pool2d_wgrad)
    return make_listed_dgrad(g, plan_composite(request));
  if (takes_small_wgrad(g)) return make_small_wgrad(g, plan_composite(request));
  return make_listed_wgrad(g, plan_composite(request));
}

}  // namespace

ConvPool::ConvPool(const Conv2DMaxPool2DGeometry& geometry)
    : conv(geometry.conv),
      pool(geometry.pool),
      relu(geometry.activation.kind == Activation::Relu),
      row((conv.input_width + conv.pad_left + conv.pad_right) * conv.input_channels),
      rows(conv.input_height + conv.pad_top + conv.pad_bottom),
      run(conv.kernel_width * conv.input_channels),
      place_step(pool.stride_width * conv.stride_width * conv.input_channels),
      place_row_step(pool.stride_height * conv.stride_height * row),
      column_step(conv.stride_width * conv.input_channels),
      row_step(conv.stride_height * row) {}

void ConvPool::pad_rows(const float* image, int64_t first, int64_t count, float* out) const {
  const int64_t inside = conv.input_width * conv.input_channels;
  const int64_t left = conv.pad_left * conv.input_channels;
  for (int64_t i = first - conv.pad_top; i < first - conv.pad_top + count; ++i, out += row) {
    if (i < 0 || i >= conv.input_height) {
      std::fill(out, out + row, 0.0f);
      continue;
    }
    std::fill(out, out + left, 0.0f);
    std::copy(image + i * inside, image + (i + 1) * inside, out + left);
    std::fill(out + left + inside, out + row, 0.0f);
  }
}

int64_t ConvPool::num_shares() const { return std::min<int64_t>(conv.batch, num_threads()); }

bool all_finite(const float* values, int64_t count) {
  constexpr uint32_t kInfinity = 0x7f800000;
  return float_kernels().largest_magnitude(values, count) < kInfinity;
}

bool all_finite(const double* sums, int64_t count) {
  return std::all_of(sums, sums + count, [](double sum) { return std::isfinite(sum); });
}

bool fuses_conv2d_max_pool2d(const PlanRequest& request) {
  const OpDef* const op = &request.op;
  if (op != &op_conv2d_max_pool2d && op != &op_conv2d_max_pool2d_dgrad &&
      op != &op_conv2d_max_pool2d_wgrad) {
    return false;
  }
  return fits(request, ConvPool(geometry_of(request)));
}

std::unique_ptr<Kernel> plan_conv2d_max_pool2d(const PlanRequest& request) {
  const Conv2DMaxPool2DGeometry geometry = geometry_of(request);
  const ConvPool g(geometry);
  if (!fits(request, g) || !is_own_activation(geometry.activation) || !takes_small_forward(g)) {
    return plan_composite(request);
  }
  return make_small_forward(g, request.inputs.size() > 2);
}

std::unique_ptr<Kernel> plan_conv2d_max_pool2d_dgrad(const PlanRequest& request) {
  return plan_gradient(request);
}

std::unique_ptr<Kernel> plan_conv2d_max_pool2d_wgrad(const PlanRequest& request) {
  if (num_copies(request.op.name, request.attributes) > 0) {
    return plan_stacked(request, plan_conv2d_max_pool2d_wgrad, zero_memory);
  }
  return plan_gradient(request);
}

}  // namespace kerascnn::cpu
