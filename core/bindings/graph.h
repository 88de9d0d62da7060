// A value of a graph as Python holds it: together with its graph.
#pragma once

#include <memory>

#include "core/graph/graph.h"

namespace kerascnn::bindings {

struct GraphValue {
  std::shared_ptr<Graph> graph;
  ValueId id;

  const TensorSpec& spec() const { return graph->value(id).spec; }
};

// Throws ValueError for another name than forward, backward and update.
Phase phase_from_name(std::string_view name);

// The value's number in `graph`. Throws ValueError where it belongs to another graph.
ValueId id_in(const std::shared_ptr<Graph>& graph, const GraphValue& value);
std::vector<ValueId> ids_in(const std::shared_ptr<Graph>& graph,
                            const std::vector<GraphValue>& values);

}  // namespace kerascnn::bindings
