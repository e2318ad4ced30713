#!/usr/bin/env bash
# Installs this checkout into $RUNNER_TEMP/roofwatch, which also sees the packages of the Python in $PYTHON: its torch is
# used as it is, and its environment is not changed. A job that only reports gets pinned versions instead.
set -euo pipefail
home="$RUNNER_TEMP/roofwatch"
"$PYTHON" -m venv --clear "$home"
pip=("$home/bin/python" -m pip --quiet --disable-pip-version-check)
"${pip[@]}" wheel --no-deps --wheel-dir "$home/wheel" "$GITHUB_ACTION_PATH"
if [ "$MODE" = report ]; then
  set -- --constraint "$GITHUB_ACTION_PATH/constraints.txt"
else
  set -- nvidia-ml-py # of the extra `measure`, which would replace torch
  # in a virtual environment, --system-site-packages would show the packages of the Python below it; and where wheels are
  # built, these packages would come before the ones that the build asks for
  "$PYTHON" -c 'import sys
for path in sys.path:
    if path.endswith("-packages"):
        print(f"import site; site.addsitedir({path!r})")' > "$(echo "$home"/lib/python*/site-packages)/repository.pth"
fi
"${pip[@]}" install "$@" "$(echo "$home"/wheel/*.whl)[github]"
