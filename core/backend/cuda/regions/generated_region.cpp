#include "core/backend/cuda/regions/generated_region.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/backend/cuda/runtime/context.h"
#include "core/backend/cuda/runtime/device_buffer.h"
#include "core/backend/cuda/runtime/nvrtc.h"
#include "core/backend/failed_source.h"
#include "core/backend/regions/region_launch.h"
#include "core/backend/regions/region_source.h"
#include "core/base/env.h"
#include "core/base/error.h"
#include "core/graph/body_program.h"

namespace kerascnn::cuda {
namespace {

// Outside of programs: below, a ready-made kernel takes no longer than a generated one, and need
// not be compiled. Smaller values are kept for the backward pass too: a kernel that computes them
// again costs more than their memory.
constexpr int64_t kLeastSize = int64_t{1} << 18;
// A program without an op of this size gains less in an epoch than its kernels take to compile.
constexpr int64_t kLeastProgram = int64_t{1} << 21;
constexpr int kMostInputs = 24;
constexpr int kMostOutputs = 16;
constexpr int kMostOps = 96;
constexpr int64_t kLongestRow = int64_t{1} << 16;  // a block goes over it again and again

constexpr size_t kAlignment = 16;
// Bytes of local memory that functions like sin() take for themselves; more are registers that
// there were too few of.
constexpr size_t kUsualLocalBytes = 64;

// Arguments of a kernel: numbers of up to 8 bytes, and pointers to them.
class Arguments {
 public:
  explicit Arguments(size_t most) { cells_.reserve(most); }

  template <typename T>
  void add(T value) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    uint64_t cell = 0;
    std::memcpy(&cell, &value, sizeof(value));
    cells_.push_back(cell);
    pointers_.push_back(&cells_.back());
  }
  void** data() { return pointers_.data(); }

 private:
  std::vector<uint64_t> cells_;  // never moved: see the constructor
  std::vector<void*> pointers_;
};

class GeneratedRegion final : public Kernel {
 public:
  GeneratedRegion(const PlanRequest& request, const Region& region)
      : op_(request.op),
        attributes_(request.attributes),
        inputs_(request.inputs.begin(), request.inputs.end()),
        outputs_(request.outputs.begin(), request.outputs.end()),
        allow_tf32_(request.allow_tf32),
        autotune_(request.autotune),
        region_(region),
        code_(region_code(region, request.inputs)) {
    begin_to_compile(kMaxRegionWidth);
  }

  void finish_planning() override {
    const RuntimeKernel* found = &pending_.get();
    // Of a kernel with too many values for its registers, one with fewer elements in each thread.
    while (found->state == CompileState::Compiled && source_.width > 1 &&
           local_bytes(found->kernel) > kUsualLocalBytes) {
      begin_to_compile(source_.width / 2);
      found = &pending_.get();
    }
    if (found->state != CompileState::Compiled) {
      warn_of_failed_source("the kernel of " + region_name(region_), source_.text, found->log);
      const PlanRequest request{op_, attributes_, inputs_, outputs_, allow_tf32_, autotune_};
      fallback_ =
          plan_body_kernel(*region_.body, request, {DeviceType::Cuda, Context::current().index()});
      fallback_->finish_planning();
    } else {
      kernel_ = reinterpret_cast<const void*>(found->kernel);
      plan_launch();
    }
    source_.text.clear();
  }

  void run(const KernelArgs& args) override {
    if (fallback_ != nullptr) {
      fallback_->run(args);
      return;
    }
    Arguments arguments(args.inputs.size() + args.outputs.size() + source_.constants.size() + 8);
    for (const void* input : args.inputs) arguments.add(checked(input));
    for (const void* output : args.outputs) arguments.add(checked(output));
    for (const uint64_t bits : source_.constants) arguments.add(bits);
    arguments.add(1.0f);
    if (source_.kind == RegionKind::Map && !source_.by_column) {
      arguments.add(region_.rows * region_.columns);
    } else {
      arguments.add(region_.rows / source_.parts);
      arguments.add(region_.columns);
      if (source_.by_column) arguments.add(launch_.lane_bits);
    }
    if (source_.kind == RegionKind::Columns) {
      arguments.add(args.workspace);
      arguments.add(tickets_ ? tickets_->as<unsigned>() : nullptr);
      arguments.add(launch_.split_rows);
    }
    const dim3 grid(static_cast<unsigned>(launch_.blocks_x),
                    static_cast<unsigned>(launch_.blocks_y));
    check(cudaLaunchKernel(kernel_, grid, dim3(static_cast<unsigned>(source_.threads)),
                           arguments.data(), 0, static_cast<cudaStream_t>(args.stream)),
          "cudaLaunchKernel of a region");
  }

