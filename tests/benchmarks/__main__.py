"""Run the sections that are named, or all."""

import argparse

from tests.benchmarks import fold, randomize

SECTIONS = {"randomize": randomize.run, "fold": fold.run}


def main() -> None:
    """Print each section's table."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help=f"of {', '.join(SECTIONS)}; default: all")
    for name in parser.parse_args().sections or SECTIONS:
        print(f"\n{name}")
        SECTIONS[name]()


if __name__ == "__main__":
    main()
