// Convolutions with kernels of 3 x 3 by Winograd's algorithm, with oneDNN's products.
#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "core/ops/activation_kind.h"
#include "core/ops/conv2d.h"

namespace kerascnn::cpu::onednn {

// Do the convolution and its gradients gain from Winograd's algorithm?
// KERASCNN_CPU_WINOGRAD=0 says no to all.
bool gains_from_winograd(const Conv2DGeometry& geometry);

// `direct` computes the call where an output is not finite, as for infinite inputs or sums that
// overflow in between.
std::unique_ptr<Kernel> make_winograd_conv2d(const Conv2DGeometry& geometry, bool has_bias,
                                             const ActivationCall& activation,
                                             std::unique_ptr<Kernel> direct);
std::unique_ptr<Kernel> make_winograd_dgrad(const Conv2DGeometry& geometry,
                                            std::unique_ptr<Kernel> direct);
std::unique_ptr<Kernel> make_winograd_wgrad(const Conv2DGeometry& geometry,
                                            std::unique_ptr<Kernel> direct);

}  // namespace kerascnn::cpu::onednn
