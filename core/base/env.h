// Every environment variable that the core reads. docs/environment.md describes them.
//
//   KERASCNN_CHECK_KERNELS 1: a kernel that writes beside its outputs is an error
//   KERASCNN_COMPILE_THREADS
//                          threads that compile kernels (default: the cores, at most 16)
//   KERASCNN_CPU_ISA       plain, avx2 or avx512: the newest instruction set of own CPU kernels
//   KERASCNN_CPU_REGIONS   1: regions are formed as for a GPU
//   KERASCNN_CUDA_BRANCHES 0: kernels of a CUDA graph run one after another, never side by side
//   KERASCNN_CUDA_EARLY_STARTS 0: kernels of a CUDA graph start when what they wait for has ended
//   KERASCNN_CUDA_GRAPHS   0: launch CUDA kernels one by one and wait for each, to find one that
//                          fails
//   KERASCNN_CUDA_PRIORITIES 0: all kernels of a CUDA graph have the same priority
//   KERASCNN_CUDA_REGIONS  0: no generated kernels; 2: generated ones for small regions too
//   KERASCNN_GROUP_NORM_KERNELS
//                          1: group normalization has a kernel of its own in each pass on CUDA
//   KERASCNN_HOME          where choices of kernels and compiled kernels are kept (default:
//                          ~/.kerascnn)
//   KERASCNN_KERNEL_CACHE_MB
//                          megabytes of compiled kernels that are kept (default: 256)
//   KERASCNN_NUM_THREADS   threads of the CPU backend (default: the cores the process may use)
//   KERASCNN_POISON_MEMORY 1: memory that holds nothing yet is filled with NaN
//   KERASCNN_SHUFFLE_KERNELS
//                          a seed: a program's kernels run in any order that is allowed
//   KERASCNN_TF32          0: models that C++ loads compute without TF32; Python has a setting
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace kerascnn {

// True for "1", "true", "on", "yes"; false for "0", "false", "off", "no"; `fallback` where unset or
// empty. Throws ValueError for anything else.
bool env_flag(const char* name, bool fallback);

// A positive integer, or `fallback` where unset or empty. Throws ValueError for anything else.
int64_t env_positive(const char* name, int64_t fallback);

// The same, and 0 is allowed.
int64_t env_count(const char* name, int64_t fallback);

// One of `choices`, or "" where unset or empty. Throws ValueError for anything else.
std::string env_choice(const char* name, std::initializer_list<std::string_view> choices);

}  // namespace kerascnn
