"""Graphs for Graphviz equal Keras'; without Graphviz, kerascnn draws the plots itself."""

import sys
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.summary.networks import (
    branches,
    chain,
    line,
    nested,
    operators,
    restart_names,
    same_tensor,
    twice,
)

import kerascnn
from kerascnn.utils import model_visualization

keras = pytest.importorskip("keras")
MODULES = (kerascnn, keras)
NETWORKS = (chain, line, branches, twice, same_tensor, nested, operators)
FLAGS = (
    "show_shapes",
    "show_dtype",
    "show_layer_names",
    "expand_nested",
    "show_layer_activations",
    "show_trainable",
)


@pytest.fixture(scope="module")
def made():
    models = {}
    for make in NETWORKS:
        for module in MODULES:
            restart_names(module)
            models[make, module] = make(module)
    return models


def contents(dot):
    """Returns nodes by label, groups by name and arrows of a graph and of all graphs in it."""
    labels = {}
    groups = {}
    arrows = []

    def visit(graph, where):
        for node in graph.get_nodes():
            if node.get_name() not in ("node", '"\\n"'):
                labels[node.get_name()] = node.get_label()
                groups.setdefault(where, []).append(node.get_label())
        for inner in graph.get_subgraphs():
            visit(inner, (*where, inner.get_name(), inner.get_label()))

    def arrows_of(graph):
        for edge in graph.get_edges():
            ends = (edge.get_source(), edge.get_destination())
            arrows.append((*(labels[end] for end in ends), edge.get("penwidth")))
        for inner in graph.get_subgraphs():
            arrows_of(inner)

    visit(dot, ())
    arrows_of(dot)
    return groups, sorted(arrows)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(NETWORKS),
    st.fixed_dictionaries({}, optional=dict.fromkeys(FLAGS, st.booleans())),
    st.sampled_from(["TB", "LR"]),
    st.booleans(),
    st.booleans(),
)
def test_graphs_are_those_of_keras(made, make, options, rankdir, subgraph, frozen):
    pytest.importorskip("pydot")
    found = []
    for module in MODULES:
        model = made[make, module]
        model.layers[1].trainable = not frozen
        dot = module.utils.model_to_dot(
            model, rankdir=rankdir, dpi=96, subgraph=subgraph, splines="curved", **options
        )
        attributes = dict(sorted(dot.get_attributes().items()))
        defaults = dot.get_node_defaults()
        found.append((type(dot), attributes, defaults, *contents(dot)))
    assert found[0] == found[1]


@pytest.mark.parametrize("module", MODULES)
def test_models_that_can_not_be_plotted(module, made):
    pytest.importorskip("pydot")
    open_model = module.Sequential([module.layers.Dense(2)])
    for function in (module.utils.model_to_dot, module.utils.plot_model):
        with pytest.raises(ValueError, match="built"):
            function(open_model)
    for arguments in ({"layer_range": ("a", "b")}, {"unknown": 1}):
        with pytest.raises(ValueError):
            module.utils.model_to_dot(made[line, module], **arguments)


@pytest.fixture
def without_graphviz(monkeypatch):
    monkeypatch.setattr(model_visualization, "has_graphviz", lambda: False)


NAMESPACE = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("rankdir", ["TB", "LR", "BT", "RL"])
@pytest.mark.parametrize("make", NETWORKS)
def test_svg_without_graphviz(made, make, rankdir, tmp_path, without_graphviz):
    model = made[make, kerascnn]
    path = tmp_path / "model.svg"
    everything = dict.fromkeys(FLAGS, True)
    kerascnn.utils.plot_model(model, path, rankdir=rankdir, **everything)
    root = ElementTree.parse(path).getroot()
    texts = [element.text for element in root.iter(f"{NAMESPACE}text")]
    for layer in model.layers:
        assert any(text.split(" (")[0] == layer.name for text in texts)
    width, height = float(root.get("width")), float(root.get("height"))
    places = [box_of(group) for group in root.iter(f"{NAMESPACE}g")]
    for left, top, w, h in places:
        assert left >= 0 and top >= 0 and left + w <= width and top + h <= height
    for i, a in enumerate(places):
        for b in places[:i]:
            apart = (
                a[0] + a[2] <= b[0]
                or b[0] + b[2] <= a[0]
                or a[1] + a[3] <= b[1]
                or b[1] + b[3] <= a[1]
            )
            assert apart
    arrows = list(root.iter(f"{NAMESPACE}polyline"))
    assert len(arrows) >= len(places) - len(getattr(model, "inputs", [0]))
    forward = {"TB": 1, "LR": 0, "BT": 1, "RL": 0}[rankdir]
    for arrow in arrows if make is not twice else ():
        points = [tuple(map(float, p.split(","))) for p in arrow.get("points").split()]
        goes_on = points[-1][forward] > points[0][forward]
        assert goes_on == (rankdir in ("TB", "LR"))


def box_of(group):
    rectangle = group.find(f"{NAMESPACE}rect")
    return tuple(float(rectangle.get(name)) for name in ("x", "y", "width", "height"))


@pytest.mark.parametrize("rankdir", ["TB", "LR"])
@pytest.mark.parametrize("make", NETWORKS)
def test_images_without_graphviz(made, make, rankdir, tmp_path, without_graphviz):
    """The picture matches the SVG file: it has its size, and is dark where the boxes are."""
    image_module = pytest.importorskip("PIL.Image")
    model = made[make, kerascnn]
    options = {"rankdir": rankdir, "show_shapes": True, "expand_nested": True}
    kerascnn.utils.plot_model(model, tmp_path / "m.svg", **options)
    kerascnn.utils.plot_model(model, tmp_path / "m.png", dpi=144, **options)
    root = ElementTree.parse(tmp_path / "m.svg").getroot()
    with image_module.open(tmp_path / "m.png") as image:
        assert image.format == "PNG"
        size = [float(root.get(name)) * 2 for name in ("width", "height")]
        assert image.size == pytest.approx(size, abs=2)  # The SVG file's sizes are rounded.
        for group in root.iter(f"{NAMESPACE}g"):
            left, top, *_ = box_of(group)
            corner = image.getpixel((int(left * 2) + 8, int(top * 2) + 8))
            assert corner == (0, 0, 0)
        assert image.getpixel((2, 2)) == (255, 255, 255)


def test_names_without_an_ending_are_png(made, tmp_path, without_graphviz, monkeypatch):
    pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    kerascnn.utils.plot_model(made[line, kerascnn])
    assert (tmp_path / "model.png").read_bytes().startswith(b"\x89PNG")
    kerascnn.utils.plot_model(made[line, kerascnn], tmp_path / "m.jpg", dpi=30)
    assert (tmp_path / "m.jpg").read_bytes().startswith(b"\xff\xd8")


def test_no_other_file_than_the_one_that_was_asked_for(
    made, tmp_path, without_graphviz, monkeypatch
):
    with pytest.raises(ImportError, match="Graphviz"):
        kerascnn.utils.plot_model(made[line, kerascnn], tmp_path / "model.dot")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match="pillow"):
        kerascnn.utils.plot_model(made[line, kerascnn], tmp_path / "model.png")
    assert list(tmp_path.iterdir()) == []


def test_a_subclassed_model_is_one_box(tmp_path, without_graphviz):
    class Own(kerascnn.Model):
        def call(self, x):
            return x

    model = Own(name="own")
    model.built = True
    kerascnn.utils.plot_model(model, tmp_path / "m.svg", show_layer_names=True, show_shapes=True)
    text = (tmp_path / "m.svg").read_text()
    assert text.count("<g>") == 1 and "own (Own)" in text and "Input shape: ?" in text
