#include "core/inference/build_graph.h"

#include <functional>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/graph/body.h"

namespace kerascnn::inference {
namespace {

// The value of a source in a graph, which is asked for anew in each.
using MakeSource = std::function<ValueId(Graph& graph, const Source& source)>;

template <typename T>
Tensor range_of(const TensorSpec& spec, T start, T step) {
  Tensor result = Tensor::empty(spec, Device{});
  T* const data = static_cast<T*>(result.data());
  // As NumPy computes it: whole numbers wrap around.
  for (int64_t i = 0; i < result.size(); ++i) {
    if constexpr (std::is_integral_v<T>) {
      using Bits = std::make_unsigned_t<T>;
      data[i] =
          static_cast<T>(static_cast<Bits>(i) * static_cast<Bits>(step) + static_cast<Bits>(start));
    } else {
      data[i] = static_cast<T>(i) * step + start;
    }
  }
  return result;
}

Tensor make_range(const Source& source, const AxisSizes& sizes) {
  const TensorSpec spec = source.spec.at(sizes);
  const int64_t whole = source.start.at(sizes);
  const double start = source.real_start != 0 ? source.real_start : static_cast<double>(whole);
  switch (spec.dtype) {
    case DType::Int32:
      return range_of(spec, static_cast<int32_t>(static_cast<int64_t>(start)),
                      static_cast<int32_t>(static_cast<int64_t>(source.step)));
    case DType::Int64:
      return range_of(spec, source.real_start != 0 ? static_cast<int64_t>(start) : whole,
                      static_cast<int64_t>(source.step));
    case DType::Float32:
      return range_of(spec, static_cast<float>(start), static_cast<float>(source.step));
    default:
      return range_of(spec, start, source.step);
  }
}

Tensor make_triangle(const Source& source, const AxisSizes& sizes) {
  const TensorSpec spec = source.spec.at(sizes);
  const int64_t rows = spec.shape[source.row_axis], columns = spec.shape[source.column_axis];
  if (rows * columns != num_elements(spec.shape)) {
    throw ValueError("a triangle has more than two axes");
  }
  Tensor result = Tensor::empty(spec, Device{});
  bool* element = static_cast<bool*>(result.data());
  const int64_t offset = source.start.at(sizes);
  for (int64_t row = 0; row < rows; ++row) {
    // Compared so that no offset of a file overflows.
    for (int64_t column = 0; column < columns; ++column) *element++ = column - row <= offset;
  }
  return result;
}

ValueId full(Graph& graph, const Source& source, const AxisSizes& sizes, ValueId element) {
  const TensorSpec spec = source.spec.at(sizes);
  const TensorSpec& given = graph.value(element).spec;
  if (given != TensorSpec{spec.dtype, {}}) {
    throw ValueError(
        message("an array of one ", dtype_name(spec.dtype), " is ", spec_string(given)));
  }
  return graph.apply("broadcast_to", {element}, {{"shape", spec.shape}})[0];
}

class Builder {
 public:
  Builder(const AxisSizes& sizes, MakeSource make_source)
      : sizes_(sizes), make_source_(std::move(make_source)) {}

  // The graph has the file's inputs, which are these values.
  std::vector<ValueId> add(Graph& graph, const GraphFile& file, std::vector<ValueId> values) const {
    for (const Source& source : file.sources) values.push_back(make_source_(graph, source));
    for (const NodeFile& node : file.nodes) add_node(graph, node, values);
    return numbered(values, file.outputs);
  }

 private:
  static std::vector<ValueId> numbered(const std::vector<ValueId>& values,
                                       const std::vector<ValueId>& numbers) {
    std::vector<ValueId> result;
    result.reserve(numbers.size());
    for (const ValueId number : numbers) result.push_back(values.at(number));
    return result;
  }

  void add_node(Graph& graph, const NodeFile& node, std::vector<ValueId>& values) const {
    Attributes attributes;
    for (const auto& [name, value] : node.attributes)
      attributes.set(name, std::visit(*this, value));
    if (!node.layer.empty()) graph.push_scope(node.layer);
    const std::vector<ValueId> results =
        graph.apply(*node.op, numbered(values, node.inputs), attributes);
    if (!node.layer.empty()) graph.pop_scope();
    if (results.size() != node.num_outputs) {
      throw ValueError(message(node.op->name, ": it has ", results.size(),
                               " outputs, and the file says ", node.num_outputs));
    }
    values.insert(values.end(), results.begin(), results.end());
  }

