// The gradients of attention with up to 256 keys and heads of 64 numbers, in 16 bits, on Hopper's
// tensor cores.
//
// A block has a head of a sample at a time. Each warpgroup keeps 64 of its keys and values, and the
// sums of their gradients in registers, while all queries pass, 32 at a time. With the shares
// s = exp(scale k q - log_sum) and d, the sum of gy * y of each query:
//   by_shares = v gy,  by_logits = s * (by_shares - d)     (64 keys, 32 queries)
//   dv += s gy,  dk += by_logits q                         (64 keys, 64 numbers)
//   dq = by_logits k                                       (64 numbers, 32 queries)
// The first two products end in the registers that the next two begin with. The last one sums over
// the keys of all warpgroups: they leave by_logits in shared memory, and one of them, each in its
// turn, multiplies. So nothing is added up in memory, and two runs have the same bits.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/block.cuh"
#include "core/backend/cuda/tiles/barrier.cuh"
#include "core/backend/cuda/tiles/warpgroup_half.cuh"

namespace kerascnn::cuda {

constexpr int kShortSize = 64;       // of a head: a row of 128 bytes
constexpr int kShortKeys = 64;       // of a warpgroup
constexpr int kShortMostGroups = 4;  // warpgroups
constexpr int kShortQueries = 32;    // of a chunk
constexpr int kShortTiles = kShortQueries / 8;
constexpr int kShortSteps = kShortQueries / 16;            // of products that sum over queries
constexpr int kShortStages = 4;                            // of the ring of chunks
constexpr int kShortChunk = kShortQueries * kSwizzledRow;  // bytes of one tensor
constexpr int kShortPart = kShortKeys * kSwizzledRow;
constexpr int kShortLogits = kShortKeys * kShortQueries * 2;  // bytes of a warpgroup
constexpr float kLog2E = 1.44269504f;
constexpr int kShortStoring = 1024;  // of a warp

// Where a tensor (batch, heads, length, size) has a head: the length before or behind the heads.
struct ShortTensor {
  int64_t of_head, of_place;  // elements
  bool heads_behind;
};

struct ShortAttention {
  int heads, queries, keys;
  int groups;  // warpgroups of a block
  int chunks;  // of a head's queries
  int total;   // heads of all samples
  float scale;
  ShortTensor q, k, v, y;  // and their gradients

  __host__ __device__ int threads() const { return groups * 32 * kWarpgroup; }
};

struct ShortMaps {
  CUtensorMap q, k, v, y, gy;
};

// A block's shared memory: keys and values of two heads; the ring of chunks, each of q, gy and y;
// by_logits of two chunks; what each warp stores; of two chunks the logarithms and d of each query;
// the barriers.
struct ShortMemory {
  int of_head, ring, logits, storing, numbers, barriers, bytes;

  __host__ __device__ explicit ShortMemory(const ShortAttention& a)
      : of_head(2 * a.groups * kShortPart),
        ring(2 * of_head),
        logits(ring + kShortStages * 3 * kShortChunk),
        storing(logits + 2 * a.groups * kShortLogits),
        numbers(storing + a.groups * kWarpgroup * kShortStoring),
        barriers(numbers + 4 * kShortQueries * static_cast<int>(sizeof(float))),
        bytes(barriers + (2 + kShortStages) * static_cast<int>(sizeof(Barrier))) {}

  __device__ char* keys(char* shared, int head) const { return shared + head % 2 * of_head; }
  __device__ char* values(char* shared, int head) const { return keys(shared, head) + of_head / 2; }
  __device__ char* chunk(char* shared, int number) const {
    return shared + ring + number % kShortStages * 3 * kShortChunk;
  }
  __device__ char* by_logits(char* shared, int chunk) const {
    return shared + logits + chunk % 2 * ((storing - logits) / 2);
  }
  __device__ float* log_sums(char* shared, int chunk) const {
    return reinterpret_cast<float*>(shared + numbers) + chunk % 2 * kShortQueries;
  }
  __device__ float* sums(char* shared, int chunk) const {
    return log_sums(shared, chunk) + 2 * kShortQueries;
  }
  __device__ Barrier& head_full(char* shared, int head) const {
    return reinterpret_cast<Barrier*>(shared + barriers)[head % 2];
  }
  __device__ Barrier& chunk_full(char* shared, int number) const {
    return reinterpret_cast<Barrier*>(shared + barriers)[2 + number % kShortStages];
  }
};

// How many heads and chunks a block has, and which of all heads its head of a number is.
struct ShortWork {
  int heads, chunks;

