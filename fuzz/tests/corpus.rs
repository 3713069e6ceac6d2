//! The corpora and some random bytes through every target, without libFuzzer.

use mmc_fuzz::TARGETS;
use proptest::prelude::*;
use std::path::Path;

#[test]
fn every_target_takes_its_corpus() {
    for (name, target) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut seeds = 0;
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            if std::panic::catch_unwind(|| target(&bytes)).is_err() {
                panic!("{name} fails on {}", path.display());
            }
            seeds += 1;
        }
        assert!(seeds >= 10, "{name} has only {seeds} seeds");
    }
}

#[test]
fn every_target_has_a_binary_for_libfuzzer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} has no [[bin]]");
        let binary = std::fs::read_to_string(root.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(binary.contains(&format!("mmc_fuzz::{name}(data)")));
    }
}

proptest! {
    #[test]
    fn every_target_takes_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..80), cut in 0_usize..6) {
        // The lengths that registers and frames have, besides any other.
        let len = [4, 6, 8, 16, 17, 64][cut];
        let exact: Vec<u8> = bytes.iter().copied().chain(std::iter::repeat(0)).take(len).collect();
        for (_, target) in TARGETS {
            target(&bytes);
            target(&exact);
        }
    }
}
