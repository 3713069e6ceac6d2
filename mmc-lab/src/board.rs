//! Boards: limits and costs of the machines that a workload is simulated on. Numbers, no code; a board sets limits,
//! not the driver.

use mmc_time::Duration;

/// Which bonnie++ runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bonnie {
    /// 1.03: per-character passes over the whole file, no fsync at the end of a phase, 3 seekers of 8000 seeks.
    V1_03,
    /// 2.00a: fsync at each close, 5 seekers, 8192 seeks and 3 s before them.
    V2_00,
}

/// What the workload's tasks cost on the processor, each for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// `putc` or `getc` of one byte through stdio.
    pub byte: Duration,
    /// `write` of 8 KiB into the page cache.
    pub write_chunk: Duration,
    /// `read` of 8 KiB out of the page cache.
    pub read_chunk: Duration,
    /// One seek and its read of 8 KiB.
    pub seek: Duration,
    /// Creating an empty file.
    pub create: Duration,
    /// `stat` of a file.
    pub stat: Duration,
    /// Deleting a file.
    pub delete: Duration,
}

/// A board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Board {
    /// Its name on the command line.
    pub name: &'static str,
    /// RAM in bytes.
    pub ram: u64,
    /// Of 1000 bytes of RAM, how many may become dirty page cache (free + file pages).
    pub dirtyable_per_mille: u64,
    /// `vm.dirty_background_bytes` and `vm.dirty_bytes`; `None`: a tenth and a fifth of what may become dirty.
    pub dirty_bytes: Option<[u64; 2]>,
    /// Longest request in sectors of 512 bytes.
    pub max_sectors: u32,
    /// Scheduler tags.
    pub nr_requests: u16,
    /// Length of a tick: how often a write updates the file's time stamp.
    pub tick: Duration,
    /// Data of a transaction is written before its journal blocks (`data=ordered` of kernels that allocate
    /// written extents); else blocks are allocated unwritten and converted after the data is on the card.
    pub ordered: bool,
    /// The bonnie++ of its image.
    pub bonnie: Bonnie,
    /// Per-character passes (`false`: `-f`).
    pub per_char: bool,
    /// `-n`: files in units of 1024.
    pub files_k: u32,
    /// `-s` in bytes.
    pub size: u64,
    /// Limit of the hung-task watchdog.
    pub hung: Duration,
    /// Costs.
    pub cpu: Cpu,
    /// Machine name in the CSV rows.
    pub machine: &'static str,
}

const MIB: u64 = 1 << 20;

/// The ARC HSDK of 2018: `spec/stall.md` §1 (1 GiB, `dw_mmc` with 256 descriptors of 4 KiB, 128 tags, alarm at 10 s,
/// HZ 100), bonnie++ 1.03 with its default of 16 × 1024 files. Processor costs are inferred for a 1 GHz in-order
/// core (`spec/bonnie.md` §4: 3–10 MB/s per character), not measured.
pub const HSDK: Board = Board {
    name: "hsdk",
    ram: 1024 * MIB,
    dirtyable_per_mille: 885,
    dirty_bytes: None,
    max_sectors: 2048,
    nr_requests: 128,
    tick: Duration::from_millis(10),
    ordered: true,
    bonnie: Bonnie::V1_03,
    per_char: true,
    files_k: 16,
    size: 512 * MIB,
    hung: Duration::from_secs(10),
    cpu: Cpu {
        byte: Duration::from_nanos(200),
        write_chunk: Duration::from_micros(80),
        read_chunk: Duration::from_micros(50),
        seek: Duration::from_micros(150),
        create: Duration::from_micros(600),
        stat: Duration::from_micros(150),
        delete: Duration::from_micros(350),
    },
    machine: "HSDK",
};

/// The measured machine of `spec/stall-measured.md`: QEMU, 1152 MiB, `sdhci-pci` with requests of 512 KiB, HZ 250,
/// Linux 5.10 with one-at-a-time dispatch, bonnie++ 2.00a `-f -n 4`. Costs from its own CSV row.
pub const QEMU_SDHCI: Board = Board {
    name: "qemu-sdhci",
    ram: 1152 * MIB,
    dirtyable_per_mille: 745,
    dirty_bytes: None,
    max_sectors: 1024,
    nr_requests: 128,
    tick: Duration::from_millis(4),
    ordered: false,
    bonnie: Bonnie::V2_00,
    per_char: false,
    files_k: 4,
    size: 512 * MIB,
    hung: Duration::from_secs(10),
    cpu: Cpu {
        byte: Duration::from_nanos(500),
        write_chunk: Duration::from_micros(40),
        read_chunk: Duration::from_micros(20),
        seek: Duration::from_micros(60),
        create: Duration::from_micros(200),
        stat: Duration::from_micros(10),
        delete: Duration::from_micros(140),
    },
    machine: "QemuSD",
};

/// All boards.
pub const ALL: [Board; 2] = [HSDK, QEMU_SDHCI];

/// The board of that name.
///
/// # Errors
/// One line naming the value and what is accepted.
pub fn by_name(name: &str) -> Result<Board, String> {
    ALL.into_iter()
        .find(|b| b.name == name)
        .ok_or_else(|| format!("unknown board '{name}': accepted are {}", ALL.map(|b| b.name).join(", ")))
}

impl Board {
    /// Bytes that may become dirty page cache.
    #[must_use]
    pub fn dirtyable(&self) -> u64 {
        self.ram / 1000 * self.dirtyable_per_mille
    }

    /// From how many dirty bytes on the flusher writes, and how many there may be at most.
    #[must_use]
    pub fn dirty_limits(&self) -> [u64; 2] {
        self.dirty_bytes.unwrap_or([self.dirtyable() / 10, self.dirtyable() / 5])
    }
}
