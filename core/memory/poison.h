// Memory that holds nothing yet is made to show where it is read: with KERASCNN_POISON_MEMORY=1 it
// is filled with bytes that are NaN in every float type and -1 in every signed integer.
#pragma once

namespace kerascnn {

constexpr int kPoison = 0xff;

// KERASCNN_POISON_MEMORY, read once.
bool poisons_memory();

}  // namespace kerascnn
