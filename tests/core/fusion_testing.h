// The patterns of CUDA with kernels that run the matched nodes, so that they are tested on any
// machine.
#pragma once

#include <algorithm>
#include <vector>

#include "check.h"
#include "core/backend/cuda/fusions/fusions.h"
#include "core/graph/passes/passes.h"

namespace kerascnn::testing {

inline std::unique_ptr<Kernel> plan_body(const Match& match) { return match.plan_body(); }

#define KERASCNN_FUSION(name) {#name, cuda::pattern_##name, plan_body},
inline constexpr Fusion kCudaFusions[] = {KERASCNN_CUDA_FUSIONS(KERASCNN_FUSION)};
#undef KERASCNN_FUSION
inline const Fusion& cuda_fusion(std::string_view name) {
  const auto* found = std::find_if(std::begin(kCudaFusions), std::end(kCudaFusions),
                                   [&](const Fusion& fusion) { return fusion.name == name; });
  CHECK(found != std::end(kCudaFusions));
  return *found;
}

inline RootedGraph fuse(const RootedGraph& rooted, const std::vector<const Fusion*>& fusions) {
  PassOptions options;
  options.backend = &backend(Device{});
  options.fusions = fusions;
  return eliminate_dead_code(apply_fusions(eliminate_dead_code(rooted), options));
}

// All of them but these.
inline PassOptions with_cuda_fusions(const std::vector<std::string_view>& without = {}) {
  static std::vector<std::vector<const Fusion*>> kept;  // what spans are of
  kept.reserve(64);
  std::vector<const Fusion*>& fusions = kept.emplace_back();
  for (const Fusion& fusion : kCudaFusions) {
    if (std::find(without.begin(), without.end(), fusion.name) == without.end()) {
      fusions.push_back(&fusion);
    }
  }
  PassOptions options;
  options.backend = &backend(Device{});
  options.fusions = fusions;
  return options;
}

inline size_t count_fused(const Graph& graph, std::string_view fusion) {
  size_t count = 0;
  for (const Node& node : graph.nodes()) {
    count += node.op == &op_fused && node.attributes.get_string("fusion") == fusion ? 1 : 0;
  }
  return count;
}

}  // namespace kerascnn::testing
