//! Which of ONNX Runtime's execution providers computes, and what its refusal means.
//!
//! Told a card, a session is never built on the CPU instead. The library's own habit is to log an error that nobody
//! reads and to serve at a tenth of the speed (microsoft/onnxruntime#23372 and its kin), and `is_available()` only says
//! what it was compiled with: it was true with neither a card nor CUDA on the machine. So a provider is registered with
//! error-on-failure, and the one proof that it works is a session that was built with it. Its refusal is told as it
//! came, with what was wanted and the way out. An option that the provider does not know, or can't read, is no refusal:
//! with it every card would be refused, so the CPU does not stand in.
//!
//! What a card has no kernel for ONNX Runtime still runs on the CPU, node by node (of graphs in int8, most of it).
//! Which nodes those are it does not tell in the version of its interface that is asked for here.

use std::fmt;
use std::path::Path;

use ort::ep::{
    ArbitrarilyConfigurableExecutionProvider, CUDA, ExecutionProviderDispatch, TensorRT,
};
use ort::session::builder::SessionBuilder;

use crate::units::Device;

/// What a session is built for.
#[derive(Clone, Debug)]
pub struct Means {
    /// Threads of one run on the CPU.
    pub threads: usize,
    /// What computes.
    pub device: Device,
    /// Which card, counted from 0.
    pub card: u32,
    /// Options of the execution provider, under ONNX Runtime's names.
    pub options: Vec<(String, String)>,
}

impl Means {
    /// So many threads of the CPU.
    pub fn cpu(threads: usize) -> Means {
        Means {
            threads,
            device: Device::Cpu,
            card: 0,
            options: vec![],
        }
    }
}

/// Why a graph was not loaded.
#[derive(Debug)]
pub enum Unloaded {
    /// The device can't be had.
    Refused(String),
    /// The graph itself, an option, or anything else.
    Graph(String),
}

impl fmt::Display for Unloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Unloaded::Refused(problem) | Unloaded::Graph(problem)) = self;
        f.write_str(problem)
    }
}

/// Registers what computes; nothing is needed for the CPU.
pub fn register(builder: SessionBuilder, means: &Means) -> Result<SessionBuilder, Unloaded> {
    let providers = providers(means);
    builder
        .with_execution_providers(providers)
        .map_err(|error| unregistered(means.device, error.message()))
}

/// The providers in order of preference.
fn providers(means: &Means) -> Vec<ExecutionProviderDispatch> {
    // No machine has so many cards that the number does not fit.
    let card = i32::try_from(means.card).unwrap_or(i32::MAX);
    let cuda = CUDA::default().with_device_id(card);
    match means.device {
        Device::Cpu => vec![],
        Device::Cuda => vec![with(cuda, means).build().error_on_failure()],
        Device::TensorRt => {
            let first = with(TensorRT::default().with_device_id(card), means);
            let second = cuda.build().error_on_failure();
            vec![first.build().error_on_failure(), second]
        }
    }
}

fn with<P: ArbitrarilyConfigurableExecutionProvider>(provider: P, means: &Means) -> P {
    let options = means.options.iter();
    options.fold(provider, |provider, (key, value)| {
        provider.with_arbitrary_config(key, value)
    })
}

/// A failure to register a provider, which is the device's unless an option is wrong.
fn unregistered(device: Device, said: &str) -> Unloaded {
    // The card's number, which is asked for here, is an option too: of what goes wrong with it, the card is to blame.
    if !said.contains("rovider option") || said.contains("\"device_id\"") {
        return refused(device, said);
    }
    let said = plain(said);
    Unloaded::Graph(format!(
        "config.pbtxt: gpu_execution_accelerator: {said}; expected parameters of ONNX Runtime's execution provider"
    ))
}

/// A failure to build a session of this graph, which is the device's where it speaks of one. The graph's path, which
/// the library repeats, speaks of nothing.
pub fn failed(device: Device, graph: &Path, said: &str) -> Unloaded {
    let of_card = [
        "CUDA", "cuda", "CUDNN", "cudnn", "CUBLAS", "TensorRT", "TRT",
    ];
    let words = said.replace(&*graph.to_string_lossy(), "");
    if device != Device::Cpu && of_card.iter().any(|word| words.contains(word)) {
        return refused(device, said);
    }
    Unloaded::Graph(said.to_owned())
}

/// What was wanted, what the library said, and the way out.
fn refused(device: Device, said: &str) -> Unloaded {
    let (said, way_out) = (plain(said), way_out(said));
    Unloaded::Refused(format!(
        "\"{device}\" was wanted, and ONNX Runtime refused it: {said}; way out: {way_out}, or ask for the CPU: device \
         \"cpu\", or \"cpu\" as fallback"
    ))
}

