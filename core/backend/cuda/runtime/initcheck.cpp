#include "core/backend/cuda/runtime/initcheck.h"

#if __has_include(<nvtx3/nvToolsExtMemCudaRt.h>)
#include <nvtx3/nvToolsExtMemCudaRt.h>

#include <vector>
#define KERASCNN_WITH_NVTX_MEMORY 1
#endif

namespace kerascnn::cuda {

#ifdef KERASCNN_WITH_NVTX_MEMORY

void mark_written(std::initializer_list<WrittenRange> ranges, cudaStream_t stream) {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("kerascnn");
  if (domain == nullptr) return;  // no tool listens
  std::vector<nvtxMemVirtualRangeDesc_t> regions;
  for (const auto& [data, bytes] : ranges) {
    if (bytes > 0) regions.push_back({static_cast<size_t>(bytes), data});
  }
  nvtxMemMarkInitializedBatch_t batch{};
  batch.extCompatID = NVTX_EXT_COMPATID_MEM;
  batch.structSize = sizeof(batch);
  batch.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  batch.regionDescCount = regions.size();
  batch.regionDescElementSize = sizeof(regions[0]);
  batch.regionDescElements = regions.data();
  constexpr bool is_per_thread_stream = false;
  nvtxMemCudaMarkInitialized(domain, stream, is_per_thread_stream, &batch);
}

#else

void mark_written(std::initializer_list<WrittenRange>, cudaStream_t) {}

#endif

}  // namespace kerascnn::cuda
