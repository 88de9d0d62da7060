// Whether steps of a program gain from places of their own for their intermediate results.
#pragma once

#include "core/backend/backend.h"

namespace kerascnn {

// Of what instructions touch in the memory of a step, how large a share belongs to instructions
// that don't wait for themselves in the step before, if each step has memory of its own? These can
// run side by side for several steps. In training nearly all of them hang on the weights, and so on
// the step before; in a prediction only what counts the batches does.
//
// `lanes` has two lanes, the memory of the first is `memory` and that of the second is elsewhere.
double independent_share(const Lanes& lanes, const MemoryRange& memory);

// As many lanes as there may be where at least half of a step is independent, else one.
int64_t choose_lanes(const Lanes& lanes, const MemoryRange& memory, int64_t most);

}  // namespace kerascnn
