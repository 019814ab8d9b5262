//! What came of a reload, as it is told and logged.

use super::Judged;
use crate::admin::{AUDIT, ReloadResult, Reloaded};
use crate::clock;

/// A plan that was taken over, or could be.
pub(super) fn told(by: &'static str, judged: Judged) -> Reloaded {
    Reloaded {
        result: if judged.changes.is_empty() {
            ReloadResult::Unchanged
        } else {
            ReloadResult::Ok
        },
        by,
        time: clock::wall(),
        changes: judged.changes,
        lost: judged.lost,
        remarks: judged.fresh.remarks,
        pending: judged.pending,
        problems: Vec::new(),
    }
}

/// A plan that is wrong, for these reasons.
pub(super) fn refused(by: &'static str, problems: Vec<String>) -> Reloaded {
    Reloaded {
        result: ReloadResult::Refused,
        by,
        time: clock::wall(),
        changes: Vec::new(),
        lost: Vec::new(),
        remarks: Vec::new(),
        pending: Vec::new(),
        problems,
    }
}

/// Takes down what came of it.
pub(super) fn log(reloaded: &Reloaded) {
    let by = reloaded.by;
    match reloaded.result {
        ReloadResult::Refused => {
            let count = reloaded.problems.len();
            tracing::error!(
                by,
                count,
                "the configuration is refused, the plan before stays in force"
            );
            for problem in &reloaded.problems {
                tracing::error!("{problem}");
            }
        }
        ReloadResult::Unchanged => tracing::info!(by, "the configuration says what it said before"),
        ReloadResult::Ok => {
            let count = reloaded.changes.len();
            tracing::warn!(target: AUDIT, by, count, "the configuration is taken over");
            for change in &reloaded.changes {
                tracing::info!("{change}");
            }
        }
    }
    for model in &reloaded.lost {
        tracing::warn!(model, "clients lose it: no worker serves it any more");
    }
    for key in &reloaded.pending {
        tracing::warn!(
            key,
            "needs a restart or forebay serve --upgrade; what was in force stays so until then"
        );
    }
}
