// Kernels that are written for one region and compiled while a program is planned.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/graph/region.h"

namespace kerascnn::cuda {

// The limits of regions of a program whose kernels are generated (KERASCNN_CUDA_REGIONS).
RegionLimits region_limits(const Shape& domain);
// The largest op of a program must have at least so many elements for the program to have such
// kernels.
int64_t least_generated_size();
// Is a kernel generated for a region over this domain that belongs to no program?
bool generates_region(const Shape& domain);

// Compiling begins at once and ends in finish_planning(). Where it fails there is a warning, and
// the body runs op by op.
std::unique_ptr<Kernel> plan_generated_region(const PlanRequest& request, const Region& region);

}  // namespace kerascnn::cuda
