#include "core/backend/cpu/fusions/fusions.h"

namespace kerascnn::cpu {

#define KERASCNN_FUSION(name) \
  static constexpr Fusion fused_##name{#name, pattern_##name, plan_fused_##name};
KERASCNN_CPU_FUSIONS(KERASCNN_FUSION)
#undef KERASCNN_FUSION

std::span<const Fusion* const> fusions() {
#define KERASCNN_FUSION_ADDRESS(name) &fused_##name,
  static constexpr const Fusion* all[] = {KERASCNN_CPU_FUSIONS(KERASCNN_FUSION_ADDRESS)};
#undef KERASCNN_FUSION_ADDRESS
  return all;
}

}  // namespace kerascnn::cpu
