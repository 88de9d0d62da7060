// Which backends there are. The CUDA library is looked for beside this one and in the folder that
// was named, and only when a GPU or the list of devices is asked for.
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/backend/backend.h"
#include "core/backend/cpu/cpu_backend.h"
#include "core/backend/cuda_function.h"
#include "core/backend/gpu_collectives.h"
#include "core/backend/guarded_kernel.h"
#include "core/base/build_info.h"
#include "core/base/core_interface.h"
#include "core/base/error.h"

namespace kerascnn {
namespace {

constexpr const char* kCudaLibrary = "libkerascnn_cuda.so";
constexpr const char* kCudaPackage = "kerascnn_cuda13";
// From sources or from wheels, as kerascnn itself came.
constexpr const char* kInstallRemedy =
    "KERASCNN_CUDA=ON pip install \".[cuda13]\" in the folder of its sources, or pip install "
    "\"kerascnn[cuda13]\" once it is released (docs/install.md)";

struct LoadedPlugin {
  const CudaPlugin* plugin = nullptr;
  std::string reason;  // why there is none, and what to do
  void* library = nullptr;
};

std::filesystem::path library_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&library_folder), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  return std::filesystem::path(info.dli_fname).parent_path();
}

std::filesystem::path& named_folder() {
  static std::filesystem::path folder;
  return folder;
}

std::string missing_library_reason(const std::filesystem::path& path) {
  const std::string built_without = build_info::kCudaMissingReason;
  if (!built_without.empty()) {
    return message("kerascnn was built without its CUDA backend (", built_without,
                   "); install it with: ", kInstallRemedy);
  }
  return message("the CUDA backend ", path.filename().string(), " is not beside libkerascnn in ",
                 path.parent_path().string(), "; reinstall kerascnn");
}

// dlerror names the library that could not be found; an extra of the package brings those of CUDA.
std::string load_failure_reason(const std::string& error) {
  for (const char* library :
       {"libcudart", "libcudnn", "libcublas", "libnvrtc", "libcupti", "libnvJitLink"}) {
    if (error.find(library) != std::string::npos) {
      return message("the CUDA libraries are missing or don't fit (", error,
                     "); install them with: ", kInstallRemedy);
    }
  }
  return message("the CUDA backend can't be loaded (", error, "); reinstall kerascnn");
}

// Where the library is, or would be: that of this build goes before that of a package of its own,
// which is named, or beside this package where nobody knows of Python's path.
std::filesystem::path find_library() {
  const std::filesystem::path own = library_folder();
  std::error_code ignored;
  if (std::filesystem::exists(own / kCudaLibrary, ignored)) return own / kCudaLibrary;
  if (!named_folder().empty()) return named_folder() / kCudaLibrary;
  const std::filesystem::path apart = own.parent_path() / kCudaPackage / kCudaLibrary;
  return std::filesystem::exists(apart, ignored) ? apart : own / kCudaLibrary;
}

LoadedPlugin load_plugin() {
  const std::filesystem::path path = find_library();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {nullptr, missing_library_reason(path)};
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    return {nullptr, load_failure_reason(error != nullptr ? error : "unknown error")};
  }
  using Interface = const char* (*)();
  using Entry = const CudaPlugin* (*)();
  const auto interface = reinterpret_cast<Interface>(dlsym(library, kCudaInterfaceSymbol));
  const Entry entry = reinterpret_cast<Entry>(dlsym(library, kCudaPluginSymbol));
  if (interface == nullptr || entry == nullptr || std::string_view(interface()) != kCoreInterface) {
    return {nullptr, message("the CUDA backend ", path.string(), " is of ",
                             interface != nullptr ? interface() : "another version",
                             " and doesn't fit this kerascnn, which is ", kCoreInterface,
                             "; install both from one checkout or release: ", kInstallRemedy)};
  }
  return {entry(), "", library};
}

const LoadedPlugin& cuda_plugin() {
  static const LoadedPlugin loaded = load_plugin();
  return loaded;
}

// Empty where the device is there, otherwise the reason.
std::string cuda_unavailable_reason() {
  const LoadedPlugin& loaded = cuda_plugin();
  if (loaded.plugin == nullptr) return loaded.reason;
  if (loaded.plugin->device_count() > 0) return "";
  return loaded.plugin->unavailable_reason();
}

