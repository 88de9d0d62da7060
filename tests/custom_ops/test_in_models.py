"""Custom ops in fit, in saved models, and before pooling."""

from __future__ import annotations

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops

from .helpers import SOFTSIGN, row_sums, small_model, softsign_in_numpy


class TestModels:
    def test_fit_with_expressions_is_fit_with_the_built_in_op(self, softsign, device, batches):
        with keras.device(device):
            histories = []
            for activation in (softsign, "softsign"):
                model = small_model(activation)
                histories.append(model.fit(*batches, batch_size=16, epochs=3, verbose=0).history)
        # The order of the arithmetic differs, which leaves a few float32 roundings over 15 steps.
        np.testing.assert_allclose(histories[0]["loss"], histories[1]["loss"], rtol=1e-5)

    def test_fit_is_captured_in_a_graph(self, softsign, cuda_device, batches):
        with keras.device(cuda_device):
            model = small_model(softsign)
            model.fit(*batches, batch_size=16, epochs=1, verbose=0)
            before = _core.launch_stats(cuda_device)
            model.fit(*batches, batch_size=16, epochs=1, verbose=0)
            after = _core.launch_stats(cuda_device)
        assert after["graph_launches"] > before["graph_launches"]

    def test_fit_with_a_function_of_numpy(self, batches):
        own = ops.custom_op(
            "softsign_in_numpy",
            cpu=softsign_in_numpy,
            cpu_gradient=lambda x, y, dy: dy / (1 + np.abs(x)) ** 2,
        )
        with keras.device("cpu"):
            losses = [
                small_model(activation).fit(*batches, batch_size=16, verbose=0).history["loss"]
                for activation in (own, "softsign")
            ]
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)

    def test_an_exception_in_the_function_ends_fit_and_nothing_else(self, batches):
        calls = []

        def forward(x):
            calls.append(x.shape)
            if len(calls) == 3:
                raise KeyError("the third call")
            return x

        own = ops.custom_op("raises", cpu=forward, cpu_gradient=lambda x, y, dy: dy)
        with keras.device("cpu"):
            model = small_model(own)
            with pytest.raises(KeyError, match="the third call"):
                model.fit(*batches, batch_size=16, epochs=2, verbose=0)
            weights = [w.numpy() for w in model.weights]
            assert all(np.isfinite(w).all() for w in weights)
            model.fit(*batches, batch_size=16, epochs=1, verbose=0)

    def test_mixed_precision(self, softsign, device, batches):
        with keras.device(device):
            layer = keras.layers.Activation(softsign, dtype="mixed_bfloat16")
            assert layer(batches[0]).dtype == "bfloat16"

    def test_functional_models_and_jit(self, softsign, device, rng):
        x = rng.standard_normal((5, 6)).astype("float32")
        with keras.device(device):
            inputs = keras.Input((6,))
            outputs = softsign(inputs)
            assert outputs.shape == (None, 6)
            model = keras.Model(inputs, outputs)
            np.testing.assert_allclose(model.predict(x, verbose=0), softsign_in_numpy(x), rtol=1e-6)
            compiled = keras.jit(lambda x: ops.sum(softsign(x)))
            # Sums of 30 numbers below 1, in any order: 30 roundings by half a unit of numbers up
            # to 32. Numbers of both signs may leave next to nothing.
            np.testing.assert_allclose(
                float(compiled(ops.convert_to_tensor(x))), softsign_in_numpy(x).sum(), atol=3e-5
            )

    def test_shape_rules_of_models(self, device):
        sums = row_sums("row_sums_of_models")
        with keras.device(device):
            assert sums(keras.Input((6,))).shape == (None,)

    def test_saved_models(self, softsign, device, batches, tmp_path):
        with keras.device(device):
            model = small_model(softsign)
            wanted = model.predict(batches[0], verbose=0)
            model.save(tmp_path / "model.keras")
            again = keras.models.load_model(tmp_path / "model.keras")
            np.testing.assert_array_equal(again.predict(batches[0], verbose=0), wanted)

    def test_saved_functional_models(self, softsign, tmp_path, rng):
        x = rng.standard_normal((5, 6)).astype("float32")
        inputs = keras.Input((6,))
        model = keras.Model(inputs, keras.layers.Dense(2)(softsign(inputs)))
        model.save(tmp_path / "model.keras")
        again = keras.models.load_model(tmp_path / "model.keras")
        np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))

    def test_a_saved_model_whose_op_is_not_defined(self, batches, tmp_path):
        op = ops.custom_op("defined_for_a_while", **SOFTSIGN)
        inputs = keras.Input((8, 8, 1))
        called = keras.Model(inputs, op(inputs))
        for name, model in (("layer", small_model(op)), ("call", called)):
            path = tmp_path / f"{name}.keras"
            model.save(path)
        del keras.saving.get_custom_objects()["custom_op>defined_for_a_while"]
        for name in ("layer", "call"):
            with pytest.raises(ValueError, match="'defined_for_a_while' is not defined here"):
                keras.models.load_model(tmp_path / f"{name}.keras")
            keras.models.load_model(
                tmp_path / f"{name}.keras", custom_objects={"defined_for_a_while": op}
            )


