// The patterns of all backends, with kernels that run the matched nodes one by one. So patterns are
// tested on any machine, whether it has a GPU or not.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "check.h"
#include "core/backend/cpu/fusions/fusions.h"
#include "core/backend/cuda/fusions/fusions.h"
#include "core/graph/passes/passes.h"
#include "graph_testing.h"

namespace kerascnn::testing {

inline std::unique_ptr<Kernel> plan_body(const Match& match) { return match.plan_body(); }

#define KERASCNN_FUSION(name) {#name, cuda::pattern_##name, plan_body},
inline constexpr Fusion kCudaFusions[] = {KERASCNN_CUDA_FUSIONS(KERASCNN_FUSION)
                                              KERASCNN_CUDA_EXPANDED_FUSIONS(KERASCNN_FUSION)};
#undef KERASCNN_FUSION
#define KERASCNN_FUSION(name) {#name, pattern_##name, plan_body},
inline constexpr Fusion kCpuFusions[] = {KERASCNN_CPU_FUSIONS(KERASCNN_FUSION)};
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

inline RootedGraph fuse(const RootedGraph& rooted, const Fusion& fusion) {
  return fuse(rooted, {&fusion});
}

// Counts the nodes that the fusion makes, and checks that results stay the same to the bit.
inline size_t fused(const RootedGraph& rooted, const Fusion& fusion) {
  const RootedGraph joined = fuse(rooted, fusion);
  check_same_results(rooted, joined);
  return count_nodes(joined.graph, "fused");
}

// The options of the passes with all fusions of a list except those named in `without`.
inline PassOptions with_fusions(std::span<const Fusion> list,
                                const std::vector<std::string_view>& without = {}) {
  // PassOptions only holds a span, so the lists have to stay alive.
  static std::deque<std::vector<const Fusion*>> kept;
  std::vector<const Fusion*>& fusions = kept.emplace_back();
  for (const Fusion& fusion : list) {
    if (std::find(without.begin(), without.end(), fusion.name) == without.end()) {
      fusions.push_back(&fusion);
    }
  }
  PassOptions options;
  options.backend = &backend(Device{});
  options.fusions = fusions;
  return options;
}

inline PassOptions with_cuda_fusions(const std::vector<std::string_view>& without = {}) {
  return with_fusions(kCudaFusions, without);
}

inline size_t count_fused(const Graph& graph, std::string_view fusion) {
  size_t count = 0;
  for (const Node& node : graph.nodes()) {
    count += node.op == &op_fused && node.attributes.get_string("fusion") == fusion ? 1 : 0;
  }
  return count;
}

// Runs the nodes of a match and claims to make three partial sums. Where a later kernel adds them
// up, the first one holds the result and the other two are 0.
class ThreeSums final : public Kernel {
 public:
  ThreeSums(std::shared_ptr<Kernel> nodes, std::vector<int64_t> bytes, bool leaves = false)
      : nodes_(std::move(nodes)), bytes_(std::move(bytes)), leaves_(leaves) {}

  void run(const KernelArgs& args) override {
    nodes_->run(args);
    for (size_t i = 0; leaves_ && i < bytes_.size(); ++i) {
      if (args.outputs[i] == nullptr) continue;
      std::memset(static_cast<char*>(args.outputs[i]) + bytes_[i], 0, 2 * bytes_[i]);
    }
  }
  int64_t workspace_bytes() const override { return nodes_->workspace_bytes(); }
  std::string description() const override { return "three sums"; }
  int64_t num_partial_sums() const override { return 3; }
  std::unique_ptr<Kernel> leave_partial_sums() const override {
    return std::make_unique<ThreeSums>(nodes_, bytes_, true);
  }

 private:
  std::shared_ptr<Kernel> nodes_;
  std::vector<int64_t> bytes_;
  bool leaves_;
};

inline std::unique_ptr<Kernel> plan_three_sums(const Match& match) {
  std::vector<int64_t> bytes;
  for (const TensorSpec& output : match.request().outputs) bytes.push_back(num_bytes(output));
  return std::make_unique<ThreeSums>(match.plan_body(), std::move(bytes));
}

}  // namespace kerascnn::testing
