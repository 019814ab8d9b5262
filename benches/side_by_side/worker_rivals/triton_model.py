"""ONNX Runtime in Triton's Python backend: the backend of its own is in no package, this stands in for it."""
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
        options = ort.SessionOptions()
        options.intra_op_num_threads = 2
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # as in Forebay's worker
        self.session = ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        self.inputs = [one.name for one in self.session.get_inputs()]
        self.output = self.session.get_outputs()[0].name

    def execute(self, requests):
        parts = [[triton.get_input_tensor_by_name(one, name).as_numpy() for one in requests] for name in self.inputs]
        (output,) = self.session.run(None, {name: np.concatenate(part) for name, part in zip(self.inputs, parts)})
        ends = np.cumsum([len(one) for one in parts[0]])[:-1]
        rows = np.split(output, ends)
        return [triton.InferenceResponse([triton.Tensor(self.output, one)]) for one in rows]
