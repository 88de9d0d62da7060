// Where the inputs and outputs of the optimizer updates are, for n = count parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/attributes.h"
#include "core/base/dtype.h"
#include "core/base/shape.h"

namespace kerascnn {

struct OpDef;

// A gradient may be a stack of partial sums, (copies, *shape of its parameter), which the update
// adds up (Kernel::leave_partial_sums). How many copies there are, 1 for the gradient itself; 0
// where the shapes don't belong together.
int64_t gradient_copies(const Shape& gradient, const Shape& parameter);

// May the gradient of a parameter have this dtype? That is the parameter's own, or one of 16 bits
// for a parameter in float32: the update widens it, which is exact. A stack has the parameter's.
bool takes_gradient(DType gradient, DType parameter);

// sgd_update(learning_rate, parameters[n], gradients[n], momenta[n]) -> (parameters[n],
// momenta[n]); the momenta are there only where momentum > 0.
struct SgdLayout {
  size_t count;
  bool has_momentum;

  static constexpr size_t learning_rate() { return 0; }
  size_t parameter(size_t i) const { return 1 + i; }
  size_t gradient(size_t i) const { return 1 + count + i; }
  size_t momentum(size_t i) const { return 1 + 2 * count + i; }
  size_t num_inputs() const { return 1 + (has_momentum ? 3 : 2) * count; }

  size_t new_parameter(size_t i) const { return i; }
  size_t new_momentum(size_t i) const { return count + i; }
  size_t num_outputs() const { return (has_momentum ? 2 : 1) * count; }
};

// adam_update(learning_rate, iterations, parameters[n], gradients[n], first moments[n], second
// moments[n])
// -> (parameters[n], first moments[n], second moments[n]).
struct AdamLayout {
  size_t count;

  static constexpr size_t learning_rate() { return 0; }
  static constexpr size_t iterations() { return 1; }
  size_t parameter(size_t i) const { return 2 + i; }
  size_t gradient(size_t i) const { return 2 + count + i; }
  size_t first_moment(size_t i) const { return 2 + 2 * count + i; }
  size_t second_moment(size_t i) const { return 2 + 3 * count + i; }
  size_t num_inputs() const { return 2 + 4 * count; }

  size_t new_parameter(size_t i) const { return i; }
  size_t new_first_moment(size_t i) const { return count + i; }
  size_t new_second_moment(size_t i) const { return 2 * count + i; }
  size_t num_outputs() const { return 3 * count; }
};

// What the layouts have in common: a head, then groups of `count` tensors, the parameters, their
// gradients and slots; the outputs are groups too.
struct UpdateGroups {
  size_t head;
  size_t count;

  size_t gradient(size_t i) const { return head + count + i; }
};

// The groups of sgd_update and adam_update; none for other ops.
std::optional<UpdateGroups> find_update_groups(const OpDef& op, const Attributes& attributes);

}  // namespace kerascnn
