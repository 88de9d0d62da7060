// Depthwise convolution with kernels of 5 x 5.
#include "core/backend/cuda/convolution/depthwise_square.cuh"

namespace kerascnn::cuda::depthwise {

template std::unique_ptr<Kernel> plan_square<5>(const Conv2DCall& call);

}  // namespace kerascnn::cuda::depthwise
