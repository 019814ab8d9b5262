"""ONNX Runtime in Triton's Python backend, each request by itself; a sequence's state is kept by its number."""

import os
import pathlib
import sys

sys.path.append(os.environ["PYTHONPATH"])  # this Python does not heed it

import numpy as np  # noqa: E402
import onnxruntime as ort  # noqa: E402
import triton_python_backend_utils as triton  # noqa: E402


class TritonPythonModel:
    def initialize(self, args):
        graph = pathlib.Path(args["model_repository"]) / args["model_version"] / "model.onnx"
        self.session = ort.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
        self.states = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        given = {one.name(): one.as_numpy() for one in request.inputs()}
        outputs = self.run(given)
        if "after" in outputs:
            self.states[given["ID"].item()] = outputs.pop("after")
        wanted = [
            triton.Tensor(name, value) for name, value in outputs.items() if name in request.requested_output_names()
        ]
        return triton.InferenceResponse(wanted)

    def run(self, given):
        names = [one.name for one in self.session.get_outputs()]
        strings = [value for value in given.values() if value.dtype == object]
        if strings:  # graphs of strings give back what they take; Python's strings would refuse what is no UTF-8
            return dict(zip(names, strings))
        if "before" in [one.name for one in self.session.get_inputs()]:
            given = given | {"before": self.states.get(given["ID"].item(), np.zeros((1, 1), np.float32))}
        return dict(zip(names, self.session.run(None, given)))
