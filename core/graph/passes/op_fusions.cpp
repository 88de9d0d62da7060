#include "core/graph/passes/op_fusions.h"

#include <algorithm>

#include "core/graph/node_conditions.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

// An op with the inputs of the pattern and the attributes of its call "loss".
template <const OpDef& op>
std::vector<ValueId> write_loss(const Match& match, Replacement& replacement) {
  return replacement.call(op, replacement.inputs(), match.node("loss").attributes);
}

// ---- The gradient of an activation before max pooling is taken on the pooled values: where the
// gradient of the activation's output y is not 0, y is the maximum. ----

void pattern_pooled_activation_grad(Pattern& pattern) {
  const PatternValue gradient = pattern.input("gradient"), y = pattern.input("y");
  const PatternValue pooled = y.call(op_max_pool2d).as("pooling").again();
  const PatternValue wide =
      gradient.call(op_max_pool2d_grad, {pooled.result(1)}).as("pooling_gradient");
  pattern.output("dx", wide.call(undoes_activation, {y}).as("activation"));
}

std::vector<ValueId> write_pooled_activation_grad(const Match& match, Replacement& replacement) {
  const std::vector<ValueId> pooled = replacement.results(match.node("pooling"));
  const ValueId gradient = replacement.inputs()[0];
  const ValueId narrow = replacement.call(match.node("activation"), {gradient, pooled[0]})[0];
  return replacement.call(match.node("pooling_gradient"), {narrow, pooled[1]});
}

// ---- The sum of a pooling's gradient, for a bias, is taken before it is spread: each element is
// added to exactly one position. ----

bool sums_positions(const Graph&, const Node& node) {
  const std::vector<int64_t>& axes = node.attributes.get_ints("axes");
  const auto has = [&](int64_t axis) {
    return std::ranges::any_of(axes,
                               [&](int64_t each) { return each == axis || each == axis - 4; });
  };
  return axes.empty() || (has(1) && has(2));
}

void pattern_pooled_sum(Pattern& pattern) {
  const PatternValue gradient = pattern.input("gradient");
  const PatternValue wide = gradient.call(op_max_pool2d_grad, {pattern.input("index")}).again();
  pattern.output("sum", wide.call(op_reduce_sum).where(sums_positions).as("sum"));
}

std::vector<ValueId> write_pooled_sum(const Match& match, Replacement& replacement) {
  return replacement.call(match.node("sum"), {replacement.inputs()[0]});
}

// ---- A classifier's softmax, its loss, and the gradient of both. The probabilities keep their
// readers. ----

void pattern_softmax_cross_entropy(Pattern& pattern) {
  const PatternValue p = pattern.input("logits").call(op_softmax).where(is_along_rows);
  const PatternValue loss = p.call(op_sparse_cross_entropy, {pattern.input("labels")});
  pattern.output("loss", loss.as("loss"));
  pattern.output("probabilities", p);
}

void pattern_softmax_cross_entropy_grad(Pattern& pattern) {
  const PatternValue gradient = pattern.input("gradient"), p = pattern.input("probabilities");
  const PatternValue by_p =
      gradient.call(op_sparse_cross_entropy_grad, {p, pattern.input("labels")}).as("loss").again();
  pattern.output("dx", by_p.call(op_softmax_grad, {p}).where(is_along_rows));
}

// ---- What both of the following ask of a node ----

// Can this node take a bias or an activation?
bool takes_epilogue(const Graph& graph, const Node& node) {
  if (node.op == &op_dense || node.op == &op_conv2d) return is_linear(graph, node);
  return node.op == &op_matmul && is_product<false, false>(graph, node);
}

// Is one of the two operands one number for each channel, as a bias is?
bool is_by_channel(const Graph& graph, const Node& node) {
  const Shape& shape = graph.value(node.outputs[0]).spec.shape;
  const auto is_shape = [&](size_t input, const Shape& wanted) {
    return graph.value(node.inputs[input]).spec.shape == wanted;
  };
  const Shape channels = {shape.empty() ? 0 : shape.back()};
  return shape.size() > 1 && ((is_shape(0, shape) && is_shape(1, channels)) ||
                              (is_shape(0, channels) && is_shape(1, shape)));
}

