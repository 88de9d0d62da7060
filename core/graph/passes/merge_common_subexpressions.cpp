#include <string>
#include <unordered_map>

#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"

namespace kerascnn {
namespace {

// Larger constants are not compared.
constexpr int64_t kMaxComparedBytes = 4096;

std::string constant_key(const Tensor& tensor) {
  std::string bytes(static_cast<size_t>(tensor.bytes()), '\0');
  tensor.copy_to_host(bytes.data());
  return spec_string(tensor.spec()) + '|' + bytes;
}

}  // namespace

RootedGraph merge_common_subexpressions(const RootedGraph& source) {
  const Graph& graph = source.graph;
  GraphRewriter rewriter(source);
  std::unordered_map<std::string, ValueId> constants;
  for (size_t id = 0; id < graph.values().size(); ++id) {
    const Value& value = graph.values()[id];
    if (value.kind != ValueKind::Constant) continue;
    const Tensor& tensor = graph.constants()[value.source];
    if (tensor.bytes() > kMaxComparedBytes) continue;
    const auto [found, is_new] = constants.try_emplace(constant_key(tensor), kNoValue);
    if (is_new) found->second = rewriter.map(static_cast<ValueId>(id));
    rewriter.replace(static_cast<ValueId>(id), found->second);
  }
  std::unordered_map<std::string, std::vector<ValueId>> known;  // to outputs in the target
  for (const Node& node : graph.nodes()) {
    if (node.op->is_stateful) {
      rewriter.copy(node);
      continue;
    }
    const auto [found, is_new] = known.try_emplace(node_key(node, rewriter.map(node.inputs)));
    if (is_new) {
      rewriter.copy(node);
      found->second = rewriter.map(node.outputs);
    } else {
      rewriter.replace(node.outputs, found->second);
    }
  }
  return rewriter.finish();
}

}  // namespace kerascnn