class TestPooling:
    """An increasing function before max pooling moves behind it, where there are fewer elements."""

    def program(self, op, device, pads=(0, 0, 0, 0), strides=(2, 2)):
        graph = _core.Graph()
        x = graph.input("x", [2, 9, 9, 3], "float64")
        kernel = graph.input("kernel", [3, 3, 3, 4], "float64")
        convolution = {"strides": [1, 1], "padding": [0, 0, 0, 0], "dilations": [1, 1]}
        convolution |= {"groups": 1, "activation": "linear", "activation_alpha": 0.0}
        c = graph.apply("conv2d", [x, kernel], convolution)[0]
        a = graph.apply("custom_op", [c], {"op": op._key})[0]
        pooling = {"window": [2, 2], "strides": list(strides), "padding": list(pads)}
        p = graph.apply("max_pool2d", [a], pooling)[0]
        weights = graph.input("weights", p.shape, "float64")
        product = graph.apply("multiply", [p, weights], {})[0]
        loss = graph.apply("reduce_sum", [product], {"axes": [], "keepdims": False})[0]
        outputs = [loss, *graph.gradients(loss, [x, kernel])]
        return p.shape, {
            optimize: _core.Program.compile(graph, outputs, device, optimize=optimize)
            for optimize in (True, False)
        }

    @pytest.mark.parametrize("strides", [(2, 2), (1, 1)], ids=["apart", "overlapping"])
    @pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 1, 1)], ids=["inside", "padded"])
    def test_results_and_gradients_are_those_of_the_plain_order(self, device, rng, strides, pads):
        op = ops.custom_op(
            "increasing", "tanh(x) + x", "dy * (2 - tanh(x) * tanh(x))", increasing=True
        )
        shape, programs = self.program(op, device, pads, strides)
        given = [rng.standard_normal(s) for s in ((2, 9, 9, 3), (3, 3, 3, 4), shape)]
        results = {}
        for optimize, program in programs.items():
            program.run([_core.from_numpy(x, device) for x in given])
            results[optimize] = [y.numpy() for y in program.outputs()]
        for moved, plain in zip(results[True], results[False], strict=True):
            # The sums have another order, so float64 rounding differs.
            np.testing.assert_allclose(moved, plain, rtol=1e-11, atol=1e-12)

    def test_it_is_computed_on_the_pooled_elements(self, device):
        settings = {"forward": "x * x * x", "gradient": "3 * x * x * dy"}
        sizes = {}
        for increasing in (True, False):
            op = ops.custom_op("cubed", **settings, increasing=increasing)
            _, programs = self.program(op, device)
            rows = [r for r in programs[True].describe() if r["op"] == "custom_op"]
            assert len(rows) == 2
            sizes[increasing] = {tuple(row["outputs"][0][1]) for row in rows}
        assert sizes == {True: {(2, 3, 3, 4)}, False: {(2, 7, 7, 4)}}

    def test_an_activation_that_is_read_elsewhere_stays(self, device):
        op = ops.custom_op("cubed_twice", "x * x * x", "3 * x * x * dy", increasing=True)
        graph = _core.Graph()
        x = graph.input("x", [1, 4, 4, 2], "float32")
        a = graph.apply("custom_op", [x], {"op": op._key})[0]
        pooling = {"window": [2, 2], "strides": [2, 2], "padding": [0, 0, 0, 0]}
        p = graph.apply("max_pool2d", [a], pooling)[0]
        program = _core.Program.compile(graph, [a, p], device)
        (row,) = [r for r in program.describe() if r["op"] == "custom_op"]
        assert tuple(row["outputs"][0][1]) == (1, 4, 4, 2)
