/* Calls of the C library for files below a folder, which fail when they are told to.

   It is loaded before the C library. arm() begins to count the calls of some kinds; the one after
   `left` others fails with `number` as errno, and so do all that come later where `stays` is not 0.
   disarm() ends that and returns how many have failed. Everything else is what it was. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, READ = 2, WRITE = 4, SYNC = 8, CLOSE = 16, RENAME = 32, MAKE = 64 };

static char folder[4096];
static int kinds, left, error_number, stays, failed, counted;

void arm(const char* below, int which, int before, int number, int lasts) {
  snprintf(folder, sizeof folder, "%s", below);
  left = before;
  error_number = number;
  stays = lasts;
  failed = counted = 0;
  kinds = which;
}

int disarm(void) {
  kinds = 0;
  return failed;
}

/* How many calls were counted. */
int seen(void) { return counted; }

static int is_below(const char* path) { return strncmp(path, folder, strlen(folder)) == 0; }

/* Whether a descriptor is that of a file there, and not of a folder. */
static int is_open_below(int descriptor) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  struct stat about;
  const ssize_t size = readlink(link, path, sizeof path - 1);
  if (size < 0 || fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode)) return 0;
  path[size] = 0;
  return is_below(path);
}

static int fails(int kind, int concerned) {
  if (!(kinds & kind) || !concerned) return 0;
  ++counted;
  if (left-- > 0) return 0;
  if (!stays) kinds = 0;
  ++failed;
  errno = error_number;
  return 1;
}

static int path_fails(int kind, const char* path) {
  return (kinds & kind) && fails(kind, is_below(path));
}

static int file_fails(int kind, int descriptor) {
  return (kinds & kind) && fails(kind, is_open_below(descriptor));
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPENS(name)                                                         \
  int name(const char* path, int flags, ...) {                              \
    va_list more;                                                           \
    va_start(more, flags);                                                  \
    const int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0; \
    va_end(more);                                                           \
    if (path_fails(OPEN, path)) return -1;                                  \
    return NEXT(name)(path, flags, mode);                                   \
  }
OPENS(open)
OPENS(open64)

ssize_t read(int descriptor, void* target, size_t size) {
  return file_fails(READ, descriptor) ? -1 : NEXT(read)(descriptor, target, size);
}

#define READS(name)                                                                          \
  ssize_t name(int descriptor, void* target, size_t size, off_t offset) {                    \
    return file_fails(READ, descriptor) ? -1 : NEXT(name)(descriptor, target, size, offset); \
  }
READS(pread)
READS(pread64)

#define READS_PARTS(name)                                                                    \
  ssize_t name(int descriptor, const struct iovec* parts, int count, off_t offset) {         \
    return file_fails(READ, descriptor) ? -1 : NEXT(name)(descriptor, parts, count, offset); \
  }
READS_PARTS(preadv)
READS_PARTS(preadv64)

#define READS_PARTS_WITH_FLAGS(name)                                                            \
  ssize_t name(int descriptor, const struct iovec* parts, int count, off_t offset, int flags) { \
    if (file_fails(READ, descriptor)) return -1;                                                \
    return NEXT(name)(descriptor, parts, count, offset, flags);                                 \
  }
READS_PARTS_WITH_FLAGS(preadv2)
READS_PARTS_WITH_FLAGS(preadv64v2)

ssize_t write(int descriptor, const void* source, size_t size) {
  return file_fails(WRITE, descriptor) ? -1 : NEXT(write)(descriptor, source, size);
}

#define WRITES(name)                                                                          \
  ssize_t name(int descriptor, const void* source, size_t size, off_t offset) {               \
    return file_fails(WRITE, descriptor) ? -1 : NEXT(name)(descriptor, source, size, offset); \
  }
WRITES(pwrite)
WRITES(pwrite64)

#define SHORTENS(name)                                                        \
  int name(int descriptor, off_t size) {                                      \
    return file_fails(WRITE, descriptor) ? -1 : NEXT(name)(descriptor, size); \
  }
SHORTENS(ftruncate)
SHORTENS(ftruncate64)

int fsync(int descriptor) { return file_fails(SYNC, descriptor) ? -1 : NEXT(fsync)(descriptor); }

/* As Linux does it: the descriptor is free afterwards, whatever close() returns. */
int close(int descriptor) {
  const int refuses = file_fails(CLOSE, descriptor);
  const int before = errno, result = NEXT(close)(descriptor);
  if (!refuses) return result;
  errno = before;
  return -1;
}

int rename(const char* from, const char* to) {
  return path_fails(RENAME, to) ? -1 : NEXT(rename)(from, to);
}

int mkdir(const char* path, mode_t mode) {
  return path_fails(MAKE, path) ? -1 : NEXT(mkdir)(path, mode);
}
