//! Texts through an embedding model: read, cut into batches, run, pool.
//!
//! Rows are sorted by length before they are cut into batches, so that a short text is not padded to a long one's
//! length, and put back in order afterwards. A request's batches run one after the other: it holds one place in the
//! queue however many texts it brings. Tokenising and pooling are milliseconds of CPU and run off the reactor.

use std::sync::Arc;

use crate::batch::Urgency;
use crate::engine::Engine;
use crate::fault::{Fault, Kind};
use crate::line::{Model, Task};
use crate::observe::Count;
use crate::repository::Embedding;
use crate::tensor::{Datatype, Signature, Tensor, TensorSpec};
use crate::text::{Feed, Reader, Row, longest, to_unit_length, vectors};
use crate::units::Pooling;

/// The most texts of one request that run together.
const BATCH: usize = 32;

/// What a client wants embedded.
#[derive(Debug, PartialEq)]
pub enum Inputs {
    /// Texts.
    Texts(Vec<String>),
    /// Texts that the client has tokenised itself.
    Ids(Vec<Vec<u32>>),
    /// A text, and others that are each read together with it.
    Pairs(String, Vec<String>),
}

/// Vectors in the order of the inputs, and the tokens that were read for them.
#[derive(Debug)]
pub struct Embedded {
    /// One per input.
    pub vectors: Vec<Vec<f32>>,
    /// After truncation, special tokens included, padding not.
    pub tokens: usize,
}

impl Embedded {
    /// Keeps the first so many dimensions, scaled to length 1 again where the whole vectors are.
    pub fn shorten(&mut self, dimensions: usize, normalize: bool) {
        for vector in &mut self.vectors {
            vector.truncate(dimensions);
            if normalize {
                to_unit_length(vector);
            }
        }
    }
}

/// How texts go into a graph and vectors come out.
pub struct Embedder {
    reader: Reader,
    feeds: Vec<Feed>,
    output: usize,
    pooling: Pooling,
    normalize: bool,
    width: usize,
}

impl Embedder {
    /// Fits an embedding model's description to its graph by embedding one word, or says why they don't fit. The
    /// first client finds the engine warm, and a graph whose output can't be pooled is refused before it serves.
    pub fn fit(plan: &Embedding, engine: &mut dyn Engine) -> Result<Embedder, String> {
        let reader = Reader::open(&plan.tokenizer, plan.max_tokens)
            .map_err(|problem| format!("{}: {problem}", plan.tokenizer.display()))?;
        let signature = engine.signature();
        let feeds = signature.inputs.iter().map(feed);
        let mut embedder = Embedder {
            reader,
            feeds: feeds.collect::<Result<_, _>>()?,
            output: output(signature, plan.pooling)?,
            pooling: plan.pooling,
            normalize: plan.normalize,
            width: 0,
        };
        let word = vec![embedder.reader.read("word")?];
        let outputs = engine.run(&embedder.inputs(&word), &[embedder.output]);
        let outputs = outputs.map_err(|fault| fault.message)?;
        let vectors = embedder
            .pool(&outputs, &word)
            .map_err(|fault| fault.message)?;
        embedder.width = vectors.first().map_or(0, Vec::len);
        Ok(embedder)
    }

    /// Runs a batch of so many texts, for the engine to get warm by.
    pub fn warm(&self, engine: &mut dyn Engine, rows: usize) -> Result<(), String> {
        let (inputs, wanted) = self.example("word", rows)?;
        let outputs = engine.run(&inputs, &[wanted]);
        outputs.map(drop).map_err(|fault| fault.message)
    }

    /// What the engine is fed for so many of this text, and which of its outputs is wanted.
    pub fn example(&self, text: &str, rows: usize) -> Result<(Vec<Tensor>, usize), String> {
        let texts = vec![self.reader.read(text)?; rows];
        Ok((self.inputs(&texts), self.output))
    }

    /// Whether vectors are scaled to length 1.
    pub fn normalizes(&self) -> bool {
        self.normalize
    }

    /// How long the vectors are.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The tensors that a batch of rows is fed as.
    fn inputs(&self, rows: &[Row]) -> Vec<Tensor> {
        let (width, pad) = (longest(rows), self.reader.pad());
        let tensors = self.feeds.iter();
        tensors
            .filter_map(|feed| feed.tensor(rows, width, pad))
            .collect()
    }

    /// The vectors of a batch of rows.
    fn pool(&self, outputs: &[Tensor], rows: &[Row]) -> Result<Vec<Vec<f32>>, Fault> {
        let failed = |problem| Fault::new(Kind::EngineFailed, problem);
        let Some(output) = outputs.first() else {
            return Err(failed("the engine gave no output".to_owned()));
        };
        let lengths: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
        vectors(output, &lengths, self.pooling, self.normalize).map_err(failed)
    }

