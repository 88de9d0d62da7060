// JPEG files decoded and resized on a GPU (core/images/gpu_images.h): nvJPEG and a kernel, on
// streams of their own.
#pragma once

#include "core/images/gpu_images.h"

namespace kerascnn::cuda {

GpuImages& gpu_images();

}  // namespace kerascnn::cuda