 public:  // for std::visit: the attribute for the sizes
  Attribute operator()(bool value) const { return value; }
  Attribute operator()(double value) const { return value; }
  Attribute operator()(const std::string& value) const { return value; }
  Attribute operator()(const std::vector<double>& values) const { return values; }
  Attribute operator()(const Extent& extent) const { return extent.at(sizes_); }
  Attribute operator()(const Extents& extents) const { return at(extents, sizes_); }
  Attribute operator()(const BodyFiles& files) const {
    Bodies bodies;
    for (const auto& file : files) {
      auto body = std::make_shared<Body>();
      body->graph = std::make_shared<Graph>();
      for (size_t i = 0; i < file->inputs.size(); ++i) {
        body->inputs.push_back(
            file->is_read[i] ? body->graph->input(message("input_", i), file->inputs[i].at(sizes_))
                             : kNoValue);
      }
      body->outputs = add(*body->graph, *file, body->inputs);
      bodies.push_back(std::move(body));
    }
    return bodies;
  }

 private:
  const AxisSizes& sizes_;
  MakeSource make_source_;
};

RootedGraph build(const ModelFile& model, const AxisSizes& sizes,
                  const std::vector<DType>& input_dtypes, MakeSource make_source) {
  RootedGraph result;
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < model.graph.inputs.size(); ++i) {
    TensorSpec spec = model.graph.inputs[i].at(sizes);
    const DType wanted = std::exchange(spec.dtype, input_dtypes.at(i));
    ValueId id = result.graph.input(model.input_names[i], spec);
    if (spec.dtype != wanted) {
      id = result.graph.apply("cast", {id}, {{"dtype", std::string(dtype_name(wanted))}})[0];
    }
    inputs.push_back(id);
  }
  result.outputs = Builder(sizes, std::move(make_source)).add(result.graph, model.graph, inputs);
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const TensorSpec expected = model.outputs[i].at(sizes);
    const TensorSpec& found = result.graph.value(result.outputs[i]).spec;
    if (found != expected) {
      throw ValueError(message("output \"", model.output_names[i], "\" is ", spec_string(found),
                               ", and the file says ", spec_string(expected)));
    }
  }
  return result;
}

template <typename Map>
const typename Map::mapped_type& found_in(const Map& arrays, const std::string& name) {
  const auto found = arrays.find(name);
  if (found == arrays.end()) throw ValueError(message("there is no array \"", name, "\""));
  return found->second;
}

}  // namespace

RootedGraph build_graph(const ModelFile& model, const AxisSizes& sizes,
                        const std::vector<DType>& input_dtypes, const Arrays& arrays) {
  return build(model, sizes, input_dtypes, [&](Graph& graph, const Source& source) {
    switch (source.kind) {
      case Source::Kind::Weight:
        return graph.read(found_in(arrays.weights, source.array));
      case Source::Kind::Constant:
        return graph.constant(found_in(arrays.constants, source.array));
      case Source::Kind::Full:
        return full(graph, source, sizes, graph.constant(found_in(arrays.constants, source.array)));
      case Source::Kind::Range:
        return graph.constant(make_range(source, sizes));
      case Source::Kind::Triangle:
        return graph.constant(make_triangle(source, sizes));
    }
    throw ValueError("a value of no kind");
  });
}

void check_graph(const ModelFile& model, const ArraySpecs& arrays) {
  std::vector<DType> dtypes;
  for (const OpenSpec& input : model.graph.inputs) dtypes.push_back(input.dtype);
  build(model, model.examples, dtypes, [&](Graph& graph, const Source& source) {
    using Kind = Source::Kind;
    if (source.kind == Kind::Range || source.kind == Kind::Triangle) {
      return graph.input("", source.spec.at(model.examples));
    }
    const ValueId array = graph.input(source.array, found_in(arrays, source.array));
    return source.kind == Kind::Full ? full(graph, source, model.examples, array) : array;
  });
}

}  // namespace kerascnn::inference
