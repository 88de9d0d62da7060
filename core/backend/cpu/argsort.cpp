// argsort sorts each line by itself, on one thread.
#include "core/ops/argsort.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "core/backend/cpu/kernel_util.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/parallel.h"
#include "core/ops/geometry.h"

namespace kerascnn::cpu {

namespace {

// An unsigned integer whose order is the one that comes_before() has for elements.
template <typename C>
uint32_t sort_key(C value) {
  if constexpr (std::is_floating_point_v<C>) {
    if (value != value) return 0xffffffffu;
    const uint32_t bits = std::bit_cast<uint32_t>(value + C(0));  // -0 and 0 are equal
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  } else {
    return static_cast<uint32_t>(static_cast<int64_t>(value) - std::numeric_limits<C>::lowest());
  }
}

// Lines up to this length are sorted by comparing.
constexpr int64_t kShortLine = 64;

// Sorts by the upper 32 bits and keeps the order of equals: a pass for each of their bytes, from
// the lowest, moves everything behind what has a smaller one. `room` is for as many numbers.
// Returns where the result is, `numbers` or `room`.
const uint64_t* sort_by_bytes(uint64_t* numbers, uint64_t* room, int64_t count) {
  constexpr int kBytes = 4, kValues = 256;
  int64_t starts[kBytes][kValues] = {};
  for (int64_t i = 0; i < count; ++i) {
    for (int byte = 0; byte < kBytes; ++byte) ++starts[byte][numbers[i] >> (32 + 8 * byte) & 0xff];
  }
  for (int byte = 0; byte < kBytes; ++byte) {
    const int shift = 32 + 8 * byte;
    if (starts[byte][numbers[0] >> shift & 0xff] == count) continue;  // all have the same
    int64_t start = 0;
    for (int64_t& value : starts[byte]) start += std::exchange(value, start);
    for (int64_t i = 0; i < count; ++i) {
      room[starts[byte][numbers[i] >> shift & 0xff]++] = numbers[i];
    }
    std::swap(numbers, room);
  }
  return numbers;
}

// y = the order of a line x whose elements are `step` apart; `room` is for twice as many numbers.
template <typename T>
void sort_line(const T* x, int64_t step, int64_t length, bool descending, uint64_t* room,
               int32_t* y) {
  using C = compute_t<T>;
  const uint64_t* order = room;
  if constexpr (sizeof(C) <= 4) {
    // Each element with its position as one integer, which takes a fraction of the time.
    const uint32_t flip = descending ? 0xffffffffu : 0u;
    for (int64_t i = 0; i < length; ++i) {
      const uint32_t key = sort_key(static_cast<C>(x[i * step])) ^ flip;
      room[i] = static_cast<uint64_t>(key) << 32 | static_cast<uint64_t>(i);
    }
    if (length <= kShortLine) {
      std::sort(room, room + length);
    } else {
      order = sort_by_bytes(room, room + length, length);
    }
  } else {
    std::iota(room, room + length, uint64_t{0});
    std::sort(room, room + length, [&](uint64_t i, uint64_t j) {
      return comes_before(x[static_cast<int64_t>(i) * step], static_cast<int>(i),
                          x[static_cast<int64_t>(j) * step], static_cast<int>(j), descending);
    });
  }
  for (int64_t i = 0; i < length; ++i) y[i * step] = static_cast<int32_t>(order[i]);
}

}  // namespace

// x (outer, length, inner) -> y of the same shape. Each thread has a part of the workspace for the
// line that it sorts.
std::unique_ptr<Kernel> plan_argsort(const PlanRequest& request) {
  const TensorSpec& spec = request.inputs[0];
  const AxisGeometry g = axis_geometry(spec.shape, request.attributes.get_int("axis"));
  const bool descending = request.attributes.get_bool("descending");
  const int64_t threads = size_of(spec) < kElementGrain ? 1 : num_threads();
  return dispatch_number(request, spec.dtype, [&]<typename T>(Type<T>) {
    return make_kernel(
        "kerascnn argsort",
        [g, descending, threads](const KernelArgs& args) {
          const int64_t lines = g.outer * g.inner;
          const auto sort = [&](int64_t line, int64_t thread) {
            const int64_t first = line / g.inner * g.length * g.inner + line % g.inner;
            sort_line(input<T>(args, 0) + first, g.inner, g.length, descending,
                      static_cast<uint64_t*>(args.workspace) + thread * 2 * g.length,
                      output<int32_t>(args, 0) + first);
          };
          if (threads > 1) return parallel_tasks(lines, sort);
          for (int64_t line = 0; line < lines; ++line) sort(line, 0);
        },
        align_up(threads * 2 * g.length * static_cast<int64_t>(sizeof(uint64_t))));
  });
}

}  // namespace kerascnn::cpu