// ---- A convolution or product, of which each channel is scaled and shifted, as batch
// normalization does with known statistics: the kernel is scaled instead, and the shift is a bias.
// In mixed precision all of that is computed in the wider type, and the scaled kernel is rounded
// once. ----

// Is a kernel scaled sooner than the result?
bool has_small_kernel(const Match& match) {
  return num_elements(match.spec("kernel").shape) <= num_elements(match.spec("base").shape);
}

// Where results before the scale are large, a scaled kernel may be so small that float16 has few
// digits for it.
bool keeps_digits(const Match& match) { return match.spec("base").dtype != DType::Float16; }

// Does the pattern's part "casts" go to a wider type and back?
bool comes_back(const Match& match) {
  const DType dtype = match.spec("base").dtype, wide = match.spec("shift").dtype;
  return match.spec("y").dtype == dtype && itemsize(wide) > itemsize(dtype);
}

bool keeps_channels(const Graph& graph, const Node& node) {
  const Shape& from = graph.value(node.inputs[0]).spec.shape;
  const Shape& to = graph.value(node.outputs[0]).spec.shape;
  return !from.empty() && !to.empty() && from.back() == to.back();
}

void pattern_scaled_channels(Pattern& pattern) {
  const bool casts = pattern.has("casts"), rounds_kernel = casts && pattern.has("kernel's cast");
  const PatternValue x = pattern.input("x"), kernel = pattern.input("kernel");
  std::vector<PatternValue> weights = {
      rounds_kernel ? kernel.call(op_cast).as("kernel's cast").again() : kernel};
  const bool has_bias = pattern.has("bias of the call");
  if (has_bias) weights.push_back(pattern.input("bias"));
  PatternValue y = x.call(takes_epilogue, weights).as("base");
  if (!has_bias && pattern.has("bias")) {
    y = y.call(op_add, {pattern.input("bias")}).where(is_by_channel);
  }
  if (pattern.has("reshape")) y = y.call(op_reshape).where(keeps_channels).as("reshape");
  if (casts) y = y.call(op_cast).as("casts");
  y = y.call(op_multiply, {pattern.input("scale")}).where(is_by_channel);
  y = y.call(op_add, {pattern.input("shift")}).where(is_by_channel);
  if (casts) {
    y = y.call(op_cast).as("cast back");
    pattern.where(comes_back);
  }
  pattern.where(keeps_digits);
  pattern.where(has_small_kernel);
  pattern.output("y", y);
}

std::vector<ValueId> write_scaled_channels(const Match& match, Replacement& replacement) {
  const auto input = [&](std::string_view name) { return replacement.inputs()[match.input(name)]; };
  const auto call = [&](const OpDef& op, const std::vector<ValueId>& inputs) {
    return replacement.call(op, inputs, {})[0];
  };
  const DType dtype = match.spec("base").dtype, wide = match.spec("shift").dtype;
  const auto cast = [&](ValueId value, DType from, DType to) {
    const Attributes attributes = {{"dtype", std::string(dtype_name(to))}};
    return from == to ? value : replacement.call(op_cast, {value}, attributes)[0];
  };
  const ValueId kernel = cast(input("kernel"), match.spec("kernel").dtype, wide);
  const ValueId scaled = call(op_multiply, {kernel, input("scale")});
  ValueId shift = input("shift");
  if (match.has("bias")) {
    const ValueId bias = cast(input("bias"), dtype, wide);
    shift = call(op_add, {call(op_multiply, {bias, input("scale")}), shift});
  }
  ValueId y = replacement.call(match.node("base"), {input("x"), cast(scaled, wide, dtype)})[0];
  y = call(op_add, {y, cast(shift, wide, dtype)});
  return match.has("reshape") ? replacement.call(match.node("reshape"), {y})
                              : std::vector<ValueId>{y};
}

