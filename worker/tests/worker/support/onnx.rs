//! Writes ONNX files: just enough protobuf (onnx/onnx.proto3) for graphs of a few nodes.

/// Element types as ONNX numbers them.
#[derive(Clone, Copy)]
#[repr(u64)]
pub enum Type {
    Float = 1,
    Uint8 = 2,
    Int8 = 3,
    Uint16 = 4,
    Int16 = 5,
    Int32 = 6,
    Int64 = 7,
    String = 8,
    Bool = 9,
    Float16 = 10,
    Double = 11,
    Uint32 = 12,
    Uint64 = 13,
    Bfloat16 = 16,
}

/// A message under construction.
#[derive(Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(mut self, mut value: u64) -> Message {
        while value >= 0x80 {
            self.0.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn number(self, field: u64, value: u64) -> Message {
        self.varint(field << 3).varint(value)
    }

    fn bytes(self, field: u64, bytes: &[u8]) -> Message {
        let mut message = self.varint(field << 3 | 2).varint(bytes.len() as u64);
        message.0.extend_from_slice(bytes);
        message
    }

    fn text(self, field: u64, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u64, inner: &Message) -> Message {
        self.bytes(field, &inner.0)
    }
}

/// A graph under construction.
#[derive(Default)]
pub struct Graph(Message);

impl Graph {
    /// A node without attributes.
    pub fn node(self, operator: &str, inputs: &[&str], outputs: &[&str]) -> Graph {
        self.node_with(operator, inputs, outputs, &[])
    }

    /// A node with whole-number attributes.
    pub fn node_with(
        self,
        operator: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[(&str, u64)],
    ) -> Graph {
        let mut node = Message::default();
        for input in inputs {
            node = node.text(1, input);
        }
        for output in outputs {
            node = node.text(2, output);
        }
        node = node.text(4, operator);
        for (name, value) in attributes {
            let attribute = Message::default()
                .text(1, name)
                .number(3, *value)
                .number(20, 2);
            node = node.message(5, &attribute);
        }
        Graph(self.0.message(1, &node))
    }

    /// A constant of floats.
    pub fn floats(self, name: &str, shape: &[u64], values: &[f32]) -> Graph {
        let raw: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.constant(name, shape, Type::Float, &raw)
    }

    /// A constant of whole numbers.
    pub fn whole(self, name: &str, shape: &[u64], values: &[i64]) -> Graph {
        let raw: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.constant(name, shape, Type::Int64, &raw)
    }

    fn constant(self, name: &str, shape: &[u64], kind: Type, raw: &[u8]) -> Graph {
        let mut tensor = Message::default();
        for size in shape {
            tensor = tensor.number(1, *size);
        }
        let tensor = tensor.number(2, kind as u64).text(8, name).bytes(9, raw);
        Graph(self.0.message(5, &tensor))
    }

    /// An input; an axis is a number, or a name where any size goes.
    pub fn input(self, name: &str, kind: Type, axes: &[&str]) -> Graph {
        Graph(self.0.message(11, &value(name, kind, axes)))
    }

    /// An output.
    pub fn output(self, name: &str, kind: Type, axes: &[&str]) -> Graph {
        Graph(self.0.message(12, &value(name, kind, axes)))
    }

    /// The file.
    pub fn model(self) -> Vec<u8> {
        let opset = Message::default().number(2, 17);
        let graph = self.0.text(2, "test");
        Message::default()
            .number(1, 8)
            .message(8, &opset)
            .message(7, &graph)
            .0
    }
}

fn value(name: &str, kind: Type, axes: &[&str]) -> Message {
    let mut shape = Message::default();
    for axis in axes {
        let dimension = match axis.parse() {
            Ok(size) => Message::default().number(1, size),
            Err(_) => Message::default().text(2, axis),
        };
        shape = shape.message(1, &dimension);
    }
    let tensor = Message::default().number(1, kind as u64).message(2, &shape);
    let kind = Message::default().message(1, &tensor);
    Message::default().text(1, name).message(2, &kind)
}
