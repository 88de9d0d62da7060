// From the graph of a file to one that can be compiled: with sizes that are numbers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/graph/rooted_graph.h"
#include "core/inference/graph_file.h"

namespace kerascnn::inference {

// The arrays of a file that its graph reads, by name.
struct Arrays {
  std::map<std::string, VariablePtr> weights;  // on the model's device
  std::map<std::string, Tensor> constants;     // on the CPU
};

// What the arrays of a file are, by name.
using ArraySpecs = std::map<std::string, TensorSpec>;

// The graph for these sizes of the open axes. Inputs that are given in other dtypes than the
// model's are cast. Throws ValueError and TypeError, which name layer and op, for what the ops
// refuse, and ValueError where an output is not what the file says.
RootedGraph build_graph(const ModelFile& model, const AxisSizes& sizes,
                        const std::vector<DType>& input_dtypes, const Arrays& arrays);

// The same without arrays and without the memory that ranges take, and only to find out whether the
// graph is right, for the sizes that the file names.
void check_graph(const ModelFile& model, const ArraySpecs& arrays);

}  // namespace kerascnn::inference
