// Tensors of which one process each is the owner: process owners[i] has tensor i
// (core/backend/collectives.h). All processes give inputs of the same shapes, with the same
// attributes, and all inputs go in one message.
//
// reduce_to_owners: output i is `factor` times the sum of all processes' inputs in its owner, and
// in the others what they gave. broadcast_from_owners: output i is what its owner gave, everywhere.
#include <cmath>

#include "core/ops/cost.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

std::vector<TensorSpec> infer_owned(std::string_view op, const Attributes& attributes,
                                    Specs inputs) {
  if (inputs.empty()) throw ValueError(message(op, ": expected at least 1 input, received none"));
  check_positive(op, attributes, "processes");
  const int64_t processes = attributes.get_int("processes");
  const std::vector<int64_t>& owners = attributes.get_ints("owners");
  if (owners.size() != inputs.size()) {
    throw ValueError(message(op, ": expected ", owners.size(),
                             " inputs, one for each of `owners`, ", "received ", inputs.size()));
  }
  for (int64_t owner : owners) {
    if (owner < 0 || owner >= processes) {
      throw ValueError(message(op, ": owners must be from 0 to ", processes - 1,
                               ", the last of the processes, received ", owner));
    }
  }
  check_same_dtype(op, inputs);
  check_floating(op, "the inputs", inputs[0]);
  return {inputs.begin(), inputs.end()};
}

std::vector<TensorSpec> infer_reduce_to_owners(const Attributes& attributes, Specs inputs) {
  const double factor = attributes.get_double("factor");
  if (!std::isfinite(factor)) {
    throw ValueError(message("reduce_to_owners: factor must be finite, received ", factor));
  }
  return infer_owned("reduce_to_owners", attributes, inputs);
}

std::vector<TensorSpec> infer_broadcast_from_owners(const Attributes& attributes, Specs inputs) {
  return infer_owned("broadcast_from_owners", attributes, inputs);
}

std::vector<InPlace> in_place_each(const Attributes&, size_t num_inputs) {
  std::vector<InPlace> pairs;
  for (size_t i = 0; i < num_inputs; ++i) pairs.push_back({i, i});
  return pairs;
}

}  // namespace

const OpDef op_reduce_to_owners = {
    .name = "reduce_to_owners",
    .infer = infer_reduce_to_owners,
    .not_differentiable = "it gives gradients to those who update weights; use all_reduce",
    .in_place = in_place_each,
    .is_stateful = true,
    .meets_processes = true,
    .cost = cost_of_moving,
};

const OpDef op_broadcast_from_owners = {
    .name = "broadcast_from_owners",
    .infer = infer_broadcast_from_owners,
    .not_differentiable = "it gives updated weights to all; use all_reduce",
    .in_place = in_place_each,
    .is_stateful = true,
    .meets_processes = true,
    .cost = cost_of_moving,
};

}  // namespace kerascnn
