"""What pictures are asked in several test files."""

from __future__ import annotations

from matplotlib.text import Text


def cut_off(ax):
    """Texts that reach beyond the figure."""
    figure = ax.figure
    figure.canvas.draw()
    boxes = {t.get_text(): t.get_window_extent() for t in figure.findobj(Text) if t.get_text()}
    (width, height), slack = figure.bbox.size, 1
    return [
        text
        for text, box in boxes.items()
        if min(box.x0, box.y0) < -slack or box.x1 > width + slack or box.y1 > height + slack
    ]
