// The ops that run on CUDA: one visible row per op (kernel_table.cpp), and the plan functions it
// names.
#pragma once

#include <span>

#include "core/backend/backend.h"

namespace kerascnn::cuda {

std::span<const KernelTableRow> kernel_table();

}  // namespace kerascnn::cuda
