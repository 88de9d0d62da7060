// Which kernel runs a region: a generated one, the interpreter of element programs for small maps,
// op by op where there is nothing better.
#include "core/backend/cuda/elementwise/elementwise.h"
#include "core/backend/cuda/plans.h"
#include "core/backend/cuda/regions/generated_region.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/graph/body_program.h"
#include "core/graph/region_program.h"

namespace kerascnn::cuda {

std::unique_ptr<Kernel> plan_region(const PlanRequest& request) {
  const Region region = read_region(request.attributes);
  // Regions of programs say it themselves; others go by their size.
  if (region.generated.value_or(generates_region(region.domain))) {
    return plan_generated_region(request, region);
  }
  if (const auto program = element_program(region)) {
    return plan_element_program(request, *program);
  }
  return plan_body_kernel(*region.body, request, {DeviceType::Cuda, Context::current().index()});
}

}  // namespace kerascnn::cuda
