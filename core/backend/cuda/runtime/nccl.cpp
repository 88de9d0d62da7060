#include "core/backend/cuda/runtime/nccl.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "core/backend/cuda/runtime/handles.h"
#include "core/backend/cuda/runtime/opened_library.h"
#include "core/backend/cuda/runtime/waiting.h"
#include "core/base/error.h"

namespace kerascnn::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// What nccl.h of NCCL 2 declares.
using NcclResult = int;
using NcclHandle = struct ncclComm*;
constexpr NcclResult kNcclSuccess = 0;
constexpr NcclResult kNcclInProgress = 7;
constexpr size_t kNcclIdBytes = 128;
constexpr int kNcclSum = 0, kNcclAverage = 4;
constexpr int kNcclFloat16 = 6, kNcclFloat32 = 7, kNcclFloat64 = 8, kNcclBFloat16 = 9;
constexpr int kLeastNcclVersion = 21800, kLastNcclMajor = 2;

struct NcclId {
  std::array<char, kNcclIdBytes> bytes;
};

struct NcclFunctions {
  NcclResult (*get_version)(int*);
  const char* (*get_error_string)(NcclResult);
  const char* (*get_last_error)(NcclHandle);
  NcclResult (*get_unique_id)(NcclId*);
  NcclResult (*comm_init_rank)(NcclHandle*, int processes, NcclId, int rank);
  NcclResult (*comm_abort)(NcclHandle);
  NcclResult (*comm_get_async_error)(NcclHandle, NcclResult*);
  NcclResult (*group_start)();
  NcclResult (*group_end)();
  NcclResult (*all_reduce)(const void* from, void* to, size_t count, int dtype, int operation,
                           NcclHandle, cudaStream_t);
  NcclResult (*reduce)(const void* from, void* to, size_t count, int dtype, int operation, int root,
                       NcclHandle, cudaStream_t);
  NcclResult (*broadcast)(const void* from, void* to, size_t count, int dtype, int root, NcclHandle,
                          cudaStream_t);
};

