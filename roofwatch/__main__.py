"""The command line as `python -m roofwatch`, for a Python that has no script of that name beside it."""

from roofwatch.cli.main import main

if __name__ == "__main__":
    main()
