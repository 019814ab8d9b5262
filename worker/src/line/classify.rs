//! Texts through a classifier, and documents ranked by how well they answer a query.
//!
//! Ranking takes either kind of model. A classifier of one class that was trained on pairs (a cross-encoder) reads the
//! query and a document together, and its score says how well they go together; an embedding model reads each alone,
//! and the cosine of their vectors says it, at less cost and less exactly.

use crate::fault::Fault;
use crate::line::embed::embed;
use crate::line::{Embedded, Inputs, Model};
use crate::observe::Count;
use crate::repository;
use crate::text::{activate, to_unit_length};
use crate::units::Activation;

/// What the scores of a classifier stand for.
pub struct Classifier {
    labels: Vec<String>,
    activation: Activation,
    classes: usize,
}

impl Classifier {
    /// A classifier of so many classes, or why its description does not fit it.
    pub fn new(described: &repository::Classifier, classes: usize) -> Result<Classifier, String> {
        let labels = described.labels.clone();
        if labels.len() > classes {
            let named = labels.len();
            return Err(format!("labels: {named} names for {classes} classes"));
        }
        let usual = match classes {
            1 => Activation::Sigmoid,
            _ => Activation::Softmax,
        };
        Ok(Classifier {
            labels,
            activation: described.activation.unwrap_or(usual),
            classes,
        })
    }

    /// The name of a class; `LABEL_3` where the model's description has none, as exporters write it.
    pub fn label(&self, class: usize) -> String {
        let named = self.labels.get(class).cloned();
        named.unwrap_or_else(|| format!("LABEL_{class}"))
    }
}

impl Model {
    /// The score of every class for each text.
    pub async fn classify(&self, inputs: Inputs) -> Result<(&Classifier, Embedded), Fault> {
        let mut count = self.tally.begin();
        let outcome = self.scores(inputs, &mut count).await;
        count.close(&outcome);
        outcome
    }

    /// How well each document answers the query, in the documents' order, and the tokens that were read.
    pub async fn rank(
        &self,
        query: String,
        documents: Vec<String>,
    ) -> Result<(Vec<f32>, usize), Fault> {
        let mut count = self.tally.begin();
        let outcome = self.ranks(query, documents, &mut count).await;
        count.close(&outcome);
        outcome
    }

    async fn scores(
        &self,
        inputs: Inputs,
        count: &mut Count,
    ) -> Result<(&Classifier, Embedded), Fault> {
        let (Some(embedder), Some(classifier)) = (&self.embedder, &self.classifier) else {
            let problem = format!("model `{}` is not a classifier", self.name);
            return Err(Fault::bad(problem).param("model"));
        };
        let mut scores = embed(self, embedder, inputs, count).await?;
        for row in &mut scores.vectors {
            activate(row, classifier.activation);
        }
        Ok((classifier, scores))
    }

    async fn ranks(
        &self,
        query: String,
        mut documents: Vec<String>,
        count: &mut Count,
    ) -> Result<(Vec<f32>, usize), Fault> {
        if let Some(classifier) = &self.classifier {
            if classifier.classes != 1 {
                let (name, classes) = (&self.name, classifier.classes);
                let problem =
                    format!("model `{name}` has {classes} classes; one that ranks has one");
                return Err(Fault::bad(problem).param("model"));
            }
            let (_, scores) = self.scores(Inputs::Pairs(query, documents), count).await?;
            return Ok((scores.vectors.concat(), scores.tokens));
        }
        let Some(embedder) = &self.embedder else {
            let problem = format!("model `{}` reads no texts", self.name);
            return Err(Fault::bad(problem).param("model"));
        };
        documents.push(query);
        let mut embedded = embed(self, embedder, Inputs::Texts(documents), count).await?;
        embedded
            .vectors
            .iter_mut()
            .for_each(|vector| to_unit_length(vector));
        let query = embedded.vectors.pop().unwrap_or_default();
        let cosine = |vector: &Vec<f32>| vector.iter().zip(&query).map(|(a, b)| a * b).sum();
        Ok((
            embedded.vectors.iter().map(cosine).collect(),
            embedded.tokens,
        ))
    }
}
