// The order that argsort puts elements in; both backends sort by it.
#pragma once

#include "core/base/host_device.h"

namespace kerascnn {

// Does element `a` at position `i` come before `b` at position `j`? NaN counts as the largest;
// equal elements keep their order, also where it is descending.
template <typename T>
KERASCNN_HOST_DEVICE bool comes_before(T a, int i, T b, int j, bool descending) {
  const bool a_is_nan = a != a;
  const bool b_is_nan = b != b;
  if (a_is_nan != b_is_nan) return descending ? a_is_nan : b_is_nan;
  if (a < b) return !descending;
  if (b < a) return descending;
  return i < j;
}

}  // namespace kerascnn