  __device__ __forceinline__ explicit ShortWork(const ShortAttention& a)
      : heads((a.total - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) /
              static_cast<int>(gridDim.x)),
        chunks(heads * a.chunks) {}
  static __device__ __forceinline__ int head(int number) {
    return static_cast<int>(blockIdx.x) + number * static_cast<int>(gridDim.x);
  }
};

__device__ __forceinline__ void copy_places(void* to, const CUtensorMap* map, Barrier& full,
                                            const ShortTensor& tensor, int place, int head,
                                            const ShortAttention& a) {
  const int sample = head / a.heads, of_sample = head - sample * a.heads;
  copy_tensor(to, map, full, 0, tensor.heads_behind ? of_sample : place,
              tensor.heads_behind ? place : of_sample, sample);
}

// One thread does these.
__device__ __forceinline__ void copy_head(const ShortMaps& maps, char* shared,
                                          const ShortAttention& a, int number) {
  const ShortMemory memory(a);
  Barrier& full = memory.head_full(shared, number);
  full.arrive_and_expect(memory.of_head);
  const int head = ShortWork::head(number);
  copy_places(memory.keys(shared, number), &maps.k, full, a.k, 0, head, a);
  copy_places(memory.values(shared, number), &maps.v, full, a.v, 0, head, a);
}
__device__ __forceinline__ void copy_chunk(const ShortMaps& maps, char* shared,
                                           const ShortAttention& a, int number) {
  const ShortMemory memory(a);
  Barrier& full = memory.chunk_full(shared, number);
  full.arrive_and_expect(3 * kShortChunk);
  const int head = ShortWork::head(number / a.chunks);
  const int place = number % a.chunks * kShortQueries;
  char* const to = memory.chunk(shared, number);
  copy_places(to, &maps.q, full, a.q, place, head, a);
  copy_places(to + kShortChunk, &maps.gy, full, a.y, place, head, a);
  copy_places(to + 2 * kShortChunk, &maps.y, full, a.y, place, head, a);
}

// The logarithm, to base 2, of the sum that the shares of a query were divided by; infinite for a
// query that is none, whose shares are 0.
__device__ __forceinline__ float read_log_sum(const float* log_sums, const ShortAttention& a,
                                              int chunk, int query) {
  query += chunk % a.chunks * kShortQueries;
  if (query >= a.queries) return INFINITY;
  return kLog2E *
         log_sums[static_cast<int64_t>(ShortWork::head(chunk / a.chunks)) * a.queries + query];
}

// Computes d of a chunk's queries: 16 lanes for each.
template <typename Half>
__device__ __forceinline__ void sum_chunk(char* shared, const ShortAttention& a, int chunk,
                                          int thread) {
  const ShortMemory memory(a);
  memory.chunk_full(shared, chunk).wait(chunk / kShortStages);
  const char* const gy = memory.chunk(shared, chunk) + kShortChunk;
#pragma unroll 1
  for (int first = 0; first < 16 * kShortQueries; first += a.threads()) {
    const int i = first + thread;
    if (i >= 16 * kShortQueries) break;  // whole warps
    const int query = i / 16, part = i % 16;
    const int place = query * kSwizzledRow + ((part / 2 ^ query % 8) << 4) + part % 2 * 8;
    const auto left = *reinterpret_cast<const Vector<Half, 4>*>(gy + place);
    const auto right = *reinterpret_cast<const Vector<Half, 4>*>(gy + kShortChunk + place);
    float sum = 0.0f;
#pragma unroll
    for (int e = 0; e < 4; ++e) sum += load(left.values[e]) * load(right.values[e]);
#pragma unroll
    for (int lane = 8; lane > 0; lane /= 2) sum += __shfl_xor_sync(kFullWarp, sum, lane);
    if (part == 0) memory.sums(shared, chunk)[query] = sum;
  }
}

__device__ __forceinline__ float power_of_2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// The words of sums (64, 32), as a factor (64, 16) of the next product has them.
template <typename Half>
__device__ __forceinline__ LeftFragment factor_of(const float (&sums)[kShortTiles][4], int step) {
  const auto& near = sums[2 * step];
  const auto& far = sums[2 * step + 1];
  return {{pack_pair<Half>(near[0], near[1]), pack_pair<Half>(near[2], near[3]),
           pack_pair<Half>(far[0], far[1]), pack_pair<Half>(far[2], far[3])}};
}

// Stores a warp's gradients of 16 keys or values; `to` is that of the first. They go through shared
// memory, half of each row at a time, whose pieces are exchanged so that 8 lanes meet all banks.
template <typename Half>
__device__ __forceinline__ void store_rows(const float (&sums)[kShortSize / 8][4], float scale,
                                           int lane, char* storing, Half* to, int64_t of_place,
                                           int places) {
  const auto place = [](int row, int piece) { return 64 * row + 16 * (piece ^ row / 2 % 4); };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    __syncwarp();
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto& tile = sums[4 * half + 2 * pair + i / 2];
        words[i] = pack_pair<Half>(tile[i % 2 * 2] * scale, tile[i % 2 * 2 + 1] * scale);
      }
      store_matrices(storing + place(lane / 8 % 2 * 8 + lane % 8, 2 * pair + lane / 16), words);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = i * 8 + lane / 4, piece = lane % 4;
      if (row >= places) continue;
      *reinterpret_cast<uint4*>(to + row * of_place + 32 * half + 8 * piece) =
          *reinterpret_cast<const uint4*>(storing + place(row, piece));
    }
  }
}

