// How often a classifier is right. A pass makes this of the ops that it stands for.
#include "core/ops/count_matches.h"

#include "core/ops/definitions.h"

namespace kerascnn {
namespace {

constexpr std::string_view kName = "count_matches";

std::vector<TensorSpec> infer_count_matches(const Attributes&, Specs inputs) {
  check_num_inputs(kName, inputs, 2);
  const TensorSpec& scores = inputs[0];
  const TensorSpec& labels = inputs[1];
  check_floating(kName, "the scores", scores);
  check_rank(kName, "the scores", scores, 2);
  if (!is_match_label(labels.dtype)) {
    throw TypeError(message(kName, ": the labels must be int32, int64 or float32, received ",
                            dtype_name(labels.dtype), "; cast them first"));
  }
  check_shape(kName, "the labels", labels, {scores.shape[0]});
  if (scores.shape[1] < 1 && scores.shape[0] > 0) {
    throw ValueError(message(kName, ": there must be at least 1 class, received scores of shape ",
                             shape_string(scores.shape)));
  }
  if (scores.shape[1] > INT32_MAX) {
    throw ValueError(
        message(kName, ": ", scores.shape[1], " classes are more than an int32 index can count"));
  }
  return {{DType::Float32, {}}};
}

}  // namespace

// In how many rows of the scores (n, classes) the first maximum, or the first NaN where there is
// one, is at the label. Labels (n,) that are no class, such as fractions, match nothing.
const OpDef op_count_matches = {
    .name = kName,
    .infer = infer_count_matches,
    .not_differentiable = "its result is a number of rows",
};

}  // namespace kerascnn
