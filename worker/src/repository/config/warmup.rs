//! `model_warmup`: what a model runs before it is ready, so that its first client does not wait for what an engine puts
//! off until it is used.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::typed::datatype;
use crate::tensor::Datatype;

/// One kind of request to run.
#[derive(Debug, PartialEq)]
pub struct Warmup {
    /// What it is called.
    pub name: String,
    /// Its rows, of a model that has rows.
    pub rows: usize,
    /// How often it is run.
    pub count: usize,
    /// What it is made of.
    pub inputs: Vec<Filling>,
}

/// One input of a warm-up.
#[derive(Debug, PartialEq)]
pub struct Filling {
    /// Its name.
    pub name: String,
    /// Its type.
    pub datatype: Datatype,
    /// Its axes after the batch.
    pub dims: Vec<usize>,
    /// What is in it.
    pub with: With,
}

/// What an input of a warm-up is filled with.
#[derive(Debug, PartialEq)]
pub enum With {
    /// Zeros, or empty strings.
    Zeros,
    /// Numbers from 0 to 1, whole ones being one of the two.
    Random,
    /// One row's bytes, from this file in the model's folder `warmup`.
    File(String),
}

/// A warm-up as typed.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct TypedWarmup {
    name: String,
    batch_size: usize,
    count: usize,
    inputs: BTreeMap<String, TypedInput>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedInput {
    data_type: Option<String>,
    dims: Vec<i64>,
    random_data: bool,
    input_data_file: String,
}

impl TypedWarmup {
    /// What it means.
    pub fn check(self) -> Result<Warmup, String> {
        let name = self.name;
        let inputs = self
            .inputs
            .into_iter()
            .map(|(input, typed)| typed.check(input));
        let inputs: Result<Vec<Filling>, String> = inputs.collect();
        Ok(Warmup {
            rows: self.batch_size.max(1),
            count: self.count.max(1),
            inputs: inputs.map_err(|problem| format!("model_warmup \"{name}\": {problem}"))?,
            name,
        })
    }
}

impl TypedInput {
    fn check(self, name: String) -> Result<Filling, String> {
        let Some(datatype) = datatype(self.data_type.as_deref()) else {
            return Err(format!("`{name}` has no data_type"));
        };
        let size = |size: i64| {
            let problem = |_| format!("`{name}`: a size of {size}; a warm-up has fixed sizes");
            usize::try_from(size).map_err(problem)
        };
        let dims = self.dims.into_iter().map(size).collect::<Result<_, _>>()?;
        let file = self.input_data_file;
        let with = match file.as_str() {
            "" if self.random_data => With::Random,
            "" => With::Zeros,
            file if Path::new(file).file_name() == Some(file.as_ref()) => With::File(file.into()),
            _ => {
                return Err(format!(
                    "`{name}`: input_data_file \"{file}\" is no plain file name"
                ));
            }
        };
        Ok(Filling {
            name,
            datatype,
            dims,
            with,
        })
    }
}
