"""What the person at the terminal sees: a line per part, then prefixed logs."""

import sys
from typing import TextIO

COLOURS = (36, 35, 34, 33, 32, 96, 95, 94)


class Display:
    """Plain lines everywhere; colour and ticks only on a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._pretty = self._stream.isatty()
        self._colours: dict[str, int] = {}

    def say(self, text: str) -> None:
        try:
            print(text, file=self._stream, flush=True)
        except BrokenPipeError:  # whoever read us left; the parts are worth more than the words
            self._stream = sys.stderr

    def ready(self, name: str, seconds: float) -> None:
        self.say(f"  {self._paint('ok', 32)}  {name:<10} {seconds:5.1f} s")

    def log(self, name: str, line: str) -> None:
        if not line.strip():
            return
        colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
        self.say(f"{self._paint(f'{name:<9}|', colour)} {line}")

    def died(self, name: str, code: int, pause: float) -> None:
        self.log(name, f"ended with code {code}; starting it again in {pause:.1f} s")

    def hung(self, name: str, grace: float) -> None:
        self.log(name, f"did not stop within {grace:.0f} s; killed")

    def _paint(self, text: str, colour: int) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._pretty else text
