#include "core/graph/passes/passes.h"

namespace kerascnn {

void run_passes(RootedGraph&) {}

}  // namespace kerascnn