/// The library's words without the places of its own source, before the cause, and the state of the machine, after it.
fn plain(said: &str) -> &str {
    let cause = match said.split_once("[ONNXRuntimeError]") {
        Some((_, code)) => code.splitn(4, " : ").nth(3).unwrap_or(code),
        None => said,
    };
    let cause = cause.split(" ; GPU=").next().unwrap_or(cause);
    cause.trim_end_matches(['.', ' ']).trim()
}

/// What to do about it, by what the library said.
fn way_out(said: &str) -> &'static str {
    const TABLE: [(&str, &str); 6] = [
        (
            "not enabled in this build",
            "this library is the one for CPUs; `pip install --target DIR \"onnxruntime-gpu[cuda,cudnn]\"` brings the other, \
             which --onnxruntime DIR/onnxruntime/capi/libonnxruntime.so.VERSION names",
        ),
        (
            "libcuda.so",
            "NVIDIA's driver is not on this machine; install it, or give the container its cards",
        ),
        (
            "libnv",
            "`pip install --target DIR \"tensorrt-cu13-libs<11\"`, into the folder that has onnxruntime-gpu",
        ),
        (
            "cannot open shared object file",
            "`pip install --target DIR \"onnxruntime-gpu[cuda,cudnn]\"` brings what is missing, into the folder that has \
             ONNX Runtime's library",
        ),
        (
            "CUDA failure",
            "see whether `nvidia-smi` shows the card and a driver that is new enough",
        ),
        ("", "see whether the graph runs with device \"cpu\""),
    ];
    let row = TABLE.iter().find(|(words, _)| said.contains(words));
    row.map_or("", |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_was_wanted_what_was_said_and_the_way_out() {
        for (said, kept, advice) in [
            (
                "CUDA execution provider is not enabled in this build. ",
                "refused it: CUDA execution provider is not enabled in this build;",
                "onnxruntime-gpu[cuda,cudnn]\"` brings the other",
            ),
            (
                "/onnxruntime_src/bridge.cc:2043 Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library /x/cuda.so with \
                 error: libcublasLt.so.13: cannot open shared object file: No such file or directory",
                "refused it: Failed to load library /x/cuda.so with error: libcublasLt.so.13: cannot",
                "brings what is missing",
            ),
            (
                "Failed to load library: libcuda.so.1: cannot open shared object file",
                "libcuda.so.1",
                "driver is not on this machine",
            ),
            (
                "Failed to load library: libnvinfer.so.10: cannot open shared object file",
                "libnvinfer.so.10",
                "tensorrt-cu13-libs",
            ),
            (
                "[ONNXRuntimeError] : 1 : FAIL : Failed to parse provider option \"device_id\": CUDA failure 100: no \
                 CUDA-capable device is detected ; GPU=-1 ; hostname=vm ; file=/onnxruntime_src/info.cc",
                "no CUDA-capable device is detected; way out",
                "nvidia-smi",
            ),
        ] {
            let Unloaded::Refused(told) = refused(Device::Cuda, said) else {
                panic!("not a refusal")
            };
            for words in ["\"cuda\" was wanted", kept, advice, "as fallback"] {
                assert!(told.contains(words), "{words:?} is missing in {told:?}");
            }
        }
    }

    #[test]
    fn a_graph_that_is_wrong_is_no_refusal() {
        let path = Path::new("/models/cuda/1/model.onnx");
        let graph = |device, said: &str| matches!(failed(device, path, said), Unloaded::Graph(_));
        assert!(graph(Device::Cuda, "no such file"));
        assert!(graph(Device::Cpu, "CUDA failure 100"));
        assert!(!graph(Device::Cuda, "CUDA failure 100"));
        let parsing = "Load model from /models/cuda/1/model.onnx failed:Protobuf parsing failed.";
        assert!(graph(Device::Cuda, parsing));
        assert!(!graph(Device::Cuda, &format!("{parsing} CUDA failure 2")));
    }

    #[test]
    fn an_option_that_is_wrong_is_no_refusal_and_is_named() {
        for said in [
            "Unknown provider option: \"gpu_men_limit\".",
            "[ONNXRuntimeError] : 1 : FAIL : provider_options_utils.h:148 Parse Failed to parse provider option \
             \"gpu_men_limit\": Failed to parse value \"much\"",
        ] {
            let Unloaded::Graph(told) = unregistered(Device::Cuda, said) else {
                panic!("taken for a refusal: {said}")
            };
            assert!(told.contains("gpu_execution_accelerator: "), "{told}");
            assert!(
                told.contains("provider option") && told.contains("\"gpu_men_limit\""),
                "{told}"
            );
        }
        for said in [
            "Failed to parse provider option \"device_id\": CUDA failure 100: no CUDA-capable device",
            "Failed to parse provider option \"device_id\": Invalid device ID: 7, must be between 0 and 1",
            "CUDA execution provider is not enabled in this build.",
        ] {
            let refusal = unregistered(Device::Cuda, said);
            assert!(matches!(refusal, Unloaded::Refused(_)), "{said}");
        }
    }
}
