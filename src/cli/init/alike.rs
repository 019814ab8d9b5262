//! Which models are the same under several names.
//!
//! vLLM calls a model by its repository, llama.cpp by its file, Ollama by a tag: `Qwen/Qwen2.5-7B-Instruct-AWQ`,
//! `qwen2.5-7b-instruct-q4_k_m.gguf` and `qwen2.5:7b` are one model in three packings. What is left of a name without
//! its folder and the words for its packing is compared, letters and digits only. A name that says `instruct`, `chat`
//! or `it` is another model than one that does not, with one exception: Ollama leaves that word out of its short tags.
//!
//! It is a guess by names, made for a person to look at. It errs by finding too little: a size or a version that one
//! name leaves out keeps two models apart.

use std::collections::BTreeSet;

/// Words that say how a model was packed.
const PACKINGS: &str = "gguf ggml awq gptq marlin bnb exl2 exl3 mlx onnx hf latest fp32 fp16 bf16 f32 f16 fp8 fp4 nvfp4 \
    mxfp4 int8 int4 4bit 8bit bit dynamic quantized quant imat imatrix i1 ud of w4a16 w8a8";
/// What may follow llama.cpp's `q4`.
const GRAINS: [&str; 9] = ["k", "s", "m", "l", "xl", "xs", "xxs", "nl", "0"];
/// What a model that was taught to talk is called.
const TALKS: [&str; 3] = ["instruct", "chat", "it"];
/// Shorter names say too little.
const SHORTEST: usize = 4;

/// A model that a worker lists.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The worker's place.
    pub worker: usize,
    /// What the worker calls it.
    pub name: &'a str,
    /// Whether the name is one of Ollama's.
    pub is_tag: bool,
}

/// One model, as several workers have it.
#[derive(Debug, PartialEq)]
pub struct Alike<'a> {
    /// A name that fits all of them.
    pub shared: String,
    /// Each worker, once, with its own name for it.
    pub members: Vec<(usize, &'a str)>,
}

/// A name without its packing.
struct Unpacked {
    /// Its letters and digits, with a mark before its size, and without the word that says that it talks.
    stem: String,
    talks: bool,
    /// The same for people.
    shown: String,
}

/// The models that more than one worker has under more than one name.
pub fn alike<'a>(all: &[Listed<'a>]) -> Vec<Alike<'a>> {
    let names: Vec<_> = all.iter().map(|one| (one, unpacked(one.name))).collect();
    let talkers: BTreeSet<_> = { names.iter() }
        .filter(|(_, name)| name.talks)
        .map(|(_, name)| &name.stem)
        .collect();
    let mut groups: Vec<((&str, bool), Alike<'a>)> = Vec::new();
    let sure = |name: &Unpacked| name.stem.len() >= SHORTEST;
    for (one, name) in names.iter().filter(|(_, name)| sure(name)) {
        let talks = name.talks || (one.is_tag && talkers.contains(&name.stem));
        let key = (name.stem.as_str(), talks);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.join(one, name),
            None => groups.push((key, Alike::of(one, name))),
        }
    }
    let groups = groups.into_iter().map(|(_, group)| group);
    groups.filter(Alike::has_several_names).collect()
}

impl<'a> Alike<'a> {
    fn of(first: &Listed<'a>, name: &Unpacked) -> Self {
        Alike {
            shared: name.shown.clone(),
            members: vec![(first.worker, first.name)],
        }
    }

    /// The longest of their names says most. A worker brings its first packing only.
    fn join(&mut self, other: &Listed<'a>, name: &Unpacked) {
        if self
            .members
            .iter()
            .any(|(worker, _)| *worker == other.worker)
        {
            return;
        }
        self.members.push((other.worker, other.name));
        if name.shown.len() > self.shared.len() {
            self.shared.clone_from(&name.shown);
        }
    }

    fn has_several_names(&self) -> bool {
        let (_, first) = self.members[0];
        self.members.iter().any(|(_, name)| *name != first)
    }
}

fn unpacked(name: &str) -> Unpacked {
    let lower = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let file = lower.strip_suffix(".gguf").unwrap_or(&lower);
    // `llama-2-7b-chat.Q4_K_M`
    let file = [".q", ".iq", ".f16"]
        .iter()
        .fold(file.to_owned(), |file, tail| {
            file.replace(tail, &tail.replace('.', "-"))
        });
    let mut kept: Vec<&str> = Vec::new();
    let mut after_grade = false;
    for word in file.split(['-', '_', ':', ' ', '@']) {
        let is_grade = is_grade(word) || (after_grade && GRAINS.contains(&word));
        after_grade = is_grade;
        let is_vendor = kept.is_empty() && word == "meta";
        if !(word.is_empty() || is_grade || is_vendor || is_packing(word)) {
            kept.push(word);
        }
    }
    let is_talk = |word: &&str| TALKS.contains(word);
    let stem = kept.iter().filter(|word| !is_talk(word));
    Unpacked {
        stem: stem.map(|word| marked(word)).collect(),
        talks: kept.iter().any(is_talk),
        shown: kept.join("-"),
    }
}