// Stores 16 numbers of each of a chunk's queries; sums have the numbers as rows.
template <typename Half>
__device__ __forceinline__ void store_columns(const float (&sums)[kShortTiles][4], float scale,
                                              int lane, char* storing, Half* to, int64_t of_place,
                                              int places) {
  const auto place = [](int query, int half) { return 32 * query + 16 * (half ^ query / 4 % 2); };
  __syncwarp();
#pragma unroll
  for (int pair = 0; pair < kShortTiles / 2; ++pair) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto& tile = sums[2 * pair + i / 2];
      words[i] = pack_pair<Half>(tile[i % 2 * 2] * scale, tile[i % 2 * 2 + 1] * scale);
    }
    store_transposed(storing + place(16 * pair + lane / 16 * 8 + lane % 8, lane / 8 % 2), words);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int query = 16 * i + lane / 2, half = lane % 2;
    if (query >= places) continue;
    *reinterpret_cast<uint4*>(to + query * of_place + 8 * half) =
        *reinterpret_cast<const uint4*>(storing + place(query, half));
  }
}

template <typename Half>
struct ShortGradients {
  Half *q, *k, *v;
};

template <typename Half>
__global__ void __launch_bounds__(kShortMostGroups * 32 * kWarpgroup, 1)
    short_attention_grad_kernel(const __grid_constant__ ShortMaps maps,
                                const float* __restrict__ log_sums,
                                const __grid_constant__ ShortGradients<Half> gradients,
                                const __grid_constant__ ShortAttention a) {
  if constexpr (!kWarpgroups) {
    __trap();  // planned for sm_90 only
  } else {
    extern __shared__ __align__(1024) char shared[];
    const ShortMemory memory(a);
    const ShortWork work(a);
    int thread = static_cast<int>(threadIdx.x);
    // The same in all lanes, which the compiler sees by the exchange.
    const int group = __shfl_sync(kFullWarp, thread / (32 * kWarpgroup), 0);
    if (thread == 0) {
      for (int i = 0; i < 2; ++i) memory.head_full(shared, i).start(1);
      for (int i = 0; i < kShortStages; ++i) memory.chunk_full(shared, i).start(1);
      publish_to_async_proxy();  // the barriers: copies arrive at them too
    }
    begin_kernel();
    __syncthreads();
    if (thread == 0) {
      for (int i = 0; i < min(2, work.heads); ++i) copy_head(maps, shared, a, i);
      for (int i = 0; i < min(kShortStages, work.chunks); ++i) copy_chunk(maps, shared, a, i);
    }
    // A warp reads the logarithms, one chunk further ahead than they are needed.
    float log_sum = 0.0f;
    if (thread < kShortQueries) {
      memory.log_sums(shared, 0)[thread] = read_log_sum(log_sums, a, 0, thread);
      if (work.chunks > 1) log_sum = read_log_sum(log_sums, a, 1, thread);
    }
    sum_chunk<Half>(shared, a, 0, thread);
    __syncthreads();

    const float factor = a.scale * kLog2E;  // of products, for powers of 2
    float dk[kShortSize / 8][4], dv[kShortSize / 8][4];
#pragma unroll 1
    for (int number = 0; number < work.chunks; ++number) {
      asm volatile("" : "+r"(thread));  // what follows from it is not kept in registers
      const int lane = thread % 32, warp = thread / 32 % kWarpgroup;
      char* const storing = shared + memory.storing + thread / 32 * kShortStoring;
      const int first_key = thread / 32 * 16;
      const int row = first_key + lane / 4;  // a thread has this one and 8 further on
      const int head_number = number / a.chunks, of_head = number % a.chunks;
      const bool is_first = of_head == 0, is_last = of_head == a.chunks - 1;
      if (is_first) memory.head_full(shared, head_number).wait(head_number / 2);
      const char* const keys = memory.keys(shared, head_number);
      const char* const chunk = memory.chunk(shared, number);
      const uint64_t of_q = describe_rows(chunk), of_gy = describe_rows(chunk + kShortChunk);

      float shares[kShortTiles][4], logits[kShortTiles][4];
      const uint64_t of_keys = describe_rows(keys + group * kShortPart);
      const uint64_t of_values =
          describe_rows(memory.values(shared, head_number) + group * kShortPart);
      // What becomes by_shares begins with -d.
#pragma unroll
      for (int j = 0; j < kShortTiles; ++j) {
        const auto sum_of =
            *reinterpret_cast<const float2*>(memory.sums(shared, number) + 8 * j + lane % 4 * 2);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          logits[j][e] = e % 2 == 0 ? -sum_of.x : -sum_of.y;
          asm volatile("" : "+f"(logits[j][e]));  // here, before any product
        }
      }
      begin_products();
#pragma unroll
      for (int step = 0; step < kShortSize / 16; ++step) {
        multiply_rows<Half, kShortTiles, false, false>(shares, of_keys + 2 * step, of_q + 2 * step,
                                                       step > 0);
      }
      commit_products();
#pragma unroll
      for (int step = 0; step < kShortSize / 16; ++step) {
        multiply_rows<Half, kShortTiles, false, false>(logits, of_values + 2 * step,
                                                       of_gy + 2 * step, 1);
      }
      commit_products();

      wait_for_products<1>();
#pragma unroll
      for (int j = 0; j < kShortTiles; ++j) {
        const auto log_sum_of = *reinterpret_cast<const float2*>(memory.log_sums(shared, number) +
                                                                 8 * j + lane % 4 * 2);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float power =
              power_of_2(shares[j][e] * factor - (e % 2 == 0 ? log_sum_of.x : log_sum_of.y));
          // Keys that are none could have any share.
          shares[j][e] = row + e / 2 * 8 < a.keys ? power : 0.0f;
        }
      }
      wait_for_products<0>();
#pragma unroll
      for (int j = 0; j < kShortTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) logits[j][e] *= shares[j][e];
      }
      LeftFragment of_shares[kShortSteps];
      char* const by_logits = memory.by_logits(shared, number);
