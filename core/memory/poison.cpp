#include "core/memory/poison.h"

#include "core/base/env.h"

namespace kerascnn {

bool poisons_memory() {
  static const bool poisons = env_flag("KERASCNN_POISON_MEMORY", false);
  return poisons;
}

}  // namespace kerascnn