/// Its letters and digits; a size, as in `7b` or `8x22b`, is marked, so that 3-2b is not 32b.
fn marked(word: &str) -> String {
    let letters = word.chars().filter(|letter| letter.is_alphanumeric());
    let mark = if is_size(word) { "#" } else { "" };
    mark.chars().chain(letters).collect()
}

fn is_size(word: &str) -> bool {
    let number = word.strip_suffix(['b', 'm']);
    number.is_some_and(|number| {
        number.starts_with(|first: char| first.is_ascii_digit())
            && number
                .chars()
                .all(|one| one.is_ascii_digit() || one == '.' || one == 'x')
    })
}

fn is_packing(word: &str) -> bool {
    PACKINGS.split(' ').any(|packing| packing == word) || is_shard(word)
}

/// `q4`, `iq3`, `tq1`: llama.cpp's word for bits.
fn is_grade(word: &str) -> bool {
    let digits = ["iq", "tq", "q"]
        .into_iter()
        .find_map(|head| word.strip_prefix(head));
    digits.is_some_and(|digits| {
        digits.len() == 1 && digits.chars().all(|digit| digit.is_ascii_digit())
    })
}

/// `00001` of `-00001-of-00003`.
fn is_shard(word: &str) -> bool {
    word.len() == 5 && word.starts_with('0') && word.chars().all(|digit| digit.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shared names and members of models that Ollama has (`~`) or others.
    fn found(names: &[&str]) -> Vec<(String, Vec<usize>)> {
        let listed = names.iter().enumerate().map(|(worker, name)| Listed {
            worker,
            name: name.trim_start_matches('~'),
            is_tag: name.starts_with('~'),
        });
        let listed: Vec<_> = listed.collect();
        let alike = alike(&listed).into_iter();
        alike
            .map(|one| {
                (
                    one.shared,
                    one.members.iter().map(|(worker, _)| *worker).collect(),
                )
            })
            .collect()
    }

    #[test]
    fn one_model_is_known_under_the_names_of_its_engines() {
        for (names, shared) in [
            (
                [
                    "Qwen/Qwen2.5-7B-Instruct-AWQ",
                    "qwen2.5-7b-instruct-q4_k_m.gguf",
                    "~qwen2.5:7b",
                ],
                "qwen2.5-7b-instruct",
            ),
            (
                [
                    "meta-llama/Meta-Llama-3.1-8B-Instruct",
                    "/models/Llama-3.1-8B-Instruct.Q8_0.gguf",
                    "~llama3.1:8b-instruct-q4_K_M",
                ],
                "llama-3.1-8b-instruct",
            ),
            (
                ["Qwen/Qwen3-8B-FP8", "Qwen3-8B-UD-IQ3_XXS.gguf", "~qwen3:8b"],
                "qwen3-8b",
            ),
            (
                ["BAAI/bge-m3", "bge-m3-f16.gguf", "~bge-m3:latest"],
                "bge-m3",
            ),
            (
                [
                    "google/gemma-2-9b-it",
                    "gemma-2-9b-it-Q5_K_S-00001-of-00002.gguf",
                    "~hf.co/bartowski/gemma-2-9b-it-GGUF:Q4_K_M",
                ],
                "gemma-2-9b-it",
            ),
        ] {
            assert_eq!(
                found(&names),
                [(shared.to_owned(), vec![0, 1, 2])],
                "{names:?}"
            );
        }
    }

    #[test]
    fn what_differs_in_size_version_or_teaching_stays_apart() {
        for names in [
            ["Qwen2.5-7B-Instruct", "qwen2.5-14b-instruct"],
            ["Qwen2.5-7B", "qwen2.5-7b-instruct-q4_k_m"],
            ["Qwen2.5-Coder-7B-Instruct", "~qwen2.5:7b"],
            ["llama-3.1-8b", "llama-3.2-8b"],
            ["qwen3-2b", "qwen-32b"],
            ["m", "~m:latest"],
            ["the-same", "the-same"],
        ] {
            assert_eq!(found(&names), [], "{names:?}");
        }
    }

    #[test]
    fn a_worker_brings_one_packing_of_a_model() {
        let listed = |worker, name| Listed {
            worker,
            name,
            is_tag: false,
        };
        let all = [
            listed(0, "qwen3-8b-q4_0"),
            listed(0, "qwen3-8b-q8_0"),
            listed(1, "Qwen/Qwen3-8B"),
        ];
        let members = vec![(0, "qwen3-8b-q4_0"), (1, "Qwen/Qwen3-8B")];
        let shared = "qwen3-8b".to_owned();
        assert_eq!(alike(&all), [Alike { shared, members }]);
    }
}
