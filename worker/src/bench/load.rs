//! What is put on a model, and how the engine could run under it.

/// So many rows to a request, so many requests in flight.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Rows of a request.
    pub batch: usize,
    /// Requests in flight.
    pub concurrency: usize,
}

/// So many instances run at once, so many rows each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// Instances that run.
    pub instances: usize,
    /// Rows of a run.
    pub rows: usize,
}

impl Load {
    /// How a model of so many instances, which runs at most so many rows together, could run under this load: with one
    /// request to a run, with all of them, and by powers of two in between.
    pub fn ways(self, instances: usize, rows: usize) -> impl Iterator<Item = Way> {
        let Load { batch, concurrency } = self;
        let instances = concurrency.min(instances).max(1);
        let most = batch * concurrency.div_ceil(instances);
        let most = most.min(rows).max(batch);
        let doubled = std::iter::successors(Some(batch), |rows| Some(rows * 2));
        let sizes = doubled.take_while(move |rows| *rows < most).chain([most]);
        sizes.map(move |rows| Way { instances, rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(batch: usize, concurrency: usize, instances: usize) -> Vec<(usize, usize)> {
        let load = Load { batch, concurrency };
        let ways = load.ways(instances, 32);
        ways.map(|way| (way.instances, way.rows)).collect()
    }

    #[test]
    fn as_many_rows_run_together_as_are_in_flight() {
        assert_eq!(ways(1, 1, 2), [(1, 1)]);
        assert_eq!(ways(1, 6, 1), [(1, 1), (1, 2), (1, 4), (1, 6)]);
        assert_eq!(ways(4, 5, 2), [(2, 4), (2, 8), (2, 12)]);
        assert_eq!(ways(8, 100, 1), [(1, 8), (1, 16), (1, 32)]);
        assert_eq!(ways(40, 3, 1), [(1, 40)], "too large to share a run");
    }
}
