// How GPUs of several processes, or of one, sum, seen from a process' host. The CUDA library does
// it by NCCL (core/backend/cuda/runtime/nccl.h); who the processes are, and which of them is at
// fault where one waits in vain, is for the caller to find out (kerascnn/distribution/nccl.py).
#pragma once

#include <cstdint>
#include <string>

namespace kerascnn {

// Sums over processes that this one has put on its stream since it joined.
struct GpuMeetings {
  int64_t started = 0;
  int64_t ended = 0;         // those known to be over; it may be more
  double waiting = 0;        // seconds since one was over, or since the first of those that are not
  std::string failure;       // what NCCL has found by itself, such as a broken connection
  bool is_reported = false;  // has a caller been told that the processes were given up?
};

class GpuCollectives {
 public:
  virtual ~GpuCollectives() = default;

  // Opens NCCL, a file or a name, and returns its version. Throws LibraryError with the remedy.
  virtual std::string open(const std::string& library) = 0;
  // What the first process makes and gives to all.
  virtual std::string make_id() = 0;
  // A name that no other GPU has.
  virtual std::string device_uuid(int device) = 0;
  // Joins the processes on a device; all of them call it. Devices of one process are joined by a
  // thread each, and may be joined again with others. Throws DeviceError where that fails or takes
  // longer than so many seconds.
  virtual void join(int device, const std::string& id, int64_t rank, int64_t processes,
                    double patience) = 0;
  virtual GpuMeetings meetings() = 0;
  // Ends sums that wait for other processes. Whoever waits for the device, or uses it afterwards,
  // gets a DeviceError with this reason. Never blocks; the first reason counts.
  virtual void give_up(const std::string& reason) = 0;
};

// Throws DeviceError where there is no CUDA library.
GpuCollectives& gpu_collectives();

}  // namespace kerascnn
