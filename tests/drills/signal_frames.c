/* Where handlers of signals run, and what the stack pointer of the interrupted thread was.

   start() installs the handler and, with a period, a timer; count() reads what it has counted. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

enum { TOTAL, OUTSIDE, ON_ALTERNATE, ON_THREAD, ELSEWHERE, OTHER_THREADS, COUNTS };

static volatile long counts[COUNTS];
static uintptr_t main_begin, main_end;
static pid_t main_id;
static struct sigaction before;

static uintptr_t stack_pointer(const ucontext_t* context) {
#if defined(__x86_64__)
  return (uintptr_t)context->uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
  return (uintptr_t)context->uc_mcontext.sp;
#else
#error "signal_frames.c doesn't know where this processor's stack pointer is"
#endif
}

static void add(int which) { __atomic_fetch_add(&counts[which], 1, __ATOMIC_RELAXED); }

static void handler(int signal, siginfo_t* info, void* context) {
  (void)signal;
  (void)info;
  const uintptr_t interrupted = stack_pointer(context);
  const uintptr_t own = (uintptr_t)__builtin_frame_address(0);
  uintptr_t begin = main_begin, end = main_end;
  add(TOTAL);
  if (syscall(SYS_gettid) != main_id) {
    /* glibc keeps a thread's description at the upper end of its stack. */
    end = (uintptr_t)pthread_self();
    begin = end - ((uintptr_t)8 << 20);
    add(OTHER_THREADS);
  }
  stack_t alternate;
  sigaltstack(NULL, &alternate);
  const uintptr_t first = (uintptr_t)alternate.ss_sp;
  if (interrupted < begin || interrupted >= end) add(OUTSIDE);
  if (alternate.ss_size != 0 && own >= first && own < first + alternate.ss_size) {
    add(ON_ALTERNATE);
  } else {
    add(own >= begin && own < end ? ON_THREAD : ELSEWHERE);
  }
}

/* To be called by the main thread. `period` is in microseconds. */
int start(int signal, int timer, long period, int has_own_stack) {
  pthread_attr_t attributes;
  void* begin;
  size_t size;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 1;
  pthread_attr_getstack(&attributes, &begin, &size);
  pthread_attr_destroy(&attributes);
  main_begin = (uintptr_t)begin;
  main_end = main_begin + size;
  main_id = getpid();
  for (int i = 0; i < COUNTS; ++i) counts[i] = 0;
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART | (has_own_stack ? SA_ONSTACK : 0);
  sigfillset(&action.sa_mask);
  if (sigaction(signal, &action, &before) != 0) return 1;
  const struct itimerval times = {{0, period}, {0, period}};
  return setitimer(timer, &times, NULL);
}

int stop(int signal, int timer) {
  const struct itimerval never = {{0, 0}, {0, 0}};
  return setitimer(timer, &never, NULL) | sigaction(signal, &before, NULL);
}

long count(int which) { return counts[which]; }

/* Does the handler that is installed ask for a stack of its own? */
int has_own_stack(int signal) {
  struct sigaction action;
  sigaction(signal, NULL, &action);
  return (action.sa_flags & SA_ONSTACK) != 0;
}
