"""The logo, as text: a roof over two points. The favicon is drawn here too, since Streamlit would fetch an icon of its
own from another host.
"""

_ROOF = (
    '<path d="M2 24 L14 8 L30 8" fill="none" stroke="#D55E00" stroke-width="3.5" stroke-linecap="round"'
    ' stroke-linejoin="round"/>'
    '<circle cx="15" cy="19" r="3.2" fill="#0072B2"/>'
    '<rect x="22" y="13.5" width="6" height="6" fill="#56B4E9"/>'
)
_SVG = '<svg xmlns="http://www.w3.org/2000/svg"'

ICON = f'{_SVG} viewBox="0 0 32 32" width="64" height="64">{_ROOF}</svg>'
# mid-grey: readable on a light and on a dark page
WORDMARK = (
    f'{_SVG} viewBox="0 0 150 32" width="300" height="64">{_ROOF}'
    '<text x="38" y="23" font-family="sans-serif" font-size="20" font-weight="600" fill="#808495">roofwatch</text>'
    "</svg>"
)
