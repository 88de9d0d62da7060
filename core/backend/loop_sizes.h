// How many steps a turn has in a loop that runs on the device.
//
// A turn itself costs something, and steps of different turns never run side by side, so large
// turns are better. But each size is a graph of its own, whose capture costs as much as many steps.
#pragma once

#include <cstdint>
#include <vector>

namespace kerascnn {

struct LoopRun {
  int64_t size = 1;  // steps of a turn
  int64_t turns = 0;

  bool operator==(const LoopRun&) const = default;
};

class LoopSizes {
 public:
  // `most` is the largest size.
  explicit LoopSizes(int64_t most) : most_(most) {}

  // The runs for so many steps, larger sizes first. A size that these steps lack is added at once
  // where they are many, and otherwise when it would have served for the second time.
  std::vector<LoopRun> plan(int64_t steps);

 private:
  std::vector<LoopRun> split(int64_t steps) const;
  int64_t best_size(int64_t steps) const;

  int64_t most_;
  std::vector<int64_t> sizes_ = {1};  // descending
  int64_t occasions_ = 0;             // since a size was added
};

}  // namespace kerascnn
