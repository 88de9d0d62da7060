// A scope says which layer and which phase a kernel call belongs to.
#include "core/profile/scope.h"

#include "check.h"

namespace kerascnn {
namespace {

TEST(scopes_join_once_and_in_order) {
  Scope scope{.path = "m/conv", .phases = kForward};
  scope.join({.path = "m/pool", .phases = kForward});
  scope.join({.path = "m/conv", .phases = kBackward});
  CHECK_EQUAL(scope.path, "m/conv + m/pool");
  CHECK_EQUAL(scope.phase(), "forward + backward");
  scope.join({.path = "m/pool + m/conv2", .phases = kUpdate});
  CHECK_EQUAL(scope.path, "m/conv + m/pool + m/conv2");
}

TEST(a_layer_takes_the_place_of_the_model_around_it) {
  Scope scope{.path = "m", .phases = kForward};
  scope.join({.path = "m/conv", .phases = kForward});
  scope.join({.path = "m", .phases = kForward});
  scope.join({.path = "m2", .phases = kForward});
  CHECK_EQUAL(scope.path, "m/conv + m2");
  Scope empty;
  empty.join(scope);
  CHECK_EQUAL(empty.path, scope.path);
}

}  // namespace
}  // namespace kerascnn
