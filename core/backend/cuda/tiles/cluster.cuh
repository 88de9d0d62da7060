// Thread-block clusters (sm_90 and newer) are blocks that run at the same time and can write to
// each other's shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "core/backend/cuda/runtime/check.h"

namespace kerascnn::cuda {

// All threads of a cluster meet at this barrier, in two halves: what was written before the first
// is visible after the second.
__device__ __forceinline__ void arrive_in_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
  __trap();  // planned for sm_90 and newer only
#endif
}

__device__ __forceinline__ void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

#if __CUDA_ARCH__ >= 900
// Where `rank`, a block of the cluster, has what this block has at `shared`.
__device__ __forceinline__ uint32_t address_in_cluster(const void* shared, unsigned rank) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
#endif

// Writes to where `rank`, a block of the cluster, has what this block has at `shared`.
__device__ __forceinline__ void store_in_cluster(float4* shared, unsigned rank, float4 value) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address_in_cluster(shared, rank)),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
      : "memory");
#endif
}

__device__ __forceinline__ void store_in_cluster(float2* shared, unsigned rank, float2 value) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address_in_cluster(shared, rank)),
               "f"(value.x), "f"(value.y)
               : "memory");
#endif
}

__device__ __forceinline__ void store_in_cluster(float* shared, unsigned rank, float value) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address_in_cluster(shared, rank)),
               "f"(value)
               : "memory");
#endif
}

// Reads what `rank`, a block of the cluster, has where this block has `shared`.
__device__ __forceinline__ float4 load_from_cluster(const float4* shared, unsigned rank) {
  float4 value{};
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(address_in_cluster(shared, rank))
               : "memory");
#endif
  return value;
}

__device__ __forceinline__ float load_from_cluster(const float* shared, unsigned rank) {
  float value = 0.0f;
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.f32 %0, [%1];"
               : "=f"(value)
               : "r"(address_in_cluster(shared, rank))
               : "memory");
#endif
  return value;
}

// A launch of clusters of `size` blocks that are neighbours along x.
class ClusterLaunch {
 public:
  ClusterLaunch(dim3 blocks, unsigned threads, unsigned size, size_t shared_bytes,
                cudaStream_t stream = nullptr) {
    attribute_.id = cudaLaunchAttributeClusterDimension;
    attribute_.val.clusterDim.x = size;
    attribute_.val.clusterDim.y = 1;
    attribute_.val.clusterDim.z = 1;
    config_.gridDim = blocks;
    config_.blockDim = dim3(threads);
    config_.dynamicSmemBytes = shared_bytes;
    config_.stream = stream;
    config_.attrs = &attribute_;
    config_.numAttrs = 1;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
  ClusterLaunch& operator=(const ClusterLaunch&) = delete;

  // Can the device run such clusters of the kernel, as it was compiled?
  template <typename... P>
  bool fits(void (*kernel)(P...)) const {
    return most_active(kernel) > 0;
  }

  // How many such clusters it can run at a time; 0 where it can't run any.
  template <typename... P>
  int most_active(void (*kernel)(P...)) const {
    cudaFuncAttributes compiled{};
    check(cudaFuncGetAttributes(&compiled, kernel), "cudaFuncGetAttributes");
    if (compiled.ptxVersion < 90) return 0;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
          "cudaFuncSetAttribute");
    int clusters = 0;
    const cudaError_t status = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config_);
    if (status != cudaSuccess) (void)cudaGetLastError();  // a size that the device never takes
    return status == cudaSuccess ? clusters : 0;
  }

  template <typename... P, typename... A>
  void run(void (*kernel)(P...), A&&... args) const {
    check(cudaLaunchKernelEx(&config_, kernel, std::forward<A>(args)...), "cudaLaunchKernelEx");
  }

 private:
  cudaLaunchAttribute attribute_{};
  cudaLaunchConfig_t config_{};
};

}  // namespace kerascnn::cuda
