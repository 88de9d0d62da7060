// The data gradient of a float32 convolution by the vector kernel that adds each pixel's patch in
// place.
#pragma once

#include "core/backend/backend.h"
#include "core/ops/conv2d.h"

namespace kerascnn::cpu {

// Is it faster than oneDNN, whose kernels leave most of a vector empty where the image has few
// channels?
bool scatters_better(const Conv2DGeometry& geometry);
// For one group and no dilation.
std::unique_ptr<Kernel> make_scatter_conv2d_dgrad(const Conv2DGeometry& geometry);

}  // namespace kerascnn::cpu
