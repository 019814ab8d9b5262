//! The parameters of KServe's requests, the same in both protocols: what they ask for and what is refused.
//!
//! The protocol lets a request carry parameters of its own; those are given back with the answer. What would change
//! the meaning of an answer and is not done here is refused by name.

use serde_json::{Map, Value};

use crate::batch::Urgency;
use crate::fault::Fault;
use crate::line::{Form, Id, Sequence};
use crate::units::Seconds;

/// By name.
pub type Parameters = Map<String, Value>;

/// What the protocol itself asks by; it is not given back, nor is what begins with `triton_`.
const RESERVED: [&str; 7] = [
    "sequence_id",
    "sequence_start",
    "sequence_end",
    "priority",
    "timeout",
    "binary_data_output",
    "headers",
];

/// The parameters that are the client's own.
pub fn own(mut parameters: Parameters) -> Result<Parameters, Fault> {
    parameters.retain(|name, _| !RESERVED.contains(&name.as_str()) && !name.starts_with("triton_"));
    match parameters
        .iter()
        .find(|(_, value)| value.is_array() || value.is_object())
    {
        Some((name, _)) => Err(Fault::bad(format!(
            "the parameter `{name}` is neither a number, a string nor a boolean"
        ))),
        None => Ok(parameters),
    }
}

/// How soon a request wants to run: `priority` counts levels from 1, 0 being the model's default; `timeout` is in
/// microseconds, 0 being none (Triton, "Schedule Policy Extension").
pub fn urgency(parameters: &Parameters) -> Result<Urgency, Fault> {
    let priority = number(parameters, "priority")?.unwrap_or(0);
    let timeout = number(parameters, "timeout")?.unwrap_or(0);
    let level = usize::try_from(priority)
        .unwrap_or(usize::MAX)
        .checked_sub(1);
    Ok(Urgency {
        level,
        timeout: (timeout > 0).then(|| Seconds(timeout as f64 / 1e6)),
    })
}

/// Which sequence a request belongs to, where it says so: `sequence_id` is a number or a name, 0 and "" being none
/// (Triton, "Sequence Extension").
pub fn sequence(parameters: &Parameters) -> Result<Option<Sequence>, Fault> {
    let read = |id: &Value| match id {
        Value::String(text) => Some(Id::Text(text.clone())),
        number => number.as_u64().map(Id::Number),
    };
    let id = given(
        parameters,
        "sequence_id",
        read,
        "a whole number of at least 0 or a string",
    )?;
    let (start, end) = (
        flag(parameters, "sequence_start")?,
        flag(parameters, "sequence_end")?,
    );
    let none = |id: &Id| *id == Id::Number(0) || *id == Id::Text(String::new());
    Ok(id.filter(|id| !none(id)).map(|id| Sequence {
        id,
        start: start.unwrap_or(false),
        end: end.unwrap_or(false),
    }))
}

/// How an output is wanted, `binary` being what the request says of all.
pub fn form(parameters: &Parameters, whose: &str, binary: bool) -> Result<Form, Fault> {
    refuse(parameters, whose, "shared_memory_region")?;
    let classes = number(parameters, "classification")?;
    let classes = classes.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    Ok(Form {
        binary: flag(parameters, "binary_data")?.unwrap_or(binary),
        classes: classes.filter(|count| *count > 0),
    })
}

/// Refuses an input whose elements lie in memory that is shared.
pub fn refuse_shared(parameters: &Parameters, whose: &str) -> Result<(), Fault> {
    refuse(parameters, whose, "shared_memory_region")
}

/// A whole number, where it is given.
pub fn number(parameters: &Parameters, name: &str) -> Result<Option<u64>, Fault> {
    given(
        parameters,
        name,
        Value::as_u64,
        "a whole number of at least 0",
    )
}

/// A switch, where it is given.
pub fn flag(parameters: &Parameters, name: &str) -> Result<Option<bool>, Fault> {
    given(parameters, name, Value::as_bool, "true or false")
}

fn given<T>(
    parameters: &Parameters,
    name: &str,
    read: impl Fn(&Value) -> Option<T>,
    expected: &str,
) -> Result<Option<T>, Fault> {
    let wrong = || Fault::bad(format!("the parameter `{name}` is not {expected}"));
    let value = parameters.get(name).filter(|value| !value.is_null());
    value.map(|value| read(value).ok_or_else(wrong)).transpose()
}

fn refuse(parameters: &Parameters, whose: &str, name: &str) -> Result<(), Fault> {
    let nothing = |value: &Value| *value == 0 || *value == "" || value.is_null();
    match parameters.get(name) {
        Some(value) if !nothing(value) => Err(Fault::bad(format!(
            "{whose} has the parameter `{name}`, which is not served here"
        ))),
        _ => Ok(()),
    }
}
