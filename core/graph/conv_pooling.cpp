#include "core/graph/conv_pooling.h"

#include <array>

#include "core/graph/node_conditions.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

bool has_gradient_by_output(const Graph&, const Node& node) {
  return gradient_uses_output(fused_activation("conv2d", node.attributes).kind);
}

// The pooled gradient before the activation, and the same at full size.
struct Gradient {
  PatternValue narrow, wide;
};

Gradient add_gradient(Pattern& pattern) {
  const bool has_activation = pattern.has("activation");
  PatternValue narrow = pattern.input("gy");
  if (has_activation) {
    narrow = narrow.call(undoes_activation, {pattern.input("y")}).as("activation").again();
  }
  const PatternValue wide =
      narrow.call(op_max_pool2d_grad, {pattern.input("index")}).as("pooling").again();
  return {narrow, wide.read_by_fusions()};
}

}  // namespace

void pattern_conv2d_max_pool2d(Pattern& pattern) {
  const PatternValue x = pattern.input("x");
  std::vector<PatternValue> weights = {pattern.input("kernel")};
  if (pattern.has("bias")) weights.push_back(pattern.input("bias"));
  const PatternValue wide = x.call(op_conv2d, weights).as("convolution");
  const PatternValue y = wide.where(has_gradient_by_output).call(op_max_pool2d).as("pooling");
  pattern.output("y", y);
  pattern.optional_output("index", y.result(1).read_by_fusions());
}

void pattern_conv2d_max_pool2d_dgrad(Pattern& pattern) {
  const PatternValue wide = add_gradient(pattern).wide;
  pattern.output("dx", wide.call(op_conv2d_dgrad, {pattern.input("kernel")}).as("convolution"));
}

void pattern_conv2d_max_pool2d_wgrad(Pattern& pattern) {
  const PatternValue x = pattern.input("x");
  const auto [narrow, wide] = add_gradient(pattern);
  pattern.output("kernel gradient", x.call(op_conv2d_wgrad, {wide}).as("convolution"));
  // Each pooled gradient goes to exactly one position, so the sums are equal.
  if (pattern.has("bias")) {
    pattern.output("bias gradient", narrow.call(op_reduce_sum).where(reduces_columns).as("bias"));
  }
}

Conv2DMaxPool2DGeometry conv_pool_geometry(const Match& match) {
  const Node &conv = match.node("convolution"), &pool = match.node("pooling");
  Conv2DMaxPool2DGeometry g;
  if (conv.op == &op_conv2d) {
    g.conv = conv2d_geometry(*conv.op, conv.attributes,
                             std::array{match.spec("x"), match.spec("kernel")});
    g.activation = fused_activation(conv.op->name, conv.attributes);
  } else {
    const TensorSpec wide = match.spec("pooling");
    const bool is_wgrad = conv.op == &op_conv2d_wgrad;
    g.conv = conv2d_geometry(
        *conv.op, conv.attributes,
        is_wgrad ? std::array{match.spec("x"), wide} : std::array{wide, match.spec("kernel")});
    if (match.has("activation")) g.activation = *undone_activation(match.node("activation"));
  }
  g.pool = pool2d_geometry(pool.op->name, pool.attributes, g.conv.output_shape());
  return g;
}

ConvPoolArguments::ConvPoolArguments(const Match& match)
    : gy(match.input("gy")), index(match.input("index")) {
  if (match.has("x")) x = match.input("x");
  if (match.has("kernel")) kernel = match.input("kernel");
  y = match.has("y") ? match.input("y") : gy;
}

}  // namespace kerascnn
