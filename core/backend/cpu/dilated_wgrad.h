// The gradient of a dilated convolution (float32) to its kernel as that of one without dilation.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/ops/conv2d.h"

namespace kerascnn::cpu {

// With a dilation of d, output pixels that are d apart read input pixels that are d apart: each of
// these d phases of both, by height and by width, is an image of its own.
bool has_phases(const Conv2DGeometry& geometry);
// The convolution of all phases, without dilation.
Conv2DGeometry phase_geometry(const Conv2DGeometry& geometry);
// `phases` computes the gradient of that convolution. `otherwise` computes the one of the dilated
// convolution: what is not finite, where phases are filled up with zeros.
std::unique_ptr<Kernel> make_dilated_wgrad(const Conv2DGeometry& geometry,
                                           std::unique_ptr<Kernel> phases,
                                           std::unique_ptr<Kernel> otherwise);

}  // namespace kerascnn::cpu
