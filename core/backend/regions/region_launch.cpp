#include "core/backend/regions/region_launch.h"

#include <algorithm>
#include <bit>

#include "core/base/ceil_div.h"

namespace kerascnn {
namespace {

constexpr int kMostLanes = 32;
constexpr double kLeastUsedLanes = 0.75;
// Blocks of a map for each that fits on the device at once: the more, the better they balance, and
// the more often they load what belongs to their columns.
constexpr int64_t kWaves = 4;
constexpr int64_t kMostGridRows = 65535;
constexpr int64_t kMostFlatBlocks = int64_t{1} << 20;
// Neighbouring lanes read so many elements of a row at least: a line of memory.
constexpr int kLineElements = 64;
constexpr int kFewestLanesOfLine = 8;
// The last block of some columns adds up what all splits left, while the rest of the device has
// nothing to do. A thread of it should read no more splits than it can have under way at once.
constexpr int64_t kSplitsOfThread = 4;

// Neighbouring pieces that neighbouring threads take: few of them beside the last column.
int lanes_for(int64_t pieces) {
  for (int lanes = kMostLanes; lanes > 1; lanes /= 2) {
    const int64_t taken = ceil_div(pieces, lanes) * lanes;
    if (static_cast<double>(pieces) >= kLeastUsedLanes * static_cast<double>(taken)) return lanes;
  }
  return 1;
}

struct Splits {
  int64_t tiles = 1;
  int64_t count = 1;
};

Splits splits_for(const RegionSource& source, int64_t rows, int64_t columns, int lanes,
                  int64_t at_once) {
  Splits splits;
  splits.tiles = ceil_div(ceil_div(columns, source.width), lanes);
  const int64_t rows_at_once = int64_t{source.depth} * (source.threads / lanes);
  const int64_t blocks = splits.tiles * source.parts;
  const int64_t wanted =
      source.kind == RegionKind::Map ? ceil_div(at_once * kWaves, blocks) : at_once / blocks;
  splits.count =
      std::clamp<int64_t>(wanted, 1, std::min(ceil_div(rows, rows_at_once), kMostGridRows));
  return splits;
}

RegionLaunch launch_by_column(const RegionSource& source, int64_t rows, int64_t columns,
                              int64_t at_once) {
  rows /= source.parts;
  int lanes = lanes_for(ceil_div(columns, source.width));
  Splits splits = splits_for(source, rows, columns, lanes, at_once);
  const int fewest = std::clamp(kLineElements / source.width, kFewestLanesOfLine, kMostLanes);
  while (source.kind == RegionKind::Columns && lanes > fewest &&
         splits.count > kSplitsOfThread * (source.threads / lanes)) {
    lanes /= 2;
    splits = splits_for(source, rows, columns, lanes, at_once);
  }
  RegionLaunch launch;
  launch.lane_bits = std::countr_zero(static_cast<unsigned>(lanes));
  launch.parts = source.parts;
  launch.blocks_x = splits.tiles * source.parts;
  launch.blocks_y = splits.count;
  if (source.kind == RegionKind::Columns) {
    launch.split_rows = ceil_div(rows, splits.count);
    launch.blocks_y = ceil_div(rows, launch.split_rows);  // each has a row
    if (launch.blocks_y > 1) launch.tickets = launch.blocks_x;
  }
  return launch;
}

}  // namespace

int64_t RegionLaunch::workspace_bytes(const RegionSource& source, int64_t columns) const {
  return tickets > 0 ? source.cell_bytes * blocks_y * columns * parts : 0;
}

RegionLaunch region_launch(const RegionSource& source, int64_t rows, int64_t columns,
                           int64_t at_once) {
  if (source.by_column) return launch_by_column(source, rows, columns, at_once);
  RegionLaunch launch;
  if (source.kind == RegionKind::Rows) {
    const int64_t rows_of_block = source.threads / source.lanes;
    launch.blocks_x = std::min(ceil_div(rows, rows_of_block), at_once * 2 * kWaves);
  } else {
    const int64_t piece = int64_t{source.threads} * source.width * source.depth;
    launch.blocks_x = std::min(ceil_div(rows * columns, piece), kMostFlatBlocks);
  }
  return launch;
}

}  // namespace kerascnn
