"""Health, metadata and inference over HTTP."""

import gzip
import json
import struct
import threading
import time
import zlib

from calls import A, B, BOTH, CALLS, binary, call, described, first, get, infer, pair, post, slip, tensor, without

# Health and what the server and its models say of themselves.
get("health live", "/v2/health/live")
get("health ready", "/v2/health/ready")
post("health live by POST", "/v2/health/live")
get("server metadata", "/v2")
get("server metadata with a slash", "/v2/")
get("model ready", "/v2/models/plus/ready")
get("model ready, version", "/v2/models/plus/versions/1/ready")
get("model ready, no such model", "/v2/models/minus/ready")
get("model ready, no such version", "/v2/models/plus/versions/7/ready")
get("model ready, no version", "/v2/models/plus/versions/x/ready")
get("model metadata", "/v2/models/plus")
get("model metadata, version", "/v2/models/plus/versions/1")
get("model metadata, no such model", "/v2/models/minus")
get("model metadata, no such version", "/v2/models/plus/versions/7")
get("model metadata of strings", "/v2/models/say")
get("model metadata of an ensemble", "/v2/models/twice")
get("model metadata of a sequence model", "/v2/models/sums")
get("model config", "/v2/models/plus/config")
get("model config of an ensemble", "/v2/models/twice/config")
get("model config, no such model", "/v2/models/minus/config")
get("no such path", "/v2/nothing")
get("no such path at all", "/nothing")

# Inference over HTTP: what fits.
infer("infer", pair())
infer("infer, version", pair(), "plus/versions/1")
infer("infer, id", pair(id="r7"))
infer("infer, empty id", pair(id=""))
infer("infer, id that is a number", pair(id=7))
infer("infer, own parameters", pair(id="r7", parameters={"mine": "yes", "step": 3, "last": True, "share": 0.5}))
infer("infer, parameter that is a list", pair(parameters={"mine": [1]}))
infer("infer, empty outputs", pair(outputs=[]))
infer("infer, one output", pair(outputs=[{"name": "difference"}]))
infer("infer, outputs in another order", pair(outputs=[{"name": "difference"}, {"name": "sum"}]))
infer("infer, output twice", pair(outputs=[{"name": "sum"}, {"name": "sum"}]))
infer("infer, no such output", pair(outputs=[{"name": "product"}]))
infer("infer, unknown key", pair(more=1))
infer(
    "infer, nested data",
    {"inputs": [tensor("a", "FP32", [2, 2], [[1, 2], [3, 4]]), tensor("b", "FP32", [2, 2], [[1, 1], [1, 1]])]},
)
infer(
    "infer, nested otherwise",
    {"inputs": [tensor("a", "FP32", [2, 2], [[1, 2, 3, 4]]), tensor("b", "FP32", [2, 2], [1, 1, 1, 1])]},
)
infer(
    "infer, whole numbers for floats",
    {"inputs": [tensor("a", "FP32", [1, 2], [1, 2]), tensor("b", "FP32", [1, 2], [3, 4])]},
)
infer("infer, no content type", pair(), content_type=None)
infer("infer, another content type", pair(), content_type="text/plain")
infer("infer, ensemble", {"inputs": pair()["inputs"], "id": "e1"}, "twice")
infer("infer, no element", {"inputs": [tensor("x", "FP32", [0], [])]}, "FP32")
infer("infer, no row", {"inputs": [tensor("a", "FP32", [0, 2], []), tensor("b", "FP32", [0, 2], [])]})
for kind, values in (
    ("BOOL", [True, False]),
    ("INT64", [-(2**63), 2**63 - 1]),
    ("UINT64", [0, 2**64 - 1]),
    ("FP64", [0.1, 1e300]),
    ("BYTES", ["", "größer"]),
    ("FP32", [0.1, 16777217.0]),
):
    infer(f"infer, {kind} in JSON", {"inputs": [tensor("x", kind, [2], values)]}, kind)
infer("infer, FP16 in JSON", {"inputs": [tensor("x", "FP16", [2], [1.5, 2.5])]}, "FP16")
infer("infer, BOOL by numbers", {"inputs": [tensor("x", "BOOL", [2], [1, 0])]}, "BOOL")
infer("infer, fraction for a whole number", {"inputs": [tensor("x", "INT64", [1], [1.5])]}, "INT64")
infer("infer, number beyond INT64", {"inputs": [tensor("x", "INT64", [1], [2**64])]}, "INT64")
infer("infer, number beyond FP32", {"inputs": [tensor("x", "FP32", [1], [1e39])]}, "FP32")
infer("infer, NaN and infinity out", {"inputs": [tensor("x", "FP32", [2], [0, -1])]}, "log")
infer("infer, NaN in JSON", b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[NaN]}]}', "FP32")

