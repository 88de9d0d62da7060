// How images become images of another size: which pixels of an axis make a new one, and with which
// weights. The same for resize2d and its gradient, whose axes are the transposed ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/attributes.h"
#include "core/ops/op.h"

namespace kerascnn {

// New pixel i is the sum over t < counts[i] of shares[i * most + t] times old pixel firsts[i] + t.
struct ResizeAxis {
  int64_t old_size = 0;
  int64_t size = 0;
  int64_t most = 1;  // the greatest of the counts, at least 1
  std::vector<int32_t> firsts;
  std::vector<int32_t> counts;
  std::vector<double> shares;
  bool keeps = false;   // every pixel is the old one
  bool sums = false;    // all shares are 1
  bool is_full = true;  // no count is 0

  // Pixels are copied.
  bool picks() const { return sums && is_full && most == 1; }
};

// Where the weights come from: "bilinear", "nearest", "bicubic", "lanczos3" or "lanczos5", and
// whether the window grows where an axis shrinks. Pixels are areas with their centers at 0.5, 1.5,
// ...; docs of ops.image.resize say which conventions these are.
ResizeAxis resize_axis(int64_t old_size, int64_t size, std::string_view method, bool antialias);
// The gradient's: old pixels are sums of new ones.
ResizeAxis transposed(const ResizeAxis& axis);

struct Resize2DGeometry {
  int64_t batch = 0;
  int64_t channels = 0;
  ResizeAxis rows;
  ResizeAxis columns;
};

// Of a call of resize2d or resize2d_grad that its shape rule has accepted.
Resize2DGeometry resize2d_geometry(const OpDef& op, const Attributes& attributes, Specs inputs);

}  // namespace kerascnn
