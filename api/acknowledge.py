"""The page that a link in an alert opens: who works on it, and why."""

import html
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from roofwatch.api.state import state_of
from roofwatch.ci.alerts.links import PATH, AcknowledgeLinks
from roofwatch.db.errors import StoreError
from roofwatch.db.regressions.alerts import acknowledge

# a page for people, which needs no token of the API
router = APIRouter(include_in_schema=False)
# a form with a token, a name and a reason
_MAX_BODY_BYTES = 4_096
# of a name or a reason, which the audit trail keeps
_MAX_WORDS = 200
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>roofwatch</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body {{ font: 16px sans-serif; max-width: 30em; margin: 2em auto; padding: 0 1em }}
label, input, button {{ display: block; margin: .5em 0; width: 100% }}</style></head>
<body><h1>{title}</h1>{content}</body></html>
"""
_FORM = """<form method="post" action="{path}"><input type="hidden" name="token" value="{token}">
<label>Who works on it<input name="person" required maxlength="{most}"></label>
<label>Reason<input name="reason" required maxlength="{most}"></label>
<button>Acknowledge</button></form>"""


@router.get(PATH)
def show(request: Request, token: str = Query(default="", max_length=200)) -> HTMLResponse:
    """Ask who acknowledges. Programs that open links for a preview change nothing."""
    if _links(request).read(token) is None:
        return _answer("This link is not valid", 404)
    form = _FORM.format(path=PATH, token=html.escape(token), most=_MAX_WORDS)
    return _answer("Acknowledge the alert", 200, form)


@router.post(PATH)
async def submit(request: Request) -> HTMLResponse:
    """Acknowledge the episode of the link; a second time, or after its end, it is refused."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        # anybody may send a form here: the link is the only key
        if len(body) > _MAX_BODY_BYTES:
            return _answer("The form is too long", 413)
    fields = parse_qs(body.decode(errors="replace"))
    token, person, reason = (
        fields.get(name, [""])[0].strip() for name in ("token", "person", "reason")
    )
    subject = _links(request).read(token)
    if subject is None:
        return _answer("This link is not valid", 404)
    # an acknowledgement without a name could not be asked about
    if not person or not reason:
        return _answer("Name a person and a reason", 400)
    state = state_of(request)
    alert_id, episode = subject
    try:
        acknowledge(
            state.engine,
            alert_id,
            person=person[:_MAX_WORDS],
            reason=reason[:_MAX_WORDS],
            actor="link",
            now=state.now(),
            episode=episode,
        )
    except StoreError:
        return _answer("The alert is no longer firing, or was acknowledged", 409)
    return _answer("Acknowledged", 200)


def _links(request: Request) -> AcknowledgeLinks:
    links = request.app.state.acknowledge_links
    assert isinstance(links, AcknowledgeLinks), "the app has this page only with links"
    return links


def _answer(title: str, status: int, content: str = "") -> HTMLResponse:
    page = _PAGE.format(title=html.escape(title), content=content)
    return HTMLResponse(page, status_code=status, headers=_HEADERS)
