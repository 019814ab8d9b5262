"""What is asked of both servers: name → what makes the call, given a `side`. The files `of_*.py` fill it, in this
order: inference over HTTP, what is told and changed, gRPC, tritonclient.

A side is asked by `side.http(method, path, body, **headers)` and `side.grpc(method, message)`; what comes back is
compared after `told.py` has taken out what may differ from run to run.
"""

import json
import struct

CALLS = {}
A, B = [1.0, 2.0], [10.0, 20.0]
BOTH = struct.pack("<4f", *A, *B)


def call(name):
    def keep(function):
        assert name not in CALLS, name
        CALLS[name] = function
        return function

    return keep


def tensor(name, kind, shape, data, **more):
    return {"name": name, "shape": shape, "datatype": kind, "data": data} | more


def pair(**more):
    return {"inputs": [tensor("a", "FP32", [1, 2], A), tensor("b", "FP32", [1, 2], B)]} | more


def get(name, path):
    CALLS[name] = lambda side: side.http("GET", path)


def post(name, path, body=None, **headers):
    CALLS[name] = lambda side: side.http("POST", path, body, **headers)


def infer(name, body, model="plus", **headers):
    post(name, f"/v2/models/{model}/infer", body, **headers)


def slip(name, change, model="plus"):
    """The good request with one thing wrong."""
    body = json.loads(json.dumps(pair()))
    change(body)
    infer(name, body, model)


def first(**fields):
    return lambda body: body["inputs"][0].update(fields)


def without(field):
    return lambda body: body["inputs"][0].pop(field)


def binary(head, *parts):
    text = json.dumps(head).encode()
    return b"".join([text, *parts]), {"inference_header_content_length": str(len(text))}


def described(name, kind, shape, size):
    return {"name": name, "shape": shape, "datatype": kind, "parameters": {"binary_data_size": size}}
