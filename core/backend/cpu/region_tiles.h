// A region as a list of steps that a CPU runs for one tile of its domain after the other, so that
// what is computed in between stays in the caches.
//
// The domain is a matrix (Region). A tile has some of its rows as a whole where they are short.
// Of kind rows, longer ones are gone through piece by piece, once for each level of reductions:
// what a later level reads is computed again. Of kind columns, wide ones are cut between columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/backend/cpu/element_blocks.h"
#include "core/backend/cpu/element_loops.h"
#include "core/graph/region.h"
#include "core/ops/geometry.h"

namespace kerascnn::cpu {

// Rows up to this length are in one piece.
constexpr int64_t kMostWholeRow = 8192;

struct Tiling {
  int64_t rows = 1, columns = 1;  // of the domain
  int64_t outer = 1;              // parts of the rows whose sums of columns are taken by themselves
  int64_t tile_rows = 1, tile_columns = 1;

  // Are the elements of each tile neighbours in memory?
  bool is_contiguous() const { return tile_columns == columns || tile_rows == 1; }
  int64_t tile_size() const { return tile_rows * tile_columns; }
};

// Elements of one value in a tile, as float, double or 64-bit integers.
struct TileRegister {
  RegisterKind kind = RegisterKind::Float;
  bool is_row = false;  // one element for each row of the tile, else one for each of its elements
  int level = 0;        // of how many reductions one behind the other it is made
  // In a thread's memory, in bytes; -1 where it lies in a tensor.
  int64_t offset = -1;
};

enum class Reduction : uint8_t { Sum, Max, Min, Moments };

struct TileStep {
  enum class Kind : uint8_t {
    Fill,     // to <- a number
    Load,     // to <- a tensor
    Compute,  // to <- an instruction on up to three registers
    Spread,   // to <- a register of rows
    Reduce,   // to, a register of rows, <- a tile's rows
    Sum,      // accumulators of columns <- a tile
    Store,    // a tensor <- a register
  };
  Kind kind = Kind::Fill;
  int to = -1;
  int from[3] = {-1, -1, -1};
  DType dtype = DType::Float32;  // of the tensor, or of a reduction's result
  int tensor = -1;               // input or output; of Compute the output that it writes itself
  bool is_row = false;           // of Store: one element for each row
  bool is_direct = false;        // of Load: the register is the tensor's memory
  double number = 0;             // of Fill; of reductions what a sum is divided by
  Reduction reduction = Reduction::Sum;
  int accumulator = 0;               // of Reduce and Sum, the number of the first one
  BroadcastGeometry geometry{};      // of Load, over the domain or over the rows
  ElementInstruction instruction{};  // of Compute; its operands are `from`
  // Of Compute with one operand that is a register of rows, and another one of tiles.
  RowLoop row_loop = nullptr;
  int matrix = 0;  // which operand is not of rows
};

// What is done with each tile of a row: first once for the rows, then for each piece.
struct TilePass {
  std::vector<TileStep> of_rows;
  std::vector<TileStep> of_tiles;
};

// An output that is made of accumulators of columns.
struct ColumnResult {
  int output = 0;
  DType dtype = DType::Float32;
  Reduction reduction = Reduction::Sum;
  int accumulator = 0;
  bool is_variance = false;  // of moments
  double divisor = 1;
};

struct TileProgram {
  RegionKind kind = RegionKind::Map;
  Tiling tiling;
  std::vector<TileRegister> registers;
  std::vector<TileStep> fixed;  // the same for all tiles, but for what other columns have
  std::vector<TilePass> passes;
  std::vector<ColumnResult> results;
  int num_accumulators = 0;
  int64_t register_bytes = 0;  // of a thread
  std::string name;
};

TileProgram make_tile_program(const Region& region);

}  // namespace kerascnn::cpu
