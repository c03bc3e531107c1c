"""README's picture: `python -m tests.picture` runs README's first block as it stands and draws what it says.

The picture has no script and loads nothing; its colours follow whether the reader's screen is light or dark.
"""

import random
import re
from pathlib import Path

from dither_shared.estimating import Share

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "client" / "crowd.svg"
SEED = 7
LEFT, WIDTH, TOP, STEP, MOST = 130, 480, 64, 40, 0.75
STYLE = """\
text { font: 14px system-ui, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif; fill: #1d2329 }
.quiet { fill: #5c6670; font-size: 12px } .paper { fill: #fcfcfa } .line { stroke: #dfe3e6 }
.back { stroke: #1f5fbf; stroke-width: 3 } .dot { fill: #1f5fbf } .true { fill: none; stroke: #b3420e; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
text { fill: #e6e9ec } .quiet { fill: #a3adb6 } .paper { fill: #14181c } .line { stroke: #333b42 }
.back { stroke: #7fb0ff } .dot { fill: #7fb0ff } .true { stroke: #ff9a66 }
}"""


def first_block() -> str:
    """Return README's first block of Python."""
    block: str = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]
    return block


def crowd(seed: int = SEED) -> tuple[list[str], list[Share]]:
    """Run the block with seeded answers and noise; return the true answers and the estimates."""
    from dither import testing

    shown: list[Share] = []
    asked = testing.ask_crowd

    def seeded(metric: object, said: object) -> list[Share]:
        shown.extend(asked(metric, said, random.Random(seed).getrandbits))  # type: ignore[arg-type]
        return shown

    state = random.getstate()
    random.seed(seed)
    testing.ask_crowd = seeded  # type: ignore[assignment]
    names: dict[str, list[str]] = {}
    try:
        exec(compile(first_block(), "README.md", "exec"), names)  # README is the house's own
    finally:
        testing.ask_crowd = asked
        random.setstate(state)
    return names["said"], shown


def drawn(said: list[str], shares: list[Share]) -> str:
    """Return the picture: a ring for each true share, a dot with an interval for what came back."""

    def x(share: float) -> str:
        return f"{LEFT + 40 + share / MOST * (WIDTH - 40):.1f}"

    bottom = TOP + STEP * len(shares)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30} {bottom + 12}" role="img" '
        'aria-labelledby="title">',
        '<title id="title">True shares of a simulated crowd beside what came back out of its noisy answers</title>',
        f"<style>\n{STYLE}\n</style>",
        '<rect class="paper" width="100%" height="100%"/>',
        f'<text x="16" y="24">{len(said):,} devices, each with one noisy answer</text>',
        f'<circle class="true" cx="{LEFT + 256}" cy="19" r="6"/>',
        f'<text class="quiet" x="{LEFT + 268}" y="24">truth</text>',
        f'<path class="back" d="M{LEFT + 316} 19h24"/><circle class="dot" cx="{LEFT + 328}" cy="19" r="4"/>',
        f'<text class="quiet" x="{LEFT + 348}" y="24">came back, 95 % interval</text>',
    ]
    for tenth in range(0, 8, 2):
        parts.append(f'<path class="line" d="M{x(tenth / 10)} {TOP - 8}V{bottom - 8}"/>')
        parts.append(
            f'<text class="quiet" text-anchor="middle" x="{x(tenth / 10)}" y="{TOP - 14}">{10 * tenth} %</text>'
        )
    for place, share in enumerate(shares):
        y = TOP + STEP * place + 12
        true = said.count(share.value) / len(said)
        parts.append(f'<text x="16" y="{y + 5}">{share.value}</text>')
        parts.append(f'<path class="back" d="M{x(share.lower)} {y}H{x(share.upper)}"/>')
        parts.append(f'<circle class="dot" cx="{x(share.estimate)}" cy="{y}" r="4"/>')
        parts.append(f'<circle class="true" cx="{x(true)}" cy="{y}" r="8"/>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(drawn(*crowd()), encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)} is drawn")
