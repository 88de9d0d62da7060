#include "core/inference/graph_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "core/base/shape.h"
#include "core/ops/definitions.h"

namespace kerascnn::inference {
namespace {

// As many values as a graph may have: each takes memory when the graph is built.
constexpr uint32_t kMaxValues = 1 << 20;
constexpr uint32_t kMaxAxes = 8;

// Calls function(); an error that leaves it begins with `where`.
template <typename Function>
decltype(auto) in(const std::string& where, Function&& function) {
  try {
    return function();
  } catch (const Error& error) {
    throw ValueError(message(where, ": ", error.what()));
  }
}

int64_t checked(bool overflows, int64_t result) {
  if (overflows) throw ValueError("a size is larger than 64 bits hold");
  return result;
}

int64_t times(int64_t a, int64_t b) {
  int64_t result;
  const bool overflows = __builtin_mul_overflow(a, b, &result);
  return checked(overflows, result);
}

int64_t plus(int64_t a, int64_t b) {
  int64_t result;
  const bool overflows = __builtin_add_overflow(a, b, &result);
  return checked(overflows, result);
}

// Reads the parts of a model; it knows how many axes there are.
class Reader {
 public:
  explicit Reader(size_t num_axes) : num_axes_(num_axes) {}

  Extent extent(const Json& json) const {
    Extent result;
    if (json.is_whole()) {
      result.number = json.whole();
      return result;
    }
    if (!json.is_map()) throw ValueError("a size is neither a whole number nor one of open axes");
    for (const Json& term : json.at("size").list()) {
      const JsonList& parts = term.list();
      if (parts.empty()) throw ValueError("a term of a size has no factor");
      Extent::Term read{parts[0].whole(), {}};
      for (size_t i = 1; i < parts.size(); ++i) read.axes.push_back(below(parts[i], num_axes_));
      if (read.axes.empty()) {
        result.number = plus(result.number, read.factor);
      } else {
        result.terms.push_back(std::move(read));
      }
    }
    return result;
  }

  Extents extents(const Json& json) const {
    Extents result;
    for (const Json& each : json.list()) result.push_back(extent(each));
    return result;
  }

  OpenSpec spec(const Json& json) const {
    OpenSpec result{in("dtype", [&] { return dtype_from_name(json.at("dtype").text()); }),
                    in("shape", [&] { return extents(json.at("shape")); })};
    if (result.shape.size() > kMaxRank) {
      throw ValueError(
          message("shape: ", result.shape.size(), " axes, of which there may be ", kMaxRank));
    }
    return result;
  }

  // The inputs are there; their values are the first ones.
  void read_graph(const Json& json, GraphFile& graph, bool is_body) const {
    read_each(json, "values",
              [&](const Json& each) { graph.sources.push_back(source(each, is_body)); });
    size_t num_values = graph.inputs.size() + graph.sources.size();
    read_each(json, "nodes", [&](const Json& each) {
      graph.nodes.push_back(node(each, graph, num_values));
      num_values += graph.nodes.back().num_outputs;
      if (num_values > kMaxValues) throw ValueError(message("more than ", kMaxValues, " values"));
    });
    graph.outputs = in("outputs", [&] { return values(json.at("outputs"), graph, num_values); });
  }

 private:
  template <typename Function>
  static void read_each(const Json& json, const char* name, const Function& function) {
    const JsonList& list = in(name, [&]() -> const JsonList& { return json.at(name).list(); });
    for (size_t i = 0; i < list.size(); ++i) {
      in(message(name, "[", i, "]"), [&] { function(list[i]); });
    }
  }

  static uint32_t below(const Json& json, size_t end) {
    const int64_t number = json.whole();
    if (number < 0 || static_cast<uint64_t>(number) >= end) {
      throw ValueError(message("there is no number ", number, " of ", end));
    }
    return static_cast<uint32_t>(number);
  }

  static std::vector<ValueId> values(const Json& json, const GraphFile& graph, size_t end) {
    std::vector<ValueId> result;
    for (const Json& each : json.list()) {
      const uint32_t id = below(each, end);
      if (id < graph.is_read.size() && !graph.is_read[id]) {
        throw ValueError(message("the body is not given its input ", id));
      }
      result.push_back(static_cast<ValueId>(id));
    }
    return result;
  }