  int64_t workspace_bytes() const override {
    if (fallback_ != nullptr) return fallback_->workspace_bytes();
    return launch_.workspace_bytes(source_, region_.columns);
  }
  bool keeps_state() const override {
    return fallback_ != nullptr ? fallback_->keeps_state() : tickets_ != nullptr;
  }
  bool starts_early() const override { return fallback_ == nullptr; }
  std::string description() const override {
    if (fallback_ != nullptr) return fallback_->description();
    constexpr const char* kNames[] = {"map", "rows", "columns"};
    return message("kerascnn generated ", kNames[static_cast<size_t>(source_.kind)], ", ",
                   source_.width * (source_.kind == RegionKind::Rows ? source_.depth : 1),
                   " a thread");
  }

 private:
  static constexpr int kMaxRegionWidth = 8;

  void begin_to_compile(int max_width) {
    source_ = region_source(code_, max_width);
    pending_ = start_compile(source_.text, kRegionFunction, {"--minimal"});
  }

  static size_t local_bytes(cudaKernel_t kernel) {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)),
          "cudaFuncGetAttributes");
    return attributes.localSizeBytes;
  }

  // Kernels take several elements at once; all tensors are aligned for that (Tensor::is_packed).
  const void* checked(const void* data) const {
    if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) {
      throw ValueError(message("region ", region_name(region_), ": an address is no multiple of ",
                               kAlignment, " bytes; copy the tensor first"));
    }
    return data;
  }

  void plan_launch() {
    int blocks = 0;  // of a multiprocessor
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel_, source_.threads, 0),
          "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    const int64_t at_once = int64_t{std::max(blocks, 1)} * Context::current().multiprocessors();
    launch_ = region_launch(source_, region_.rows, region_.columns, at_once);
    if (launch_.tickets > 0) {
      tickets_ = std::make_unique<DeviceBuffer>(launch_.tickets * sizeof(unsigned));
    }
  }

  const OpDef& op_;
  Attributes attributes_;
  std::vector<TensorSpec> inputs_;
  std::vector<TensorSpec> outputs_;
  bool allow_tf32_;
  bool autotune_;
  Region region_;
  RegionCode code_;
  RegionSource source_;
  PendingKernel pending_;
  const void* kernel_ = nullptr;
  RegionLaunch launch_;
  std::unique_ptr<DeviceBuffer> tickets_;
  std::unique_ptr<Kernel> fallback_;
};

std::string mode_of_regions() { return env_choice("KERASCNN_CUDA_REGIONS", {"0", "1", "2"}); }

bool can_generate() { return mode_of_regions() != "0" && nvrtc_unavailable_reason().empty(); }

}  // namespace

int64_t least_generated_size() { return mode_of_regions() == "2" ? 0 : kLeastProgram; }

bool generates_region(const Shape& domain) {
  return (mode_of_regions() == "2" || num_elements(domain) >= kLeastSize) && can_generate();
}

RegionLimits region_limits(const Shape& domain) {
  if (!can_generate()) return {};
  RegionLimits limits;
  limits.rows = true;
  limits.columns = true;
  limits.dropout = true;
  limits.max_inputs = kMostInputs;
  limits.max_outputs = kMostOutputs;
  limits.max_ops = kMostOps;
  limits.max_constants = kMostOps;
  limits.max_row = kLongestRow;
  limits.recomputes = mode_of_regions() == "2" || num_elements(domain) >= kLeastSize;
  return limits;
}

std::unique_ptr<Kernel> plan_generated_region(const PlanRequest& request, const Region& region) {
  return std::make_unique<GeneratedRegion>(request, region);
}

}  // namespace kerascnn::cuda
