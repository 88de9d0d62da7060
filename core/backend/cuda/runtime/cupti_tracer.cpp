#include "core/backend/cuda/runtime/cupti_tracer.h"

#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "core/backend/cuda/runtime/check.h"
#include "core/base/env.h"
#include "core/base/error.h"

#ifdef KERASCNN_WITH_CUPTI
#include <cupti.h>
#endif
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define KERASCNN_WITH_NVTX 1
#endif

namespace kerascnn::cuda {
namespace {

#ifdef KERASCNN_WITH_CUPTI

constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr size_t kBufferAlignment = 64;
constexpr const char* kLibrary = "libcupti.so.13";

#define KERASCNN_CUPTI_FUNCTIONS(F)    \
  F(Subscribe)                         \
  F(Unsubscribe)                       \
  F(EnableCallback)                    \
  F(EnableDomain)                      \
  F(GetGraphNodeId)                    \
  F(GetResultString)                   \
  F(ActivityRegisterCallbacks)         \
  F(ActivityRegisterTimestampCallback) \
  F(ActivityEnable)                    \
  F(ActivityDisable)                   \
  F(ActivityFlushAll)                  \
  F(ActivityGetNextRecord)

struct Cupti {
#define KERASCNN_DECLARE(name) decltype(&cupti##name) name = nullptr;
  KERASCNN_CUPTI_FUNCTIONS(KERASCNN_DECLARE)
#undef KERASCNN_DECLARE
};

// A wheel has the library beside the CUDA runtime, a system's CUDA below it.
std::vector<std::string> library_paths() {
  std::vector<std::string> paths = {kLibrary};
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&cudaGetDeviceCount), &info) != 0 &&
      info.dli_fname != nullptr) {
    const std::filesystem::path folder = std::filesystem::path(info.dli_fname).parent_path();
    paths.push_back((folder / kLibrary).string());
    paths.push_back((folder.parent_path() / "extras/CUPTI/lib64" / kLibrary).string());
  }
  for (const char* root : {"/usr/local/cuda/lib64/", "/usr/local/cuda/extras/CUPTI/lib64/"}) {
    paths.push_back(std::string(root) + kLibrary);
  }
  return paths;
}

void* open_library() {
  std::string reason;
  for (const std::string& path : library_paths()) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* error = dlerror();
    if (reason.empty() && error != nullptr) reason = error;
  }
  throw DeviceError(message("profiler: NVIDIA's profiling library CUPTI can't be loaded (", reason,
                            "); install it with: pip install \"kerascnn[profile]\""));
}

Cupti load() {
  void* library = open_library();
  Cupti cupti;
#define KERASCNN_LOAD(name) \
  cupti.name = reinterpret_cast<decltype(cupti.name)>(dlsym(library, "cupti" #name));
  KERASCNN_CUPTI_FUNCTIONS(KERASCNN_LOAD)
#undef KERASCNN_LOAD
#define KERASCNN_CHECK(name)                                                            \
  if (cupti.name == nullptr) {                                                          \
    throw DeviceError(                                                                  \
        message("profiler: ", kLibrary,                                                 \
                " has no function cupti" #name                                          \
                "; install one that fits CUDA 13: pip install \"kerascnn[profile]\"")); \
  }
  KERASCNN_CUPTI_FUNCTIONS(KERASCNN_CHECK)
#undef KERASCNN_CHECK
  return cupti;
}

const Cupti& cupti() {
  static const Cupti loaded = load();
  return loaded;
}

void check_cupti(CUptiResult status, const char* call) {
  if (status == CUPTI_SUCCESS) return;
  const char* text = "unknown error";
  (void)cupti().GetResultString(status, &text);
  std::string remedy = "; profile the code with nsys or ncu instead";
  if (status == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
    remedy = "; another profiler (nsys, ncu, or that of another library) is at work: end it first";
  }
  throw DeviceError(message("profiler: CUPTI failed in ", call, ": ", text, remedy));
}

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};

#endif  // KERASCNN_WITH_CUPTI

}  // namespace

CuptiTracer& CuptiTracer::get() {
  static CuptiTracer& tracer = *new CuptiTracer;  // CUPTI's threads may outlive static objects
  return tracer;
}

