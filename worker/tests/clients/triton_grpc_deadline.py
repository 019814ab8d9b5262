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
begun = 0
passed = False
# Mostly the first time; again where the others came into line too late to be waited for.
while not passed:
    begun += 3
    for _ in range(3):
        client.async_infer("slow", size(2500), callback=lambda result, error: answers.append((result, error)))
    try:
        answers.append((client.infer("slow", size(1), client_timeout=0.2), None))
        begun += 1
    except InferenceServerException as error:
        assert error.status() == "StatusCode.DEADLINE_EXCEEDED", error
        passed = True
    assert begun < 40, "it is always answered in time"
while len(answers) < begun:
    assert client.is_server_live()
assert all(error is None for _, error in answers), answers
# What ran is what was answered; the one whose deadline passed failed unrun.
numbers = client.get_inference_statistics("slow").model_stats[0]
assert numbers.execution_count == begun == numbers.inference_stats.success.count, numbers
assert numbers.inference_stats.fail.count == 1, numbers
print("ok")
