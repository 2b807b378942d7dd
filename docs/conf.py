"""Configuration of Sphinx for `make docs`. Warnings are errors, and the pages fetch nothing from other servers."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for the extension `builder`

project = "histnetq"
author = "the histnetq developers"
release = version = version_of("histnetq")
copyright = author

extensions = ["builder", "myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx_gallery.gen_gallery"]
exclude_patterns = ["tutorials"]
nitpicky = True
default_role = "code"
smartquotes = False  # docstrings contain quoted code
toc_object_entries_show_parents = "hide"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_typehints = "none"  # numpydoc's parameter tables describe the types
numpydoc_show_class_members = False

# Every tutorial is executed. The header of the gallery is tutorials/GALLERY_HEADER.rst.
sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "auto_tutorials",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "ignore_repr_types": r"matplotlib|histnetq\.quantifiers",  # their repr does not help a reader
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "histnetq"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_use_index = False
html_sidebars = {"errors": [], "index": [], "start": []}  # these pages have no subpages
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
}
