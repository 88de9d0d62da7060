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
};

// NVRTC looks for the library of its built-in functions in the system's folders only; a wheel has
// it beside NVRTC. Where it is open already it is found.
void open_builtins(void* function) {
  Dl_info info{};
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return;
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::path(info.dli_fname).parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("libnvrtc-builtins.so")) (void)dlopen(entry.path().c_str(), RTLD_LAZY);
  }
}

Nvrtc open_nvrtc() {
  const OpenedLibrary library("nvrtc", CUDART_VERSION / 1000, "CUDA C++ can't be compiled");
  Nvrtc nvrtc{};
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
  open_builtins(reinterpret_cast<void*>(nvrtc.create_program));
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

// Machine code where NVRTC knows the device, else PTX of the newest kind before it, which the
// driver translates.
struct Target {
  std::string option;
  bool is_ptx = false;
};

Target target_of(int compute_capability) {
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
  if (nearest == compute_capability) return {message("--gpu-architecture=sm_", nearest), false};
  return {message("--gpu-architecture=compute_", nearest), true};
}

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

RuntimeKernel compile(const std::string& text, const std::string& function,
                      const std::vector<std::string>& wanted, int compute_capability) {
  const Target target = target_of(compute_capability);
  const Source source(text);
  const nvrtcResult named = nvrtc().add_name_expression(source.get(), function.c_str());
  check_nvrtc(named, "nvrtcAddNameExpression");
  std::vector<const char*> options{target.option.c_str(), "--std=c++17"};
  for (const std::string& option : wanted) options.push_back(option.c_str());
  const nvrtcResult status =
      nvrtc().compile_program(source.get(), static_cast<int>(options.size()), options.data());
  if (status == NVRTC_ERROR_COMPILATION || status == NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID) {
    return {CompileState::Refused, nullptr, log_of(source.get())};
  }
  check_nvrtc(status, "nvrtcCompileProgram");
  const char* name = nullptr;
  check_nvrtc(nvrtc().lowered_name(source.get(), function.c_str(), &name), "nvrtcGetLoweredName");
  const std::string code = code_of(source.get(), target.is_ptx);
  // Never unloaded: a plan or a graph may run it until the process ends.
  cudaLibrary_t library = nullptr;
  check(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cudaLibraryLoadData");
  RuntimeKernel found{CompileState::Compiled, nullptr, ""};
  check(cudaLibraryGetKernel(&found.kernel, library, name), "cudaLibraryGetKernel");
  return found;
}

}  // namespace

class PendingKernel::Impl {
 public:
  Impl(std::string source, std::string function, std::vector<std::string> options,
       int compute_capability)
      : source_(std::move(source)),
        function_(std::move(function)),
        options_(std::move(options)),
        compute_capability_(compute_capability) {}

  const RuntimeKernel& get() {
    std::call_once(done_, [&] {
      try {
        kernel_ = compile(source_, function_, options_, compute_capability_);
      } catch (const LibraryError& error) {
        kernel_ = {CompileState::Unavailable, nullptr, error.what()};
      }
    });
    return kernel_;
  }

 private:
  std::string source_, function_;
  std::vector<std::string> options_;
  int compute_capability_;
  std::once_flag done_;
  RuntimeKernel kernel_;
};

const RuntimeKernel& PendingKernel::get() const { return impl_->get(); }

PendingKernel start_compile(const std::string& source, const std::string& function,
                            const std::vector<std::string>& options) {
  static std::mutex& mutex = *new std::mutex;
  static auto& known = *new std::map<std::string, std::shared_ptr<PendingKernel::Impl>>;
  const int compute_capability = Context::current().compute_capability();
  std::string key = message(compute_capability, '|', function, '|', source);
  for (const std::string& option : options) key += '|' + option;
  const std::lock_guard lock(mutex);
  std::shared_ptr<PendingKernel::Impl>& pending = known[key];
  if (!pending) {
    pending = std::make_shared<PendingKernel::Impl>(source, function, options, compute_capability);
  }
  return PendingKernel(pending);
}

std::string nvrtc_unavailable_reason() {
  try {
    (void)target_of(Context::current().compute_capability());
  } catch (const LibraryError& error) {
    return error.what();
  }
  return "";
}

}  // namespace kerascnn::cuda
