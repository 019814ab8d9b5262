//! Texts through an embedding model: read, cut into batches, run, pool.
//!
//! Rows are sorted by length before they are cut into batches, so that a short text is not padded to a long one's
//! length, and put back in order afterwards. A request's batches run one after the other: it holds one place in the
//! queue however many texts it brings. Tokenising and pooling are milliseconds of CPU and run off the reactor.

use std::sync::Arc;

use crate::fault::{Fault, Kind};
use crate::line::Model;
use crate::repository::Embedding;
use crate::runner::Runner;
use crate::tensor::{Datatype, Signature, TensorSpec};
use crate::text::{Feed, Reader, Row, vectors};
use crate::units::Pooling;

/// The most texts of one request that run together.
const BATCH: usize = 32;

/// What a client wants embedded.
#[derive(Debug, PartialEq)]
pub enum Inputs {
    /// Texts.
    Texts(Vec<String>),
    /// Texts that the client has tokenised itself.
    Ids(Vec<Row>),
}

/// Vectors in the order of the inputs, and the tokens that were read for them.
#[derive(Debug)]
pub struct Embedded {
    /// One per input.
    pub vectors: Vec<Vec<f32>>,
    /// After truncation, special tokens included, padding not.
    pub tokens: usize,
}

/// How texts go into a graph and vectors come out.
pub struct Embedder {
    reader: Reader,
    feeds: Vec<Feed>,
    output: usize,
    pooling: Pooling,
    normalize: bool,
}

impl Embedder {
    /// Fits an embedding model's description to its graph, or says why they don't fit.
    pub fn fit(plan: &Embedding, signature: &Signature) -> Result<Embedder, String> {
        let reader = Reader::open(&plan.tokenizer, plan.max_tokens)
            .map_err(|problem| format!("{}: {problem}", plan.tokenizer.display()))?;
        let feeds = signature
            .inputs
            .iter()
            .map(feed)
            .collect::<Result<_, _>>()?;
        Ok(Embedder {
            reader,
            feeds,
            output: output(signature, plan.pooling)?,
            pooling: plan.pooling,
            normalize: plan.normalize,
        })
    }

    fn read(&self, inputs: Inputs) -> Result<Vec<Row>, Fault> {
        let at = |index: usize, problem: &str| {
            Fault::bad(format!("input[{index}] {problem}")).param("input")
        };
        let rows: Vec<Result<Row, Fault>> = match inputs {
            Inputs::Texts(texts) => (texts.iter().enumerate())
                .map(|(index, text)| match text.is_empty() {
                    true => Err(at(index, "is empty")),
                    false => self
                        .reader
                        .read(text)
                        .map_err(|problem| at(index, &problem)),
                })
                .collect(),
            Inputs::Ids(rows) => (rows.into_iter().enumerate())
                .map(|(index, ids)| match ids.is_empty() {
                    true => Err(at(index, "is empty")),
                    false => self.reader.adopt(ids).map_err(|id| {
                        at(
                            index,
                            &format!("holds {id}, which is no token of this model"),
                        )
                    }),
                })
                .collect(),
        };
        rows.into_iter().collect()
    }

    /// One batch: rows in, vectors out.
    async fn run(
        self: &Arc<Self>,
        runner: &Runner,
        rows: Vec<Row>,
    ) -> Result<Vec<Vec<f32>>, Fault> {
        let pad = self.reader.pad();
        let inputs = self.feeds.iter().filter_map(|feed| feed.tensor(&rows, pad));
        let outputs = runner.run(inputs.collect(), vec![self.output]).await?;
        let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
        let this = Arc::clone(self);
        off_reactor(move || match outputs.first() {
            Some(output) => vectors(output, &lengths, this.pooling, this.normalize)
                .map_err(|problem| Fault::new(Kind::EngineFailed, problem)),
            None => Err(Fault::new(Kind::EngineFailed, "the engine gave no output")),
        })
        .await
    }
}

/// Embeds all inputs of a request.
pub async fn embed(
    model: &Model,
    embedder: &Arc<Embedder>,
    inputs: Inputs,
) -> Result<Embedded, Fault> {
    let reader = Arc::clone(embedder);
    let rows = off_reactor(move || reader.read(inputs)).await?;
    let tokens = rows.iter().map(Vec::len).sum();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&index| rows[index].len());
    let mut placed = vec![Vec::new(); rows.len()];
    for places in order.chunks(BATCH) {
        let batch = places.iter().map(|&index| rows[index].clone()).collect();
        let vectors = embedder.run(&model.runner, batch).await?;
        for (&place, vector) in places.iter().zip(vectors) {
            placed[place] = vector;
        }
    }
    match placed.iter().flatten().all(|value| value.is_finite()) {
        true => Ok(Embedded {
            vectors: placed,
            tokens,
        }),
        false => Err(Fault::new(
            Kind::NotFinite,
            "the model gave NaN or Infinity for these inputs",
        )),
    }
}

async fn off_reactor<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let crashed = |_| {
        Fault::new(
            Kind::EngineFailed,
            "reading or pooling this request crashed",
        )
    };
    tokio::task::spawn_blocking(work).await.map_err(crashed)?
}

fn feed(spec: &TensorSpec) -> Result<Feed, String> {
    let name = &spec.name;
    match Feed::from_name(name) {
        Some(feed) if spec.datatype == Datatype::Int64 => Ok(feed),
        Some(_) => Err(format!(
            "input `{name}` is {}; an embedding model's inputs are INT64",
            spec.datatype
        )),
        None => Err(format!(
            "input `{name}` is not one an embedding model is fed (input_ids, attention_mask, token_type_ids)"
        )),
    }
}

/// The output that vectors are made of: the first of the rank that the pooling needs.
fn output(signature: &Signature, pooling: Pooling) -> Result<usize, String> {
    let rank = if pooling == Pooling::None { 2 } else { 3 };
    let fits = |spec: &TensorSpec| spec.axes.len() == rank && spec.datatype == Datatype::Fp32;
    signature.outputs.iter().position(fits).ok_or_else(|| {
        format!("no output is FP32 with {rank} axes, which pooling = {pooling:?} needs")
    })
}
