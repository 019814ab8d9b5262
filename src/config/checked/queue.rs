//! `[queue]`: the classes, and the bounds of the line.

use std::sync::Arc;

use super::name;
use crate::config::plan::{ClassPlan, QueuePlan};
use crate::config::typed::{Section, Value};
use crate::decide::MOST_CLASSES;
use crate::units::Seconds;

/// The line.
pub fn queue(section: &Section<'_>) -> Option<QueuePlan> {
    let names = section.value("classes").and_then(|value| names(&value));
    let entries = section.count("entries");
    let bytes = section.size("bytes");
    let wait_no_worker = section.duration("wait_no_worker");
    let age_up = section.duration("age_up");
    let heartbeat = section.timer("heartbeat");
    let swap_after = section.duration("swap_after");
    let names = names?;
    let wait = section
        .value("wait")
        .and_then(|value| waits(&value, &names));
    let reserve = match section.given("reserve") {
        None => Some(vec![0.0; names.len()]),
        Some(value) => shares(&value, &names),
    };
    let wait = wait?;
    let newest_first = match section.given("newest_first") {
        None => Some(halves(&wait)),
        Some(value) => marks(&value, &names, &wait),
    };
    let (reserve, newest_first) = (reserve?, newest_first?);
    let class = |(place, name)| ClassPlan {
        name,
        wait: wait[place],
        newest_first: newest_first[place],
        reserve: reserve[place],
    };
    Some(QueuePlan {
        classes: names.into_iter().enumerate().map(class).collect(),
        entries: entries?,
        bytes: bytes?,
        wait_no_worker: wait_no_worker?,
        age_up: age_up?,
        heartbeat: heartbeat?,
        swap_after: swap_after?,
    })
}

/// The names of the classes, each once.
fn names(value: &Value<'_>) -> Option<Vec<Arc<str>>> {
    let items = value.items()?;
    if items.is_empty() {
        value.refuse_for(
            "there is no class here",
            "write: classes = [\"paid\", \"free\"]",
        );
    }
    if items.len() > MOST_CLASSES {
        let message = format!("more than {MOST_CLASSES} classes");
        value.refuse_for(message, "leave some out");
        return None;
    }
    let mut names: Vec<Arc<str>> = Vec::new();
    for item in &items {
        let Some(name) = name::name(item, "class") else {
            continue;
        };
        if names.contains(&name) {
            item.refuse_for("this class is listed twice", "write it once");
        }
        names.push(name);
    }
    (!names.is_empty() && names.len() == items.len()).then_some(names)
}

/// How long each class waits: one time for all, or a table by class; who is not in it waits the default.
fn waits(value: &Value<'_>, names: &[Arc<str>]) -> Option<Vec<Seconds>> {
    const DEFAULT: Seconds = Seconds(30.0);
    if !value.is_table() {
        return value.duration().map(|wait| vec![wait; names.len()]);
    }
    by_class(value, names, vec![DEFAULT; names.len()], |item| {
        item.duration()
    })
}

/// When the newest go first in each class: one time or `"off"` for all, or a table by class; who is not in it has half of
/// its wait.
fn marks(value: &Value<'_>, names: &[Arc<str>], wait: &[Seconds]) -> Option<Vec<Option<Seconds>>> {
    if !value.is_table() {
        return value.timer().map(|mark| vec![mark; names.len()]);
    }
    by_class(value, names, halves(wait), |item| item.timer())
}

fn halves(wait: &[Seconds]) -> Vec<Option<Seconds>> {
    wait.iter().map(|wait| Some(*wait * 0.5)).collect()
}

/// What is kept free for each class; all together leave something for everybody.
fn shares(value: &Value<'_>, names: &[Arc<str>]) -> Option<Vec<f64>> {
    let shares = by_class(value, names, vec![0.0; names.len()], |item| {
        let share = item.number()?;
        let sound = (0.0..1.0).contains(&share);
        if !sound {
            item.refuse("a share is from 0 to below 1");
        }
        sound.then_some(share)
    })?;
    if shares.iter().sum::<f64>() >= 1.0 {
        value.refuse_for(
            "nothing would be left for others",
            "let the shares add up to less than 1",
        );
        return None;
    }
    Some(shares)
}

/// A value for each class out of a table by class; who is not in it keeps what it has.
fn by_class<T>(
    value: &Value<'_>,
    names: &[Arc<str>],
    mut values: Vec<T>,
    read: impl Fn(&Value<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let known: Vec<_> = names.iter().cloned().map(Some).collect();
    let mut all_are_sound = true;
    for (class, item) in value.entries()? {
        let place = name::position(&item, &class, "class", &known);
        match (place, read(&item)) {
            (Some(place), Some(read)) => values[place] = read,
            _ => all_are_sound = false,
        }
    }
    all_are_sound.then_some(values)
}