    /// The token ids of every input.
    fn read(&self, inputs: Inputs) -> Result<Vec<Row>, Fault> {
        match inputs {
            Inputs::Texts(texts) => {
                let read = |(index, text): (usize, String)| match self.reader.read(&text) {
                    _ if text.is_empty() => Err(slip(index, "is empty")),
                    Ok(row) => Ok(row),
                    Err(problem) => Err(slip(index, &problem)),
                };
                texts.into_iter().enumerate().map(read).collect()
            }
            Inputs::Pairs(query, documents) => {
                let read = |document: &String| self.reader.read_pair(&query, document);
                let rows = documents.iter().map(read).collect::<Result<_, _>>();
                rows.map_err(|problem| Fault::bad(problem).param("documents"))
            }
            Inputs::Ids(rows) => {
                let adopt = |(index, ids): (usize, Vec<u32>)| match self.reader.adopt(ids) {
                    Ok(row) if row.ids.is_empty() => Err(slip(index, "is empty")),
                    Ok(row) => Ok(row),
                    Err(id) => Err(slip(index, &format!("holds {id}, which is no token here"))),
                };
                rows.into_iter().enumerate().map(adopt).collect()
            }
        }
    }

    /// One batch: rows in, vectors out.
    async fn run(
        self: &Arc<Self>,
        model: &Model,
        rows: Vec<Row>,
        count: &mut Count,
    ) -> Result<Vec<Vec<f32>>, Fault> {
        let task = Task {
            inputs: self.inputs(&rows),
            wanted: vec![self.output],
            urgency: Urgency::default(),
            sequence: None,
        };
        let outputs = model.run(task, count).await?;
        let this = Arc::clone(self);
        off_reactor(move || this.pool(&outputs, &rows)).await
    }
}

impl Model {
    /// Texts through an embedding model. `dimensions` is the length of vector that the client wants, if any: the first
    /// so many. What such a vector is worth is the model's matter; those trained for it (Matryoshka representation
    /// learning, arXiv:2205.13147) lose little.
    pub async fn embed(
        &self,
        inputs: Inputs,
        dimensions: Option<usize>,
    ) -> Result<Embedded, Fault> {
        let mut count = self.tally.begin();
        let outcome = self.embed_counted(inputs, dimensions, &mut count).await;
        count.close(&outcome);
        outcome
    }

    async fn embed_counted(
        &self,
        inputs: Inputs,
        dimensions: Option<usize>,
        count: &mut Count,
    ) -> Result<Embedded, Fault> {
        let Some(embedder) = self.embedder.as_ref().filter(|_| self.classifier.is_none()) else {
            let problem = format!("model `{}` is not an embedding model", self.name);
            return Err(Fault::bad(problem).param("model"));
        };
        let width = embedder.width();
        if let Some(asked) = dimensions.filter(|asked| !(1..=width).contains(asked)) {
            let problem = format!("this model gives {width} dimensions or fewer, not {asked}");
            return Err(Fault::bad(problem).param("dimensions"));
        }
        let mut embedded = embed(self, embedder, inputs, count).await?;
        if let Some(dimensions) = dimensions {
            embedded.shorten(dimensions, embedder.normalizes());
        }
        Ok(embedded)
    }
}

/// Embeds all inputs of a request.
pub async fn embed(
    model: &Model,
    embedder: &Arc<Embedder>,
    inputs: Inputs,
    count: &mut Count,
) -> Result<Embedded, Fault> {
    let reader = Arc::clone(embedder);
    let rows = off_reactor(move || reader.read(inputs)).await?;
    let tokens = rows.iter().map(|row| row.ids.len()).sum();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&index| rows[index].ids.len());
    let mut placed = vec![Vec::new(); rows.len()];
    let most = model.most_rows.filter(|most| *most > 0).unwrap_or(BATCH);
    for places in order.chunks(BATCH.min(most)) {
        let batch = places.iter().map(|&index| rows[index].clone()).collect();
        let vectors = embedder.run(model, batch, count).await?;
        for (&place, vector) in places.iter().zip(vectors) {
            placed[place] = vector;
        }
    }
    if placed.iter().flatten().any(|value| !value.is_finite()) {
        let problem = "the model gave NaN or Infinity for these inputs";
        return Err(Fault::new(Kind::NotFinite, problem));
    }
    Ok(Embedded {
        vectors: placed,
        tokens,
    })
}

fn slip(index: usize, problem: &str) -> Fault {
    Fault::bad(format!("input[{index}] {problem}")).param("input")
}

async fn off_reactor<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let crashed = |_| Fault::new(Kind::EngineFailed, "reading or pooling crashed");
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