# Bytes.
HEAD = {"inputs": [described("a", "FP32", [1, 2], 8), described("b", "FP32", [1, 2], 8)]}


def bytes_in(name, head, *parts, model="plus", **headers):
    body, length = binary(head, *parts)
    infer(name, body, model, **(length | {"content_type": "application/octet-stream"} | headers))


bytes_in("infer, bytes in", HEAD, BOTH)
bytes_in("infer, bytes in and out", HEAD | {"parameters": {"binary_data_output": True}}, BOTH)
bytes_in(
    "infer, one output of two as bytes",
    HEAD | {"outputs": [{"name": "sum", "parameters": {"binary_data": True}}, {"name": "difference"}]},
    BOTH,
)
bytes_in(
    "infer, JSON and bytes mixed",
    {"inputs": [tensor("a", "FP32", [1, 2], A), described("b", "FP32", [1, 2], 8)]},
    BOTH[8:],
)
bytes_in("infer, bytes too short", HEAD, BOTH[:12])
bytes_in("infer, bytes too long", HEAD, BOTH + b"1234")
bytes_in(
    "infer, size that is not the shape's",
    {"inputs": [described("a", "FP32", [1, 2], 4), described("b", "FP32", [1, 2], 8)]},
    BOTH[:12],
)
bytes_in(
    "infer, data beside bytes",
    {"inputs": [tensor("a", "FP32", [1, 2], A, parameters={"binary_data_size": 8}), described("b", "FP32", [1, 2], 8)]},
    BOTH,
)
bytes_in(
    "infer, negative size", {"inputs": [described("a", "FP32", [1, 2], -8), described("b", "FP32", [1, 2], 8)]}, BOTH
)
bytes_in("infer, header length beyond the body", HEAD, BOTH, inference_header_content_length="100000")
bytes_in("infer, header length that is no number", HEAD, BOTH, inference_header_content_length="x")
bytes_in("infer, negative header length", HEAD, BOTH, inference_header_content_length="-1")
infer(
    "infer, raw body",
    struct.pack("<2f", 0.5, 1.5),
    "FP32",
    inference_header_content_length="0",
    content_type="application/octet-stream",
)
infer("infer, raw body of two inputs", BOTH, inference_header_content_length="0")
infer("infer, raw string", b"hello", "say", inference_header_content_length="0")
bytes_in(
    "infer, BYTES as bytes",
    {"inputs": [described("x", "BYTES", [2], 9)], "parameters": {"binary_data_output": True}},
    b"\x01\0\0\0a\0\0\0\0",
    model="BYTES",
)
bytes_in("infer, BYTES cut short", {"inputs": [described("x", "BYTES", [2], 7)]}, b"\x01\0\0\0a\0\0", model="BYTES")
bytes_in(
    "infer, BYTES that say too much", {"inputs": [described("x", "BYTES", [1], 5)]}, b"\xff\xff\xff\x7fa", model="BYTES"
)
bytes_in(
    "infer, BYTES that are no UTF-8",
    {"inputs": [described("x", "BYTES", [1], 6)], "parameters": {"binary_data_output": True}},
    b"\x02\0\0\0\xff\xfe",
    model="BYTES",
)
bytes_in(
    "infer, FP16 as bytes",
    {"inputs": [described("x", "FP16", [2], 4)], "parameters": {"binary_data_output": True}},
    struct.pack("<2e", 1.5, 2.5),
    model="FP16",
)
bytes_in(
    "infer, FP16 in, JSON out", {"inputs": [described("x", "FP16", [2], 4)]}, struct.pack("<2e", 1.5, 2.5), model="FP16"
)
bytes_in(
    "infer, NaN as bytes",
    {"inputs": [described("x", "FP32", [2], 8)], "parameters": {"binary_data_output": True}},
    struct.pack("<2f", 0, -1),
    model="log",
)
bytes_in("infer, BOOL byte of 2", {"inputs": [described("x", "BOOL", [1], 1)]}, b"\x02", model="BOOL")

