// Which engine of cuDNN runs a convolution where none is chosen by the clock.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/backend/cuda/convolution/conv2d.h"

namespace kerascnn::cuda {

// cuDNN's heuristics name engines from the one they expect to be the fastest on. This returns the
// place among `names`, the first of the list, of an engine that is faster than the one at `first`,
// as far as is known. Nothing where none is.
std::optional<size_t> faster_engine(const Conv2DCall& call, const std::vector<std::string>& names,
                                    size_t first, int multiprocessors);

}  // namespace kerascnn::cuda
