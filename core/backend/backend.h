// The one interface between the core and a device. A backend knows ops and memory, never layers.
//
// Plan, then run: whatever costs time (descriptors, choice of algorithm, workspace size, code
// generation) happens in a PlanFunction; Kernel::run only launches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/attributes.h"
#include "core/base/device.h"
#include "core/base/shape.h"
#include "core/memory/allocator.h"
#include "core/memory/storage.h"
#include "core/ops/op.h"
#include "core/profile/call_log.h"

namespace kerascnn {

// Buffers of one call. Every tensor is contiguous (row-major); zero-size tensors may have null
// pointers.
struct KernelArgs {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;  // null for an optional output that nobody reads
  void* workspace = nullptr;       // workspace_bytes() bytes, aligned to 256
  void* stream = nullptr;          // cudaStream_t on CUDA, null on a CPU
  // Bit i: a kernel that starts early may read input i before it waits (settled_inputs()).
  uint32_t settled = 0;
};

struct PreparedKernel;

class Kernel {
 public:
  virtual ~Kernel() = default;

  // Launches on args.stream. Never allocates, never synchronizes; may be captured into a CUDA
  // graph. Touches no memory but its arguments and what this object alone holds: kernels may run
  // at the same time, and so may runs of one object with other arguments unless it keeps state.
  virtual void run(const KernelArgs& args) = 0;
  // What planning left to other threads, such as compiling, is done when this returns. Called once,
  // before anything else: a program first plans all kernels, then finishes one after another.
  virtual void finish_planning() {}
  virtual int64_t workspace_bytes() const { return 0; }
  // Does a run write memory on the device that this object holds, such as the tickets of a
  // reduction? Then the next run waits for it.
  virtual bool keeps_state() const { return false; }
  // Do other processes wait for a run? Then runs of all kernels that say so keep their order.
  virtual bool meets_processes() const { return false; }
  // CUDA: does the first launch of a run wait by itself, before it touches memory, for what it
  // depends on (begin_kernel)? Then it may be started while that still runs.
  virtual bool starts_early() const { return false; }
  // A kernel that spreads a long sum over the device may make some copies of its outputs, each with
  // a share of the sum, and add them up in the end. How many copies those are; 0 where it does not.
  virtual int64_t num_partial_sums() const { return 0; }
  // The kernel without that addition: each output is the stack of its copies, with one more axis in
  // front, and whoever reads it adds up. Only the sum of a stack is defined, not how it is spread.
  virtual std::unique_ptr<Kernel> leave_partial_sums() const { return nullptr; }
  // A kernel may begin with work that needs one input only, such as to bring a convolution's
  // weights into the order of a library. Then these are two kernels that do the same. Asked when
  // planning is finished.
  virtual std::optional<PreparedKernel> prepared() const;
  // The library and kernel that run, for people: "oneDNN brgconv:avx512_core", "kerascnn
  // elementwise".
  virtual std::string description() const = 0;
};

// A kernel in two: `preparation` makes `bytes` bytes of the input number `input`, and `kernel`
// reads these behind its other inputs. A program runs the first one beside kernels that come
// before.
struct PreparedKernel {
  std::unique_ptr<Kernel> preparation;
  size_t input = 0;
  int64_t bytes = 0;
  std::unique_ptr<Kernel> kernel;
};

inline std::optional<PreparedKernel> Kernel::prepared() const { return std::nullopt; }

struct PlanRequest {
  const OpDef& op;
  const Attributes& attributes;
  Specs inputs;
  Specs outputs;
  // May the kernel use TF32 (CUDA convolutions and matmuls on float32)?
  bool allow_tf32 = true;
  // May planning time several kernels, to take the fastest (kernel_choice.h)?
  bool autotune = false;
};

// Throws TypeError for a dtype that the kernel does not take.
using PlanFunction = std::unique_ptr<Kernel> (*)(const PlanRequest& request);

// One row of a backend's visible table (kernel_table.cpp), which has one row for every op but
// views and `fused`, whose kernels come with the node.
struct KernelTableRow {
  std::string_view op;
  PlanFunction plan;
};

struct Fusion;

struct MemoryRange {
  const void* data = nullptr;
  int64_t bytes = 0;
};

// One kernel call of a program with its final addresses.
struct Instruction {
  std::shared_ptr<Kernel> kernel;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* workspace = nullptr;
  std::string label;  // "conv2d (layer conv2d_1)", for errors
  CallInfoPtr call;   // for profiles; null where nobody asks
  // All memory that a run touches, but for what the kernel itself owns; a workspace is written.
  // Instructions may run side by side where these allow it (dependencies.h).
  std::vector<MemoryRange> reads;
  std::vector<MemoryRange> writes;
};

// A step's instructions, once for each arena of the program: with the same kernels, inputs and
// variables, but with intermediate results in the memory of that arena. Steps in different arenas
// need not wait for one another's memory.
using ArenaSteps = std::vector<std::vector<Instruction>>;

// The arena of a step among `steps` in a row. The last one is in the first arena: there the results
// of a run are found.
constexpr size_t arena_of(int64_t step, int64_t steps, size_t num_arenas) {
  return static_cast<size_t>(steps - 1 - step) % num_arenas;
}

class LaterRuns;

// A program's instructions, ready to be repeated. On CUDA: a captured graph with the loop on the
// device.
class Executor {
 public:
  virtual ~Executor() = default;

