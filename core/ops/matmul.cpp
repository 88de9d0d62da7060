// Matrix products over equal batch axes.
#include <algorithm>
#include <utility>

#include "core/ops/cost.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

Shape product_shape(std::string_view op, const Attributes& attributes, Specs inputs) {
  Shape a = inputs[0].shape;
  Shape b = inputs[1].shape;
  if (a.size() < 2 || a.size() != b.size()) {
    throw ValueError(message(op,
                             ": both inputs must have the same number of axes, 2 or more, "
                             "received ",
                             specs_string(inputs)));
  }
  const size_t rows = a.size() - 2, columns = a.size() - 1;
  if (attributes.get_bool("transpose_a")) std::swap(a[rows], a[columns]);
  if (attributes.get_bool("transpose_b")) std::swap(b[rows], b[columns]);
  const bool batches_agree = std::equal(a.begin(), a.end() - 2, b.begin());
  if (!batches_agree || a[columns] != b[rows]) {
    throw ValueError(message(op, ": ", shape_string(a), " and ", shape_string(b),
                             " (after the transpositions asked for) do not fit: ",
                             batches_agree ? "the inner extents " : "all but the last two axes ",
                             "must be equal; received ", specs_string(inputs)));
  }
  a[columns] = b[columns];
  return a;
}

std::vector<TensorSpec> infer_matmul(const Attributes& attributes, Specs inputs) {
  check_num_inputs("matmul", inputs, 2);
  check_floating("matmul", "the first input", inputs[0]);
  check_same_dtype("matmul", inputs);
  return {{inputs[0].dtype, product_shape("matmul", attributes, inputs)}};
}

// Sums of products of bytes, in 32 bits. They are exact for inner extents below 2^17; beyond that
// they may wrap around as NumPy's do.
std::vector<TensorSpec> infer_integer_matmul(const Attributes& attributes, Specs inputs) {
  check_num_inputs("integer_matmul", inputs, 2);
  for (const TensorSpec& input : inputs) {
    if (input.dtype == DType::Int8) continue;
    throw TypeError(message("integer_matmul: both inputs must be int8, received ",
                            specs_string(inputs), "; cast them, or call matmul"));
  }
  return {{DType::Int32, product_shape("integer_matmul", attributes, inputs)}};
}

ValueId product(GradientContext& context, ValueId a, ValueId b, bool transpose_a,
                bool transpose_b) {
  return context.apply("matmul", {a, b},
                       {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

// With A = op(a), B = op(b): dA = G B^T and dB = A^T G; where an input came transposed, its
// gradient is the transpose of that.
std::vector<ValueId> matmul_gradient(GradientContext& context) {
  const bool ta = context.attributes().get_bool("transpose_a");
  const bool tb = context.attributes().get_bool("transpose_b");
  const ValueId a = context.input(0), b = context.input(1), g = context.output_gradient();
  const ValueId ga = ta ? product(context, b, g, tb, true) : product(context, g, b, false, !tb);
  const ValueId gb = tb ? product(context, g, a, true, ta) : product(context, a, g, !ta, false);
  return {ga, gb};
}

OpCost matmul_cost(const Attributes& attributes, Specs inputs, Specs outputs, OpCost usual) {
  const Shape& a = inputs[0].shape;
  const Shape& c = outputs[0].shape;
  const int64_t inner = a[a.size() - (attributes.get_bool("transpose_a") ? 2 : 1)];
  return {product_flop(num_elements(c), inner, 1), usual.bytes};
}

}  // namespace

const OpDef op_matmul = {
    .name = "matmul",
    .infer = infer_matmul,
    .gradient = matmul_gradient,
    .cost = matmul_cost,
};

const OpDef op_integer_matmul = {
    .name = "integer_matmul",
    .infer = infer_integer_matmul,
    .not_differentiable = "it is a product of integers",
    .cost = matmul_cost,
};

}  // namespace kerascnn
