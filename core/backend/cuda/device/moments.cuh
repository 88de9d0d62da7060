// The number of some values, their mean and the sum of their squared deviations, merged as Chan,
// Golub and LeVeque do ("Updating formulae and a pairwise algorithm for computing sample
// variances", 1979). This is exact where a plain sum of squares would cancel.
#pragma once

namespace kerascnn::cuda {

template <typename C>
struct Moments {
  C count, mean, deviation;
};

template <typename C>
__device__ __forceinline__ Moments<C> merge_moments(const Moments<C>& a, const Moments<C>& b) {
  if (b.count == C(0)) return a;
  if (a.count == C(0)) return b;
  const C count = a.count + b.count;
  const C share = b.count / count;
  const C delta = b.mean - a.mean;
  return {count, a.mean + delta * share,
          a.deviation + b.deviation + delta * delta * a.count * share};
}

}  // namespace kerascnn::cuda
