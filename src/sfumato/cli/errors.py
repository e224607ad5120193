"""Whatever goes wrong in a command, in one line: what to say, and the exit code."""

from __future__ import annotations

from sfumato.extras import explained

__all__ = ["BAD_INPUT", "MISTAKE", "in_a_line"]

BAD_INPUT = 2  # what was typed, a file that was given, something that is not installed
MISTAKE = 1  # sfumato's own


def in_a_line(error: Exception) -> tuple[int, str]:
    """The exit code, and what is said.

    An error of sfumato's own classes, and any ``ValueError`` or ``OSError``, is about what was
    given. Every other one was not foreseen where it came from; it is told as a mistake, and the
    tests of the command line take it for one.
    """
    if isinstance(error, ImportError):
        return BAD_INPUT, str(explained(error))
    if isinstance(error, OSError):
        return BAD_INPUT, _of_the_system(error)
    if isinstance(error, UnicodeError):
        return BAD_INPUT, _of_text(error)
    if isinstance(error, MemoryError) or _is_short_of_memory(error):
        return BAD_INPUT, "this needs more memory than there is: ask for less of it"
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):
        return BAD_INPUT, f"{str(error).partition(' from ')[2]} is a link that leads to itself"
    if isinstance(error, OverflowError):
        return BAD_INPUT, "a number that was given is too large, or too small, to compute with"
    if _packages(error) & {"torch._dynamo", "torch._inductor"}:
        return (
            BAD_INPUT,
            "this cannot be compiled here (that takes a C++ compiler): try without",
        )
    if isinstance(error, ValueError) or type(error).__module__.partition(".")[0] == "sfumato":
        return BAD_INPUT, str(error)
    found = f"{type(error).__name__}: {error}"
    return MISTAKE, f"this should not have happened ({found}); SFUMATO_DEBUG=1 shows where"


def _is_short_of_memory(error: Exception) -> bool:
    """PyTorch's words for it, on a GPU and on a CPU."""
    return isinstance(error, RuntimeError) and (
        type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error)
    )


def _packages(error: Exception) -> set[str]:
    """Where the error's classes come from, two names deep."""
    return {".".join(base.__module__.split(".")[:2]) for base in type(error).__mro__}


def _of_text(error: UnicodeError) -> str:
    """Words that a terminal could not read have halves of surrogate pairs in them."""
    if isinstance(error, UnicodeEncodeError):
        return f"{error.object!a} must be text, but has bytes that are none: type it again"
    return "a file that was given must be text in UTF-8, but is not"


def _of_the_system(error: OSError) -> str:
    """Without the system's number; with the file it is about."""
    if error.errno is None or not error.strerror:
        return str(error)
    name = error.filename
    shown = name.decode(errors="replace") if isinstance(name, bytes) else name
    return f"{shown}: {error.strerror}" if shown is not None else error.strerror
