"""What every page is made of: a template filled with facts, and pictures for light and for dark screens.

A page is one file that needs nothing else. Names from the user's table are escaped by the template, and the
control characters in them written out.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from .._utils.atomic import write_atomically
from .._utils.escaping import printable
from .._utils.paths import file_to_write
from .._utils.quiet import ignored
from .._utils.version import __version__ as version

if TYPE_CHECKING:
    import jinja2
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


__all__ = ["Drawing", "inlined", "need_libraries", "page_to_write", "percent", "write_page"]

Drawing: TypeAlias = "Callable[[], Axes | Figure]"

_POINT = re.compile(
    r'<path d="M (\S+ \S+) (?:L \1 )+z "[^>]*/>'
)  # a tile of no size, of which maps have many
_THEMES: Mapping[str, Mapping[str, str]] = {
    "light": {"text": "#1f2328", "background": "#ffffff"},
    "dark": {"text": "#e6e8eb", "background": "#1b1f26"},
}


def need_libraries() -> None:
    """Complain where matplotlib or jinja2 is missing."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f'the report needs {error.name}, not installed here; run: pip install "pyro-sparse[plots,cli]"'
        ) from error


def page_to_write(fit: object, path: object) -> Path:
    """The path, if it can be that of a page.

    Parameters
    ----------
    fit : object
        Which has to be one, and no path or edge posterior.
    path : object

    Raises
    ------
    TypeError
        One of the two is something else.
    ValueError
        The path ends like no page.
    """
    if isinstance(fit, str | os.PathLike):
        raise TypeError(
            f"fit: got the path {os.fspath(fit)!r}; the fit comes first: report(fit, {os.fspath(fit)!r})"
        )
    if not callable(getattr(fit, "edge_posterior", None)):  # of an edge posterior it is a group
        raise TypeError(
            f"fit: want what pyro_sparse.fit returned, got {type(fit).__name__}; an edge posterior stands "
            "beside it: report(fit, path, idata=idata)"
        )
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f'path: want a file to write, such as "report.html", got a {type(path).__name__}: '
            'report(fit, "report.html")'
        )
    ending = Path(path).suffix
    if ending.lower() not in ("", ".html", ".htm") and not Path(path).is_dir():
        printed = "; a browser prints it to PDF" if ending.lower() == ".pdf" else ""
        raise ValueError(
            f"path: got {os.fspath(path)!r}, and the report is a page of HTML; give a name in .html, "
            f"such as {str(Path(path).with_suffix('.html'))!r}{printed}"
        )
    return file_to_write(path, "report.html")


def write_page(path: Path, template: str, facts: Mapping[str, object]) -> Path:
    """Fill a template of the package and write it.

    Parameters
    ----------
    path : Path
    template : str
        Its name.
    facts : mapping
        All that it names.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pyro_sparse"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,  # Markup is ours
    )
    environment.filters["percent"] = percent
    files = {name: _file(environment, f"page.{name}") for name in ("css", "js")}
    digest = base64.b64encode(hashlib.sha256(files["js"].encode()).digest()).decode()
    page = environment.get_template(template).render(
        style=Markup(files["css"]),  # ours, without a name of the user
        script=Markup(files["js"]),
        script_digest=digest,
        version=version,
        **facts,
    )
    # half of a surrogate pair, as a name may hold, has no UTF-8
    return write_atomically(path, page.encode("utf-8", "backslashreplace"))


def _file(environment: jinja2.Environment, name: str) -> str:
    """A file beside the templates, as it is."""
    if environment.loader is None:
        raise ValueError("environment: has no loader; make it with one")
    return environment.loader.get_source(environment, name)[0]


def percent(share: float) -> str:
    """A share as whole per cent; small ones keep a digit, so that little is not nothing."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %" if value >= 0.1 else "<0.1 %"


def inlined(drawings: Mapping[str, Drawing]) -> dict[str, dict[str, str]]:
    """Every picture by name: SVG data addresses `light` and `dark`, and `width` and `height` in pixels."""
    return {
        name: _sized({theme: _svg(draw, **colour) for theme, colour in _THEMES.items()})
        for name, draw in drawings.items()
    }


def _sized(svgs: Mapping[str, str]) -> dict[str, str]:
    """Pictures as data addresses, with their width and height in pixels of a page."""
    points = [re.search(rf'<svg[^>]* {side}="([0-9.]+)pt"', svgs["light"]) for side in ("width", "height")]
    width, height = (f"{float(match[1]) * 4 / 3:.0f}" if match else "" for match in points)
    return {**{theme: _address(svg) for theme, svg in svgs.items()}, "width": width, "height": height}


def _address(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _rounded(svg: str) -> str:
    """The same picture with positions to a hundredth of a point, half of the size; texts stay as they are."""

    def rounded(number: re.Match[str]) -> str:
        return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")

    def tag(match: re.Match[str]) -> str:  # a text has no "<" of its own, so a name is never taken for one
        return re.sub(r"\s+", " ", re.sub(r"-?\d+\.\d{3,}", rounded, match[0]))

    short = re.sub(r">\n\s*<", "><", re.sub(r"<(?:path|use) [^>]*>", tag, svg))
    return _POINT.sub("", short)


def _svg(draw: Drawing, text: str, background: str) -> str:
    import matplotlib

    from ..plots._style import offscreen

    settings = {
        **{
            key: text
            for key in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
        },
        "axes.titlecolor": text,
        "figure.facecolor": background,
        "axes.facecolor": background,
        "savefig.transparent": True,
        "svg.fonttype": "none",  # text as text: a third of the size, and any script that the reader has
        "svg.hashsalt": "pyro_sparse",  # else ids in a picture, and so bytes of a page, differ each time
    }
    buffer = io.BytesIO()
    # A name in a script that the font lacks shows boxes; that is no reason to fail.
    with ignored("Glyph .* missing from"), matplotlib.rc_context(), offscreen():
        matplotlib.rcdefaults()  # a page looks the same whatever style its writer uses
        matplotlib.rcParams.update(settings)
        drawn = draw()
        figure = cast("Figure", drawn if hasattr(drawn, "savefig") else drawn.figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return _rounded(buffer.getvalue().decode())
