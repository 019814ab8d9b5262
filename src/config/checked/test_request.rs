//! `test`: what measures a worker while clients are silent.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use crate::config::plan::TestPlan;
use crate::config::suggest::nearest;
use crate::config::typed::Value;

/// A body longer than this is a wrong path.
const LARGEST: u64 = 1 << 20;

/// The test requests. A file of the operator's is read here, so that a wrong one is told before it is needed.
pub fn test(value: &Value<'_>) -> Option<TestPlan> {
    if value.is_table() {
        return match value.entries()?.as_slice() {
            [(source, path)] if source == "file" => file(path),
            _ => {
                value.refuse_for(
                    "this table names one file",
                    "write: test = { file = \"body.json\" }",
                );
                None
            }
        };
    }
    match value.text()?.as_str() {
        "auto" => Some(TestPlan::Auto),
        "off" => Some(TestPlan::Off),
        word => {
            match nearest(word, ["auto", "off"]) {
                Some(near) => value.refuse_for("unknown word", format!("did you mean \"{near}\"?")),
                None => value.refuse("unknown word"),
            }
            None
        }
    }
}

fn file(value: &Value<'_>) -> Option<TestPlan> {
    let path = value.path()?;
    value.reads(&path);
    let body = match read(&path) {
        Ok(body) => body,
        Err(error) => {
            let message = format!("the file named here can't be read: {error}");
            value.refuse_for(message, "create it, or write: test = \"auto\"");
            return None;
        }
    };
    if sonic_rs::from_str::<sonic_rs::Object>(&body).is_err() {
        value.refuse_for(
            "the file named here does not hold one JSON object",
            "write the body of a request into it, as a client would send it",
        );
        return None;
    }
    Some(TestPlan::File {
        path,
        body: Arc::from(body),
    })
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?
        .take(LARGEST + 1)
        .read_to_string(&mut text)?;
    if length as u64 > LARGEST {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    Ok(text)
}
