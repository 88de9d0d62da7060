// A region (core/graph/region.h) made ready for source text: which values are computed once, which
// once for each column or row, and which for each element; how inputs are read; between which
// reductions each value is needed. It has no text and knows no device yet.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/region.h"
#include "core/ops/element_ops.h"
#include "core/ops/element_program.h"

namespace kerascnn {

// How often a value is computed. A value that depends on a column and on a row depends on the
// element.
enum class Level : uint8_t { Once, Column, Row, Element };

// Where an input has the value of an element: at its own place, always at 0, at its column, at the
// column of its part, at its row, or elsewhere (`strided`). Where it is a random state, whether
// dropout keeps the element is drawn from it.
enum class RegionReading : uint8_t {
  InOrder,
  Scalar,
  PerColumn,
  PerColumnOfPart,
  PerRow,
  Strided,
  Drawn
};

struct RegionLoad {
  size_t input = 0;
  DType dtype = DType::Float32;
  RegionReading reading = RegionReading::InOrder;
  Level level = Level::Element;
  // For strided readings: position `at` of the domain, over these extents, is at sum(index *
  // stride).
  Shape extents;
  Shape strides;
  // Drawn: which constants have the stream and the threshold (core/ops/philox.h).
  size_t stream = 0;
  size_t threshold = 0;
};

// A value, given by what computes it: the constant, load, statement or reduction of that number.
struct RegionValue {
  enum class Source : uint8_t { Constant, Load, Statement, Reduction };
  Source source = Source::Constant;
  size_t index = 0;
  size_t output = 0;  // of a reduction: 1 for the variance of moments
  DType dtype = DType::Float32;
  Level level = Level::Once;
};

struct RegionStatement {
  ElementOp op = ElementOp::cast;
  DType operand_dtype = DType::Float32;  // of the two choices for `where`
  DType dtype = DType::Float32;
  std::vector<RegionValue> operands;
  ElementParameters parameters;
  Level level = Level::Once;
  int stage = 0;           // how many reductions one after another it waits for
  bool is_sealed = false;  // see RegionText
};

enum class RegionSum : uint8_t { Sum, Mean, Maximum, Minimum, Moments };

struct RegionReduction {
  RegionSum kind = RegionSum::Sum;
  RegionValue operand;
  DType dtype = DType::Float32;
  int stage = 0;  // the same
};

struct RegionCode {
  RegionKind kind = RegionKind::Map;
  // In kinds map and columns threads keep to columns, whose values they hold.
  bool by_column = false;
  int64_t rows = 1;
  int64_t columns = 1;
  // by_column: so many equal parts of the rows, one after another. A block stays in one of them,
  // whose columns have values of their own.
  int64_t parts = 1;
  int num_stages = 0;               // of reductions
  std::vector<uint64_t> constants;  // the bits of each
  std::vector<DType> constant_dtypes;
  std::vector<DType> inputs;  // of all inputs, also of those that nothing reads
  std::vector<RegionLoad> loads;
  std::vector<RegionStatement> statements;  // in an order in which they can be computed
  std::vector<RegionReduction> reductions;
  std::vector<RegionValue> outputs;
  std::vector<Level> output_levels;  // where an output has an element: each row, column, element
};

// Throws ValueError where the body has something that no region has. `inputs` are the specs of the
// node's values.
RegionCode region_code(const Region& region, Specs inputs);

// For every load and statement on an element's level: do these values need it?
struct ElementNeeds {
  std::vector<bool> loads;
  std::vector<bool> statements;
};
ElementNeeds element_needs(const RegionCode& code, const std::vector<RegionValue>& values);

}  // namespace kerascnn
