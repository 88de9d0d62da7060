"""`model.summary()` prints Keras' table, character by character."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kerascnn
from models.summary.networks import NETWORKS, branches, chain, line, restart_names, unbuilt

keras = pytest.importorskip("keras")
MODULES = (kerascnn, keras)


@pytest.fixture(scope="module")
def made():
    models = {}
    for make in NETWORKS:
        for module in MODULES:
            restart_names(module)
            model = make(module)
            models[make, module] = model
    return models


def text_of(model, **options):
    texts = []
    model.summary(print_fn=lambda text, **_: texts.append(text), **options)
    assert len(texts) == 1
    return texts[0]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(NETWORKS),
    st.sampled_from([60, 80, 110, 150]),
    st.fixed_dictionaries(
        {},
        optional={
            "line_length": st.sampled_from([50, 70, 100, 130]),
            "expand_nested": st.booleans(),
            "show_trainable": st.booleans(),
        },
    ),
    st.booleans(),
)
def test_the_table_is_that_of_keras(made, make, columns, options, frozen):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        texts = []
        for module in MODULES:
            model = made[make, module]
            model.layers[0 if make in (chain, unbuilt) else 1].trainable = not frozen
            texts.append(text_of(model, **options))
        assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "options",
    [
        {"layer_range": ("norm", "flat")},
        {"layer_range": ["flat", "norm"]},
        {"layer_range": ("n.*", "a_.*")},
        {"layer_range": ("absent", "flat")},
        {"layer_range": ("norm",)},
        {"layer_range": (0, 2)},
        {"line_length": 8},
        {"positions": [0.3, 0.6, 1.0]},
        {"positions": [0.3, 0.6, 1.0], "line_length": 60},
    ],
)
def test_options(options, monkeypatch, made):
    monkeypatch.setenv("COLUMNS", "100")
    texts = []
    for module in MODULES:
        try:
            texts.append(text_of(made[chain, module], **options))
        except ValueError as error:
            texts.append(type(error))
    assert texts[0] == texts[1]


def test_the_optimizer_counts_once_it_is_built(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    texts = []
    for module in MODULES:
        restart_names(module)
        model = line(module)
        model.compile("adam", "mse")
        assert "Optimizer" not in text_of(model)
        model.fit(np.zeros((2, 6)), np.zeros((2, 2)), verbose=0)
        texts.append(text_of(model).splitlines())
    # Keras counts the optimizer's steps with 4 bytes, and kerascnn with 8.
    for ours, theirs in zip(*texts, strict=True):
        assert ours.partition("(")[0] == theirs.partition("(")[0]
    assert "Optimizer params: 78" in texts[0][-1]


def test_standard_output_and_logging(capsys, caplog, made, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    model = made[line, kerascnn]
    model.summary()
    assert capsys.readouterr().out == text_of(model)
    kerascnn.config.disable_interactive_logging()
    try:
        with caplog.at_level("INFO", logger="kerascnn"):
            model.summary()
    finally:
        kerascnn.config.enable_interactive_logging()
    assert capsys.readouterr().out == ""
    assert caplog.messages == [text_of(model)]


def test_layers_by_name_and_place(made):
    for make in (chain, branches):
        for arguments in ({"index": 1}, {"index": -1}, {"name": "first"}, {"name": "shared"}):
            outcomes = []
            for module in MODULES:
                try:
                    outcomes.append(made[make, module].get_layer(**arguments).name)
                except ValueError as error:
                    outcomes.append(type(error))
            assert outcomes[0] == outcomes[1]
    for arguments in ({}, {"index": 50}, {"name": "absent"}, {"name": "first", "index": 0}):
        for module in MODULES:
            with pytest.raises(ValueError):
                made[chain, module].get_layer(**arguments)
    assert made[branches, kerascnn].count_params() == made[branches, keras].count_params()
    for module in MODULES:
        with pytest.raises(ValueError):
            made[unbuilt, module].layers[0].count_params()
