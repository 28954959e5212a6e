"""Configuration of Sphinx, which builds the project's Markdown pages: `make docs`.

The source directory is the whole repository, so that a relative link works both on a code host and
in the built pages. Formulas are plain text, so that no page loads a script from another server.
"""

project = "rigor"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["README.md", "docs/**", "launch/**", "benchmarks/**"]
exclude_patterns = [".*", "build", "conf", "runs", "site", "src", "tests"]
myst_heading_anchors = 4  # the same anchors as on a code host

html_theme = "furo"
html_title = "rigor"
html_show_copyright = False
html_copy_source = False

default_role = "code"  # docstrings use single backticks, as in Markdown
napoleon_use_ivar = True  # describes each attribute of a dataclass once
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings state shapes and units
napoleon_attr_annotations = False
highlight_language = "none"  # for blocks without a language: commands and trees


def _plain(app, what, name, obj, options, lines):
    """Escape | and *, so that |x| and [E, *shape] are not read as markup."""
    lines[:] = [line.replace("|", r"\|").replace("*", r"\*") for line in lines]


def setup(app):
    """Register `_plain` to run before napoleon, which adds its own markup."""
    app.connect("autodoc-process-docstring", _plain, priority=1)
