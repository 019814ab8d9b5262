//! LoRA adapters, as vLLM and SGLang tell of them and are told to load them.
//!
//! | | vllm | sglang |
//! |---|---|---|
//! | which there are | `GET /v1/models`, those with a `parent` | likewise |
//! | what a request calls one | its name | `BASE:NAME`; the bare name gets the base without a word |
//! | slots of the card | `vllm:lora_requests_info`, `max_lora` | `GET /get_server_info`, `max_loras_per_batch` |
//! | in the batch, and waiting | there, `running_lora_adapters`, `waiting_lora_adapters` | not told |
//! | load | `POST /v1/load_lora_adapter` | `POST /load_lora_adapter` |
//! | unload | `POST /v1/unload_lora_adapter` | `POST /unload_lora_adapter` |
//!
//! The metric is a gauge of which each state of affairs is a series and the value the time when it was last seen: the
//! newest counts. It lists adapters with requests, not those on the card: an idle one may be there too.
//!
//! A load is answered with 200, or with 400, 404 or 500 and the cause; that a name is there already is such a cause,
//! and as good. Both engines push out the adapter that was used longest ago when there are more than fit the host's
//! memory; releases that don't say that they are full.
//!
//! Sources: vLLM `entrypoints/openai/models/serving.py`, `v1/metrics/loggers.py`, `lora/model_manager.py`; SGLang
//! `srt/entrypoints/http_server.py`, `srt/entrypoints/openai/serving_base.py`, "LoRA Serving".

use serde::{Deserialize, Serialize};

use super::read;
use crate::config::plan::Engine;
use crate::decide::LoraTold;
use crate::units::ModelName;

/// What vLLM's metric is called.
const METRIC: &str = "vllm:lora_requests_info{";
/// What engines say of a name that they have.
const THERE_ALREADY: [&str; 2] = ["already been loaded", "already loaded"];
/// What they say when they have no room.
const FULL: [&str; 3] = [
    "no free lora slots",
    "no free adapter slots",
    "max_loaded_loras",
];

/// An adapter that an engine lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its name.
    pub name: ModelName,
    /// The model that it is laid over.
    pub base: ModelName,
}

/// What an engine made of an order to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loading {
    /// The adapter is there.
    Done,
    /// There is no room for it.
    Full,
    /// It can't be had.
    Refused,
}

#[derive(Deserialize)]
struct List {
    data: Vec<Card>,
}

#[derive(Deserialize)]
struct Card {
    id: String,
    #[serde(default)]
    parent: Option<String>,
}

#[derive(Deserialize)]
struct ServerInfo {
    #[serde(default)]
    enable_lora: Option<bool>,
    max_loras_per_batch: u32,
}

#[derive(Serialize)]
struct Load<'a> {
    lora_name: &'a str,
    lora_path: &'a str,
}

#[derive(Serialize)]
struct Unload<'a> {
    lora_name: &'a str,
}

/// The adapters of a list of models.
#[must_use]
pub fn listed(engine: Engine, body: &[u8]) -> Vec<Listed> {
    let list: Option<List> = read(body).filter(|_| engine.loads_adapters());
    let cards = list.map(|list| list.data).unwrap_or_default();
    let adapter = |card: &Card| {
        Some(Listed {
            name: ModelName::sound(&card.id)?,
            base: ModelName::sound(card.parent.as_deref()?)?,
        })
    };
    cards.iter().filter_map(adapter).collect()
}

/// What a request calls an adapter on this base, if that is known.
#[must_use]
pub fn called(engine: Engine, name: &ModelName, base: Option<&ModelName>) -> Option<ModelName> {
    match engine {
        Engine::Sglang => Some(ModelName::new(&format!("{}:{name}", base?))),
        _ => Some(name.clone()),
    }
}

/// What an answer to one of the questions for an engine's bounds says of its adapters.
#[must_use]
pub fn told(engine: Engine, path: &str, body: &[u8]) -> Option<LoraTold> {
    match (engine, path) {
        (Engine::Vllm, "/metrics") => newest(&String::from_utf8_lossy(body)),
        (Engine::Sglang, "/get_server_info") => {
            let info: ServerInfo = read(body)?;
            (info.enable_lora == Some(true)).then(|| LoraTold {
                slots: Some(info.max_loras_per_batch.max(1)),
                ..LoraTold::default()
            })
        }
        _ => None,
    }
}

/// Where an adapter is loaded, and the body that says which.
#[must_use]
pub fn load(engine: Engine, name: &ModelName, path: &str) -> Option<(&'static str, String)> {
    let target = match engine {
        Engine::Vllm => "/v1/load_lora_adapter",
        Engine::Sglang => "/load_lora_adapter",
        _ => return None,
    };
    let body = sonic_rs::to_string(&Load {
        lora_name: name.as_str(),
        lora_path: path,
    });
    Some((target, body.ok()?))
}

/// Likewise, where it is unloaded.
#[must_use]
pub fn unload(engine: Engine, name: &ModelName) -> Option<(&'static str, String)> {
    let target = match engine {
        Engine::Vllm => "/v1/unload_lora_adapter",
        Engine::Sglang => "/unload_lora_adapter",
        _ => return None,
    };
    let body = sonic_rs::to_string(&Unload {
        lora_name: name.as_str(),
    });
    Some((target, body.ok()?))
}

/// What an answer to an order to load means.
#[must_use]
pub fn loading(is_success: bool, body: &[u8]) -> Loading {
    let text = String::from_utf8_lossy(body).to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if is_success || says(&THERE_ALREADY) {
        Loading::Done
    } else if says(&FULL) {
        Loading::Full
    } else {
        Loading::Refused
    }
}