Backend& cuda_backend(Device device) {
  const std::string reason = cuda_unavailable_reason();
  if (!reason.empty()) {
    throw DeviceError(message("device ", device_name(device), " can't be used: ", reason));
  }
  const int count = cuda_plugin().plugin->device_count();
  if (device.index >= count) {
    throw DeviceError(message("device ", device_name(device), " can't be used: there ",
                              count == 1 ? "is 1 GPU" : message("are ", count, " GPUs"),
                              ", from cuda:0 to cuda:", count - 1,
                              "; CUDA_VISIBLE_DEVICES may hide others"));
  }
  return cuda_plugin().plugin->backend(device.index);
}

}  // namespace

Backend& backend(Device device) {
  if (device.type == DeviceType::Cpu) return cpu_backend();
  // Every tensor that is made asks for this, and the driver takes longer to answer than that.
  static std::array<std::atomic<Backend*>, 64> known{};
  const auto index = static_cast<size_t>(device.index);
  if (index >= known.size()) return cuda_backend(device);
  Backend* found = known[index].load(std::memory_order_acquire);
  if (found == nullptr) {
    found = &cuda_backend(device);
    known[index].store(found, std::memory_order_release);
  }
  return *found;
}

std::vector<DeviceStatus> list_devices() {
  std::vector<DeviceStatus> devices = {{Device{}, true, cpu_backend().description()}};
  const std::string reason = cuda_unavailable_reason();
  if (!reason.empty()) {
    devices.push_back({Device{DeviceType::Cuda, 0}, false, reason});
    return devices;
  }
  const int count = cuda_plugin().plugin->device_count();
  for (int index = 0; index < count; ++index) {
    const Device device{DeviceType::Cuda, index};
    try {
      devices.push_back({device, true, cuda_backend(device).description()});
    } catch (const Error& error) {
      devices.push_back({device, false, error.what()});
    }
  }
  return devices;
}

void set_cuda_library_folder(const std::string& folder) { named_folder() = folder; }

std::string cuda_versions() {
  const LoadedPlugin& loaded = cuda_plugin();
  return loaded.plugin != nullptr ? loaded.plugin->versions() : "";
}

std::shared_ptr<Compilation> start_cuda_compile(int compute_capability, const std::string& source,
                                                const std::string& function,
                                                const std::vector<std::string>& options) {
  const LoadedPlugin& loaded = cuda_plugin();
  if (loaded.plugin == nullptr) {
    throw DeviceError(message("CUDA C++ can't be compiled: ", loaded.reason));
  }
  return loaded.plugin->start_compile(compute_capability, source, function, options);
}

GpuCollectives& gpu_collectives() {
  const std::string reason = cuda_unavailable_reason();
  if (!reason.empty()) {
    throw DeviceError(message("several GPUs can't be connected: ", reason));
  }
  return cuda_plugin().plugin->collectives();
}

void* cuda_function(const char* name, const std::string& what_fails) {
  const std::string reason = cuda_unavailable_reason();
  if (!reason.empty()) throw DeviceError(message(what_fails, ": ", reason));
  void* const function = dlsym(cuda_plugin().library, name);
  if (function == nullptr) {
    throw DeviceError(message(what_fails, ": the CUDA backend has no function ", name));
  }
  return function;
}

std::string nvrtc_state() {
  const LoadedPlugin& loaded = cuda_plugin();
  return loaded.plugin != nullptr ? loaded.plugin->nvrtc_state() : loaded.reason;
}

const KernelTableRow* find_kernel_row(const Backend& backend, std::string_view op) {
  for (const KernelTableRow& row : backend.kernel_table()) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

std::unique_ptr<Kernel> begin_to_plan_kernel(Backend& backend, const PlanRequest& request) {
  const KernelTableRow* row = find_kernel_row(backend, request.op.name);
  if (row == nullptr) {
    throw DeviceError(message(request.op.name, ": there is no kernel for this op on ",
                              device_name(backend.device()), "; run it on another device"));
  }
  backend.activate();
  std::unique_ptr<Kernel> kernel = row->plan(request);
  if (!checks_kernels()) return kernel;
  return make_guarded_kernel(backend, std::move(kernel), request);
}

std::unique_ptr<Kernel> plan_kernel(Backend& backend, const PlanRequest& request) {
  std::unique_ptr<Kernel> kernel = begin_to_plan_kernel(backend, request);
  kernel->finish_planning();
  return kernel;
}

}  // namespace kerascnn