const CallInfoPtr& CuptiTracer::call_of(const Record& record) {
  const auto by_node = by_node_.find(record.graph_node);
  if (record.graph_node != 0 && by_node != by_node_.end()) return by_node->second;
  const auto launched = by_correlation_.find(record.correlation);
  if (launched != by_correlation_.end()) return launched->second;
  CallInfoPtr& other = others_[record.is_kernel ? "kernel" : record.name];
  if (other == nullptr) {
    CallInfo info;
    info.op = info.label = record.is_kernel ? "kernel outside of ops" : record.name;
    info.kernel = "CUDA " + info.op;
    info.scope = {.path = record.is_kernel ? "" : "copies", .phases = 0};
    int device = 0;
    (void)cudaGetDevice(&device);
    info.device = {DeviceType::Cuda, device};
    other = std::make_shared<const CallInfo>(std::move(info));
  }
  return other;
}

#ifdef KERASCNN_WITH_CUPTI

// CUPTI calls these, in threads of its own too.
struct CuptiCallbacks {
  static void CUPTIAPI request_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
    *size = kBufferBytes;
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
    *max_records = 0;
  }

  static void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
    CuptiTracer& tracer = CuptiTracer::get();
    {
      const std::lock_guard lock(tracer.mutex_);
      CUpti_Activity* record = nullptr;
      while (valid > 0 && cupti().ActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        take(tracer, record);
      }
    }
    std::free(buffer);
  }

  static uint64_t CUPTIAPI now() { return static_cast<uint64_t>(profile_clock()); }

  // What the thread launches or adds to a graph belongs to its current call.
  static void CUPTIAPI notice(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                              const void* data) {
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API) {
      const auto* call = static_cast<const CUpti_CallbackData*>(data);
      if (call->callbackSite != CUPTI_API_ENTER || CurrentCall::get() == nullptr) return;
      CuptiTracer& tracer = CuptiTracer::get();
      const std::lock_guard lock(tracer.mutex_);
      tracer.by_correlation_[call->correlationId] = CurrentCall::get();
    } else if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
      const auto* resource = static_cast<const CUpti_ResourceData*>(data);
      notice_node(id, *static_cast<const CUpti_GraphData*>(resource->resourceDescriptor));
    }
  }

 private:
  static void take(CuptiTracer& tracer, const CUpti_Activity* record) {
    const auto add = [&]<typename Activity>(const Activity& a, std::string name, bool is_kernel) {
      tracer.records_.push_back({std::move(name), is_kernel, a.streamId, a.correlationId,
                                 a.graphNodeId, static_cast<int64_t>(a.start),
                                 static_cast<int64_t>(a.end)});
    };
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel9*>(record);
        add(kernel, kernel.name != nullptr ? kernel.name : "unnamed kernel", true);
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
        const bool is_up = copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
        const bool is_down = copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
        add(copy, is_up ? "copy to the GPU" : is_down ? "copy to the host" : "copy", false);
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET:
        add(*reinterpret_cast<const CUpti_ActivityMemset4*>(record), "fill", false);
        break;
      default:
        break;
    }
  }

  static void notice_node(CUpti_CallbackId id, const CUpti_GraphData& graph) {
    CuptiTracer& tracer = CuptiTracer::get();
    uint64_t node = 0, original = 0;
    if (cupti().GetGraphNodeId(graph.node, &node) != CUPTI_SUCCESS) return;
    const std::lock_guard lock(tracer.mutex_);
    if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED && CurrentCall::get() != nullptr) {
      tracer.by_node_[node] = CurrentCall::get();
    } else if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED &&
               cupti().GetGraphNodeId(graph.originalNode, &original) == CUPTI_SUCCESS) {
      const auto found = tracer.by_node_.find(original);
      if (found == tracer.by_node_.end()) return;
      const CallInfoPtr call = found->second;
      tracer.by_node_[node] = call;
    }
  }
};

void CuptiTracer::ensure_started() {
  const int64_t session = profile_session();
  {
    const std::lock_guard lock(mutex_);
    if (session == 0 || session_ == session) return;
    session_ = session;
    records_.clear();
    by_node_.clear();
    by_correlation_.clear();
    others_.clear();
  }
  try {
    start();
  } catch (...) {
    stop();
    throw;
  }
  CallLog::get().attach(*this);
}