# Compression.
PLAIN = json.dumps(pair()).encode()
LONG = json.dumps({"inputs": [tensor("x", "FP32", [2000], [1.5] * 2000)]}).encode()
infer("infer, gzip in", gzip.compress(PLAIN, mtime=0), content_encoding="gzip")
infer("infer, deflate in", zlib.compress(PLAIN), content_encoding="deflate")
infer("infer, identity in", PLAIN, content_encoding="identity")
infer("infer, brotli in", PLAIN, content_encoding="br")
infer("infer, gzip that is none", PLAIN, content_encoding="gzip")
infer("infer, gzip cut short", gzip.compress(PLAIN, mtime=0)[:-9], content_encoding="gzip")
for taken in ("gzip", "deflate", "br", "identity", "gzip;q=0", "*", "br, gzip;q=0.5"):
    infer(f"infer, long answer by {taken}", LONG, "FP32", accept_encoding=taken)
infer("infer, short answer by gzip", PLAIN, accept_encoding="gzip")

# Classification.
SCORES = [tensor("x", "FP32", [1, 3], [0.1, 0.7, 0.2])]


def classes(name, count, **more):
    infer(
        name,
        {"inputs": SCORES, "outputs": [{"name": "scores", "parameters": {"classification": count} | more}]},
        "scores",
    )


classes("classification", 2)
classes("classification, bytes", 2, binary_data=True)
classes("classification, more than there are", 9)
classes("classification, 0", 0)
classes("classification, negative", -1)
classes("classification, a word", "two")
infer(
    "classification of two rows",
    {
        "inputs": [tensor("x", "FP32", [2, 3], [0.1, 0.7, 0.2, 3, 2, 1])],
        "outputs": [{"name": "scores", "parameters": {"classification": 1}}],
    },
    "scores",
)
infer(
    "classification of strings",
    {"inputs": [tensor("x", "BYTES", [1], ["a"])], "outputs": [{"name": "y", "parameters": {"classification": 1}}]},
    "BYTES",
)
infer(
    "classification of equals",
    {
        "inputs": [tensor("x", "FP32", [1, 3], [0.5, 0.5, 0.5])],
        "outputs": [{"name": "scores", "parameters": {"classification": 3}}],
    },
    "scores",
)

# Inference over HTTP: what does not fit.
slip("infer, no such input", first(name="c"))
slip("infer, input missing", lambda body: body["inputs"].pop())
slip("infer, input twice", lambda body: body["inputs"][1].update(name="a"))
slip("infer, input too many", lambda body: body["inputs"].append(tensor("c", "FP32", [1, 2], A)))
slip("infer, wrong type", first(datatype="FP64"))
slip("infer, no type of the protocol", first(datatype="FLOAT"))
slip("infer, wrong width", first(shape=[1, 3], data=[1, 2, 3]))
slip("infer, wrong rank", first(shape=[2]))
slip("infer, shape of no data", first(shape=[2, 2]))
slip("infer, negative shape", first(shape=[-1, 2]))
slip("infer, shape that is a string", first(shape="1,2"))
slip("infer, shape beyond all", first(shape=[2**62, 4]))
slip("infer, no shape", without("shape"))
slip("infer, no data", without("data"))
slip("infer, no datatype", without("datatype"))
slip("infer, no name", without("name"))
slip("infer, strings for numbers", first(data=["1", "2"]))
slip("infer, null among data", first(data=[1, None]))
slip("infer, rows that differ", first(shape=[2, 2], data=[1, 2, 3, 4]))
slip("infer, no inputs", lambda body: body.pop("inputs"))
slip("infer, inputs that are a number", lambda body: body.update(inputs=7))
infer(
    "infer, over the batch size",
    {"inputs": [tensor("a", "FP32", [9, 2], [1] * 18), tensor("b", "FP32", [9, 2], [1] * 18)]},
)
infer("infer, no JSON", b"hello")
infer("infer, JSON cut short", PLAIN[:-5])
infer("infer, a list", b"[]")
infer("infer, nothing", b"")
infer("infer, rubbish behind", PLAIN + b"x")
infer("infer, key twice", b'{"id":"a","id":"b",' + PLAIN[1:])
infer("infer, nested deep", b'{"inputs":' + b"[" * 20000)
infer("infer, name in UTF-16", PLAIN.decode().encode("utf-16"))
slip("infer, no such model", lambda body: None, "minus")
slip("infer, no such version", lambda body: None, "plus/versions/7")
slip("infer, no version", lambda body: None, "plus/versions/x")
get("infer by GET", "/v2/models/plus/infer")
CALLS["infer by PUT"] = lambda side: side.http("PUT", "/v2/models/plus/infer", pair())
CALLS["infer, chunked"] = lambda side: side.http("POST", "/v2/models/plus/infer", PLAIN, chunked=True)
infer("infer, 40 MiB", bytes(40 << 20), "FP32", inference_header_content_length="0")

