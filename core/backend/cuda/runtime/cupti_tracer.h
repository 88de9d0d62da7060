// What NVIDIA's profiling library, CUPTI, saw on the GPUs, for the log of calls. It is opened when
// profiling starts; nothing links to it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/profile/call_log.h"

namespace kerascnn::cuda {

class CuptiTracer final : public DeviceTracer {
 public:
  static CuptiTracer& get();

  // Starts what belongs to the recording that is going on. Throws DeviceError, with the remedy,
  // where CUPTI is missing or serves another profiler.
  void ensure_started();
  void finish() override;

 private:
  friend struct CuptiCallbacks;
  struct Record {
    std::string name;  // mangled; for copies and fills what they are
    bool is_kernel;
    uint32_t stream;
    uint32_t correlation;
    uint64_t graph_node;  // 0 outside of graphs
    int64_t start;
    int64_t end;
  };
  void start();
  void stop();
  const CallInfoPtr& call_of(const Record& record);

  std::mutex mutex_;
  int64_t session_ = 0;  // the recording that it was started for
  void* subscriber_ = nullptr;
  std::vector<Record> records_;
  std::unordered_map<uint64_t, CallInfoPtr> by_node_;  // for graphs captured in this recording
  std::unordered_map<uint32_t, CallInfoPtr> by_correlation_;  // launched one by one
  std::unordered_map<std::string, CallInfoPtr> others_;       // for what belongs to no call
};

// Are launches named for tools that show NVTX ranges (KERASCNN_NVTX)?
bool names_ranges();

// Does anything record whose kernels are launched?
inline bool traces_calls() { return is_profiling() || names_ranges(); }

// While this object lives, what this thread launches or captures belongs to the call.
class TracedCall {
 public:
  explicit TracedCall(const CallInfoPtr& call);
  ~TracedCall();
  TracedCall(const TracedCall&) = delete;
  TracedCall& operator=(const TracedCall&) = delete;

 private:
  CurrentCall current_;
  bool has_range_;
};

// "ns::kernel<3, true>" of "void ns::(anonymous namespace)::kernel<3, true>(float const*)", given
// mangled; of our own kernels "kerascnn::kernel<3, true>".
std::string short_kernel_name(const std::string& mangled);

}  // namespace kerascnn::cuda
