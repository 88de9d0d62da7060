#include "core/bindings/graph.h"

#include "core/base/error.h"
#include "core/bindings/bindings.h"

namespace kerascnn::bindings {
namespace {

using GraphPtr = std::shared_ptr<Graph>;

TensorSpec spec_of(const Shape& shape, const std::string& dtype) {
  return {dtype_from_name(dtype), shape};
}

std::vector<GraphValue> apply_in(const GraphPtr& graph, const std::string& op,
                                 const std::vector<GraphValue>& inputs,
                                 const AttributeMap& attributes) {
  std::vector<GraphValue> outputs;
  for (const ValueId id : graph->apply(op, ids_in(graph, inputs), to_attributes(attributes))) {
    outputs.push_back({graph, id});
  }
  return outputs;
}

std::vector<ValueId> maybe_ids_in(const GraphPtr& graph,
                                  const std::vector<std::optional<GraphValue>>& values) {
  std::vector<ValueId> ids;
  for (const auto& value : values) ids.push_back(value ? id_in(graph, *value) : kNoValue);
  return ids;
}

std::vector<std::optional<GraphValue>> values_in(const GraphPtr& graph,
                                                 const std::vector<ValueId>& ids) {
  std::vector<std::optional<GraphValue>> values;
  for (const ValueId id : ids) {
    values.push_back(id == kNoValue ? std::nullopt : std::optional(GraphValue{graph, id}));
  }
  return values;
}

std::vector<std::optional<GraphValue>> gradients_in(const GraphPtr& graph, const GraphValue& loss,
                                                    const std::vector<GraphValue>& wrt) {
  return values_in(graph, graph->gradients(id_in(graph, loss), ids_in(graph, wrt)));
}

using Spans = std::vector<std::pair<ValueId, ValueId>>;
using Watched = std::vector<std::pair<GraphValue, ValueId>>;

std::vector<std::optional<GraphValue>> gradients_of(
    const GraphPtr& graph, const std::vector<GraphValue>& targets,
    const std::vector<std::optional<GraphValue>>& output_gradients,
    const std::vector<std::vector<GraphValue>>& sources, const Spans& spans,
    const Watched& watched) {
  GraphTape tape;
  for (const auto& [first, last] : spans) tape.spans.push_back({first, last});
  for (const auto& [value, since] : watched) tape.watched.push_back({id_in(graph, value), since});
  std::vector<std::vector<ValueId>> source_ids;
  for (const auto& values : sources) source_ids.push_back(ids_in(graph, values));
  return values_in(graph,
                   graph->gradients(ids_in(graph, targets), maybe_ids_in(graph, output_gradients),
                                    source_ids, &tape));
}

std::vector<std::optional<GraphValue>> with_own_gradient(const GraphPtr& graph,
                                                         const std::vector<GraphValue>& inputs,
                                                         const std::vector<GraphValue>& outputs,
                                                         nb::callable gradient) {
  const auto own = [gradient](Graph& here, const std::vector<ValueId>& output_gradients) {
    // The graph holds the function, so the function must not hold the graph: Python's object is
    // looked up.
    const GraphPtr graph = nb::cast<GraphPtr>(nb::find(here));
    const nb::object given = nb::cast(values_in(graph, output_gradients));
    return maybe_ids_in(graph, nb::cast<std::vector<std::optional<GraphValue>>>(gradient(given)));
  };
  return values_in(graph,
                   graph->with_own_gradient(ids_in(graph, inputs), ids_in(graph, outputs), own));
}

nb::tuple cut_part(const GraphPtr& graph, size_t first_node,
                   const std::vector<std::optional<GraphValue>>& outputs) {
  GraphPart part = cut_from(*graph, first_node, maybe_ids_in(graph, outputs));
  const auto own = std::make_shared<Graph>(std::move(part.graph));
  return nb::make_tuple(nb::cast(own), nb::cast(values_in(graph, part.inputs)),
                        nb::cast(values_in(own, part.outputs)));
}

}  // namespace

ValueId id_in(const GraphPtr& graph, const GraphValue& value) {
  return value.graph == graph ? value.id : graph->capture(value.graph, value.id);
}

std::vector<ValueId> ids_in(const GraphPtr& graph, const std::vector<GraphValue>& values) {
  std::vector<ValueId> ids;
  ids.reserve(values.size());
  for (const GraphValue& value : values) ids.push_back(id_in(graph, value));
  return ids;
}

namespace {

BodyPtr make_body(const GraphPtr& graph, const std::vector<std::optional<GraphValue>>& inputs,
                  const std::vector<GraphValue>& outputs) {
  return std::make_shared<Body>(Body{graph, maybe_ids_in(graph, inputs), ids_in(graph, outputs)});
}

nb::list captured(const GraphPtr& graph) {
  nb::list result;
  for (const auto& [outer, inner] : graph->captured()) {
    result.append(nb::make_tuple(outer, GraphValue{graph, inner}));
  }
  return result;
}

nb::list nodes_of(const GraphPtr& graph) {
  nb::list result;
  for (const Node& node : graph->nodes()) {
    nb::dict attributes;
    for (const auto& [name, value] : node.attributes.entries()) {
      attributes[nb::cast(name)] = nb::cast(value);
    }
    result.append(nb::make_tuple(std::string(node.op->name), attributes, node.inputs, node.outputs,
                                 node.scope.path));
  }
  return result;
}

nb::tuple origin_of(const GraphPtr& graph, const GraphValue& value) {
  const Value& known = graph->value(id_in(graph, value));
  switch (known.kind) {
    case ValueKind::Input:
      return nb::make_tuple("input", known.source);
    case ValueKind::State:
      return nb::make_tuple("state", graph->states()[known.source]);
    case ValueKind::Constant:
      return nb::make_tuple("constant", graph->constants()[known.source]);
    case ValueKind::Result:
      break;
  }
  return nb::make_tuple("result", known.source);
}

std::optional<ValueId> alias_of(const GraphPtr& graph, const GraphValue& value) {
  const ValueId same = graph->value(id_in(graph, value)).same_as;
  return same == kNoValue ? std::nullopt : std::optional(same);
}

nb::list bound_states(const GraphPtr& graph) {
  nb::list result;
  for (const auto& [variable, outer, inner, last] : graph->bound_states()) {
    result.append(
        nb::make_tuple(variable, outer, GraphValue{graph, inner}, GraphValue{graph, last}));
  }
  return result;
}

}  // namespace

void bind_graph(nb::module_& m) {
  nb::class_<Graph> graph(m, "Graph", nb::is_weak_referenceable(), "A traced computation.");
  nb::class_<GraphValue>(m, "Value", nb::is_weak_referenceable(),
                         "A value of a traced computation, with static shape and dtype.")
      .def_prop_ro("shape", [](const GraphValue& v) { return to_tuple(v.spec().shape); })
      .def_prop_ro("dtype", [](const GraphValue& v) { return dtype_name(v.spec().dtype); })
      .def_prop_ro("ndim", [](const GraphValue& v) { return v.spec().shape.size(); })
      .def_prop_ro("graph", [](const GraphValue& v) { return v.graph; })
      .def_prop_ro("id", [](const GraphValue& v) { return v.id; });

  nb::class_<Body>(m, "Body", "A graph that a node owns, with the inputs that it is given.")
      .def(nb::new_(&make_body), nb::arg("graph"), nb::arg("inputs"), nb::arg("outputs"))
      .def_prop_ro("graph", [](const Body& body) { return body.graph; })
      .def_prop_ro(
          "inputs", [](const Body& body) { return body.inputs; },
          "Which values of the graph the node's stand for, -1 for one that is not read.")
      .def_prop_ro("outputs", [](const Body& body) { return body.outputs; })
      .def("to_string", [](const Body& body) { return body.graph->to_string(); });

  graph
      .def(nb::new_([](const std::shared_ptr<Graph>& parent) {
             return parent ? std::make_shared<Graph>(parent) : std::make_shared<Graph>();
           }),
           nb::arg("parent") = nb::none(),
           "With a parent: of a body, which may read the parent's values.")
      .def(
          "bind",
          [](const GraphPtr& g, const VariablePtr& variable, ValueId outer) {
            g->bind(variable, outer);
          },
          nb::arg("variable"), nb::arg("outer"),
          "From now on this value of the parent is the variable's before the body.")
      .def("knows", &Graph::knows, nb::arg("variable"))
      .def_prop_ro("captured", &captured, nb::sig("def captured(self) -> list[tuple[int, Value]]"),
                   "What inputs of a body stand for: the number of the parent's value.")
      .def_prop_ro("bound_states", &bound_states,
                   nb::sig("def bound_states(self) -> list[tuple[Variable, int, Value, Value]]"),
                   "Of a body, for each variable: the number of the parent's value, the input that "
                   "stands for it, and the value at the end.")
      .def(
          "input",
          [](const GraphPtr& g, std::string name, const Shape& shape, const std::string& dtype) {
            return GraphValue{g, g->input(std::move(name), spec_of(shape, dtype))};
          },
          nb::arg("name"), nb::arg("shape"), nb::arg("dtype"))
      .def(
          "constant",
          [](const GraphPtr& g, const Tensor& value) { return GraphValue{g, g->constant(value)}; },
          nb::arg("value"))
      .def(
          "full",
          [](const GraphPtr& g, const Shape& shape, const std::string& dtype, double value) {
            return GraphValue{g, g->full(spec_of(shape, dtype), value)};
          },
          nb::arg("shape"), nb::arg("dtype"), nb::arg("value"))
      .def("apply", &apply_in, nb::arg("op"), nb::arg("inputs"), nb::arg("attrs") = AttributeMap{},
           nb::sig("def apply(self, op: str, inputs: collections.abc.Sequence[Value], "
                   "attrs: " KERASCNN_ATTRIBUTES_TYPE " = {}) -> list[Value]"))
      .def(
          "read", [](const GraphPtr& g, const VariablePtr& v) { return GraphValue{g, g->read(v)}; },
          nb::arg("variable"), "The variable's value at this point of the trace.")
      .def(
          "inside",
          [](const GraphPtr& g, const GraphValue& value) { return GraphValue{g, id_in(g, value)}; },
          nb::arg("value"),
          "The value itself; of a value of a graph around, the input of this body that stands for "
          "it.")
      .def(
          "reading",
          [](const GraphPtr& g, const VariablePtr& v) { return GraphValue{g, g->reading(v)}; },
          nb::arg("variable"),
          "The same as a value of its own, which gradients can be taken by and end at.")
      .def(
          "variable_of",
          [](const GraphPtr& g, const GraphValue& value) {
            return g->variable_of(id_in(g, value));
          },
          nb::arg("value"), "The variable that the value is a reading of, or None.",
          nb::sig("def variable_of(self, value: Value) -> Variable | None"))
      .def(
          "assign",
          [](const GraphPtr& g, const VariablePtr& variable, const GraphValue& value) {
            g->assign(variable, id_in(g, value));
          },
          nb::arg("variable"), nb::arg("value"), "Written to the variable when the step ends.")
      .def("gradients", &gradients_in, nb::arg("loss"), nb::arg("wrt"),
           "d loss / d value for each of `wrt`; None where the loss does not depend on it.")
      .def("gradients_of", &gradients_of, nb::arg("targets"), nb::arg("output_gradients"),
           nb::arg("sources"), nb::arg("spans"), nb::arg("watched"),
           "The gradient by each source, a list of values, of several targets of any shape with "
           "their gradients, None for ones. It goes through the calls in `spans`, pairs of "
           "`num_values` before and after them, whose inputs follow from `watched`, pairs of a "
           "value and the `num_values` from which on it is followed.")
      .def("with_own_gradient", &with_own_gradient, nb::arg("inputs"), nb::arg("outputs"),
           nb::arg("gradient"),
           "The outputs again; `gradient` makes gradients of the inputs from theirs.")
      .def("cut_from", &cut_part, nb::arg("first_node"), nb::arg("outputs"),
           nb::sig("def cut_from(self, first_node: int, outputs: collections.abc.Sequence[Value | "
                   "None]) -> tuple[Graph, list[Value | None], list[Value | None]]"),
           "A graph of what the outputs need of the nodes from `first_node` on, the values of this "
           "graph that are its inputs, and the outputs in it.")
      .def("forget_own_gradients", &Graph::forget_own_gradients)
      .def("copy",
           [](const GraphPtr& g) {
             const auto copy = std::make_shared<Graph>(*g);
             copy->forget_own_gradients();
             return copy;
           })
      .def(
          "value", [](const GraphPtr& g, ValueId id) { return GraphValue{g, id}; }, nb::arg("id"))
      .def_prop_ro("num_values", [](const GraphPtr& g) { return g->values().size(); })
      .def_prop_ro("num_nodes", [](const GraphPtr& g) { return g->nodes().size(); })
      .def("push_scope", &Graph::push_scope, nb::arg("name"))
      .def("pop_scope", &Graph::pop_scope)
      .def_prop_ro("in_scope", &Graph::in_scope)
      .def_prop_rw(
          "phase",
          [](const GraphPtr& g) {
            return Scope{.path = "", .phases = static_cast<uint8_t>(g->phase())}.phase();
          },
          [](const GraphPtr& g, const std::string& phase) { g->set_phase(phase_from_name(phase)); },
          "The part of a step that nodes to come belong to: forward, backward or update.")
      .def_prop_ro("states", &Graph::states, nb::rv_policy::copy,
                   "The variables that are read or assigned.")
      .def_prop_ro("nodes", &nodes_of,
                   nb::sig("def nodes(self) -> list[tuple[str, dict[str, Any], list[int], "
                           "list[int], str]]"),
                   "The calls in order: op, attributes, inputs, outputs, layer.")
      .def("origin", &origin_of, nb::arg("value"),
           nb::sig("def origin(self, value: Value) -> tuple[str, Any]"),
           "Where a value comes from: (\"input\", number), (\"state\", variable), "
           "(\"constant\", tensor) or (\"result\", number of the call).")
      .def("alias", &alias_of, nb::arg("value"),
           "The number of the value that a reading of a variable is equal to, or None.")
      .def("to_string", &Graph::to_string);
}

}  // namespace kerascnn::bindings
