// The data structures of DLPack (https://dmlc.github.io/dlpack/latest/c_api.html), versions 0.x
// and 1.x: a C ABI that array libraries share, so names and order of the fields are the standard's.
#pragma once

#include <cstdint>

extern "C" {

enum DLDeviceCode : int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,      // main memory that is pinned for a GPU
  kDLCUDAManaged = 13,  // memory that moves between host and GPU by itself
};

enum DLTypeCode : uint8_t {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6,
  kDLFirstSmallFloat = 7,  // float8_e3m4 and others of 8, 6 and 4 bits
  kDLLastSmallFloat = 17,
};

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};

struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null for row-major order
  uint64_t byte_offset;
};

struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};

}  // extern "C"

namespace kerascnn {

constexpr DLPackVersion kDLPackVersion = {1, 1};
constexpr uint64_t kDLPackReadOnly = 1u << 0;
constexpr uint64_t kDLPackCopied = 1u << 1;

}  // namespace kerascnn
