#include "core/tensor/variable.h"

#include "core/base/error.h"

namespace kerascnn {

void Variable::assign(const Tensor& value) const {
  if (value.spec() != value_.spec()) {
    throw ValueError(message("variable ", name_, " is ", spec_string(value_.spec()),
                             " and can't be assigned a tensor of ", spec_string(value.spec())));
  }
  value_.copy_from(value);
}

}  // namespace kerascnn
