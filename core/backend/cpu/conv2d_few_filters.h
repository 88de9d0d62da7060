// float32 convolutions with few filters, as at the end of networks that make images: vectors are
// along the channels here. Those of oneDNN are along the filters, so most of a vector would be
// empty.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/ops/activation_kind.h"
#include "core/ops/conv2d.h"

namespace kerascnn::cpu {

// Is make_few_filters_conv2d() faster than oneDNN?
bool has_few_filters(const Conv2DGeometry& geometry);
std::unique_ptr<Kernel> make_few_filters_conv2d(const Conv2DGeometry& geometry, bool has_bias,
                                                const ActivationCall& activation);

// The gradient of such a kernel is that of the convolution in which image and result change places:
// it has few channels and many filters.
bool swaps_wgrad(const Conv2DGeometry& geometry);
Conv2DGeometry swapped_geometry(const Conv2DGeometry& geometry);
// `swapped` computes the gradient of the swapped convolution.
std::unique_ptr<Kernel> make_swapped_wgrad(const Conv2DGeometry& geometry,
                                           std::unique_ptr<Kernel> swapped);

}  // namespace kerascnn::cpu
