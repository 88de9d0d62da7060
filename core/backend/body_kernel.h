// A node's body run op by op, as one kernel: for what a backend has no kernel of its own for.
#pragma once

#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/graph/body.h"

namespace kerascnn {

// `node` is the call that owns the body; its inputs and outputs are the body's. The passes leave
// the body as it is.
std::unique_ptr<Kernel> plan_body_kernel(const PlanRequest& node, const Body& body, Device device);

}  // namespace kerascnn