#pragma unroll
      for (int step = 0; step < kShortSteps; ++step) {
        of_shares[step] = factor_of<Half>(shares, step);
        // Rows of 64 bytes, of which the tensor cores exchange 16 bytes at a time.
        const int key = first_key + lane / 8 % 2 * 8 + lane % 8, piece = 2 * step + lane / 16;
        store_matrices(by_logits + 64 * key + 16 * (piece ^ key / 2 % 4),
                       factor_of<Half>(logits, step).words);
      }
      begin_products();
#pragma unroll
      for (int step = 0; step < kShortSteps; ++step) {
        constexpr int kStep = 16 * kSwizzledRow / 16;
        multiply_left<Half, kShortSize / 8, true>(dv, of_shares[step], of_gy + step * kStep,
                                                  step > 0 || !is_first);
      }
      commit_products();

      // What the next chunk needs, while these are under way.
      if (number + 1 < work.chunks) {
        if (thread < kShortQueries) {
          memory.log_sums(shared, number + 1)[thread] = log_sum;
          if (number + 2 < work.chunks) log_sum = read_log_sum(log_sums, a, number + 2, thread);
        }
        sum_chunk<Half>(shared, a, number + 1, thread);
      }
      publish_to_async_proxy();
      wait_for_products<0>();
      __syncthreads();
      // Now all have left the chunk before this one, and what the head before had.
      if (thread == 0) {
        const int next = number - 1 + kShortStages;
        if (number > 0 && next < work.chunks) copy_chunk(maps, shared, a, next);
        if (is_first && head_number > 0 && head_number + 1 < work.heads) {
          copy_head(maps, shared, a, head_number + 1);
        }
      }

      begin_products();
