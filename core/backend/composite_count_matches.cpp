#include "core/backend/composite_count_matches.h"

#include <string>

#include "core/backend/composite_kernel.h"

namespace kerascnn {

std::unique_ptr<Kernel> plan_composite_count_matches(std::span<const KernelTableRow> table,
                                                     const PlanRequest& request) {
  CompositePlan plan(table, request);
  auto cast = [&](const CompositePart& part, DType dtype) {
    return plan.apply("cast", {{"dtype", std::string(dtype_name(dtype))}}, {part});
  };
  CompositePart place = plan.apply("argmax", {{"axis", int64_t{1}}}, {plan.input(0)});
  const DType dtype = request.inputs[1].dtype;
  if (dtype != place.spec.dtype) place = cast(place, dtype);
  const CompositePart matches = plan.apply("equal", {}, {plan.input(1), place});
  plan.apply_into("reduce_sum", {{"axes", Shape{0}}, {"keepdims", false}},
                  {cast(matches, DType::Float32)}, {plan.output(0)});
  return plan.finish();
}

}  // namespace kerascnn
