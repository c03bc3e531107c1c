"""Run the sections that are named, or all."""

import argparse

from tests.benchmarks import accuracy, attacks, growth, ingest, pages, rappor, sdk, servers, speed

SECTIONS = {
    "accuracy": accuracy.run,
    "speed": speed.run,
    "rappor": rappor.run,
    "sdk": sdk.run,
    "servers": servers.run,
    "ingest": ingest.run,
    "growth": growth.run,
    "pages": pages.run,
    "attacks": attacks.run,
}


def main() -> None:
    """Print each section's tables."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help=f"of {', '.join(SECTIONS)}; default: all")
    for name in parser.parse_args().sections or SECTIONS:
        print(f"\n{name}")
        SECTIONS[name]()


if __name__ == "__main__":
    main()