std::string nccl_version_text(int version) {
  return message(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

struct NcclLibrary {
  explicit NcclLibrary(const std::string& file);
  std::string version_text() const { return nccl_version_text(version); }

  std::string file;
  NcclFunctions call{};
  int version = 0;
};

NcclLibrary::NcclLibrary(const std::string& name) : file(name) {
  const char* const what_fails = "several GPUs can't be connected";
  const OpenedLibrary library(name, what_fails,
                              "pip install nvidia-nccl-cu13, or kerascnn's extra \"nccl\"");
  library.find("ncclGetVersion", call.get_version);
  library.find("ncclGetErrorString", call.get_error_string);
  library.find("ncclGetLastError", call.get_last_error);
  library.find("ncclGetUniqueId", call.get_unique_id);
  library.find("ncclCommInitRank", call.comm_init_rank);
  library.find("ncclCommAbort", call.comm_abort);
  library.find("ncclCommGetAsyncError", call.comm_get_async_error);
  library.find("ncclGroupStart", call.group_start);
  library.find("ncclGroupEnd", call.group_end);
  library.find("ncclAllReduce", call.all_reduce);
  library.find("ncclReduce", call.reduce);
  library.find("ncclBroadcast", call.broadcast);
  const NcclResult result = call.get_version(&version);
  if (result != kNcclSuccess) {
    throw LibraryError(message(what_fails, ": ncclGetVersion of ", name, " failed with ", result));
  }
  if (version < kLeastNcclVersion || version / 10000 != kLastNcclMajor) {
    throw LibraryError(message(what_fails, ": ", name, " is NCCL ", nccl_version_text(version),
                               ", and kerascnn calls NCCL ", nccl_version_text(kLeastNcclVersion),
                               " and newer of version ", kLastNcclMajor,
                               "; install it with: pip install nvidia-nccl-cu13"));
  }
}

// The sums that were put on a stream, and how far it is.
class MeetingLog {
 public:
  // Never destroyed, as its membership: loops may write there as long as the process lives.
  MeetingLog() {
    check(cudaHostAlloc(reinterpret_cast<void**>(&signals_), sizeof(LoopSignals),
                        cudaHostAllocPortable),
          "cudaHostAlloc of a loop's signals");
    *signals_ = {};
  }

  LoopSignals* signals() const { return signals_; }

  void end_loops() { std::atomic_ref(signals_->is_over).store(1); }

  void note(int64_t count, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    if (pending_.size() >= kMostUnlooked) look();
    if (pending_.empty()) moved_ = Clock::now();
    Event event = spare_.empty() ? make_event() : std::move(spare_.back());
    if (!spare_.empty()) spare_.pop_back();
    check(cudaEventRecord(event.get(), stream), "cudaEventRecord");
    started_ += count;
    pending_.push_back({std::move(event), started_});
  }

  GpuMeetings state() {
    const std::lock_guard lock(mutex_);
    look();
    GpuMeetings result;
    result.started = started_;
    result.ended = ended_;
    if (!pending_.empty()) {
      result.waiting = std::chrono::duration<double>(Clock::now() - moved_).count();
    }
    return result;
  }

 private:
  static constexpr size_t kMostUnlooked = 16;

  struct Pending {
    Event event;
    int64_t started;  // sums up to this event
  };

  // An error of the device is for those who use it to report: for this log the work is not over.
  void look() {
    while (!pending_.empty() && cudaEventQuery(pending_.front().event.get()) == cudaSuccess) {
      ended_ = pending_.front().started;
      moved_ = Clock::now();
      spare_.push_back(std::move(pending_.front().event));
      pending_.pop_front();
    }
    (void)cudaGetLastError();
    const int64_t turn = std::atomic_ref(signals_->turn).load();
    if (turn != seen_turn_) moved_ = Clock::now();
    seen_turn_ = turn;
  }

  std::mutex mutex_;
  std::deque<Pending> pending_;
  std::vector<Event> spare_;
  LoopSignals* signals_ = nullptr;
  int64_t seen_turn_ = 0;
  int64_t started_ = 0, ended_ = 0;
  Clock::time_point moved_;
};

struct NcclMembership {
  NcclLibrary library;
  NcclHandle comm = nullptr;
  int device = 0;
  int64_t rank = 0;
  int64_t processes = 1;
  MeetingLog log{};
  std::mutex calling{};  // NCCL wants the calls of one communicator one after another

  std::string who() const {
    return message("process ", rank, " of ", processes, " on cuda:", device);
  }

  void expect(NcclResult result, std::string_view op, std::string_view call) const {
    if (result == kNcclSuccess) return;
    const char* const last = library.call.get_last_error(comm);
    throw DeviceError(message(op, ": ", who(), ": ", call, " failed with NCCL error ", result, " (",
                              library.call.get_error_string(result),
                              "): ", last != nullptr && *last != 0 ? last : "it says no more",
                              "; NCCL ", library.version_text(), " of ", library.file,
                              "; NCCL_DEBUG=INFO lets it say more"));
  }
};

// What this process has joined by each of its devices: one of them where a launcher has started
// several processes, and several where it trains on them by itself. All are never destroyed: at
// process exit the driver may be gone before this library's static objects are, and captured graphs
// refer to communicators that were replaced.
constexpr int kMostDevices = 64;
std::array<std::atomic<NcclMembership*>, kMostDevices> memberships{};
std::atomic<NcclLibrary*> opened_nccl{nullptr};
std::atomic<bool> has_aborted_sums{false};

NcclMembership* membership_of(int device) {
  return device < 0 || device >= kMostDevices ? nullptr : memberships[device].load();
}

NcclLibrary& nccl_library() {
  NcclLibrary* const library = opened_nccl.load();
  if (library == nullptr) throw DeviceError("NCCL was not opened; call initialize() first");
  return *library;
}

int nccl_dtype(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return kNcclFloat16;
    case DType::BFloat16:
      return kNcclBFloat16;
    case DType::Float64:
      return kNcclFloat64;
    default:
      return kNcclFloat32;
  }
}

NcclMembership& joined(std::string_view op, int64_t processes) {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  NcclMembership* const found = membership_of(device);
  const int64_t there = found == nullptr ? 1 : found->processes;
  if (there != processes) {
    throw DeviceError(message(
        op, ": it is for ", processes, " GPUs, but cuda:", device, " of this process is connected ",
        there == 1 ? "with no other" : message("as one of ", there),
        "; call keras.distribution.initialize() before anything else in each process, and train on "
        "the GPU that it gets, or name this process' GPUs in DataParallel(devices=...)"));
  }
  return *found;
}

// Joining blocks until all processes have come, so a thread of its own does it, which is left alone
// where that takes too long.
struct Joining {
  std::promise<NcclResult> result;
  NcclHandle comm = nullptr;
};

// A first sum makes connections, which can't be made later while a graph is captured, and shows
// that they work. It has its memory before the devices meet: where they are of one process,
// allocating could wait for a device that waits in the sum already.
class FirstSum {
 public:
  FirstSum() {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), kCount * sizeof(float)), "cudaMalloc");
    check(cudaMemsetAsync(data_, 0, kCount * sizeof(float), stream_.get()), "cudaMemsetAsync");
    const float one = 1;
    check(cudaMemcpyAsync(last(), &one, sizeof(float), cudaMemcpyHostToDevice, stream_.get()),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
  }
  // A sum that was given up goes on, and freeing its memory would wait for it.
  ~FirstSum() {
    if (!is_under_way_) (void)cudaFree(data_);
  }
  FirstSum(const FirstSum&) = delete;
  FirstSum& operator=(const FirstSum&) = delete;

  void check_with(NcclMembership& member, double patience) {
    const NcclFunctions& call = member.library.call;
    is_under_way_ = true;
    member.expect(
        call.all_reduce(data_, data_, kCount, kNcclFloat32, kNcclSum, member.comm, stream_.get()),
        "initialize", "the first ncclAllReduce");
    check(cudaEventRecord(done_.get(), stream_.get()), "cudaEventRecord");
    const auto begun = Clock::now();
    while (!has_passed(done_.get())) {
      NcclResult state = kNcclSuccess;
      member.expect(call.comm_get_async_error(member.comm, &state), "initialize",
                    "ncclCommGetAsyncError");
      if (state != kNcclInProgress) member.expect(state, "initialize", "the first sum");
      if (std::chrono::duration<double>(Clock::now() - begun).count() > patience) {
        throw DeviceError(message("initialize: ", member.who(), " has waited for ", patience,
                                  " seconds for a first sum over the GPUs; NCCL ",
                                  member.library.version_text(),
                                  ", NCCL_DEBUG=INFO lets it say what it waits for"));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    is_under_way_ = false;
    float found = 0;
    check(cudaMemcpy(&found, last(), sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
    if (found != static_cast<float>(member.processes)) {
      throw DeviceError(message("initialize: ", member.who(), ": a first sum over the GPUs gave ",
                                found, " where it is ", member.processes, "; NCCL ",
                                member.library.version_text()));
    }
  }

 private:
  static constexpr size_t kCount = 1 << 20;

  float* last() const { return data_ + (kCount - 1); }

  const Stream stream_ = make_stream();
  const Event done_ = make_event();
  float* data_ = nullptr;
  bool is_under_way_ = false;
};

class NcclCollectives final : public GpuCollectives {
 public:
  std::string open(const std::string& library) override {
    if (opened_nccl.load() == nullptr) opened_nccl = new NcclLibrary(library);
    return nccl_library().version_text();
  }

  std::string make_id() override {
    NcclId id{};
    const NcclLibrary& library = nccl_library();
    const NcclResult result = library.call.get_unique_id(&id);
    if (result != kNcclSuccess) {
      throw DeviceError(message("ncclGetUniqueId failed with NCCL error ", result, " (",
                                library.call.get_error_string(result),
                                "): ", library.call.get_last_error(nullptr), "; NCCL ",
                                library.version_text(), "; NCCL_DEBUG=INFO lets it say more"));
    }
    return {id.bytes.data(), id.bytes.size()};
  }

  std::string device_uuid(int device) override {
    use_device(device);
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    constexpr const char* digits = "0123456789abcdef";
    std::string text;
    for (const char part : properties.uuid.bytes) {
      const auto byte = static_cast<unsigned char>(part);
      text += digits[byte >> 4];
      text += digits[byte & 15];
    }
    return text;
  }

  void join(int device, const std::string& id, int64_t rank, int64_t processes,
            double patience) override {
    if (device < 0 || device >= kMostDevices) {
      throw DeviceError(message("NCCL: kerascnn connects GPUs up to cuda:", kMostDevices - 1,
                                ", received cuda:", device));
    }
    if (id.size() != kNcclIdBytes) {
      throw ValueError(message("NCCL: an id has ", kNcclIdBytes, " bytes, received ", id.size()));
    }
    use_device(device);
    auto* const member = new NcclMembership{
        .library = nccl_library(), .device = device, .rank = rank, .processes = processes};
    FirstSum first_sum;
    const NcclResult result = start_to_join(*member, id, patience);
    member->expect(result, "initialize", "ncclCommInitRank");
    first_sum.check_with(*member, patience);
    memberships[device] = member;
  }

  GpuMeetings meetings() override {
    GpuMeetings result;
    for (const auto& membership : memberships) {
      NcclMembership* const member = membership.load();
      if (member == nullptr) continue;
      result = member->log.state();
      if (!has_aborted_sums) result.failure = failure_of(*member);
      if (!result.failure.empty()) break;
    }
    result.is_reported = is_giving_up_reported();
    return result;
  }

  void give_up(const std::string& reason) override {
    give_up_devices(reason);
    if (has_aborted_sums.exchange(true)) return;
    for (const auto& membership : memberships) {
      NcclMembership* const member = membership.load();
      if (member == nullptr) continue;
      member->log.end_loops();
      // Kernels that wait for others end at once. The call itself returns when nothing refers to
      // the communicator any more, which captured graphs do, so nobody waits for it.
      std::thread([member] {
        (void)cudaSetDevice(member->device);
        (void)member->library.call.comm_abort(member->comm);
      }).detach();
    }
  }

 private:
  static std::string failure_of(const NcclMembership& member) {
    NcclResult state = kNcclSuccess;
    const NcclResult result = member.library.call.comm_get_async_error(member.comm, &state);
    if (result == kNcclSuccess && (state == kNcclSuccess || state == kNcclInProgress)) return "";
    try {
      member.expect(result != kNcclSuccess ? result : state, "all_reduce", "a sum");
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "";
  }

  static NcclResult start_to_join(NcclMembership& member, const std::string& id, double patience) {
    NcclId bytes{};
    std::copy(id.begin(), id.end(), bytes.bytes.begin());
    const auto joining = std::make_shared<Joining>();
    std::future<NcclResult> result = joining->result.get_future();
    std::thread([joining, bytes, device = member.device, call = member.library.call,
                 rank = static_cast<int>(member.rank),
                 processes = static_cast<int>(member.processes)] {
      (void)cudaSetDevice(device);
      joining->result.set_value(call.comm_init_rank(&joining->comm, processes, bytes, rank));
    }).detach();
    if (result.wait_for(std::chrono::duration<double>(patience)) != std::future_status::ready) {
      throw DeviceError(message("initialize: ", member.who(), " has waited for ", patience,
                                " seconds for ncclCommInitRank, in which all processes meet; NCCL ",
                                member.library.version_text(),
                                ", NCCL_DEBUG=INFO lets it say "
                                "what it waits for"));
    }
    const NcclResult found = result.get();
    member.comm = joining->comm;
    return found;
  }
};

// Calls a function of NCCL for each piece of memory, all in one group.
template <typename Memory, typename Call>
void call_in_group(NcclMembership& member, std::string_view op, const char* function,
                   const std::vector<Memory>& memory, const Call& call) {
  check_given_up();
  const std::lock_guard lock(member.calling);
  member.expect(member.library.call.group_start(), op, "ncclGroupStart");
  NcclResult result = kNcclSuccess;
  for (const Memory& one : memory) {
    if (one.count == 0) continue;
    result = call(one, static_cast<size_t>(one.count));
    if (result != kNcclSuccess) break;
  }
  // Also after a failure: a group must not stay open.
  const NcclResult ended = member.library.call.group_end();
  member.expect(result, op, function);
  member.expect(ended, op, "ncclGroupEnd");
}

}  // namespace

void check_joined(std::string_view op, int64_t processes) { (void)joined(op, processes); }

void sum_over_processes(std::string_view op, int64_t processes,
                        const std::vector<SummedMemory>& memory, DType dtype, bool average,
                        cudaStream_t stream) {
  NcclMembership& member = joined(op, processes);
  call_in_group(member, op, "ncclAllReduce", memory, [&](const SummedMemory& one, size_t count) {
    return member.library.call.all_reduce(one.from, one.to, count, nccl_dtype(dtype),
                                          average ? kNcclAverage : kNcclSum, member.comm, stream);
  });
}

void reduce_to_owners(std::string_view op, int64_t processes,
                      const std::vector<OwnedMemory>& memory, DType dtype, bool average,
                      cudaStream_t stream) {
  NcclMembership& member = joined(op, processes);
  call_in_group(member, op, "ncclReduce", memory, [&](const OwnedMemory& one, size_t count) {
    return member.library.call.reduce(one.from, one.to, count, nccl_dtype(dtype),
                                      average ? kNcclAverage : kNcclSum, one.owner, member.comm,
                                      stream);
  });
}

void broadcast_from_owners(std::string_view op, int64_t processes,
                           const std::vector<OwnedMemory>& memory, DType dtype,
                           cudaStream_t stream) {
  NcclMembership& member = joined(op, processes);
  call_in_group(member, op, "ncclBroadcast", memory, [&](const OwnedMemory& one, size_t count) {
    return member.library.call.broadcast(one.from, one.to, count, nccl_dtype(dtype), one.owner,
                                         member.comm, stream);
  });
}

int64_t rank_among(std::string_view op, int64_t processes) { return joined(op, processes).rank; }

void note_meetings(int64_t count, cudaStream_t stream) {
  if (count == 0) return;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  if (NcclMembership* const member = membership_of(device)) member->log.note(count, stream);
}

LoopSignals* loop_signals() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  NcclMembership* const member = membership_of(device);
  return member == nullptr ? nullptr : member->log.signals();
}

GpuCollectives& nccl_collectives() {
  static auto* const collectives = new NcclCollectives();
  return *collectives;
}

}  // namespace kerascnn::cuda
