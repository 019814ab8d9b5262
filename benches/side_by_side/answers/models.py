"""models.py FOLDER: two repositories of the same small models, FOLDER/forebay and FOLDER/triton.

Triton's ONNX Runtime backend is in no package; `triton_model.py` in its Python backend stands in for it.
"""

import pathlib
import shutil
import sys

from onnx import TensorProto as Type
from onnx import helper, save

HERE = pathlib.Path(__file__).resolve().parent
TYPES = {
    "BOOL": Type.BOOL,
    "INT64": Type.INT64,
    "UINT64": Type.UINT64,
    "FP16": Type.FLOAT16,
    "FP32": Type.FLOAT,
    "FP64": Type.DOUBLE,
    "BYTES": Type.STRING,
}
SUMS = """sequence_batching { max_sequence_idle_microseconds: 5000000 control_input [
  { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },
  { name: "ID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] } ] %s }"""
STATE = 'state [ { input_name: "before" output_name: "after" data_type: TYPE_FP32 dims: 1 } ]'
TWICE = """platform: "ensemble" max_batch_size: 8
input [ { name: "a" data_type: TYPE_FP32 dims: 2 }, { name: "b" data_type: TYPE_FP32 dims: 2 } ]
output [ { name: "total" data_type: TYPE_FP32 dims: 2 } ]
ensemble_scheduling { step [
  { model_name: "plus" model_version: -1 input_map { key: "a" value: "a" } input_map { key: "b" value: "b" }
    output_map { key: "sum" value: "once" } },
  { model_name: "plus" model_version: -1 input_map { key: "a" value: "once" } input_map { key: "b" value: "b" }
    output_map { key: "sum" value: "total" } } ] }"""


class Model:
    """A graph, and how both servers are told of it. `hidden` tensors are the graph's and not the clients'."""

    def __init__(self, nodes, inputs, outputs, rows=0, settings="", triton="", hidden=()):
        self.nodes, self.inputs, self.outputs, self.rows = nodes, inputs, outputs, rows
        self.settings, self.triton, self.hidden = settings, triton or settings, hidden

    def save(self, file):
        def described(tensors):
            return [helper.make_tensor_value_info(name, TYPES[kind], shape) for name, (kind, shape) in tensors.items()]

        nodes = [
            helper.make_node(kind, given, gives, **more)
            for kind, given, gives, *rest in self.nodes
            for more in [rest[0] if rest else {}]
        ]
        graph = helper.make_graph(nodes, "graph", described(self.inputs), described(self.outputs))
        file.parent.mkdir(parents=True)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))

    def config(self, triton):
        words = [f"max_batch_size: {self.rows}", self.triton if triton else self.settings]
        words += ['backend: "python" instance_group { kind: KIND_CPU }'] if triton else []
        for side, tensors in (("input", self.inputs), ("output", self.outputs)):
            for name, (kind, shape) in tensors.items():
                if name in self.hidden:
                    continue
                dims = [-1 if isinstance(size, str) else size for size in shape][1 if self.rows else 0 :]
                kind = "STRING" if kind == "BYTES" else kind
                label = ' label_filename: "labels.txt"' if name == "scores" else ""
                words.append(f'{side} {{ name: "{name}" data_type: TYPE_{kind} dims: {dims}{label} }}')
        return "\n".join(words)


def identity(kind, shape, given="x", gives="y", **more):
    return Model([("Identity", [given], [gives])], {given: (kind, shape)}, {gives: (kind, shape)}, **more)


def models():
    pair, one = ("FP32", ["batch", 2]), ("FP32", ["batch", 1])
    known = {kind: identity(kind, ["n"]) for kind in TYPES}
    known["plus"] = Model(
        [("Add", ["a", "b"], ["sum"]), ("Sub", ["a", "b"], ["difference"])],
        {"a": pair, "b": pair},
        {"sum": pair, "difference": pair},
        rows=8,
    )
    known["broken"] = Model(
        [("Add", ["a", "b"], ["sum"])],
        {"a": pair, "b": pair},
        {"sum": pair},
        rows=8,
    )
    known["scores"] = identity("FP32", ["batch", 3], gives="scores", rows=4)
    known["say"] = identity("BYTES", [1], given="text_input", gives="text_output")
    known["log"] = Model([("Log", ["x"], ["y"])], {"x": ("FP32", ["n"])}, {"y": ("FP32", ["n"])})
    # As slow as `n` says: an n-by-n matrix is multiplied three times.
    known["slow"] = Model(
        [
            ("ReduceMax", ["n"], ["most"], {"keepdims": 0}),
            ("Unsqueeze", ["most", "axes"], ["side"]),
            ("Concat", ["side", "side"], ["shape"], {"axis": 0}),
            ("ConstantOfShape", ["shape"], ["m0"]),
            ("MatMul", ["m0", "m0"], ["m1"]),
            ("MatMul", ["m1", "m0"], ["m2"]),
            ("MatMul", ["m2", "m0"], ["m3"]),
            ("ReduceMean", ["m3"], ["mean"], {"keepdims": 0}),
            ("Cast", ["n"], ["size"], {"to": Type.FLOAT}),
            ("Mul", ["size", "mean"], ["y"]),
        ],
        {"n": ("INT64", ["batch", 1])},
        {"y": one},
        rows=1,
        settings="dynamic_batching { priority_levels: 2 default_priority_level: 2 default_queue_policy { "
        "timeout_action: REJECT allow_timeout_override: true max_queue_size: 1 } }",
    )
    known["slow"].nodes.insert(0, ("Constant", [], ["axes"], {"value_ints": [0]}))
    known["sums"] = Model(
        [
            ("Sub", ["one", "START"], ["kept"]),
            ("Mul", ["before", "kept"], ["earlier"]),
            ("Add", ["x", "earlier"], ["y"]),
            ("Identity", ["y"], ["after"]),
            ("Identity", ["ID"], ["whose"]),
        ],
        {"x": one, "before": one, "START": one, "ID": ("UINT64", ["batch", 1])},
        {"y": one, "after": one, "whose": ("UINT64", ["batch", 1])},
        rows=4,
        settings=SUMS % STATE,
        triton=SUMS % "",
        hidden={"before", "after", "START", "ID"},
    )
    known["sums"].nodes.insert(0, ("Constant", [], ["one"], {"value_float": 1.0}))
    return known


def main(folder):
    for name, model in models().items():
        for server in ("forebay", "triton"):
            # What can't be loaded comes once the servers are ready, as they would not be with it.
            home = folder / (f"{server}-later" if name == "broken" else server) / name
            model.save(home / "1/model.onnx")
            (home / "config.pbtxt").write_text(model.config(server == "triton"))
            if name == "broken":
                (home / "1/model.onnx").write_bytes(b"no graph")
            if name == "scores":
                (home / "labels.txt").write_text("cat\ndog\n")
            if server == "triton":
                shutil.copy(HERE / "triton_model.py", home / "1/model.py")
    for server in ("forebay", "triton"):
        (folder / server / "twice/1").mkdir(parents=True)
        (folder / server / "twice/config.pbtxt").write_text(TWICE)


main(pathlib.Path(sys.argv[1]))
