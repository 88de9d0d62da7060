// Kernels on oneDNN, of float32 but for integer_matmul and what ends in _bfloat16. Primitives,
// memory objects and reorders are made when they are planned; a run sets data handles. Activations
// are plain NHWC, weights are HWIO or (k, m) outside; where oneDNN prefers another weight layout, a
// reorder runs inside the kernel.
#pragma once

#include "core/backend/backend.h"
#include "core/backend/cpu/matmul.h"
#include "core/ops/activation_kind.h"
#include "core/ops/conv2d.h"

namespace kerascnn::cpu::onednn {

// All of them throw LibraryError, which names op, shapes and oneDNN's version, where oneDNN can't
// make the primitive.
std::unique_ptr<Kernel> plan_matmul(const PlanRequest& request, const MatmulSizes& sizes);
// Null where oneDNN has no fast kernel that is exact: without VNNI it adds pairs of products in 16
// bits, where they may overflow.
std::unique_ptr<Kernel> plan_integer_matmul(const PlanRequest& request, const MatmulSizes& sizes);
std::unique_ptr<Kernel> plan_dense(const PlanRequest& request);
std::unique_ptr<Kernel> plan_conv2d(const PlanRequest& request, const Conv2DGeometry& geometry,
                                    bool has_bias, const ActivationCall& activation);
std::unique_ptr<Kernel> plan_conv2d_dgrad(const PlanRequest& request,
                                          const Conv2DGeometry& geometry);
std::unique_ptr<Kernel> plan_conv2d_wgrad(const PlanRequest& request,
                                          const Conv2DGeometry& geometry);

// The same for bfloat16, on processors with units that multiply tiles of it and add in float32
// (AMX). Null on others, and where oneDNN has no such kernel for the sizes. The units take numbers
// below 2^-126 for 0. plan_conv2d_wgrad_bfloat16 multiplies padding by 0: what is not finite
// reaches all taps of its channel.
std::unique_ptr<Kernel> plan_matmul_bfloat16(const PlanRequest& request, const MatmulSizes& sizes);
std::unique_ptr<Kernel> plan_dense_bfloat16(const PlanRequest& request);
std::unique_ptr<Kernel> plan_conv2d_bfloat16(const PlanRequest& request,
                                             const Conv2DGeometry& geometry, bool has_bias,
                                             const ActivationCall& activation);
std::unique_ptr<Kernel> plan_conv2d_dgrad_bfloat16(const PlanRequest& request,
                                                   const Conv2DGeometry& geometry);
std::unique_ptr<Kernel> plan_conv2d_wgrad_bfloat16(const PlanRequest& request,
                                                   const Conv2DGeometry& geometry);

}  // namespace kerascnn::cpu::onednn
