#include "core/memory/cpu_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace kerascnn {
namespace {

constexpr int64_t kHostAlignment = 256;
// Smaller requests are not compared with the free memory: asking costs more than they do.
constexpr int64_t kCheckedFrom = int64_t{64} << 20;

// MemAvailable and SwapFree of Linux, in bytes.
std::optional<int64_t> system_available() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  int64_t kibibytes = 0;
  std::optional<int64_t> total;
  while (file >> name >> kibibytes) {
    std::getline(file, unit);
    if (name == "MemAvailable:" || name == "SwapFree:")
      total = total.value_or(0) + kibibytes * 1024;
  }
  return total;
}

std::optional<int64_t> read_number(const char* path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// File contents that the kernel keeps in memory as long as nobody else needs the room.
int64_t reclaimable(const char* path, const std::string& prefix) {
  std::ifstream file(path);
  std::string name;
  int64_t value = 0;
  int64_t total = 0;
  while (file >> name >> value) {
    if (name == prefix + "inactive_file" || name == prefix + "active_file") total += value;
  }
  return total;
}

// What a container's limit leaves (control groups, version 2, else 1).
std::optional<int64_t> container_available() {
  auto limit = read_number("/sys/fs/cgroup/memory.max");
  auto used = read_number("/sys/fs/cgroup/memory.current");
  int64_t files = reclaimable("/sys/fs/cgroup/memory.stat", "");
  if (!limit || !used) {
    limit = read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    used = read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes");
    files = reclaimable("/sys/fs/cgroup/memory/memory.stat", "total_");
  }
  if (!limit || !used) return std::nullopt;
  return std::max<int64_t>(0, *limit - (*used - files));
}

// What the process' own limit of addresses leaves (`ulimit -v`, RLIMIT_AS).
std::optional<int64_t> process_available() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const std::optional<int64_t> pages = read_number("/proc/self/statm");
  if (!pages) return std::nullopt;
  const auto most =
      static_cast<int64_t>(std::min<uint64_t>(limit.rlim_cur, std::numeric_limits<int64_t>::max()));
  return std::max<int64_t>(0, most - *pages * sysconf(_SC_PAGESIZE));
}

}  // namespace

void* CpuMemory::allocate(int64_t bytes) {
  // Linux promises more memory than there is and ends the process when it is touched; a request
  // that cannot be met has to fail here, where an error can still be raised.
  if (bytes >= kCheckedFrom && bytes > available()) return nullptr;
  const size_t rounded =
      (static_cast<size_t>(bytes) + kHostAlignment - 1) / kHostAlignment * kHostAlignment;
  return std::aligned_alloc(kHostAlignment, rounded);
}

void CpuMemory::free(void* data) noexcept { std::free(data); }

void CpuMemory::fill(void* data, int byte, int64_t bytes) {
  std::memset(data, byte, static_cast<size_t>(bytes));
}

int64_t CpuMemory::available() const {
  constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max() / 2;
  return std::min({system_available().value_or(kUnknown), container_available().value_or(kUnknown),
                   process_available().value_or(kUnknown)});
}

}  // namespace kerascnn
