//! Fleet files: which machines are simulated, in TOML.
//!
//! Everything that is wrong with a file is told at once, in the words of the configuration: file, line, key, value, what
//! is allowed, the way out. A file needs one `[[worker]]` and nothing else:
//!
//! ```toml
//! rate = 2.0                     # requests a second, unless --rate says otherwise
//! requests = 12000               # how many, unless --requests says otherwise
//! models = 2                     # sessions ask for these by turns; every worker serves both
//! cache = 8                      # prompts are remembered in 8 times the KV memory
//! first_byte = "300s"            # how long the proxy waits for an answer to begin
//!
//! [[region]]                     # the proxy is in the first
//! name = "home"
//! rtt = { ohio = "110ms" }       # within a region it is 2 ms
//!
//! [[worker]]
//! name = "h100"
//! card = "H100"                  # prefill, step, lora_slots, lora_load, … change single figures of it
//! resident = 1                   # models that its memory holds; another is brought in place of one in `swap`
//! swap = "12s"
//! tier = 0                       # a higher one is asked when nobody of a lower one is up
//! price = 0.05                   # what a second of it is worth in seconds: routing.cost times the machine's price
//! count = 2                      # h100-1 and h100-2, dealt over the regions unless `region` names one
//!
//! [[fault]]
//! worker = "h100-1"
//! kind = "slow"                  # by `factor`; or dead, hung, flapping (`down` in `every`)
//! factor = 5
//! from = "10m"
//! lasts = "60s"
//! ```

mod keys;
mod table;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use toml::de::DeTable;

use super::card::{CARDS, Card};
use super::fleet::{Fault, FaultKind, Fleet, Member};
use crate::config::Problem;
use crate::units::{Seconds, WorkerId};
use table::{File, Table};

/// From the proxy to a worker of its own region and back.
const NEAR: Seconds = Seconds(0.002);
/// The most workers that a fleet may have.
const MOST_WORKERS: usize = 10_000;

/// Reads the text of a fleet file.
///
/// # Errors
/// Everything that is wrong with it, in the order of the file.
pub fn parse(text: &str, path: &Path) -> Result<Fleet, Vec<Problem>> {
    let (tree, errors) = DeTable::parse_recoverable(text);
    let file = File {
        path,
        text,
        problems: RefCell::default(),
    };
    for error in errors {
        file.note(error.span().unwrap_or(0..0).start, "", error.message());
    }
    let fleet = fleet(&Table::root(&file, tree.into_inner()));
    let mut problems = file.problems.into_inner();
    problems.sort();
    match fleet {
        Some(fleet) if problems.is_empty() => Ok(fleet),
        _ => Err(problems),
    }
}

/// A worker with this card that somebody may add: the card's name, which may have the number of them before it, as in
/// `2x RTX4090`.
#[must_use]
pub fn added(typed: &str) -> Option<(usize, Member)> {
    let (count, name) = match typed.split_once("x ") {
        Some((count, name)) => (count.trim().parse().ok()?, name),
        None => (1, typed),
    };
    let card = Card::named(name.trim())?;
    let member = Member {
        name: Arc::from(format!("new-{}", name.trim().to_lowercase())),
        card,
        max_inflight: None,
        round_trip: NEAR,
        tier: 0,
        price: 0.0,
    };
    (1..=MOST_WORKERS)
        .contains(&count)
        .then_some((count, member))
}

fn fleet(root: &Table<'_>) -> Option<Fleet> {
    let rate = root.number("rate");
    let requests = root.number("requests");
    let models = root.number("models").map(to_count);
    let cache = root.number("cache");
    let first_byte = root.duration("first_byte");
    let regions: Vec<Region> = root.tables("region").iter().filter_map(region).collect();
    let mut members = Vec::new();
    let typed = root.tables("worker");
    if typed.is_empty() {
        root.refuse("worker", "a fleet needs a worker");
    }
    for table in &typed {
        let before = members.len();
        members.extend(workers(table, &regions, before).unwrap_or_default());
    }
    let faults = root.tables("fault");
    let faults = faults.iter().filter_map(|table| fault(table, &members));
    let faults = faults.collect();
    Some(Fleet {
        rate,
        requests: requests.map(|count| to_count(count) as usize),
        models: models.unwrap_or(1),
        cache: cache.unwrap_or(1.0),
        first_byte: first_byte.unwrap_or(Seconds(300.0)),
        members,
        faults,
    })
}

/// A region, and how far others are from it.
struct Region {
    name: String,
    rtt: Vec<(String, Seconds)>,
}

fn region(table: &Table<'_>) -> Option<Region> {
    Some(Region {
        rtt: table.durations("rtt"),
        name: table.required_text("name")?,
    })
}