  // Runs all instructions `steps` times, with the results of running them in order and the last
  // step in the first arena. Returns when the work is enqueued (CUDA) or done (CPU).
  virtual void run(int64_t steps) = 0;
  // The same, but the steps may be enqueued later, together with others, as long as everything that
  // is asked of the backend afterwards finds them done in this order.
  virtual void run_later(int64_t steps) { run(steps); }
};

// What one region (core/graph/region.h) may have; larger groups are split. The defaults are what
// the kernels take that every backend has.
struct RegionLimits {
  bool rows = false;     // of kind rows
  bool columns = false;  // of kind columns
  bool dropout = false;  // among the element ops
  int max_inputs = 8;
  int max_outputs = 8;
  int max_ops = 32;
  int max_constants = 16;
  int64_t min_row = 1, max_row = 1 << 14;  // elements of a row, of kind rows
  // Does the device compute element ops of this size again faster than it would read their result?
  // Then the backward pass does (recompute_activations).
  bool recomputes = false;

  // Then ops are taken apart, and moved, for regions to join them.
  bool all_kinds() const { return rows && columns; }
};

// Counts since the process began.
struct LaunchStats {
  int64_t kernel_launches = 0;  // kernels launched one by one by the host
  int64_t graph_launches = 0;   // whole graphs launched by the host
  int64_t graph_captures = 0;
};

// A point in what a device has to do. Until the first record() it counts as passed.
class Fence {
 public:
  virtual ~Fence() = default;

  // The point is behind all work that is enqueued on the backend's stream now.
  virtual void record() = 0;
  virtual bool passed() = 0;
  // Returns when it has passed. A long wait leaves the core to others.
  virtual void wait() = 0;
};

// From the host to the device, or the other way round.
struct HostCopy {
  void* destination = nullptr;
  const void* source = nullptr;
  int64_t bytes = 0;
};

// Waiting for a device, the host looks again and again for so many seconds before it sleeps. Waking
// up takes about as long: what is over sooner is not worth sleeping for.
constexpr double kUsualPatience = 5e-5;

class Backend {
 public:
  virtual ~Backend() = default;

  virtual Device device() const = 0;
  // Makes the device current for the calling thread; plan_kernel() calls it before it plans.
  virtual void activate() {}
  virtual std::string description() const = 0;  // "NVIDIA H200, 139.7 GiB, compute capability 9.0"
  virtual Allocator& allocator() = 0;
  virtual std::span<const KernelTableRow> kernel_table() const = 0;
  // Kernels for several nodes (core/graph/fusion.h). Where two of them take a node, the first one
  // gets it.
  virtual std::span<const Fusion* const> fusions() const { return {}; }
  // The limits for regions whose element ops have this shape.
  virtual RegionLimits region_limits(const Shape&) const { return {}; }
  // For a program whose largest memory-bound op has fewer elements, these limits don't count: all
  // of its regions are what ready-made kernels take.
  virtual int64_t least_generated_size() const { return 0; }
  // There is at least one arena. `single_steps` says that runs will have one step each.
  virtual std::unique_ptr<Executor> make_executor(ArenaSteps arenas, bool single_steps = false) = 0;
  // The list on which runs of an executor are noted to be started together; null where each run
  // starts at once.
  virtual LaterRuns* later_runs() { return nullptr; }
  // How much memory of a program may go to buffers that share it with no other, so that kernels
  // which could run side by side don't wait for one another's memory. 0 where kernels run one after
  // another.
  virtual int64_t max_unshared_bytes() const { return 0; }
  // How many arenas a program may have whose intermediate results take so many bytes; 1 where steps
  // run one after another.
  virtual int64_t max_arenas(int64_t) const { return 1; }
  virtual LaunchStats launch_stats() const = 0;

  // Makes ready to note what the kernels of a profile run. Throws DeviceError with the remedy where
  // that can't be.
  virtual void prepare_profile() {}

  // Runs one kernel at once on the backend's stream (eager ops). Profiles take it for the
  // CurrentCall.
  virtual void launch(Kernel& kernel, const KernelArgs& args) = 0;

