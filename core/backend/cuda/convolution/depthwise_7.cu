// Depthwise convolution with kernels of 7 x 7.
#include "core/backend/cuda/convolution/depthwise_square.cuh"

namespace kerascnn::cuda::depthwise {

template std::unique_ptr<Kernel> plan_square<7>(const Conv2DCall& call);

}  // namespace kerascnn::cuda::depthwise
