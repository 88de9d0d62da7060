// Writes the ops that an op is made of in its place, for devices that compute them as one region
// (core/graph/region.h). 16-bit numbers are computed with in float32, as the op's kernels do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/graph/passes/rewriter.h"

namespace kerascnn {

class Expansion {
 public:
  // `dtype` is that of the op's numbers.
  Expansion(GraphRewriter& rewriter, const Scope& scope, DType dtype)
      : rewriter_(rewriter),
        scope_(scope),
        dtype_(dtype),
        compute_(itemsize(dtype) < 4 ? DType::Float32 : dtype) {}

 protected:
  ValueId call(std::string_view op, const std::vector<ValueId>& inputs,
               const Attributes& attributes = {}) {
    return call_all(op, inputs, attributes)[0];
  }
  std::vector<ValueId> call_all(std::string_view op, const std::vector<ValueId>& inputs,
                                const Attributes& attributes = {}) {
    return rewriter_.apply(op, inputs, attributes, scope_);
  }
  const TensorSpec& spec(ValueId id) const { return rewriter_.target().value(id).spec; }
  ValueId number(double value) { return rewriter_.full({compute_, {}}, value); }
  ValueId constant(const Tensor& tensor) { return rewriter_.constant(tensor); }
  ValueId cast(ValueId id, DType dtype) {
    if (spec(id).dtype == dtype) return id;
    return call("cast", {id}, {{"dtype", std::string(dtype_name(dtype))}});
  }
  ValueId wide(ValueId id) { return cast(id, compute_); }
  ValueId narrow(ValueId id) { return cast(id, dtype_); }
  ValueId reshape(ValueId id, const Shape& shape) {
    return call("reshape", {id}, {{"shape", shape}});
  }
  ValueId reduce(std::string_view op, ValueId id, const Shape& axes, bool keepdims) {
    return call(op, {id}, {{"axes", axes}, {"keepdims", keepdims}});
  }

 private:
  GraphRewriter& rewriter_;
  const Scope scope_;
  const DType dtype_;
  const DType compute_;
};

}  // namespace kerascnn
