#include "core/backend/cpu/onednn/primitive_kernel.h"

#include <dnnl_debug.h>
#include <pthread.h>
#include <sys/mman.h>
#ifdef __GLIBC__
#include <execinfo.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <exception>
#include <latch>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/parallel.h"
#include "core/base/signal_stack.h"

namespace kerascnn::cpu::onednn {

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::stream& stream() {
  thread_local dnnl::stream in_order(engine());
  return in_order;
}

namespace {

// Is it one of those that may use the stack pointer as an ordinary register?
bool borrows_stack_pointer(const dnnl::primitive& primitive) {
  const char* implementation = nullptr;
  dnnl_primitive_desc_query(primitive.get_primitive_desc(), dnnl_query_impl_info_str, 0,
                            &implementation);
  return implementation == nullptr ||
         std::string_view(implementation).find("gemm:jit") != std::string_view::npos;
}

bool has_room(size_t bytes) {
  void* const room =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return false;
  (void)munmap(room, bytes);
  return true;
}

#ifdef _OPENMP
// How many threads of OpenMP's, this one included, stand by for regions that this one begins. Of
// these its library ends those that a region of oneDNN's leaves out, and starts them again for one
// that does not, without a trial.
thread_local int standing_by = 1;

// A forked child has none of OpenMP's threads, but waits for them. Where they have ended before the
// fork, child and parent start new ones when they need some.
void end_team() {
  if (standing_by == 1) return;
  (void)omp_pause_resource_all(omp_pause_soft);
  standing_by = 1;
}

// Is there room for so many threads?
bool has_room_for_threads(size_t count) {
  size_t stack = 0;
  pthread_attr_t usual;
  if (pthread_attr_init(&usual) != 0) return false;
  (void)pthread_attr_getstacksize(&usual, &stack);
  (void)pthread_attr_destroy(&usual);
  constexpr size_t kBesideStack = 1 << 20;
  return has_room(count * (stack + kBesideStack));
}

// OpenMP's library ends the process where the system gives it no thread, and the C library where
// there is no memory for a thread's data. So that many threads are tried first.
void require_threads(size_t count) {
  if (!has_room_for_threads(count)) throw std::bad_alloc();
  std::latch end(1);
  std::vector<std::thread> threads;
  threads.reserve(count);
  std::exception_ptr error;
  try {
    while (threads.size() < count) threads.emplace_back([&end] { end.wait(); });
  } catch (...) {
    error = std::current_exception();
  }
  const size_t started = threads.size();
  const bool has_memory = has_room_for_threads(count - started);
  end.count_down();
  for (std::thread& thread : threads) thread.join();
  if (!error) return;
  if (!has_memory) throw std::bad_alloc();
  try {
    std::rethrow_exception(error);
  } catch (const std::system_error&) {
    throw DeviceError(message("cpu: a kernel needs ", count, " more threads, and the system gives ",
                              "this process ", started,
                              ": set KERASCNN_NUM_THREADS or OMP_NUM_THREADS to fewer, or raise "
                              "the limit (ulimit -u, or the container's)"));
  }
}
#endif

// Gives OpenMP's threads that others have started stacks for handlers. Those that oneDNN starts
// have their signals blocked.
void prepare_team([[maybe_unused]] int team) {
#ifdef _OPENMP
  if (team <= standing_by) return;
  static const int once = pthread_atfork(end_team, nullptr, nullptr);
  static_cast<void>(once);
  // What one thread has tried, no other takes.
  static std::mutex starting;
  const std::lock_guard lock(starting);
  require_threads(static_cast<size_t>(team - standing_by));
  std::exception_ptr error;  // which may not leave the region of OpenMP
#pragma omp parallel num_threads(team)
  try {
    ensure_signal_stack();
  } catch (...) {
#pragma omp critical(kerascnn_prepare_team)
    error = std::current_exception();
  }
  if (error) std::rethrow_exception(error);
  standing_by = team;
#endif
}

}  // namespace

void execute(const dnnl::primitive& primitive,
             const std::unordered_map<int, dnnl::memory>& arguments, int team) {
  ensure_signal_stack();
  const ThreadCountScope threads(team);
  std::optional<SignalsBlocked> blocked;
  if (team > 1 || borrows_stack_pointer(primitive)) blocked.emplace();
  if (team > 1) prepare_team(team);
  primitive.execute(stream(), arguments);
  stream().wait();
}

void require_room_for_code() {
  // With much to spare.
  constexpr size_t kBytes = 16 << 20;
#ifdef __GLIBC__
  // The C library loads what unwinds exceptions out of std::call_once when it is first needed, and
  // ends the process where there is no memory for that.
  static const int once = [] {
    void* frame = nullptr;
    return backtrace(&frame, 1);
  }();
  static_cast<void>(once);
#endif
  if (!has_room(kBytes)) throw dnnl::error(dnnl_out_of_memory, "no memory for code");
}

void prepare_products() {
  static std::mutex mutex;
  static bool prepared = false;
  const std::lock_guard lock(mutex);
  if (prepared) return;
  ensure_signal_stack();
  const SignalsBlocked blocked;
  const ThreadCountScope one(1);
  // A small product runs on the operands as they are, a large one on copies: their code differs.
  for (const dnnl_dim_t size : {dnnl_dim_t{16}, dnnl_dim_t{400}}) {
    const std::vector<float> operand(static_cast<size_t>(size * size));
    std::vector<float> result(operand.size());
    const dnnl_status_t status = dnnl_sgemm('N', 'N', size, size, size, 1.0f, operand.data(), size,
                                            operand.data(), size, 0.0f, result.data(), size);
    if (status != dnnl_success) throw dnnl::error(dnnl_out_of_memory, "no memory for code");
  }
  prepared = true;
}

std::string call_string(const PlanRequest& request) {
  std::string text = std::string(request.op.name) + " of ";
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    text += (i > 0 ? ", " : "") + spec_string(request.inputs[i]);
  }
  return text;
}

