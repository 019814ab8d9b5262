//! The numbers of workers over several plans of one process.
//!
//! A file numbers its workers by their places in it. What runs has written numbers down: a request where it was tried, a
//! metric whose it is. So a name keeps its number for as long as the process lives, also while it is in no plan, and only
//! a new name gets a new one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Plan;
use crate::units::WorkerId;

impl Plan {
    /// Gives workers the numbers that their names have among these, and new ones the next; routes follow. Returns the names
    /// by number, those of workers that are in this plan no more among them.
    pub fn seat(&mut self, known: &[Arc<str>]) -> Vec<Arc<str>> {
        let mut names = known.to_vec();
        let mut moved = BTreeMap::new();
        for worker in &mut self.workers {
            let place = names.iter().position(|name| *name == worker.name);
            let place = place.unwrap_or_else(|| {
                names.push(worker.name.clone());
                names.len() - 1
            });
            let id = u32::try_from(place).map_or(worker.id, WorkerId);
            moved.insert(std::mem::replace(&mut worker.id, id), id);
        }
        for route in &mut self.routes {
            let ids = route.workers.iter();
            route.workers = ids.filter_map(|id| moved.get(id).copied()).collect();
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    fn plan(workers: &[&str], routed: &str) -> Plan {
        let mut text = "state = \"unused\"\n".to_owned();
        text += &format!("[[route]]\npath = \"/raw\"\nworkers = [\"{routed}\"]\n");
        for name in workers {
            text += &format!("[[worker]]\nname = \"{name}\"\nurl = \"http://127.0.0.1:1\"\n");
        }
        config::parse(&text, Path::new("test.toml"), &|_| None).unwrap()
    }

    #[test]
    fn a_name_keeps_its_number_whatever_comes_before_it_or_goes() {
        let names = plan(&["a", "b"], "b").seat(&[]);
        let mut second = plan(&["c", "b"], "b");
        let names = second.seat(&names);
        assert_eq!(names, ["a", "b", "c"].map(Arc::from));
        let ids: Vec<_> = second.workers.iter().map(|worker| worker.id.0).collect();
        assert_eq!(ids, [2, 1]);
        assert_eq!(*second.routes[0].workers, [WorkerId(1)]);
        let mut third = plan(&["a", "d"], "a");
        third.seat(&names);
        let ids: Vec<_> = third.workers.iter().map(|worker| worker.id.0).collect();
        assert_eq!(ids, [0, 3]);
    }
}
