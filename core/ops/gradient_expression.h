// Gradient rules written as formulas: each operator adds one node to the graph.
#pragma once

#include "core/ops/op.h"

namespace kerascnn {

struct Expression {
  GradientContext* context;
  ValueId id;

  Expression call(OpRef op, const Attributes& attributes = {}) const {
    return {context, context->apply(op, {id}, attributes)};
  }
  Expression call(OpRef op, Expression other, const Attributes& attributes = {}) const {
    return {context, context->apply(op, {id, other.id}, attributes)};
  }
  Expression number(double value) const { return {context, context->scalar_like(id, value)}; }
  // 1 where the comparison holds, else 0, in this expression's dtype.
  Expression indicator(OpRef comparison, Expression other) const {
    return call(comparison, other).call("cast", {{"dtype", dtype_name(context->spec(id).dtype)}});
  }
  Expression indicator(OpRef comparison, double other) const {
    return indicator(comparison, number(other));
  }
};

inline Expression operator+(Expression a, Expression b) { return a.call("add", b); }
inline Expression operator-(Expression a, Expression b) { return a.call("subtract", b); }
inline Expression operator*(Expression a, Expression b) { return a.call("multiply", b); }
inline Expression operator/(Expression a, Expression b) { return a.call("divide", b); }
inline Expression operator-(Expression a) { return a.call("negative"); }
inline Expression operator+(Expression a, double b) { return a + a.number(b); }
inline Expression operator*(double a, Expression b) { return b.number(a) * b; }
inline Expression operator-(double a, Expression b) { return b.number(a) - b; }

}  // namespace kerascnn
