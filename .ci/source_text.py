"""Text of C sources, for checks that read them."""
import re


def code_of(text):
    """Without comments and what stands between quotes; lines and columns stay."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', blank, text, flags=re.S)
