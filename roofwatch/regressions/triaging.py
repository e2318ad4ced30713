"""Who decides about regressions on this machine."""

import subprocess

from roofwatch.db.regressions.decisions import Signature


def git_signature() -> Signature | None:
    """Return who works on this machine by git's settings; None without an email address there."""
    command = ["git", "config", "--get", "user.email"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    email = answer.stdout.strip()
    if not email:
        return None
    return Signature(person=email, actor=f"git:{email}")