void throw_library_error(const std::string& call, const dnnl::error& error) {
  if (error.status == dnnl_out_of_memory) {
    const Allocator& allocator = backend(Device{}).allocator();
    const MemoryStats stats = allocator.stats();
    throw OutOfMemoryError(
        message(call,
                ": out of memory on cpu: the system gives oneDNN none for a kernel; use a "
                "smaller batch size or a smaller model, or raise the limit of this process"),
        0, stats.allocated, stats.cached, allocator.available());
  }
  const dnnl_version_t* version = dnnl_version();
  throw LibraryError(message(call, ": oneDNN ", version->major, ".", version->minor, ".",
                             version->patch, " failed with status ", error.status, " (",
                             dnnl_status2str(error.status), "): ", error.what()));
}

dnnl::primitive_attr make_attributes(const ActivationCall& activation) {
  using dnnl::algorithm;
  dnnl::post_ops ops;
  const float alpha = static_cast<float>(activation.alpha);
  switch (activation.kind) {
    case Activation::Linear:
      break;
    case Activation::Relu:
      ops.append_eltwise(algorithm::eltwise_relu, 0.0f, 0.0f);
      break;
    case Activation::LeakyRelu:
      ops.append_eltwise(algorithm::eltwise_relu, alpha, 0.0f);
      break;
    case Activation::ClippedRelu:
      ops.append_eltwise(algorithm::eltwise_clip, 0.0f, alpha);
      break;
    case Activation::Elu:
      ops.append_eltwise(algorithm::eltwise_elu, alpha, 0.0f);
      break;
    case Activation::Sigmoid:
      ops.append_eltwise(algorithm::eltwise_logistic, 0.0f, 0.0f);
      break;
    case Activation::Tanh:
      ops.append_eltwise(algorithm::eltwise_tanh, 0.0f, 0.0f);
      break;
    case Activation::Gelu:
      ops.append_eltwise(
          activation.alpha != 0 ? algorithm::eltwise_gelu_tanh : algorithm::eltwise_gelu_erf, 0.0f,
          0.0f);
      break;
    case Activation::Silu:
      ops.append_eltwise(algorithm::eltwise_swish, 1.0f, 0.0f);
      break;
    case Activation::Softplus:
      ops.append_eltwise(algorithm::eltwise_soft_relu, 1.0f, 0.0f);
      break;
  }
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(ops);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::memory::desc plain(const dnnl::memory::dims& dims, dnnl::memory::format_tag tag,
                         dnnl::memory::data_type type) {
  return {dims, type, tag};
}

dnnl::memory::desc any_layout(const dnnl::memory::dims& dims) {
  return plain(dims, dnnl::memory::format_tag::any);
}

namespace {

// A copy of fewer bytes is not worth several threads.
constexpr int64_t kReorderBytes = 1 << 18;
// Output channels of a piece of such a copy: blocks of all layouts divide it.
constexpr int64_t kReorderChannels = 64;

}  // namespace

PrimitiveKernel::PrimitiveKernel(std::string call, std::string implementation,
                                 std::vector<Part> parts, int team)
    : call_(std::move(call)), description_("oneDNN " + std::move(implementation)), team_(team) {
  for (const Part& part : parts) {
    scratch_bytes_ =
        std::max(scratch_bytes_, align_up(static_cast<int64_t>(part.scratchpad.get_size())));
  }
  reserve(scratch_bytes_ * std::min<int64_t>(num_threads(), static_cast<int64_t>(parts.size())));
  for (const Argument& argument : parts[0].arguments)
    bound_.push_back(bind(argument, parts.size()));
  for (Part& part : parts) {
    BoundPart& made = parts_.emplace_back(BoundPart{
        part.primitive, dnnl::memory(part.scratchpad, engine(), nullptr), {}, {}, part.first_row});
    made.map.emplace(DNNL_ARG_SCRATCHPAD, made.scratchpad);
    for (const Argument& argument : part.arguments) {
      made.memories.emplace_back(argument.inside, engine(), nullptr);
      made.map.emplace(argument.name, made.memories.back());
    }
  }
}

int64_t PrimitiveKernel::reserve(int64_t bytes) {
  const int64_t at = workspace_;
  workspace_ += align_up(bytes);
  return at;
}

PrimitiveKernel::Bound PrimitiveKernel::bind(const Argument& argument, size_t parts) {
  Bound bound{argument, -1, -1, static_cast<int64_t>(argument.inside.get_size()), {}};
  const bool is_sum = parts > 1 && argument.is_output && argument.row_bytes == 0;
  if (is_sum) bound.sums = reserve(bound.bytes * static_cast<int64_t>(parts));
  if (argument.inside == argument.outside) return bound;
  bound.copy = is_sum ? bound.sums : reserve(bound.bytes);
  const auto add = [&](const dnnl::memory::desc& inside, const dnnl::memory::desc& outside) {
    const dnnl::memory in(inside, engine(), nullptr);
    const dnnl::memory out(outside, engine(), nullptr);
    const dnnl::memory& from = argument.is_output ? in : out;
    const dnnl::memory& to = argument.is_output ? out : in;
    bound.reorders.push_back({dnnl::reorder(from, to), from, to});
  };
  const ThreadCountScope scope(1);
  dnnl::memory::dims dims = argument.inside.get_dims();
  dnnl::memory::dims first(dims.size(), 0);
  const int64_t channels = dims[0];
  if (bound.bytes < kReorderBytes || channels % kReorderChannels != 0) {
    add(argument.inside, argument.outside);
    return bound;
  }
  dims[0] = kReorderChannels;
  try {
    for (; first[0] < channels; first[0] += kReorderChannels) {
      add(argument.inside.submemory_desc(dims, first),
          argument.outside.submemory_desc(dims, first));
    }
  } catch (const dnnl::error& error) {
    // Layouts whose blocks are larger have no such pieces.
    if (error.status != dnnl_unimplemented) throw;
    bound.reorders.clear();
    add(argument.inside, argument.outside);
  }
  return bound;
}

// Where a part's share of an argument begins, in the primitive's layout.
char* PrimitiveKernel::place_of(const KernelArgs& args, const Bound& bound, size_t part) const {
  char* workspace = static_cast<char*>(args.workspace);
  if (bound.sums >= 0) return workspace + bound.sums + bound.bytes * static_cast<int64_t>(part);
  if (bound.copy >= 0) return workspace + bound.copy;
  const Argument& argument = bound.argument;
  const void* buffer =
      argument.is_output ? args.outputs[argument.index] : args.inputs[argument.index];
  return static_cast<char*>(const_cast<void*>(buffer)) +
         argument.row_bytes * parts_[part].first_row;
}

void PrimitiveKernel::run_part(const KernelArgs& args, size_t index, int64_t thread) {
  BoundPart& part = parts_[index];
  part.scratchpad.set_data_handle(static_cast<char*>(args.workspace) + thread * scratch_bytes_);
  for (size_t i = 0; i < bound_.size(); ++i) {
    part.memories[i].set_data_handle(place_of(args, bound_[i], index));
  }
  execute(part.primitive, part.map, team_);
}

// Adds the parts' results in their order, whoever has computed them.
void PrimitiveKernel::add_up(const KernelArgs& args, const Bound& bound) const {
  constexpr int64_t kBlock = 1024;
  const int64_t count = bound.bytes / static_cast<int64_t>(sizeof(float));
  const auto* sums =
      reinterpret_cast<const float*>(static_cast<char*>(args.workspace) + bound.sums);
  auto* total = static_cast<float*>(bound.copy >= 0 ? static_cast<void*>(place_of(args, bound, 0))
                                                    : args.outputs[bound.argument.index]);
  parallel_for(count, kElementGrain / 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += kBlock) {
      const int64_t size = std::min(kBlock, end - block);
      float sum[kBlock];
      std::copy(sums + block, sums + block + size, sum);
      for (size_t part = 1; part < parts_.size(); ++part) {
        const float* more = sums + static_cast<int64_t>(part) * count + block;
        for (int64_t i = 0; i < size; ++i) sum[i] += more[i];
      }
      std::copy(sum, sum + size, total + block);
    }
  });
}

