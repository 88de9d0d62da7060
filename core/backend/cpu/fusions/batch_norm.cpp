// Batch normalization of 16 bits, which computes in float32: the casts around it are in the kernel.
#include "core/backend/cpu/batch_norm.h"

#include "core/backend/cpu/fusions/fusions.h"
#include "core/backend/cpu/kernel_util.h"
#include "core/ops/definitions.h"

namespace kerascnn {

void pattern_batch_norm_16_bits(Pattern& pattern) {
  const PatternValue x = pattern.input("x");
  const PatternValue y = x.call(op_cast)
                             .again()
                             .call(op_batch_norm, {pattern.input("gamma"), pattern.input("beta")})
                             .as("norm");
  pattern.output("y", pattern.has("cast") ? y.call(op_cast) : y);
  pattern.optional_output("mean", y.result(1));
  pattern.optional_output("variance", y.result(2));
  pattern.optional_output("inverse", y.result(3));
}

void pattern_batch_norm_grad_16_bits(Pattern& pattern) {
  PatternValue gy = pattern.input("gy");
  if (pattern.has("gradient's cast")) gy = gy.call(op_cast).again();
  const PatternValue x = pattern.input("x").call(op_cast).again();
  const PatternValue gx =
      gy.call(op_batch_norm_grad,
              {x, pattern.input("gamma"), pattern.input("mean"), pattern.input("inverse")})
          .as("norm");
  pattern.output("gx", pattern.has("cast") ? gx.call(op_cast) : gx);
  pattern.optional_output("gamma's gradient", gx.result(1));
  pattern.optional_output("beta's gradient", gx.result(2));
}

namespace cpu {

namespace {

// Regions of columns have no casts that are stored either.
bool fits(const Match& match) {
  const TensorSpec& x = match.spec("x");
  if (backend(Device{}).region_limits(x.shape).columns) return false;
  return is_narrow(x.dtype) && match.spec("gamma").dtype == DType::Float32 &&
         x.shape.back() <= kMostChannelsOf16Bits && num_elements(x.shape) > 0;
}

}  // namespace

std::unique_ptr<Kernel> plan_fused_batch_norm_16_bits(const Match& match) {
  const DType y = match.spec("y").dtype;
  if (!fits(match) || (y != DType::Float32 && !is_narrow(y))) return nullptr;
  return make_batch_norm(match.spec("x"), y, match.node("norm").attributes.get_double("epsilon"));
}

std::unique_ptr<Kernel> plan_fused_batch_norm_grad_16_bits(const Match& match) {
  const DType gy = match.spec("gy").dtype, gx = match.spec("gx").dtype;
  const auto is_taken = [](DType dtype) { return dtype == DType::Float32 || is_narrow(dtype); };
  if (!fits(match) || !is_taken(gy) || !is_taken(gx)) return nullptr;
  return make_batch_norm_grad(match.spec("x"), gy, gx);
}

}  // namespace cpu
}  // namespace kerascnn