# Priority, timeouts and a full line: one runs, one waits, one is too many.
infer("infer, priority", pair(parameters={"priority": 1}))
infer(
    "infer, priority beyond the levels",
    {"inputs": [tensor("n", "INT64", [1, 1], [8])], "parameters": {"priority": 9}},
    "slow",
)
infer("infer, priority that is a word", pair(parameters={"priority": "high"}))
infer("infer, negative timeout", pair(parameters={"timeout": -1}))
infer("infer, timeout long enough", pair(parameters={"timeout": 30_000_000}))


def slow(size, **parameters):
    return {"inputs": [tensor("n", "INT64", [1, 1], [size])], "parameters": parameters}


def behind(side, then):
    """What `then` gives while a request runs."""
    asked = threading.Thread(target=side.http, args=("POST", "/v2/models/slow/infer", slow(side.size)))
    asked.start()
    side.pause()
    try:
        return then()
    finally:
        asked.join()


@call("infer, timeout while waiting")
def waiting(side):
    start = time.monotonic()
    answer = behind(
        side,
        lambda: (
            side.http("POST", "/v2/models/slow/infer", slow(8, timeout=100_000)) | {"took": time.monotonic() - start}
        ),
    )
    return answer | {"took": "at once" if answer["took"] < 0.6 else "after the request before it"}


@call("infer, line is full")
def full(side):
    def third():
        second = threading.Thread(target=side.http, args=("POST", "/v2/models/slow/infer", slow(8)))
        second.start()
        side.pause()
        try:
            return side.http("POST", "/v2/models/slow/infer", slow(8))
        finally:
            second.join()

    return behind(side, third)


# Sequences.
def step(side, value, number, **flags):
    parameters = {"sequence_id": number} | flags
    return side.http(
        "POST", "/v2/models/sums/infer", {"inputs": [tensor("x", "FP32", [1, 1], [value])], "parameters": parameters}
    )


CALLS["sequence, first"] = lambda side: step(side, 1, 42, sequence_start=True)
CALLS["sequence, next"] = lambda side: step(side, 2, 42)
CALLS["sequence, last"] = lambda side: step(side, 3, 42, sequence_end=True)
CALLS["sequence, after its end"] = lambda side: step(side, 4, 42)
CALLS["sequence, start again"] = lambda side: step(side, 5, 42, sequence_start=True, sequence_end=True)
CALLS["sequence, never begun"] = lambda side: step(side, 1, 43)
CALLS["sequence, without a number"] = lambda side: side.http(
    "POST", "/v2/models/sums/infer", {"inputs": [tensor("x", "FP32", [1, 1], [1])]}
)
CALLS["sequence, number of 0"] = lambda side: step(side, 1, 0, sequence_start=True)
CALLS["sequence, a name where a number is wanted"] = lambda side: step(side, 1, "mine", sequence_start=True)
CALLS["sequence, negative number"] = lambda side: step(side, 1, -1, sequence_start=True)
infer("sequence, of a model without", pair(parameters={"sequence_id": 9, "sequence_start": True}))

# Generate.
SAY = "/v2/models/say/generate"
post("generate", SAY, {"text_input": "hello"})
post("generate, id", SAY, {"text_input": "hello", "id": "g1"})
post("generate, a list", SAY, {"text_input": ["hello"]})
post("generate, parameters", SAY, {"text_input": "hello", "parameters": {"priority": 1, "mine": "x"}})
post("generate, unknown key", SAY, {"text_input": "hello", "temperature": 0.5})
post("generate, input missing", SAY, {"id": "g1"})
post("generate, wrong type", SAY, {"text_input": 7})
post("generate, no JSON", SAY, b"hello")
post("generate, no such model", "/v2/models/minus/generate", {"text_input": "hello"})
post("generate, numbers", "/v2/models/plus/generate", {"a": A, "b": B})
post("generate, stream", SAY + "_stream", {"text_input": "hello"})
post("generate, stream, input missing", SAY + "_stream", {})
post("generate, stream, no such model", "/v2/models/minus/generate_stream", {"text_input": "hello"})
get("generate by GET", SAY)
