// Memory that is asked for before it is read or written. A core looks ahead by some hundred
// instructions: in a loop with many of them for each element it has few reads under way, and waits
// for each. So gelu of a tensor that is in no cache took more than twice as long as its arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace kerascnn::cpu {

constexpr int64_t kCacheLine = 64;

// Asks for the lines of [begin, end); T may be const where the memory will only be read.
template <typename T>
inline void ask_for_memory(T* begin, T* end) {
  const char* const last = reinterpret_cast<const char*>(end);
  for (const char* at = reinterpret_cast<const char*>(begin); at < last; at += kCacheLine) {
    __builtin_prefetch(at, std::is_const_v<T> ? 0 : 1);
  }
}

constexpr int64_t kAheadBlock = 128;             // elements of a block
constexpr int64_t kAhead = 4 * kAheadBlock;      // elements that are asked for before their turn
constexpr int64_t kFewAhead = 16 * kAheadBlock;  // of fewer, all may be in the first-level cache

// Calls body(i, some) for blocks [i, i + some) of [0, count). a[i], b[i] and out[i] are what it
// reads and writes; null stands for what is not asked for.
template <typename T, typename Body>
void for_each_block_ahead(int64_t count, const T* a, const T* b, T* out, const Body& body) {
  const bool asks = count >= kFewAhead;
  for (int64_t i = 0; i < count; i += kAheadBlock) {
    const int64_t some = std::min(kAheadBlock, count - i);
    if (asks) {
      const int64_t begin = std::min(i + kAhead, count), end = std::min(begin + some, count);
      if (a != nullptr) ask_for_memory(a + begin, a + end);
      if (b != nullptr) ask_for_memory(b + begin, b + end);
      if (out != nullptr) ask_for_memory(out + begin, out + end);
    }
    body(i, some);
  }
}

}  // namespace kerascnn::cpu