void PrimitiveKernel::reorder(const KernelArgs& args, Bound& bound) {
  char* inside = static_cast<char*>(args.workspace) + bound.copy;
  const Argument& argument = bound.argument;
  const void* buffer =
      argument.is_output ? args.outputs[argument.index] : args.inputs[argument.index];
  void* outside = const_cast<void*>(buffer);
  run_pieces(static_cast<int64_t>(bound.reorders.size()), [&](int64_t piece, int64_t) {
    Reorder& copy = bound.reorders[static_cast<size_t>(piece)];
    copy.from.set_data_handle(argument.is_output ? inside : outside);
    copy.to.set_data_handle(argument.is_output ? outside : inside);
    execute(copy.primitive, {{DNNL_ARG_FROM, copy.from}, {DNNL_ARG_TO, copy.to}});
  });
}

void PrimitiveKernel::run(const KernelArgs& args) {
  const std::lock_guard lock(mutex_);
  try {
    if (!has_run_) require_room_for_code();
    for (Bound& bound : bound_) {
      if (bound.copy >= 0 && !bound.argument.is_output) reorder(args, bound);
    }
    run_pieces(static_cast<int64_t>(parts_.size()), [&](int64_t part, int64_t thread) {
      run_part(args, static_cast<size_t>(part), thread);
    });
    for (Bound& bound : bound_) {
      if (bound.sums >= 0) add_up(args, bound);
      if (bound.copy >= 0 && bound.argument.is_output) reorder(args, bound);
    }
    has_run_ = true;
  } catch (const dnnl::error& error) {
    throw_library_error(call_, error);
  }
}

}  // namespace kerascnn::cpu::onednn
