// Convolution for every geometry, for float and double. It unfolds patches (im2col) and multiplies
// matrices.
#pragma once

#include "core/backend/backend.h"
#include "core/ops/activation_kind.h"
#include "core/ops/conv2d.h"

namespace kerascnn::cpu {

template <typename T>
std::unique_ptr<Kernel> make_generic_conv2d(const Conv2DGeometry& geometry, bool has_bias,
                                            const ActivationCall& activation);
template <typename T>
std::unique_ptr<Kernel> make_generic_conv2d_dgrad(const Conv2DGeometry& geometry);
template <typename T>
std::unique_ptr<Kernel> make_generic_conv2d_wgrad(const Conv2DGeometry& geometry);

}  // namespace kerascnn::cpu
