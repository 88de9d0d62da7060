// What the op count_matches takes.
#pragma once

#include "core/base/dtype.h"

namespace kerascnn {

// What its labels may be. A class number is compared with them after a cast to their dtype.
constexpr bool is_match_label(DType dtype) {
  return dtype == DType::Int32 || dtype == DType::Int64 || dtype == DType::Float32;
}

}  // namespace kerascnn
