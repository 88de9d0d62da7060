#include "core/base/dtype.h"

#include <array>

#include "core/base/error.h"

namespace kerascnn {
namespace {

struct DTypeInfo {
  const char* name;
  size_t size;
};

// In the order of the enumeration.
constexpr std::array<DTypeInfo, 10> kDTypes = {{
    {"bool", 1},
    {"uint8", 1},
    {"int8", 1},
    {"int16", 2},
    {"int32", 4},
    {"int64", 8},
    {"float16", 2},
    {"bfloat16", 2},
    {"float32", 4},
    {"float64", 8},
}};

}  // namespace

size_t itemsize(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].size; }

const char* dtype_name(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }

DType dtype_from_name(std::string_view name) {
  std::string known;
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (name == kDTypes[i].name) return static_cast<DType>(i);
    known += (i ? ", " : "") + std::string(kDTypes[i].name);
  }
  throw TypeError(message("dtype \"", name, "\" is not supported; expected one of: ", known,
                          ". Convert the data first, for example with x.astype(\"float32\")"));
}

}  // namespace kerascnn
