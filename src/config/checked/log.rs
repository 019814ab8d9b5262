//! `[log]`: how much is said, and where the line per request goes.

use crate::config::plan::{AccessTarget, LogPlan};
use crate::config::suggest::nearest;
use crate::config::typed::Section;

/// The logs.
pub fn log(section: &Section<'_>) -> Option<LogPlan> {
    let level = section.choice("level");
    let access = access(section);
    let replay = section.value("replay").and_then(|value| value.flag());
    Some(LogPlan {
        level: level?,
        access: access?,
        replay: replay?,
    })
}

/// A bare word other than the two known ones is more likely a slip than a file's name.
fn access(section: &Section<'_>) -> Option<AccessTarget> {
    let value = section.value("access")?;
    let text = value.text()?;
    match text.as_str() {
        "stdout" => Some(AccessTarget::Stdout),
        "off" => Some(AccessTarget::Off),
        path if path.contains(['/', '.']) => Some(AccessTarget::File(section.reader.path(path))),
        word => {
            let message = "this is neither a known word nor a path";
            match nearest(word, ["stdout", "off"]) {
                Some(near) => value.refuse_for(message, format!("did you mean \"{near}\"?")),
                None => value.refuse_for(message, "write ./ before the name of a file"),
            }
            None
        }
    }
}
