#include "core/backend/cuda/runtime/nvrtc.h"

#include <dlfcn.h>
#include <nvrtc.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/backend/cuda/runtime/check.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/opened_library.h"
#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

struct Nvrtc {
  decltype(&nvrtcVersion) get_version;
  decltype(&nvrtcCreateProgram) create_program;
  decltype(&nvrtcDestroyProgram) destroy_program;
  decltype(&nvrtcAddNameExpression) add_name_expression;
  decltype(&nvrtcCompileProgram) compile_program;
  decltype(&nvrtcGetProgramLogSize) log_size;
  decltype(&nvrtcGetProgramLog) log;
  decltype(&nvrtcGetLoweredName) lowered_name;
  decltype(&nvrtcGetCUBINSize) cubin_size;
  decltype(&nvrtcGetCUBIN) cubin;
  decltype(&nvrtcGetPTXSize) ptx_size;
  decltype(&nvrtcGetPTX) ptx;
  decltype(&nvrtcGetNumSupportedArchs) num_archs;
  decltype(&nvrtcGetSupportedArchs) archs;
  decltype(&nvrtcGetErrorString) error_string;
  std::string version;   // "NVRTC 13.0"
  std::string identity;  // differs where the compiler may give other code
};

// The path that a library's function was loaded from; empty where it is not known.
std::filesystem::path path_of_library(void* function) {
  Dl_info info{};
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

// NVRTC looks for the library of its built-in functions in the system's folders only, while a wheel
// has it beside NVRTC. NVRTC finds it where it is open already.
void open_builtins(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("libnvrtc-builtins.so")) (void)dlopen(entry.path().c_str(), RTLD_LAZY);
  }
}

// There are several builds of one version, of different sizes.
void identify(Nvrtc& nvrtc, const std::filesystem::path& path) {
  int major = 0, minor = 0;
  if (nvrtc.get_version(&major, &minor) != NVRTC_SUCCESS) {
    throw LibraryError("nvrtcVersion failed");
  }
  std::error_code failed;
  const uintmax_t bytes = std::filesystem::file_size(path, failed);
  nvrtc.version = message("NVRTC ", major, '.', minor);
  nvrtc.identity = message(nvrtc.version, " of ", failed ? 0 : bytes, " bytes");
}

Nvrtc open_nvrtc() {
  const OpenedLibrary library("nvrtc", CUDART_VERSION / 1000, "CUDA C++ can't be compiled");
  Nvrtc nvrtc{};
  library.find("nvrtcVersion", nvrtc.get_version);
  library.find("nvrtcCreateProgram", nvrtc.create_program);
  library.find("nvrtcDestroyProgram", nvrtc.destroy_program);
  library.find("nvrtcAddNameExpression", nvrtc.add_name_expression);
  library.find("nvrtcCompileProgram", nvrtc.compile_program);
  library.find("nvrtcGetProgramLogSize", nvrtc.log_size);
  library.find("nvrtcGetProgramLog", nvrtc.log);
  library.find("nvrtcGetLoweredName", nvrtc.lowered_name);
  library.find("nvrtcGetCUBINSize", nvrtc.cubin_size);
  library.find("nvrtcGetCUBIN", nvrtc.cubin);
  library.find("nvrtcGetPTXSize", nvrtc.ptx_size);
  library.find("nvrtcGetPTX", nvrtc.ptx);
  library.find("nvrtcGetNumSupportedArchs", nvrtc.num_archs);
  library.find("nvrtcGetSupportedArchs", nvrtc.archs);
  library.find("nvrtcGetErrorString", nvrtc.error_string);
  const std::filesystem::path path = path_of_library(reinterpret_cast<void*>(nvrtc.create_program));
  open_builtins(path.parent_path());
  identify(nvrtc, path);
  return nvrtc;
}

const Nvrtc& nvrtc() {
  static const Nvrtc functions = open_nvrtc();
  return functions;
}

void check_nvrtc(nvrtcResult status, const char* call) {
  if (status == NVRTC_SUCCESS) return;
  throw LibraryError(message(call, " failed: ", nvrtc().error_string(status)));
}

