#!/usr/bin/env python3
"""Checks the figures of the main job: `main_job.py DW AGAIN MOCK QEMU`, four files of `mmc-lab bonnie --json` lines."""
import json
import sys


def load(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def main():
    dw, again, mock, qemu = (load(p) for p in sys.argv[1:5])
    bad = []

    def check(name, ok, value):
        print(f"{'ok ' if ok else 'BAD'} {name}: {value}")
        if not ok:
            bad.append(name)

    def near(name, value, measured, share):
        check(f"{name} within {share:.0%} of {measured}", abs(value - measured) <= share * measured, round(value, 3))

    check("three policies in every run", all(len(r) == 3 for r in (dw, again, mock, qemu)), [len(dw), len(mock)])

    def timeless(runs):
        return [{k: v for k, v in run.items() if k != "real_s"} for run in runs]

    check("the same run twice gives the same output but for real_s", timeless(dw) == timeless(again), len(dw))
    for run in dw:
        name = f"hsdk {run['scheduler']} {run['settings']}"
        if run["scheduler"] == "bfq":
            check(f"{name}: no hung task", not run["hung"], len(run["hung"]))
        else:
            check(f"{name}: longest journal wait above 10 s", run["journal"]["max_s"] > 10, run["journal"]["max_s"])
            most = max((h["ahead"]["requests"] for h in run["hung"]), default=0)
            check(f"{name}: a hung task behind more than 100 requests", most > 100, most)
    for a, b in zip(dw, mock):
        same = all(a[k] == b[k] for k in ("commands", "commands_hash", "virtual_s", "journal", "hung"))
        check(f"hsdk {a['scheduler']} {a['settings']}: dw and mock send the same commands", same, a["commands_hash"])
        check("real time (s), for information only", True, (a["real_s"], b["real_s"]))
    mq = qemu[0]
    near("qemu-sdhci mq-deadline: journal p50 (s)", mq["journal"]["p50_s"], 10.71, 0.25)
    near("qemu-sdhci mq-deadline: journal max (s)", mq["journal"]["max_s"], 10.88, 0.25)
    near("qemu-sdhci mq-deadline: write (KiB/s)", mq["phases"]["put_block_kib_s"], 5979, 0.10)
    near("qemu-sdhci mq-deadline: written (MB)", mq["written_mb"], 1090, 0.05)
    bfq = qemu[2]
    check("qemu-sdhci bfq: journal p99 below 0.8 s", bfq["journal"]["p99_s"] < 0.8, bfq["journal"]["p99_s"])
    check("qemu-sdhci bfq: journal max below 2 s", bfq["journal"]["max_s"] < 2, bfq["journal"]["max_s"])
    loss = 1 - bfq["phases"]["put_block_kib_s"] / mq["phases"]["put_block_kib_s"]
    check("qemu-sdhci bfq: write 0 to 8 % slower", 0 <= loss <= 0.08, f"{loss:.2%}")
    sys.exit(1 if bad else 0)


main()
