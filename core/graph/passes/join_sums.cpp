// Joins small sums over processes, whose messages cost their latency: those that batch
// normalization takes of each layer's moments. All processes must send the same messages. So only
// calls that say so (`joins`) are joined, and what may differ between processes, which is their
// scale, must be the same for all such calls of a process.
#include <algorithm>
#include <map>
#include <optional>

#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

// A message of more bytes takes longer than its latency.
constexpr int64_t kSmallBytes = 256 << 10;

// Nodes whose inputs go in one message.
struct Message {
  std::vector<int32_t> nodes;
  int64_t bytes = 0;
};

bool may_be_joined(const Node& node) {
  return node.op == &op_all_reduce && node.attributes.has("joins") &&
         node.attributes.get_bool("joins");
}

int64_t message_bytes(const Graph& graph, const Node& node) {
  int64_t bytes = 0;
  for (ValueId id : node.inputs) bytes += num_bytes(graph.value(id).spec);
  return bytes;
}

// Finds the messages. Those that are still open take further nodes; no node that joins depends on
// any of them, so that none waits for itself.
class Messages {
 public:
  explicit Messages(const Graph& graph) : graph_(graph), waits_(graph.values().size(), false) {
    for (int32_t i = 0; i < static_cast<int32_t>(graph.nodes().size()); ++i) add(i);
  }

  const std::vector<Message>& all() const { return all_; }

 private:
  void add(int32_t index) {
    const Node& node = graph_.nodes()[index];
    bool waits = std::ranges::any_of(node.inputs, [&](ValueId id) { return waits_[id]; });
    const int64_t bytes = message_bytes(graph_, node);
    if (may_be_joined(node) && bytes <= kSmallBytes) {
      if (waits) close();
      join(index, bytes);
      waits = true;
    }
    for (ValueId id : node.outputs) waits_[id] = waits;
  }

  void close() {
    open_.clear();
    waits_.assign(waits_.size(), false);
  }

  void join(int32_t index, int64_t bytes) {
    const Node& node = graph_.nodes()[index];
    const DType dtype = graph_.value(node.inputs[0]).spec.dtype;
    const std::string key = message(node_key(node, {}), " ", dtype_name(dtype));
    auto found = open_.find(key);
    if (found == open_.end() || all_[found->second].bytes + bytes > kSmallBytes) {
      found = open_.insert_or_assign(key, all_.size()).first;
      all_.emplace_back();
    }
    Message& joined = all_[found->second];
    joined.nodes.push_back(index);
    joined.bytes += bytes;
  }

  const Graph& graph_;
  std::vector<bool> waits_;             // by value: does it depend on a message that is open?
  std::map<std::string, size_t> open_;  // by what the calls must have in common
  std::vector<Message> all_;
};

// Writes the graph with the messages, each in the place of its last node. What reads a result of an
// earlier node comes behind it.
class Joining {
 public:
  Joining(const RootedGraph& source, const std::vector<Message>& messages)
      : graph_(source.graph), rewriter_(source), message_of_(graph_.nodes().size(), nullptr) {
    for (const Message& message : messages) {
      if (message.nodes.size() == 1) continue;
      for (int32_t node : message.nodes) message_of_[node] = &message;
    }
    is_late_.resize(graph_.values().size(), false);
  }

  RootedGraph run() {
    for (int32_t i = 0; i < static_cast<int32_t>(graph_.nodes().size()); ++i) {
      const Node& node = graph_.nodes()[i];
      if (message_of_[i] == nullptr) {
        if (!write(node)) postpone(node);
        continue;
      }
      for (ValueId id : node.outputs) is_late_[id] = true;
      if (i == message_of_[i]->nodes.back()) send(*message_of_[i]);
    }
    return rewriter_.finish();
  }

 private:
  // False for a node that has to wait.
  bool write(const Node& node) {
    if (std::ranges::any_of(node.inputs, [&](ValueId id) { return is_late_[id]; })) return false;
    rewriter_.copy(node);
    return true;
  }

  void postpone(const Node& node) {
    for (ValueId id : node.outputs) is_late_[id] = true;
    postponed_.push_back(&node);
  }

  void send(const Message& message) {
    std::vector<ValueId> inputs, results;
    for (int32_t index : message.nodes) {
      const Node& node = graph_.nodes()[index];
      inputs.insert(inputs.end(), node.inputs.begin(), node.inputs.end());
      results.insert(results.end(), node.outputs.begin(), node.outputs.end());
    }
    const Node& first = graph_.nodes()[message.nodes.front()];
    rewriter_.replace(results, rewriter_.apply(op_all_reduce, rewriter_.map(inputs),
                                               first.attributes, first.scope));
    for (ValueId id : results) is_late_[id] = false;
    std::erase_if(postponed_, [&](const Node* node) {
      if (!write(*node)) return false;
      for (ValueId id : node->outputs) is_late_[id] = false;
      return true;
    });
  }

  const Graph& graph_;
  GraphRewriter rewriter_;
  std::vector<const Message*> message_of_;  // by node; null for those that stay as they are
  std::vector<bool> is_late_;               // by value: is it not there yet?
  std::vector<const Node*> postponed_;      // in the order of the graph
};

}  // namespace

RootedGraph join_sums(const RootedGraph& source) {
  const Messages messages(source.graph);
  if (std::ranges::all_of(messages.all(), [](const Message& m) { return m.nodes.size() == 1; })) {
    return source;
  }
  return Joining(source, messages.all()).run();
}

}  // namespace kerascnn
