#include "core/backend/host_fft.h"

#include <utility>

#include "core/base/error.h"

namespace kerascnn {
namespace {

struct Registered {
  HostFft functions;
  // Why there are no functions; empty where there are some.
  std::string reason =
      "this process has not loaded kerascnn's Python package, which brings those of NumPy";
};

Registered& registered() {
  static Registered& value = *new Registered;
  return value;
}

}  // namespace

void set_host_fft(HostFft functions) { registered() = {std::move(functions), ""}; }

void set_no_host_fft(std::string reason) { registered() = {{}, std::move(reason)}; }

const HostFft& host_fft(std::string_view op) {
  const Registered& found = registered();
  if (!found.reason.empty()) {
    throw LibraryError(
        message(op, ": there are no Fourier transforms for the CPU: ", found.reason));
  }
  return found.functions;
}

}  // namespace kerascnn
