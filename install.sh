#!/usr/bin/env bash
# Makes $RUNNER_TEMP/roofwatch, an environment with this checkout. A job that reports runs no code of the pull request: it
# uses the checkout as it is, with pinned versions of what reporting needs. A job that measures also sees the packages of
# the Python in $PYTHON: its torch is used as it is, and its environment is not changed.
set -euo pipefail
home="$RUNNER_TEMP/roofwatch"
if [ "$MODE" = report ]; then
  # nor a module `pip` in the checkout of one
  export PYTHONSAFEPATH=1
fi
# it needs no pip of its own, which would be half of it
"$PYTHON" -m venv --clear --without-pip "$home"
pip=("$PYTHON" -m pip --python "$home/bin/python" --quiet --disable-pip-version-check)
site="$(echo "$home"/lib/python*/site-packages)"
if [ "$MODE" = report ]; then
  # of pyproject.toml, so that no list is kept twice
  "$PYTHON" -c 'import sys, tomllib
project = tomllib.load(open(sys.argv[1], "rb"))["project"]
print(*project["dependencies"], *project["optional-dependencies"]["github"], sep="\n")' \
    "$GITHUB_ACTION_PATH/pyproject.toml" > "$home/requirements.txt"
  "${pip[@]}" install --no-compile --constraint "$GITHUB_ACTION_PATH/constraints.txt" --requirement "$home/requirements.txt"
  echo "$GITHUB_ACTION_PATH" > "$site/roofwatch.pth"
  printf '#!/bin/sh\nexec "%s/bin/python" -P -m roofwatch "$@"\n' "$home" > "$home/bin/roofwatch"
  chmod +x "$home/bin/roofwatch"
else
  # a build that asks for packages must not see those of the repository
  "$PYTHON" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$home/wheel" "$GITHUB_ACTION_PATH"
  # in a virtual environment, --system-site-packages would show the packages of the Python below it
  "$PYTHON" -c 'import sys
for path in sys.path:
    if path.endswith("-packages"):
        print(f"import site; site.addsitedir({path!r})")' > "$site/repository.pth"
  # of the extra `measure`, whose torch would replace the repository's
  "${pip[@]}" install nvidia-ml-py 'numpy>=1.26' "$(echo "$home"/wheel/*.whl)[github]"
fi