/// From the proxy, which is in the first region, to another and back; `None` when nobody says.
fn round_trip(regions: &[Region], to: &str) -> Option<Seconds> {
    let first = regions.first()?;
    if first.name == to {
        return Some(NEAR);
    }
    let there = regions.iter().find(|region| region.name == to)?;
    let known = |from: &Region, to: &str| {
        let found = from.rtt.iter().find(|(name, _)| name == to);
        found.map(|(_, rtt)| *rtt)
    };
    known(first, to).or_else(|| known(there, &first.name))
}

/// The workers that one table stands for; `dealt` came before them.
fn workers(table: &Table<'_>, regions: &[Region], dealt: usize) -> Option<Vec<Member>> {
    let name = table.required_text("name");
    let card = card(table);
    let count = table
        .number("count")
        .map_or(1, |count| to_count(count) as usize);
    let max_inflight = table.number("max_inflight").map(to_count);
    let typed = table.text("region");
    let tier = table.number("tier").map_or(0, to_count);
    let price = table.number("price").unwrap_or_default();
    let (name, card) = (name?, card?);
    if dealt + count > MOST_WORKERS {
        table.refuse("count", "these are more workers than a fleet may have");
        return None;
    }
    let member = |number: usize| {
        let dealt = regions.get((dealt + number) % regions.len().max(1));
        let region = typed
            .as_deref()
            .or(dealt.map(|region| region.name.as_str()));
        let round_trip = region.map_or(Some(NEAR), |region| round_trip(regions, region));
        if round_trip.is_none() {
            table.refuse(
                "region",
                "no [[region]] says how far this one is from the first",
            );
        }
        Some(Member {
            name: match count {
                1 => Arc::from(name.as_str()),
                _ => Arc::from(format!("{name}-{}", number + 1)),
            },
            card,
            max_inflight,
            round_trip: round_trip?,
            tier: u8::try_from(tier).unwrap_or(u8::MAX),
            price,
        })
    };
    (0..count).map(member).collect()
}

/// The named card, with the figures that are typed beside it.
fn card(table: &Table<'_>) -> Option<Card> {
    let name = table.required_text("card");
    let named = name.as_deref().and_then(Card::named);
    if let (Some(name), None) = (&name, named) {
        table.refuse_word("card", name, CARDS.iter().map(|(name, _)| *name));
    }
    // Also beside an unknown card: what is wrong with the figures is told in the same breath.
    let (prefill, fixed) = (table.number("prefill"), table.duration("fixed"));
    let (step, beside) = (table.duration("step"), table.duration("step_per_stream"));
    let (slots, blocks) = (table.number("slots"), table.number("blocks"));
    let (lora_slots, lora_load) = (table.number("lora_slots"), table.duration("lora_load"));
    let (resident, swap) = (table.number("resident"), table.duration("swap"));
    let card = named?;
    Some(Card {
        prefill: prefill.unwrap_or(card.prefill),
        fixed: fixed.unwrap_or(card.fixed),
        step: step.unwrap_or(card.step),
        step_per_stream: beside.unwrap_or(card.step_per_stream),
        slots: slots.map_or(card.slots, to_count),
        blocks: blocks.map_or(card.blocks, to_count),
        lora_slots: lora_slots.map_or(card.lora_slots, to_count),
        lora_load: lora_load.unwrap_or(card.lora_load),
        resident: resident.map(to_count),
        swap: swap.unwrap_or(card.swap),
    })
}

fn fault(table: &Table<'_>, members: &[Member]) -> Option<Fault> {
    const KINDS: [&str; 4] = ["slow", "dead", "hung", "flapping"];
    let name = table.required_text("worker");
    let kind = table.required_text("kind");
    let from = table.required_duration("from");
    let lasts = table.required_duration("lasts");
    let kind = match kind?.as_str() {
        "slow" => FaultKind::Slow(table.required_number("factor")?),
        "dead" => FaultKind::Dead,
        "hung" => FaultKind::Hung,
        "flapping" => {
            let down = table.required_duration("down");
            FaultKind::Flapping(down?, table.required_duration("every")?)
        }
        other => {
            table.refuse_word("kind", other, KINDS);
            return None;
        }
    };
    let name = name?;
    let mut ids = (0..).zip(members);
    let found = ids.find(|(_, member)| *member.name == *name);
    // A worker that can't be read is no reason to call its name unknown.
    if found.is_none() && table.is_good_so_far() {
        table.refuse_word("worker", &name, members.iter().map(|member| &*member.name));
    }
    Some(Fault {
        worker: WorkerId(found?.0),
        kind,
        from: from?,
        lasts: lasts?,
    })
}

/// A number that was checked to be a whole one within its range.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked, and casts saturate"
)]
fn to_count(number: f64) -> u32 {
    number as u32
}
