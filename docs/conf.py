"""Settings of the documentation site. `.ci/run docs` builds it, with warnings as errors.

Tutorials are executed by every build. While one is written, `KERASCNN_DOCS_EXECUTION=cache` runs
only those whose code has changed, and `off` none. With `complete` a build fails where it would
leave some out, because they train on MNIST and there is none: a site that is published is whole.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

from sphinx.application import Sphinx

import kerascnn

project = "kerascnn"
author = "The kerascnn authors"
copyright = "The kerascnn authors, Apache License 2.0"
version = release = kerascnn.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "accessible",
    "api_pages",
    "execution",
    "mathml",
    "notebooks",
    "plain_docstrings",
]
exclude_patterns = ["_extensions", "_generated"]
templates_path = ["_templates"]

# Pages are those of GitHub too: headings are named as GitHub names them.
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

execution = os.environ.get("KERASCNN_DOCS_EXECUTION", "force")
nb_execution_complete = execution == "complete"
nb_execution_mode = "force" if nb_execution_complete else execution
nb_execution_raise_on_error = True
nb_execution_timeout = 300  # for each cell, on a machine with other work
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_ivar = (
    True  # "Attributes:" of a class lists them; autodoc describes those with docstrings
)
napoleon_custom_sections = [("Source", "notes_style"), ("Sources", "notes_style")]
default_role = "code"  # `name` in a docstring is code, as in Markdown

html_theme = "furo"
html_title = f"kerascnn {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
# Tables of Rich, such as summaries of models, have colors for a dark terminal (site.css).
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {
        "rich-blue": "#0060b8",
        "rich-cyan": "#006a82",
        "rich-green": "#00700a",
    },
    "dark_css_variables": {"rich-blue": "#3ea2ff", "rich-cyan": "#00d7ff", "rich-green": "#00bf00"},
}

# `.ci/run links` asks other sites alone: links between pages are tested in the built site.
linkcheck_ignore = [r"\.\.?/"]

# Prompts and outputs are not part of what is copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


# Pages beside the folder of the documentation have a place in it on the site. Others lead to them
# by their files, and so does the changelog, which is included.
PLACES = {
    "(.github/SECURITY.md": "(docs/security.md",
    "(../.github/CONTRIBUTING.md": "(contributing.md",
    "(../../.github/SECURITY.md": "(../security.md",
    "(../CHANGELOG.md": "(changelog.md",
}


def setup(app: Sphinx) -> None:
    app.connect("source-read", lead_to_places)
    app.connect("include-read", lambda app, path, name, source: lead_to_places(app, name, source))


def lead_to_places(app: Sphinx, name: str, source: list[str]) -> None:
    for outside, place in PLACES.items():
        source[0] = source[0].replace(outside, place)
