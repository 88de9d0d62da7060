// Helps to find faults: runs a program's instructions one by one, in any order that their
// dependencies allow and a different one each time. A dependency that is missing, or memory that a
// kernel touches without saying so, changes results.
#pragma once

#include <memory>
#include <vector>

#include "core/backend/backend.h"

namespace kerascnn {

// KERASCNN_SHUFFLE_KERNELS, which is read with each call: the seed of the orders, or 0 where
// programs run as planned.
int64_t shuffle_seed();

// How many bytes of the next planned program share memory with no other buffer: in turns as many as
// the backend says, some, many and none, as each plan has dependencies of its own.
int64_t shuffled_unshared_bytes(const Backend& backend);

// How many arenas that program has: in turns from one to more than there are steps to mix.
int64_t shuffled_arenas();

// The orders differ with the seed and with each executor.
std::unique_ptr<Executor> make_shuffled_executor(Backend& backend, ArenaSteps arenas, int64_t seed);

}  // namespace kerascnn
