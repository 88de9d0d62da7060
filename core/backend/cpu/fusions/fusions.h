// The fusions of the CPU: the one list of them. The kernels are in the files of this folder,
// plan_fused_<name>.
#pragma once

#include <memory>
#include <span>

#include "core/graph/conv_pooling.h"
#include "core/graph/fusion.h"

namespace kerascnn {

// x, gamma, beta -> y, [mean, variance, inverse standard deviation]; x is cast to float32, y maybe
// back.
void pattern_batch_norm_16_bits(Pattern& pattern);
// gy, x, gamma, mean, inverse -> gx, [the gradients of gamma and of beta]; x is cast to float32, gy
// maybe too, and gx maybe back.
void pattern_batch_norm_grad_16_bits(Pattern& pattern);

namespace cpu {

// Where two take a node, the first one gets it.
#define KERASCNN_CPU_FUSIONS(FUSION) \
  FUSION(conv2d_max_pool2d)          \
  FUSION(conv2d_max_pool2d_dgrad)    \
  FUSION(conv2d_max_pool2d_wgrad)    \
  FUSION(batch_norm_16_bits)         \
  FUSION(batch_norm_grad_16_bits)

std::span<const Fusion* const> fusions();

#define KERASCNN_DECLARE_FUSION(name) std::unique_ptr<Kernel> plan_fused_##name(const Match& match);
KERASCNN_CPU_FUSIONS(KERASCNN_DECLARE_FUSION)
#undef KERASCNN_DECLARE_FUSION

}  // namespace cpu
}  // namespace kerascnn
