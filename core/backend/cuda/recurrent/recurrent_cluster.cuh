// What all kernels share that compute LSTMs and GRUs over whole sequences in one launch. A cluster
// of blocks takes some rows of the batch from the first step to the last one. Every block has a
// part of the units and keeps their columns of the recurrent kernel on its multiprocessor. The
// results of a step go to the other blocks' shared memory, and one barrier of the cluster ends the
// step.
//
// recurrent_rows*.cu multiply float32 numbers one by one, recurrent_tiles*.cu on tensor cores.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "core/backend/cuda/device/begin.cuh"
#include "core/backend/cuda/device/types.cuh"
#include "core/backend/cuda/launch.h"
#include "core/backend/cuda/recurrent/recurrent.h"
#include "core/backend/cuda/runtime/check.h"
#include "core/backend/cuda/runtime/shared_memory.h"
#include "core/backend/cuda/tiles/cluster.cuh"
#include "core/ops/recurrent_cells.h"

namespace kerascnn::cuda::recurrent_cluster {

// A cluster takes so many rows at the most; more of them wait for their turn.
constexpr int64_t kMostRows = 32;
constexpr int64_t kMostBlocks = INT32_MAX;

struct Job {
  RecurrentSizes sizes;
  int64_t rows;  // of a cluster, a multiple of those that are computed at a time
};

// Which block of its cluster this thread's block is, and the first row of the batch that the
// cluster has.
template <int kBlocks>
__device__ __forceinline__ int rank_in_cluster() {
  return static_cast<int>(blockIdx.x) % kBlocks;
}
template <int kBlocks>
__device__ __forceinline__ int64_t first_row_of_cluster(const Job& job) {
  return static_cast<int64_t>(blockIdx.x) / kBlocks * job.rows;
}

// The end of a step, in two halves: a thread that has passed it sees what all blocks wrote before.
template <int kBlocks>
__device__ __forceinline__ void arrive() {
  if constexpr (kBlocks > 1) {
    __syncwarp();  // the barrier counts warps
    arrive_in_cluster();
  }
}
template <int kBlocks>
__device__ __forceinline__ void wait() {
  if constexpr (kBlocks > 1) {
    __syncwarp();
    wait_for_cluster();
  } else {
    __syncthreads();
  }
}
template <int kBlocks, typename V>
__device__ __forceinline__ void store_at(V* shared, unsigned rank, V value) {
  if constexpr (kBlocks > 1) {
    store_in_cluster(shared, rank, value);
  } else {
    *shared = value;
  }
}

// sigmoid(x) = tanh(x / 2) / 2 + 1 / 2, so that all gates need one function. The sums of a GRU's
// candidate stay as they are.
template <int kGates>
__device__ __forceinline__ float activated(int gate, float x) {
  if (kGates == 3 && gate >= 2) return x;
  const bool is_candidate = kGates == 4 && gate == 2;
  const float t = tanhf(is_candidate ? x : 0.5f * x);
  return is_candidate ? t : fmaf(0.5f, t, 0.5f);
}

// The results of a step for one row and unit.
struct Finished {
  float gates[kSavedGates];
  float h, c, before;
};

// For an LSTM, `gates` are the activations; for a GRU they are z, r, and the candidate's sums from
// x and from h. A step that does not count leaves the states as they were.
template <int kGates>
__device__ __forceinline__ Finished finish_state(const float (&gates)[4], float before,
                                                 float cell_before, bool counts) {
  Finished f = {{gates[0], gates[1], gates[2], gates[3]}, before, cell_before, before};
  if constexpr (kGates == 4) {
    recurrent::lstm_state(f.gates, f.c, f.h);
  } else {
    recurrent::gru_state(f.gates, f.h);
  }
  if (!counts) {
    f.h = before;
    f.c = cell_before;
  }
  return f;
}

// One of the `kCopies` lanes that share a row and a unit writes some of it.
template <int kCopies, typename T>
__device__ __forceinline__ void write_step(const RecurrentForward<T>& b, int64_t units,
                                           int64_t time, int64_t unit, int copy,
                                           const Finished& f) {
  if (b.gates != nullptr) {
#pragma unroll
    for (int gate = 0; gate < kSavedGates; ++gate) {
      if (gate % kCopies == copy) {
        b.gates[(time * kSavedGates + gate) * units + unit] = store<T>(f.gates[gate]);
      }
    }
  }
  const int64_t at = time * units + unit;
  if (copy == 0 && b.outputs != nullptr) b.outputs[at] = store<T>(f.h);
  if (copy == 1 % kCopies && b.previous != nullptr) b.previous[at] = store<T>(f.before);
  if (copy == 2 % kCopies && b.cells != nullptr) b.cells[at] = store<T>(f.c);
}

// How many clusters the device runs at a time, with at most one block on a multiprocessor; 0 where
// it runs none.
template <typename... P>
int64_t most_clusters(void (*kernel)(P...), unsigned blocks, unsigned threads, int64_t bytes) {
  const auto& properties = Context::current().properties();
  if (bytes > static_cast<int64_t>(properties.sharedMemPerBlockOptin)) return 0;
  const ClusterLaunch launch(dim3(blocks), threads, blocks, static_cast<size_t>(bytes));
  return std::min<int64_t>(launch.most_active(kernel), properties.multiProcessorCount / blocks);
}

// A kernel that computes a multiple of `step` rows.
template <typename Buffers>
struct Variant {
  void (*kernel)(Job, Buffers) = nullptr;
  int64_t step = 0;
};

template <typename Buffers>
struct Launch {
  void (*kernel)(Job, Buffers) = nullptr;
  Job job;
  dim3 grid;
  unsigned threads = 0, blocks = 0;
  int64_t bytes = 0;

