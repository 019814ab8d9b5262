"""models.py ENCODER FOLDER: the two graphs that workers are compared on.

`minilm` is the encoder with masked mean pooling and L2 normalisation behind it, so that servers without any of their own
answer the same; `tiny` is a perceptron that takes 10 µs."""
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto as Type
from onnx import helper, numpy_helper


def pooled(encoder):
    """`sentence_embedding` [batch, 384] of `last_hidden_state` [batch, sequence, 384]."""
    model = onnx.load(encoder)
    graph = model.graph
    for name, value in (("two", np.array([2])), ("one", np.array([1])), ("least", np.array(1e-9, np.float32))):
        graph.initializer.append(numpy_helper.from_array(value, f"pool_{name}"))
    steps = [
        ("Cast", ["attention_mask"], "mask", {"to": Type.FLOAT}),
        ("Unsqueeze", ["mask", "two"], "wide", {}),
        ("Mul", ["last_hidden_state", "wide"], "shown", {}),
        ("ReduceSum", ["shown", "one"], "sum", {"keepdims": 0}),
        ("ReduceSum", ["mask", "one"], "count", {"keepdims": 1}),
        ("Max", ["count", "least"], "some", {}),
        ("Div", ["sum", "some"], "mean", {}),
        ("Mul", ["mean", "mean"], "squares", {}),
        ("ReduceSum", ["squares", "one"], "square", {"keepdims": 1}),
        ("Sqrt", ["square"], "length", {}),
        ("Max", ["length", "least"], "safe", {}),
        ("Div", ["mean", "safe"], "vector", {}),
    ]
    given = {"attention_mask", "last_hidden_state"}
    for kind, inputs, output, attributes in steps:
        inputs = [name if name in given else f"pool_{name}" for name in inputs]
        output = "sentence_embedding" if output == "vector" else f"pool_{output}"
        graph.node.append(helper.make_node(kind, inputs, [output], **attributes))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("sentence_embedding", Type.FLOAT, ["batch", 384]))
    return model


def perceptron():
    """`logits` [batch, 1] of `features` [batch, 128]."""
    random, nodes, weights, before = np.random.default_rng(1), [], [], "features"
    sizes = [128, 256, 64, 1]
    for layer, (narrow, wide) in enumerate(zip(sizes, sizes[1:])):
        values = (random.standard_normal((narrow, wide)) * narrow**-0.5).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"weights_{layer}"))
        last = layer == len(sizes) - 2
        after = "logits" if last else f"sum_{layer}"
        nodes.append(helper.make_node("MatMul", [before, f"weights_{layer}"], [after]))
        if not last:
            nodes.append(helper.make_node("Relu", [after], [f"layer_{layer}"]))
            before = f"layer_{layer}"
    features = helper.make_tensor_value_info("features", Type.FLOAT, ["batch", 128])
    logits = helper.make_tensor_value_info("logits", Type.FLOAT, ["batch", 1])
    graph = helper.make_graph(nodes, "tiny", [features], [logits], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


for name, model in (("minilm", pooled(sys.argv[1])), ("tiny", perceptron())):
    folder = pathlib.Path(sys.argv[2], name, "1")
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(folder / "model.onnx"))
