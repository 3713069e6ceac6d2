#!/usr/bin/env python3
"""reduce.py < NAME.ftrace.txt > NAME.txt: what went into and came out of the elevator, from an ftrace of block events.

One line an event: microseconds since boot, then
  I = inserted, M = merged as a whole request while being inserted, B/F = bio merged at the back/front of a queued
  request, D = issued; then r or w, first sector, sectors.
Merges into a request that is still on its task's plug list are left out: the insertion shows the grown request.
"""
import re, sys

EVENT = re.compile(r'^\s*(\S.*-\d+)\s+\[\d+\]\s+\S+\s+(\d+)\.(\d+): (block_\w+): \S+ (\S+) (.*)$')
EXTENT = re.compile(r'(\d+) \+ (\d+)')
plugged = {}  # task -> [[sector, n], ...]
for line in sys.stdin:
    m = EVENT.match(line)
    if not m:
        continue
    task, s, us, event, rwbs, rest = m.groups()
    sector, n = map(int, EXTENT.search(rest).groups())
    plug = plugged.setdefault(task, [])
    kind = None
    if event == 'block_getrq':
        plug.append([sector, n])
    elif event in ('block_rq_insert', 'block_rq_merge'):
        kind = 'I' if event == 'block_rq_insert' else 'M'
        if [sector, n] in plug:
            plug.remove([sector, n])
        elif kind == 'M':
            sys.exit('a merge of queued requests: ' + line)
    elif event == 'block_bio_backmerge':
        kind = 'B'
        for r in plug:
            if r[0] + r[1] == sector:
                r[1] += n
                kind = None
                break
    elif event == 'block_bio_frontmerge':
        kind = 'F'
        for r in plug:
            if sector + n == r[0]:
                r[0] = sector
                r[1] += n
                kind = None
                break
    elif event == 'block_rq_issue':
        kind = 'D'
    if kind:
        print(int(s) * 1000000 + int(us), kind, 'r' if 'R' in rwbs else 'w', sector, n)
