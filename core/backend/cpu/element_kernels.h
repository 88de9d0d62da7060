// Kernels around the loops of ops of one and of two operands. The parts that are the same for every
// op are compiled once, here, instead of once for each op and dtype.
#pragma once

#include <cstdint>
#include <memory>

#include "core/backend/backend.h"
#include "core/backend/cpu/element_loops.h"

namespace kerascnn::cpu {

// out[i] = op(x[i], p0, p1), on arrays of the dtypes that the loop is for.
using UnaryLoop = void (*)(const void* x, void* out, int64_t count, double p0, double p1);

std::unique_ptr<Kernel> make_unary_kernel(const PlanRequest& request, UnaryLoop loop, double p0,
                                          double p1,
                                          const char* description = "kerascnn elementwise");
// For float32, and for 16-bit types, which are widened block by block and rounded once.
std::unique_ptr<Kernel> make_float_unary_kernel(const PlanRequest& request, ElementLoop loop,
                                                double p0, double p1);

// out[i] = op(a[i * a_step], b[i * b_step], parameter), on arrays of the dtypes that the loop is
// for.
using BinaryLoop = void (*)(const void* a, int64_t a_step, const void* b, int64_t b_step, void* out,
                            int64_t count, double parameter);

// Operands are broadcast.
std::unique_ptr<Kernel> make_binary_kernel(const PlanRequest& request, BinaryLoop loop,
                                           double parameter);
// For float32, and for 16-bit types, which use the loop of float32 too. `contiguous` is used where
// both steps are 1, unless it is null.
std::unique_ptr<Kernel> make_float_binary_kernel(const PlanRequest& request, BinaryLoop loop,
                                                 ElementLoop contiguous, double parameter);

}  // namespace kerascnn::cpu
