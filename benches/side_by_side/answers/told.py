"""What a server answered, without what may differ from run to run, and how two such answers differ."""

import json
import zlib

# Counted or timed: only that they are there is compared.
VARYING = {"ns", "count", "last_inference", "inference_count", "execution_count", "batch_stats"}
HEADERS = [
    "content-type",
    "content-encoding",
    "inference-header-content-length",
    "retry-after",
    "allow",
    "cache-control",
]


def over_http(path, status, headers, body):
    told = {"status": status}
    for name in HEADERS:
        # What type an empty body is of says nothing.
        if (value := headers.get(name)) is not None and (body or name != "content-type"):
            told[name] = "a number" if name == "inference-header-content-length" else value
    if "content-encoding" in headers:
        body = zlib.decompress(body, wbits=47)  # gzip or zlib, whichever it is
    length = int(headers.get("inference-header-content-length", len(body)))
    text, rest = body[:length], body[length:]
    try:
        told["body"] = sameness(path, json.loads(text))
    except ValueError:
        told["body"] = text.decode("utf-8", "replace")
    return told | ({"bytes": rest.hex() if len(rest) < 4096 else f"{len(rest)} of them"} if rest else {})


def sameness(path, value):
    """An error is a sentence, whichever; what is counted is a number."""
    if isinstance(value, dict):
        return {
            key: "a sentence"
            if key in ("error", "reason") and isinstance(one, str) and one
            else f"a {type(one).__name__}"
            if key in VARYING and "stats" in path
            else sameness(path, one)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [sameness(path, one) for one in value]
    return f"{len(value)} characters" if isinstance(value, str) and len(value) > 4096 else value


def compare(one, other):
    """`where: one → other` of each place where two answers differ; an error beside an answer differs as a whole."""
    lines = differences(one, other)
    refused = [answer.get("code", "OK") != "OK" or answer.get("status", 200) >= 400 for answer in (one, other)]
    whole = [line for line in lines if line.startswith(("status:", "code:", "took:"))]
    return whole if refused[0] != refused[1] and whole else lines


def differences(one, other, where=""):
    if isinstance(one, dict) and isinstance(other, dict):
        found = []
        for key in sorted({*one, *other}):
            found += differences(
                one.get(key, Nothing), other.get(key, Nothing), f"{where}.{key}" if where else str(key)
            )
        return found
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [line for place, (a, b) in enumerate(zip(one, other)) for line in differences(a, b, f"{where}[{place}]")]
    # 1 and 1.0 are one number, true is none.
    same = one == other and isinstance(one, bool) == isinstance(other, bool)
    return [] if same else [f"{where}: {short(one)} → {short(other)}"]


class Nothing:
    """What is not there."""


def short(value):
    text = "nothing" if value is Nothing else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= 160 else f"{text[:150]}… ({len(text)} characters)"
