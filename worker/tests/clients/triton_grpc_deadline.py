"""A call that waits in line behind others until its deadline passes, against a worker that serves `slow`: usage FILE
ADDRESS."""

import sys

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

client = triton.InferenceServerClient(url=sys.argv[1])


def size(n):
    tensor = triton.InferInput("n", [1], "INT64")
    tensor.set_data_from_numpy(np.array([n], dtype=np.int64))
    return [tensor]


answers = []
for _ in range(3):
    client.async_infer("slow", size(2500), callback=lambda result, error: answers.append((result, error)))
try:
    client.infer("slow", size(1), client_timeout=0.2)
except InferenceServerException as error:
    assert error.status() == "StatusCode.DEADLINE_EXCEEDED", error
else:
    raise AssertionError("it was answered in time")
# Behind the three, so that nothing is left to run when the worker is told to stop.
while len(answers) < 3:
    assert client.is_server_live()
assert all(error is None for _, error in answers), answers
print("ok")
