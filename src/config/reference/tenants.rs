//! Rows of those who send requests.

use super::kinds::{BUDGET, PATH, ZONES};
use super::{Kind, Row, Unset};

const NAME: Kind = Kind::Free {
    syntax: "NAME",
    allowed: "letters, digits, '.', '_' and '-', at most 64 of them, unlike every other tenant's, and not \"-\"",
};
const KEY_HASH: Kind = Kind::Free {
    syntax: "HASH | [HASH | { hash = HASH, until = TIME }, …]",
    allowed: "\"sha256:\" and 64 hexadecimal digits, or a list of such and of { hash = \"sha256:…\", until = \"2027-01-01\" }; no hash twice in a file",
};
const MODELS: Kind = Kind::Free {
    syntax: "[NAME, …]",
    allowed: "a list of names that clients say, at least one, none twice",
};
const CLASS: Kind = Kind::Free {
    syntax: "NAME",
    allowed: "one of queue.classes",
};
const CONCURRENT: Kind = Kind::Count {
    least: 1,
    most: 1_000_000,
};
const JWKS: Kind = Kind::Free {
    syntax: "{ file = PATH }",
    allowed: "{ file = \"PATH\" } with a JWK set in that file",
};
const TEXT: Kind = Kind::Free {
    syntax: "TEXT",
    allowed: "a string with something in it",
};
const PER_MINUTE: Kind = Kind::Count {
    least: 1,
    most: 1_000_000_000,
};

