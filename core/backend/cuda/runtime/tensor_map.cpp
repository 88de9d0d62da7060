#include "core/backend/cuda/runtime/tensor_map.h"

#include <cuda_runtime_api.h>

#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, found at run time: this library does not link to the driver.
Encode find_encode() {
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                                12000, cudaEnableDefault, &found);
    const bool is_found = status == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return is_found ? reinterpret_cast<Encode>(function) : nullptr;
  }();
  return encode;
}

CUtensorMapDataType data_type(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::BFloat16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::Float32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    default:
      throw TypeError(message("copies of boxes: dtype ", dtype_name(dtype), " is not supported"));
  }
}

// As wide as a row of a box.
CUtensorMapSwizzle swizzle_of(int64_t bytes) {
  switch (bytes) {
    case 32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    default:
      throw ValueError(message("copies of boxes: rows of ", bytes, " bytes; expected 32 or 128"));
  }
}

}  // namespace

bool can_describe_boxes() { return find_encode() != nullptr; }

CUtensorMap describe_boxes(std::string_view op, DType dtype, const void* data,
                           const std::array<int, 4>& extents, const std::array<int, 4>& box) {
  std::array<cuuint64_t, 4> sizes{};
  std::array<cuuint64_t, 3> strides{};  // bytes, of all axes but the first
  std::array<cuuint32_t, 4> box_sizes{};
  auto stride = static_cast<cuuint64_t>(itemsize(dtype));
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    sizes[axis] = static_cast<cuuint64_t>(extents[axis]);
    box_sizes[axis] = static_cast<cuuint32_t>(box[axis]);
    stride *= sizes[axis];
    if (axis < strides.size()) strides[axis] = stride;
  }
  const std::array<cuuint32_t, 4> steps = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult status =
      find_encode()(&map, data_type(dtype), 4, const_cast<void*>(data), sizes.data(),
                    strides.data(), box_sizes.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                    swizzle_of(box[0] * itemsize(dtype)), CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw LibraryError(message(op, ": cuTensorMapEncodeTiled failed with status ",
                               static_cast<int>(status), " for a tensor of (", extents[3], ", ",
                               extents[2], ", ", extents[1], ", ", extents[0], ")"));
  }
  return map;
}

}  // namespace kerascnn::cuda
