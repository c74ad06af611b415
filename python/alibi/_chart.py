"""Curves over length as an SVG picture, for notebooks."""
from __future__ import annotations

import math
from html import escape
from typing import Mapping, Sequence

_WIDTH, _HEIGHT = 560, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 130, 28, 44
# Okabe and Ito's colours, which people of any colour vision can tell apart.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")

Curve = Sequence[tuple[float, float]]


def _marks(low: float, high: float) -> list[float]:
    """About four round numbers between the two."""
    step = 10.0 ** math.floor(math.log10((high - low) / 3))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= 5)
    first = math.ceil(low / step)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _powers(xs: Sequence[float]) -> list[float]:
    """The powers of two within the range of ascending numbers."""
    return [2.0**i for i in range(math.ceil(math.log2(xs[0])), math.floor(math.log2(xs[-1])) + 1)]


def curves(
    series: Mapping[str, Curve],
    title: str,
    y_label: str,
    trained_at: float = 0,
    x_label: str = "length, tokens",
) -> str:
    """One line per series over x, on a logarithmic axis. `trained_at`: a dashed line there. Points
    that are not finite are not drawn; without any the picture is empty."""
    drawn = {
        name: [(x, y) for x, y in points if x > 0 and math.isfinite(y)]
        for name, points in series.items()
    }
    xs = sorted({x for points in drawn.values() for x, _ in points})
    ys = [y for points in drawn.values() for _, y in points]
    if not xs:
        return ""
    low_x, high_x = math.log2(xs[0]), math.log2(xs[-1])
    low, high = min(ys), max(ys)
    margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    low, high = low - margin, high + margin

    def place_x(x: float) -> float:
        share = (math.log2(x) - low_x) / (high_x - low_x) if high_x > low_x else 0.5
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def place_y(y: float) -> float:
        return _HEIGHT - _BOTTOM - (y - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="11">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="16" font-weight="bold">{escape(title)}</text>',
        f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">'
        f"{escape(x_label)}</text>",
        f'<text transform="translate(14 {(_TOP + bottom) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(y_label)}</text>',
    ]
    for mark in _marks(low, high):
        y = place_y(mark)
        out.append(f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#ddd"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{mark:.6g}</text>')
    for x in xs if len(xs) <= 12 else _powers(xs):
        out.append(
            f'<text x="{place_x(x):.1f}" y="{bottom + 16}" text-anchor="middle">{x:.0f}</text>'
        )
    if xs[0] <= trained_at <= xs[-1]:
        x = place_x(trained_at)
        out.append(
            f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="#999" stroke-dasharray="4 3"/>'
        )
    for i, (name, points) in enumerate(drawn.items()):
        colour = _COLOURS[i % len(_COLOURS)]
        places = [(place_x(x), place_y(y)) for x, y in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(xs) <= 12:
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        out.append(f'<text x="{right + 10}" y="{_TOP + 14 * (i + 1)}" fill="{colour}">'
                   f"{escape(name)}</text>")
    return "".join(out) + "</svg>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table of texts."""
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same for a terminal, aligned at the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in [head, *rows]
    )
