// Environment variables are read as documented, and values without meaning are refused instead of
// ignored.
#include <cstdlib>

#include "check.h"
#include "core/base/env.h"
#include "core/base/error.h"

using namespace kerascnn;

namespace {

constexpr const char* kName = "KERASCNN_TEST_VARIABLE";

void set(const char* value) { setenv(kName, value, 1); }

}  // namespace

TEST(unset_and_empty_variables_give_the_fallback) {
  unsetenv(kName);
  CHECK(env_flag(kName, true));
  CHECK_EQUAL(env_positive(kName, 3), 3);
  CHECK_EQUAL(env_count(kName, 4), 4);
  CHECK_EQUAL(env_choice(kName, {"a"}), "");
  set("");
  CHECK(!env_flag(kName, false));
  CHECK_EQUAL(env_positive(kName, 5), 5);
}

TEST(variables_are_read) {
  set("0");
  CHECK(!env_flag(kName, true));
  CHECK_EQUAL(env_count(kName, 7), 0);
  set("yes");
  CHECK(env_flag(kName, false));
  set("12");
  CHECK_EQUAL(env_positive(kName, 1), 12);
  set("avx2");
  CHECK_EQUAL(env_choice(kName, {"plain", "avx2"}), "avx2");
}

TEST(nonsense_is_refused_with_the_name_and_what_is_expected) {
  set("maybe");
  CHECK_THROWS(ValueError, kName, env_flag(kName, true));
  CHECK_THROWS(ValueError, "positive integer", env_positive(kName, 1));
  CHECK_THROWS(ValueError, "plain, avx2", env_choice(kName, {"plain", "avx2"}));
  set("-4");
  CHECK_THROWS(ValueError, "0 or a positive integer", env_count(kName, 1));
  CHECK_THROWS(ValueError, "-4", env_positive(kName, 1));
  set("4 cores");
  CHECK_THROWS(ValueError, "4 cores", env_positive(kName, 1));
}
