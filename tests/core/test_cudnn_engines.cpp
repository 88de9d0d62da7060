// Which of cuDNN's engines the rules prefer, by the names in lists of cuDNN 9.19.
#include "core/backend/cuda/convolution/cudnn_engines.h"

#include "check.h"

namespace kerascnn::cuda {
namespace {

constexpr int kMultiprocessors = 132;

Conv2DCall call_of(const OpDef& op, int64_t inputs, int64_t outputs, int64_t size = 3,
                   int64_t stride = 1, DType dtype = DType::BFloat16) {
  Conv2DCall call;
  call.op = &op;
  call.dtype = dtype;
  call.geometry.batch = 64;
  call.geometry.input_height = call.geometry.input_width = 28;
  call.geometry.output_height = call.geometry.output_width = 28 / stride;
  call.geometry.input_channels = inputs;
  call.geometry.output_channels = outputs;
  call.geometry.kernel_height = call.geometry.kernel_width = size;
  call.geometry.stride_height = call.geometry.stride_width = stride;
  return call;
}

int place(const Conv2DCall& call, const std::vector<std::string>& names) {
  const auto found = faster_engine(call, names, 0, kMultiprocessors);
  return found ? static_cast<int>(*found) : 0;
}

TEST(large_clusters_give_way_to_square_tiles) {
  const std::vector<std::string> names = {"eng62_k2=0_k13=1_k18=0_k25=1_k27=4_k28=2",
                                          "eng62_k2=7_k13=1_k18=0_k25=1_k27=7_k28=1",
                                          "eng62_k2=0_k13=1_k18=0_k25=0_k27=1_k28=1"};
  CHECK_EQUAL(place(call_of(op_conv2d, 512, 512), names), 2);
  CHECK_EQUAL(place(call_of(op_conv2d_dgrad, 512, 512), names), 2);
  // Engines for strides are others.
  CHECK_EQUAL(place(call_of(op_conv2d_dgrad, 512, 512, 3, 2), names), 0);
}

TEST(small_clusters_stay_but_forward_in_float32) {
  const std::vector<std::string> names = {"eng67_k2=3_k13=0_k18=0_k25=0_k27=1_k28=2",
                                          "eng67_k2=0_k13=0_k18=0_k25=0_k27=1_k28=2"};
  CHECK_EQUAL(place(call_of(op_conv2d, 256, 512), names), 0);
  CHECK_EQUAL(place(call_of(op_conv2d, 256, 512, 3, 1, DType::Float32), names), 1);
  CHECK_EQUAL(place(call_of(op_conv2d_dgrad, 256, 512, 3, 1, DType::Float32), names), 0);
}

TEST(engines_of_older_generations_give_way) {
  const std::vector<std::string> names = {"eng1_k2=0_k3=1", "eng28_k2=2", "eng62_k2=1_k27=1_k28=1",
                                          "eng62_k2=0_k13=1_k27=1_k28=2"};
  CHECK_EQUAL(place(call_of(op_conv2d, 64, 128, 1, 2), names), 3);
}

TEST(tall_tiles_are_for_few_columns) {
  const std::vector<std::string> names = {"eng67_k2=1_k13=0_k18=0_k25=0_k27=7_k28=1",
                                          "eng67_k2=0_k13=0_k18=0_k25=0_k27=1_k28=1",
                                          "eng67_k2=4_k13=0_k18=0_k25=0_k27=8_k28=1"};
  CHECK_EQUAL(place(call_of(op_conv2d_dgrad, 64, 256), names), 2);
  CHECK_EQUAL(place(call_of(op_conv2d, 256, 64), names), 2);
  CHECK_EQUAL(place(call_of(op_conv2d_dgrad, 64, 256, 3, 1, DType::Float32), names), 0);
}

TEST(data_gradients_take_large_tiles_of_the_same_engine) {
  const std::vector<std::string> names = {"eng67_k2=0_k13=1_k18=0_k25=1_k27=8_k28=1",
                                          "eng73_k2=3_k13=1_k18=1_k27=2_k28=1",
                                          "eng67_k2=3_k13=1_k18=0_k25=0_k27=2_k28=1"};
  CHECK_EQUAL(place(call_of(op_conv2d_dgrad, 512, 512), names), 2);
  CHECK_EQUAL(place(call_of(op_conv2d, 512, 512), names), 0);
}

TEST(kernel_gradients_split_less_where_tiles_fill_the_gpu) {
  const std::vector<std::string> names = {"eng65_k2=7_k13=1_k18=1_k25=1_k27=1_k28=8",
                                          "eng65_k2=9_k13=1_k18=1_k25=0_k27=5_k28=1",
                                          "eng65_k2=0_k13=1_k18=1_k25=0_k27=1_k28=4"};
  CHECK_EQUAL(place(call_of(op_conv2d_wgrad, 512, 512), names), 2);  // 4 x 36 tiles
  CHECK_EQUAL(place(call_of(op_conv2d_wgrad, 384, 384), names), 0);  // 3 x 27
  const std::vector<std::string> flat = {"eng65_k2=1_k13=1_k18=1_k25=0_k27=2_k28=4", names[2]};
  CHECK_EQUAL(place(call_of(op_conv2d_wgrad, 512, 512), flat), 0);
}

TEST(names_that_say_nothing_change_nothing) {
  const std::vector<std::string> names = {"an engine", "", "eng_k2=_k27=x_k28="};
  for (const OpDef* op : {&op_conv2d, &op_conv2d_dgrad, &op_conv2d_wgrad}) {
    CHECK_EQUAL(place(call_of(*op, 512, 512), names), 0);
  }
}

}  // namespace
}  // namespace kerascnn::cuda
