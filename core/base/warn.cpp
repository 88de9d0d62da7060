#include "core/base/warn.h"

#include <iostream>
#include <mutex>
#include <utility>

namespace kerascnn {
namespace {

struct Handler {
  std::mutex mutex;
  WarningHandler function;
};

// Never destroyed: somebody may warn as late as when the process ends.
Handler& handler() {
  static Handler& known = *new Handler;
  return known;
}

}  // namespace

void warn(const std::string& text) {
  WarningHandler function;
  {
    const std::lock_guard lock(handler().mutex);
    function = handler().function;
  }
  if (function) {
    function(text);
  } else {
    std::cerr << "kerascnn: " << text << '\n';
  }
}

WarningHandler set_warning_handler(WarningHandler function) {
  const std::lock_guard lock(handler().mutex);
  return std::exchange(handler().function, std::move(function));
}

}  // namespace kerascnn
