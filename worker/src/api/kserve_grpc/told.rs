//! Statistics, settings and parameters as messages; their JSON is the other front's, and both say the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::inference::log_settings_request::SettingValue as WantedOfLog;
use super::inference::log_settings_request::setting_value::ParameterChoice as Wanted;
use super::inference::log_settings_response::SettingValue as Log;
use super::inference::log_settings_response::setting_value::ParameterChoice as Told;
use super::inference::model_repository_parameter::ParameterChoice as RepositoryChoice;
use super::inference::trace_setting_request::SettingValue as WantedOfTrace;
use super::inference::trace_setting_response::SettingValue as Trace;
use super::inference::{
    InferBatchStatistics, InferStatistics, LogSettingsResponse, ModelRepositoryParameter,
    ModelStatistics, ModelStatisticsResponse, StatisticDuration, TraceSettingResponse,
};
use crate::line::Model;
use crate::observe::{Batch, Spent, Statistics};

/// What is counted of these models.
pub fn statistics(models: &[Arc<Model>]) -> ModelStatisticsResponse {
    ModelStatisticsResponse {
        model_stats: models.iter().map(|model| of_one(model)).collect(),
    }
}

fn of_one(model: &Model) -> ModelStatistics {
    let numbers = model.tally.numbers();
    ModelStatistics {
        name: model.name.as_str().into(),
        version: model.version.to_string(),
        last_inference: numbers.last,
        inference_count: numbers.inferences,
        execution_count: numbers.executions,
        inference_stats: Some(requests(&numbers)),
        batch_stats: numbers.batches.iter().map(runs).collect(),
        ..ModelStatistics::default()
    }
}

fn requests(numbers: &Statistics) -> InferStatistics {
    InferStatistics {
        success: spent(numbers.success),
        fail: spent(numbers.fail()),
        queue: spent(numbers.queue),
        compute_input: spent(numbers.input),
        compute_infer: spent(numbers.infer),
        compute_output: spent(numbers.output),
        cache_hit: spent(numbers.hit),
        cache_miss: spent(numbers.miss),
    }
}

fn runs((rows, batch): (&usize, &Batch)) -> InferBatchStatistics {
    InferBatchStatistics {
        batch_size: *rows as u64,
        compute_input: spent(batch.input),
        compute_infer: spent(batch.infer),
        compute_output: spent(batch.output),
    }
}

fn spent(Spent { count, nanos: ns }: Spent) -> Option<StatisticDuration> {
    Some(StatisticDuration { count, ns })
}

/// The log's settings that a client wants changed.
pub fn wanted_of_log(settings: BTreeMap<String, WantedOfLog>) -> Map<String, Value> {
    let value = |(name, setting): (String, WantedOfLog)| {
        let value = match setting.parameter_choice? {
            Wanted::BoolParam(value) => value.into(),
            Wanted::Uint32Param(value) => value.into(),
            Wanted::StringParam(value) => value.into(),
        };
        Some((name, value))
    };
    settings.into_iter().filter_map(value).collect()
}

/// The log's settings.
pub fn log(settings: &Value) -> LogSettingsResponse {
    let told = |(name, value): (&String, &Value)| {
        let choice = match value {
            Value::Bool(value) => Told::BoolParam(*value),
            Value::Number(number) => Told::Uint32Param(
                number
                    .as_u64()
                    .and_then(|level| u32::try_from(level).ok())?,
            ),
            other => Told::StringParam(other.as_str()?.into()),
        };
        let setting = Log {
            parameter_choice: Some(choice),
        };
        Some((name.clone(), setting))
    };
    let settings = settings.as_object().into_iter().flatten().filter_map(told);
    LogSettingsResponse {
        settings: settings.collect(),
    }
}

/// The trace settings that a client wants changed; one without a value takes the setting back.
pub fn wanted_of_trace(settings: BTreeMap<String, WantedOfTrace>) -> Map<String, Value> {
    let value = |(name, setting): (String, WantedOfTrace)| {
        let value = match &setting.value[..] {
            [] => Value::Null,
            [one] => one.as_str().into(),
            several => several.into(),
        };
        (name, value)
    };
    settings.into_iter().map(value).collect()
}

/// The trace settings.
pub fn trace(settings: &Value) -> TraceSettingResponse {
    let told = |(name, value): (&String, &Value)| {
        let words = match value {
            Value::Array(words) => words
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            word => word.as_str().map(str::to_owned).into_iter().collect(),
        };
        (name.clone(), Trace { value: words })
    };
    let settings = settings.as_object().into_iter().flatten().map(told);
    TraceSettingResponse {
        settings: settings.collect(),
    }
}

/// Whether a repository's parameter says yes.
pub fn flag(parameter: Option<&ModelRepositoryParameter>) -> bool {
    let choice = parameter.and_then(|parameter| parameter.parameter_choice.as_ref());
    matches!(choice, Some(RepositoryChoice::BoolParam(true)))
}
