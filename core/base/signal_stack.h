// Handlers of signals beside kernels. Some kernels that oneDNN generates use the stack pointer as
// an ordinary register: those of products (jit_avx_gemm_f32 and jit_avx512_common_gemm_f32, up to
// oneDNN 3.11.1) point it to memory on the heap, where the frame of a handler overwrites whatever
// lies below. So each thread that runs oneDNN's kernels has a stack of its own for handlers that
// ask for one, as Python's do (SA_ONSTACK), and no other handler runs in the middle of such a
// product: SignalsBlocked postpones it.
#pragma once

#include <csignal>

namespace kerascnn {

// Gives the calling thread a stack for handlers of signals, where it has none. The thread keeps it
// until it ends. Calls after the first cost next to nothing. Throws std::bad_alloc where the system
// has no memory for it, and std::system_error where it refuses it.
void ensure_signal_stack();

// While this lives, no handler runs in the calling thread, and none ever does in threads that it
// starts meanwhile. Signals wait, or another thread of the process takes them. What a thread does
// itself (SIGSEGV, SIGFPE, SIGABRT and their like) is not held back: a fault has to be reported.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace kerascnn
