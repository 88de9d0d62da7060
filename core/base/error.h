// The errors the core throws. The bindings map each class to one Python exception; messages are
// written where the fault is found and name the op or object, what was expected, what was received,
// the way out.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

namespace kerascnn {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A wrong value, shape or combination (Python: ValueError).
class ValueError : public Error {
 public:
  using Error::Error;
};

// A wrong type or dtype (Python: TypeError).
class TypeError : public Error {
 public:
  using Error::Error;
};

// A device that is missing, failed, or is mixed with another (Python: RuntimeError).
class DeviceError : public Error {
 public:
  using Error::Error;
};

// A call into CUDA, cuDNN, cuBLASLt or oneDNN that did not succeed (Python: RuntimeError).
class LibraryError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

// Device memory ran out (Python: kerascnn.OutOfMemoryError, a MemoryError). Sizes in bytes.
class OutOfMemoryError : public Error {
 public:
  OutOfMemoryError(const std::string& message, int64_t requested, int64_t allocated, int64_t cached,
                   int64_t free)
      : Error(message), requested(requested), allocated(allocated), cached(cached), free(free) {}

  int64_t requested;
  int64_t allocated;
  int64_t cached;
  int64_t free;
};

// Builds one message from streamable parts: message("conv2d: got ", n, " channels").
template <typename... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace kerascnn
