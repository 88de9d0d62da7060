#include "core/base/device.h"

#include <charconv>

#include "core/base/error.h"

namespace kerascnn {

std::string device_name(Device device) {
  if (device.type == DeviceType::Cpu) return "cpu";
  return "cuda:" + std::to_string(device.index);
}

Device device_from_name(std::string_view name) {
  const size_t colon = name.find(':');
  const std::string_view kind = name.substr(0, colon);
  int index = 0;
  bool valid = kind == "cpu" || kind == "cuda" || kind == "gpu";
  if (colon != std::string_view::npos) {
    const std::string_view digits = name.substr(colon + 1);
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    valid = valid && status == std::errc() && end == digits.data() + digits.size() && index >= 0;
    if (kind == "cpu") valid = valid && index == 0;
  }
  if (!valid) {
    throw ValueError(message("device \"", name,
                             "\" is not known; expected \"cpu\", \"cuda\" (the same as \"gpu\" and "
                             "\"cuda:0\") or \"cuda:N\""));
  }
  return {kind == "cpu" ? DeviceType::Cpu : DeviceType::Cuda, index};
}

}  // namespace kerascnn
