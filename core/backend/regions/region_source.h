// CUDA C++ for a region, as text, with what a launch needs to know of it. Sizes are arguments of
// the kernel, so that equal regions of other sizes are one source; only the extents of unusual
// broadcasts are in the text. Nothing here needs CUDA.
//
// The kernel is called `region_kernel`. Its arguments: pointers to all inputs and all outputs; the
// bits of each constant as a 64-bit number; 1 as a float; then, by kind,
//
//   map             int64 rows of a part, int64 columns, int lane_bits
//   map, in a row   int64 size                         (not by_column)
//   columns         int64 rows of a part, int64 columns, int lane_bits, pointer to the workspace,
//                   pointer to the tickets, int64 rows of a split
//   rows            int64 rows, int64 columns
//
// Pointers are multiples of 16 bytes, as all tensors that kernels are given (Tensor::is_packed).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/backend/regions/region_code.h"

namespace kerascnn {

struct RegionSource {
  std::string text;
  RegionKind kind = RegionKind::Map;
  bool by_column = false;
  int threads = 256;      // of a block
  int width = 1;          // neighbouring elements that a thread takes at once
  int depth = 1;          // how many rows, or pieces of a row, it loads before it computes
  int64_t parts = 1;      // of the rows, by_column
  int lanes = 1;          // rows: threads that share a row
  bool holds_row = true;  // rows: inputs are read once, and stay in registers
  int cell_bytes = 0;     // columns: what a split leaves for each column
  std::vector<uint64_t> constants;
};

inline constexpr const char* kRegionFunction = "region_kernel";
inline constexpr int kRegionElementThreads = 256;
inline constexpr int kRegionColumnThreads = 512;

// `max_width` is for kernels that would need more registers than there are.
RegionSource region_source(const RegionCode& code, int max_width = 8);

// One for each kind; region_source chooses.
RegionSource map_source(const RegionCode& code, int max_width);
RegionSource columns_source(const RegionCode& code, int max_width);
RegionSource rows_source(const RegionCode& code, int max_width);

// Of the smallest dtype that is read or written in order.
int region_item_bytes(const RegionCode& code);
// How many neighbouring elements of it make 16 bytes.
int region_width(const RegionCode& code, int max_width);
// A thread loads so many packs of all inputs before it computes.
int region_depth(const RegionCode& code, const ElementNeeds& needs, int width);
// by_column: which part of the rows, and which columns, a thread has.
std::string region_place(const RegionCode& code, int width);
// The prelude and the type of positions, which come before the kernel.
std::string region_head(const RegionCode& code);

}  // namespace kerascnn
