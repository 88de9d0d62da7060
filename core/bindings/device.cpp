#include "core/base/device.h"

#include <nanobind/stl/tuple.h>

#include "core/backend/backend.h"
#include "core/backend/kernel_choice.h"
#include "core/base/build_info.h"
#include "core/bindings/bindings.h"
#include "core/tensor/give_back.h"

namespace kerascnn::bindings {
namespace {

Backend& backend_of(const std::string& device) { return backend(device_from_name(device)); }

nb::dict memory_stats(const std::string& device) {
  Allocator& allocator = backend_of(device).allocator();
  const MemoryStats stats = allocator.stats();
  nb::dict result;
  result["allocated"] = stats.allocated;
  result["cached"] = stats.cached;
  result["peak"] = stats.peak;
  result["num_allocations"] = stats.num_allocations;
  result["available"] = allocator.available();
  return result;
}

nb::dict launch_stats(const std::string& device) {
  const LaunchStats stats = backend_of(device).launch_stats();
  nb::dict result;
  result["kernel_launches"] = stats.kernel_launches;
  result["graph_launches"] = stats.graph_launches;
  result["graph_captures"] = stats.graph_captures;
  return result;
}

nb::list kernel_choices() {
  nb::list result;
  for (const KernelChoice& choice : kernel_chooser().choices()) {
    nb::dict seconds;
    for (const auto& [kernel, time] : choice.seconds) seconds[nb::cast(kernel)] = time;
    nb::dict row;
    row["machine"] = choice.machine;
    row["call"] = choice.call;
    row["kernel"] = choice.kernel;
    row["seconds"] = seconds;
    row["is_from_disk"] = choice.is_from_disk;
    result.append(row);
  }
  return result;
}

std::vector<std::tuple<std::string, bool, std::string>> devices() {
  std::vector<std::tuple<std::string, bool, std::string>> result;
  for (const DeviceStatus& status : list_devices()) {
    result.emplace_back(device_name(status.device), status.usable, status.description);
  }
  return result;
}

nb::dict build_information() {
  nb::dict info;
  info["version"] = build_info::kVersion;
  info["compiler"] = build_info::kCompiler;
  info["build_type"] = build_info::kBuildType;
  info["platform"] = build_info::kPlatform;
  info["openmp"] = build_info::kOpenMpVersion;
  info["onednn"] = build_info::kOneDnnVersion;
  info["onednn_missing_reason"] = build_info::kOneDnnMissingReason;
  info["cuda"] = build_info::kCudaVersion;
  info["cuda_architectures"] = build_info::kCudaArchitectures;
  info["cudnn"] = build_info::kCudnnVersion;
  info["cuda_missing_reason"] = build_info::kCudaMissingReason;
  return info;
}

}  // namespace

void bind_device(nb::module_& m) {
  m.def("list_devices", &devices,
        "(name, usable, description or reason) of the CPU and every GPU. Looks for GPUs.");
  m.def(
      "synchronize",
      [](const std::string& device, double patience) {
        Backend& target = backend_of(device);
        Unlocked released;
        target.synchronize(patience);
        give_back_finished();
      },
      nb::arg("device"), nb::arg("patience") = kUsualPatience,
      "Waits until all work on the device is done: for `patience` seconds by looking again and "
      "again, then asleep.");
  m.def("memory_stats", &memory_stats, nb::arg("device"),
        nb::sig("def memory_stats(device: str) -> dict[str, int]"),
        "Bytes allocated, cached, peak and available, and the number of allocations.");
  m.def(
      "reset_peak_memory",
      [](const std::string& device) { backend_of(device).allocator().reset_peak(); },
      nb::arg("device"));
  m.def(
      "release_cached",
      [](const std::string& device) { backend_of(device).allocator().release_cached(); },
      nb::arg("device"), "Gives unused cached memory back to the system.");
  m.def("launch_stats", &launch_stats, nb::arg("device"),
        nb::sig("def launch_stats(device: str) -> dict[str, int]"),
        "Kernels and graphs launched by the host, and graphs captured, since the process began.");
  m.def("kernel_choices", &kernel_choices,
        nb::sig("def kernel_choices() -> list[dict[str, typing.Any]]"),
        "What was found by timing kernels, by this process or by one before.");
  m.def("set_cuda_library_folder", &set_cuda_library_folder, nb::arg("folder"),
        "Where the CUDA backend is looked for if it is not beside the core. Loads nothing.");
  m.def("build_info", &build_information, nb::sig("def build_info() -> dict[str, str]"));
  m.def("cuda_versions", &cuda_versions,
        "Versions of the CUDA libraries in use; empty where the CUDA backend can't be loaded.");
}

}  // namespace kerascnn::bindings
