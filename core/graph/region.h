// The op `region`: a group of memory-bound nodes that run as one kernel, made by the pass
// form_regions. The node owns the group as its body (body.h): input i of the node is
// body->inputs[i], its outputs are body->outputs.
//
//   bodies   [body]
//   kind     "map", "rows" or "columns"
//   domain   the shape that its element ops have
//   columns  the domain seen as a matrix has so many columns
//   outer    may be left out where it is 1: sums over columns are taken of so many equal parts of
//            the rows, one after another, each by itself (kind columns)
//   generated  may be left out: whether a device that generates kernels does so for this one,
//            whatever its size
//
// A body may have these nodes:
//
//   any kind  element ops (find_element_op) with results of the domain's shape, whose operands
//             broadcast to it; broadcast_to, which is only another way of reading; dropout, whose
//             random state is an input of the body; transpose of an input of the body that is
//             read in stretches (is_read_in_stretches), and a reshape of its result. Either of the
//             two has the domain's shape
//   rows      reduce_sum, reduce_mean, reduce_max and reduce_min over the last axes of a value of
//             the domain's shape, whose extents multiply to `columns`. The result is a row value,
//             of the domain's shape with 1 for these axes or without them. Element ops of row
//             values, and reshape between their two forms. Only the form with 1 may be an operand
//             of an element op with a result of the domain's shape
//   columns   reduce_sum, reduce_mean and column_moments of a value of the domain's shape, over
//             neighbouring axes. Those behind them multiply to `columns`, those before them to
//             `outer`. Nothing in the body reads their results
//
// Constants of the body have one element. Each result of an element op is rounded to its dtype at
// once, so that a region has the bits of its ops one by one; sums may be added up in another order.
// Of kind map, all inputs of an element are loaded before any of its outputs is stored: an output
// may have the memory of any input of its dtype and shape.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/graph/body.h"
#include "core/ops/op.h"

namespace kerascnn {

enum class RegionKind : uint8_t { Map, Rows, Columns };

struct Region {
  RegionKind kind = RegionKind::Map;
  BodyPtr body;
  Shape domain;
  // The domain as a matrix. For Map `columns` is the last axis, and 1 for a scalar domain. For Rows
  // it is the product of the axes that are reduced, for Columns of those behind them.
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t outer = 1;
  std::optional<bool> generated;

  // Does a value of this shape have one element for each row? With `kept` it has 1 for the other
  // axes, otherwise it lacks them.
  bool is_row_shape(const Shape& shape, bool kept) const;
};

// May it be a reduction in a region of rows, or of columns?
bool reduces_rows(const OpDef& op);
bool sums_columns(const OpDef& op);

// The axes before and behind those that a sum of columns is taken over.
struct ColumnAxes {
  int64_t outer = 1;
  int64_t columns = 1;
};
// Those of a node of this operand, where these axes are neighbours and not the last ones.
std::optional<ColumnAxes> column_axes(const Node& node, const Shape& operand);

// Several parts of a few elements, or of a few rows, would leave most of a block without work.
bool is_worth_parts(int64_t outer, int64_t rows_of_part, int64_t columns);

// Is a value of this shape one of the other shape as well, without a change of that?
bool broadcasts_to(const Shape& shape, const Shape& target);

// Throws ValueError where the attributes are not those of a region.
Region read_region(const Attributes& attributes);
// The attributes of a node; `rows` is left out, as it follows from the others.
Attributes region_attributes(const Region& region);

// Does a transpose of an operand of this shape leave stretches of the last axis together, which
// kernels move with wide accesses? Then it is a way of reading.
bool is_read_in_stretches(const Node& transpose, const Shape& operand);

// The names of its ops, in order: "multiply+relu".
std::string region_name(const Region& region);

}  // namespace kerascnn
