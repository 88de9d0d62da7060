// Code that runs without the interpreter's lock, also while the interpreter ends.
#pragma once

#include <Python.h>

namespace kerascnn::bindings {

// Gives up the interpreter's lock, and takes it again at the end of the block.
//
// A daemon thread may be in such a block when the interpreter ends. From then on Python ends each
// thread that asks for the lock, by unwinding its stack, which must not happen in C++ and would
// abort the process. So a thread that leaves its block then sleeps until the process has ended.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace kerascnn::bindings