class Source {
 public:
  explicit Source(const std::string& text) {
    check_nvrtc(nvrtc().create_program(&program_, text.c_str(), "source.cu", 0, nullptr, nullptr),
                "nvrtcCreateProgram");
  }
  ~Source() { (void)nvrtc().destroy_program(&program_); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  nvrtcProgram get() const { return program_; }

 private:
  nvrtcProgram program_ = nullptr;
};

// The option for machine code where NVRTC knows the device; otherwise for PTX of the newest kind
// before it, which the driver translates.
std::string target_of(int compute_capability) {
  int count = 0;
  check_nvrtc(nvrtc().num_archs(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> known(static_cast<size_t>(std::max(count, 0)));
  check_nvrtc(nvrtc().archs(known.data()), "nvrtcGetSupportedArchs");
  int nearest = 0;
  for (int arch : known) {
    if (arch <= compute_capability) nearest = std::max(nearest, arch);
  }
  if (nearest == 0) {
    throw LibraryError(message("this NVRTC does not compile for compute capability ",
                               compute_capability / 10, ".", compute_capability % 10));
  }
  return message("--gpu-architecture=", nearest == compute_capability ? "sm_" : "compute_",
                 nearest);
}

bool is_ptx(const std::string& target) { return target.find("=compute_") != std::string::npos; }

std::string log_of(nvrtcProgram program) {
  size_t size = 0;
  check_nvrtc(nvrtc().log_size(program, &size), "nvrtcGetProgramLogSize");
  std::string log(size, '\0');
  check_nvrtc(nvrtc().log(program, log.data()), "nvrtcGetProgramLog");
  while (!log.empty() && log.back() == '\0') log.pop_back();
  return log;
}

std::string code_of(nvrtcProgram program, bool is_ptx) {
  size_t size = 0;
  check_nvrtc(is_ptx ? nvrtc().ptx_size(program, &size) : nvrtc().cubin_size(program, &size),
              "size of the compiled code");
  std::string code(size, '\0');
  check_nvrtc(is_ptx ? nvrtc().ptx(program, code.data()) : nvrtc().cubin(program, code.data()),
              "compiled code");
  return code;
}

// Compiles with the options of the request, of which the first one is the target.
CompiledCode compile(const CompileRequest& request) {
  const Source source(request.source);
  const nvrtcResult named = nvrtc().add_name_expression(source.get(), request.function.c_str());
  check_nvrtc(named, "nvrtcAddNameExpression");
  std::vector<const char*> options;
  for (const std::string& option : request.options) options.push_back(option.c_str());
  const nvrtcResult status =
      nvrtc().compile_program(source.get(), static_cast<int>(options.size()), options.data());
  CompiledCode result;
  result.log = log_of(source.get());
  if (status == NVRTC_ERROR_COMPILATION || status == NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID ||
      status == NVRTC_ERROR_INVALID_OPTION) {
    result.state = CompileState::Refused;
    return result;
  }
  check_nvrtc(status, "nvrtcCompileProgram");
  const char* name = nullptr;
  check_nvrtc(nvrtc().lowered_name(source.get(), request.function.c_str(), &name),
              "nvrtcGetLoweredName");
  result.state = CompileState::Compiled;
  result.stored = {name, code_of(source.get(), is_ptx(request.options.front()))};
  return result;
}

RuntimeKernel load(const CompiledCode& compiled) {
  RuntimeKernel loaded{compiled.state, nullptr, compiled.log};
  if (compiled.state != CompileState::Compiled) return loaded;
  try {
    // This is never unloaded: a plan or a graph may run it until the process ends.
    cudaLibrary_t library = nullptr;
    check(cudaLibraryLoadData(&library, compiled.stored.code.data(), nullptr, nullptr, 0, nullptr,
                              nullptr, 0),
          "cudaLibraryLoadData");
    check(cudaLibraryGetKernel(&loaded.kernel, library, compiled.stored.name.c_str()),
          "cudaLibraryGetKernel");
  } catch (const LibraryError& error) {
    return {CompileState::Unavailable, nullptr, error.what()};
  }
  return loaded;
}

}  // namespace

class PendingKernel::Impl {
 public:
  explicit Impl(std::shared_ptr<Compilation> compilation) : compilation_(std::move(compilation)) {}
  explicit Impl(std::string reason)
      : kernel_{CompileState::Unavailable, nullptr, std::move(reason)} {}

  const RuntimeKernel& get() {
    std::call_once(loaded_, [&] {
      if (compilation_ == nullptr) return;
      kernel_ = load(compilation_->wait());
      compilation_->forget_code();
    });
    return kernel_;
  }

 private:
  std::shared_ptr<Compilation> compilation_;
  std::once_flag loaded_;
  RuntimeKernel kernel_;
};

const RuntimeKernel& PendingKernel::get() const { return impl_->get(); }

std::shared_ptr<Compilation> start_compile_for(int compute_capability, const std::string& source,
                                               const std::string& function,
                                               const std::vector<std::string>& options) {
  // NVRTC's own cache is switched off: the code store does its work, and threads would wait for one
  // another in it.
  CompileRequest request{
      source, function, {target_of(compute_capability), "--std=c++17", "--no-cache"}, ""};
  request.options.insert(request.options.end(), options.begin(), options.end());
  request.compiler = nvrtc().identity;
  return CompileQueue::shared().start(std::move(request), compile);
}

PendingKernel start_compile(const std::string& source, const std::string& function,
                            const std::vector<std::string>& options) {
  static std::mutex& mutex = *new std::mutex;
  static auto& known = *new std::map<Compilation*, std::shared_ptr<PendingKernel::Impl>>;
  try {
    const int compute_capability = Context::current().compute_capability();
    std::shared_ptr<Compilation> compilation =
        start_compile_for(compute_capability, source, function, options);
    const std::lock_guard lock(mutex);
    std::shared_ptr<PendingKernel::Impl>& pending = known[compilation.get()];
    if (!pending) pending = std::make_shared<PendingKernel::Impl>(std::move(compilation));
    return PendingKernel(pending);
  } catch (const LibraryError& error) {
    return PendingKernel(std::make_shared<PendingKernel::Impl>(error.what()));
  }
}

std::string nvrtc_version() { return nvrtc().version; }

std::string nvrtc_unavailable_reason() {
  try {
    (void)target_of(Context::current().compute_capability());
  } catch (const LibraryError& error) {
    return error.what();
  }
  return "";
}

}  // namespace kerascnn::cuda
