// Sums over the processes that train one model (core/backend/collectives.h).
//
// Each process gives inputs of the same shapes, multiplied by its own `scale`; all get the same
// outputs, `factor` times the sums. A process whose scale is 0 gives zeros, whatever its inputs
// hold. All inputs go in one message. With `joins` (which may be left out) other such calls of a
// program may go in the same one: all processes must then have them, each with one scale for all.
#include <cmath>

#include "core/ops/cost.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

std::vector<TensorSpec> infer_all_reduce(const Attributes& attributes, Specs inputs) {
  if (inputs.empty()) throw ValueError("all_reduce: expected at least 1 input, received none");
  check_positive("all_reduce", attributes, "processes");
  for (const char* name : {"scale", "factor"}) {
    if (!std::isfinite(attributes.get_double(name))) {
      throw ValueError(
          message("all_reduce: ", name, " must be finite, received ", attributes.get_double(name)));
    }
  }
  check_same_dtype("all_reduce", inputs);
  check_floating("all_reduce", "the inputs", inputs[0]);
  return {inputs.begin(), inputs.end()};
}

// What is differentiated is the sum of the losses of all processes. An output of each of them
// depends on this process' input, so the gradients of all of them are added.
std::vector<ValueId> all_reduce_gradient(GradientContext& context) {
  std::vector<size_t> places;
  std::vector<ValueId> of_outputs;
  for (size_t i = 0; i < context.num_inputs(); ++i) {
    if (context.output_gradient(i) == kNoValue) continue;
    places.push_back(i);
    of_outputs.push_back(context.output_gradient(i));
  }
  Attributes attributes = context.attributes();
  const double scale = attributes.get_double("scale");
  attributes.set("scale", 1.0);
  const std::vector<ValueId> sums = context.apply_all("all_reduce", of_outputs, attributes);
  std::vector<ValueId> gradients(context.num_inputs(), kNoValue);
  for (size_t i = 0; i < places.size(); ++i) {
    gradients[places[i]] =
        context.apply("multiply", {sums[i], context.scalar_like(sums[i], scale)});
  }
  return gradients;
}

std::vector<InPlace> in_place_all_reduce(const Attributes&, size_t num_inputs) {
  std::vector<InPlace> pairs;
  for (size_t i = 0; i < num_inputs; ++i) pairs.push_back({i, i});
  return pairs;
}

}  // namespace

const OpDef op_all_reduce = {
    .name = "all_reduce",
    .infer = infer_all_reduce,
    .gradient = all_reduce_gradient,
    .in_place = in_place_all_reduce,
    .is_stateful = true,
    .meets_processes = true,
    .cost = cost_of_moving,
};

}  // namespace kerascnn