/// The newest series of vLLM's metric.
fn newest(metrics: &str) -> Option<LoraTold> {
    let series = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(METRIC)?.rsplit_once('}'));
    let dated = series.filter_map(|(labels, value)| {
        let seen: f64 = value.split_whitespace().next()?.parse().ok()?;
        seen.is_finite().then_some((seen, labels))
    });
    let (_, labels) = dated.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let names = |label| {
        let text = value_of(labels, label).unwrap_or_default();
        text.split(',')
            .filter_map(|name| ModelName::sound(name.trim()))
            .collect()
    };
    let slots = value_of(labels, "max_lora").and_then(|text| text.parse().ok());
    Some(LoraTold {
        slots: slots.filter(|slots| *slots > 0),
        running: names("running_lora_adapters"),
        waiting: names("waiting_lora_adapters"),
    })
}

/// The value of a label, without its escapes (Prometheus, "Text-based format").
fn value_of(labels: &str, label: &str) -> Option<String> {
    let mut rest = labels;
    loop {
        let (name, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = quoted.char_indices();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at,
                (_, '\\') => match letters.next()?.1 {
                    'n' => value.push('\n'),
                    letter => value.push(letter),
                },
                (_, letter) => value.push(letter),
            }
        };
        if name.trim_start_matches([',', ' ']) == label {
            return Some(value);
        }
        rest = quoted.get(end + 1..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<ModelName> {
        names.iter().map(|name| ModelName::new(name)).collect()
    }

    #[test]
    fn the_newest_state_of_affairs_counts() {
        let metrics = "# TYPE vllm:lora_requests_info gauge\n\
            vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"old\",waiting_lora_adapters=\"\"} 1.7642e+09\n\
            vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"sql,legal\",waiting_lora_adapters=\"tax\"} 1.7643e+09\n\
            vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"} 0.0\n";
        let told = told(Engine::Vllm, "/metrics", metrics.as_bytes()).unwrap();
        assert_eq!(told.slots, Some(4));
        assert_eq!(told.running, names(&["sql", "legal"]));
        assert_eq!(told.waiting, names(&["tax"]));
    }

    #[test]
    fn labels_come_in_any_order_and_names_with_quotes_are_read() {
        let labels = r#"waiting_lora_adapters="a\"b,c\\",max_lora="2",running_lora_adapters="#;
        assert_eq!(
            value_of(labels, "waiting_lora_adapters").unwrap(),
            r#"a"b,c\"#
        );
        assert_eq!(value_of(labels, "max_lora").unwrap(), "2");
        assert_eq!(value_of(labels, "running_lora_adapters"), None, "cut");
    }

    #[test]
    fn what_says_nothing_of_adapters_tells_none() {
        for text in [
            "",
            "vllm:num_requests_running 1.0",
            "vllm:lora_requests_info{max_lora=\"4\"} NaN of",
            "vllm:lora_requests_info{",
        ] {
            let told = told(Engine::Vllm, "/metrics", text.as_bytes());
            assert!(told.is_none_or(|told| told.running.is_empty()), "{text}");
        }
        assert_eq!(told(Engine::Tgi, "/metrics", b""), None);
    }

    #[test]
    fn sglang_tells_its_slots_when_it_has_adapters() {
        let slots = |info: &str| {
            told(Engine::Sglang, "/get_server_info", info.as_bytes()).and_then(|told| told.slots)
        };
        assert_eq!(
            slots(r#"{"enable_lora":true,"max_loras_per_batch":8}"#),
            Some(8)
        );
        assert_eq!(
            slots(r#"{"enable_lora":null,"max_loras_per_batch":8}"#),
            None
        );
        assert_eq!(slots("{}"), None);
    }

    #[test]
    fn adapters_are_the_models_with_a_parent() {
        let list = r#"{"data":[{"id":"base","parent":null},{"id":"sql","root":"/srv/sql","parent":"base"}]}"#;
        let sql = Listed {
            name: ModelName::new("sql"),
            base: ModelName::new("base"),
        };
        assert_eq!(
            listed(Engine::Vllm, list.as_bytes()),
            std::slice::from_ref(&sql)
        );
        assert!(listed(Engine::Openai, list.as_bytes()).is_empty());
        let asked = |engine, base| called(engine, &sql.name, base);
        assert_eq!(asked(Engine::Vllm, None), Some(sql.name.clone()));
        let qualified = asked(Engine::Sglang, Some(&sql.base)).unwrap();
        assert_eq!(qualified.as_str(), "base:sql");
        assert_eq!(asked(Engine::Sglang, None), None);
    }

    #[test]
    fn an_order_is_as_the_engines_want_it_and_its_answer_is_understood() {
        let name = ModelName::new("sql");
        let (path, body) = load(Engine::Vllm, &name, "/srv/\"sql").unwrap();
        assert_eq!(path, "/v1/load_lora_adapter");
        assert_eq!(body, r#"{"lora_name":"sql","lora_path":"/srv/\"sql"}"#);
        let (path, body) = unload(Engine::Sglang, &name).unwrap();
        assert_eq!(
            (path, &*body),
            ("/unload_lora_adapter", r#"{"lora_name":"sql"}"#)
        );
        assert_eq!(load(Engine::Ollama, &name, "/"), None);
        let there = b"The lora adapter 'sql' has already been loaded.";
        assert_eq!(loading(true, b"Success"), Loading::Done);
        assert_eq!(loading(false, there), Loading::Done);
        assert_eq!(
            loading(false, b"ValueError: No free LoRA slots"),
            Loading::Full
        );
        assert_eq!(
            loading(false, b"No adapter found for /srv/sql"),
            Loading::Refused
        );
    }
}
