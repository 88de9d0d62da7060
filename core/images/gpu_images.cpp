#include "core/images/gpu_images.h"

#include "core/backend/cuda_function.h"

namespace kerascnn {

GpuImages& gpu_images() {
  return *reinterpret_cast<GpuImages* (*)()>(
      cuda_function(kGpuImagesSymbol, "images can't be decoded on a GPU"))();
}

}  // namespace kerascnn