  Source source(const Json& json, bool is_body) const {
    Source result{};
    if (const Json* name = json.find("weight"); name != nullptr && !is_body) {
      result.kind = Source::Kind::Weight;
      result.array = name->text();
    } else if ((name = json.find("constant")) != nullptr) {
      result.kind = Source::Kind::Constant;
      result.array = name->text();
    } else if ((name = json.find("full")) != nullptr) {
      result.kind = Source::Kind::Full;
      result.spec = spec(*name);
      result.array = name->at("constant").text();
    } else if (json.find("range") != nullptr) {
      read_range(json.at("range"), result);
    } else if (json.find("triangle") != nullptr) {
      read_triangle(json.at("triangle"), result);
    } else {
      throw ValueError("it is no value that is known here");
    }
    return result;
  }

  void read_range(const Json& json, Source& result) const {
    result.kind = Source::Kind::Range;
    result.spec = spec(json);
    const Json& start = json.at("start");
    if (start.is_real()) {
      result.real_start = start.number();
    } else {
      result.start = extent(start);
    }
    result.step = json.at("step").number();
    const DType dtype = result.spec.dtype;
    if (dtype != DType::Int32 && dtype != DType::Int64 && dtype != DType::Float32 &&
        dtype != DType::Float64) {
      throw ValueError(message("there is no range of ", dtype_name(dtype)));
    }
    constexpr double kLargest = 1e15;  // whole numbers up to here are exact
    if (!(std::abs(result.step) < kLargest && std::abs(result.real_start) < kLargest)) {
      throw ValueError("the numbers of a range are too large");
    }
  }

  void read_triangle(const Json& json, Source& result) const {
    result.kind = Source::Kind::Triangle;
    result.spec = spec(json);
    result.start.number = json.at("offset").whole();
    const JsonList& axes = json.at("axes").list();
    if (axes.size() != 2 || result.spec.dtype != DType::Bool) {
      throw ValueError("a triangle is of bools, and has two axes");
    }
    result.row_axis = below(axes[0], result.spec.shape.size());
    result.column_axis = below(axes[1], result.spec.shape.size());
    if (result.row_axis >= result.column_axis) throw ValueError("rows of a triangle come first");
  }

  NodeFile node(const Json& json, const GraphFile& graph, size_t num_values) const {
    NodeFile result{};
    const std::string& name = json.at("op").text();
    result.op = &find_op(name);
    const OpDef& op = *result.op;
    if (op.runs_user_code || op.meets_processes || &op == &op_region || &op == &op_fused) {
      throw ValueError(message("the op ", op.name, " can't be in a file"));
    }
    result.inputs = in("inputs", [&] { return values(json.at("inputs"), graph, num_values); });
    result.num_outputs = in("outputs", [&] { return below(json.at("outputs"), kMaxValues); });
    if (const Json* layer = json.find("layer")) result.layer = layer->text();
    if (const Json* attributes = json.find("attributes")) {
      for (const JsonMember& member : attributes->map()) {
        result.attributes.emplace_back(member.name,
                                       in(member.name, [&] { return attribute(member.value); }));
      }
    }
    return result;
  }

  OpenAttribute attribute(const Json& json) const {
    if (json.is_bool()) return json.boolean();
    if (json.is_real()) return json.number();
    if (json.is_text()) return json.text();
    if (json.is_list()) return list_attribute(json);
    if (json.is_map()) {
      if (const Json* bodies = json.find("bodies")) return body_list(*bodies);
      if (const Json* number = json.find("number")) return special(number->text());
    }
    return extent(json);
  }

  OpenAttribute list_attribute(const Json& json) const {
    const JsonList& list = json.list();
    const auto is_number = [](const Json& each) {
      return each.is_real() || (each.is_map() && each.find("number") != nullptr);
    };
    if (std::none_of(list.begin(), list.end(), is_number)) return extents(json);
    std::vector<double> numbers;
    for (const Json& each : list) {
      numbers.push_back(each.is_map() ? special(each.at("number").text()) : each.number());
    }
    return numbers;
  }

