"""Run the command line with `python -m roofwatch`."""

from roofwatch.cli.main import main

if __name__ == "__main__":
    main()
