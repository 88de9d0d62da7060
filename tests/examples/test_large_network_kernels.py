"""Which kernels train networks of everyday size on a GPU, in mixed precision."""

import pytest

import kerascnn as keras

# The smallest batches and images with which every block has as many elements as a GPU needs to be
# full; below that, kernels for few elements run.
CASES = ["resnet50@32x128", "vit_s16@64x64", "convnext_t@64x128"]


@pytest.fixture
def mixed_precision(cuda_device):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    with keras.device(cuda_device):
        yield
    keras.config.set_dtype_policy(before)


@pytest.mark.xfail(
    reason="casts are joined with what is around them by regions",
    raises=AssertionError,
    strict=True,
)
@pytest.mark.parametrize("name", CASES)
def test_no_activation_is_cast_by_a_kernel_of_its_own(name, module, mixed_precision):
    nets = module("large_nets")
    case = nets.Case.parse(name)
    profile = nets.keras_model(keras, case).profile(*case.data(1), batch_size=case.batch_size)
    found = [row for row in profile.rows if set(row["op"].split("+")) == {"cast"}]
    assert [(row["layer"], row["kernel"], row["calls"]) for row in found] == []