  // What JSON has no number for.
  static double special(const std::string& name) {
    if (name == "inf") return std::numeric_limits<double>::infinity();
    if (name == "-inf") return -std::numeric_limits<double>::infinity();
    if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
    throw ValueError(message("\"", name, "\" is no number"));
  }

  BodyFiles body_list(const Json& json) const {
    BodyFiles result;
    for (const Json& each : json.list()) {
      auto body = std::make_shared<GraphFile>();
      for (const Json& input : each.at("inputs").list()) {
        body->is_read.push_back(!input.is_null());
        body->inputs.push_back(input.is_null() ? OpenSpec{} : spec(input));
      }
      read_graph(each, *body, true);
      result.push_back(std::move(body));
    }
    return result;
  }

  size_t num_axes_;
};

void read_named(const Json& json, const Reader& reader, std::vector<std::string>& names,
                std::vector<OpenSpec>& specs) {
  for (const Json& each : json.list()) {
    names.push_back(each.at("name").text());
    specs.push_back(in(names.back(), [&] { return reader.spec(each); }));
  }
}

}  // namespace

bool Extent::is_axis(uint32_t axis) const {
  return number == 0 && terms.size() == 1 && terms[0].factor == 1 &&
         terms[0].axes == std::vector<uint32_t>{axis};
}

int64_t Extent::at(const AxisSizes& sizes) const {
  int64_t sum = number;
  for (const Term& term : terms) {
    int64_t product = term.factor;
    for (const uint32_t axis : term.axes) product = times(product, sizes.at(axis));
    sum = plus(sum, product);
  }
  return sum;
}

std::vector<int64_t> at(const Extents& extents, const AxisSizes& sizes) {
  std::vector<int64_t> result;
  result.reserve(extents.size());
  for (const Extent& extent : extents) result.push_back(extent.at(sizes));
  return result;
}

ModelFile parse_model(const Json& json) {
  const int64_t version = in("version", [&] { return json.at("version").whole(); });
  if (version != kGraphVersion) {
    throw ValueError(message("it has version ", version, " of the format, and this kerascnn knows ",
                             kGraphVersion,
                             "; install the version that wrote it, or export again"));
  }
  ModelFile model;
  in("axes", [&] {
    for (const Json& axis : json.at("axes").list()) {
      model.axes.push_back(axis.at("name").text());
      model.examples.push_back(axis.at("example").whole());
    }
    if (model.axes.size() > kMaxAxes) throw ValueError(message("more than ", kMaxAxes));
  });
  const Reader reader(model.axes.size());
  in("inputs", [&] {
    read_named(json.at("inputs"), reader, model.input_names, model.graph.inputs);
    for (const OpenSpec& input : model.graph.inputs) {
      for (const Extent& size : input.shape) {
        uint32_t axis = 0;
        while (axis < model.axes.size() && !size.is_axis(axis)) ++axis;
        if (size.is_open() && axis == model.axes.size()) {
          throw ValueError("a size that is open is not an axis' own");
        }
      }
    }
  });
  for (uint32_t axis = 0; axis < model.axes.size(); ++axis) {
    const auto has_axis = [&](const OpenSpec& input) {
      return std::any_of(input.shape.begin(), input.shape.end(),
                         [&](const Extent& size) { return size.is_axis(axis); });
    };
    const std::vector<OpenSpec>& inputs = model.graph.inputs;
    if (std::none_of(inputs.begin(), inputs.end(), has_axis)) {
      throw ValueError(message("no input has the axis \"", model.axes[axis], "\""));
    }
  }
  model.graph.is_read.assign(model.graph.inputs.size(), true);
  in("outputs", [&] { read_named(json.at("outputs"), reader, model.output_names, model.outputs); });
  in("graph", [&] { reader.read_graph(json.at("graph"), model.graph, false); });
  if (model.graph.outputs.size() != model.outputs.size()) {
    throw ValueError("the graph has another number of outputs than the model");
  }
  return model;
}

}  // namespace kerascnn::inference
