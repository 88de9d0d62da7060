// Random numbers that loops draw many at a time are those of philox.h, whatever part of them is
// asked for.
#include <cstring>
#include <vector>

#include "check.h"
#include "core/ops/philox.h"
#include "host_math_testing.h"

namespace kerascnn {
namespace {

using testing::all_compiled;
using testing::Compiled;

constexpr uint32_t kUnwritten = 0xdeadbeefu;

TEST(words_and_uniform_numbers_are_those_of_philox) {
  const int64_t states[][2] = {{0, 0}, {-1, 5}, {0x123456789abcdef, -7}};
  // The second start carries from the lower half of a counter into the upper one.
  for (const int64_t first : {int64_t{0}, int64_t{0xfffffffd}, int64_t{12345}}) {
    for (const auto& state : states) {
      for (const Compiled& compiled : all_compiled()) {
        for (int64_t count = 0; count < 300; count += count < 40 ? 1 : 37) {
          std::vector<uint32_t> words(320, kUnwritten);
          compiled.kernels->random_words(state, 9, first, count, words.data());
          std::vector<float> numbers(320, 7.0f);
          compiled.kernels->uniform(state, 9, -0.1f, 0.3f, first, count, numbers.data());
          for (int64_t i = 0; i < 320; ++i) {
            const auto at = static_cast<size_t>(i);
            const uint32_t wanted =
                philox_block(state, 9, static_cast<uint64_t>(first + i / 4)).words[i % 4];
            CHECK_EQUAL(words[at], i < count ? wanted : kUnwritten);
            CHECK_EQUAL(numbers[at], i < count ? philox_uniform(wanted, -0.1f, 0.3f) : 7.0f);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kerascnn