#pragma unroll
      for (int step = 0; step < kShortSteps; ++step) {
        multiply_rows<Half, kShortSize / 8, false, true>(
            dk, describe_half_rows(by_logits + group * kShortLogits) + 2 * step,
            of_q + step * (16 * kSwizzledRow / 16), step > 0 || !is_first);
      }
      commit_products();
      const int head = ShortWork::head(head_number);
      const int64_t sample = head / a.heads, of_sample = head % a.heads;
      const auto begin = [&](const ShortTensor& tensor, int length) {
        return sample * a.heads * length * kShortSize + of_sample * tensor.of_head;
      };
      if (group == number % a.groups) {
        float dq[kShortTiles][4];
        uint64_t left = describe_rows(keys), right = describe_half_rows(by_logits);
        const int steps = (a.keys + 15) / 16;
        begin_products();
        multiply_rows<Half, kShortTiles, true, true>(dq, left, right, 0);
#pragma unroll 1
        for (int step = 1; step < steps; ++step) {
          left += 16 * kSwizzledRow / 16;
          right += 16 * 64 / 16;
          begin_products();
          multiply_rows<Half, kShortTiles, true, true>(dq, left, right, 1);
        }
        commit_products();
        wait_for_products<0>();
        const int query = of_head * kShortQueries;
        store_columns(dq, a.scale, lane, storing,
                      gradients.q + begin(a.q, a.queries) + query * a.q.of_place + 16 * warp,
                      a.q.of_place, a.queries - query);
      }
      wait_for_products<0>();
      if (is_last) {
        store_rows(dk, a.scale, lane, storing,
                   gradients.k + begin(a.k, a.keys) + first_key * a.k.of_place, a.k.of_place,
                   a.keys - first_key);
        store_rows(dv, 1.0f, lane, storing,
                   gradients.v + begin(a.v, a.keys) + first_key * a.v.of_place, a.v.of_place,
                   a.keys - first_key);
      }
    }
  }
}

}  // namespace kerascnn::cuda
