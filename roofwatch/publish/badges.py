"""A badge of a kernel as an SVG picture."""

from xml.sax.saxutils import escape, quoteattr

# in the colours of the published pages, which colour-blind people can distinguish
_BAD, _GOOD = "#a84300", "#005a8f"
_CHARACTER_PX = 7
_PADDING_PX = 10
_TEMPLATE = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img"\
 aria-label={label}><title>{title}</title>\
<rect width="{width}" height="20" rx="3" fill="#555"/>\
<rect x="{middle}" width="{right}" height="20" rx="3" fill="{colour}"/>\
<g fill="#fff" font-family="Verdana,sans-serif" font-size="11">\
<text x="5" y="14">{name}</text><text x="{text_x}" y="14">{text}</text></g></svg>
"""


def badge(name: str, text: str, *, is_bad: bool) -> str:
    """Draw a name and a short text, orange if it is bad and blue otherwise."""
    left_px = len(name) * _CHARACTER_PX + _PADDING_PX
    right_px = len(text) * _CHARACTER_PX + _PADDING_PX
    return _TEMPLATE.format(
        width=left_px + right_px,
        middle=left_px,
        right=right_px,
        colour=_BAD if is_bad else _GOOD,
        label=quoteattr(f"{name}: {text}"),
        title=escape(f"{name}: {text}"),
        name=escape(name),
        text=escape(text),
        text_x=left_px + 5,
    )
