// How many blocks run the kernel of a region, and what each of them has.
#pragma once

#include <cstdint>

#include "core/backend/regions/region_source.h"

namespace kerascnn {

struct RegionLaunch {
  int64_t blocks_x = 1;
  int64_t blocks_y = 1;    // by_column: splits of the rows
  int lane_bits = 0;       // by_column: neighbouring threads that take neighbouring columns, log2
  int64_t split_rows = 0;  // columns: rows of a split
  int64_t tickets = 0;     // columns: counters of splits that are done, where there are several
  int64_t parts = 1;       // by_column: parts of the rows, whose blocks are numbered by blocks_x

  int64_t workspace_bytes(const RegionSource& source, int64_t columns) const;
};

// `rows` are those of all parts. `at_once` blocks fit on the device.
RegionLaunch region_launch(const RegionSource& source, int64_t rows, int64_t columns,
                           int64_t at_once);

}  // namespace kerascnn
