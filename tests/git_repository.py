"""Git repositories of tests."""

import subprocess
from pathlib import Path


def git(folder: Path, *arguments: str) -> str:
    """Run git and return its output."""
    who = ("-c", "user.name=A. Author", "-c", "user.email=author@example.org")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def make_repository(folder: Path) -> Path:
    """Make an empty repository on a branch `main`; the folder may exist."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    return folder


def commit_all(folder: Path, subject: str = "A change") -> str:
    """Commit everything in the folder and return the SHA."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", subject)
    return git(folder, "rev-parse", "HEAD")


def commit_file(folder: Path, name: str, text: str, subject: str = "A change") -> str:
    """Write a file, commit everything in the folder and return the SHA."""
    (folder / name).write_text(text)
    return commit_all(folder, subject)
