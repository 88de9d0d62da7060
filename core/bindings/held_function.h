// Python functions that C++ holds: gradients by hand, the parts of custom ops. The garbage
// collector can't look into what holds them, so that one which leads back to its holder, as by a
// module whose names it reads, would never be let go of. When the interpreter ends all of them are.
#pragma once

#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/bindings/bindings.h"

namespace kerascnn::bindings {

class HeldFunction {
 public:
  explicit HeldFunction(nb::object function);
  ~HeldFunction();  // with Python's lock
  HeldFunction(const HeldFunction&) = delete;
  HeldFunction& operator=(const HeldFunction&) = delete;

  template <typename... Args>
  nb::object operator()(Args&&... args) const {
    if (!function_.is_valid()) {
      throw Error("a function of Python's is asked for after the interpreter's end has begun");
    }
    return function_(std::forward<Args>(args)...);
  }

  static void release_all();

 private:
  nb::object function_;
};

// It is called with Python's lock, and let go of with it, on whatever thread.
std::shared_ptr<HeldFunction> hold(nb::object function);

}  // namespace kerascnn::bindings
