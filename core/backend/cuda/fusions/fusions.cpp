#include "core/backend/cuda/fusions/fusions.h"

namespace kerascnn::cuda {

#define KERASCNN_FUSION(name) \
  static constexpr Fusion fused_##name{#name, pattern_##name, plan_fused_##name};
KERASCNN_CUDA_FUSIONS(KERASCNN_FUSION)
#undef KERASCNN_FUSION
#define KERASCNN_FUSION(name) \
  static constexpr Fusion fused_##name{#name, pattern_##name, plan_fused_##name, nullptr, true};
KERASCNN_CUDA_EXPANDED_FUSIONS(KERASCNN_FUSION)
#undef KERASCNN_FUSION

std::span<const Fusion* const> fusions() {
#define KERASCNN_FUSION_ADDRESS(name) &fused_##name,
  static constexpr const Fusion* all[] = {KERASCNN_CUDA_FUSIONS(
      KERASCNN_FUSION_ADDRESS) KERASCNN_CUDA_EXPANDED_FUSIONS(KERASCNN_FUSION_ADDRESS)};
#undef KERASCNN_FUSION_ADDRESS
  return all;
}

}  // namespace kerascnn::cuda