void CuptiTracer::start() {
  static const bool registered = [] {
    check_cupti(cupti().ActivityRegisterTimestampCallback(CuptiCallbacks::now),
                "cuptiActivityRegisterTimestampCallback");
    check_cupti(cupti().ActivityRegisterCallbacks(CuptiCallbacks::request_buffer,
                                                  CuptiCallbacks::take_buffer),
                "cuptiActivityRegisterCallbacks");
    return true;
  }();
  (void)registered;
  CUpti_SubscriberHandle subscriber = nullptr;
  check_cupti(cupti().Subscribe(&subscriber, CuptiCallbacks::notice, nullptr), "cuptiSubscribe");
  subscriber_ = subscriber;
  for (const CUpti_CallbackId id :
       {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED}) {
    check_cupti(cupti().EnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, id),
                "cuptiEnableCallback");
  }
  check_cupti(cupti().EnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API), "cuptiEnableDomain");
  for (const CUpti_ActivityKind kind : kKinds) {
    check_cupti(cupti().ActivityEnable(kind), "cuptiActivityEnable");
  }
}

void CuptiTracer::stop() {
  if (subscriber_ == nullptr) return;
  for (const CUpti_ActivityKind kind : kKinds) (void)cupti().ActivityDisable(kind);
  (void)cupti().Unsubscribe(static_cast<CUpti_SubscriberHandle>(subscriber_));
  subscriber_ = nullptr;
}

void CuptiTracer::finish() {
  (void)cudaDeviceSynchronize();  // whoever waits for the device reports its error
  const CUptiResult flushed = cupti().ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  stop();
  std::vector<Record> records;
  {
    const std::lock_guard lock(mutex_);
    session_ = 0;
    records.swap(records_);
  }
  check_cupti(flushed, "cuptiActivityFlushAll");
  std::unordered_map<std::string, std::string> names;
  for (const Record& record : records) {
    auto [name, is_new] = names.try_emplace(record.name, record.name);
    if (is_new && record.is_kernel) name->second = short_kernel_name(record.name);
    CallLog::get().add(call_of(record), name->second, static_cast<int32_t>(record.stream),
                       record.start, record.end);
  }
}

#else

void CuptiTracer::ensure_started() {
  if (profile_session() == 0) return;
  throw DeviceError(
      "profiler: kerascnn's CUDA backend was built without CUPTI (cupti.h was not found); install "
      "nvidia-cuda-cupti 13.0 or a CUDA toolkit before building it");
}
void CuptiTracer::start() {}
void CuptiTracer::stop() {}
void CuptiTracer::finish() {}

#endif  // KERASCNN_WITH_CUPTI

bool names_ranges() {
  static const bool names = env_flag("KERASCNN_NVTX", false);
  return names;
}

TracedCall::TracedCall(const CallInfoPtr& call) : current_(call), has_range_(call != nullptr) {
  if (is_profiling()) CuptiTracer::get().ensure_started();
#ifdef KERASCNN_WITH_NVTX
  if (has_range_) {
    const std::string& layer = call->scope.path;
    nvtxRangePushA(
        message(layer.empty() ? call->op : layer, ": ", call->op, ", ", call->scope.phase())
            .c_str());
  }
#endif
}

TracedCall::~TracedCall() {
#ifdef KERASCNN_WITH_NVTX
  if (has_range_) nvtxRangePop();
#endif
}

std::string short_kernel_name(const std::string& mangled) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 && demangled != nullptr ? demangled : mangled;
  std::free(demangled);
  if (name.starts_with("void ")) name.erase(0, 5);
  constexpr std::string_view kOwn = "kerascnn::cuda::";
  const bool is_own = name.starts_with(kOwn);
  for (const std::string_view noise : {std::string_view("(anonymous namespace)::"), kOwn}) {
    for (size_t at = name.find(noise); at != std::string::npos; at = name.find(noise)) {
      name.erase(at, noise.size());
    }
  }
  // The name ends at the parameters, which begin with the first parenthesis outside of template
  // arguments.
  int depth = 0;
  size_t end = 0;
  for (; end < name.size(); ++end) {
    if (name[end] == '<') ++depth;
    if (name[end] == '>') --depth;
    if (name[end] == '(' && depth == 0 && end > 0) break;
  }
  return (is_own ? "kerascnn::" : "") + name.substr(0, end);
}

}  // namespace kerascnn::cuda