/// The keys of `[[tenant]]` and `[jwt]`.
pub(super) const TENANTS: &[Row] = &[
    Row {
        key: "tenant",
        kind: Kind::Sections,
        unset: Unset::Means("nobody needs a key, and keys of clients pass through to workers"),
        purpose: "Who may send requests. With at least one tenant every request needs a key, but for /health, /ready and /v2/health; a client sends it as `Authorization: Bearer KEY`, `x-api-key` or `api-key`, and workers never see it.",
        example: "[[tenant]]\nname = \"app\"\nkey_hash = \"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\"",
        see: &["listen.open", "worker.key"],
    },
    Row {
        key: "tenant.name",
        kind: NAME,
        unset: Unset::Required,
        purpose: "The tenant's name in the access log, metrics and the admin API.",
        example: "name = \"app\"",
        see: &["log.access"],
    },
    Row {
        key: "tenant.key_hash",
        kind: KEY_HASH,
        unset: Unset::Means("no keys but those of key_file"),
        purpose: "The SHA-256 of its key, as `forebay key new` prints it; the key itself is kept nowhere. Several keys let old and new ones work side by side; from `until` on, in UTC, a key is refused.",
        example: "key_hash = [\"sha256:880d0fa238a39d1a491f535f01b10fe597c9eda6f84fac9f66ae9947e6285821\", { hash = \"sha256:8aecb9a1e85d7828ba15a521486cde608bc8e883b8b0f61d4fa83d7ac649a2a1\", until = \"2027-01-01\" }]",
        see: &["tenant.key_file"],
    },
    Row {
        key: "tenant.key_file",
        kind: PATH,
        unset: Unset::Means("no keys but those of key_hash"),
        purpose: "A file with further keys, that may change while the proxy runs: a hash a line, `until=TIME` behind it if it ends, `#` before a comment. It is looked at every second; a key that is taken out is refused from then on. While the file can't be read or is wrong, the keys it held before stay in force, and the log and /api/tenants say so. Put a new one in its place with mv: one that is written in place may be read half.",
        example: "key_file = \"app.keys\"",
        see: &["tenant.key_hash"],
    },
    Row {
        key: "tenant.models",
        kind: MODELS,
        unset: Unset::Means("all models"),
        purpose: "The models that it may use and is shown, by the names that clients say. A [[route]] passes bodies unread, so whoever has a key may use it.",
        example: "models = [\"chat\", \"embed\"]",
        see: &["worker.models", "route"],
    },
    Row {
        key: "tenant.class",
        kind: CLASS,
        unset: Unset::Means("the highest"),
        purpose: "The class that its requests are of in the queue; x-forebay-priority may name a lower one and never a higher.",
        example: "class = \"free\"",
        see: &["queue.classes"],
    },
    Row {
        key: "tenant.zones",
        kind: ZONES,
        unset: Unset::Means("anywhere"),
        purpose: "Where its requests may go, whatever fails: only to workers on machines whose region lies in one of these zones, and where a route has zones, in one of both. When no worker there could ever answer it is 403 residency.",
        example: "zones = [\"eu\"]",
        see: &["region.zone", "route.zones"],
    },
    Row {
        key: "tenant.max_concurrent",
        kind: CONCURRENT,
        unset: Unset::Means("no limit"),
        purpose: "The most requests of it that are open at a time, also those that wait for a worker; 429 above.",
        example: "max_concurrent = 16",
        see: &["worker.max_inflight"],
    },
    Row {
        key: "tenant.requests_per_minute",
        kind: PER_MINUTE,
        unset: Unset::Means("no limit"),
        purpose: "The requests that it may send a minute; 429 above. Who was silent may send all of them at once; then they come back one by one, evenly over a minute.",
        example: "requests_per_minute = 600",
        see: &["tenant.tokens_per_minute"],
    },
    Row {
        key: "tenant.tokens_per_minute",
        kind: PER_MINUTE,
        unset: Unset::Means("no limit"),
        purpose: "The tokens of prompts and answers that it may use a minute; 429 above. A request is counted beforehand with the estimate of its prompt and its max_tokens (200 where it sets none), and at its end with what the worker reports. KServe requests and routes are counted only by what is reported.",
        example: "tokens_per_minute = 60000",
        see: &["tenant.requests_per_minute"],
    },
    Row {
        key: "tenant.budget",
        kind: BUDGET,
        unset: Unset::Means("no limit"),
        purpose: "What it may spend in a day or a month of the calendar, in UTC; 429 when it is used up, until the next begins. A request costs the time for which it keeps its machine busy, times price_per_hour: while n requests are on a machine together, each pays an n-th. A duration counts that busy time itself, and no money: with \"2h/day\" a tenant may have one machine for itself for two hours, or share it with one other for four. What a request is expected to cost is put aside when it comes and settled at its end; attempts that a worker failed cost nothing, and what a client cuts short, itself or by its deadline, costs what it used. While anything is left and nothing is put aside, one request always passes, so the last one may overdraw. What is used is saved each minute and at the end, and kept over a restart.",
        example: "budget = [\"3 EUR/day\", \"50 EUR/month\"]",
        see: &[
            "machine.price_per_hour",
            "currency",
            "tenant.tokens_per_minute",
        ],
    },
    Row {
        key: "tenant.private_prefix",
        kind: Kind::Flag,
        unset: Unset::Is("false"),
        purpose: "Keeps its prompts apart in what is believed of workers' prefix caches: none is sent where another tenant's equal prompt went because of that. What an engine itself shares is the engine's affair.",
        example: "private_prefix = true",
        see: &["routing.policy"],
    },
    Row {
        key: "jwt",
        kind: Kind::Section,
        unset: Unset::Means("no tokens are taken"),
        purpose: "Takes JSON Web Tokens in the place of keys: `Authorization: Bearer TOKEN`, signed with RS256, ES256 or EdDSA by a key of the issuer's set, with exp, iss and aud. A minute is allowed for clocks that differ. A token that names no [[tenant]] is 403, a bad one 401.",
        example: "[jwt]\njwks = { file = \"jwks.json\" }\nissuer = \"https://id.example.com\"\naudience = \"forebay\"",
        see: &["tenant"],
    },
    Row {
        key: "jwt.jwks",
        kind: JWKS,
        unset: Unset::Required,
        purpose: "The issuer's public keys, a JWK set (RFC 7517). It is looked at every second and taken over when it changes, as a key_file is; nothing is ever fetched. A key fixes its algorithm, whatever a token says. An empty set refuses every token; one without a key that can be used is a mistake, and the keys before stay in force.",
        example: "jwks = { file = \"jwks.json\" }",
        see: &["tenant.key_file"],
    },
    Row {
        key: "jwt.issuer",
        kind: TEXT,
        unset: Unset::Required,
        purpose: "What a token's iss must be.",
        example: "issuer = \"https://id.example.com\"",
        see: &["jwt.audience"],
    },
    Row {
        key: "jwt.audience",
        kind: TEXT,
        unset: Unset::Required,
        purpose: "What a token's aud must be or name, so that one that was issued for another service is not taken here.",
        example: "audience = \"forebay\"",
        see: &["jwt.issuer"],
    },
    Row {
        key: "jwt.claim",
        kind: TEXT,
        unset: Unset::Is("\"sub\""),
        purpose: "The claim that names the tenant.",
        example: "claim = \"tenant\"",
        see: &["tenant.name"],
    },
];
