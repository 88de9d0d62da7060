// The caching allocator works here on memory of a known, small size.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <thread>

#include "check.h"
#include "core/base/error.h"
#include "core/memory/caching_allocator.h"
#include "core/memory/cpu_memory.h"

using namespace kerascnn;

namespace {

struct Counters {
  int64_t capacity = 0;
  int64_t used = 0;
  int allocations = 0;
  int frees = 0;
};

class LimitedMemory : public RawMemory {
 public:
  explicit LimitedMemory(Counters& counters) : counters_(counters) {}

  void* allocate(int64_t bytes) override {
    if (bytes > available()) return nullptr;
    void* data = std::aligned_alloc(256, static_cast<size_t>(bytes + 255) / 256 * 256);
    sizes_[data] = bytes;
    counters_.used += bytes;
    ++counters_.allocations;
    return data;
  }
  void free(void* data) noexcept override {
    const auto found = sizes_.find(data);
    counters_.used -= found->second;
    ++counters_.frees;
    sizes_.erase(found);
    std::free(data);
  }
  int64_t available() const override { return counters_.capacity - counters_.used; }
  void fill(void* data, int byte, int64_t bytes) override {
    std::memset(data, byte, static_cast<size_t>(bytes));
  }

 private:
  Counters& counters_;
  std::map<void*, int64_t> sizes_;
};

constexpr int64_t kMiB = int64_t{1} << 20;

}  // namespace

TEST(block_sizes_are_rounded) {
  CHECK_EQUAL(rounded_block_size(1), 256);
  CHECK_EQUAL(rounded_block_size(256), 256);
  CHECK_EQUAL(rounded_block_size(257), 512);
  CHECK_EQUAL(rounded_block_size(4097), 4608);
  CHECK_EQUAL(rounded_block_size(kMiB), kMiB);
  CHECK_EQUAL(rounded_block_size(kMiB + 1), kMiB + kMiB / 8);
  CHECK_EQUAL(rounded_block_size(16 * kMiB + 1), 18 * kMiB);
  CHECK_EQUAL(rounded_block_size(5000 * kMiB + 1), 5002 * kMiB);  // this is not rounded up to 5120
  const int64_t largest = std::numeric_limits<int64_t>::max();
  CHECK_EQUAL(rounded_block_size(largest), largest);
  for (int64_t bytes = 1; bytes < 100000; bytes += 37) {
    const int64_t rounded = rounded_block_size(bytes);
    CHECK(rounded >= bytes && rounded % 256 == 0 &&
          rounded - bytes < std::max<int64_t>(256, bytes / 8));
  }
}

TEST(freed_blocks_are_used_again) {
  Counters counters{.capacity = 64 * kMiB};
  CachingAllocator allocator(Device{}, std::make_unique<LimitedMemory>(counters));
  void* first = allocator.allocate(1000);
  CHECK_EQUAL(reinterpret_cast<uintptr_t>(first) % 256, 0u);
  allocator.free(first);
  CHECK_EQUAL(allocator.allocate(1010), first);
  CHECK_EQUAL(counters.allocations, 1);
  CHECK_EQUAL(counters.frees, 0);
  allocator.free(first);
}

TEST(the_best_fit_is_taken_and_waste_is_bounded) {
  Counters counters{.capacity = 64 * kMiB};
  CachingAllocator allocator(Device{}, std::make_unique<LimitedMemory>(counters));
  void* large = allocator.allocate(8 * kMiB);
  void* medium = allocator.allocate(3 * kMiB);
  allocator.free(large);
  allocator.free(medium);
  CHECK_EQUAL(allocator.allocate(2 * kMiB), medium);
  // The 8 MiB block is not used: most of it would be wasted.
  void* other = allocator.allocate(kMiB);
  CHECK(other != large);
  allocator.free(medium);
  allocator.free(other);
}

TEST(statistics_follow_every_request) {
  Counters counters{.capacity = 64 * kMiB};
  CachingAllocator allocator(Device{}, std::make_unique<LimitedMemory>(counters));
  CHECK(allocator.allocate(0) == nullptr);
  CHECK_EQUAL(allocator.stats().num_allocations, 0);
  void* a = allocator.allocate(2 * kMiB);
  void* b = allocator.allocate(kMiB);
  allocator.free(a);
  MemoryStats stats = allocator.stats();
  CHECK_EQUAL(stats.allocated, kMiB);
  CHECK_EQUAL(stats.cached, 2 * kMiB);
  CHECK_EQUAL(stats.peak, 3 * kMiB);
  CHECK_EQUAL(stats.num_allocations, 2);
  CHECK_EQUAL(allocator.available(), 63 * kMiB);
  allocator.reset_peak();
  CHECK_EQUAL(allocator.stats().peak, kMiB);
  allocator.release_cached();
  CHECK_EQUAL(allocator.stats().cached, 0);
  CHECK_EQUAL(counters.used, kMiB);
  allocator.free(b);
}

