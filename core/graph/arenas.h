// Decides whether a program gains from several arenas.
#pragma once

#include "core/backend/backend.h"

namespace kerascnn {

// How large a share of what instructions touch in the memory of a step belongs to instructions that
// don't wait for themselves in the step before, if each step has memory of its own? These can run
// side by side for several steps. In training nearly all of them depend on the weights, and so on
// the step before; in a prediction only the count of the batches does.
//
// There are two arenas; the memory of the first is `memory`, and that of the second is elsewhere.
double independent_share(const ArenaSteps& arenas, const MemoryRange& memory);

// Returns `most` where at least half of a step is independent, else 1.
int64_t choose_arenas(const ArenaSteps& arenas, const MemoryRange& memory, int64_t most);

}  // namespace kerascnn
