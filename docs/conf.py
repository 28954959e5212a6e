"""How Sphinx makes pages of the project's Markdown: `make docs`.

The sources are the whole repository, so that a relative link works on a code host and on the pages.
Formulas are plain text, as in docstrings: no page needs a script from elsewhere.
"""

project = "rigor"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["README.md", "docs/**", "launch/**", "benchmarks/**"]
exclude_patterns = [".*", "build", "conf", "runs", "site", "src", "tests"]
myst_heading_anchors = 4  # as a code host makes them

html_theme = "furo"
html_title = "rigor"
html_show_copyright = False
html_copy_source = False

default_role = "code"  # docstrings have Markdown's single backticks
napoleon_use_ivar = True  # attributes of dataclasses are described once
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings give shapes and units
napoleon_attr_annotations = False
highlight_language = "none"  # of blocks that name no language: commands and trees


def _plain(app, what, name, obj, options, lines):
    """Keep |x| and [E, *shape] from being taken for markup."""
    lines[:] = [line.replace("|", r"\|").replace("*", r"\*") for line in lines]


def setup(app):
    """Connect the above, before napoleon adds markup of its own."""
    app.connect("autodoc-process-docstring", _plain, priority=1)