TEST(a_full_device_gets_its_cache_back_first) {
  Counters counters{.capacity = 10 * kMiB};
  CachingAllocator allocator(Device{}, std::make_unique<LimitedMemory>(counters));
  void* a = allocator.allocate(4 * kMiB);
  void* b = allocator.allocate(4 * kMiB);
  allocator.free(a);
  allocator.free(b);
  void* whole = allocator.allocate(10 * kMiB);  // it fits only after both are given back
  CHECK(whole != nullptr);
  CHECK_EQUAL(counters.frees, 2);
  allocator.free(whole);
}

TEST(out_of_memory_tells_the_sizes_and_recovers) {
  Counters counters{.capacity = 10 * kMiB};
  CachingAllocator allocator(Device{DeviceType::Cuda, 1},
                             std::make_unique<LimitedMemory>(counters));
  void* kept = allocator.allocate(6 * kMiB);
  bool thrown = false;
  try {
    allocator.allocate(5 * kMiB);
  } catch (const OutOfMemoryError& error) {
    thrown = true;
    CHECK_EQUAL(error.requested, 5 * kMiB);
    CHECK_EQUAL(error.allocated, 6 * kMiB);
    CHECK_EQUAL(error.cached, 0);
    CHECK_EQUAL(error.free, 4 * kMiB);
    const std::string text = error.what();
    for (const char* part : {"cuda:1", "5 MiB", "6 MiB", "4 MiB", "smaller batch size"}) {
      CHECK(text.find(part) != std::string::npos);
    }
  }
  CHECK(thrown);
  void* smaller = allocator.allocate(4 * kMiB);
  CHECK(smaller != nullptr);
  allocator.free(smaller);
  allocator.free(kept);
  CHECK_THROWS(ValueError, "negative", allocator.allocate(-1));
  CHECK_THROWS(OutOfMemoryError, "out of memory",
               allocator.allocate(std::numeric_limits<int64_t>::max()));
}

TEST(pointers_that_are_not_in_use_are_left_alone) {
  Counters counters{.capacity = kMiB};
  CachingAllocator allocator(Device{}, std::make_unique<LimitedMemory>(counters));
  int foreign = 0;
  void* block = allocator.allocate(100);
  allocator.free(nullptr);
  allocator.free(&foreign);
  allocator.free(block);
  allocator.free(block);
  CHECK_EQUAL(allocator.stats().allocated, 0);
  CHECK_EQUAL(allocator.stats().cached, 256);
}

TEST(threads_share_an_allocator) {
  Counters counters{.capacity = 64 * kMiB};
  CachingAllocator allocator(Device{}, std::make_unique<LimitedMemory>(counters));
  std::vector<std::thread> threads;
  std::atomic<int> damaged{0};
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&, id] {
      for (int round = 0; round < 500; ++round) {
        const int64_t bytes = 100 + (round * 7919 + id * 104729) % 20000;
        auto* data = static_cast<unsigned char*>(allocator.allocate(bytes));
        std::fill(data, data + bytes, static_cast<unsigned char>(id));
        std::this_thread::yield();
        for (int64_t i = 0; i < bytes; i += 97) damaged += data[i] != id;
        allocator.free(data);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQUAL(damaged.load(), 0);
  CHECK_EQUAL(allocator.stats().allocated, 0);
  CHECK_EQUAL(allocator.stats().num_allocations, 2000);
}

TEST(main_memory_refuses_what_it_does_not_have) {
  CpuMemory memory;
  CHECK(memory.available() > 0);
  CHECK(memory.allocate(int64_t{1} << 50) == nullptr);
  void* data = memory.allocate(1000);
  CHECK_EQUAL(reinterpret_cast<uintptr_t>(data) % 256, 0u);
  memory.free(data);
}

TEST(poisoned_blocks_are_filled_when_handed_out_and_when_freed) {
  Counters counters{.capacity = kMiB};
  CachingAllocator allocator({}, std::make_unique<LimitedMemory>(counters), true);
  const auto all_poison = [](const void* data, int64_t bytes) {
    const auto* from = static_cast<const unsigned char*>(data);
    return std::all_of(from, from + bytes, [](unsigned char byte) { return byte == kPoison; });
  };
  void* first = allocator.allocate(1000);
  CHECK(all_poison(first, rounded_block_size(1000)));
  std::memset(first, 1, 1000);
  allocator.free(first);  // the allocator keeps it, so it can still be read here
  CHECK(all_poison(first, rounded_block_size(1000)));
  std::memset(first, 2, 1000);
  CHECK(allocator.allocate(1000) == first);
  CHECK(all_poison(first, rounded_block_size(1000)));
  allocator.free(first);
}

TEST(blocks_are_left_alone_without_poison) {
  Counters counters{.capacity = kMiB};
  CachingAllocator allocator({}, std::make_unique<LimitedMemory>(counters), false);
  auto* data = static_cast<unsigned char*>(allocator.allocate(256));
  std::memset(data, 3, 256);
  allocator.free(data);
  CHECK(allocator.allocate(256) == data);
  CHECK(std::all_of(data, data + 256, [](unsigned char byte) { return byte == 3; }));
  allocator.free(data);
}
