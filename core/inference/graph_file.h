// The graph of a model as a file has it: what `Graph` holds, but with sizes that may depend on open
// axes. kerascnn/saving/inference_graph.py writes it; docs/cpp.md describes the format.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/dtype.h"
#include "core/inference/json.h"
#include "core/ops/op.h"

namespace kerascnn::inference {

// The sizes of the open axes, by their number.
using AxisSizes = std::vector<int64_t>;

// A whole number: a sum of products of the sizes of open axes.
struct Extent {
  struct Term {
    int64_t factor;
    std::vector<uint32_t> axes;
  };

  int64_t number = 0;
  std::vector<Term> terms;

  bool is_open() const { return !terms.empty(); }
  // Is it the size of this axis?
  bool is_axis(uint32_t axis) const;
  // Throws ValueError where 64 bits don't hold it.
  int64_t at(const AxisSizes& sizes) const;
};

using Extents = std::vector<Extent>;

std::vector<int64_t> at(const Extents& extents, const AxisSizes& sizes);

struct OpenSpec {
  DType dtype = DType::Float32;
  Extents shape;

  TensorSpec at(const AxisSizes& sizes) const { return {dtype, inference::at(shape, sizes)}; }
};

// A value that no node computes.
struct Source {
  enum class Kind : uint8_t {
    Weight,    // an array of the file, shared by all programs
    Constant,  // the same, known while a program is compiled
    Full,      // an array of one element, everywhere
    Range,     // start, start + step, ...: one axis has another size than 1
    Triangle,  // true where the column is at most `start` behind the row; these are the two axes
  };

  Kind kind;
  std::string array;  // its name in the file, of the first three
  OpenSpec spec;      // of the last three
  Extent start;
  double real_start = 0;  // where `start` is 0
  double step = 1;
  uint32_t row_axis = 0;
  uint32_t column_axis = 0;
};

struct NodeFile;

// Values have numbers: inputs, then sources, then the outputs of each node.
struct GraphFile {
  std::vector<OpenSpec> inputs;
  std::vector<bool> is_read;  // the inputs of a body that are there
  std::vector<Source> sources;
  std::vector<NodeFile> nodes;
  std::vector<ValueId> outputs;
};

using BodyFiles = std::vector<std::shared_ptr<GraphFile>>;
using OpenAttribute =
    std::variant<bool, double, std::string, std::vector<double>, Extent, Extents, BodyFiles>;

struct NodeFile {
  const OpDef* op;
  std::vector<ValueId> inputs;
  uint32_t num_outputs;
  std::vector<std::pair<std::string, OpenAttribute>> attributes;
  std::string layer;
};

struct ModelFile {
  // The first axis of all inputs where that is open, or none.
  static constexpr const char* kBatch = "batch";

  std::vector<std::string> axes;
  AxisSizes examples;  // sizes for which the graph is known to be right
  std::vector<std::string> input_names;
  std::vector<std::string> output_names;
  std::vector<OpenSpec> outputs;
  GraphFile graph;
};

// The version of the format that is written; files of later ones are refused.
constexpr int64_t kGraphVersion = 1;

// Throws ValueError, which says where, for anything that is not as above: places of values, axes
// and names are checked here, what ops make of their attributes when a graph is built.
ModelFile parse_model(const Json& json);

}  // namespace kerascnn::inference
