// Names of devices: "cpu", "cuda:0", "cuda:1", ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kerascnn {

enum class DeviceType : uint8_t { Cpu, Cuda };

struct Device {
  DeviceType type = DeviceType::Cpu;
  int index = 0;

  bool operator==(const Device&) const = default;
};

std::string device_name(Device device);          // "cpu" or "cuda:0"
Device device_from_name(std::string_view name);  // also "gpu", "gpu:1", "cuda"; throws ValueError

}  // namespace kerascnn
