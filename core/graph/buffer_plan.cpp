#include <algorithm>

#include "core/graph/fusion.h"
#include "core/graph/schedule.h"

namespace kerascnn {
namespace {

class BufferPlanner {
 public:
  BufferPlanner(const Schedule& schedule, const std::vector<int64_t>& workspace_bytes)
      : schedule_(schedule), graph_(schedule.graph), workspace_bytes_(workspace_bytes) {}

  BufferPlan run() {
    find_last_uses();
    plan_.value_buffers.assign(graph_.values().size(), kNoBuffer);
    for (size_t position = 0; position < schedule_.order.size(); ++position) {
      place_outputs(static_cast<int64_t>(position));
      const int64_t bytes = workspace_bytes_[position];
      plan_.workspace_buffers.push_back(bytes > 0 ? add_buffer(bytes, position, position)
                                                  : kNoBuffer);
    }
    return std::move(plan_);
  }

 private:
  ValueId root(ValueId value) const { return schedule_.roots[value]; }
  const Node& node_at(int64_t position) const { return graph_.nodes()[schedule_.order[position]]; }

  void find_last_uses() {
    last_uses_.assign(graph_.values().size(), -1);
    for (size_t position = 0; position < schedule_.order.size(); ++position) {
      for (ValueId input : node_at(position).inputs) {
        last_uses_[root(input)] = static_cast<int64_t>(position);
      }
    }
    const auto end = static_cast<int64_t>(schedule_.order.size());
    for (ValueId output : schedule_.outputs) last_uses_[root(output)] = end;
  }

  int32_t add_buffer(int64_t bytes, int64_t first, int64_t last) {
    plan_.buffers.push_back({bytes, first, last});
    return static_cast<int32_t>(plan_.buffers.size() - 1);
  }

  void place_outputs(int64_t position) {
    const Node& node = node_at(position);
    std::vector<InPlace> pairs;
    if (node.op->in_place != nullptr) {
      pairs = node.op->in_place(node.attributes, node.inputs.size());
    }
    std::vector<int32_t> taken;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId output = node.outputs[i];
      if (schedule_.home_states[output] >= 0) continue;
      if (i >= first_optional_output(node) && last_uses_[output] < 0) continue;
      const int64_t last = std::max(position, last_uses_[output]);
      int32_t buffer = find_in_place(node, position, i, pairs, taken);
      if (buffer == kNoBuffer) {
        buffer = add_buffer(num_bytes(graph_.value(output).spec), position, last);
      } else {
        taken.push_back(buffer);
        plan_.buffers[buffer].last = last;
      }
      plan_.value_buffers[output] = buffer;
    }
  }

  // The buffer of an input whose last use is this op, and that the op may overwrite with this
  // output.
  int32_t find_in_place(const Node& node, int64_t position, size_t output,
                        const std::vector<InPlace>& pairs,
                        const std::vector<int32_t>& taken) const {
    const TensorSpec& spec = graph_.value(node.outputs[output]).spec;
    for (const InPlace& pair : pairs) {
      if (pair.output != output || graph_.value(node.inputs[pair.input]).spec != spec) continue;
      const int32_t buffer = plan_.value_buffers[root(node.inputs[pair.input])];
      if (buffer == kNoBuffer || plan_.buffers[buffer].last != position) continue;
      if (std::find(taken.begin(), taken.end(), buffer) != taken.end()) continue;
      if (is_read_only_through(node, buffer, output, pairs)) return buffer;
    }
    return kNoBuffer;
  }

  // May the output overwrite every input of the node that lies in this buffer?
  bool is_read_only_through(const Node& node, int32_t buffer, size_t output,
                            const std::vector<InPlace>& pairs) const {
    const TensorSpec& spec = graph_.value(node.outputs[output]).spec;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (plan_.value_buffers[root(node.inputs[i])] != buffer) continue;
      const bool listed = std::any_of(pairs.begin(), pairs.end(), [&](const InPlace& pair) {
        return pair.input == i && pair.output == output;
      });
      if (!listed || graph_.value(node.inputs[i]).spec != spec) return false;
    }
    return true;
  }

  const Schedule& schedule_;
  const Graph& graph_;
  const std::vector<int64_t>& workspace_bytes_;
  std::vector<int64_t> last_uses_;  // by root value; -1 where nothing reads it
  BufferPlan plan_;
};

}  // namespace

BufferPlan plan_buffers(const Schedule& schedule, const std::vector<int64_t>& workspace_bytes) {
  return BufferPlanner(schedule, workspace_bytes).run();
}

}  // namespace kerascnn
