#!/usr/bin/env python3
"""Check the hash chain of a Perdure session log, without Perdure.

    perdure events SESSION --json | python3 verify_log.py

Reads one event per line as a JSON object, from the first event of a session on, and exits with 0 if the chain holds and 1 if
it does not, naming the first event that does not fit. The rule, in full:

    hash = SHA-256( hash of the event before (lower-case hex; nothing for the first)
                    + the event without its "hash" member, as canonical JSON (RFC 8785), in UTF-8 )

Only the standard library is used, so that the check owes nothing to the code that it checks.
"""

import hashlib
import json
import math
import sys


def number(x):
    """A number as RFC 8785 (which takes it from ECMAScript) writes it: the shortest form that gives the same double."""
    if isinstance(x, int) and abs(x) < 2**53:
        return str(x)
    x = float(x)
    if math.isnan(x) or math.isinf(x):
        raise ValueError("a number that no double can hold")
    if x == 0:
        return "0"
    sign, x = ("-", -x) if x < 0 else ("", x)
    digits, exponent = repr(x), 0  # repr gives the shortest digits, but places the point differently
    if "e" in digits:
        digits, e = digits.split("e")
        exponent = int(e)
    whole, _, fraction = digits.partition(".")
    digits = whole + fraction
    point = len(whole) + exponent  # the decimal point stands behind that many digits
    point -= len(digits) - len(digits.lstrip("0"))
    digits = digits.strip("0")
    n = len(digits)
    if n <= point <= 21:
        text = digits + "0" * (point - n)
    elif 0 < point <= 21:
        text = digits[:point] + "." + digits[point:]
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        e = point - 1
        text = digits[0] + ("." + digits[1:] if n > 1 else "") + "e" + ("+" if e > 0 else "-") + str(abs(e))
    return sign + text


SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def string(s):
    return '"' + "".join(SHORT.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in s) + '"'


def canonical(v):
    if v is None:
        return "null"
    if v is True:
        return "true"
    if v is False:
        return "false"
    if isinstance(v, str):
        return string(v)
    if isinstance(v, (int, float)):
        return number(v)
    if isinstance(v, list):
        return "[" + ",".join(map(canonical, v)) + "]"
    names = sorted(v, key=lambda name: name.encode("utf-16-be"))  # the order of UTF-16 code units
    return "{" + ",".join(string(name) + ":" + canonical(v[name]) for name in names) + "}"


def once(pairs):
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("a member name twice in one object")
    return names


def verify(lines):
    """Return (number of good events, last hash), or raise ValueError that names the first bad event."""
    prev, seq, session = "", 0, None
    for line in lines:
        if not line.strip():
            continue
        try:
            e = json.loads(line, object_pairs_hook=once)
            claimed = e.pop("hash")
            if e["seq"] != seq + 1:
                raise ValueError(f"it says that it is {e['seq']}")
            if session not in (None, e["session_id"]):
                raise ValueError(f"it belongs to {e['session_id']}")
            actual = hashlib.sha256((prev + canonical(e)).encode("utf-8")).hexdigest()
            if actual != claimed:
                raise ValueError(f"it carries {claimed}, but its content and the event before give {actual}")
        except (ValueError, KeyError, TypeError) as err:
            raise ValueError(f"event {seq + 1} does not fit: {err}") from err
        prev, seq, session = claimed, seq + 1, e["session_id"]
    return seq, prev


def main():
    try:
        count, head = verify(sys.stdin)
    except ValueError as err:
        print(err, file=sys.stderr)
        return 1
    if count == 0:
        print("no events to check", file=sys.stderr)
        return 1
    print(f"{count} events, the chain holds; the last hash is {head}")
    return 0


if __name__ == "__main__":
    sys.stdin.reconfigure(encoding="utf-8")
    sys.exit(main())
