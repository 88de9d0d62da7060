// Sums between GPUs, of several processes or of one, by NCCL. Its library is opened when processes
// join, so that one GPU alone needs none. The few functions that are called are the same in all of
// NCCL 2 since 2.18 and are declared in nccl.cpp: building needs no NCCL.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/backend/gpu_collectives.h"
#include "core/base/dtype.h"

namespace kerascnn::cuda {

// `count` elements at `from` in all processes are summed to `to`, which may be the same memory.
struct SummedMemory {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t count = 0;
};

// Throws DeviceError, which begins with the op's name, where the calling thread's device is not one
// of so many that were joined.
void check_joined(std::string_view op, int64_t processes);

// Puts sums over all processes on the stream, which may be captured. All processes get the same
// bits. In which order the addends of an element are taken is NCCL's, by the number of processes,
// the links between their GPUs and the size. With `average` each addend is divided by the number of
// processes first. Throws what check_joined() throws.
void sum_over_processes(std::string_view op, int64_t processes,
                        const std::vector<SummedMemory>& memory, DType dtype, bool average,
                        cudaStream_t stream);

// Memory of which one process is the owner.
struct OwnedMemory {
  const void* from = nullptr;
  void* to = nullptr;  // may be the same memory
  int64_t count = 0;
  int owner = 0;
};

// As sum_over_processes(), but only the owner of each gets the sum: in the others `to` stays as it
// is. In all, each process sends and receives half as much.
void reduce_to_owners(std::string_view op, int64_t processes,
                      const std::vector<OwnedMemory>& memory, DType dtype, bool average,
                      cudaStream_t stream);

// What each owner has at `from` goes to `to` in all processes.
void broadcast_from_owners(std::string_view op, int64_t processes,
                           const std::vector<OwnedMemory>& memory, DType dtype,
                           cudaStream_t stream);

// The number of this process among those that have joined.
int64_t rank_among(std::string_view op, int64_t processes);

// Notes that so many calls of the functions above are on the stream, for whoever watches how far
// it is. For captured ones: each time when they were launched.
void note_meetings(int64_t count, cudaStream_t stream);

// How a loop on the device that has such calls in it and the host that watches it speak with each
// other, by memory of the host. Each word has one writer, and nothing else depends on its order.
struct LoopSignals {
  int64_t turn = 0;     // the loop writes how many turns are left; its end is an event of its own
  int64_t is_over = 0;  // the host writes: sums were given up, and the loop ends with this turn
};

// Those of the calling thread's device. Null where it has joined nobody.
LoopSignals* loop_signals();

// Of this library; never destroyed.
GpuCollectives& nccl_collectives();

}  // namespace kerascnn::cuda
