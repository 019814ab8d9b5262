"""tritonclient's infer calls over HTTP against a worker that serves `plus`, `scores`, `BYTES`, `FP16` and `log`: usage
FILE ADDRESS."""

import sys

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

client = triton.InferenceServerClient(url=sys.argv[1])


def given(name, array, datatype, binary=True):
    tensor = triton.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


a = np.array([[1, 2]], dtype=np.float32)
b = np.array([[10, 20]], dtype=np.float32)
extensions = client.get_server_metadata()["extensions"]
assert {"binary_tensor_data", "classification", "parameters"} <= set(extensions), extensions

for binary in (True, False):
    for packed in (None, "gzip", "deflate"):
        inputs = [given("a", a, "FP32", binary), given("b", b, "FP32", binary)]
        outputs = [triton.InferRequestedOutput("sum", binary_data=binary)]
        for wanted in (outputs, None):
            answer = client.infer(
                "plus",
                inputs,
                outputs=wanted,
                request_id="r7",
                request_compression_algorithm=packed,
                response_compression_algorithm=packed,
                parameters={"mine": "yes"},
            )
            assert np.array_equal(answer.as_numpy("sum"), a + b), (binary, packed)
            shown = answer.get_response()
            assert shown["id"] == "r7" and shown["parameters"] == {"mine": "yes"}, shown

waiting = client.async_infer("plus", [given("a", a, "FP32"), given("b", b, "FP32")], priority=1, timeout=30_000_000)
assert np.array_equal(waiting.get_result().as_numpy("difference"), a - b)

scores = np.array([[0.1, 0.7, 0.2]], dtype=np.float32)
for binary in (True, False):
    best = triton.InferRequestedOutput("scores", binary_data=binary, class_count=2)
    answer = client.infer("scores", [given("x", scores, "FP32")], outputs=[best])
    classes = [text.decode() if binary else text for text in answer.as_numpy("scores")[0]]
    assert classes == ["0.700000:1:dog", "0.200000:2"], classes

words = np.array(["", "größer"], dtype=np.object_)
answer = client.infer("BYTES", [given("x", words, "BYTES")])
assert [word.decode() for word in answer.as_numpy("y")] == ["", "größer"]

halves = np.array([1.5, np.inf], dtype=np.float16)
assert np.array_equal(client.infer("FP16", [given("x", halves, "FP16")]).as_numpy("y"), halves)

zero = np.array([0, -1], dtype=np.float32)
exact = client.infer("log", [given("x", zero, "FP32")]).as_numpy("y")
assert np.isneginf(exact[0]) and np.isnan(exact[1]), exact
json = client.infer("log", [given("x", zero, "FP32")], outputs=[triton.InferRequestedOutput("y", binary_data=False)])
assert json.get_output("y")["data"] == [None, None]
assert json.get_output("y")["parameters"] == {"not_finite": 2}

try:
    client.get_system_shared_memory_status()
except InferenceServerException as error:
    assert error.status() == "501" and "shared memory" in error.message(), error
else:
    raise AssertionError("shared memory was served")
print("ok")
