// Barriers in shared memory that some threads arrive at and others wait for (sm_90): a ring of
// stages has one that says that a stage is full, and one that says that it is empty again.
//
// Source: PTX ISA, "mbarrier".
#pragma once

#include <cstdint>

namespace kerascnn::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define KERASCNN_HAS_BARRIERS 1
#endif

struct alignas(8) Barrier {
  uint64_t state;

  // One thread calls it, before a __syncthreads(). A phase ends with that many arrivals.
  __device__ __forceinline__ void start(int arrivals) {
#ifdef KERASCNN_HAS_BARRIERS
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals)
                 : "memory");
#endif
  }

  // What the thread has read or written before comes before what those do that wait.
  __device__ __forceinline__ void arrive() {
#ifdef KERASCNN_HAS_BARRIERS
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
#endif
  }

  // Arrives, and the phase does not end before copies have brought so many bytes.
  __device__ __forceinline__ void arrive_and_expect(int bytes) {
#ifdef KERASCNN_HAS_BARRIERS
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
#endif
  }

  // Waits until phase number `phase` has ended, of which the last bit counts.
  __device__ __forceinline__ void wait(uint32_t phase) {
#ifdef KERASCNN_HAS_BARRIERS
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(address()),
        "r"(phase & 1)
        : "memory");
#else
    (void)phase;
#endif
  }

  __device__ __forceinline__ uint32_t address() const {
    return static_cast<uint32_t>(__cvta_generic_to_shared(this));
  }
};

// Goes around a ring of stages: which one it is at, and how often, to the last bit, it has been
// around.
struct RingStage {
  int number = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ void advance(int stages, int steps = 1) {
    number += steps;
    while (number >= stages) {
      number -= stages;
      phase ^= 1;
    }
  }
};

// Starts to copy a box of a tensor to shared memory, from the given place on in each of its four
// axes, the contiguous one first. It arrives at the barrier with its bytes.
__device__ __forceinline__ void copy_tensor(void* to, const void* map, Barrier& barrier, int first,
                                            int second, int third, int fourth) {
#ifdef KERASCNN_HAS_BARRIERS
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4, %5}], [%6];" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(map), "r"(first), "r"(second), "r"(third), "r"(fourth), "r"(barrier.address())
      : "memory");
#else
  __trap();  // planned for sm_90 only
#endif
}

// Starts to copy a box from shared memory to a tensor; what is beyond the tensor is left out.
// Before it threads that have written the box call publish_to_async_proxy() and meet.
__device__ __forceinline__ void store_tensor(const void* map, const void* from, int first,
                                             int second, int third, int fourth) {
#ifdef KERASCNN_HAS_BARRIERS
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];\n"
      "cp.async.bulk.commit_group;" ::"l"(map),
      "r"(first), "r"(second), "r"(third), "r"(fourth),
      "r"(static_cast<uint32_t>(__cvta_generic_to_shared(from)))
      : "memory");
#else
  __trap();  // planned for sm_90 only
#endif
}

// Waits until the boxes that this thread stores may be written again.
__device__ __forceinline__ void wait_until_stores_are_read() {
#ifdef KERASCNN_HAS_BARRIERS
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}

// Waits until the boxes that this thread stores have arrived.
__device__ __forceinline__ void wait_for_stores() {
#ifdef KERASCNN_HAS_BARRIERS
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

}  // namespace kerascnn::cuda
