"""tritonclient's sequences on a worker that serves `sums`: usage FILE ADDRESS."""

import sys

import numpy
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

client = triton.InferenceServerClient(url=sys.argv[1])


def add(number, sequence, start=False, end=False):
    x = triton.InferInput("x", [1, 1], "FP32")
    x.set_data_from_numpy(numpy.array([[number]], numpy.float32))
    answer = client.infer("sums", [x], sequence_id=sequence, sequence_start=start, sequence_end=end)
    return [answer.as_numpy(name)[0, 0] for name in ("y", "flags", "whose")]


metadata = client.get_model_metadata("sums")
assert [one["name"] for one in metadata["inputs"]] == ["x"], metadata
assert [one["name"] for one in metadata["outputs"]] == ["y", "flags", "whose"], metadata

assert add(1, 7, start=True) == [1, 1, 7]
assert add(10, 8, start=True) == [10, 1, 8]
assert add(2, 7) == [3, 0, 7]
assert add(20, 8) == [30, 0, 8]
assert add(3, 7, end=True) == [6, 2, 7]
assert add(30, 8) == [60, 0, 8]
assert add(5, 8, start=True) == [5, 1, 8], "a sequence that starts again starts from nothing"
assert add(1, 9, start=True, end=True) == [1, 3, 9]
for sequence in (7, 9):
    try:
        add(1, sequence)
    except InferenceServerException as error:
        assert "sequence_start" in error.message(), error
    else:
        raise AssertionError("a sequence went on that has ended")
print("ok")
