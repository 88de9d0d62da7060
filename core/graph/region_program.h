// A region of kind map as a register program, which ready-made kernels run on a GPU.
#pragma once

#include <optional>

#include "core/graph/region.h"
#include "core/ops/element_program.h"

namespace kerascnn {

// Input i of the program is input i of the node; its outputs come in the node's order. Empty for
// other kinds, and for a region that is larger than a program may be.
std::optional<ElementProgram> element_program(const Region& region);

// What a node with an element op does, but for where its operands are.
ElementInstruction element_instruction(const Graph& graph, const Node& node);

}  // namespace kerascnn
