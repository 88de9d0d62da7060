// Names and sizes: dtypes, devices, shapes, attributes, 16-bit floats.
#include <cmath>
#include <limits>

#include "check.h"
#include "core/base/attributes.h"
#include "core/base/device.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/shape.h"

using namespace kerascnn;

TEST(dtype_names_round_trip) {
  for (const char* name : {"bool", "uint8", "int8", "int16", "int32", "int64", "float16",
                           "bfloat16", "float32", "float64"}) {
    CHECK_EQUAL(std::string(dtype_name(dtype_from_name(name))), name);
  }
  CHECK_THROWS(TypeError, "complex64", dtype_from_name("complex64"));
  CHECK_THROWS(TypeError, "bfloat16, float32", dtype_from_name("object"));
}

TEST(dtype_kinds) {
  CHECK(is_floating(DType::BFloat16) && !is_floating(DType::Int64) && !is_floating(DType::Bool));
  CHECK(is_integer(DType::UInt8) && is_integer(DType::Int64) && !is_integer(DType::Bool));
  CHECK_EQUAL(itemsize(DType::BFloat16), 2u);
}

TEST(device_names) {
  CHECK_EQUAL(device_name(device_from_name("cpu")), "cpu");
  CHECK_EQUAL(device_name(device_from_name("gpu")), "cuda:0");
  CHECK_EQUAL(device_name(device_from_name("cuda:11")), "cuda:11");
  for (const char* bad : {"", "tpu", "cuda:", "cuda:-1", "cuda:1x", "cpu:1", "cuda:99999999999"}) {
    CHECK_THROWS(ValueError, "is not known", device_from_name(bad));
  }
}

TEST(shape_sizes) {
  CHECK_EQUAL(num_elements({}), 1);
  CHECK_EQUAL(num_elements({3, 0, 5}), 0);
  CHECK_EQUAL(num_bytes({DType::Float64, {3, 4}}), 96);
  CHECK_EQUAL(shape_string({3}), "(3,)");
  CHECK_EQUAL(spec_string({DType::Int8, {2, 3}}), "int8 (2, 3)");
  CHECK_THROWS(ValueError, "non-negative", num_elements({2, -1}));
  CHECK_THROWS(ValueError, "64 bits", num_elements({int64_t{1} << 40, int64_t{1} << 40}));
  CHECK_THROWS(ValueError, "2^63 bytes", num_bytes({DType::Float64, {int64_t{1} << 61}}));
}

TEST(shape_strides) {
  CHECK(contiguous_strides({2, 3, 4}) == Shape({12, 4, 1}));
  CHECK(contiguous_strides({}) == Shape());
}

TEST(shape_broadcasting) {
  CHECK(broadcast_shapes("add", {2, 1, 4}, {3, 1}) == Shape({2, 3, 4}));
  CHECK(broadcast_shapes("add", {0}, {1}) == Shape({0}));
  CHECK_THROWS(ValueError, "add: ", broadcast_shapes("add", {2, 3}, {2, 4}));
  CHECK_EQUAL(normalize_axis("softmax", -1, 3), 2);
  CHECK_THROWS(ValueError, "softmax", normalize_axis("softmax", 3, 3));
}

TEST(attributes_give_what_was_set) {
  Attributes attributes{{"axis", int64_t{2}}, {"rate", 0.5}, {"name", std::string("relu")}};
  attributes.set("axis", int64_t{3});
  CHECK_EQUAL(attributes.get_int("axis"), 3);
  CHECK_EQUAL(attributes.get_double("axis"), 3.0);  // an integer may be read as a double
  CHECK(attributes.has("rate") && !attributes.has("rat"));
  CHECK_THROWS(ValueError, "\"stride\" is missing", attributes.get_int("stride"));
  CHECK_THROWS(ValueError, "must be an integer", attributes.get_int("rate"));
}

TEST(attribute_keys_tell_types_and_values_apart) {
  const auto key = [](Attribute value) { return Attributes{{"a", std::move(value)}}.key(); };
  CHECK(key(int64_t{1}) != key(true));
  CHECK(key(int64_t{1}) != key(1.0));
  CHECK(key(0.1) != key(std::nextafter(0.1, 1.0)));
  CHECK(key(std::vector<int64_t>{1, 12}) != key(std::vector<int64_t>{11, 2}));
  CHECK(Attributes({{"a", true}, {"b", false}}).key() ==
        Attributes({{"b", false}, {"a", true}}).key());
}

TEST(float16_round_trips_every_value) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = float_from_half_bits(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      CHECK(std::isnan(float_from_half_bits(half_bits_from_float(value))));
    } else {
      CHECK_EQUAL(half_bits_from_float(value), bits);
    }
  }
}

TEST(float16_rounds_to_nearest_even) {
  CHECK_EQUAL(half_bits_from_float(1.0f), 0x3c00);
  CHECK_EQUAL(half_bits_from_float(1.0f + 0x1p-11f), 0x3c00);      // a tie goes to the even one
  CHECK_EQUAL(half_bits_from_float(1.0f + 3 * 0x1p-11f), 0x3c02);  // a tie goes to the even one
  CHECK_EQUAL(half_bits_from_float(1.0f + 0x1.01p-11f), 0x3c01);   // just above the tie
  CHECK_EQUAL(half_bits_from_float(65519.996f), 0x7bff);           // the largest finite number
  CHECK_EQUAL(half_bits_from_float(65520.0f), 0x7c00);             // infinity
  // Half of the smallest number: the tie goes to zero.
  CHECK_EQUAL(half_bits_from_float(0x1p-25f), 0);
  CHECK_EQUAL(half_bits_from_float(0x1.8p-25f), 1);
  CHECK_EQUAL(half_bits_from_float(-0.0f), 0x8000);
}

TEST(bfloat16_rounds_to_nearest_even) {
  CHECK_EQUAL(bfloat16_bits_from_float(1.0f), 0x3f80);
  CHECK_EQUAL(bfloat16_bits_from_float(1.0f + 0x1p-8f), 0x3f80);
  CHECK_EQUAL(bfloat16_bits_from_float(1.0f + 3 * 0x1p-8f), 0x3f82);
  CHECK_EQUAL(bfloat16_bits_from_float(std::numeric_limits<float>::max()), 0x7f80);
  CHECK(std::isnan(
      float_from_bfloat16_bits(bfloat16_bits_from_float(std::bit_cast<float>(0x7f800001u)))));
}
