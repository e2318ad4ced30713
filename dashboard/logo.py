"""The logo."""

LOGO = (
    '<path d="M2 24 L14 8 L30 8" fill="none" stroke="#D55E00" stroke-width="3.5" '
    'stroke-linecap="round" stroke-linejoin="round"/>'
    '<circle cx="15" cy="19" r="3.2" fill="#0072B2"/>'
    '<rect x="22" y="13.5" width="6" height="6" fill="#56B4E9"/>'
)
"""The logo: a roof over two points."""
