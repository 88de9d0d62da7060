// Every environment variable that the core reads. docs/environment.md describes them.
//
//   KERASCNN_CUDA_GRAPHS   0: launch CUDA kernels one by one and wait for each, to find one that
//   fails KERASCNN_NUM_THREADS   threads of the CPU backend (default: the cores the process may
//   use)
#pragma once

#include <cstdint>

namespace kerascnn {

// True for "1", "true", "on", "yes"; false for "0", "false", "off", "no"; `fallback` where unset or
// empty. Throws ValueError for anything else.
bool env_flag(const char* name, bool fallback);

// A positive integer, or `fallback` where unset or empty. Throws ValueError for anything else.
int64_t env_positive(const char* name, int64_t fallback);

}  // namespace kerascnn