  explicit operator bool() const { return kernel != nullptr; }
  void run(const Buffers& buffers, cudaStream_t stream) const {
    ClusterLaunch(grid, threads, blocks, static_cast<size_t>(bytes), stream)
        .run(kernel, job, buffers);
  }
};

// Takes as few rows for each cluster as give all of them work at once. `bytes` tells the shared
// memory for so many rows; kernels for few rows come first.
template <typename Buffers, typename Bytes>
Launch<Buffers> make_launch(const RecurrentSizes& s, unsigned blocks, unsigned threads,
                            std::initializer_list<Variant<Buffers>> variants, const Bytes& bytes) {
  for (const auto& variant : variants) allow_most_shared_memory(variant.kernel);
  const auto clusters_with = [&](int64_t rows) {
    int64_t count = INT64_MAX;
    for (const auto& variant : variants) {
      count = std::min(count, most_clusters(variant.kernel, blocks, threads, bytes(rows)));
    }
    return count;
  };
  // A wider kernel needs more shared memory, and there may not be enough.
  const int64_t widest = (variants.end() - 1)->step;
  int64_t most = kMostRows, clusters = clusters_with(most);
  while (clusters == 0 && most > widest) clusters = clusters_with(most -= widest);
  if (clusters == 0) return {};
  int64_t rows = std::min(most, ceil_div(s.batch, clusters));
  const auto* chosen = variants.begin();
  while (rows > chosen->step && chosen + 1 != variants.end()) ++chosen;
  rows = ceil_div(rows, chosen->step) * chosen->step;
  const int64_t count = ceil_div(s.batch, rows) * blocks;
  if (count > kMostBlocks) return {};
  return {chosen->kernel, {s, rows}, dim3(static_cast<unsigned>(count)),
          threads,        blocks,    bytes(rows)};
}

// Is there anything to compute, on a device that has clusters?
inline bool has_clusters(const PlanRequest& request) {
  return num_elements(request.outputs[0].shape) > 0 && Context::current().properties().major >= 9;
}

// Returns null where there is no launch. `buffers` finds the buffers of a call.
template <typename Buffers, typename MakeBuffers>
std::unique_ptr<Kernel> make_kernel_of(std::string name, const Launch<Buffers>& launch,
                                       const MakeBuffers& buffers) {
  if (!launch) return nullptr;
  return make_early_kernel(std::move(name), [=](const KernelArgs& args) {
    launch.run(buffers(args), static_cast<cudaStream_t>(args.stream));
  });
}

}  // namespace kerascnn::cuda::recurrent_cluster