// ---- Bias and activation move into the product or convolution before them. Convolutions of
// sequences and volumes are reshaped from and to images: an activation of single elements may come
// before that. ----

void pattern_epilogue(Pattern& pattern) {
  const PatternValue x = pattern.input("x");
  std::vector<PatternValue> weights = {pattern.input("kernel")};
  const bool has_bias = pattern.has("bias of the call");
  if (has_bias) weights.push_back(pattern.input("bias"));
  PatternValue y = x.call(takes_epilogue, weights).as("base");
  const bool adds = !has_bias && pattern.has("bias");
  if (adds) y = y.call(op_add, {pattern.input("bias")}).where(is_by_channel);
  if (!adds || pattern.has("activation")) {
    if (pattern.has("reshape")) y = y.call(op_reshape).as("reshape");
    y = y.call(is_activation).as("activation");
  }
  pattern.output("y", y);
}

std::vector<ValueId> write_epilogue(const Match& match, Replacement& replacement) {
  const Node& base = match.node("base");
  const bool is_convolution = base.op == &op_conv2d;
  ActivationCall activation;
  if (match.has("activation")) {
    const Node& node = match.node("activation");
    activation = activation_call(*find_activation(*node.op), node.attributes);
  }
  Attributes attributes = is_convolution ? base.attributes : Attributes{};
  attributes.set("activation", std::string(activation_name(activation.kind)));
  attributes.set("activation_alpha", activation.alpha);
  const std::vector<ValueId> y =
      replacement.call(is_convolution ? op_conv2d : op_dense, replacement.inputs(), attributes);
  if (!match.has("reshape")) return y;
  return replacement.call(match.node("reshape"), y);
}

// ---- The loss with the gradient of its logits. ----

void pattern_loss_gradient(Pattern& pattern) {
  const PatternValue logits = pattern.input("logits"), labels = pattern.input("labels");
  add_loss_with_gradient(pattern, logits, labels, pattern.input("gradient_of_loss"));
}

// Both clip probabilities.
bool has_one_epsilon(const Match& match) {
  const auto epsilon = [&](std::string_view call) {
    return match.node(call).attributes.get_double("epsilon");
  };
  return epsilon("loss") == epsilon("loss_gradient");
}

}  // namespace

PatternValue add_loss_with_gradient(Pattern& pattern, const PatternValue& logits,
                                    const PatternValue& labels,
                                    const PatternValue& gradient_of_loss) {
  const PatternValue loss = logits.call(op_sparse_softmax_cross_entropy, {labels}).as("loss");
  const PatternValue probabilities = loss.result(1);
  const PatternValue gradient =
      gradient_of_loss.call(op_sparse_softmax_cross_entropy_grad, {probabilities, labels})
          .as("loss_gradient");
  pattern.where(has_one_epsilon);
  pattern.output("loss", loss);
  pattern.output("probabilities", probabilities);
  pattern.output("gradient", gradient);
  return gradient;
}

const Fusion fused_loss_gradient = {.name = "loss_gradient",
                                    .pattern = pattern_loss_gradient,
                                    .write = write_loss<op_sparse_softmax_cross_entropy>};

std::span<const Fusion> op_fusions() {
  static constexpr Fusion all[] = {
      {.name = "pooled_activation_grad",
       .pattern = pattern_pooled_activation_grad,
       .write = write_pooled_activation_grad},
      {.name = "pooled_sum", .pattern = pattern_pooled_sum, .write = write_pooled_sum},
      {.name = "softmax_cross_entropy",
       .pattern = pattern_softmax_cross_entropy,
       .write = write_loss<op_sparse_softmax_cross_entropy>},
      {.name = "softmax_cross_entropy_grad",
       .pattern = pattern_softmax_cross_entropy_grad,
       .write = write_loss<op_sparse_softmax_cross_entropy_grad>},
      {.name = "scaled_channels",
       .pattern = pattern_scaled_channels,
       .write = write_scaled_channels},
      {.name = "epilogue", .pattern = pattern_epilogue, .write = write_epilogue},
  };
  return all;
}

}  // namespace kerascnn
