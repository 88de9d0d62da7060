// Depthwise convolution with kernels of 3 x 3.
#include "core/backend/cuda/convolution/depthwise_square.cuh"

namespace kerascnn::cuda::depthwise {

template std::unique_ptr<Kernel> plan_square<3>(const Conv2DCall& call);

}  // namespace kerascnn::cuda::depthwise
