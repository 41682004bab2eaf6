"""Draws latency distributions as an SVG: latency on a logarithmic axis against the percentile, whose axis is stretched
towards 100 % (each nine takes the same width), the form that HdrHistogram made usual."""

import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 860, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 250, 46, 56
COLOURS = ("#0b6e99", "#c2571a", "#3a7d34", "#7b4fa3", "#b3261e", "#8a6d00", "#42566b", "#c04a86")
TICKS = (0, 50, 90, 99, 99.9, 99.99)


def _x(percentile, last):
    """The place of a percentile: linear in the number of nines."""
    nines = -math.log10(max(1 - percentile / 100, 1 - last / 100))
    return LEFT + (WIDTH - LEFT - RIGHT) * nines / -math.log10(1 - last / 100)


def _label(milliseconds):
    return f"{milliseconds * 1000:g} µs" if milliseconds < 1 else f"{milliseconds:g} ms"


def draw(series, title, path):
    """series: list of (name, [(percentile, milliseconds), …]); writes the SVG to path."""
    values = [value for _, points in series for _, value in points if value > 0]
    low = 10 ** math.floor(math.log10(min(values)))
    high = 10 ** math.ceil(math.log10(max(values)))
    last = max(percentile for _, points in series for percentile, _ in points)

    def y(milliseconds):
        share = math.log10(max(milliseconds, low) / low) / math.log10(high / low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="15" font-weight="600" fill="#1c2630">{escape(title)}</text>',
    ]
    for tick in TICKS:
        if tick <= last:
            x = _x(tick, last)
            out.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#e3e7eb"/>')
            out.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#52606d">{tick:g} %</text>')
    decade = low
    while decade <= high * 1.0001:
        for factor in (1, 2, 5):
            value = decade * factor
            if value > high * 1.0001:
                break
            strong = factor == 1
            out.append(
                f'<line x1="{LEFT}" y1="{y(value):.1f}" x2="{WIDTH - RIGHT}" y2="{y(value):.1f}" stroke="{"#cbd2d9" if strong else "#eef1f4"}"/>'
            )
            if strong:
                out.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end" fill="#52606d">{_label(value)}</text>')
        decade *= 10
    out.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 14}" text-anchor="middle" fill="#52606d">share of calls that took at most so long</text>'
    )
    for index, (name, points) in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        line = " ".join(f"{_x(percentile, last):.1f},{y(value):.1f}" for percentile, value in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>')
        row = TOP + 8 + index * 22
        out.append(f'<line x1="{WIDTH - RIGHT + 18}" y1="{row}" x2="{WIDTH - RIGHT + 40}" y2="{row}" stroke="{colour}" stroke-width="3"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 48}" y="{row + 4}" fill="#1c2630">{escape(name)}</text>')
    out.append("</svg>")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")