  // All copies and fills are ordered with the backend's stream. from_host returns when the source
  // may be reused, and up to kMostStagedBytes without waiting for the device; to_host when the data
  // has arrived.
  static constexpr int64_t kMostStagedBytes = 4 << 20;
  virtual void copy_from_host(void* destination, const void* source, int64_t bytes) = 0;
  virtual void copy_to_host(void* destination, const void* source, int64_t bytes) = 0;
  virtual void copy(void* destination, const void* source, int64_t bytes) = 0;
  virtual void fill(void* destination, int byte, int64_t bytes) = 0;
  // Several copies with one wait, which may be a patient one.
  virtual void copy_all_to_host(std::span<const HostCopy> copies, double patience) = 0;
  // Returns when all work is done. A wait beyond `patience` leaves the core to others.
  virtual void synchronize(double patience = kUsualPatience) = 0;
  virtual void* stream() = 0;  // cudaStream_t, or null

  // Copies that run while the device works (see Upload, which keeps their memory alive):
  //
  // Host memory that the device reads by itself: page-locked for a GPU, plain for a CPU. Throws
  // OutOfMemoryError where the system gives none; other host memory is right too, but slower.
  virtual StoragePtr allocate_host(int64_t bytes) = 0;
  virtual std::unique_ptr<Fence> make_fence() = 0;
  // Enqueues copies behind those of earlier calls and behind `after`, where there is one; they wait
  // for nothing else of the backend's stream. `done`, where there is one, passes when all of them
  // are done; until then the sources must stay as they are. The fences are of this backend. May be
  // called by several threads at a time.
  virtual void copy_beside(std::span<const HostCopy> copies, Fence* after, Fence* done) = 0;
  // What is enqueued on the backend's stream from now on waits for the fence.
  virtual void hold_back(Fence& fence) = 0;

  // From now on others share memory and may look at it without asking, so no work may wait any
  // longer to be put on the stream.
  virtual void begin_sharing() {}
  // Makes the backend's stream wait for work on a foreign stream (DLPack import), and the other way
  // round (export). Nothing to do on a CPU. `stream` follows the DLPack protocol's numbering;
  // wait_for_stream(-1) waits for every stream of the device, for work whose stream is not known.
  virtual void wait_for_stream(intptr_t stream) = 0;
  virtual void make_stream_wait(intptr_t stream) = 0;
  // The device of this kind that memory lies on, of which only the address is known. Throws
  // DeviceError for memory that is not on one.
  virtual Device device_of(const void*) { return device(); }
};

// The backend of a device; loads the CUDA library on first use. Throws DeviceError with the reason
// and the remedy where the device can't be used.
Backend& backend(Device device);

struct DeviceStatus {
  Device device;
  bool usable = false;
  std::string description;  // what it is, or why it can't be used and what to do
};

// The CPU, every GPU, or one entry "cuda:0" that is not usable with its reason. Loads the CUDA
// library.
std::vector<DeviceStatus> list_devices();

// Plans through the backend's table and names op and device in the error where there is no row.
std::unique_ptr<Kernel> plan_kernel(Backend& backend, const PlanRequest& request);

// The same, but the caller calls finish_planning(), after it has begun to plan other kernels.
std::unique_ptr<Kernel> begin_to_plan_kernel(Backend& backend, const PlanRequest& request);

// Null where the backend has no kernel for the op.
const KernelTableRow* find_kernel_row(const Backend& backend, std::string_view op);

// Where the CUDA library is looked for if it is not beside this one; nothing is loaded yet. To be
// called before a device is asked for.
void set_cuda_library_folder(const std::string& folder);

// What the CUDA library reports of itself and the libraries it uses, empty where it can't be
// loaded.
std::string cuda_versions();

class Compilation;
class GpuCollectives;

// compile_queue.h of CUDA C++ for a compute capability, 90 for 9.0; no GPU is needed. Throws
// DeviceError where the CUDA library can't be loaded, LibraryError where NVRTC can't be.
std::shared_ptr<Compilation> start_cuda_compile(int compute_capability, const std::string& source,
                                                const std::string& function,
                                                const std::vector<std::string>& options);

// "NVRTC 13.0", or why it is not there and the remedy.
std::string nvrtc_state();

// What libkerascnn_cuda exports, found by name with dlsym after dlopen.
struct CudaPlugin {
  int (*device_count)();                // number of usable GPUs; never throws
  std::string (*unavailable_reason)();  // why device_count() is 0
  Backend& (*backend)(int index);       // throws DeviceError
  std::string (*versions)();  // "CUDA runtime 13.0, driver 13.0, cuDNN 9.19.0, cuFFT 12.0.0, ..."
  std::shared_ptr<Compilation> (*start_compile)(int compute_capability, const std::string& source,
                                                const std::string& function,
                                                const std::vector<std::string>& options);
  std::string (*nvrtc_state)();
  GpuCollectives& (*collectives)();
};
constexpr const char* kCudaPluginSymbol = "kerascnn_cuda_plugin";  // const CudaPlugin* (*)()
// const char* (*)(): core_interface.h as the library was compiled with it.
constexpr const char* kCudaInterfaceSymbol = "kerascnn_cuda_interface";

}  // namespace kerascnn
