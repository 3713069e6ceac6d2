//! Queue depth over time in a fixed number of cells: when the trace outgrows them, pairs of cells become one.

/// Cells kept; the width of a cell doubles when they are full.
const CELLS: usize = 512;

/// The greatest queue depth in each cell of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depth {
    start: Option<u64>,
    width: u64,
    cells: Vec<u32>,
    now: u32,
    max: u32,
    /// The latest time, and the end of its cell.
    last: u64,
    until: u64,
    busy: u64,
}

impl Default for Depth {
    fn default() -> Self {
        // 1 ms a cell to begin with: nothing shorter can be seen in a plot.
        Self { start: None, width: 1_000_000, cells: Vec::new(), now: 0, max: 0, last: 0, until: 0, busy: 0 }
    }
}

impl Depth {
    /// The depth is `depth` from `at` (nanoseconds) on. Stamps that go back count as the latest cell.
    pub fn push(&mut self, at: u64, depth: u32) {
        let since = at.saturating_sub(*self.start.get_or_insert(at));
        if depth == self.now && since < self.until {
            // Nothing new in a cell that has it: busy time is counted when something changes.
            return;
        }
        while since / self.width >= CELLS as u64 {
            self.width = self.width.saturating_mul(2);
            self.cells = self.cells.chunks(2).map(|pair| pair.iter().copied().max().unwrap_or(0)).collect();
        }
        let cell = (since / self.width) as usize;
        if self.cells.len() <= cell {
            // The depth did not change meanwhile.
            self.cells.resize(cell + 1, self.now);
        }
        if let Some(last) = self.cells.last_mut() {
            *last = (*last).max(depth);
        }
        if self.now > 0 {
            self.busy = self.busy.saturating_add(since.saturating_sub(self.last));
        }
        self.last = self.last.max(since);
        self.until = (cell as u64 + 1).saturating_mul(self.width);
        self.now = depth;
        self.max = self.max.max(depth);
    }

    /// The greatest depth of all.
    #[must_use]
    pub fn max(&self) -> u32 {
        self.max
    }

    /// For how long the depth was not 0, in nanoseconds.
    #[must_use]
    pub fn busy(&self) -> u64 {
        self.busy
    }

    /// The whole time in `columns` cells of (nearly) equal width, the greatest depth in each; fewer if there are not so many.
    #[must_use]
    pub fn columns(&self, columns: usize) -> Vec<u32> {
        let n = self.cells.len();
        let columns = columns.min(n);
        (0..columns)
            .map(|i| {
                let cells = self.cells.get(i * n / columns..(i + 1) * n / columns).unwrap_or(&[]);
                cells.iter().copied().max().unwrap_or(0)
            })
            .collect()
    }

    /// The whole time as one line of text, eight heights, a blank for an empty queue.
    #[must_use]
    pub fn sparkline(&self, columns: usize) -> String {
        const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let height = |depth: u32| (u64::from(depth) * 8).div_ceil(u64::from(self.max.max(1)));
        self.columns(columns).into_iter().map(|depth| HEIGHTS[height(depth).min(8) as usize]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_with_something_queued_is_busy() {
        let mut depth = Depth::default();
        for (at, now) in [(100, 0), (200, 1), (250, 2), (300, 0), (900, 1), (850, 1), (1000, 0)] {
            depth.push(at, now);
        }
        assert_eq!(depth.busy(), 200);
    }

    #[test]
    fn a_long_trace_keeps_its_peaks() {
        let mut depth = Depth::default();
        for second in 0..100_000_u64 {
            depth.push(second * 1_000_000_000, if second == 70_000 { 99 } else { 3 });
        }
        assert_eq!(depth.max(), 99);
        let columns = depth.columns(10);
        assert_eq!(columns.len(), 10);
        assert_eq!(columns.iter().position(|&d| d == 99), Some(7));
        assert!(columns.iter().all(|&d| d == 3 || d == 99));
    }

    #[test]
    fn a_quiet_time_keeps_the_depth_it_began_with() {
        let mut depth = Depth::default();
        depth.push(0, 8);
        depth.push(100_000_000, 0);
        assert_eq!(depth.sparkline(10), "██████████");
        assert_eq!(Depth::default().sparkline(10), "");
    }

    #[test]
    fn any_stamp_is_taken() {
        let mut depth = Depth::default();
        for at in [5, u64::MAX, 0, 17] {
            depth.push(at, 1);
        }
        assert_eq!(depth.max(), 1);
    }
}
