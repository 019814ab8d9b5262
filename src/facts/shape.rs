//! Where a body belongs by its shape, when it comes without a path: a worker's own test request, or a dry run.
//!
//! Each of these members is at home on one built-in path. `input` is also that of `/v1/responses`; most bodies that
//! have it are embeddings, and whoever means the other says so.

/// KServe's path; the model's name takes the place of `*`, as no body says it.
pub const INFER: &str = "/v2/models/*/infer";

const SHAPES: [(&str, &str); 5] = [
    ("messages", "/v1/chat/completions"),
    ("prompt", "/v1/completions"),
    ("documents", "/v1/rerank"),
    ("input", "/v1/embeddings"),
    ("inputs", INFER),
];

/// The built-in path for a body that is a JSON object with one of these members.
#[must_use]
pub fn path_of(body: &str) -> Option<&'static str> {
    let has = |member| sonic_rs::get(body, &[member]).is_ok();
    let found = SHAPES.into_iter().find(|(member, _)| has(*member));
    found.map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_belongs_where_its_members_are_at_home() {
        for (body, path) in [
            (
                r#"{"model":"m","messages":[]}"#,
                Some("/v1/chat/completions"),
            ),
            (r#"{"prompt":"x"}"#, Some("/v1/completions")),
            (r#"{"query":"x","documents":[]}"#, Some("/v1/rerank")),
            (r#"{"input":["x"]}"#, Some("/v1/embeddings")),
            (r#"{"inputs":[]}"#, Some(INFER)),
            (r#"{"other":{"messages":1}}"#, None),
            ("messages", None),
            ("", None),
        ] {
            assert_eq!(path_of(body), path, "{body}");
        }
    }
}
